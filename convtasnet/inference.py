"""Separate recordings of any length with a trained model."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from convtasnet.losses import best_permutation
from convtasnet.resampling import resample

log = logging.getLogger(__name__)

CHUNK_SECONDS = 48.0  # longer recordings are separated in pieces of this length
MAX_SAMPLE_RATE = 10_000_000
OVERLAP_SECONDS = 8.0  # at least shared by neighbors: tells the speakers apart

Wav = TypeVar("Wav", Tensor, np.ndarray)


def separate(model: nn.Module, wav: Wav, sample_rate: int) -> Wav:
    """Separate one recording.

    Up to 48 s the result is one pass of the model. Longer recordings go through it in pieces of
    48 s that share 8 s or more: each piece's voices are put into the order that continues the
    previous piece best there, and faded in halfway. So the memory beyond the input and the output
    does not grow with the duration, and a voice keeps its place. Causal models are run in pieces
    too, each without the state of the one before.

    Args:
        model: a separator, called as ``model(mixture)`` with attributes ``sample_rate`` and
            ``n_src``. It is run where its weights are, in evaluation mode and without gradients;
            its training flags are left as they were.
        wav: (T,) or (1, T), T >= 1, numpy array or tensor on any device, any floating dtype,
            finite. Computed in float32.
        sample_rate: of ``wav`` in Hz, any: it is resampled to the model's rate and back.

    Returns:
        (n_src, T) float32 at ``sample_rate``, of the type and on the device of ``wav``. The
        scale is the model's own: see :func:`rescale` for files.

    Raises:
        ValueError: another shape (average the channels of stereo first), integer samples (divide
            int16 by 32768 first), no samples, NaN or infinite ones, or a rate below 1 Hz.

    Example:
        >>> from convtasnet import ConvTasNet
        >>> model = ConvTasNet(n_filters=16, bn_chan=8, hid_chan=16, skip_chan=8, n_blocks=2)
        >>> separate(model, np.zeros(44100), sample_rate=44100).shape
        (2, 44100)
    """
    mixture = _checked_mixture(wav, sample_rate)
    rate = int(model.sample_rate)  # type: ignore[arg-type]
    with evaluating(model):
        estimates = _separate_in_pieces(
            model,
            resample(mixture, sample_rate, rate),
            chunk=round(CHUNK_SECONDS * rate),
            overlap=round(OVERLAP_SECONDS * rate),
        )
    estimates = resample(estimates, rate, sample_rate, n_samples=mixture.shape[-1])
    return estimates if isinstance(wav, Tensor) else estimates.numpy()


def rescale(estimates: Wav, mixture: Wav) -> Wav:
    """Give the estimates the level that they have in the mixture, and keep them in full scale.

    A model trained on SI-SDR leaves the scale (and the sign) of its outputs open. Each is scaled
    by its projection onto the mixture, ``g_i = <x, s_i> / <s_i, s_i>``: the least-squares fit of
    that output alone to the mixture. If any of them then exceeds full scale (1.0), all are
    attenuated by one factor, with a warning, so that nothing clips and their balance stays. Zeros
    stay zeros.

    Args:
        estimates: (n_src, T).
        mixture: (T,).

    Returns:
        (n_src, T), type and dtype of ``estimates``, within [-1, 1].

    Raises:
        ValueError: the shapes do not fit.

    Example:
        >>> voices = torch.eye(2).repeat(1, 100)
        >>> rescale(voices * torch.tensor([[10.0], [-3.0]]), 0.5 * voices.sum(0)).abs().max()
        tensor(0.5000)
    """
    if estimates.ndim != 2 or mixture.shape != estimates.shape[-1:]:
        raise ValueError(
            f"estimates {tuple(estimates.shape)} and mixture {tuple(mixture.shape)} must be "
            "(n_src, T) and (T,)"
        )
    if isinstance(estimates, np.ndarray):
        both = (torch.from_numpy(np.ascontiguousarray(x)) for x in (estimates, mixture))
        return rescale(*both).numpy()
    # In place from here on: an hour of two voices at 44.1 kHz is 1.3 GB.
    scaled = estimates.detach().clone()
    for voice in scaled:
        voice *= _level_gain(voice, mixture)
    peak = max(-float(scaled.amin()), float(scaled.amax()))
    if peak <= 1:
        return scaled
    log.warning("outputs reach %.2f of full scale: all attenuated by %.2f", peak, 1 / peak)
    return scaled.div_(peak).clamp_(-1, 1)  # the division may round up to just above 1


def _level_gain(voice: Tensor, mixture: Tensor) -> float:
    """Least-squares gain of (T,) towards the mixture (T,); summed in float64 piece by piece."""
    energy = projection = 0.0
    for part, mix in zip(voice.split(1 << 20), mixture.split(1 << 20), strict=True):
        part, mix = part.double(), mix.to(part.device).double()
        energy += float(part @ part)
        projection += float(part @ mix)
    return projection / energy if energy > 0 else 1.0


def _separate_in_pieces(model: nn.Module, mixture: Tensor, chunk: int, overlap: int) -> Tensor:
    """(T,) -> (n_src, T), at the model's rate, on the device of ``mixture``."""
    length = mixture.shape[-1]
    output = mixture.new_empty(int(model.n_src), length)  # type: ignore[arg-type]
    end = 0
    for start in chunk_starts(length, chunk, overlap):
        piece = _run(model, mixture[start : start + chunk])
        shared = end - start
        if shared > 0:
            piece = piece[_continuation(output[:, start:end], piece[:, :shared])]
            _fade_in(output[:, start:end], piece[:, :shared], overlap // 2)
        output[:, end : start + chunk] = piece[:, shared:]
        end = start + piece.shape[-1]
    return output


def chunk_starts(length: int, chunk: int, overlap: int) -> list[int]:
    """First samples of the pieces; all are ``chunk`` long, the last one ends with the recording.

    Example:
        >>> chunk_starts(11, 4, 1), chunk_starts(4, 4, 1), chunk_starts(5, 4, 1)
        ([0, 3, 6, 7], [0], [0, 1])
    """
    if length <= chunk:
        return [0]
    return [*range(0, length - chunk, chunk - overlap), length - chunk]


def _run(model: nn.Module, mixture: Tensor) -> Tensor:
    """One pass, (T,) -> (n_src, T), computed on the model's device."""
    weight = next(model.parameters(), mixture)
    with torch.inference_mode():
        estimates = model(mixture.to(weight.device, weight.dtype))
    return estimates.to(mixture.device, mixture.dtype)


def _continuation(before: Tensor, after: Tensor) -> list[int]:
    """Order of the new piece's voices that continues the old one's, (n_src, T) both.

    The inner products over the shared stretch weigh each voice by its energy there, so the faint
    remains of a voice that pauses do not decide; all zero, they keep the order.
    """
    before, after = (x - x.mean(-1, keepdim=True) for x in (before, after))
    return best_permutation((after @ before.T)[None])[0].tolist()


def _fade_in(before: Tensor, after: Tensor, length: int) -> None:
    """Turn ``before`` into ``after``, (n_src, T), in place, over ``length`` samples halfway.

    Halfway, because both pieces lack context at their ends.
    """
    start = (before.shape[-1] - length) // 2
    ramp = torch.linspace(0, 1, length + 2, device=before.device)[1:-1]
    middle = slice(start, start + length)
    before[:, middle] += ramp * (after[:, middle] - before[:, middle])
    before[:, start + length :] = after[:, start + length :]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; every module's own training flag comes back after it."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


def _checked_mixture(wav: Tensor | np.ndarray, sample_rate: int) -> Tensor:
    """(T,) float32 tensor, or a ValueError."""
    if not isinstance(wav, Tensor | np.ndarray):
        raise ValueError(f"wav is a {type(wav).__name__}: a numpy array or a tensor is needed")
    if wav.ndim not in (1, 2) or (wav.ndim == 2 and wav.shape[0] != 1):
        raise ValueError(
            f"wav has shape {tuple(wav.shape)}: (T,) or (1, T) is needed; average stereo first"
        )
    if isinstance(wav, Tensor):
        floating = wav.is_floating_point()
    else:
        floating = np.issubdtype(wav.dtype, np.floating)
    if not floating:
        raise ValueError(
            f"wav has dtype {wav.dtype}: floating-point samples are needed; divide int16 by 32768"
        )
    if wav.shape[-1] == 0:
        raise ValueError(f"wav has shape {tuple(wav.shape)}: no samples")
    if isinstance(sample_rate, bool) or sample_rate not in range(1, MAX_SAMPLE_RATE + 1):
        raise ValueError(f"sample_rate={sample_rate} must be a positive whole number of Hz")
    if isinstance(wav, Tensor):
        mixture = wav.detach().float().reshape(-1)
    else:
        mixture = torch.from_numpy(np.require(wav, np.float32, ["C", "W"])).reshape(-1)
    if not bool(mixture.isfinite().all()):
        raise ValueError("wav holds NaN or infinite samples")
    return mixture
