"""Data sets that are made for measurements: mixtures of noise, lists of them, packs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pack_data import pack

from convtasnet.audio import write_audio
from convtasnet.data.checks import read_headers
from convtasnet.data.manifest import Manifest
from convtasnet.data.wsj0_mix import layout

RATE = 8000


def make_libri2mix(root: Path, count: int) -> None:
    """A Libri2Mix of noise of 10 to 20 s, as long as LibriMix's mixtures."""
    rng = np.random.default_rng(0)
    folder = root / "Libri2Mix" / "wav8k" / "min" / "train-100"
    for i in range(count):
        name = f"{i % 50}-1-{i:04d}_{50 + i % 50}-1-{i:04d}.wav"
        write_mixture(folder, ("mix_clean", "s1", "s2"), name, RATE * rng.integers(10, 21), rng)


def make_wsj0_2mix(root: Path, count: int) -> None:
    """A wsj0-2mix of noise of 0.1 s."""
    rng = np.random.default_rng(0)
    folder = layout(root, 2, RATE, "min", "tr")
    for i in range(count):
        name = f"a{i % 50:02d}o{i:05d}_1.5_b{i % 50:02d}o{i:05d}_-1.5.wav"
        write_mixture(folder, ("mix", "s1", "s2"), name, RATE // 10, rng)


def write_mixture(
    folder: Path, kinds: Sequence[str], name: str, n_samples: int, rng: np.random.Generator
) -> None:
    """A mixture of two sources of noise: three files of one name in folders of these kinds."""
    sources = rng.uniform(-0.4, 0.4, (2, n_samples))
    for kind, wav in zip(kinds, [sources.sum(0), *sources], strict=True):
        write_audio(folder / kind / name, wav, RATE)


def list_mixtures(manifest: Manifest, file: Path) -> None:
    """A csv of the mixtures with absolute paths; its folder is made."""
    lengths = read_headers(manifest).n_samples.tolist()
    rows = [replace(row, length=n) for row, n in zip(manifest, lengths, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    Manifest(rows).to_csv(file, "absolute")


def pack_mixtures(kind: str, root: Path, out: Path) -> None:
    """The training set of ``data=KIND data.root=ROOT`` as a pack with its list."""
    words = [f"data={kind}", f"data.root='{root}'", "data.num_workers=0"]
    pack(argparse.Namespace(data=words, out=out, splits=["train"]))
