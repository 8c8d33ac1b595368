"""WHAM!'s lists: which utterances are mixed with which stretch of noise, and how loud."""

from __future__ import annotations

import csv
import os
import pickle
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np


@dataclass(frozen=True)
class Scales:
    """Factors of a mixture at one rate, in one mode.

    Args:
        utterances: of each utterance of WSJ0, which give wsj0-2mix.
        speech: of the talkers of wsj0-2mix.
        noise: of the noise.
    """

    utterances: tuple[float, ...]
    speech: float
    noise: float


@dataclass(frozen=True)
class ListedMixture:
    """One mixture.

    Args:
        name: of its files, without ``.wav``.
        start: sample at 16 kHz at which the talkers begin in the noise.
        scales: factors by (rate in Hz, mode).
    """

    name: str
    start: int
    scales: dict[tuple[int, str], Scales]


def read_mixtures(path: Path, folders: Sequence[tuple[int, str]]) -> list[ListedMixture]:
    """Read ``scaling_{tr,cv,tt}.npz``, which come with the noise.

    Args:
        path: of the file.
        folders: rates in Hz and modes that are wanted.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it doesn't hold what it should.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; it comes with the noise (wham_noise.zip)")
    wanted = ["utterance_id", "speech_start_sample_16k"]
    kinds = ("wsjmix", "wham_speech", "wham_noise")
    wanted += [_key(kind, *folder) for kind in kinds for folder in folders]
    arrays = _read_arrays(path, wanted)
    names = [str(name).removesuffix(".wav") for name in arrays["utterance_id"].tolist()]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: a mixture is in it twice")
    wrong = [key for key in wanted if len(arrays[key]) != len(names)]
    if wrong:
        raise ValueError(f"{path}: {wrong} don't have the length of utterance_id, {len(names)}")
    starts = arrays["speech_start_sample_16k"].astype(np.int64).reshape(-1).tolist()
    return [
        ListedMixture(name, start, {folder: _scales(arrays, i, folder) for folder in folders})
        for i, (name, start) in enumerate(zip(names, starts, strict=True))
    ]


def read_utterances(path: Path) -> dict[str, tuple[str, str]]:
    """Read ``mix_2_spk_filenames_{tr,cv,tt}.csv``: name of a mixture -> its two utterances.

    Raises:
        FileNotFoundError: no such file.
        ValueError: columns are missing.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such list; it is in data/ of wham_scripts.tar.gz")
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        missing = {"output_filename", "s1_path", "s2_path"} - set(rows.fieldnames or [])
        if missing:
            raise ValueError(f"{path}: no columns {sorted(missing)}, found {rows.fieldnames}")
        return {
            row["output_filename"].removesuffix(".wav"): (row["s1_path"], row["s2_path"])
            for row in rows
        }


def _key(kind: str, rate: int, mode: str) -> str:
    return f"scaling_{kind}_{rate // 1000}k_{mode}"


def _scales(arrays: dict[str, np.ndarray], i: int, folder: tuple[int, str]) -> Scales:
    utterances = np.ravel(arrays[_key("wsjmix", *folder)][i]).astype(float)
    keys = (_key(f"wham_{kind}", *folder) for kind in ("speech", "noise"))
    speech, noise = (float(np.ravel(arrays[key][i])[0]) for key in keys)
    return Scales(tuple(utterances.tolist()), speech, noise)


def _read_arrays(path: Path, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            there = {os.path.splitext(name)[0]: name for name in archive.namelist()}
            missing = [key for key in wanted if key not in there]
            if missing:
                raise ValueError(f"{path}: holds no {missing}; found are {sorted(there)}")
            arrays = {}
            for key in wanted:
                with archive.open(there[key]) as stream:
                    arrays[key] = _read_array(stream)
            return arrays
    except (zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise ValueError(f"{path}: not an archive of arrays ({error})") from None


def _read_array(stream: IO[bytes]) -> np.ndarray:
    """An array of an npz file; strings are stored as objects, whose pickle may only hold arrays."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        return np.asarray(_ArrayUnpickler(stream).load()).reshape(shape)
    array = np.frombuffer(stream.read(), dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy's arrays and numbers and nothing else: a pickle can run any code."""

    def find_class(self, module: str, name: str) -> Any:
        home = module.split(".")[0]
        if home == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "scalar"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
