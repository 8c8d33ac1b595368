"""Folders of mixtures, ``wav{8k,16k}/{min,max}/SPLIT/{mix,s1,s2,…}/NAME.wav``.

wsj0-2mix, LibriMix and WHAM! share this layout; what differs is said in their own files.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from convtasnet.data.manifest import Manifest
from convtasnet.data.names import Speakers
from convtasnet.data.row import Row
from convtasnet.data.shown import SHOWN, some_lines

logger = logging.getLogger(__name__)

NOISE = "noise"  # the folder of the noise in mixtures
# Folders of mixtures in sets with noise: the talkers, they and noise, the first and noise.
MIXTURES = ("mix_clean", "mix_both", "mix_single")


def wav_folder(sample_rate: int) -> str:
    """Name of the folder of a rate in Hz.

    >>> wav_folder(16000)
    'wav16k'
    """
    return f"wav{sample_rate // 1000}k"


def rates(base: Path) -> list[int]:
    """Rates in Hz of the folders ``wav8k``, ``wav16k``, … in a folder, which need not exist."""
    if not base.is_dir():
        return []
    matches = (re.fullmatch(r"wav(\d+)k", name) for name in os.listdir(base))
    return [1000 * int(match[1]) for match in matches if match]


def folder_at_rate(base: Path, sample_rate: int, inner: str, upsample: bool = True) -> Path:
    """``BASE/wav{8k,16k,…}/INNER`` at the wanted rate or, to be resampled, at the next to it.

    Args:
        base: the folder that holds ``wav8k`` and so on.
        sample_rate: the wanted rate in Hz.
        inner: such as ``min/tr``.
        upsample: whether a lower rate will do, too.

    Raises:
        FileNotFoundError: there is none; the message says what is there.
    """
    wanted = base / wav_folder(sample_rate) / inner
    if wanted.is_dir():
        return wanted
    # Rates above the wanted one lose nothing, so they come first.
    for rate in sorted(rates(base), key=lambda rate: (rate < sample_rate, abs(rate - sample_rate))):
        folder = base / wav_folder(rate) / inner
        if not folder.is_dir():
            continue
        if rate < sample_rate and not upsample:
            raise FileNotFoundError(
                f"{wanted}: no such folder; {folder} has nothing above {rate // 2} Hz: set "
                f"data.sample_rate={rate}, or generate the mixtures at {sample_rate} Hz"
            )
        logger.info("%s isn't there; %s is resampled to %d Hz", wanted, folder, sample_rate)
        return folder
    raise FileNotFoundError(absence(wanted))


def check_folders(folder: Path, kinds: Sequence[str]) -> None:
    """Are all of these in a folder?

    Raises:
        FileNotFoundError: names those that are not, and what is there.
    """
    absent = [kind for kind in kinds if not (folder / kind).is_dir()]
    if absent:
        raise FileNotFoundError(f"{folder}: folders {absent} are missing, there {listing(folder)}")


def row_of(
    name: str, kinds: Sequence[str], paths: Sequence[Path], speakers: Speakers = None
) -> Row:
    """A mixture with one file of each kind, the noise (``NOISE``), if any, as the last.

    ``speakers`` are those of its name, perhaps more than it has sources.

    >>> paths = [Path("mix_both/a.wav"), Path("s1/a.wav"), Path("noise/a.wav")]
    >>> row = row_of("a", ["mix_both", "s1", "noise"], paths)
    >>> row.sources, row.noise
    (('s1/a.wav',), 'noise/a.wav')
    """
    mixture, *sources = map(str, paths)
    noise = sources.pop() if kinds[-1] == NOISE else None
    who = speakers[: len(sources)] if speakers and len(speakers) >= len(sources) else None
    return Row(name, mixture, tuple(sources), noise, speakers=who)


def mixtures_in(
    folder: Path, kinds: Sequence[str], speakers_of: Callable[[str], Speakers]
) -> Manifest:
    """The mixtures of a folder whose files have one name in each of its folders.

    Args:
        folder: of the split.
        kinds: folder of the mixtures, then those of the sources, perhaps ``NOISE``.
        speakers_of: tells who speaks in a mixture by its name.

    Returns:
        A manifest in the order of the names, lengths not known yet.

    Raises:
        FileNotFoundError: a folder isn't there.
        ValueError: a mixture lacks a source or a source its mixture (all are listed), or there
            is no wav file.
    """
    check_folders(folder, kinds)
    names = {kind: _wavs(folder / kind) for kind in kinds}
    everything = sorted(set().union(*names.values()))
    lacking = [
        str(folder / kind / name)
        for name in everything
        for kind in kinds
        if name not in names[kind]
    ]
    if lacking:
        raise ValueError(
            f"{folder}: {len(lacking)} files are missing beside the others of the same name:"
            + some_lines(lacking)
        )
    if not everything:
        raise ValueError(f"{folder / kinds[0]}: no wav files in it")
    rows = []
    for file in everything:
        name = file.removesuffix(".wav")
        rows.append(
            row_of(name, kinds, [folder / kind / file for kind in kinds], speakers_of(name))
        )
    return Manifest(rows, folder)


def absence(wanted: Path) -> str:
    """What to say of a folder that isn't there: what is, where the path breaks off."""
    here = wanted
    while not here.is_dir():
        here = here.parent
    return f"{wanted}: no such folder; {here} {listing(here)}"


def listing(folder: Path) -> str:
    """``holds a, b, c``: some names of what is in a folder."""
    names = sorted(os.listdir(folder))
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return f"holds {shown or 'nothing'}"


def _wavs(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name.endswith(".wav") and name[0] != "."}
