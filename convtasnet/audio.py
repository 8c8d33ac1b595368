"""Audio files in, audio files out.

**Stereo policy.** The model hears one channel. A file with several channels is averaged over
them, here and nowhere else, so that data sets, evaluation and the command line agree.

Files are read and written by libsndfile (``soundfile``): wav, FLAC, ogg and whatever else it knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile as sf
import torch
from torch import Tensor

from convtasnet.files import replacing
from convtasnet.resampling import resample
from convtasnet.wav_header import missing_bytes

PathLike = str | os.PathLike[str]

# Bits of the integer subtypes that are written, and the float one beside them.
_PCM_BITS = {"PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
SUBTYPES = (*_PCM_BITS, "FLOAT")
# Subtypes whose samples can be NaN or infinite.
FLOAT_SUBTYPES = ("FLOAT", "DOUBLE")
# What libsndfile gives for a FLAC file whose header has no length.
_UNKNOWN_FRAMES = 1 << 60
BLOCK = 1 << 18
_MAX_WAV_BYTES = 2**32 - 2**16


@dataclass(frozen=True)
class AudioInfo:
    """What a file's header says.

    Args:
        n_samples: length in samples of one channel.
        sample_rate: in Hz.
        channels: number of channels (``read_audio`` averages them).
        subtype: libsndfile's name of the sample format, such as ``PCM_16`` or ``FLOAT``.
        format: libsndfile's name of the container, such as ``WAV`` or ``FLAC``.
    """

    n_samples: int
    sample_rate: int
    channels: int
    subtype: str = "PCM_16"
    format: str = "WAV"


def audio_info(path: PathLike) -> AudioInfo:
    """Length, rate and channels of an audio file, from its header.

    Raises:
        FileNotFoundError: there is no such file; the message has its absolute path.
        ValueError: the file is empty, has a header and no samples, is shorter than its header
            says (wav), or isn't audio that libsndfile reads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", torch.zeros(80), 8000)
    ...     info = audio_info(f"{folder}/a.wav")
    >>> info.n_samples, info.sample_rate, info.channels
    (80, 8000, 1)
    """
    with _open(path) as file:
        return _info(file)


def read_audio(
    path: PathLike,
    sample_rate: int | None = None,
    start: int = 0,
    n_samples: int | None = None,
) -> tuple[Tensor, int]:
    """Read a file, or a stretch of it, as one channel.

    Only the stretch is decoded. Channels are averaged (see the top of this module).

    Args:
        path: the file.
        sample_rate: resample to this rate in Hz; None keeps the file's own.
        start: first sample, counted at the file's own rate.
        n_samples: how many, counted at the file's own rate; None reads to the end.

    Returns:
        float32 tensor ``(T,)`` and its rate in Hz; ``T`` is ``n_samples`` (at another
        ``sample_rate``: times the ratio of the rates, rounded up).

    Raises:
        FileNotFoundError, ValueError: as ``audio_info``; and ValueError if the stretch leaves the
            file, the file ends before its header says, or a sample is NaN or infinite.
    """
    with _open(path) as file:
        info = _info(file)
        count = info.n_samples - start if n_samples is None else n_samples
        if start < 0 or count < 0 or start + count > info.n_samples:
            raise ValueError(
                f"{_absolute(path)}: samples {start} to {start + count} were asked for, "
                f"the file has {info.n_samples}"
            )
        samples = _read(file, path, start, count)
    if info.subtype in FLOAT_SUBTYPES and not np.isfinite(samples).all():
        raise ValueError(f"{_absolute(path)}: holds NaN or infinite samples")
    wav = torch.from_numpy(samples)
    if sample_rate is None or sample_rate == info.sample_rate:
        return wav, info.sample_rate
    return resample(wav, info.sample_rate, sample_rate), sample_rate


def write_audio(
    path: PathLike, wav: Tensor | np.ndarray, sample_rate: int, subtype: str = "PCM_16"
) -> None:
    """Write one channel, whole or not at all: a temporary file beside it is renamed.

    The format follows the suffix (``.wav``, ``.flac``); missing folders are made. Integer samples
    are ``round(x * 2^(bits-1))``, so that what ``read_audio`` gave is written back bit by bit.

    Args:
        path: the file.
        wav: ``(T,)``, in [-1, 1] for integer formats.
        sample_rate: in Hz.
        subtype: ``PCM_16``, ``PCM_24``, ``PCM_32`` or ``FLOAT``.

    Raises:
        ValueError: wrong shape, empty, NaN or infinite samples, samples beyond [-1, 1] in an
            integer format (nothing clips silently), or an unknown format.
    """
    samples = np.asarray(wav.detach().cpu() if isinstance(wav, Tensor) else wav)
    with audio_writer(path, sample_rate, samples.size, subtype) as write:
        write(samples)


@contextmanager
def audio_writer(
    path: PathLike, sample_rate: int, n_samples: int, subtype: str = "PCM_16"
) -> Iterator[Callable[[np.ndarray], None]]:
    """As ``write_audio``, block by block: gives a function that takes the next samples (k,).

    Args:
        path: the file.
        sample_rate: in Hz.
        n_samples: how many there will be: from 4 GiB on, a wav file needs another header (RF64).
        subtype: as for ``write_audio``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with audio_writer(f"{folder}/a.wav", 8000, 80) as write:
    ...         write(np.zeros(50))
    ...         write(np.zeros(30))
    ...     audio_info(f"{folder}/a.wav").n_samples
    80
    """
    target = Path(_absolute(path))
    file_format = target.suffix.lstrip(".").upper()
    if subtype not in SUBTYPES:
        raise ValueError(f"{target}: subtype is '{subtype}', expected one of {SUBTYPES}")
    if not sf.check_format(file_format, subtype):
        raise ValueError(f"{target}: can't write subtype {subtype} with suffix '{target.suffix}'")
    if sample_rate < 1:
        raise ValueError(f"{target}: sample_rate is {sample_rate}, expected at least 1 Hz")
    if file_format == "WAV" and n_samples * _PCM_BITS.get(subtype, 32) // 8 > _MAX_WAV_BYTES:
        file_format = "RF64"
    with (
        replacing(target) as temporary,
        sf.SoundFile(temporary, "w", sample_rate, 1, subtype, format=file_format) as file,
    ):
        yield lambda samples: file.write(_samples_to_write(target, samples, subtype))


def iter_blocks(path: PathLike, block: int = BLOCK) -> Iterator[np.ndarray]:
    """Decode a whole file block by block, in bounded memory.

    Yields:
        float32 arrays ``(block,)``, the last one shorter; channels averaged.

    Raises:
        FileNotFoundError, ValueError: as ``read_audio``, NaN not looked for.
    """
    with _open(path) as file:
        remaining = _info(file).n_samples
        while remaining:
            samples = _read(file, path, None, min(block, remaining))
            remaining -= len(samples)
            yield samples


def check_samples(path: PathLike) -> None:
    """Decode a file to its end, in bounded memory.

    Raises:
        FileNotFoundError, ValueError: as ``audio_info``; and ValueError if the file ends early or
            holds NaN or infinite samples.
    """
    position = 0
    for block in iter_blocks(path):
        bad = np.flatnonzero(~np.isfinite(block))
        if bad.size:
            first = position + int(bad[0])
            raise ValueError(
                f"{_absolute(path)}: holds NaN or infinite samples, the first at {first}"
            )
        position += len(block)


def _absolute(path: PathLike) -> str:
    return os.path.abspath(os.fspath(path))


@contextmanager
def _open(path: PathLike) -> Iterator[sf.SoundFile]:
    """An opened file that has samples, or an error that says what is wrong with it."""
    name = _absolute(path)
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


def _info(file: sf.SoundFile) -> AudioInfo:
    return AudioInfo(file.frames, file.samplerate, file.channels, file.subtype, file.format)


def _read(file: sf.SoundFile, path: PathLike, start: int | None, count: int) -> np.ndarray:
    """``count`` samples from ``start`` (None: from where the file stands), channels averaged."""
    try:
        if start is not None:
            file.seek(start)
        samples = file.read(count, dtype="float32", always_2d=True)
    except sf.SoundFileError as error:
        raise ValueError(f"{_absolute(path)}: damaged, can't be decoded ({error})") from None
    if len(samples) < count:
        raise ValueError(
            f"{_absolute(path)}: truncated, {len(samples)} of {count} samples from sample "
            f"{start or 0} could be read"
        )
    return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1)


def _samples_to_write(target: Path, array: np.ndarray, subtype: str) -> np.ndarray:
    """Checked samples, as integers for the integer formats."""
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{target}: shape is {tuple(array.shape)}, expected (T,) with T > 0")
    if not np.isfinite(array).all():
        raise ValueError(f"{target}: NaN or infinite samples can't be written")
    if subtype == "FLOAT":
        return array.astype(np.float32)
    peak = float(np.abs(array).max())
    if peak > 1:
        raise ValueError(
            f"{target}: samples reach {peak:.4g}, {subtype} holds [-1, 1]: scale them down or "
            "write subtype FLOAT"
        )
    bits = _PCM_BITS[subtype]
    full = 2 ** (bits - 1)
    integers = np.clip(np.rint(array.astype(np.float64) * full), -full, full - 1)
    if bits == 16:
        return integers.astype(np.int16)
    # libsndfile takes the upper bits of 32.
    return integers.astype(np.int64).astype(np.int32) << (32 - bits)
