"""The permutation-invariant SI-SDR loss as one PyTorch operator with autograd.

Built like ``cumulative_op.py``: opaque to torch.compile, the backend travels as an argument.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.checks import check_lengths, check_tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MOST_SOURCES = 5  # 120 matchings


def pit_si_sdr_loss(
    est: Tensor, ref: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Minus the mean SI-SDR of the best matching of estimates with references.

    Of signals without their means, s a reference and e its estimate, both of unit energy: SI-SDR =
    10·log10(⟨e, s⟩² / (1 - ⟨e, s⟩²)), between ±138 dB (Le Roux et al., "SDR - half-baked or well
    done?", ICASSP 2019). Each item chooses its own matching (Kolbæk et al., 2017), of all there
    are. Silent (constant) references are left out of the choice and of the mean; without any other
    the loss is 0. Sums over samples are float64.

    Args:
        est: (B, S, T) float16, bfloat16 or float32, S at most 5; only it gets a gradient.
        ref: (B, S, T) likewise.
        lengths: (B,) integers, valid samples of each item, at least 1; None for all.

    Returns:
        The loss in dB, a float32 scalar, and the matching (B, S) int64: perm[b, j] is the estimate
        of reference j.

    Raises:
        ValueError: an argument of another shape or dtype, or a backend that cannot run.

    >>> ref = torch.tensor([[[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]])
    >>> loss, perm = pit_si_sdr_loss(3 * ref.flip(1) + 0.1 * ref, ref)
    >>> round(loss.item(), 1), perm.tolist()
    (-29.5, [[1, 0]])
    """
    for name, value in (("est", est), ("ref", ref)):
        check_tensor(name, value)
        if value.dtype not in DTYPES:
            raise ValueError(f"{name} must be float16, bfloat16 or float32, got {value.dtype}")
    if est.dim() != 3 or est.shape != ref.shape or est.device != ref.device:
        raise ValueError(
            f"est and ref must both be (B, S, T) on one device, got {tuple(est.shape)} on "
            f"{est.device} and {tuple(ref.shape)} on {ref.device}"
        )
    if not 1 <= est.shape[1] <= MOST_SOURCES or est.shape[2] == 0:
        raise ValueError(
            f"est must be (B, S, T) of 1 to {MOST_SOURCES} sources and T > 0, "
            f"got {tuple(est.shape)}"
        )
    if lengths is not None:
        check_lengths(lengths, est)
        lengths = lengths.to(est.device, torch.int64, non_blocking=True)
    loss, perm, _, _ = matched_si_sdr(est, ref.detach(), lengths, backend.requested())
    return loss, perm


@torch.library.custom_op("convtasnet::pit_si_sdr", mutates_args=())
def matched_si_sdr(
    est: Tensor, ref: Tensor, lengths: Tensor | None, wish: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As ``pit_si_sdr_torch.forward``; ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``."""
    return _path(wish, est).forward(est.contiguous(), ref.contiguous(), lengths)


@torch.library.custom_op("convtasnet::pit_si_sdr_backward", mutates_args=())
def matched_si_sdr_backward(
    upstream: Tensor,
    est: Tensor,
    ref: Tensor,
    lengths: Tensor | None,
    perm: Tensor,
    coeff: Tensor,
    count: Tensor,
    wish: str,
) -> Tensor:
    """As ``pit_si_sdr_torch.backward``."""
    signals = (est.contiguous(), ref.contiguous())
    return _path(wish, est).backward(upstream, *signals, lengths, perm, coeff, count)


def _path(wish: str, x: Tensor) -> ModuleType:
    return backend.module("pit_si_sdr_loss", wish, x, "pit_si_sdr_torch", "pit_si_sdr")


@matched_si_sdr.register_fake
def _(
    est: Tensor, ref: Tensor, lengths: Tensor | None, wish: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, S, _ = est.shape
    return (
        est.new_empty((), dtype=torch.float32),
        est.new_empty((B, S), dtype=torch.int64),
        est.new_empty((B, S, 3), dtype=torch.float64),
        est.new_empty((), dtype=torch.float64),
    )


@matched_si_sdr_backward.register_fake
def _(upstream: Tensor, est: Tensor, *_: Any) -> Tensor:
    return est.new_empty(est.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    est, ref, lengths, ctx.wish = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(est, ref, lengths, *output[1:])


def _gradients(ctx: Any, upstream: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if upstream is None:
        return (None,) * 4
    return (matched_si_sdr_backward(upstream, *ctx.saved_tensors, ctx.wish), None, None, None)


matched_si_sdr.register_autograd(_gradients, setup_context=_setup_context)
