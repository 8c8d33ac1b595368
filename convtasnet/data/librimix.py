"""LibriMix, as its published generator writes it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convtasnet.audio import PathLike
from convtasnet.data.manifest import Manifest
from convtasnet.data.names import librimix_speakers
from convtasnet.data.noise import check_choice
from convtasnet.data.noisy import NoisyMixtureData
from convtasnet.data.tree import NOISE, mixtures_in, row_of

TRAIN_SETS = ("train-100", "train-360")


class LibriMixData(NoisyMixtureData):
    """``Libri{2,3}Mix/wav{8k,16k}/{min,max}/{train-100,train-360,dev,test}/{mix_clean,s1,s2,…}``.

    The mixtures are those of ``metadata/mixture_SET_MIXTURE.csv`` beside the sets, or of the
    folders if there is no csv. A csv has the absolute paths of the machine that made it: the files
    of the same names below the root are taken.

    Args:
        root: the generator's output folder, which holds ``Libri2Mix`` or ``Libri3Mix``, or one of
            these.
        train_set: ``"train-100"`` or ``"train-360"``.
        mixture: see ``NoisyMixtureData``.
        **kwargs: see ``NoisyMixtureData`` and ``MixtureData``; ``n_src``, less the noise where
            that is a source, chooses ``Libri2Mix`` or ``Libri3Mix``.
    """

    def __init__(
        self,
        root: PathLike,
        train_set: str = "train-100",
        mixture: str = "mix_clean",
        **kwargs: Any,
    ) -> None:
        super().__init__(root, mixture=mixture, **kwargs)
        check_choice("train_set", train_set, TRAIN_SETS)
        self.train_set = train_set

    def split_name(self, split: str) -> str:
        """The training set chosen, ``dev`` or ``test``."""
        return {"train": self.train_set, "valid": "dev", "test": "test"}[split]

    def tree_names(self) -> list[str]:
        """One talker is in both, first in the set of two."""
        counts = (2, 3) if self.mixture == "mix_single" else (self.talkers,)
        return [f"Libri{count}Mix" for count in counts]

    def list_mixtures(self, folder: Path, kinds: Sequence[str]) -> Manifest:
        """The mixtures of the split's csv, or of its folder."""
        csv = folder.parent / "metadata" / f"mixture_{folder.name}_{kinds[0]}.csv"
        if csv.is_file():
            return read_metadata(csv, folder, kinds)
        return mixtures_in(folder, kinds, librimix_speakers)


def read_metadata(csv: Path, folder: Path, kinds: Sequence[str]) -> Manifest:
    """The mixtures of a csv, their files sought below a folder.

    Args:
        csv: of LibriMix, with the columns of a manifest.
        folder: of the split.
        kinds: folder of the mixtures, then those of the sources, perhaps of the noise as the last.

    Raises:
        ValueError: the csv is no manifest (see ``Manifest.from_csv``), has no noise where that is
            wanted, or names a file that is in no folder of this kind.
    """
    with_noise = kinds[-1] == NOISE
    rows = []
    for row in Manifest.from_csv(csv, len(kinds) - 1 - with_noise):
        if with_noise and not row.noise:
            raise ValueError(f"{csv}: mixture '{row.id}' has no noise_path")
        listed = [row.mixture, *row.sources, *([row.noise or ""] * with_noise)]
        paths = [
            folder / kind / _name_in(kind, path, csv)
            for kind, path in zip(kinds, listed, strict=True)
        ]
        found = row_of(row.id, kinds, paths, librimix_speakers(row.id))
        rows.append(dataclasses.replace(found, length=row.length))
    return Manifest(rows, csv)


def _name_in(kind: str, path: str, csv: Path) -> str:
    """Name of a file that some machine, perhaps under Windows, has in a folder of this kind."""
    parts = re.split(r"[/\\]", path)
    if parts[-2:-1] != [kind]:
        raise ValueError(
            f"{csv}: {path} is in no folder {kind}; a list of other files is for data=manifest"
        )
    return parts[-1]
