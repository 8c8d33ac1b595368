"""How training mixtures are made anew, for all data sets alike."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convtasnet.data.mixing import MAX_GAIN_DB, PEAK
from convtasnet.data.noise import check_choice

TARGETS = ("reverberant", "direct")
USUAL_SPEEDS = (0.95, 1.05)
SPEED_LIMITS = (0.5, 2.0)


@dataclass(frozen=True)
class Augment:
    """Settings of dynamic mixing.

    Args:
        remix: whether training mixes the sources of its set anew in each epoch; None: it doesn't,
            unless there are no listed mixtures (``speakers.SpeakersData``).
        epoch_size: mixtures in an epoch; None: as many as the set lists.
        gain_db: largest relative gain of a talker in dB (``mixing.paired_gains``).
        speed: (lowest, highest) between which the speed of each talker is drawn, in steps of 0.01,
            within ``SPEED_LIMITS``; pitch and formants change with it. True: ``USUAL_SPEEDS``,
            False: speeds stay as they are.
        peak: largest absolute sample of a mixture and its sources; or (lowest, highest), between
            which it is drawn, uniform in dB.
        noise_root: folder or csv of noise recordings; None: the noise of the set, if it has any.
        snr: (lowest, highest) dB between which the level of the loudest talker over that of the
            noise is drawn.
        rir_root: folder or csv of room impulse responses; None: no reverberation.
        target: what the model is to give of a talker in a room: ``"reverberant"``, the voice as it
            is in the mixture, or ``"direct"``, what reaches the microphone without reflections.

    Raises:
        ValueError: a value is out of range, or has no effect without another that isn't set.

    >>> Augment(remix=True, snr=[0, 10], peak=0.5).peak
    (0.5, 0.5)
    >>> Augment(remix=True, speed=[0.8, 1.2]).speeds
    range(80, 121)
    >>> Augment(speed=True)
    Traceback (most recent call last):
        ...
    ValueError: speed is True, but training uses its mixtures as they are: set data.remix=true
    """

    remix: bool | None = None
    epoch_size: int | None = None
    gain_db: float = MAX_GAIN_DB
    speed: bool | Sequence[float] = False
    peak: float | Sequence[float] = PEAK
    noise_root: str | os.PathLike[str] | None = None
    snr: Sequence[float] = (-6.0, 3.0)
    rir_root: str | os.PathLike[str] | None = None
    target: str = "reverberant"

    def __post_init__(self) -> None:
        peak = (self.peak, self.peak) if isinstance(self.peak, int | float) else self.peak
        object.__setattr__(self, "peak", _range("peak", peak))
        object.__setattr__(self, "snr", _range("snr", self.snr))
        for name in ("noise_root", "rir_root"):
            root = getattr(self, name)
            if root is not None:
                object.__setattr__(self, name, os.path.abspath(os.path.expanduser(root)))
        if self.remix is not None and not isinstance(self.remix, bool):
            raise ValueError(f"remix is {self.remix!r}, expected true or false")
        object.__setattr__(self, "speed", _speeds(self.speed))
        size = self.epoch_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"epoch_size is {size}, expected 1 or more")
        if not isinstance(self.gain_db, int | float) or not 0 <= self.gain_db < math.inf:
            raise ValueError(f"gain_db is {self.gain_db}, expected a number of dB from 0 on")
        if not 0 < self.peaks[0] <= self.peaks[1] <= 1:
            raise ValueError(f"peak is {self.peak}, expected numbers above 0 and up to 1")
        check_choice("target", self.target, TARGETS)
        if not self.remix:
            self._refuse("training uses its mixtures as they are: set data.remix=true")
        elif self.target != "reverberant" and self.rir_root is None:
            raise ValueError(f"target is '{self.target}', but there are no rooms: set rir_root")

    @property
    def speeds(self) -> range:
        """Percents that may be drawn; 100 alone where speeds stay as they are."""
        if self.speed is False:
            return range(100, 101)
        low, high = USUAL_SPEEDS if self.speed is True else self.speed
        return range(round(100 * low), round(100 * high) + 1)

    @property
    def peaks(self) -> tuple[float, float]:
        """Lowest and highest peak."""
        low, high = self.peak  # type: ignore[misc]
        return float(low), float(high)

    def _refuse(self, reason: str) -> None:
        """An error if a value isn't the default."""
        plain: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(self)}
        plain["peak"] = (PEAK, PEAK)
        del plain["remix"]
        for name, default in plain.items():
            value = getattr(self, name)
            if value != default:
                raise ValueError(f"{name} is {value}, but {reason}")


def _speeds(value: Any) -> bool | tuple[float, float]:
    """The setting, checked."""
    if isinstance(value, bool):
        return value
    found = _range("speed", value, "true, false or [lowest, highest]")
    least, most = SPEED_LIMITS
    if not least <= found[0] <= found[1] <= most:
        raise ValueError(f"speed is {value!r}, expected numbers from {least} to {most}")
    if any(abs(100 * speed - round(100 * speed)) > 1e-6 for speed in found):
        raise ValueError(f"speed is {value!r}, expected multiples of 0.01")
    return found


def _range(name: str, values: Any, expected: str = "[lowest, highest]") -> tuple[float, float]:
    """Two finite numbers in their order."""
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    good = len(numbers) == 2 and all(
        isinstance(n, int | float) and math.isfinite(n) for n in numbers
    )
    if not good or numbers[0] > numbers[1]:
        raise ValueError(f"{name} is {values!r}, expected {expected}")
    return float(numbers[0]), float(numbers[1])
