"""The folder layout of wsj0-2mix and wsj0-3mix, as ``create-speaker-mixtures`` writes it."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from convtasnet.data.manifest import Manifest, Row

logger = logging.getLogger(__name__)

FOLDERS = {"train": "tr", "valid": "cv", "test": "tt"}
_SHOWN = 20


def wsj0_mix_manifest(
    root: str | os.PathLike[str], split: str, sample_rate: int, n_src: int = 2, mode: str = "min"
) -> Manifest:
    """The mixtures below ``ROOT/{n}speakers/wav{8k,16k}/{min,max}/{tr,cv,tt}/{mix,s1,s2,…}``.

    Args:
        root: the folder above, or the one that holds ``tr``, ``cv`` and ``tt`` directly.
        split: "train" (``tr``), "valid" (``cv``) or "test" (``tt``).
        sample_rate: in Hz, chooses ``wav8k`` or ``wav16k``; if only other rates are there, the
            one next to it is taken, to be resampled.
        n_src: number of sources.
        mode: "min" or "max".

    Returns:
        A manifest in the order of the names, lengths not known yet.

    Raises:
        FileNotFoundError: root or split isn't there; the message says what is.
        ValueError: a mixture lacks a source or a source its mixture; all are listed.
    """
    folder = _split_folder(Path(os.path.abspath(root)), split, sample_rate, n_src, mode)
    kinds = ["mix", *(f"s{k + 1}" for k in range(n_src))]
    absent = [kind for kind in kinds if not (folder / kind).is_dir()]
    if absent:
        raise FileNotFoundError(f"{folder}: folders {absent} are missing, there {_listing(folder)}")
    if (folder / f"s{n_src + 1}").is_dir():
        raise ValueError(f"{folder}: n_src is {n_src}, but there {_listing(folder)}")
    names = {kind: _wavs(folder / kind) for kind in kinds}
    everything = sorted(set().union(*names.values()))
    lacking = [
        str(folder / kind / name)
        for name in everything
        for kind in kinds
        if name not in names[kind]
    ]
    if lacking:
        more = f"\n  … and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        raise ValueError(
            f"{folder}: {len(lacking)} files are missing beside the others of the same name:\n  "
            + "\n  ".join(lacking[:_SHOWN])
            + more
        )
    rows = [
        Row(
            id=name.removesuffix(".wav"),
            mixture=str(folder / "mix" / name),
            sources=tuple(str(folder / kind / name) for kind in kinds[1:]),
        )
        for name in everything
    ]
    if not rows:
        raise ValueError(f"{folder / 'mix'}: no wav files in it")
    return Manifest(rows, folder, n_src)


def layout(root: Path, n_src: int, sample_rate: int, mode: str, name: str) -> Path:
    """Folder ``name`` ("tr", "cv" or "tt") of a tree.

    Example:
        >>> layout(Path("/data"), 2, 8000, "min", "tr").as_posix()
        '/data/2speakers/wav8k/min/tr'
    """
    return root / f"{n_src}speakers" / f"wav{sample_rate // 1000}k" / mode / name


def _split_folder(root: Path, split: str, sample_rate: int, n_src: int, mode: str) -> Path:
    """The folder of the split, at the wanted rate or the next to it."""
    if not root.is_dir():
        raise FileNotFoundError(f"data root {root}: no such folder")
    name = FOLDERS[split]
    wanted = layout(root, n_src, sample_rate, mode, name)
    if any((root / other).is_dir() for other in FOLDERS.values()):
        wanted = root / name
    if wanted.is_dir():
        return wanted
    # Rates above the wanted one lose nothing, so they come first.
    rates = sorted(
        _rates(root / f"{n_src}speakers"),
        key=lambda rate: (rate < sample_rate, abs(rate - sample_rate)),
    )
    for rate in rates:
        folder = layout(root, n_src, rate, mode, name)
        if folder.is_dir():
            logger.info("%s isn't there; %s is resampled to %d Hz", wanted, folder, sample_rate)
            return folder
    here = wanted
    while not here.is_dir():
        here = here.parent
    raise FileNotFoundError(f"{wanted}: no such folder; {here} {_listing(here)}")


def _rates(speakers: Path) -> list[int]:
    """Rates in Hz of the folders ``wav8k``, ``wav16k``, … that are there."""
    if not speakers.is_dir():
        return []
    matches = (re.fullmatch(r"wav(\d+)k", name) for name in os.listdir(speakers))
    return [1000 * int(match[1]) for match in matches if match]


def _wavs(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if name.endswith(".wav") and name[0] != "."}


def _listing(folder: Path) -> str:
    names = sorted(os.listdir(folder))
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"holds {shown or 'nothing'}"
