"""Tiny trees of LibriMix and WHAM!: talkers, noise and their sums, of a second at most."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from tiny_corpus import voice

from convtasnet.audio import write_audio

RATE = 8000  # of voice
LIBRIMIX = {"train-100": 4, "dev": 2, "test": 2}
WHAM = {"tr": 4, "cv": 2, "tt": 2}
MIXTURES = ("mix_clean", "mix_both", "mix_single")


def write_tree(
    base: Path,
    splits: dict[str, int],
    n_talkers: int = 2,
    rate: int = RATE,
    mode: str = "min",
    mixtures: Sequence[str] = MIXTURES,
    subtype: str = "PCM_16",
) -> Path:
    """Write ``BASE/wav8k/min/SPLIT/{mix_clean,…,s1,…,noise}/SPLIT_0.wav, …``.

    Args:
        base: such as ``Libri2Mix``.
        splits: number of mixtures of each split.
        n_talkers: the folders ``s1``, ``s2``, ….
        rate: that the files say they have, in Hz; a multiple of 8000.
        mode: "min" or "max".
        mixtures: as the generator's ``--types``; without noise there is no folder of it.
        subtype: of the wav files.

    Returns:
        ``BASE/wav8k/min``, say.
    """
    folder = base / f"wav{rate // 1000}k" / mode
    seed = 0
    for split, count in splits.items():
        for index in range(count):
            seconds = (0.6 + 0.1 * index) * rate / RATE
            talkers = [voice(seed + k, seconds) / 8 for k in range(n_talkers)]
            noise = voice(seed + n_talkers, seconds) / 16
            seed += n_talkers + 1
            files = {f"s{k + 1}": wav for k, wav in enumerate(talkers)}
            speech = torch.stack(talkers).sum(0)
            sums = {
                "mix_clean": speech,
                "mix_both": speech + noise,
                "mix_single": talkers[0] + noise,
            }
            files |= {kind: sums[kind] for kind in mixtures}
            if set(mixtures) != {"mix_clean"}:
                files["noise"] = noise
            for kind, wav in files.items():
                write_audio(folder / split / kind / f"{split}_{index}.wav", wav, rate, subtype)
    return folder


def write_metadata(folder: Path, machine: str, mixtures: Sequence[str] = MIXTURES) -> None:
    """Write the csv files of LibriMix's generator for what is in ``.../wav8k/min``.

    Args:
        folder: the result of ``write_tree``.
        machine: what that folder was called where the csv files were made, with a separator.
        mixtures: of these kinds.
    """
    slash = "\\" if "\\" in machine else "/"
    for split in [path.name for path in folder.iterdir() if path.name != "metadata"]:
        talkers = sorted(path.name for path in (folder / split).glob("s[0-9]"))
        for mixture in mixtures:
            own = {f"source_{kind[1:]}_path": kind for kind in talkers}
            if mixture == "mix_single":
                own = {"source_1_path": "s1"}
            columns = {"mixture_path": mixture, **own}
            if mixture != "mix_clean":
                columns["noise_path"] = "noise"
            file = folder / "metadata" / f"mixture_{split}_{mixture}.csv"
            file.parent.mkdir(exist_ok=True)
            with file.open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(["mixture_ID", *columns, "length"])
                for wav in sorted((folder / split / mixture).iterdir()):
                    n_samples = (wav.stat().st_size - 44) // 2
                    paths = [slash.join([machine, split, k, wav.name]) for k in columns.values()]
                    writer.writerow([wav.stem, *paths, n_samples])
