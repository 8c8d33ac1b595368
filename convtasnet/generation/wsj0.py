"""WSJ0's utterances: where they lie, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from convtasnet.audio import audio_info, read_audio
from convtasnet.data.checks import Problem, gather

RATE = 16000  # Hz, of WSJ0
TRAIN_SETS = ("si_tr_s",)
TEST_SETS = ("si_dt_05", "si_et_05")
# In the order in which they are taken where an utterance has several. wv2 is another microphone.
SUFFIXES = (".wav", ".flac", ".wv1", ".sph")
_CHUNK = 64


class Wsj0Corpus:
    """The audio files below a folder, found by the last three parts of their paths.

    So it does not matter whether the folder holds ``wsj0``, is ``wsj0``, or holds the disks of the
    corpus (``11-1.1/wsj0/si_tr_s/01t/01to030v.wv1``), nor which format an utterance is stored in.

    Args:
        root: the folder.

    Raises:
        FileNotFoundError: no such folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))
        if not self.root.is_dir():
            raise FileNotFoundError(f"{self.root}: no such folder")
        self._files: dict[str, str] = {}
        candidates = []
        for folder, _, names in os.walk(self.root, followlinks=True):
            for name in names:
                suffix = os.path.splitext(name)[1].lower()
                if suffix in SUFFIXES and name[0] != ".":
                    candidates.append((SUFFIXES.index(suffix), os.path.join(folder, name)))
        for _, path in sorted(candidates):
            self._files.setdefault(_key(path.replace(os.sep, "/")), path)

    def __len__(self) -> int:
        return len(self._files)

    def find(self, listed: str) -> str | None:
        """Absolute path of an utterance, or None: ``wsj0/si_tr_s/01t/01to030v.wav``."""
        return self._files.get(_key(listed))

    def by_speaker(self, sets: Sequence[str]) -> dict[str, list[str]]:
        """Paths, as lists have them, of each speaker's utterances in some of WSJ0's sets.

        Raises:
            FileNotFoundError: one of the sets isn't there.
        """
        speakers: dict[str, list[str]] = {}
        for name in sets:
            keys = [key for key in self._files if key.startswith(f"{name}/")]
            if not keys:
                raise FileNotFoundError(f"{self.root}: no utterances {name}/SPEAKER/NAME in it")
            for key in keys:
                speakers.setdefault(key.split("/")[1], []).append(f"wsj0/{key}.wav")
        return speakers


def _key(path: str) -> str:
    """``si_tr_s/01t/01to030v``, in small letters as some copies have capitals.

    >>> _key("11-1.1/WSJ0/SI_TR_S/01T/01TO030V.WV1")
    'si_tr_s/01t/01to030v'
    """
    return "/".join(PurePosixPath(path).with_suffix("").parts[-3:]).lower()


def check_utterances(
    corpus: Wsj0Corpus, user_of: Mapping[str, str], decode: bool = False
) -> tuple[dict[str, int], list[Problem]]:
    """Look for every utterance and at its header, or at all of it.

    Args:
        corpus: the files.
        user_of: path in a list -> name of a mixture that uses it, for messages.
        decode: read all samples, which takes minutes.

    Returns:
        Samples of each good utterance at 16 kHz, by its path in the list; and all problems:
        missing, unreadable (compressed SPHERE among them) or truncated files, another rate than
        16 kHz, more than one channel; of samples: damaged, silent or holding NaN.
    """
    found = {listed: corpus.find(listed) for listed in sorted(user_of)}
    owner = {path: user_of[listed] for listed, path in found.items() if path}
    lengths, problems = gather(owner, _length, _CHUNK, "Looking at WSJ0")
    if decode:
        good = {path: owner[path] for path in lengths}
        problems += gather(good, _check_samples, 1, "Decoding WSJ0")[1]
    absent = [listed for listed, path in found.items() if path is None]
    problems += [
        Problem(str(corpus.root / listed), user_of[listed], "no such utterance in any format", True)
        for listed in absent
    ]
    return {listed: lengths[path] for listed, path in found.items() if path in lengths}, problems


def _length(path: str) -> int:
    info = audio_info(path)
    if info.sample_rate != RATE:
        raise ValueError(f"{info.sample_rate} Hz, WSJ0 has {RATE} Hz")
    if info.channels != 1:
        raise ValueError(f"{info.channels} channels, expected one: the first microphone's")
    if info.format == "NIST" and info.n_samples < _promised(path):
        raise ValueError(f"truncated: {info.n_samples} samples of {_promised(path)}")
    return info.n_samples


def _check_samples(path: str) -> None:
    """An error where the samples cannot be decoded, hold NaN or are silent."""
    if not read_audio(path)[0].any():
        raise ValueError("silent")


def _promised(path: str) -> int:
    """Samples that a SPHERE header promises; 0 if it doesn't say. (libsndfile doesn't compare.)"""
    with open(path, "rb") as file:
        header = file.read(1024).split(b"end_head")[0].decode("ascii", "replace")
    for line in header.splitlines():
        fields = line.split()
        if fields[:2] == ["sample_count", "-i"] and fields[2:] and fields[2].isdigit():
            return int(fields[2])
    return 0
