"""One mixture of a list: its files and what the list says of them."""

from __future__ import annotations

from dataclasses import dataclass, field

# Lengths of files that belong together may differ by so much (seconds, fraction).
TOLERANCE_SECONDS = 0.020
TOLERANCE_FRACTION = 0.01


@dataclass(frozen=True)
class Row:
    """One mixture.

    Args:
        id: name of the mixture, unique within a manifest.
        mixture: absolute path of the mixture.
        sources: absolute paths of its sources.
        noise: absolute path of the noise, if there is one.
        length: samples of the mixture at its own rate; None if not known yet.
        place: where the list says so, such as ``FILE, line 3``, for messages; rows that differ in
            it alone are equal.
        speakers: who speaks in each source; None if not known.
    """

    id: str
    mixture: str
    sources: tuple[str, ...]
    noise: str | None = None
    length: int | None = None
    place: str | None = field(default=None, compare=False)
    speakers: tuple[str, ...] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Mixture, sources and, where there is one, noise.

        >>> Row("a", "mix.wav", ("s1.wav", "s2.wav"), "noise.wav").files
        ('mix.wav', 's1.wav', 's2.wav', 'noise.wav')
        """
        return (self.mixture, *self.sources, *([self.noise] if self.noise else []))


def lengths_fit(one: int, other: int, sample_rate: int) -> bool:
    """Do two numbers of samples differ by at most 20 ms or 1 %?

    >>> lengths_fit(8000, 8010, 8000), lengths_fit(8000, 4000, 8000)
    (True, False)
    """
    allowed = max(TOLERANCE_SECONDS * sample_rate, TOLERANCE_FRACTION * max(one, other))
    return abs(one - other) <= allowed
