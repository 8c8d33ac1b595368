"""A host of streaming ONNX files: samples in, voices out. NumPy and ONNX Runtime alone.

This file needs nothing else of the project: it may be copied to where the stream runs.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import onnxruntime

RINGS = "past_"  # the states whose new rows are appended
NUMBERS = ("sample_rate", "n_src", "kernel_size", "stride", "frames", "margin", "complete")


class OnnxStream:
    """Runs a file of ``scripts/export.py --streaming`` as ``StreamingSeparator`` runs a model.

    Args:
        file: its path, or its bytes.
        threads: of ONNX Runtime; more than one rarely help steps of a few frames.

    Attributes:
        sample_rate: Hz.
        n_src: voices.
        frames: most frames of a step; longer pushes take several.

    Raises:
        ValueError: a file that is not one of ``--streaming``, or of a version that lacks something.
    """

    def __init__(self, file: str | PathLike[str] | bytes, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            file if isinstance(file, bytes) else str(file),
            options,
            providers=["CPUExecutionProvider"],
        )
        self.outputs = [output.name for output in self.session.get_outputs()]
        meta = self.session.get_modelmeta().custom_metadata_map
        kind, missing = self._missing(meta)
        if missing:
            raise ValueError(
                f"{'the ONNX file' if isinstance(file, bytes) else file} lacks the {kind} "
                f"{', '.join(missing)}: it is no file for streams, or one of another version; make "
                "it anew with scripts/export.py --streaming"
            )
        self.backs = [int(back) for back in meta["backs"].split(",") if back]
        about = {name: int(meta[name]) for name in NUMBERS}
        self.sample_rate, self.n_src = about["sample_rate"], about["n_src"]
        self.frames, self.stride = about["frames"], about["stride"]
        self.kernel_size = about["kernel_size"]
        self.margin, self.complete = about["margin"], bool(about["complete"])
        self.reset()

    def _missing(self, meta: dict[str, str]) -> tuple[str, list[str]]:
        """What of metadata or else of outputs the file lacks."""
        names = [name for name in (*NUMBERS, "backs") if name not in meta]
        if names:
            return "metadata", names
        states = {value.name for value in self.session.get_inputs()} - {"samples"}
        needed = {"new_frames" if name == "taps" else f"next_{name}" for name in states}
        return "outputs", sorted((needed | {"voices"}).difference(self.outputs))

    def reset(self) -> None:
        """Begin a new stream."""
        self.state: dict[str, np.ndarray] = {}
        self.pasts: dict[str, _Past] = {}
        self.ring: _Ring | None = None
        for value in self.session.get_inputs():
            if value.name.startswith(RINGS):
                self.pasts[value.name] = _Past(value.shape, self.frames)
            elif value.name == "taps":
                self.ring = _Ring(value.shape, self.backs)
            elif value.name not in ("samples", "pending"):
                dtype = np.float64 if value.type == "tensor(double)" else np.float32
                self.state[value.name] = np.zeros(value.shape, dtype)
        self.waiting = np.zeros(self.margin, np.float32)  # from the start of the next frame on
        self.started = False

    def push(self, samples: np.ndarray) -> np.ndarray:
        """Take in samples (k,) float32; gives (n_src, m), all that are final."""
        self.waiting = np.concatenate((self.waiting, samples))
        margin = 0 if self.started else self.margin
        voices = [np.zeros((self.n_src, 0), np.float32)]
        while n_frames := max(0, (len(self.waiting) - self.kernel_size) // self.stride + 1):
            voices.append(self._step(min(n_frames, self.frames)))
        return np.concatenate(voices, 1)[:, margin:]

    def flush(self) -> np.ndarray:
        """End the stream; gives (n_src, m), the rest. The next push begins a new one."""
        n_left = len(self.waiting) - (0 if self.started else self.margin)
        voices = [np.zeros((self.n_src, 0), np.float32)]
        if n_left:
            voices.append(self.push(np.zeros(self.margin, np.float32)))
            n_waiting, overlap = len(self.waiting), self.kernel_size - self.stride
            if (n_waiting > overlap and self.complete) or not self.started:
                voices.append(self.push(np.zeros(self.kernel_size - n_waiting, np.float32)))
            voices.append(self.state.get("tail", voices[0]))
        self.reset()
        rest = np.concatenate(voices, 1)[:, :n_left]
        return np.pad(rest, ((0, 0), (0, n_left - rest.shape[1])))

    def _step(self, n_frames: int) -> np.ndarray:
        done = n_frames * self.stride
        overlap = self.kernel_size - self.stride
        feeds = {"samples": self.waiting[overlap : overlap + done], **self.state}
        if overlap:
            feeds["pending"] = self.waiting[:overlap]
        feeds |= {name: past.seen() for name, past in self.pasts.items()}
        if self.ring:
            feeds["taps"] = self.ring.seen(n_frames)
        results = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
        for name in self.state:
            self.state[name] = results[f"next_{name}"]
        for name, past in self.pasts.items():
            past.append(results[f"next_{name}"])
        if self.ring:
            self.ring.append(results["new_frames"])
        self.waiting, self.started = self.waiting[done:], True
        return results["voices"]


class _Ring:
    """The last frames of several blocks, of which the host picks out those that taps see."""

    def __init__(self, shape: list[Any], backs: list[int]) -> None:
        n_taps, n_blocks, _, n_channels = shape
        self.backs = np.array(backs).reshape(n_taps, n_blocks, 1)
        self.size, self.count = max(backs), 0
        self.blocks = np.arange(n_blocks)[:, None]
        self.rows = np.zeros((n_blocks, self.size, n_channels), np.float32)

    def seen(self, n_frames: int) -> np.ndarray:
        """What the taps see in the next frames, (taps, blocks, n_frames, H)."""
        frames = np.arange(self.count, self.count + n_frames)
        return self.rows[self.blocks, (frames - self.backs) % self.size]

    def append(self, new: np.ndarray) -> None:
        """Take in new frames (blocks, k, H)."""
        end = self.count + new.shape[1]
        self.rows[:, np.arange(self.count, end) % self.size] = new
        self.count = end


class _Past:
    """Rows that are appended to, the last ``reach`` of which are seen.

    When there is no room left, those move to the front: so little is copied.
    """

    def __init__(self, shape: list[int], room: int) -> None:
        _, reach, n_channels = shape
        self.reach = self.end = reach
        self.rows = np.zeros((1, 2 * reach + room, n_channels), np.float32)

    def seen(self) -> np.ndarray:
        return self.rows[:, self.end - self.reach : self.end]

    def append(self, new: np.ndarray) -> None:
        n_frames = new.shape[1]
        if self.end + n_frames > self.rows.shape[1]:
            self.rows[:, : self.reach] = self.seen()
            self.end = self.reach
        self.rows[:, self.end : self.end + n_frames] = new
        self.end += n_frames
