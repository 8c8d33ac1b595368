"""Random numbers of items: the generator, its independence, and what is made of it."""

import itertools

import numpy as np
import pytest
from scipy.stats import kstest

from convtasnet.data.draws import below, distinct, uniforms

MASK = 2**64 - 1
STEP = 0x9E3779B97F4A7C15


def splitmix64(state):
    """The published algorithm in whole numbers of any size: the state's first output."""
    word = (state + STEP) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def test_the_reference_is_the_published_generator():
    assert [splitmix64(1234567 + k * STEP) for k in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize("seed", [0, 12345, 2**63, 2**70 + 1])
def test_numbers_are_those_of_the_generator(seed):
    keys = [(0, 0), (3, 17), (10**6, 2**40)]
    for key, row in zip(keys, uniforms(seed, keys, 5), strict=True):
        state = splitmix64(seed & MASK)
        for part in key:
            state = splitmix64(state + part)
        expected = [(splitmix64(state + k * STEP) >> 11) / 2**53 for k in range(5)]
        assert row.tolist() == expected


def test_items_do_not_depend_on_their_company():
    keys = [(2, i) for i in range(50)]
    together = uniforms(7, keys, 4)
    for key, row in zip(keys, together, strict=True):
        assert uniforms(7, [key], 4)[0].tolist() == row.tolist()


def test_numbers_are_uniform_and_differ_between_seeds_epochs_and_items():
    keys = [(epoch, index) for epoch in range(20) for index in range(50)]
    drawn = np.stack([uniforms(seed, keys, 8) for seed in range(3)])
    assert len(np.unique(drawn)) == drawn.size
    assert kstest(drawn.ravel(), "uniform").pvalue > 0.01
    for axis in range(4):  # neighbours among seeds, epochs, items and numbers
        cube = np.moveaxis(drawn.reshape(3, 20, 50, 8), axis, 0)
        correlation = np.corrcoef(cube[:-1].ravel(), cube[1:].ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(cube[1:].size)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 32001, 2**31 - 1, 2**45 + 12345])
def test_below_reaches_both_ends_and_nothing_beyond(limit):
    assert below(limit, np.array([0.0, 1 - 2.0**-53])).tolist() == [0, limit - 1]


@pytest.mark.parametrize(("limit", "count"), [(4, 2), (4, 3), (3, 3), (5, 1), (6, 4)])
def test_every_selection_is_equally_likely(limit, count):
    """Equal parts of [0, 1) for each choice lead to each selection once."""
    parts = [(np.arange(limit - k) + 0.5) / (limit - k) for k in range(count)]
    rows = distinct(limit, np.array(list(itertools.product(*parts))))
    assert sorted(map(tuple, rows.tolist())) == list(itertools.permutations(range(limit), count))
