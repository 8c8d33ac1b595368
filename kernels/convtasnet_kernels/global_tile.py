"""What the global norm's two directions share: flat tiles of an item, and how they are summed.

An item (C, T) is one flat array. A tile is ``TILE`` of its elements in rows of ``V``, 16 bytes,
whatever T is: rows of T = 3999 elements are read as fast as rows of 4000. Programs come in ticket
order. The one with ticket u adds up 'sum' unit u and then applies tile u - lag. The lag, chosen by
``schedule``, makes all sum units of a tile's item smaller tickets than the tile's, so that no
program waits for one that may not have started, yet short enough that the tile is still in the L2.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import lookback
from convtasnet_kernels.lookback import gather, publish

LANES = tl.constexpr(256)  # words that a program gathers at once
FAR = tl.constexpr(512)  # tiles of an item that the L2 cannot hold


@triton.jit
def activate(u, prelu_ptr):
    """float32 u through the PReLU, if there is one."""
    if prelu_ptr is not None:
        u = tl.where(u > 0, u, u * tl.load(prelu_ptr).to(tl.float32))
    return u


@triton.jit
def item_length(lengths_ptr, item, T):
    """Valid frames of an item, clamped to 0..T."""
    length = T
    if lengths_ptr is not None:
        given = tl.load(lengths_ptr + item).to(tl.int64)
        length = tl.minimum(tl.maximum(given, 0), T).to(tl.int32)
    return length


@triton.jit
def item_pivot(x_ptr, prelu_ptr, length):
    """The first sample of the item at x_ptr, after the PReLU; zero where no sample is valid."""
    return tl.where(length > 0, activate(tl.load(x_ptr).to(tl.float32), prelu_ptr), 0.0)


@triton.jit
def apply_index(index, tiles):
    """Item and tile of the apply unit ``index``.

    An item too large for the L2 is applied from its end: its last tiles are still there.
    """
    item = index // tiles
    tile = index - item * tiles
    return item.to(tl.int64), tl.where(tiles > FAR, tiles - 1 - tile, tile)


@triton.jit
def tile_start(tile, T, TILE: tl.constexpr):
    """A tile's first element in its item, and that element's channel and frame."""
    start = tile.to(tl.int64) * TILE
    channel = start // T
    return start, channel.to(tl.int32), (start - channel * T).to(tl.int32)


@triton.jit
def step_rows(k, channel, frame, T, V: tl.constexpr, STEP: tl.constexpr):
    """Channel and frame (STEP / V,) of each row of the step that begins k elements on."""
    q = frame + k + tl.arange(0, STEP // V) * V
    channels = (q.to(tl.uint32) // T.to(tl.uint32)).to(tl.int32)
    return channel + channels, q - channels * T


@triton.jit
def step_offsets(k, V: tl.constexpr, STEP: tl.constexpr):
    """(rows, V): from the tile's first element."""
    return k + tl.arange(0, STEP // V)[:, None] * V + tl.arange(0, V)[None, :]


@triton.jit
def wraps(frame, T, V: tl.constexpr):
    """(rows, V): the elements of a row that belong to the channel after that of its first."""
    return frame[:, None] + tl.arange(0, V)[None, :] >= T


@triton.jit
def valid_elements(channel, frame, length, C, T, V: tl.constexpr):
    """(rows, V): inside the item and its length."""
    t = frame[:, None] + tl.arange(0, V)[None, :]
    after = t >= T
    t = tl.where(after, t - T, t)
    return (t < length) & (channel[:, None] + after.to(tl.int32) < C)


@triton.jit
def touched(channel, frame, length, C, T, V: tl.constexpr, ITEMS: tl.constexpr):
    """What to load: whole rows, or elements where items do not begin at a row."""
    if ITEMS:
        return ((channel < C) & ((frame < length) | (frame + V > T)))[:, None]
    else:
        return valid_elements(channel, frame, length, C, T, V)


@triton.jit
def by_channel(ptr, channel, frame, C, T, V: tl.constexpr, ROWS: tl.constexpr):
    """Parameter (C,) of each element, (rows, 1) where a row lies in one channel, else (rows, V)."""
    value = tl.load(ptr + channel, mask=channel < C, other=0.0).to(tl.float32)[:, None]
    if not ROWS:
        after = tl.load(ptr + channel + 1, mask=channel + 1 < C, other=0.0).to(tl.float32)
        value = tl.where(wraps(frame, T, V), after[:, None], value)
    return value


@triton.jit
def share(words_ptr, ticket, first, second, unit, units, group, B):
    """Publishes the two sums of a sum unit; the last unit of a group does so for its group.

    ``unit`` is the place in the item, which has ``units``. Words: two results of each item, first
    and second sums of each unit, then, where ``group`` > 1, of each group.
    """
    words_ptr += 2 * B + ticket
    total = B * units
    publish(words_ptr, first)
    publish(words_ptr + total, second)
    place = unit % group
    if (group > 1) & ((place == group - 1) | (unit == units - 1)):
        first, second = gather(words_ptr - place, words_ptr + total - place, place + 1, LANES)
        groups = tl.cdiv(units, group)
        words_ptr += 2 * total - ticket + (ticket // units) * groups + unit // group
        publish(words_ptr, first)
        publish(words_ptr + B * groups, second)


@triton.jit
def item_sums(words_ptr, item, units, group, B):
    """The two sums of an item, float64, for its last sum unit."""
    groups = tl.cdiv(units, group)
    words_ptr += 2 * B + tl.where(group > 1, 2 * B * units, 0) + item * groups
    return gather(words_ptr, words_ptr + B * groups, groups, LANES)


@triton.jit
def publish_result(words_ptr, item, first, second, B):
    """Shows all tiles of an item what they wait for."""
    publish(words_ptr + item, first)
    publish(words_ptr + B + item, second)


@triton.jit
def item_result(words_ptr, item, B):
    """What ``publish_result`` showed, float64; waits for it."""
    return gather(words_ptr + item, words_ptr + B + item, 1, 1)


@triton.jit
def split_center(center):
    """A float64 as a float32 and what that leaves: v - high - low costs v no digit."""
    high = center.to(tl.float32)
    return high, (center - high.to(tl.float64)).to(tl.float32)


GROUP = 256  # sum units whose sums are added up for the item's last one, where it has more
SLACK = 64  # programs between an item's last sum unit and its first tile: they hide the wait


def schedule(x: Tensor, sums: int, applies: int) -> tuple[int, int, Tensor]:
    """How the programs of one launch share the work.

    Args:
        x: (B, C, T), none of them 0.
        sums: sum units an item.
        applies: tiles an item.

    Returns:
        the lag of tile u behind sum unit u, the units of a group, and a workspace.
    """
    B = x.shape[0]
    lag = max(sums - 1, B * sums - 1 - (B - 1) * applies) + SLACK
    group = 1 if sums <= GROUP else GROUP
    groups = 0 if group == 1 else triton.cdiv(sums, group)
    return lag, group, lookback.workspace(x, 2 * B * (1 + sums + groups))


def alignment(x: Tensor) -> dict[str, int | bool]:
    """V, and whether each channel, and each item, of x (B, C, T) begins at a multiple of V.

    Rows of V = 1 where a row of 16 bytes could span three channels.
    """
    _, C, T = x.shape
    v = 16 // x.element_size()
    v = v if v <= T else 1
    return {"V": v, "ROWS": T % v == 0, "ITEMS": C * T % v == 0}


def packed(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors, contiguous."""
    return [p if p is None else p.contiguous() for p in tensors]
