"""What is known of a mixture besides its scores: who speaks, how loud, how much at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from convtasnet.data.names import librimix_speakers, wsj0_speakers

FRAME_SECONDS = 0.02
ACTIVE_DB = 40.0  # a frame of a source so far below its loudest one is a pause
_WSJ0 = r"(\d\w\w)\w{5}"  # utterance 050c0102 of speaker 050
_DEMO = r"(\D\w*?)\d\d"  # utterance davidc02 of voice davidc
_DRAWN = re.compile(r"\d{5}")  # the number before the speakers of data=speakers


@dataclass(frozen=True)
class Facts:
    """Facts of one mixture; None where there is no such thing.

    Args:
        level_db: root mean square of the mixture in dB of full scale.
        level_difference_db: of the loudest source over the softest, over the frames in which each
            is active; None with one source.
        overlap: share of the frames with speech in which two sources or more are active; None
            with one source.
        speakers: in the order of the alphabet, joined by ``+``; None if the ID does not tell.
        genders: in the order of the alphabet, joined by ``+``.
    """

    level_db: float | None = None
    level_difference_db: float | None = None
    overlap: float | None = None
    speakers: str | None = None
    genders: str | None = None


def signal_facts(mixture: Tensor, sources: Tensor, sample_rate: int) -> Facts:
    """Levels and overlap.

    Args:
        mixture: (T,).
        sources: (n_src, T).
        sample_rate: Hz.

    Example:
        >>> import torch
        >>> tone = torch.sin(torch.arange(8000.0))
        >>> late = torch.cat([torch.zeros(4000), 0.1 * tone[4000:]])
        >>> facts = signal_facts(tone + late, torch.stack([tone, late]), 8000)
        >>> round(facts.level_difference_db), facts.overlap
        (20, 0.5)
    """
    power = float(mixture.double().square().mean())
    level = _decibels(power) if power > 0 else None
    frame = max(1, round(FRAME_SECONDS * sample_rate))
    whole = sources.shape[-1] // frame * frame
    if len(sources) < 2 or whole == 0:
        return Facts(level)
    powers = sources[:, :whole].double().reshape(len(sources), -1, frame).square().mean(-1)
    loudest = powers.amax(1, keepdim=True)
    active = (powers > loudest * 10 ** (-ACTIVE_DB / 10)) & (loudest > 0)
    count = active.sum(0)
    if not bool(active.any(1).all()):
        return Facts(level)
    levels = [_decibels(float(p[a].mean())) for p, a in zip(powers, active, strict=True)]
    speech = int((count > 0).sum())
    return Facts(level, max(levels) - min(levels), int((count > 1).sum()) / speech)


def speakers_of(mixture_id: str, n_src: int) -> list[str] | None:
    """Speakers that the ID of a mixture names, in the conventions of the known data sets.

    Args:
        mixture_id: such as ``050c0102_1.2_22ga0101_-1.2`` (wsj0-mix, WHAM! and the demo corpus),
            ``61-70968-0000_8455-210777-0012`` (LibriMix) or ``00012_ann_bob`` (``data=speakers``).
        n_src: speakers that there have to be.

    Returns:
        ``n_src`` names, or None for another kind of ID.

    Example:
        >>> speakers_of("050c0102_1.2_22ga0101_-1.2", 2), speakers_of("mix7", 2)
        (['050', '22g'], None)
    """
    name = mixture_id.rsplit("/", 1)[-1]
    number, *drawn = name.split("_")
    found = (
        wsj0_speakers(name, _WSJ0)
        or wsj0_speakers(name, _DEMO)
        or librimix_speakers(name)
        or (drawn if _DRAWN.fullmatch(number) else None)
    )
    return list(found) if found and len(found) == n_src else None


def read_genders(path: Path) -> dict[str, str]:
    """Gender of each speaker from a table: ``speaker, gender, …`` with M or F, in any case.

    Fields are separated by ``|`` (LibriSpeech's ``SPEAKERS.TXT``), commas, tabs or blanks
    (``spkrinfo.txt`` of WSJ0); the first is the speaker, the first M or F after it the gender.
    Lines without one are passed over, as headings and comments are.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not one line names a speaker and a gender.
    """
    if not path.is_file():
        raise FileNotFoundError(f"speakers={path}: no such file")
    genders = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = [field.strip() for field in re.split(r"[|,\t ]+", line.strip())]
        known = [field.upper() for field in fields[1:] if field.upper() in ("M", "F")]
        if known and not line.startswith(";"):
            genders[fields[0].lower()] = known[0]
    if not genders:
        raise ValueError(f"speakers={path}: no line has a speaker and M or F, such as '050, F'")
    return genders


def people(
    mixture_id: str, n_src: int, genders: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The facts ``speakers`` and ``genders`` of a mixture.

    Args:
        mixture_id: see :func:`speakers_of`.
        n_src: number of speakers.
        genders: speaker in lower case -> M or F; empty if not known.

    Example:
        >>> people("00012_bob_ann", 2, {"ann": "F", "bob": "M"})
        ('ann+bob', 'F+M')
    """
    names = speakers_of(mixture_id, n_src)
    if names is None:
        return None, None
    known = [genders.get(name.lower()) for name in names]
    told = "+".join(sorted(filter(None, known))) if all(known) else None
    return "+".join(sorted(names)), told


def _decibels(power: float) -> float:
    return 10 * math.log10(power)
