"""The depthwise convolution in Triton, forward and backward: each map goes through memory once.

A program takes a tile, ``BLOCK`` vectors of 16 bytes in the row of one item and channel; all its
loads are whole vectors (``rows.py``). Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.partials import sum_rows
from convtasnet_kernels.rows import (
    add_product,
    join_vectors,
    load_row,
    load_tap,
    row_tile,
    store_row,
    tap_arguments,
    vector_dot,
    vector_sum,
)


@triton.jit(do_not_specialize=["C", "T", "tiles", "dilation"])
def _forward_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C, P)
    bias_ptr,  # (C,) or None
    y_ptr,  # out: (B, C, T)
    C,
    T,
    tiles,  # programs a row
    dilation,  # vectors between two taps, where DILATION is 0
    DILATION: tl.constexpr,  # frames between two taps, 0 where all shifts are whole vectors
    CAUSAL: tl.constexpr,  # the last tap sees the frame itself, else the middle one
    ROWS: tl.constexpr,  # every row begins with a vector
    WHOLE: tl.constexpr,  # the map is a whole number of vectors
    P: tl.constexpr,
    BLOCK: tl.constexpr,
    V: tl.constexpr,  # elements of a vector
):
    row, _, first, inside, vector = row_tile(tiles, T, ROWS, BLOCK, V)
    c = row % C
    zero = tl.zeros((BLOCK,), tl.float32)
    if bias_ptr is not None:
        zero += tl.load(bias_ptr + c).to(tl.float32)
    y = (zero,) * V
    for p in tl.static_range(P):
        tap = load_tap(
            x_ptr + first, vector, inside, T, p, 1,
            dilation, DILATION, CAUSAL, ROWS, WHOLE, P, V,
        )  # fmt: skip
        y = add_product(y, tap, tl.load(weight_ptr + c * P + p).to(tl.float32), V)
    store_row(y_ptr + first, y, vector, inside, T, ROWS, V)


@triton.jit(do_not_specialize=["C", "T", "tiles", "dilation"])
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C, P)
    dx_ptr,  # out: (B, C, T)
    partial_ptr,  # out: (B·tiles, C·P + C) float32, sums for dweight (C, P) and dbias (C,); or None
    C,
    T,
    tiles,  # as in the forward kernel, and so all that follows
    dilation,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    P: tl.constexpr,
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    row, tile, first, inside, vector = row_tile(tiles, T, ROWS, BLOCK, V)
    c = row % C
    zero = tl.zeros((BLOCK,), tl.float32)
    x = load_row(x_ptr + first, vector, inside, T, ROWS, WHOLE, V)
    dx = (zero,) * V
    sums = dx[:0]
    for p in tl.static_range(P):
        # Frame t of x went into frame t - shift of y, where both sums find its gradient.
        g = load_tap(
            dy_ptr + first, vector, inside, T, p, -1,
            dilation, DILATION, CAUSAL, ROWS, WHOLE, P, V,
        )  # fmt: skip
        dx = add_product(dx, g, tl.load(weight_ptr + c * P + p).to(tl.float32), V)
        sums += (vector_dot(g, x, V),)
    if partial_ptr is not None:
        g = load_row(dy_ptr + first, vector, inside, T, ROWS, WHOLE, V)
        N: tl.constexpr = triton.next_power_of_2(P + 1)
        sums += (vector_sum(g, V),) + (zero,) * (N - P - 1)
        n = tl.arange(0, N)
        partial_ptr += (row // C * tiles + tile).to(tl.int64) * (C * P + C)
        column = tl.where(n < P, c * P + n, C * P + c)
        tl.store(partial_ptr + column, tl.sum(join_vectors(sums, N), axis=0), mask=n <= P)
    store_row(dx_ptr + first, dx, vector, inside, T, ROWS, V)


# (BLOCK, warps) by bytes an element: 16 bytes a thread and pass. T has no say.
FORWARD_TILES = {2: (256, 4), 4: (256, 4)}
BACKWARD_TILES = {2: (256, 4), 4: (256, 4)}


def arguments(
    x: Tensor, taps: int, dilation: int, causal: bool, tile: tuple[int, int]
) -> tuple[int, dict[str, int | bool]]:
    """Programs and the arguments that follow ``C, T`` of a kernel over x (B, C, T)."""
    B, C, T = x.shape
    V = 16 // x.element_size()
    block, warps = tile
    rows = T % V == 0
    tiles = triton.cdiv(triton.cdiv(T if rows else T + V - 1, V), block)
    return B * C * tiles, {
        "tiles": tiles,
        **tap_arguments(taps, dilation, causal, V),
        "ROWS": rows,
        "WHOLE": x.numel() % V == 0,
        "BLOCK": block,
        "V": V,
        "num_warps": warps,
    }


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, causal: bool) -> Tensor:
    """Convolves x on its device; arguments and result as ``depthwise_torch.forward``."""
    x, weight = x.contiguous(), weight.contiguous()
    bias = bias if bias is None else bias.contiguous()
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y
    tile = FORWARD_TILES[x.element_size()]
    programs, rest = arguments(x, weight.shape[2], dilation, causal, tile)
    with torch.cuda.device_of(x):
        _forward_kernel[(programs,)](x, weight, bias, y, *x.shape[1:], **rest)
    return y


def backward(
    dy: Tensor, x: Tensor, weight: Tensor, dilation: int, causal: bool, needs_params: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of ``forward``; as ``depthwise_torch.backward``."""
    dy, x, weight = dy.contiguous(), x.contiguous(), weight.contiguous()
    C = x.shape[1]
    dx = torch.empty_like(x)
    sums = (weight.shape[2] + 1) * C
    if x.numel() == 0 or not needs_params:
        partial = None
        dparams = x.new_zeros((sums if needs_params else 0,), dtype=torch.float32)
    if x.numel() == 0:
        return dx, dparams
    tile = BACKWARD_TILES[x.element_size()]
    programs, rest = arguments(x, weight.shape[2], dilation, causal, tile)
    if needs_params:
        partial = x.new_empty((programs // C, sums), dtype=torch.float32)
    with torch.cuda.device_of(x):
        _backward_kernel[(programs,)](dy, x, weight, dx, partial, *x.shape[1:], **rest)
    return dx, dparams if partial is None else sum_rows(partial)
