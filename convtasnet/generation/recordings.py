"""Recordings as the published generators read them: the first channel, at its own precision."""

from __future__ import annotations

import numpy as np
import soundfile as sf
from scipy.signal import resample_poly

from convtasnet.audio import audio_info


def samples_at(path: str, sample_rate: int) -> int:
    """Samples of a recording.

    Raises:
        FileNotFoundError, ValueError: as ``audio.audio_info``; or its rate is not ``sample_rate``,
            in Hz.
    """
    info = audio_info(path)
    if info.sample_rate != sample_rate:
        raise ValueError(f"{info.sample_rate} Hz, expected {sample_rate} Hz")
    return info.n_samples


def first_channel(path: str, dtype: str, stop: int | None = None) -> tuple[np.ndarray, int]:
    """The first channel of a recording, and its rate in Hz.

    Args:
        path: of the file.
        dtype: "float32" or "float64".
        stop: samples to read at most; None for all.

    Raises:
        ValueError: it can't be decoded, or not to the end.
    """
    try:
        with sf.SoundFile(path) as file:
            count = file.frames if stop is None else min(stop, file.frames)
            wav = file.read(count, dtype=dtype, always_2d=True)[:, 0]
            rate = file.samplerate
    except sf.SoundFileError as error:
        raise ValueError(f"{path}: can't be decoded ({error})") from None
    if len(wav) < count:
        raise ValueError(f"{path}: truncated, {len(wav)} of {count} samples could be read")
    return wav, rate


def at_rate(wav: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """A signal (T,) at ``rate`` Hz, at the wanted rate; by scipy, as the generators resample.

    >>> at_rate(np.zeros(5, dtype=np.float32), 16000, 8000).shape
    (3,)
    """
    return wav if rate == wanted else resample_poly(wav, wanted, rate)
