"""The last frames of a map, for convolutions that look back."""

from __future__ import annotations

from torch import Tensor

# A buffer has room for some pushes, so that frames rarely move, unless they are that long.
SPARE_PUSHES, SPARE_FRAMES = 4, 128


class History:
    """A buffer that new frames are written into, behind those of earlier pushes.

    Frames before the first are zero. When the buffer is full, the frames that are still needed move
    to its front: that is rare, and all that is read or written is a plain slice. The buffer is only
    as long as the pushes ask for, so that it stays in the caches.

    Args:
        like: (H,), of the frames' dtype and device.
        reach: frames to look back.

    Example:
        >>> import torch
        >>> history = History(torch.zeros(1), reach=2)
        >>> for frame in range(1, 6):
        ...     history.grow(1)[0] = frame
        >>> history.back(2, 1), history.frames().T
        (tensor([[3.]]), tensor([[4., 5.]]))
    """

    def __init__(self, like: Tensor, reach: int) -> None:
        self.reach, self.end = reach, reach
        self.buffer = like.new_zeros(reach, len(like))

    def grow(self, n_frames: int) -> Tensor:
        """The next frames (n_frames, H), to be written by the caller."""
        if self.end + n_frames > len(self.buffer):
            self._move(n_frames)
        self.end += n_frames
        return self.buffer[self.end - n_frames : self.end]

    def back(self, distance: int, n_frames: int) -> Tensor:
        """The frames (n_frames, H) that lie ``distance`` before the newest ones."""
        end = self.end - distance
        return self.buffer[end - n_frames : end]

    def frames(self) -> Tensor:
        """The frames (reach, H) that later pushes need."""
        return self.buffer[self.end - self.reach : self.end]

    def _move(self, n_frames: int) -> None:
        room = max(n_frames, min(SPARE_PUSHES * n_frames, SPARE_FRAMES))
        needed, frames = 2 * self.reach + room, self.frames()  # which do not overlap their copy
        if len(self.buffer) < needed:
            self.buffer = self.buffer.new_empty(needed, self.buffer.shape[1])
        self.buffer[: self.reach] = frames
        self.end = self.reach
