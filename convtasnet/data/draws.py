"""Random numbers of training items: functions of (seed, epoch, index) and nothing else.

So a run repeats itself whatever the number of workers, processes and devices, and epochs differ.
The numbers of many items are drawn at once, by a generator without state: SplitMix64 [1]_, started
anew for each item. (To seed one of numpy's generators for each item would take longer than all
else that is decided about it.)

.. [1] G. L. Steele Jr., D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators",
   OOPSLA 2014.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Key = tuple[int, int]  # epoch and index of an item

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, keys: Sequence[Key], count: int) -> np.ndarray:
    """Numbers in [0, 1) for each item.

    Args:
        seed: of the run.
        keys: (epoch, index) of n items.
        count: how many numbers an item needs; more of them begin with the same ones.

    Returns:
        (n, count) float64.

    >>> both, one = uniforms(0, [(0, 7), (1, 7)], 3), uniforms(0, [(1, 7)], 2)
    >>> both.shape, bool((both[1, :2] == one).all()), bool((both[0] == both[1]).any())
    ((2, 3), True, False)
    """
    state = _scrambled(np.array([seed % 2**64], np.uint64) + _STEP)
    for part in np.array(keys, np.uint64).reshape(-1, 2).T:
        state = _scrambled(state + part + _STEP)
    steps = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    return (_scrambled(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53


def _scrambled(words: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on all bits of the word; no two words give the same."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def below(limits: np.ndarray | int, uniform: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 to ``limits - 1``, all equally likely: int64, shapes broadcast.

    >>> below(np.array([4, 100]), np.array([0.99, 0.5]))
    array([ 3, 50])
    """
    return (uniform * limits).astype(np.int64)


def distinct(limit: np.ndarray | int, uniform: np.ndarray) -> np.ndarray:
    """Different whole numbers below ``limit`` in each row, every selection equally likely.

    Args:
        limit: at least k; one for all rows, or (n,).
        uniform: (n, k) in [0, 1).

    Returns:
        (n, k) int64.

    >>> distinct(3, np.array([[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]]))
    array([[1, 2, 0],
           [0, 1, 2]])
    """
    taken = np.empty(uniform.shape, np.int64)
    for k in range(uniform.shape[1]):
        number = below(limit - k, uniform[:, k])  # among those that are left, in their order
        for other in np.sort(taken[:, :k], axis=1).T:
            number += number >= other
        taken[:, k] = number
    return taken
