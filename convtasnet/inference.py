"""Separate recordings of any length with a trained model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from convtasnet.audio import BLOCK
from convtasnet.levels import Levels
from convtasnet.model import ConvTasNet
from convtasnet.pieces import PieceSeparator, chunk_samples
from convtasnet.resampling import Resampler
from convtasnet.streaming import StreamingSeparator

MAX_SAMPLE_RATE = 10_000_000

Wav = TypeVar("Wav", Tensor, np.ndarray)


class Separation(Protocol):
    """A separation under way: mixture (k,) in, all voices (n_src, m) that are final out."""

    def push(self, mixture: Tensor, /) -> Tensor:
        """Take a part of the mixture."""

    def flush(self) -> Tensor:
        """Give the rest."""


def separate(model: nn.Module, wav: Wav, sample_rate: int) -> Wav:
    """Separate one recording.

    Up to 48 s the result is one pass of the model. Longer recordings go through causal models as a
    stream, which equals one pass, and through others in pieces of at most 48 s that share a sixth
    of it or more, see :class:`convtasnet.pieces.PieceSeparator`. So the memory beyond the input and
    the output does not grow with the duration, and a voice keeps its place.

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
        ValueError: no such model; another shape (average the channels of stereo first), integer
            samples (divide int16 by 32768 first), no samples, NaN or infinite ones, or a rate below
            1 Hz.

    Example:
        >>> from convtasnet import ConvTasNet
        >>> model = ConvTasNet(n_filters=16, bn_chan=8, hid_chan=16, skip_chan=8, n_blocks=2)
        >>> separate(model, np.zeros(44100), sample_rate=44100).shape
        (2, 44100)
    """
    _check_model(model)
    mixture = _checked_mixture(wav, sample_rate)
    sample_rate = int(sample_rate)  # 44100.0 is whole, too
    length = mixture.shape[-1]
    output = mixture.new_empty(int(model.n_src), length)  # type: ignore[arg-type]
    end = 0
    for voices in separated(model, mixture.split(BLOCK), sample_rate, length):
        output[:, end : end + voices.shape[1]] = voices
        end += voices.shape[1]
    return output if isinstance(wav, Tensor) else output.numpy()


def separated(
    model: nn.Module, mixture: Iterable[Tensor], sample_rate: int, length: int
) -> Iterator[Tensor]:
    """Separate a recording that comes in blocks, in bounded memory.

    Args:
        model: as for :func:`separate`.
        mixture: float32 blocks (k,), ``length`` samples in all.
        sample_rate: of the mixture in Hz.
        length: samples of the mixture, at least 1.

    Yields:
        Blocks (n_src, m) float32 at ``sample_rate``, ``length`` samples in all.
    """
    rate = int(model.sample_rate)  # type: ignore[arg-type]
    down, up = Resampler(sample_rate, rate), Resampler(rate, sample_rate)
    with evaluating(model):
        separation = start_separation(model, -(-length * rate // sample_rate))
        missing = length
        for voices in _through(mixture, down, separation, up):
            # Both ways are rounded up: there may be some samples more than there were.
            block = voices[:, :missing]
            missing -= block.shape[1]
            yield block
    if missing:
        yield voices.new_zeros(voices.shape[0], missing)


def start_separation(model: nn.Module, length: int) -> Separation:
    """How a model separates ``length`` samples of its rate: the one place that decides it."""
    chunk = chunk_samples(model, length)
    if length > chunk and isinstance(model, ConvTasNet) and model.causal:
        return _Stream(model)
    return PieceSeparator(model, chunk)


class _Stream:
    """A stream whose samples have the type and the device of the mixture."""

    def __init__(self, model: ConvTasNet) -> None:
        self._dtype = model.separator.bottleneck.weight.dtype
        if self._dtype not in (torch.float32, torch.float64):  # streams have no others
            model, self._dtype = copy.deepcopy(model).float(), torch.float32
        self._stream = StreamingSeparator(model)
        self._like = torch.empty(0)

    def push(self, mixture: Tensor) -> Tensor:
        self._like = mixture[:0]
        return self._stream.push(mixture.to(self._dtype)).to(mixture)

    def flush(self) -> Tensor:
        return self._stream.flush().to(self._like)


def _through(
    mixture: Iterable[Tensor], down: Resampler, separation: Separation, up: Resampler
) -> Iterator[Tensor]:
    for block in mixture:
        yield up.push(separation.push(down.push(block)))
    yield up.push(separation.push(down.push(block[:0], end=True)))
    yield up.push(separation.flush(), end=True)


def rescale(estimates: Wav, mixture: Wav) -> Wav:
    """Give the estimates the level that they have in the mixture, and keep them in full scale.

    As files are written by default, see :meth:`convtasnet.levels.Levels.gains`: each output is
    scaled by its least-squares fit to the mixture, ``g_i = <x, s_i> / <s_i, s_i>``. If any of them
    then exceeds full scale (1.0), all are attenuated by one factor, with a warning, so that nothing
    clips and their balance stays. Zeros stay zeros.

    Args:
        estimates: (n_src, T).
        mixture: (T,).

    Returns:
        (n_src, T), type and dtype of ``estimates``, within [-1, 1].

    Raises:
        ValueError: types or shapes that do not fit, integers, NaN or infinity.

    Example:
        >>> voices = torch.eye(2).repeat(1, 100)
        >>> rescale(voices * torch.tensor([[10.0], [-3.0]]), 0.5 * voices.sum(0)).abs().max()
        tensor(0.5000)
    """
    _check_samples("estimates", estimates)
    _check_samples("mixture", mixture)
    if isinstance(estimates, Tensor) != isinstance(mixture, Tensor):
        raise ValueError("estimates and mixture must be both tensors or both arrays")
    if estimates.ndim != 2 or len(estimates) == 0 or mixture.shape != estimates.shape[-1:]:
        raise ValueError(
            f"estimates {tuple(estimates.shape)} and mixture {tuple(mixture.shape)} must be "
            "(n_src, T) and (T,), n_src >= 1"
        )
    if isinstance(estimates, np.ndarray):
        both = (torch.from_numpy(np.ascontiguousarray(x)) for x in (estimates, mixture))
        return rescale(*both).numpy()
    levels = Levels(len(estimates))
    for block, mix in zip(estimates.split(BLOCK, 1), mixture.split(BLOCK), strict=True):
        levels.add(block, mix)
    gains = levels.gains().to(estimates.device)
    # In place from here on: an hour of two voices at 44.1 kHz is 1.3 GB.
    scaled = estimates.detach().clone()
    for voice, gain in zip(scaled, gains, strict=True):
        voice *= gain
    return scaled.clamp_(-1, 1)  # the product may round up to just above 1


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


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model is a {type(model).__name__}: a module is needed, such as "
            "ConvTasNet.from_pretrained gives"
        )
    for name in ("sample_rate", "n_src"):
        if not hasattr(model, name):
            raise ValueError(f"model, a {type(model).__name__}, has no {name}")


def _check_samples(name: str, wav: Tensor | np.ndarray) -> None:
    if not isinstance(wav, Tensor | np.ndarray):
        raise ValueError(f"{name} is a {type(wav).__name__}: a numpy array or a tensor is needed")
    if isinstance(wav, Tensor):
        floating = wav.is_floating_point()
    else:
        floating = np.issubdtype(wav.dtype, np.floating)
    if not floating:
        raise ValueError(
            f"{name} has dtype {wav.dtype}: floating-point samples are needed; divide int16 by "
            "32768"
        )


def _checked_mixture(wav: Tensor | np.ndarray, sample_rate: int) -> Tensor:
    """(T,) float32 tensor, or a ValueError."""
    _check_samples("wav", wav)
    if wav.ndim not in (1, 2) or (wav.ndim == 2 and wav.shape[0] != 1):
        raise ValueError(
            f"wav has shape {tuple(wav.shape)}: (T,) or (1, T) is needed; average stereo first"
        )
    if wav.shape[-1] == 0:
        raise ValueError(f"wav has shape {tuple(wav.shape)}: no samples")
    if isinstance(sample_rate, bool) or sample_rate not in range(1, MAX_SAMPLE_RATE + 1):
        raise ValueError(f"sample_rate={sample_rate!r} must be a positive whole number of Hz")
    if isinstance(wav, Tensor):
        mixture = wav.detach().float().reshape(-1)
    else:
        mixture = torch.from_numpy(np.require(wav, np.float32, ["C", "W"])).reshape(-1)
    if not bool(mixture.isfinite().all()):
        raise ValueError("wav holds NaN or infinite samples")
    return mixture
