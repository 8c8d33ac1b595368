"""Frames that overlap and add up to waveforms: the function, and an operator of its kernels.

Where Triton does not run, it is PyTorch's own operators: other tools can export these.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from convtasnet_kernels.backend import runs_in_triton
from convtasnet_kernels.checks import DTYPES, check_tensor


def overlap_add(
    samples: Tensor,
    stride: int,
    length: int,
    margin: int = 0,
    n_frames: int | None = None,
    frames: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Waveforms of frames that begin every ``stride`` samples; zeros where there are none.

    Args:
        samples: (B·S, L, F) of the frames, floating.
        stride: from a frame to the next, at most L.
        length: T of the waveforms.
        margin: samples of the first frames that come before the waveform.
        n_frames: valid frames, at least 1; None for all F.
        frames: (B,) integers, those of each item, at most n_frames; None where all of these are.
        lengths: (B,) integers, samples of each item, behind which its waveforms are zero, or None.

    Returns:
        (B·S, T) of the samples' dtype.

    Raises:
        ValueError: an argument of another shape or dtype, or a backend that cannot run.

    >>> overlap_add(torch.ones(1, 4, 3), stride=2, length=9, n_frames=2)
    tensor([[1., 1., 2., 2., 1., 1., 0., 0., 0.]])
    """
    _check(samples, stride, length, margin, n_frames, frames, lengths)
    n_frames = samples.shape[2] if n_frames is None else n_frames
    if runs_in_triton("overlap_add", samples):
        return overlapped(samples, stride, length, margin, n_frames, frames, lengths)
    return _in_operators(samples, stride, length, margin, n_frames, frames, lengths)


def _check(
    samples: Tensor,
    stride: int,
    length: int,
    margin: int,
    n_frames: int | None,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> None:
    check_tensor("samples", samples)
    if samples.dim() != 3 or samples.dtype not in DTYPES:
        raise ValueError(
            f"samples must be a floating (B·S, L, F), got {tuple(samples.shape)} of {samples.dtype}"
        )
    rows, taps, all_frames = samples.shape
    if not 1 <= stride <= taps:
        raise ValueError(f"stride must be between 1 and L = {taps}, got {stride}")
    if length < 0 or margin < 0:
        raise ValueError(f"length and margin must be at least 0, got {length} and {margin}")
    if n_frames is not None and not 1 <= n_frames <= all_frames:
        raise ValueError(f"n_frames must be between 1 and F = {all_frames}, got {n_frames}")
    for name, given in (("frames", frames), ("lengths", lengths)):
        if given is None:
            continue
        check_tensor(name, given)
        if given.dim() != 1 or rows % max(len(given), 1):
            raise ValueError(
                f"{name} must be (B,), B a divisor of {rows}, got {tuple(given.shape)}"
            )
        if given.device != samples.device:
            raise ValueError(f"{name} is on {given.device}, samples on {samples.device}")


def _in_operators(
    samples: Tensor,
    stride: int,
    length: int,
    margin: int,
    n_frames: int,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    samples = _cut(samples[..., :n_frames], frames)
    L, F = samples.shape[1:]
    covered = (F - 1) * stride + L
    y = functional.fold(samples, (1, covered), (1, L), stride=(1, stride))[:, 0, 0]
    return _cut(functional.pad(y, (-margin, length + margin - covered)), lengths)


def _cut(x: Tensor, valid: Tensor | None) -> Tensor:
    """A map (B·S, ..., T), zero behind the valid elements (B,) of its last axis."""
    if valid is None:
        return x
    t = torch.arange(x.shape[-1], device=x.device)
    inside = (t < valid[:, None]).view(len(valid), *[1] * (x.dim() - 1), -1)
    return torch.where(inside, x.unflatten(0, (len(valid), -1)), 0.0).flatten(0, 1)


@torch.library.custom_op("convtasnet::overlap_add", mutates_args=())
def overlapped(
    samples: Tensor,
    stride: int,
    length: int,
    margin: int,
    n_frames: int,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    """As ``overlap_add``, in Triton."""
    from convtasnet_kernels import overlap

    return overlap.forward(samples.contiguous(), stride, length, margin, n_frames, frames, lengths)


@torch.library.custom_op("convtasnet::overlap_add_backward", mutates_args=())
def overlapped_backward(
    dy: Tensor,
    taps: int,
    all_frames: int,
    stride: int,
    margin: int,
    n_frames: int,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    """Gradient (B·S, taps, all_frames) of the samples."""
    from convtasnet_kernels import overlap

    sizes = (taps, all_frames, stride, margin, n_frames)
    return overlap.backward(dy.contiguous(), *sizes, frames, lengths)


@overlapped.register_fake
def _(samples: Tensor, stride: int, length: int, *_: Any) -> Tensor:
    return samples.new_empty((samples.shape[0], length))


@overlapped_backward.register_fake
def _(dy: Tensor, taps: int, all_frames: int, *_: Any) -> Tensor:
    return dy.new_empty((dy.shape[0], taps, all_frames))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    samples, stride, _, margin, n_frames, frames, lengths = inputs
    ctx.sizes = (*samples.shape[1:], stride, margin, n_frames)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(frames, lengths)


def _gradients(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
    rest = (None,) * 6
    return (None if dy is None else overlapped_backward(dy, *ctx.sizes, *ctx.saved_tensors), *rest)


overlapped.register_autograd(_gradients, setup_context=_setup_context)
