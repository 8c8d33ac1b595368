"""The loss: right values, permutations per item, silence, lengths, dtypes."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from convtasnet.losses import pairwise, pit_loss, si_sdr, snr


def direct_si_sdr(est: torch.Tensor, ref: torch.Tensor) -> float:
    """Equation 14 of the paper, in float64, term by term."""
    e = est.double().numpy() - est.double().numpy().mean()
    s = ref.double().numpy() - ref.double().numpy().mean()
    target = (e @ s) / (s @ s) * s
    return 10 * math.log10((target @ target) / ((e - target) @ (e - target)))


@pytest.mark.parametrize("gain", [1.0, 1e-2, 1e-4, 1e4])
@pytest.mark.parametrize("noise", [3.0, 0.1, 1e-4])
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_si_sdr_equals_the_formula(gain: float, noise: float, offset: float) -> None:
    ref = torch.randn(8000)
    est = (gain * (ref + noise * torch.randn(8000) + offset)).float()
    expected = direct_si_sdr(est, ref)
    assert float(si_sdr(est.double(), ref.double())) == pytest.approx(expected, abs=1e-8)
    assert float(si_sdr(est, ref)) == pytest.approx(expected, abs=2e-3)


def test_a_constant_offset_changes_nothing() -> None:
    ref = torch.randn(2, 3, 4000)
    est = ref + 0.1 * torch.randn(2, 3, 4000)
    torch.testing.assert_close(si_sdr(est + 0.5, ref - 0.3), si_sdr(est, ref), atol=1e-3, rtol=0)


def test_snr_equals_the_formula() -> None:
    ref, noise = torch.randn(2, 4000, dtype=torch.float64)
    ref, noise = ref - ref.mean(), noise - noise.mean()
    expected = 10 * math.log10(float((ref @ ref) / ((0.3 * noise) @ (0.3 * noise))))
    assert float(snr(ref + 0.3 * noise + 0.5, ref)) == pytest.approx(expected, abs=1e-9)
    assert float(snr(0.5 * ref, ref)) == pytest.approx(20 * math.log10(2), abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_silent_reference_is_nan(value: float) -> None:
    assert si_sdr(torch.randn(100), torch.full((100,), value)).isnan()


def test_an_output_of_zeros_is_never_0_db() -> None:
    est = torch.zeros(1, 2, 800, requires_grad=True)
    loss, _ = pit_loss(est, torch.randn(1, 2, 800))
    loss.backward()
    assert loss.detach() > 100
    assert est.grad is not None
    assert est.grad.isfinite().all()


def test_perm_says_which_estimate_belongs_to_each_reference() -> None:
    ref = torch.randn(3, 3, 4000)
    orders = torch.tensor([[2, 0, 1], [0, 1, 2], [1, 2, 0]])
    est = torch.stack([r[o] for r, o in zip(ref, orders, strict=True)])
    est = est + 0.01 * torch.randn_like(est)
    _, perm = pit_loss(est, ref)
    matched = est.gather(1, perm[..., None].expand_as(est))
    assert (si_sdr(matched, ref) > 30).all()


def test_permuting_the_estimates_changes_no_loss() -> None:
    est, ref = torch.randn(2, 4, 3, 1000)
    loss, _ = pit_loss(est, ref)
    torch.testing.assert_close(pit_loss(est[:, [2, 0, 1]], ref)[0], loss)
    torch.testing.assert_close(pit_loss(est, ref[:, [1, 2, 0]])[0], loss)


def test_a_batch_is_the_mean_of_its_items() -> None:
    est, ref = torch.randn(2, 5, 2, 1000)
    alone = torch.stack([pit_loss(e[None], r[None])[0] for e, r in zip(est, ref, strict=True)])
    torch.testing.assert_close(pit_loss(est, ref)[0], alone.mean())


def test_a_silent_target_leaves_the_choice_to_the_others() -> None:
    ref = torch.randn(4, 3, 2000)
    ref[1, 0] = 0
    est = (ref + 0.1 * torch.randn(4, 3, 2000))[:, [1, 2, 0]].requires_grad_()
    loss, perm = pit_loss(est, ref)
    loss.backward()
    assert est.grad is not None
    assert est.grad.isfinite().all()
    assert perm.tolist() == [[2, 0, 1]] * 4
    audible = torch.ones(4, 3, dtype=torch.bool)
    audible[1, 0] = False
    matched = est.detach().gather(1, perm[..., None].expand_as(est))
    torch.testing.assert_close(loss.detach(), -si_sdr(matched, ref)[audible].mean())
    assert est.grad[1, 2].abs().max() == 0  # nothing pulls the silent source's estimate


def test_a_batch_of_silence_has_zero_loss_and_gradient() -> None:
    est = torch.randn(2, 2, 100, requires_grad=True)
    loss, _ = pit_loss(est, torch.zeros(2, 2, 100))
    loss.backward()
    assert est.grad is not None
    assert loss.detach() == 0
    assert est.grad.abs().max() == 0


def test_what_lies_beyond_the_lengths_does_not_count() -> None:
    est, ref = torch.randn(2, 3, 2, 1000) + 0.2
    lengths = torch.tensor([1000, 640, 333])
    alone = [
        pit_loss(e[None, :, :n], r[None, :, :n])[0]
        for e, r, n in zip(est, ref, lengths.tolist(), strict=True)
    ]
    for b, n in enumerate(lengths.tolist()):
        est[b, :, n:], ref[b, :, n:] = torch.nan, 7.0
    est.requires_grad_()
    loss, _ = pit_loss(est, ref, lengths)
    loss.backward()
    assert est.grad is not None
    torch.testing.assert_close(loss, torch.stack(alone).mean(), atol=1e-4, rtol=0)
    assert est.grad.isfinite().all()
    assert est.grad[2, :, 333:].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    est, ref = torch.randn(2, 2, 2, 4000)
    est = (1e-3 * (ref + 0.1 * est)).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = pit_loss(est, ref)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, pit_loss(est.float(), ref)[0])


def test_gradients_are_those_of_the_formula() -> None:
    ref = torch.randn(2, 2, 20, dtype=torch.float64)
    est = torch.randn(2, 2, 20, dtype=torch.float64, requires_grad=True)
    for metric in ("si_sdr", "snr"):
        assert torch.autograd.gradcheck(lambda e, m=metric: pit_loss(e, ref, metric=m)[0], est)


def test_eight_sources_in_a_batch_of_four_take_under_50_ms() -> None:
    est, ref = torch.randn(2, 4, 8, 8000)
    times = []
    for _ in range(4):  # of which the first warms up, and others may be disturbed
        start = time.perf_counter()
        pit_loss(est, ref)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05


@pytest.mark.parametrize("metric", ["si_sdr", "snr"])
@pytest.mark.parametrize("n_src", [1, 2, 5, 8])
def test_value_and_gradient_are_those_of_the_best_of_all_pairs(n_src: int, metric: str) -> None:
    ref = torch.randn(3, n_src, 300, dtype=torch.float64)
    est = ref.flip(1) + torch.randn_like(ref)
    est.requires_grad_()
    loss, _ = pit_loss(est, ref, metric=metric)
    (own,) = torch.autograd.grad(loss, est)
    every = pairwise(est, ref, metric=metric)
    best = []
    for item in every:
        rows, columns = linear_sum_assignment(item.detach().numpy(), maximize=True)
        best.append(item[rows, columns])
    expected = -torch.stack(best).mean()
    (expected_gradient,) = torch.autograd.grad(expected, est)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(own, expected_gradient)


@pytest.mark.gpu
@pytest.mark.parametrize("n_src", [2, 3, 5])
def test_the_loss_does_not_wait_for_the_device(n_src: int) -> None:
    est, ref = torch.randn(2, 4, n_src, 8000, device="cuda")
    lengths = torch.tensor([8000, 8000, 5000, 100], device="cuda")
    with torch.inference_mode():  # the first call may come from validation
        pit_loss(est, ref, lengths)
    est.requires_grad_()
    torch.cuda.set_sync_debug_mode("error")
    try:
        pit_loss(est, ref, lengths)[0].backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert est.grad is not None
    assert est.grad.isfinite().all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(3,\).*\(4,\)"):
        si_sdr(torch.zeros(3), torch.zeros(4))
    with pytest.raises(ValueError, match="n_src, T"):
        pit_loss(torch.zeros(3, 10), torch.zeros(3, 10))
    with pytest.raises(ValueError, match=r"\(1, 0, 10\): no sources"):
        pit_loss(torch.zeros(1, 0, 10), torch.zeros(1, 0, 10))
    with pytest.raises(ValueError, match="lengths is a list"):
        pit_loss(*torch.zeros(2, 2, 2, 10), lengths=[10, 10])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'sdr' is unknown"):
        pit_loss(torch.zeros(1, 2, 10), torch.zeros(1, 2, 10), metric="sdr")
    with pytest.raises(ValueError, match="'sdr' is unknown"):
        pairwise(torch.zeros(1, 2, 10), torch.zeros(1, 2, 10), metric="sdr")
    with pytest.raises(ValueError, match=r"est \(1, 2, 10\) and ref \(3, 2, 10\) must be"):
        pairwise(torch.zeros(1, 2, 10), torch.zeros(3, 2, 10))


@pytest.mark.parametrize("function", [si_sdr, snr, pit_loss, pairwise])
@pytest.mark.parametrize("bad", [np.zeros((1, 2, 10)), torch.zeros(1, 2, 10).cfloat(), None])
def test_signals_are_tensors_of_real_samples(function, bad) -> None:
    with pytest.raises(ValueError, match="tensors of real samples, got"):
        function(torch.zeros(1, 2, 10), bad)


@pytest.mark.parametrize("lengths", [[5], [900, 5], [0, 5], [5.0, 5.0], [True, True]])
def test_wrong_lengths_are_refused(lengths: list[float]) -> None:
    est, ref = torch.randn(2, 2, 2, 800)
    with pytest.raises(ValueError, match="lengths"):
        pit_loss(est, ref, torch.tensor(lengths))


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        pit_loss(torch.zeros(1, 2, 0), torch.zeros(1, 2, 0))
