"""A separator that takes a recording piece by piece, as it comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.model import ConvTasNet
from convtasnet.streaming.folded import fold
from convtasnet.streaming.network import run
from convtasnet.streaming.state import StreamState

# Frames computed at once: on a CPU, few enough for their maps to stay in its caches.
CPU_FRAMES, GPU_FRAMES = 256, 1024
MIN_HALF_LIFE = 10  # frames
Samples = TypeVar("Samples", Tensor, np.ndarray)


class StreamingSeparator:
    """Separates samples as they come in; all outputs together equal one pass of the model.

    Each push gives every sample that no later input can change: after k samples in all, at least
    k − ``latency``. It costs the same however long the stream has been. Many streams can share one
    model's parameters: see :meth:`copy`.

    Args:
        model: a causal model, on any device. Its parameters are taken as they are now.
        half_life: seconds after which a frame counts half in the cumulative norms' statistics, so
            that an endless stream follows its speakers and rooms. None weighs all frames alike,
            as the paper and training do; with a half-life outputs differ from ``model(whole)``.

    Raises:
        ValueError: the model is not causal, or its batch norms are training; a half-life below 10
            frames.

    Example:
        >>> size = {"n_filters": 16, "bn_chan": 8, "hid_chan": 16, "skip_chan": 8, "n_blocks": 2}
        >>> model = ConvTasNet(**size, norm="cumulative", causal=True)
        >>> stream, mixture = StreamingSeparator(model), torch.randn(100)
        >>> voices = [stream.push(mixture[:41]), stream.push(mixture[41:]), stream.flush()]
        >>> [voice.shape[1] for voice in voices]
        [32, 56, 12]
        >>> torch.allclose(torch.cat(voices, 1), model(mixture), atol=1e-5)
        True
    """

    def __init__(self, model: ConvTasNet, half_life: float | None = None) -> None:
        self._model = fold(model)
        self._frames = GPU_FRAMES if self._model.encoder.is_cuda else CPU_FRAMES
        self._decay = decay_of(model, half_life)
        self.reset()

    @property
    def latency(self) -> int:
        """Samples that a sample's output may have to wait for, beyond the sample itself."""
        return self._model.framing.kernel_size - 1

    @property
    def n_src(self) -> int:
        """Sources."""
        return self._model.n_src

    @property
    def sample_rate(self) -> int:
        """Hz of the samples."""
        return self._model.sample_rate

    def push(self, samples: Samples) -> Samples:
        """Take in the next samples.

        Args:
            samples: (k,), k >= 0, a tensor on any device or a NumPy array, of the model's dtype.
                NaN goes the way that it goes in the model: no earlier output has it, but the
                cumulative statistics keep it.

        Returns:
            (n_src, m), the samples that are final now, on the model's device; a NumPy array for a
            NumPy array.

        Raises:
            ValueError: another shape or dtype.
        """
        given = _tensor(samples) if isinstance(samples, np.ndarray) else samples
        self._check(given)
        out = self._advance(given)
        return out.numpy(force=True) if isinstance(samples, np.ndarray) else out

    def flush(self) -> Tensor:
        """End the stream.

        Returns:
            (n_src, m), the rest of the outputs, m < L. The next push begins a new stream.
        """
        state, framing = self._state, self._model.framing
        n_left = len(state.pending) - (0 if state.statistics.count else framing.margin)
        parts = []
        if n_left:
            parts.append(self._advance(state.tail.new_zeros(framing.margin)))
            n_frames, n_pending = state.statistics.count, len(state.pending)
            uncovered = n_pending > state.tail.shape[1] and framing.name != "drop"
            if uncovered or not n_frames:  # one more frame, completed with zeros
                parts.append(self._advance(state.tail.new_zeros(framing.kernel_size - n_pending)))
        out = torch.cat([*parts, state.tail], 1)
        self.reset()
        return F.pad(out, (0, n_left - out.shape[1]))

    def reset(self) -> None:
        """Forget all: the next push begins a new stream."""
        self._state = StreamState.initial(self._model, self._decay)

    def copy(self) -> StreamingSeparator:
        """A stream in the same state that goes its own way from here; parameters are shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.reset()
        other.load_state_dict(self.state_dict())
        return other

    __copy__ = copy

    def state_dict(self) -> dict[str, Tensor]:
        """The state as plain tensors, copied: what ``load_state_dict`` takes, now or later."""
        return self._state.state_dict()

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from a saved state of the same model, on any device.

        Raises:
            ValueError: it is of another model.
        """
        pending = saved.get("pending")  # whose length depends on the samples so far
        if pending is not None and (pending.ndim != 1 or len(pending) > self.latency):
            raise ValueError(f"the state is of another model: pending {tuple(pending.shape)}")
        self._state.load_state_dict(saved)

    def _advance(self, samples: Tensor) -> Tensor:
        """Outputs (n_src, m) of all frames that ``samples`` complete."""
        with torch.inference_mode():
            parts = self._outputs(samples.to(self._model.encoder.device))
            out = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return out.clone()  # an inference tensor could not be changed, nor take part in autograd

    def _outputs(self, samples: Tensor) -> list[Tensor]:
        model, state = self._model, self._state
        length, stride = model.framing.kernel_size, model.framing.stride
        waiting = torch.cat((state.pending, samples))
        n_frames = max(0, (len(waiting) - length) // stride + 1)
        state.pending = waiting[n_frames * stride :].clone()
        if not n_frames:
            return [waiting.new_empty(model.n_src, 0)]
        margin = 0 if state.statistics.count else model.framing.margin
        frames = waiting.unfold(0, length, stride)
        pieces = frames.split(self._frames) if n_frames > self._frames else [frames]
        parts = [run(model, state, few) for few in pieces]
        parts[0] = parts[0][:, margin:]
        return parts

    def _check(self, samples: Tensor) -> None:
        if not isinstance(samples, Tensor):
            raise ValueError(f"samples is a {type(samples).__name__}: a tensor or array is needed")
        if samples.ndim != 1:
            raise ValueError(f"samples has shape {tuple(samples.shape)}, must be (k,): one channel")
        if samples.dtype != self._model.encoder.dtype:
            raise ValueError(
                f"samples has dtype {samples.dtype}, the model {self._model.encoder.dtype}: "
                "convert them; 16-bit integers are to be divided by 32768"
            )


def _tensor(samples: np.ndarray) -> Tensor:
    """The same memory, but for arrays that are read-only or run backwards."""
    return torch.from_numpy(np.require(samples, requirements=["C", "W"]))


def decay_of(model: ConvTasNet, half_life: float | None) -> float:
    """What a frame's weight is multiplied by with every later frame, for a half-life in seconds.

    Raises:
        ValueError: the half-life is no number, or below 10 frames.

    Example:
        >>> model = ConvTasNet(n_filters=16, bn_chan=8, hid_chan=16, skip_chan=8, n_blocks=1)
        >>> decay_of(model, None), round(decay_of(model, 0.01), 3)
        (1.0, 0.933)
    """
    if half_life is None:
        return 1.0
    if not isinstance(half_life, int | float):
        raise ValueError(f"half_life={half_life!r} must be a number of seconds")
    frames = half_life * model.sample_rate / model.stride
    if not frames >= MIN_HALF_LIFE:
        raise ValueError(
            f"half_life={half_life} s is {frames:.3g} frames: at least {MIN_HALF_LIFE} are needed, "
            "and seconds or minutes make sense"
        )
    return 0.5 ** (1 / frames)
