"""The talkers of WHAM!'s mixtures: utterances of WSJ0, or the sources of wsj0-2mix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from wham_lists import ListedMixture, read_utterances
from wham_mixing import RATE

from convtasnet.data.checks import Problem, gather
from convtasnet.data.wsj0_mix import FOLDERS, layout
from convtasnet.generation.recordings import samples_at
from convtasnet.generation.wsj0 import Wsj0Corpus, check_utterances

SPLITS = tuple(FOLDERS.values())
CHUNK = 64  # headers that a thread reads at a time

Folder = tuple[int, str]  # rate in Hz, mode


class Talkers(Protocol):
    """Where the talkers are.

    Attributes:
        from_wsj0: whether they are utterances of WSJ0.
    """

    from_wsj0: bool

    def look(self, split: str, mixtures: Sequence[ListedMixture]) -> list[Problem]:
        """Look at the talkers of a split; all that is wrong."""

    def files(self, split: str, name: str, folder: Folder) -> tuple[str, ...]:
        """Files of the talkers of a mixture."""

    def lengths(self, split: str, name: str, folder: Folder) -> list[int]:
        """Their samples at the folder's rate; 0 where something is wrong."""

    def __len__(self) -> int:
        """Files that were looked at and found good."""


class Utterances:
    """Utterances of WSJ0.

    Args:
        corpus: folder of WSJ0.
        lists: folder of ``mix_2_spk_filenames_{tr,cv,tt}.csv``.

    Raises:
        FileNotFoundError, ValueError: folders or lists are missing or wrong.
    """

    from_wsj0 = True

    def __init__(self, corpus: Path, lists: Path) -> None:
        self._corpus = Wsj0Corpus(corpus)
        self._pairs = {
            split: read_utterances(lists / f"mix_2_spk_filenames_{split}.csv") for split in SPLITS
        }
        self._lengths: dict[str, int] = {}

    def look(self, split: str, mixtures: Sequence[ListedMixture]) -> list[Problem]:
        """Look at the utterances of a split; all that is wrong.

        Raises:
            ValueError: a mixture isn't in the list.
        """
        pairs = self._pairs[split]
        unknown = [mixture.name for mixture in mixtures if mixture.name not in pairs]
        if unknown:
            raise ValueError(
                f"mix_2_spk_filenames_{split}.csv lacks {len(unknown)} of the mixtures in "
                f"scaling_{split}.npz, such as {unknown[0]}"
            )
        users = {path: mixture.name for mixture in mixtures for path in pairs[mixture.name]}
        found, problems = check_utterances(self._corpus, users)
        self._lengths |= found
        return problems

    def files(self, split: str, name: str, folder: Folder) -> tuple[str, ...]:
        """Files of the utterances of a mixture."""
        return tuple(str(self._corpus.find(path)) for path in self._pairs[split][name])

    def lengths(self, split: str, name: str, folder: Folder) -> list[int]:
        """Their samples at the folder's rate; 0 where something is wrong."""
        lengths = [self._lengths.get(path, 0) for path in self._pairs[split][name]]
        return [-(-length * folder[0] // RATE) for length in lengths]

    def __len__(self) -> int:
        return len(self._lengths)


class Sources:
    """Sources of wsj0-2mix, which there have to be for each rate and mode.

    Args:
        root: folder that holds ``2speakers/wav8k/min/tr`` and so on.
        folders: rates and modes.
    """

    from_wsj0 = False

    def __init__(self, root: Path, folders: Sequence[Folder]) -> None:
        self._root, self._folders = root, folders
        self._lengths: dict[str, int] = {}

    def look(self, split: str, mixtures: Sequence[ListedMixture]) -> list[Problem]:
        """Look at the sources of a split; all that is wrong."""
        problems = []
        for folder in self._folders:
            users = {
                file: mixture.name
                for mixture in mixtures
                for file in self.files(split, mixture.name, folder)
            }
            length = partial(samples_at, sample_rate=folder[0])
            title = f"Looking at wsj0-2mix, {split}, {folder[0]} Hz, {folder[1]}"
            found, wrong = gather(users, length, CHUNK, title)
            self._lengths |= found
            problems += wrong
        return problems

    def files(self, split: str, name: str, folder: Folder) -> tuple[str, ...]:
        """Files of the sources of a mixture."""
        base = layout(self._root, 2, *folder, split)
        return tuple(str(base / kind / f"{name}.wav") for kind in ("s1", "s2"))

    def lengths(self, split: str, name: str, folder: Folder) -> list[int]:
        """Their samples; 0 where something is wrong."""
        return [self._lengths.get(file, 0) for file in self.files(split, name, folder)]

    def __len__(self) -> int:
        return len(self._lengths)
