"""Where the encoder's frames lie on a waveform, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

FRAMINGS = ("complete", "drop", "centered")
Length = TypeVar("Length", int, Tensor)


@dataclass(frozen=True)
class Framing:
    """Frames of ``kernel_size`` samples, one every ``stride``.

    Args:
        name: "complete": the first frame starts at the first sample, and the last one is completed
            with zeros. "drop": an incomplete last frame is left out, and the output is zero there
            (asteroid, SpeechBrain, kaituoxu); a waveform shorter than one frame is completed all
            the same. "centered": "complete" with ``stride`` zeros on both sides, so that the
            first frame has its middle near the first sample (torchaudio).
        kernel_size: samples of a frame.
        stride: samples from one frame to the next.

    Example:
        >>> [Framing(name, 16, 8).count(100) for name in FRAMINGS]
        [12, 11, 14]
    """

    name: str
    kernel_size: int
    stride: int

    @property
    def margin(self) -> int:
        """Zeros before the first sample."""
        return self.stride if self.name == "centered" else 0

    def count(self, length: Length) -> Length:
        """Frames of a waveform of ``length`` samples; of each, for a tensor of lengths."""
        incomplete = 0 if self.name == "drop" else self.stride - 1
        # One sum, as each operator on a tensor of lengths is a launch.
        beyond = 2 * self.margin - self.kernel_size + self.stride + incomplete
        frames = (length + beyond) // self.stride
        return frames.clamp(min=1) if isinstance(frames, Tensor) else max(frames, 1)

    def framed(self, x: Tensor, n_frames: int) -> Tensor:
        """Pad or cut x (..., T) to what so many frames cover."""
        covered = (n_frames - 1) * self.stride + self.kernel_size
        return nn.functional.pad(x, (self.margin, covered - self.margin - x.shape[-1]))
