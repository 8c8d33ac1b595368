"""The depthwise convolution in Triton, forward and backward: each map goes through memory once.

A program takes a tile, ``BLOCK`` vectors of 16 bytes in the row of one item and channel. All its
loads are whole vectors: a tap that begins inside a vector takes the end of one and the start of
the next, which renames registers and moves nothing. Rows that begin inside a vector (T no multiple
of 8, or of 4 in float32) share their outer vectors with their neighbours; what a neighbour owns is
set to zero when loaded and left alone when stored. Every offset is 64 bits wide.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.partials import sum_rows


@triton.jit
def _split(block, V: tl.constexpr):
    """(BLOCK, V) -> its V columns (BLOCK,), V a power of two from 2 to 32."""
    BLOCK: tl.constexpr = block.shape[0]
    columns = tl.split(tl.reshape(block, (BLOCK, V // 2, 2)))
    for level in tl.static_range(1, 5):
        if 2**level < V:
            even = columns[:0]
            odd = columns[:0]
            for i in tl.static_range(2**level):
                pairs = tl.reshape(columns[i], (BLOCK, V // 2 ** (level + 1), 2))
                first, second = tl.split(pairs)
                even += (first,)
                odd += (second,)
            columns = even + odd
    result = columns[:0]
    for i in tl.static_range(V):
        result += (tl.reshape(columns[i], (BLOCK,)),)
    return result


@triton.jit
def _join(columns, V: tl.constexpr):
    """V columns (BLOCK,) -> (BLOCK, V), V a power of two from 2 to 32."""
    BLOCK: tl.constexpr = columns[0].shape[0]
    for level in tl.static_range(5):
        if 2**level < V:
            joined = columns[:0]
            for i in tl.static_range(V // 2 ** (level + 1)):
                joined += (tl.join(columns[i], columns[i + V // 2 ** (level + 1)]),)
            columns = joined
    return tl.reshape(columns[0], (BLOCK, V))


@triton.jit
def _tile(tiles, T, ROWS: tl.constexpr, BLOCK: tl.constexpr, V: tl.constexpr):
    """Row and tile of the program, the row's first vector, its offset in it, vectors (BLOCK,)."""
    row = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    begin = row.to(tl.int64) * T
    first = begin // V * V
    inside = 0 if ROWS else (begin % V).to(tl.int32)
    return row, tile, first, inside, tile * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _load(row_ptr, vector, inside, T, ROWS: tl.constexpr, WHOLE: tl.constexpr, V: tl.constexpr):
    """V columns (BLOCK,) float32 of vectors (BLOCK,) of a row, zero outside of it."""
    t = vector * V - inside
    offsets = vector[:, None] * V + tl.arange(0, V)[None, :]
    if ROWS:
        mask = ((vector >= 0) & (t < T))[:, None]
    elif WHOLE:
        mask = ((t > -V) & (t < T))[:, None]
    else:
        frame = t[:, None] + tl.arange(0, V)[None, :]
        mask = (frame >= 0) & (frame < T)
    columns = _split(tl.load(row_ptr + offsets, mask=mask, other=0.0).to(tl.float32), V)
    if ROWS or not WHOLE:
        return columns
    else:
        own = columns[:0]
        for i in tl.static_range(V):
            own += (tl.where((t + i >= 0) & (t + i < T), columns[i], 0.0),)
        return own


@triton.jit
def _store(row_ptr, columns, vector, inside, T, ROWS: tl.constexpr, V: tl.constexpr):
    """Stores V columns (BLOCK,) as vectors (BLOCK,) of a row, only where they are in the row."""
    t = vector * V - inside
    pointers = row_ptr + vector[:, None] * V + tl.arange(0, V)[None, :]
    block = _join(columns, V).to(row_ptr.dtype.element_ty)
    tl.store(pointers, block, mask=((t >= 0) & (t <= T - V))[:, None])
    if not ROWS:
        frame = t[:, None] + tl.arange(0, V)[None, :]
        shared = ((t < 0) | (t > T - V))[:, None]
        tl.store(pointers, block, mask=shared & (frame >= 0) & (frame < T))


@triton.jit
def _tap(
    row_ptr,
    vector,
    inside,
    T,
    p: tl.constexpr,  # index of the tap
    SIGN: tl.constexpr,  # 1: what the tap sees at the tile's frames; -1: who sees them through it
    dilation,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """V columns (BLOCK,): the map at frames t + SIGN·(p·dilation - left)."""
    SIDES: tl.constexpr = 1 if CAUSAL else 2
    if DILATION == 0:
        taps: tl.constexpr = SIGN * (p - (P - 1) // SIDES)
        return _load(row_ptr, vector + taps * dilation, inside, T, ROWS, WHOLE, V)
    else:
        shift: tl.constexpr = SIGN * (p * DILATION - (P - 1) * DILATION // SIDES)
        low = _load(row_ptr, vector + shift // V, inside, T, ROWS, WHOLE, V)
        if shift % V == 0:
            return low
        else:
            high = _load(row_ptr, vector + (shift // V + 1), inside, T, ROWS, WHOLE, V)
            return low[shift % V :] + high[: shift % V]


@triton.jit
def _add_product(total, columns, factor, V: tl.constexpr):
    result = total[:0]
    for i in tl.static_range(V):
        result += (total[i] + columns[i] * factor,)
    return result


@triton.jit
def _dot(a, b, V: tl.constexpr):
    """V columns (BLOCK,) of each -> (BLOCK,), the product summed over every vector."""
    total = a[0] * b[0]
    for i in tl.static_range(1, V):
        total += a[i] * b[i]
    return total


@triton.jit
def _sum(columns, V: tl.constexpr):
    """V columns (BLOCK,) -> (BLOCK,), the sum over every vector."""
    total = columns[0]
    for i in tl.static_range(1, V):
        total += columns[i]
    return total


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
    row, _, first, inside, vector = _tile(tiles, T, ROWS, BLOCK, V)
    c = row % C
    zero = tl.zeros((BLOCK,), tl.float32)
    if bias_ptr is not None:
        zero += tl.load(bias_ptr + c).to(tl.float32)
    y = (zero,) * V
    for p in tl.static_range(P):
        tap = _tap(
            x_ptr + first, vector, inside, T, p, 1,
            dilation, DILATION, CAUSAL, ROWS, WHOLE, P, V,
        )  # fmt: skip
        y = _add_product(y, tap, tl.load(weight_ptr + c * P + p).to(tl.float32), V)
    _store(y_ptr + first, y, vector, inside, T, ROWS, V)


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
    row, tile, first, inside, vector = _tile(tiles, T, ROWS, BLOCK, V)
    c = row % C
    zero = tl.zeros((BLOCK,), tl.float32)
    x = _load(x_ptr + first, vector, inside, T, ROWS, WHOLE, V)
    dx = (zero,) * V
    sums = dx[:0]
    for p in tl.static_range(P):
        # Frame t of x went into frame t - shift of y, where both sums find its gradient.
        g = _tap(
            dy_ptr + first, vector, inside, T, p, -1,
            dilation, DILATION, CAUSAL, ROWS, WHOLE, P, V,
        )  # fmt: skip
        dx = _add_product(dx, g, tl.load(weight_ptr + c * P + p).to(tl.float32), V)
        sums += (_dot(g, x, V),)
    if partial_ptr is not None:
        g = _load(dy_ptr + first, vector, inside, T, ROWS, WHOLE, V)
        N: tl.constexpr = triton.next_power_of_2(P + 1)
        sums += (_sum(g, V),) + (zero,) * (N - P - 1)
        n = tl.arange(0, N)
        partial_ptr += (row // C * tiles + tile).to(tl.int64) * (C * P + C)
        column = tl.where(n < P, c * P + n, C * P + c)
        tl.store(partial_ptr + column, tl.sum(_join(sums, N), axis=0), mask=n <= P)
    _store(dx_ptr + first, dx, vector, inside, T, ROWS, V)


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
    # Shifts by whole vectors are arguments, so that the dilations 8, 16, … share a binary; others
    # say which registers to take. The half dilation of an even kernel is no vector.
    vectors = taps == 1 or (dilation % V == 0 and (causal or taps % 2 == 1))
    rows = T % V == 0
    tiles = triton.cdiv(triton.cdiv(T if rows else T + V - 1, V), block)
    return B * C * tiles, {
        "tiles": tiles,
        "dilation": dilation // V if vectors else 0,
        "DILATION": 0 if vectors else dilation,
        "CAUSAL": causal,
        "ROWS": rows,
        "WHOLE": x.numel() % V == 0,
        "P": taps,
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
