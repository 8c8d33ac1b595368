"""The fused block's backward, 3: the gradient of what a PReLU and a norm take, in one pass.

A program takes a span of frames in a few channels and adds up the parameters' gradients of its
rows in registers. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_frames import load_frames, load_pivot, load_statistics, normalized
from convtasnet_kernels.global_tile import (
    item_length,
    load_slope,
    place,
    spans,
)
from convtasnet_kernels.rows import join_vectors


@triton.jit(do_not_specialize=["B", "T", "chunks", "steps"])
@no_type_check
def _norm_gradient_kernel(
    g_ptr,  # (B, C, T) gradient of the norm's output
    u_ptr,  # (B, C, T) what the PReLU before the norm takes
    slope_ptr,  # (1,) the PReLU's
    gamma_ptr,  # (C,)
    beta_ptr,  # (C,)
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    coeff_ptr,  # (2 or 3, B, T) float32, of gradient_statistics
    lengths_ptr,  # (B,) integers, valid frames, or None
    bias_ptr,  # (C,) still to be added to u, or None
    du_ptr,  # out: (B, C, T)
    z_ptr,  # out: (B, C, T) the norm's output; or None
    sums_ptr,  # out: (B·chunks, 4, C) float32, sums over frames of g·xhat, g, du, dv·min(u, 0)
    B,
    T,
    chunks,  # spans of a row
    steps,  # tiles of a span
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels of a program
    STAGES: tl.constexpr,  # tiles on their way
    OWN: tl.constexpr,  # coeff has a third row, what is taken off g·gamma
    R: tl.constexpr,
    V: tl.constexpr,
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    T = T // V * V  # tells the compiler that rows are whole vectors
    # Backwards, to find in the L2 what the launch before read or wrote last.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    item, channel, chunk = place(program, C, chunks, BLOCK_C)
    length = item_length(lengths_ptr, item, T)
    slope = load_slope(slope_ptr)
    pivot = load_pivot(u_ptr, bias_ptr, slope, item, C, T, FOLD)
    row = (item * C + channel) * T
    g_ptr += row
    u_ptr += row
    du_ptr += row
    if z_ptr is not None:
        z_ptr += row
    coeff_ptr += item * T
    sums = (tl.zeros((R,), tl.float32),) * (4 * BLOCK_C)
    for step in tl.range(0, steps, num_stages=STAGES):
        vector = (chunk * steps + step) * R + tl.arange(0, R)
        rstd, center, rest = load_statistics(stats_ptr, pivot, item, B, vector, T, V, FOLD)
        shift = load_frames(coeff_ptr, vector, T, V)
        scale = load_frames(coeff_ptr + tl.cast(B, tl.int64) * T, vector, T, V)
        if OWN:
            own = load_frames(coeff_ptr + tl.cast(B, tl.int64) * 2 * T, vector, T, V)
        frame = (vector * V)[:, None] + tl.arange(0, V)[None, :]
        live = (vector * V < length)[:, None]
        inside = (vector * V < T)[:, None]
        us, gs = (), ()
        for i in tl.static_range(BLOCK_C):  # all loads before the first store, which holds them up
            mask = live if C % BLOCK_C == 0 else live & (channel + i < C)
            offsets = tl.cast(T, tl.int64) * i + frame
            # Nobody reads them again: so du stays in the L2 for the next launch.
            us += (tl.load(u_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first"),)
            gs += (tl.load(g_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first"),)
        added = sums[:0]
        for i in tl.static_range(BLOCK_C):
            exists = C % BLOCK_C == 0 or channel + i < C
            mask = inside if C % BLOCK_C == 0 else inside & exists
            offsets = tl.cast(T, tl.int64) * i + frame
            u = us[i].to(tl.float32)
            if bias_ptr is not None:
                u += tl.load(bias_ptr + channel + i, mask=exists, other=0.0).to(tl.float32)
            g = gs[i].to(tl.float32)
            if lengths_ptr is not None:
                g = tl.where(frame < length, g, 0.0)
            gamma = tl.load(gamma_ptr + channel + i, mask=exists, other=0.0).to(tl.float32)
            kept = tl.where(u > 0, 1.0, slope)
            xhat = normalized(u * kept, rstd, center, rest, FOLD)
            if z_ptr is not None:
                beta = tl.load(beta_ptr + channel + i, mask=exists, other=0.0).to(tl.float32)
                z = xhat * gamma + beta
                if lengths_ptr is not None:
                    z = tl.where(frame < length, z, 0.0)
                z = z.to(z_ptr.dtype.element_ty)
                tl.store(z_ptr + offsets, z, mask=mask, eviction_policy="evict_first")
            dv = g * gamma
            if OWN:
                dv -= own
            dv = dv * rstd + (xhat * scale + shift)
            du = dv * kept
            tl.store(du_ptr + offsets, du.to(du_ptr.dtype.element_ty), mask=mask)
            added += (
                sums[4 * i] + tl.sum(g * xhat, axis=1),
                sums[4 * i + 1] + tl.sum(g, axis=1),
                sums[4 * i + 2] + tl.sum(du, axis=1),
                sums[4 * i + 3] + tl.sum(dv * tl.minimum(u, 0.0), axis=1),
            )
        sums = added
    n = tl.arange(0, 4 * BLOCK_C)
    c = channel + n // 4
    sums_ptr += (item * chunks + chunk) * (4 * C) + n % 4 * C + c
    tl.store(sums_ptr, tl.sum(join_vectors(sums, 4 * BLOCK_C), axis=0), mask=c < C)


# By bytes an element: channels and vectors of a tile, warps, frames of a span, tiles on their way.
TILES = {2: (4, 64, 2, 4096, 1), 4: (4, 64, 2, 4096, 1)}
REGISTERS = 128  # of a thread at most, so that 16 warps share a multiprocessor


def norm_gradient(
    g: Tensor,
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    coeff: Tensor,
    lengths: Tensor | None,
    needs_z: bool,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradient of u, the norm's output once more, and the parameters' gradients.

    With xhat the normalized prelu(u) and the coefficients of ``gradient_statistics``, the gradient
    behind the PReLU is dv = rstd·g·gamma + shift + xhat·scale.

    Args:
        g: (B, C, T) gradient of the norm's output, T a multiple of the elements in 16 bytes.
        u: (B, C, T) the input of the PReLU before the norm; the map's dtype, as g.
        slope: (1,) of the PReLU.
        gamma: (C,) the norm's scale.
        beta: (C,) the norm's shift.
        stats: (2, B, T) float32, mean - K and 1/std of each frame.
        coeff: of ``gradient_statistics``.
        lengths: (B,) valid frames, or None where all are.
        needs_z: whether the norm's output is wanted.
        bias: (C,) still to be added to u, or None.

    Returns:
        du (B, C, T), zero beyond the valid frames; z (B, C, T) likewise, or None; and (rows, 4·C)
        float32, whose sum over the rows are sums over the valid frames: of g·xhat (gamma's
        gradient), g (beta's), du (that of a bias in u), and dv·min(u, 0) (the slope's, each
        channel's part).
    """
    B, C, T = u.shape
    du = torch.empty_like(u)
    z = torch.empty_like(u) if needs_z else None
    if u.numel() == 0:
        return du, z, stats.new_zeros((1, 4 * C))
    channels, vectors, warps, span, stages = TILES[u.element_size()]
    channels = min(channels, triton.next_power_of_2(C))
    fixed = {"ROWS": True, "R": vectors, "V": 16 // u.element_size()}
    chunks, steps = spans(T, fixed, span)
    sums = stats.new_empty((B * chunks, 4 * C))
    with torch.cuda.device_of(u):
        _norm_gradient_kernel[(B * triton.cdiv(C, channels) * chunks,)](
            g, u, slope, gamma, beta, stats, coeff, lengths, bias, du, z, sums, B, T, chunks, steps,
            C=C, BLOCK_C=channels, STAGES=stages, OWN=coeff.shape[0] == 3,
            R=vectors, V=fixed["V"], num_warps=warps, maxnreg=REGISTERS,
            enable_fp_fusion=coeff.shape[0] == 2,
        )  # fmt: skip
    return du, z, sums
