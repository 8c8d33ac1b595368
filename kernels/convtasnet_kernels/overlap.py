"""Frames that overlap and add up to waveforms, in Triton: one launch a direction.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.global_tile import item_length


@triton.jit(do_not_specialize=["S", "F", "n_frames", "T", "margin", "tiles"])
def _forward_kernel(
    samples_ptr,  # (B·S, L, F)
    frames_ptr,  # (B,) integers, valid frames, or None
    lengths_ptr,  # (B,) integers, valid samples, or None
    y_ptr,  # out: (B·S, T)
    S,  # rows that share an item's valid frames and samples
    F,  # frames of a row
    n_frames,  # valid ones of an item, at most; all where frames_ptr is None
    T,  # samples of a waveform
    margin,  # samples of the first frames that come before the waveform
    tiles,  # of a waveform
    L: tl.constexpr,  # samples of a frame
    STRIDE: tl.constexpr,  # samples from a frame to the next
    BLOCK: tl.constexpr,  # samples of a tile
):
    row = (tl.program_id(0) // tiles).to(tl.int64)
    t = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    frames = item_length(frames_ptr, row // S, n_frames)
    valid = t < item_length(lengths_ptr, row // S, T)
    last = (t + margin) // STRIDE
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range((L + STRIDE - 1) // STRIDE):
        frame = last - k
        tap = (t + margin) % STRIDE + k * STRIDE
        mask = valid & (tap < L) & (frame >= 0) & (frame < frames)
        places = (row * L + tap) * F + frame
        total += tl.load(samples_ptr + places, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * T + t, total.to(y_ptr.dtype.element_ty), mask=t < T)


@triton.jit(do_not_specialize=["S", "F", "n_frames", "T", "margin", "tiles"])
def _backward_kernel(
    dy_ptr,  # (B·S, T)
    frames_ptr,  # as in the forward kernel, and so all that follows
    lengths_ptr,
    d_samples_ptr,  # out: (B·S, L, F)
    S,
    F,
    n_frames,
    T,
    margin,
    tiles,  # of the frames
    L: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK_L: tl.constexpr,  # room for L
    BLOCK: tl.constexpr,  # frames of a tile
):
    row = (tl.program_id(0) // tiles).to(tl.int64)
    frame = (tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK))[None, :]
    tap = tl.arange(0, BLOCK_L)[:, None]
    t = frame * STRIDE + tap - margin
    exists = (tap < L) & (frame < F)
    mask = exists & (frame < item_length(frames_ptr, row // S, n_frames))
    mask &= (t >= 0) & (t < item_length(lengths_ptr, row // S, T))
    value = tl.load(dy_ptr + row * T + t, mask=mask, other=0.0)
    tl.store(d_samples_ptr + (row * L + tap) * F + frame, value, mask=exists)


TILE, WARPS = 1024, 4  # elements of a program


def forward(
    samples: Tensor,
    stride: int,
    length: int,
    margin: int,
    n_frames: int,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    """As ``overlap_op.overlap_add``, of contiguous samples."""
    rows, L, F = samples.shape
    y = samples.new_empty((rows, length))
    tiles = triton.cdiv(length, TILE)
    if y.numel() > 0:
        with torch.cuda.device_of(samples):
            _forward_kernel[(rows * tiles,)](
                samples, frames, lengths, y, _sources(rows, frames, lengths), F, n_frames, length,
                margin, tiles, L=L, STRIDE=stride, BLOCK=TILE, num_warps=WARPS,
            )  # fmt: skip
    return y


def backward(
    dy: Tensor,
    L: int,
    F: int,
    stride: int,
    margin: int,
    n_frames: int,
    frames: Tensor | None,
    lengths: Tensor | None,
) -> Tensor:
    """Gradient (B·S, L, F) of the samples, from contiguous dy (B·S, T)."""
    rows, length = dy.shape
    d_samples = dy.new_empty((rows, L, F))
    room = triton.next_power_of_2(L)
    block = max(TILE // room, 1)
    tiles = triton.cdiv(F, block)
    if d_samples.numel() > 0:
        with torch.cuda.device_of(dy):
            _backward_kernel[(rows * tiles,)](
                dy, frames, lengths, d_samples, _sources(rows, frames, lengths), F, n_frames,
                length, margin, tiles, L=L, STRIDE=stride, BLOCK_L=room, BLOCK=block,
                num_warps=WARPS,
            )  # fmt: skip
    return d_samples


def _sources(rows: int, frames: Tensor | None, lengths: Tensor | None) -> int:
    """Rows that share an item's valid frames and samples."""
    items = next((len(given) for given in (frames, lengths) if given is not None), rows)
    return rows // max(items, 1)
