"""Audio files in, audio files out.

**Stereo policy.** The model hears one channel. A file with several channels is averaged over
them, here and nowhere else, so that data sets, evaluation and the command line agree.

Files are read and written by libsndfile (``soundfile``): wav, FLAC, ogg and whatever else it knows.
The commonest kind of wav is read without it, which is faster. A path such as ``speech.pack/17`` is
that of a recording in a pack (``convtasnet.pack``).
"""

from __future__ import annotations

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
from convtasnet.sound import PathLike, Sound, absolute, open_sound

# Bits of the integer subtypes that are written, and the float one beside them.
_PCM_BITS = {"PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
SUBTYPES = (*_PCM_BITS, "FLOAT")
# Subtypes whose samples can be NaN or infinite.
FLOAT_SUBTYPES = ("FLOAT", "DOUBLE")
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
    with open_sound(path) as file:
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
    with open_sound(path) as file:
        count = file.frames - start if n_samples is None else n_samples
        _check_stretch(file, path, start, count)
        samples = np.empty(count, np.float32)
        _read_finite(file, path, start, samples)
    wav, rate = torch.from_numpy(samples), file.samplerate
    if sample_rate is None or sample_rate == rate:
        return wav, rate
    return resample(wav, rate, sample_rate), sample_rate


def read_audio_into(path: PathLike, out: np.ndarray, start: int = 0) -> int:
    """Read a stretch of a file to where it is wanted, which spares a copy.

    Args:
        path: the file.
        out: ``(T,)`` float32, contiguous.
        start: first sample.

    Returns:
        The file's rate in Hz.

    Raises:
        FileNotFoundError, ValueError: as ``read_audio``.
    """
    with open_sound(path) as file:
        _check_stretch(file, path, start, len(out))
        _read_finite(file, path, start, out)
        return file.samplerate


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
    target = Path(absolute(path))
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
    with open_sound(path) as file:
        for start in range(0, file.frames, block):
            samples = np.empty(min(block, file.frames - start), np.float32)
            _read(file, path, start, samples)
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
                f"{absolute(path)}: holds NaN or infinite samples, the first at {first}"
            )
        position += len(block)


def _info(file: Sound) -> AudioInfo:
    return AudioInfo(file.frames, file.samplerate, file.channels, file.subtype, file.format)


def _check_stretch(file: Sound, path: PathLike, start: int, count: int) -> None:
    if start < 0 or count < 0 or start + count > file.frames:
        raise ValueError(
            f"{absolute(path)}: samples {start} to {start + count} were asked for, the file has "
            f"{file.frames}"
        )


def _read_finite(file: Sound, path: PathLike, start: int, out: np.ndarray) -> None:
    """Fill ``out`` with samples from ``start`` on, none of them NaN or infinite."""
    _read(file, path, start, out)
    if file.subtype in FLOAT_SUBTYPES and not np.isfinite(out).all():
        raise ValueError(f"{absolute(path)}: holds NaN or infinite samples")


def _read(file: Sound, path: PathLike, start: int, out: np.ndarray) -> None:
    """Fill ``out`` with samples from ``start`` on, channels averaged."""
    try:
        count = file.read(start, out)
    except sf.SoundFileError as error:
        raise ValueError(f"{absolute(path)}: damaged, can't be decoded ({error})") from None
    if count < len(out):
        raise ValueError(
            f"{absolute(path)}: truncated, {count} of {len(out)} samples from sample "
            f"{start} could be read"
        )


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
