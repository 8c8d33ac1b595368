"""Opened audio files, or what is wrong with them: packs, plain wav and libsndfile's formats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import RawIOBase

import numpy as np
import soundfile as sf

from convtasnet.pack import PackedSound, address, file_of, open_packed
from convtasnet.plain_wav import PlainWav
from convtasnet.wav_header import missing_bytes

PathLike = str | os.PathLike[str]

# What libsndfile gives for a FLAC file whose header has no length.
_UNKNOWN_FRAMES = 1 << 60


def absolute(path: PathLike) -> str:
    """The path as messages name it."""
    return os.path.abspath(os.fspath(path))


class SoundFile:
    """A file opened by libsndfile, read as ``PlainWav`` is."""

    def __init__(self, file: sf.SoundFile) -> None:
        self._file = file
        self.frames, self.samplerate, self.channels = file.frames, file.samplerate, file.channels
        self.subtype, self.format = file.subtype, file.format

    def read(self, start: int, out: np.ndarray) -> int:
        """Fill ``out`` (T,) float32 from sample ``start`` on, channels averaged; how many it is."""
        if start != self._file.tell():
            self._file.seek(start)
        if self.channels == 1:
            return len(self._file.read(dtype="float32", out=out))
        samples = self._file.read(len(out), dtype="float32")
        samples.mean(1, out=out[: len(samples)])
        return len(samples)


Sound = SoundFile | PlainWav | PackedSound


@contextmanager
def open_sound(path: PathLike) -> Iterator[Sound]:
    """An opened file that has samples.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, truncated or no audio; the message says which, and a way out.
    """
    name = file_of(path)
    try:
        raw = open(name, "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError:  # whose reason is told below
        raw = None
    with nullcontext() if raw is None else raw:
        quick = None if raw is None else _quick(raw, path)
        if quick is not None:
            yield quick
            return
    with _open_by_libsndfile(name) as file:
        yield SoundFile(file)


def _quick(raw: RawIOBase, path: PathLike) -> PackedSound | PlainWav | None:
    """A recording of a pack or a plain wav file; None if it is neither."""
    packed = address(path)
    if packed is not None:
        return open_packed(raw, *packed)
    try:
        return PlainWav(raw)
    except ValueError:
        return None


@contextmanager
def _open_by_libsndfile(path: PathLike) -> Iterator[sf.SoundFile]:
    name = absolute(path)
    try:
        size = os.stat(name).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{name}: no such file") from None
    if size == 0:
        raise ValueError(f"{name}: the file is empty (0 bytes)")
    try:
        file = sf.SoundFile(name)
    # soundfile takes .raw for headerless and asks for a rate by TypeError.
    except (sf.SoundFileError, TypeError) as error:
        raise ValueError(f"{name}: not readable as audio ({_reason(name, error)})") from None
    with file:
        missing = missing_bytes(name, size)
        if missing:
            raise ValueError(
                f"{name}: truncated, {missing} bytes of samples fewer than its header says"
            )
        if file.frames == 0:
            raise ValueError(f"{name}: a header and no samples")
        if file.frames > _UNKNOWN_FRAMES:
            raise ValueError(
                f"{name}: its header doesn't say how long it is (written into a pipe); "
                "convert it to wav, or encode it again from a file"
            )
        yield file


def _reason(name: str, error: Exception) -> str:
    """The library's message, with a way out for the one format of this field that it can't read."""
    reason = str(error).split(": ", 1)[-1].strip()
    if os.path.isdir(name):
        return "it is a folder"
    if not os.access(name, os.R_OK):
        return "no permission to read it"
    with open(name, "rb") as file:
        if file.read(7) == b"NIST_1A":
            reason += "; compressed NIST SPHERE: decode it with sph2pipe first"
    return reason
