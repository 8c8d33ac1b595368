"""How tiles of one launch tell each other their sums: tickets, publication and the wait.

A look-back, after Merrill and Garland, "Single-pass parallel prefix scan with decoupled
look-back" (NVIDIA, 2016), with sums in one fixed order, so that equal inputs give equal bits.
A workspace is zeroed memory of 64-bit words: word 0 counts tickets, each other word holds one
float64, or zero as long as nobody has published it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.tile_parts import both_sums

# XORed to what is published: a NaN that no arithmetic gives, so that zero bits mean "not yet".
_MARK = tl.constexpr(0x7FF4DEADBEEF5EED)
GROUP = 256  # tiles whose sums are published once more as one


@triton.jit
def take_ticket(workspace_ptr):
    """The place of this program in the order in which programs started, from 0, int32.

    A program that waits only for smaller tickets waits for programs that run already: the launch
    cannot hang, in whatever order the device starts its blocks.
    """
    return tl.atomic_add(workspace_ptr, 1, sem="relaxed").to(tl.int32)


@triton.jit
def publish(word_ptr, value):
    """Shows a float64 scalar to all programs; each word is published once a launch."""
    bits = tl.where(value == value, value, float("nan")).to(tl.int64, bitcast=True)
    tl.atomic_xchg(word_ptr, bits ^ _MARK, sem="relaxed")


@triton.jit
def gather(first_ptr, second_ptr, count, BLOCK: tl.constexpr):
    """Sums of ``count`` words from each of two addresses, float64 scalars; waits for all of them.

    The order of the additions depends on ``count`` and ``BLOCK`` alone.
    """
    first = tl.zeros((BLOCK,), tl.float64)
    second = tl.zeros((BLOCK,), tl.float64)
    done = tl.zeros((), tl.int32)
    while done < count:
        i = done + tl.arange(0, BLOCK)
        mask = i < count
        a = tl.load(first_ptr + i, mask=mask, other=1, volatile=True)
        b = tl.load(second_ptr + i, mask=mask, other=1, volatile=True)
        if tl.min(tl.where((a == 0) | (b == 0), 0, 1), axis=0) == 1:
            first += tl.where(mask, (a ^ _MARK).to(tl.float64, bitcast=True), 0.0)
            second += tl.where(mask, (b ^ _MARK).to(tl.float64, bitcast=True), 0.0)
            done += BLOCK
    return both_sums(first, second)


@triton.jit
def publish_sums(workspace_ptr, item, items, tiles, order, first, second):
    """Shows a tile's two sums, for ``published_before``; arguments as in ``sums_before``."""
    tile_ptr = workspace_ptr + 1 + item * tiles + order
    publish(tile_ptr, first)
    publish(tile_ptr + tl.cast(items, tl.int64) * tiles, second)


@triton.jit
def published_before(workspace_ptr, item, items, tiles, order, first, second, GROUP: tl.constexpr):
    """The two sums of all tiles before this one, which has shown its own: ``sums_before``."""
    groups = tl.cdiv(tiles, GROUP)
    tile_words = tl.cast(items, tl.int64) * tiles
    group_words = tl.cast(items, tl.int64) * groups
    tile_ptr = workspace_ptr + 1 + item * tiles
    group_ptr = workspace_ptr + 1 + 2 * tile_words + item * groups
    group = order // GROUP
    place = order % GROUP
    head = tile_ptr + group * GROUP
    a, b = gather(head, head + tile_words, place, GROUP)
    if place == GROUP - 1:
        publish(group_ptr + group, a + first)
        publish(group_ptr + group_words + group, b + second)
    group_a, group_b = gather(group_ptr, group_ptr + group_words, group, GROUP)
    return group_a + a, group_b + b


@triton.jit
def sums_before(workspace_ptr, item, items, tiles, order, first, second, GROUP: tl.constexpr):
    """Publishes a tile's two sums; returns those of the tiles that come before it in its item.

    Two levels, so that a long item costs a tile few words: the last tile of each ``GROUP`` shows
    the sum of its group as soon as the group is there, without waiting for the groups before.
    A program with something to do meanwhile calls the two halves itself.

    Args:
        workspace_ptr: of ``pair_words(items, tiles)`` words.
        item: this item, int64.
        items: how many there are.
        tiles: tiles an item.
        order: this tile's place in its item; its program holds a larger ticket than those before.
        first: float64 scalar, one of the tile's sums.
        second: float64 scalar, the other.
        GROUP: tiles a group.
    """
    publish_sums(workspace_ptr, item, items, tiles, order, first, second)
    return published_before(workspace_ptr, item, items, tiles, order, first, second, GROUP)


@triton.jit
def comes_last(workspace_ptr, item, items, tiles):
    """Whether all other tiles of an item have published their sums and been here before this one.

    Nobody waits: the last one goes on for all. In a launch without groups, whose words count them.
    """
    count_ptr = workspace_ptr + 1 + 2 * tl.cast(items, tl.int64) * tiles + item
    return tl.atomic_add(count_ptr, 1, sem="relaxed") == tiles - 1


@triton.jit
def sums_of_all(workspace_ptr, item, items, tiles, BLOCK: tl.constexpr):
    """The two sums over all tiles of an item, once all have published theirs or are about to."""
    tile_ptr = workspace_ptr + 1 + item * tiles
    return gather(tile_ptr, tile_ptr + tl.cast(items, tl.int64) * tiles, tiles, BLOCK)


@triton.jit
def clear(workspace_ptr, words, BLOCK: tl.constexpr):
    """Zeroes a workspace of 1 + ``words`` words for the launch that follows this one.

    Each program takes ``BLOCK`` of them: a launch of its own would cost more.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(workspace_ptr + i, tl.zeros((BLOCK,), tl.int64), mask=i <= words)


def pair_words(items: int, tiles: int, group: int) -> int:
    """Words that ``sums_before`` needs for ``items`` of ``tiles`` tiles, ``group`` in a group."""
    return 2 * items * (tiles + triton.cdiv(tiles, group))


def workspace(x: Tensor, words: int) -> Tensor:
    """Zeroed workspace of ``words`` published words on x's device."""
    return torch.zeros(1 + words, dtype=torch.int64, device=x.device)


def workspaces(x: Tensor, words: int, count: int) -> list[Tensor]:
    """As many workspaces, for launches one after the other, zeroed at once."""
    vectors = triton.cdiv(1 + words, 2)  # each begins at 16 bytes, as kernels are compiled for
    zeros = torch.zeros((count, 2 * vectors), dtype=torch.int64, device=x.device)
    return list(zeros.unbind())
