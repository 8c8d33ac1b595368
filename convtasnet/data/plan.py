"""What training mixtures are made of, decided for many at once before a sample is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convtasnet.data.augment import Augment
from convtasnet.data.draws import Key, below, distinct, uniforms
from convtasnet.data.mixing import paired_gains

TRIES = 4


@dataclass(frozen=True)
class Plan:
    """What B training mixtures are made of; rows are the talkers and, last, noise if there is any.

    Args:
        members: (B, n_rows) int64, which recordings.
        percents: (B, n_rows) int64, at which speeds.
        counts: (B, n_rows) int64, samples of a crop before its speed is changed.
        starts: (B, n_rows, TRIES) int64, first samples of the crops to choose from.
        played: (B, n_rows) int64, samples of each crop after its speed was changed.
        gains_db: (B, n_rows) float64, relative gains.
        peaks: (B,) float64, largest absolute samples.
        rooms: (B, n_talkers) int64, which recordings are the talkers' impulse responses; None
            without rooms.
    """

    members: np.ndarray
    percents: np.ndarray
    counts: np.ndarray
    starts: np.ndarray
    played: np.ndarray
    gains_db: np.ndarray
    peaks: np.ndarray
    rooms: np.ndarray | None


class Planner:
    """Draws plans. Everything is a function of (seed, epoch, index).

    The talkers of an item are different speakers, all equally likely, and then an utterance of
    each. Its noise is any of the recordings, its room any of the rooms, and no two talkers are at
    one place in it. A setting leaves what the others decide as it is: with noise or without, an
    item has the same talkers, crops and gains.

    Args:
        lengths: (n,) samples of the recordings: utterances speaker after speaker, then noise, then
            impulse responses room after room.
        speakers: bounds: utterances speakers[k] to speakers[k + 1] are speaker k's.
        n_noises: noise recordings, each at least a segment long.
        rooms: bounds of the rooms among the impulse responses, if there are any.
        n_talkers: in a mixture.
        n_samples: of a segment.
        augment: gains, speed, SNR, peak.
        seed: of all draws.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        speakers: np.ndarray,
        n_noises: int,
        rooms: np.ndarray | None,
        n_talkers: int,
        n_samples: int,
        augment: Augment,
        seed: int,
    ):
        self.lengths, self.speakers, self.rooms = lengths, speakers, rooms
        self.n_noises, self.n_talkers, self.n_samples = n_noises, n_talkers, n_samples
        self.augment, self.seed = augment, seed

    def plan(self, keys: Sequence[Key]) -> Plan:
        """Decide what the items (epoch, index) are made of."""
        n = self.n_talkers
        sizes = [n, n, n, n * TRIES, n // 2, 1, TRIES, 1, 1, n, 1]
        drawn = uniforms(self.seed, keys, sum(sizes))
        who, which, pace, where, gain, *rest = np.split(drawn, np.cumsum(sizes)[:-1], axis=1)
        noise, noise_where, snr, room, place, peak = rest
        members = _of_groups(distinct(len(self.speakers) - 1, who), self.speakers, which)
        percents = np.full_like(members, 100)
        if self.augment.speed:
            percents = self.augment.speeds[0] + below(len(self.augment.speeds), pace)
        counts = np.minimum(self.lengths[members], needed(self.n_samples, percents))
        played = np.minimum(-(-counts * 100 // percents), self.n_samples)
        gains = paired_gains(gain, n, self.augment.gain_db)
        where = where.reshape(-1, n, TRIES)
        if self.n_noises:
            members = np.hstack([members, self.speakers[-1] + below(self.n_noises, noise)])
            percents = np.hstack([percents, np.full_like(percents[:, :1], 100)])
            ends = played.max(1, keepdims=True)
            counts, played = np.hstack([counts, ends]), np.hstack([played, ends])
            loudest = gains.max(1, keepdims=True)
            gains = np.hstack([gains, loudest - _between(self.augment.snr, snr)])
            where = np.concatenate([where, noise_where[:, None]], axis=1)
        low, high = self.augment.peaks  # in dB it is uniform
        return Plan(
            members=members,
            percents=percents,
            counts=counts,
            starts=below((self.lengths[members] - counts + 1)[..., None], where),
            played=played,
            gains_db=gains,
            peaks=low * (high / low) ** peak[:, 0],
            rooms=None if self.rooms is None else self._places(self.rooms, room, place),
        )

    def _places(self, rooms: np.ndarray, room: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Different impulse responses of one room for the talkers of each item."""
        which = below(len(rooms) - 1, room)[:, 0]
        firsts = rooms[which]
        own = distinct(rooms[which + 1] - firsts, place)
        return self.speakers[-1] + self.n_noises + firsts[:, None] + own


def needed(n_samples: int, percents: np.ndarray | int) -> np.ndarray:
    """Samples that become ``n_samples`` at these speeds."""
    return -(-n_samples * np.asarray(percents) // 100)


def _of_groups(groups: np.ndarray, bounds: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """One member of each group, all equally likely."""
    firsts = bounds[groups]
    return firsts + below(bounds[groups + 1] - firsts, drawn)


def _between(limits: Sequence[float], drawn: np.ndarray) -> np.ndarray:
    low, high = limits
    return low + (high - low) * drawn
