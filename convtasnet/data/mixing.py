"""Leveling and mixing of single-speaker utterances, and lists of mixtures to make.

The convention is that of WSJ0-mix [1]_: every utterance is brought to one common active level, the
speakers get opposite relative gains of at most 2.5 dB, and the sum is scaled together with its
sources so that nothing passes 0.9 of full scale.

.. [1] J. R. Hershey et al., "Deep clustering: Discriminative embeddings for segmentation and
   separation", ICASSP 2016.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PEAK = 0.9
MAX_GAIN_DB = 2.5
FRAME = 200  # samples: 25 ms at 8 kHz; the gate needs no exact duration
GATE_DB = 20.0


@dataclass(frozen=True)
class Mixture:
    """One mixture to make: who speaks, which utterances, at what relative gains (dB)."""

    speakers: tuple[str, ...]
    paths: tuple[str, ...]
    gains_db: tuple[float, ...]


def active_level(wav: Tensor) -> float:
    """Root mean square over the frames in which something sounds.

    Frames of 200 samples whose power is more than 20 dB below the mean power of the signal are left
    out, so that pauses do not lower the level. This is a simple gate for mixing on the fly; it is
    not the speech voltmeter of ITU-T P.56.

    Args:
        wav: (T,) samples.

    Returns:
        Level in units of the samples; 0.0 for silence and for an empty signal.

    Example:
        >>> tone = torch.sin(torch.arange(8000) * 0.3)
        >>> paused = torch.cat([tone, torch.zeros(8000)])
        >>> round(active_level(tone), 3), round(active_level(paused), 3)
        (0.707, 0.707)
    """
    return gated_level(frame_powers(wav.detach().reshape(-1).cpu().numpy()))


def frame_powers(samples: np.ndarray) -> np.ndarray:
    """Mean power of each frame of ``FRAME`` samples, the last one shorter: (T,) -> (n_frames,)."""
    whole = samples.size // FRAME * FRAME
    powers = np.square(samples[:whole].reshape(-1, FRAME), dtype=np.float64).sum(1) / FRAME
    if whole < samples.size:
        powers = np.append(powers, np.square(samples[whole:], dtype=np.float64).mean())
    return powers


def gated_level(powers: np.ndarray) -> float:
    """Active level from the mean power of each frame of a signal, see ``active_level``.

    Args:
        powers: (n_frames,) mean squares.
    """
    if powers.size == 0:
        return 0.0
    active = powers >= powers.mean() * 10 ** (-GATE_DB / 10)
    return math.sqrt(powers[active].mean())


def mix(
    sources: Sequence[Tensor] | Tensor,
    gains_db: Sequence[float],
    peak: float = PEAK,
    levels: Sequence[float] | None = None,
    targets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Level the sources to a common active level, apply the gains, and add them.

    Mixture and sources are scaled by the one factor that brings the largest absolute sample among
    them to ``peak``: the mixture stays the sum of its sources, and nothing clips in a 16-bit file.
    A silent source stays silent.

    Args:
        sources: n_src signals (T,) of one length.
        gains_db: relative gain of each source in dB.
        peak: largest absolute sample of the result.
        levels: active levels of the sources, if they are known.
        targets: (n_src, T) to be scaled as the sources are, and given instead of them.

    Returns:
        ``(mixture (T,), sources (n_src, T))``.

    Raises:
        ValueError: no source, unequal lengths, or another number of gains than of sources.

    Example:
        >>> a, b = torch.randn(2, 8000).unbind()
        >>> mixture, sources = mix([a, 5 * b], [1.0, -1.0])
        >>> bool((mixture - sources.sum(0)).abs().max() < 1e-6)
        True
        >>> round(20 * math.log10(active_level(sources[0]) / active_level(sources[1])), 3)
        2.0
    """
    if not len(sources) or len(sources) != len(gains_db):
        raise ValueError(f"{len(sources)} sources and {len(gains_db)} gains: one gain a source")
    lengths = [source.shape[-1] for source in sources]
    if len(set(lengths)) > 1:
        raise ValueError(f"sources of lengths {lengths}: cut or pad them to one length first")
    if levels is None:
        levels = [active_level(source) for source in sources]
    gains = [10 ** (g / 20) / (level or 1.0) for g, level in zip(gains_db, levels, strict=True)]
    factors = torch.tensor(gains, dtype=sources[0].dtype)[:, None]
    scaled = (sources if isinstance(sources, Tensor) else torch.stack(list(sources))) * factors
    mixture = scaled.sum(0)
    given = scaled if targets is None else targets * factors
    parts = [scaled, mixture] + [given] * (targets is not None)
    largest = max(map(_largest, parts)) if lengths[0] else 0.0
    factor = peak / largest if largest > 0 else 1.0
    return mixture.mul_(factor), given.mul_(factor)


def _largest(wav: Tensor) -> float:
    """Largest absolute sample."""
    low, high = wav.aminmax()
    return max(-float(low), float(high))


def draw_gains(n_src: int, rng: random.Random) -> tuple[float, ...]:
    """Relative gains in dB after WSJ0-mix, generalized to any number of speakers.

    Speakers are taken in pairs of opposite gains ``+g, -g`` with g uniform in [0, 2.5] dB, drawn
    anew for each pair; an odd last speaker gets 0 dB. So one speaker has 0 dB, two differ by 0 to
    5 dB, and the gains always sum to 0 dB.

    Example:
        >>> a, b, c = draw_gains(3, random.Random(0))
        >>> a == -b, 0 <= a <= 2.5, c
        (True, True, 0.0)
    """
    drawn = np.array([rng.random() for _ in range(n_src // 2)])
    return tuple(paired_gains(drawn, n_src).tolist())


def paired_gains(drawn: np.ndarray, n_src: int, max_gain_db: float = MAX_GAIN_DB) -> np.ndarray:
    """The gains of ``draw_gains`` from numbers drawn in [0, 1): (..., n_src // 2) -> (..., n_src).

    >>> paired_gains(np.array([0.5]), 3).tolist()
    [1.25, -1.25, 0.0]
    """
    gains = np.zeros((*drawn.shape[:-1], n_src))
    gains[..., : n_src - n_src % 2] = (max_gain_db * drawn).repeat(2, -1)
    gains[..., 1 : n_src - n_src % 2 : 2] *= -1
    return gains


def count_combinations(sizes: Sequence[int], n_src: int) -> int:
    """How many sets of ``n_src`` utterances of different speakers there are (exact).

    Args:
        sizes: number of utterances of each speaker.
        n_src: speakers in a mixture.

    Example:
        >>> count_combinations([2, 3], 2), count_combinations([1] * 251, 2)
        (6, 31375)
    """
    return _ways(sizes, n_src)[-1][n_src]


def _ways(sizes: Sequence[int], n_src: int) -> list[list[int]]:
    """``ways[i][k]``: sets of k utterances of different speakers among the first i speakers."""
    ways = [[1] + [0] * n_src]
    for size in sizes:
        before = ways[-1]
        ways.append([1] + [before[k] + size * before[k - 1] for k in range(1, n_src + 1)])
    return ways


def draw_mixtures(
    utterances: Mapping[str, Sequence[str]], n_mixtures: int, n_src: int, seed: int | str
) -> list[Mixture]:
    """Draw mixtures of utterances of different speakers, no set of utterances twice.

    Every set of utterances is equally likely. The list depends on the arguments' values alone: not
    on the order of the mapping or of its lists, the platform or the hash seed.

    Args:
        utterances: paths (or any names) of each speaker's utterances.
        n_mixtures: how many to draw.
        n_src: speakers in a mixture.
        seed: seed of the draw.

    Raises:
        ValueError: fewer sets of utterances than ``n_mixtures`` (the message counts them),
            ``n_src`` below 1, or an utterance listed under two speakers.

    Example:
        >>> draw = draw_mixtures({"ann": ["a1", "a2"], "bob": ["b1"]}, 2, n_src=2, seed=0)
        >>> sorted(sorted(mixture.paths) for mixture in draw)
        [['a1', 'b1'], ['a2', 'b1']]
        >>> draw_mixtures({"ann": ["a1", "a2"], "bob": ["b1"]}, 3, n_src=2, seed=0)
        Traceback (most recent call last):
        ValueError: n_mixtures=3 asked for, but 3 utterances of 2 speakers give only 2 ...
    """
    if n_src < 1:
        raise ValueError(f"n_src={n_src}: a mixture has at least 1 speaker")
    speakers = sorted(utterances)
    names = [sorted(set(utterances[speaker])) for speaker in speakers]
    _refuse_shared(speakers, names)
    ways = _ways([len(n) for n in names], n_src)
    total = ways[-1][n_src]
    if n_mixtures > total:
        raise ValueError(
            f"n_mixtures={n_mixtures} asked for, but {sum(map(len, names))} utterances of "
            f"{len(speakers)} speakers give only {total} different mixtures of n_src={n_src} "
            f"speakers: ask for at most {total}, or bring more utterances or speakers"
        )
    rng = random.Random(f"mixtures/{seed}/{n_src}")
    drawn = []
    for rank in _distinct(total, n_mixtures, rng):
        members = _unrank(rank, names, ways, n_src)
        rng.shuffle(members)
        who = tuple(speakers[i] for i, _ in members)
        drawn.append(Mixture(who, tuple(path for _, path in members), draw_gains(n_src, rng)))
    return drawn


def _refuse_shared(speakers: Sequence[str], names: Sequence[Sequence[str]]) -> None:
    owner: dict[str, str] = {}
    for speaker, paths in zip(speakers, names, strict=True):
        for path in paths:
            if path in owner:
                raise ValueError(
                    f"utterance {path} belongs to two speakers: {owner[path]} and "
                    f"{speaker}; each utterance has one"
                )
            owner[path] = speaker


def _distinct(total: int, count: int, rng: random.Random) -> list[int]:
    """``count`` different integers below ``total``, which may be larger than 64 bits."""
    if 2 * count >= total:  # drawing until all are new would take long
        ranks = list(range(total))
        rng.shuffle(ranks)
        return ranks[:count]
    seen: dict[int, None] = {}
    while len(seen) < count:
        seen[rng.randrange(total)] = None
    return list(seen)


def _unrank(
    rank: int, names: Sequence[Sequence[str]], ways: Sequence[Sequence[int]], n_src: int
) -> list[tuple[int, str]]:
    """The set of utterances with this number, as (index of the speaker, utterance)."""
    members = []
    left = n_src
    for i in range(len(names), 0, -1):
        if rank < ways[i - 1][left]:  # without speaker i - 1
            continue
        rank -= ways[i - 1][left]
        which, rank = divmod(rank, ways[i - 1][left - 1])
        members.append((i - 1, names[i - 1][which]))
        left -= 1
        if left == 0:
            break
    return members
