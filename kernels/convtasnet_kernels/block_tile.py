"""What the kernels of a fused block share: chunks of channels, their place, taps of a tile.

Maps are (B, H, F), their rows whole vectors of V elements, 16 bytes. A program takes ``BLOCK``
vectors in each row of a chunk, tiles (BLOCK, V) of ``BLOCK·V`` frames: what belongs to the frames
stays in registers while it goes from channel to channel. A map may lack the bias (H,) that belongs
to it: whoever reads it adds the bias.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def place(chunks, tiles, BLOCK: tl.constexpr):
    """Item (int64) and chunk of the program, and its vectors (BLOCK,) in a row."""
    program = tl.program_id(0)
    rows = program // tiles
    vector = program % tiles * BLOCK + tl.arange(0, BLOCK)
    return (rows // chunks).to(tl.int64), rows % chunks, vector


@triton.jit
def prelu(u, slope, FOLD: tl.constexpr):
    """float32 of u through a PReLU; FOLD: without a comparison, and to float32's rounding of u."""
    u = u.to(tl.float32)
    if FOLD:
        return u * (0.5 + 0.5 * slope) + tl.abs(u) * (0.5 - 0.5 * slope)
    else:
        return tl.where(u > 0, u, u * slope)


@triton.jit
def load_channel(ptr, c, end, EVEN: tl.constexpr):
    """float32 of a parameter (H,) of channel c; zero from ``end`` on, or if there is none."""
    if ptr is None:
        return 0.0
    elif EVEN:
        return tl.load(ptr + c).to(tl.float32)
    else:
        return tl.load(ptr + c, mask=c < end, other=0.0).to(tl.float32)


@triton.jit
def row_vectors(c, end, vectors, EVEN: tl.constexpr):
    """Vectors in the row of channel c: none from ``end`` on."""
    if EVEN:
        return vectors
    else:
        return tl.where(c < end, vectors, 0)


@triton.jit
def biased(u, bias_ptr, bias):
    """float32 of u with its bias, if there is one."""
    u = u.to(tl.float32)
    if bias_ptr is not None:
        u += bias
    return u


@triton.jit
def store_tile(row_ptr, values, vector, vectors, V: tl.constexpr):
    """Stores (BLOCK, V) as vectors (BLOCK,) of a row."""
    offsets = vector[:, None] * V + tl.arange(0, V)[None, :]
    values = values.to(row_ptr.dtype.element_ty)
    tl.store(row_ptr + offsets, values, mask=(vector < vectors)[:, None])


@triton.jit
def no_tiles():
    """An empty tuple, for tiles to be added."""
    return ()


class Tile(NamedTuple):
    """How a program is laid out.

    Args:
        channels: of a program, a power of two.
        group: channels whose loads are issued together; None where a kernel has its own way.
        vectors: of a tile.
        warps: of a program.
        registers: a thread may use, at most; None for the compiler's choice.
    """

    channels: int
    group: int | None
    vectors: int
    warps: int
    registers: int | None


def tile_constants(x: Tensor, tile: Tile) -> tuple[int, dict[str, Any]]:
    """Programs, and the arguments that every kernel over chunks of a map x (B, H, F) takes."""
    B, H, F = x.shape
    V = 16 // x.element_size()
    tiles = triton.cdiv(F // V, tile.vectors)
    group = min(tile.group or 1, triton.next_power_of_2(H))
    steps = min(tile.channels, triton.cdiv(H, group) * group)
    constants = {
        "tiles": tiles,
        "vectors": F // V,
        "H": H,
        "STEPS": steps,  # channels of a chunk, at most
        "EVEN": H % steps == 0,
        "BLOCK": tile.vectors,
        "V": V,
        "num_warps": tile.warps,
    }
    if tile.group is not None:
        constants["GROUP"] = group
    if tile.registers is not None:
        constants["maxnreg"] = tile.registers
    return B * triton.cdiv(H, steps) * tiles, constants


def empty_partial(x: Tensor, channels: int) -> Tensor:
    """(3, B, chunks, F) float32 for ``frame_sums`` of x (B, H, F) over chunks of channels."""
    B, H, F = x.shape
    return x.new_empty((3, B, triton.cdiv(H, channels), F), dtype=torch.float32)


def chunk_channels(channels: int, chunks: int) -> int:
    """The power of two that cuts channels into so many chunks.

    >>> chunk_channels(70, 3), chunk_channels(70, 5), chunk_channels(3, 1)
    (32, 16, 4)
    """
    return triton.next_power_of_2(triton.cdiv(channels, chunks))
