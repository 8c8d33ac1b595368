"""Sets of mixtures with and without noise, LibriMix and WHAM!: what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convtasnet.audio import PathLike
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import MixtureData
from convtasnet.data.noise import check_choice
from convtasnet.data.tree import (
    MIXTURES,
    NOISE,
    check_folders,
    folder_at_rate,
    listing,
    rates,
)

MODES = ("min", "max")


class NoisyMixtureData(MixtureData):
    """Mixtures in ``wav{8k,16k}/{min,max}/SPLIT/{mix_clean,mix_both,mix_single,s1,s2,noise}``.

    Subclasses say which folders hold the splits (``split_name``) and where the tree may lie below
    the root (``tree_names``).

    Args:
        root: the folder that holds ``wav8k`` or ``wav16k``, or one above it.
        mode: ``"min"`` or ``"max"``: mixtures cut to the shortest source or padded to the longest.
        mixture: ``"mix_clean"``, the talkers; ``"mix_both"``, the talkers and noise;
            ``"mix_single"``, the first talker and noise.
        **kwargs: see ``MixtureData``; with ``noise="ignore"`` the noise isn't read.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        root: PathLike,
        mode: str = "min",
        mixture: str = "mix_both",
        **kwargs: Any,
    ) -> None:
        super().__init__(root, **kwargs)
        check_choice("mode", mode, MODES)
        check_choice("mixture", mixture, MIXTURES)
        if mixture == "mix_clean" and self.noise == "source":
            raise ValueError(
                "noise is 'source', but mix_clean has none: set mixture to mix_both or mix_single"
            )
        self.mode, self.mixture = mode, mixture

    def split_name(self, split: str) -> str:
        """The folder of "train", "valid" or "test"."""
        raise NotImplementedError(f"{type(self).__name__} names no folders of splits")

    def tree_names(self) -> list[str]:
        """Folders below the root of which the first that is there holds ``wav8k`` and so on."""
        return []

    def rows(self, split: str) -> Manifest:
        """The mixtures of a split.

        Raises:
            FileNotFoundError: a folder isn't there; the message says what is, and what would do.
            ValueError: ``n_src`` doesn't fit, or files are missing beside others; all are listed.
        """
        talkers = self.talkers
        inner = f"{self.mode}/{self.split_name(split)}"
        folder = folder_at_rate(self._tree(), self.sample_rate, inner, upsample=False)
        kinds = [self.mixture, *(f"s{k + 1}" for k in range(talkers))]
        kinds += [NOISE] * (self.mixture != "mix_clean" and self.needs_noise(split))
        check_folders(folder, kinds)
        if self.mixture != "mix_single" and (folder / f"s{talkers + 1}").is_dir():
            raise ValueError(f"{folder}: {talkers} talkers are wanted, but there {listing(folder)}")
        return self.list_mixtures(folder, kinds)

    def list_mixtures(self, folder: Path, kinds: Sequence[str]) -> Manifest:
        """The mixtures of a split's folder: see ``tree.mixtures_in``."""
        raise NotImplementedError(f"{type(self).__name__} can't tell the talkers of a mixture")

    @property
    def talkers(self) -> int:
        """Talkers in a mixture, which are ``n_src`` less the noise if that is a source.

        Raises:
            ValueError: the kind of mixture has another number of talkers.
        """
        talkers = self.n_src - (self.noise == "source")
        if (talkers == 1) != (self.mixture == "mix_single") or talkers < 1:
            right = "one talker" if self.mixture == "mix_single" else "two talkers or more"
            counted = "the talkers and the noise" if self.noise == "source" else "the talkers"
            raise ValueError(
                f"n_src is {self.n_src}, which counts {counted} (noise is '{self.noise}'), but "
                f"{self.mixture} has {right}"
            )
        return talkers

    def _tree(self) -> Path:
        """The folder that holds ``wav8k`` and so on: the root or one in it."""
        if not self.root.is_dir():
            raise FileNotFoundError(f"data.root={self.root}: no such folder")
        names = self.tree_names()
        for folder in (self.root, *(self.root / name for name in names)):
            if rates(folder):
                return folder
        expected = " or ".join([*names, "wav8k and wav16k"])
        raise FileNotFoundError(
            f"data.root={self.root} {listing(self.root)}: expected in it {expected}"
        )
