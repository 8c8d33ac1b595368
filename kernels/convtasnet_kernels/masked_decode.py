"""Masks, their product with the features and the decoder in Triton: each map is read once.

A program takes a tile of the frames of one item and goes over the filters, all sources at once; no
mask and no masked map is ever written. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import no_tiles
from convtasnet_kernels.partials import sum_rows


@triton.jit
def _place(units, tiles, ALIGN: tl.constexpr, BLOCK_F: tl.constexpr):
    """Item (int64) of the program, its tile, its frames (BLOCK_F,), and how many a row has."""
    program = tl.program_id(0)
    tile = program % tiles
    frame = tile * BLOCK_F + tl.arange(0, BLOCK_F)
    return (program // tiles).to(tl.int64), tile, frame, units * ALIGN


@triton.jit
def _offsets(row, frame, frames):
    """(rows, BLOCK_F) places in a map (…, F)."""
    return row.to(tl.int64)[:, None] * frames + frame[None, :]


@triton.jit
def _inside(n, frame, frames, N: tl.constexpr, EVEN: tl.constexpr):
    """Which of (BLOCK_N, BLOCK_F) are filters and frames."""
    inside = (frame < frames)[None, :]
    if not EVEN:
        inside &= (n < N)[:, None]
    return inside


@triton.jit
def _load_map(map_ptr, source, n, frame, frames, N: tl.constexpr, EVEN: tl.constexpr):
    """(BLOCK_N, BLOCK_F) of a source in a map (S·N, F); zero outside."""
    offsets, inside = _offsets(source * N + n, frame, frames), _inside(n, frame, frames, N, EVEN)
    return tl.load(map_ptr + offsets, mask=inside, other=0.0)


@triton.jit
def _store_map(map_ptr, values, source, n, frame, frames, N: tl.constexpr, EVEN: tl.constexpr):
    """Stores (BLOCK_N, BLOCK_F) of a source into a map (S·N, F)."""
    offsets, inside = _offsets(source * N + n, frame, frames), _inside(n, frame, frames, N, EVEN)
    tl.store(map_ptr + offsets, values.to(map_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _load_scores(
    scores_ptr, bias_ptr, source, n, frame, frames, N: tl.constexpr, EVEN: tl.constexpr
):
    """float32 (BLOCK_N, BLOCK_F) of a source's scores, with their bias."""
    score = _load_map(scores_ptr, source, n, frame, frames, N, EVEN).to(tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + source * N + n, mask=n < N, other=0.0)
        score += bias.to(tl.float32)[:, None]
    return score


@triton.jit
def _relu(score):
    """As PyTorch's: a NaN stays one."""
    return tl.where(score <= 0, 0.0, score)


@triton.jit
def _rounded(x, PRECISION: tl.constexpr):
    """float32 to the nearest TF32, where products would cut it off; a NaN stays one."""
    if PRECISION == "tf32" and x.dtype.primitive_bitwidth == 32:
        nearest = (x.to(tl.int32, bitcast=True) + 0x1000).to(tl.float32, bitcast=True)
        return tl.where(x == x, nearest, x)
    else:
        return x


@triton.jit(do_not_specialize=["units", "tiles"])
def _forward_kernel(
    scores_ptr,  # (B, S·N, F)
    bias_ptr,  # (S·N,) or None
    features_ptr,  # (B, N, F)
    filters_ptr,  # (N, L)
    samples_ptr,  # out: (B·S, L, F)
    units,  # F / ALIGN
    tiles,  # programs an item
    S: tl.constexpr,
    N: tl.constexpr,
    L: tl.constexpr,
    ALIGN: tl.constexpr,  # frames that begin at whole vectors
    EVEN: tl.constexpr,  # BLOCK_N divides N
    PRECISION: tl.constexpr,  # of float32 products, as tl.dot takes it
    BLOCK_L: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_F: tl.constexpr,
):
    item, _, frame, frames = _place(units, tiles, ALIGN, BLOCK_F)
    tap = tl.arange(0, BLOCK_L)
    scores_ptr += item * S * N * frames
    features_ptr += item * N * frames
    samples_ptr += item * S * L * frames
    sums = no_tiles()
    for _ in tl.static_range(S):
        sums += (tl.zeros((BLOCK_L, BLOCK_F), tl.float32),)
    for start in tl.range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        features = _load_map(features_ptr, 0, n, frame, frames, N, EVEN)
        mask = (tap < L)[:, None] & (n < N)[None, :]
        filters = tl.load(filters_ptr + n[None, :] * L + tap[:, None], mask=mask, other=0.0)
        filters = _rounded(filters, PRECISION)
        added = no_tiles()
        for s in tl.static_range(S):
            score = _load_scores(scores_ptr, bias_ptr, s, n, frame, frames, N, EVEN)
            masked = (_relu(score) * features.to(tl.float32)).to(features.dtype)
            masked = _rounded(masked, PRECISION)
            added += (tl.dot(filters, masked, sums[s], input_precision=PRECISION),)
        sums = added
    mask = (tap < L)[:, None] & (frame < frames)[None, :]
    for s in tl.static_range(S):
        offsets = _offsets(s * L + tap, frame, frames)
        tl.store(samples_ptr + offsets, sums[s].to(samples_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["units", "tiles"])
def _backward_kernel(
    dy_ptr,  # (B·S, L, F) gradient of the samples
    scores_ptr,  # (B, S·N, F)
    bias_ptr,  # (S·N,) or None
    features_ptr,  # (B, N, F)
    filters_ptr,  # (N, L)
    d_scores_ptr,  # out: (B, S·N, F)
    d_features_ptr,  # out: (B, N, F)
    filters_rows_ptr,  # out: (B·tiles, N, L) float32 parts, each row ROW elements apart; or None
    bias_rows_ptr,  # out: (B·tiles, S·N) float32 parts, likewise; or None
    units,  # as in the forward kernel, and so all that follows
    tiles,
    S: tl.constexpr,
    N: tl.constexpr,
    L: tl.constexpr,
    ALIGN: tl.constexpr,
    EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
    ROW: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_F: tl.constexpr,
):
    item, tile, frame, frames = _place(units, tiles, ALIGN, BLOCK_F)
    tap = tl.arange(0, BLOCK_L)
    scores_ptr += item * S * N * frames
    d_scores_ptr += item * S * N * frames
    features_ptr += item * N * frames
    d_features_ptr += item * N * frames
    dy_ptr += item * S * L * frames
    row = (item * tiles + tile) * ROW
    inside = (tap < L)[:, None] & (frame < frames)[None, :]
    dy = no_tiles()
    for s in tl.static_range(S):
        value = tl.load(dy_ptr + _offsets(s * L + tap, frame, frames), mask=inside, other=0.0)
        dy += (_rounded(value, PRECISION),)
    for start in tl.range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        features = _load_map(features_ptr, 0, n, frame, frames, N, EVEN)
        mask = (n < N)[:, None] & (tap < L)[None, :]
        filters = tl.load(filters_ptr + n[:, None] * L + tap[None, :], mask=mask, other=0.0)
        filters = _rounded(filters, PRECISION)
        d_features = tl.zeros((BLOCK_N, BLOCK_F), tl.float32)
        d_filters = tl.zeros((BLOCK_N, BLOCK_L), tl.float32)
        for s in tl.static_range(S):
            score = _load_scores(scores_ptr, bias_ptr, s, n, frame, frames, N, EVEN)
            mask_of = _relu(score)
            g = tl.dot(filters, dy[s], input_precision=PRECISION)
            d_features += g * mask_of
            d_score = tl.where(score <= 0, 0.0, g * features.to(tl.float32))
            _store_map(d_scores_ptr, d_score, s, n, frame, frames, N, EVEN)
            if bias_rows_ptr is not None:
                tl.store(bias_rows_ptr + row + s * N + n, tl.sum(d_score, axis=1), mask=n < N)
            if filters_rows_ptr is not None:
                masked = (mask_of * features.to(tl.float32)).to(features.dtype)
                masked = _rounded(masked, PRECISION)
                d_filters = tl.dot(masked, tl.trans(dy[s]), d_filters, input_precision=PRECISION)
        _store_map(d_features_ptr, d_features, 0, n, frame, frames, N, EVEN)
        if filters_rows_ptr is not None:
            tl.store(filters_rows_ptr + row + n[:, None] * L + tap[None, :], d_filters, mask=mask)


class Tile(NamedTuple):
    """How a program is laid out.

    Args:
        filters: it takes at once.
        frames: it takes, where sources and samples of a frame are few.
        warps: of it.
        stages: of filters that are on their way.
    """

    filters: int
    frames: int
    warps: int
    stages: int


FORWARD_TILE = Tile(32, 128, 4, 3)
BACKWARD_TILE = Tile(32, 32, 4, 3)
EXACT_TILE = Tile(16, 64, 4, 2)  # of float32 products without TF32, which take registers
ROWS = 128  # of samples, those of all sources, that such tiles have room for
DOT = 16  # no side of a product of tiles is shorter
ALIGN = 8  # frames, 16 bytes of two each


def _padded(size: int) -> int:
    return max(DOT, triton.next_power_of_2(size))


def arguments(
    scores: Tensor, features: Tensor, filters: Tensor, tile: Tile
) -> tuple[int, dict[str, Any]]:
    """Programs of a launch, and the arguments that both kernels take."""
    B, N, F = features.shape
    S, L = scores.shape[1] // N, filters.shape[1]
    allowed = precision()
    if features.dtype == torch.float32 and allowed == "ieee":
        tile = EXACT_TILE
    block = min(tile.filters, _padded(N))
    frames = tile.frames * ROWS // max(ROWS, triton.next_power_of_2(S * _padded(L)))
    align = ALIGN if F % ALIGN == 0 else 1
    programs = triton.cdiv(F, frames)
    return B * programs, {
        "units": F // align,
        "tiles": programs,
        "S": S,
        "N": N,
        "L": L,
        "ALIGN": align,
        "EVEN": N % block == 0,
        "PRECISION": allowed,
        "BLOCK_L": _padded(L),
        "BLOCK_N": block,
        "BLOCK_F": frames,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def precision() -> str:
    """Of float32 products, as ``torch.set_float32_matmul_precision`` and its like allow it."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def forward(scores: Tensor, bias: Tensor | None, features: Tensor, filters: Tensor) -> Tensor:
    """As ``masked_decode_torch.forward``, on the maps' device."""
    filters = filters.to(features.dtype)
    B, N, F = features.shape
    samples = features.new_empty((B * scores.shape[1] // N, filters.shape[1], F))
    if samples.numel() == 0:
        return samples
    programs, rest = arguments(scores, features, filters, FORWARD_TILE)
    with torch.cuda.device_of(features):
        _forward_kernel[(programs,)](scores, bias, features, filters, samples, **rest)
    return samples


def backward(
    dy: Tensor,
    scores: Tensor,
    bias: Tensor | None,
    features: Tensor,
    filters: Tensor,
    needs_filters: bool,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``masked_decode_torch.backward``, on the maps' device."""
    filters = filters.to(features.dtype)
    d_scores, d_features = torch.empty_like(scores), torch.empty_like(features)
    programs, rest = arguments(scores, features, filters, BACKWARD_TILE)
    split = filters.numel() if needs_filters else 0
    width = split + (scores.shape[1] if needs_bias else 0)
    rows = features.new_empty((programs, width), dtype=torch.float32)
    if features.numel() > 0:
        with torch.cuda.device_of(features):
            _backward_kernel[(programs,)](
                dy, scores, bias, features, filters, d_scores, d_features,
                rows if needs_filters else None, rows[:, split:] if needs_bias else None,
                ROW=width, **rest,
            )  # fmt: skip
    return d_scores, d_features, sum_rows(rows)
