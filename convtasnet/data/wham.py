"""WHAM!, wsj0-2mix with noise, as its published scripts write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from convtasnet.data.manifest import Manifest
from convtasnet.data.names import wsj0_speakers
from convtasnet.data.noisy import NoisyMixtureData
from convtasnet.data.tree import mixtures_in
from convtasnet.data.wsj0_mix import FOLDERS


class WhamData(NoisyMixtureData):
    """``wav{8k,16k}/{min,max}/{tr,cv,tt}/{mix_clean,mix_both,mix_single,s1,s2,noise}``.

    Its two talkers are those of wsj0-2mix, under the same names. Arguments: see
    ``NoisyMixtureData``; the root holds ``wav8k`` or ``wav16k``.
    """

    def split_name(self, split: str) -> str:
        """``tr``, ``cv`` or ``tt``."""
        return FOLDERS[split]

    def list_mixtures(self, folder: Path, kinds: Sequence[str]) -> Manifest:
        """The mixtures of the split's folder."""
        return mixtures_in(folder, kinds, wsj0_speakers)
