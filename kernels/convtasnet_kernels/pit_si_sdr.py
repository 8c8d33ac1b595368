"""The permutation-invariant SI-SDR loss in Triton: two launches forward, one backward.

All of it follows from sums over each signal and over the product of each pair. They are float64 of
differences to the signal's first sample: so means and energies may be subtracted from each other,
and one pass over the signals is enough. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import pit_si_sdr_torch
from convtasnet_kernels.block_tile import no_tiles
from convtasnet_kernels.global_tile import item_length

DECIBELS = tl.constexpr(pit_si_sdr_torch.DECIBELS)


@triton.jit
def _from_first(signal_ptr, t, valid):
    """float64 differences of samples (BLOCK,) to the signal's first, zero where not valid."""
    first = tl.load(signal_ptr)
    x = tl.load(signal_ptr + t, mask=valid, other=0.0)
    # Not the difference of equal infinities: a constant is silent, whatever it is.
    return tl.where(valid & (x != first), x.to(tl.float64) - first.to(tl.float64), 0.0)


@triton.jit(do_not_specialize=["T", "tiles"])
def _sums_kernel(
    est_ptr,  # (B, S, T)
    ref_ptr,  # (B, S, T)
    lengths_ptr,  # (B,) integers, valid samples, or None
    sums_ptr,  # out: (B, 4·S + S², tiles) float64, see ROWS
    T,  # samples of a signal
    tiles,  # of a signal
    S: tl.constexpr,  # sources
    BLOCK: tl.constexpr,  # samples of a tile
):
    """ROWS of an item: of each estimate, then of each reference, the sums of its differences and of
    their squares; then of the products of each pair.
    """
    item = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    t = tile * BLOCK + tl.arange(0, BLOCK)
    valid = t < item_length(lengths_ptr, item, T)
    signals = no_tiles()
    for i in tl.static_range(S):
        signals += (_from_first(est_ptr + (item * S + i) * T, t, valid),)
    for j in tl.static_range(S):
        signals += (_from_first(ref_ptr + (item * S + j) * T, t, valid),)
    sums_ptr += item * (4 * S + S * S) * tiles + tile
    for k in tl.static_range(2 * S):
        tl.store(sums_ptr, tl.sum(signals[k], axis=0))
        tl.store(sums_ptr + tiles, tl.sum(signals[k] * signals[k], axis=0))
        sums_ptr += 2 * tiles
    for i in tl.static_range(S):
        for j in tl.static_range(S):
            tl.store(sums_ptr, tl.sum(signals[i] * signals[S + j], axis=0))
            sums_ptr += tiles


@triton.jit
def _row_sums(sums_ptr, row, exists, tiles, TILES: tl.constexpr):
    """The rows (ITEMS, PAIRS) of sums_ptr, each added up over its tiles."""
    total = tl.zeros(row.shape, tl.float64)
    tile = tl.arange(0, TILES)[None, None, :]
    start = tl.zeros((), tl.int32)
    while start < tiles:
        mask = exists[:, :, None] & (start + tile < tiles)
        places = row[:, :, None] * tiles + start + tile
        total += tl.sum(tl.load(sums_ptr + places, mask=mask, other=0.0), axis=2)
        start += TILES
    return total


@triton.jit
def _best_matching(scores, masks_ptr, matchings, pair):
    """Of pairs (ITEMS, PAIRS): which belong to the matching with the highest sum."""
    best = tl.sum(scores * 0.0, axis=1) - float("inf")
    chosen = scores != scores
    p = tl.zeros((), tl.int32)
    while p < matchings:
        used = ((tl.load(masks_ptr + p) >> pair) & 1) != 0
        total = tl.sum(tl.where(used, scores, 0.0), axis=1)
        better = total > best
        chosen = (used & better[:, None]) | (chosen & ~better[:, None])
        best = tl.where(better, total, best)
        p += 1
    return chosen


@triton.jit(do_not_specialize=["B", "T", "tiles", "matchings"])
def _match_kernel(
    sums_ptr,  # (B, 4·S + S², tiles) float64, of _sums_kernel
    lengths_ptr,  # (B,) integers, valid samples, or None
    masks_ptr,  # (matchings,) int32, bit i·S + j: estimate i belongs to reference j
    loss_ptr,  # out: (1,)
    count_ptr,  # out: (1,) float64, audible references
    perm_ptr,  # out: (B, S) int64, the estimate of each reference
    coeff_ptr,  # out: (B, S, 3) float64, see pit_si_sdr_torch.forward
    floor,  # added to both parts of an energy of 1
    B,  # items
    T,  # samples of a signal
    tiles,  # of a signal
    matchings,  # S!
    S: tl.constexpr,  # sources
    ITEMS: tl.constexpr,  # at a time
    PAIRS: tl.constexpr,  # room for S²
    TILES: tl.constexpr,  # at a time
):
    pair = tl.arange(0, PAIRS)[None, :]
    est = pair // S
    ref = pair % S
    loss = tl.zeros((), tl.float64)
    count = tl.zeros((), tl.float64)
    start = tl.zeros((), tl.int32)
    while start < B:
        item = start + tl.arange(0, ITEMS)[:, None]
        exists = (item < B) & (pair < S * S)
        n = tl.zeros((ITEMS, 1), tl.float64) + T
        if lengths_ptr is not None:
            given = tl.load(lengths_ptr + item, mask=item < B, other=1)
            n = tl.minimum(tl.maximum(given, 1), T).to(tl.float64)
        row = item.to(tl.int64) * (4 * S + S * S)
        mean_e = _row_sums(sums_ptr, row + 2 * est, exists, tiles, TILES) / n
        energy_e = _row_sums(sums_ptr, row + 2 * est + 1, exists, tiles, TILES)
        mean_r = _row_sums(sums_ptr, row + 2 * (S + ref), exists, tiles, TILES) / n
        energy_r = _row_sums(sums_ptr, row + 2 * (S + ref) + 1, exists, tiles, TILES)
        products = _row_sums(sums_ptr, row + 4 * S + pair, exists, tiles, TILES)
        silent = energy_e == 0
        audible = (energy_r != 0) & exists
        norm_e = tl.sqrt(tl.where(silent, 1.0, energy_e - n * mean_e * mean_e))
        norm_r = tl.sqrt(tl.where(audible, energy_r - n * mean_r * mean_r, 1.0))
        cosine = (products - n * mean_e * mean_r) / (norm_e * norm_r)
        target = cosine * cosine
        rest = 1.0 - target
        rest = tl.where(rest < 0, 0.0, rest)  # rounding; a maximum would swallow NaN
        value = DECIBELS * (tl.log(target + floor) - tl.log(rest + floor))
        chosen = _best_matching(
            tl.where(audible & (value == value), value, 0.0), masks_ptr, matchings, pair
        )
        loss -= tl.sum(tl.sum(tl.where(chosen & audible, value, 0.0), axis=1), axis=0)
        count += tl.sum(tl.sum((chosen & audible).to(tl.float64), axis=1), axis=0)
        slope = 2.0 * DECIBELS * cosine * (1.0 / (target + floor) + 1.0 / (rest + floor)) / norm_e
        slope = tl.where(audible & ~silent, slope, 0.0)
        own = -slope * cosine / norm_e
        other = slope / norm_r
        places = item.to(tl.int64) * S + ref
        stored = chosen & exists
        tl.store(perm_ptr + places, est, mask=stored)
        tl.store(coeff_ptr + 3 * places, own, mask=stored)
        tl.store(coeff_ptr + 3 * places + 1, other, mask=stored)
        tl.store(coeff_ptr + 3 * places + 2, -(own * mean_e + other * mean_r), mask=stored)
        start += ITEMS
    tl.store(loss_ptr, (loss / tl.where(count > 0, count, 1.0)).to(loss_ptr.dtype.element_ty))
    tl.store(count_ptr, count)


@triton.jit(do_not_specialize=["T", "tiles"])
def _gradient_kernel(
    upstream_ptr,  # (1,) gradient of the loss
    est_ptr,  # (B, S, T)
    ref_ptr,  # (B, S, T)
    lengths_ptr,  # (B,) integers, valid samples, or None
    count_ptr,  # (1,) float64, of _match_kernel
    perm_ptr,  # (B, S) int64
    coeff_ptr,  # (B, S, 3) float64
    d_est_ptr,  # out: (B, S, T)
    T,  # samples of a signal
    tiles,  # of a signal
    S: tl.constexpr,  # sources
    BLOCK: tl.constexpr,  # samples of a tile
):
    row = (tl.program_id(0) // tiles).to(tl.int64)
    t = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    item = row // S
    valid = t < item_length(lengths_ptr, item, T)
    place = (item * S + tl.load(perm_ptr + row)) * T
    est = _from_first(est_ptr + place, t, valid)
    ref = _from_first(ref_ptr + row * T, t, valid)
    coeff_ptr += 3 * row
    g = tl.load(coeff_ptr) * est + tl.load(coeff_ptr + 1) * ref + tl.load(coeff_ptr + 2)
    count = tl.load(count_ptr)
    g *= -tl.load(upstream_ptr).to(tl.float64) / tl.where(count > 0, count, 1.0)
    g = tl.where(valid, g, 0.0).to(d_est_ptr.dtype.element_ty)
    tl.store(d_est_ptr + place + t, g, mask=t < T)


TILE, WARPS = 1024, 4  # samples of a tile
LANES, TILES = 32, 32  # pairs of several items, and tiles of each, that are read at a time


def forward(
    est: Tensor, ref: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As ``pit_si_sdr_torch.forward``, on the signals' device."""
    B, S, T = est.shape
    tiles = triton.cdiv(T, TILE)
    sums = est.new_empty((B, 4 * S + S * S, tiles), dtype=torch.float64)
    loss, count = est.new_empty((), dtype=torch.float32), est.new_empty((), dtype=torch.float64)
    perm = est.new_empty((B, S), dtype=torch.int64)
    coeff = est.new_empty((B, S, 3), dtype=torch.float64)
    masks = _masks(S, est.device)
    pairs = triton.next_power_of_2(S * S)
    with torch.cuda.device_of(est):
        _sums_kernel[(B * tiles,)](
            est, ref, lengths, sums, T, tiles, S=S, BLOCK=TILE, num_warps=WARPS
        )
        _match_kernel[(1,)](
            sums, lengths, masks, loss, count, perm, coeff, pit_si_sdr_torch.FLOOR, B, T, tiles,
            len(masks), S=S, ITEMS=max(LANES // pairs, 1), PAIRS=pairs, TILES=TILES,
            num_warps=WARPS,
        )  # fmt: skip
    return loss, perm, coeff, count


def backward(
    upstream: Tensor,
    est: Tensor,
    ref: Tensor,
    lengths: Tensor | None,
    perm: Tensor,
    coeff: Tensor,
    count: Tensor,
) -> Tensor:
    """As ``pit_si_sdr_torch.backward``, on the signals' device."""
    B, S, T = est.shape
    d_est = torch.empty_like(est)
    tiles = triton.cdiv(T, TILE)
    with torch.cuda.device_of(est):
        _gradient_kernel[(B * S * tiles,)](
            upstream, est, ref, lengths, count, perm, coeff, d_est, T, tiles,
            S=S, BLOCK=TILE, num_warps=WARPS,
        )  # fmt: skip
    return d_est


@cache
def _masks(sources: int, device: torch.device) -> Tensor:
    """The pairs of each matching as bits, copied to the device once: a copy would wait for it."""
    masks = [
        sum(1 << (est * sources + ref) for ref, est in enumerate(chosen))
        for chosen in permutations(range(sources))
    ]
    with torch.inference_mode(False):  # the first to ask may be without gradients
        return torch.tensor(masks, dtype=torch.int32, device=device)
