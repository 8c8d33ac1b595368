"""Who speaks in a mixture, by its name."""

from __future__ import annotations

import re

Speakers = tuple[str, ...] | None
WSJ0_SPEAKER = r"(\w{3})\w*"

_GAIN = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_LIBRISPEECH = re.compile(r"(\d+)-\d+-\d+")


def wsj0_speakers(name: str, speaker: str = WSJ0_SPEAKER) -> Speakers:
    """Speakers of wsj0-mix's names, ``utterance_gain_utterance_gain``.

    Args:
        name: of the mixture.
        speaker: pattern of an utterance's name whose first group is its speaker; WSJ0's have three
            characters.

    Returns:
        One name a talker; None if it isn't such a name.

    >>> wsj0_speakers("40na010x_1.9857_01xo031a_-1.9857"), wsj0_speakers("mixture_b")
    (('40n', '01x'), None)
    """
    fields = name.split("_")
    matches = [re.fullmatch(speaker, utterance) for utterance in fields[::2]]
    if len(fields) % 2 or not all(matches) or not all(map(_GAIN.fullmatch, fields[1::2])):
        return None
    return tuple(match[1] for match in matches if match)


def librimix_speakers(name: str) -> Speakers:
    """Speakers of LibriMix's names, ``speaker-chapter-number_speaker-chapter-number``.

    >>> librimix_speakers("103-1240-0003_1235-135887-0017"), librimix_speakers("a_b")
    (('103', '1235'), None)
    """
    matches = [_LIBRISPEECH.fullmatch(utterance) for utterance in name.split("_")]
    return tuple(match[1] for match in matches if match) if all(matches) else None
