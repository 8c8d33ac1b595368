"""Levels, gains, sums, and lists of mixtures."""

import itertools
import math
import os
import random
import subprocess
import sys

import pytest
import torch

from convtasnet.data.mixing import (
    MAX_GAIN_DB,
    active_level,
    count_combinations,
    draw_gains,
    draw_mixtures,
    mix,
)


def corpus(sizes):
    return {f"s{i}": [f"s{i}/u{j}" for j in range(n)] for i, n in enumerate(sizes)}


def level_db(a, b):
    return 20 * math.log10(active_level(a) / active_level(b))


def test_level_ignores_pauses_and_follows_the_gain():
    speech = torch.randn(8000, generator=torch.Generator().manual_seed(0))
    paused = torch.cat([torch.zeros(5000), speech, torch.zeros(9000)])
    assert active_level(paused) == pytest.approx(active_level(speech), rel=1e-6)
    assert active_level(3 * paused) == pytest.approx(3 * active_level(paused), rel=1e-6)


@pytest.mark.parametrize("n_samples", [0, 1, 199, 200, 201, 1003])
def test_level_of_any_length(n_samples):
    assert active_level(torch.zeros(n_samples)) == 0.0
    expected = 0.5 if n_samples else 0.0
    assert active_level(torch.full((n_samples,), 0.5)) == pytest.approx(expected)


@pytest.mark.parametrize("n_src", [1, 2, 3, 5])
def test_mix_sets_relative_levels_and_the_peak(n_src):
    generator = torch.Generator().manual_seed(n_src)
    sources = [torch.randn(8000, generator=generator) * 10.0**-i for i in range(n_src)]
    gains = [1.5 * i - 2 for i in range(n_src)]
    mixture, mixed = mix(sources, gains)
    torch.testing.assert_close(mixture, mixed.sum(0))
    largest = max(mixture.abs().max(), mixed.abs().max())
    assert float(largest) == pytest.approx(0.9, rel=1e-5)
    for i, j in itertools.combinations(range(n_src), 2):
        assert level_db(mixed[i], mixed[j]) == pytest.approx(gains[i] - gains[j], abs=1e-3)
    for source, one in zip(sources, mixed, strict=True):  # scaled, not otherwise changed
        torch.testing.assert_close(one / one.norm(), source / source.norm())


def test_mix_leaves_silence_silent():
    mixture, sources = mix([torch.zeros(800), torch.ones(800)], [1.0, -1.0])
    assert sources[0].eq(0).all()
    torch.testing.assert_close(mixture, torch.full((800,), 0.9))
    assert mix([torch.zeros(8)], [0.0])[0].eq(0).all()


def test_mix_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"\[3, 4\]"):
        mix([torch.ones(3), torch.ones(4)], [0.0, 0.0])
    with pytest.raises(ValueError, match="1 sources and 2 gains"):
        mix([torch.ones(3)], [0.0, 0.0])
    with pytest.raises(ValueError, match="0 sources"):
        mix([], [])


@pytest.mark.parametrize("n_src", [1, 2, 3, 4, 5])
def test_gains_are_opposite_and_within_five_db(n_src):
    rng = random.Random(3)
    for _ in range(100):
        gains = draw_gains(n_src, rng)
        assert len(gains) == n_src
        assert sum(gains) == 0
        assert max(gains) - min(gains) <= 2 * MAX_GAIN_DB
    if n_src == 2:
        firsts = [draw_gains(2, rng)[0] for _ in range(2000)]
        assert all(0 <= gain <= 2.5 for gain in firsts)
        assert sum(firsts) / len(firsts) == pytest.approx(1.25, abs=0.06)


@pytest.mark.parametrize("n_src", [1, 2, 3, 5])
def test_count_against_enumeration(n_src):
    sizes = [1, 3, 2, 2, 1, 4]
    expected = sum(math.prod(chosen) for chosen in itertools.combinations(sizes, n_src))
    assert count_combinations(sizes, n_src) == expected


@pytest.mark.parametrize("n_src", [1, 2, 3, 5])
def test_every_combination_can_be_drawn_once(n_src):
    utterances = corpus([1, 3, 2, 2, 1])
    total = count_combinations([1, 3, 2, 2, 1], n_src)
    drawn = draw_mixtures(utterances, total, n_src, seed=0)
    assert len({frozenset(mixture.paths) for mixture in drawn}) == total
    for mixture in drawn:
        assert len(set(mixture.speakers)) == n_src
        assert all(p in utterances[s] for s, p in zip(mixture.speakers, mixture.paths, strict=True))
    with pytest.raises(ValueError, match=rf"n_mixtures={total + 1}.* only {total} different"):
        draw_mixtures(utterances, total + 1, n_src, seed=0)


def test_too_few_speakers_give_no_mixture():
    with pytest.raises(ValueError, match="3 utterances of 2 speakers give only 0"):
        draw_mixtures(corpus([1, 2]), 1, n_src=5, seed=0)


def test_sparse_draws_do_not_repeat_and_cover_all_speakers():
    drawn = draw_mixtures(corpus([40] * 60), 2000, n_src=5, seed=1)
    assert len({frozenset(mixture.paths) for mixture in drawn}) == 2000
    heard = [speaker for mixture in drawn for speaker in mixture.speakers]
    counts = [heard.count(f"s{i}") for i in range(60)]
    assert min(counts) > 100  # 167 expected
    assert max(counts) < 240


def test_order_of_the_mapping_does_not_matter_but_the_seed_does():
    utterances = corpus([3, 4, 5, 2])
    turned = {speaker: paths[::-1] for speaker, paths in reversed(utterances.items())}
    assert draw_mixtures(utterances, 30, 2, 7) == draw_mixtures(turned, 30, 2, 7)
    assert draw_mixtures(utterances, 30, 2, 7) != draw_mixtures(utterances, 30, 2, 8)


def test_draw_does_not_depend_on_the_hash_seed():
    program = (
        "from convtasnet.data.mixing import draw_mixtures\n"
        "u = {f's{i}': {f's{i}/{j}' for j in range(5)} for i in range(9)}\n"
        "print(draw_mixtures(u, 20, 3, 0))"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )
    assert elsewhere.stdout.strip() == str(draw_mixtures(corpus_of_sets(9, 5), 20, 3, 0))


def corpus_of_sets(n_speakers, n_utterances):
    return {f"s{i}": {f"s{i}/{j}" for j in range(n_utterances)} for i in range(n_speakers)}


def test_the_draw_of_seed_0_is_frozen():
    first = draw_mixtures(corpus([2, 2, 2]), 2, n_src=2, seed=0)
    assert [mixture.paths for mixture in first] == [("s1/u0", "s2/u1"), ("s2/u1", "s1/u1")]


def test_an_utterance_of_two_speakers_is_refused():
    with pytest.raises(ValueError, match=r"x\.wav belongs to two speakers: a and b"):
        draw_mixtures({"a": ["x.wav"], "b": ["x.wav"]}, 1, 2, 0)
    with pytest.raises(ValueError, match="n_src=0"):
        draw_mixtures({"a": ["x.wav"]}, 1, 0, 0)
