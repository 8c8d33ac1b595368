"""The folder layout of wsj0-2mix and wsj0-3mix, as ``create-speaker-mixtures`` writes it."""

from __future__ import annotations

import os
from pathlib import Path

from convtasnet.data.manifest import Manifest
from convtasnet.data.names import WSJ0_SPEAKER, wsj0_speakers
from convtasnet.data.tree import absence, folder_at_rate, listing, mixtures_in, wav_folder

FOLDERS = {"train": "tr", "valid": "cv", "test": "tt"}


def wsj0_mix_manifest(
    root: str | os.PathLike[str],
    split: str,
    sample_rate: int,
    n_src: int = 2,
    mode: str = "min",
    speaker: str = WSJ0_SPEAKER,
) -> Manifest:
    """The mixtures below ``ROOT/{n}speakers/wav{8k,16k}/{min,max}/{tr,cv,tt}/{mix,s1,s2,…}``.

    Args:
        root: the folder above, or the one that holds ``tr``, ``cv`` and ``tt`` directly.
        split: "train" (``tr``), "valid" (``cv``) or "test" (``tt``).
        sample_rate: in Hz, chooses ``wav8k`` or ``wav16k``; if only other rates are there, the
            one next to it is taken, to be resampled.
        n_src: number of sources.
        mode: "min" or "max".
        speaker: pattern of an utterance's name, see ``names.wsj0_speakers``.

    Returns:
        A manifest in the order of the names, lengths not known yet.

    Raises:
        FileNotFoundError: root or split isn't there; the message says what is.
        ValueError: a mixture lacks a source or a source its mixture; all are listed.
    """
    folder = _split_folder(Path(os.path.abspath(root)), split, sample_rate, n_src, mode)
    if (folder / f"s{n_src + 1}").is_dir():
        raise ValueError(f"{folder}: n_src is {n_src}, but there {listing(folder)}")
    kinds = ["mix", *(f"s{k + 1}" for k in range(n_src))]
    return mixtures_in(folder, kinds, lambda name: wsj0_speakers(name, speaker))


def layout(root: Path, n_src: int, sample_rate: int, mode: str, name: str) -> Path:
    """Folder ``name`` ("tr", "cv" or "tt") of a tree.

    Example:
        >>> layout(Path("/data"), 2, 8000, "min", "tr").as_posix()
        '/data/2speakers/wav8k/min/tr'
    """
    return root / f"{n_src}speakers" / wav_folder(sample_rate) / mode / name


def _split_folder(root: Path, split: str, sample_rate: int, n_src: int, mode: str) -> Path:
    """The folder of the split, at the wanted rate or the next to it."""
    if not root.is_dir():
        raise FileNotFoundError(f"data root {root}: no such folder")
    name = FOLDERS[split]
    if any((root / other).is_dir() for other in FOLDERS.values()):
        if not (root / name).is_dir():
            raise FileNotFoundError(absence(root / name))
        return root / name
    return folder_at_rate(root / f"{n_src}speakers", sample_rate, f"{mode}/{name}")
