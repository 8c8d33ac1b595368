"""The embedded default data: synthetic voices, made on first use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from convtasnet.data.demo_corpus import DEMO_SPEAKER, DemoSpec, make_demo_corpus
from convtasnet.data.file_cache import cache_folder
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import Wsj0MixData


class DemoData(Wsj0MixData):
    """Mixtures of synthetic English voices, spoken by eSpeak NG and laid out like WSJ0-mix.

    They are made once, in a folder whose name has all arguments that matter; see
    ``demo_corpus.make_demo_corpus``. Training, validation and test share no timbre and no
    utterance. A first try of the program, not a benchmark: results say nothing of human speech.

    Args:
        root: folder of all demo corpora; default: ``demo`` in the user's cache folder.
        n_train: mixtures for training, of about 4 s.
        n_valid: for validation.
        n_test: for test.
        **kwargs: see ``MixtureData``; ``seed`` is also that of the sentences and mixtures.

    Raises:
        ValueError: an argument out of its range; when the corpus is to be made: the package
            ``espeakng-loader`` is missing.
    """

    speaker_pattern = DEMO_SPEAKER

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        n_train: int = 1000,
        n_valid: int = 100,
        n_test: int = 100,
        **kwargs: Any,
    ) -> None:
        parent = cache_folder() / "demo" if root is None else Path(root).expanduser()
        super().__init__(parent, **kwargs)
        self.parent = self.root
        self.spec = DemoSpec(self.n_src, self.sample_rate, n_train, n_valid, n_test, self.seed)
        self.root = self.parent / self.spec.key

    def rows(self, split: str) -> Manifest:
        """Mixtures of the split; the corpus is made if it isn't there."""
        make_demo_corpus(self.parent, self.spec)
        return super().rows(split)
