"""Laws of the fused loss, on each path: PyTorch, Triton's interpreter, Triton on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from norm_cases import INTERPRET, relative_error
from torch import Tensor

from convtasnet.losses import pit_loss
from convtasnet_kernels import pit_si_sdr_loss
from convtasnet_kernels.backend import runs_in_triton

DECIBELS = 1e-4
GRADIENT = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}
SAMPLES = 700


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import pit_si_sdr

    monkeypatch.setattr(pit_si_sdr, "TILE", 256)
    monkeypatch.setattr(pit_si_sdr, "TILES", 2)
    monkeypatch.setattr(pit_si_sdr, "LANES", 8)


class Found(NamedTuple):
    """A loss, its matching, and the gradient of the estimates."""

    loss: Tensor
    perm: Tensor
    gradient: Tensor


def run(function, est: Tensor, ref: Tensor, lengths: Tensor | None = None) -> Found:
    est = est.detach().requires_grad_()
    loss, perm = function(est, ref, lengths)
    (gradient,) = torch.autograd.grad(loss, est, torch.full_like(loss, 0.7))
    return Found(loss.detach(), perm, gradient)


def draw(
    device: str, sources: int = 2, items: int = 3, noise: float = 0.3, dtype=torch.float32
) -> tuple[Tensor, Tensor]:
    """Estimates, of references in another order, and references."""
    ref = torch.randn(items, sources, SAMPLES, dtype=torch.float64)
    est = ref.roll(1, 1) + noise * torch.randn_like(ref)
    return est.to(device, dtype), ref.to(device, dtype)


def check(est: Tensor, ref: Tensor, lengths: Tensor | None = None) -> Found:
    """Against the formula in float64, step by step."""
    found = run(pit_si_sdr_loss, est, ref, lengths)
    expected = run(pit_loss, est.double(), ref.double(), lengths)
    assert found.loss.dtype == torch.float32
    assert found.gradient.dtype == est.dtype
    assert abs(float(found.loss) - float(expected.loss)) <= DECIBELS
    assert torch.equal(found.perm, expected.perm)
    assert relative_error(found.gradient, expected.gradient) <= GRADIENT[est.dtype]
    return found


@pytest.mark.parametrize("lengths", [None, (SAMPLES, 300, 3)])
@pytest.mark.parametrize("sources", [1, 2, 3, 5])
def test_equals_the_float64_formula(
    device: str, sources: int, lengths: tuple[int, ...] | None
) -> None:
    valid = None if lengths is None else torch.tensor(lengths, device=device)
    check(*draw(device, sources), valid)


@pytest.mark.parametrize("gain", [1e-25, 1e4])
@pytest.mark.parametrize(("noise", "offset"), [(1e-3, 0.0), (30.0, 5.0)])
def test_any_scale_and_offset(device: str, gain: float, noise: float, offset: float) -> None:
    est, ref = draw(device, noise=noise)
    check(gain * (est + offset), ref - offset)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(device: str, dtype: torch.dtype) -> None:
    if INTERPRET and dtype == torch.bfloat16:
        pytest.skip("the interpreter cuts bfloat16 off instead of rounding")
    check(*draw(device, dtype=dtype))


def test_a_silent_reference_is_left_out(device: str) -> None:
    est, ref = draw(device, sources=3)
    ref[1, 0] = 0.5
    found = check(est, ref)
    assert found.perm.tolist() == [[1, 2, 0]] * 3
    assert not found.gradient[1, 1].any()
    found = run(pit_si_sdr_loss, est, torch.zeros_like(ref))
    assert found.loss == 0
    assert not found.gradient.any()


def test_silent_estimates_are_never_0_db(device: str) -> None:
    est, ref = draw(device)
    found = run(pit_si_sdr_loss, torch.full_like(est, 0.2), ref)
    assert 138 < found.loss < 139
    assert not found.gradient.any()


def test_perfect_estimates_are_at_the_resolution(device: str) -> None:
    _, ref = draw(device)
    found = run(pit_si_sdr_loss, ref, ref)
    assert -139 < found.loss < -130
    assert found.gradient.isfinite().all()


def test_what_is_not_finite_shows_unless_it_lies_beyond_the_lengths(device: str) -> None:
    est, ref = draw(device)
    lengths = torch.tensor([SAMPLES, 300, 300], device=device)
    expected = run(pit_si_sdr_loss, est, ref, lengths)
    for signals, value in ((est, torch.nan), (ref, torch.inf)):
        spoiled = signals[1, 0, 300].clone()
        signals[1, 0, 300] = value
        found = run(pit_si_sdr_loss, est, ref, lengths)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert pit_si_sdr_loss(est, ref)[0].isnan()
        signals[1, 0, 300] = spoiled


def test_bits_repeat_and_strides_do_not_matter(device: str) -> None:
    est, ref = draw(device, items=2)
    first = run(pit_si_sdr_loss, est, ref)
    turned = [x.mT.contiguous().mT for x in (est, ref)]
    for second in (run(pit_si_sdr_loss, est, ref), run(pit_si_sdr_loss, *turned)):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_training_loss_goes_this_way_in_triton(device: str) -> None:
    est, ref = draw(device)
    fused, found = run(pit_si_sdr_loss, est, ref), run(pit_loss, est, ref)
    torch.testing.assert_close(found, fused)
    if runs_in_triton("pit_si_sdr_loss", est):  # float32 formulas would round elsewhere
        assert all(torch.equal(a, b) for a, b in zip(found, fused, strict=True))
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(run(pit_si_sdr_loss, est, ref).loss, fused.loss)


def test_opcheck() -> None:
    est, ref = draw("cpu", items=2)
    lengths = torch.tensor([SAMPLES, 20])
    ops = torch.ops.convtasnet
    torch.library.opcheck(ops.pit_si_sdr.default, (est.requires_grad_(), ref, lengths, "auto"))
    loss, *others = ops.pit_si_sdr(est, ref, lengths, "auto")
    arguments = (loss.detach(), est.detach(), ref, lengths, *others, "auto")
    torch.library.opcheck(ops.pit_si_sdr_backward.default, arguments)


@pytest.mark.parametrize(
    ("est", "ref", "message"),
    [
        (torch.zeros(1, 2, 8).double(), torch.zeros(1, 2, 8), "est must be .* got torch.float64"),
        (torch.zeros(1, 2, 8), torch.zeros(1, 2, 8).int(), "ref must be .* got torch.int32"),
        (torch.zeros(1, 2, 8), [[1.0]], "ref must be .* got list"),
        (torch.zeros(1, 2, 8), torch.zeros(1, 2, 9), r"got \(1, 2, 8\) on cpu and \(1, 2, 9\)"),
        (torch.zeros(2, 8), torch.zeros(2, 8), r"must both be \(B, S, T\)"),
        (torch.zeros(1, 6, 8), torch.zeros(1, 6, 8), r"1 to 5 sources .* got \(1, 6, 8\)"),
        (torch.zeros(1, 2, 0), torch.zeros(1, 2, 0), r"T > 0, got \(1, 2, 0\)"),
    ],
)
def test_wrong_arguments_are_named(est: Tensor, ref: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pit_si_sdr_loss(est, ref)


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(("sources", "capability"), [(2, 80), (2, 90), (2, 100), (5, 90)])
def test_every_kernel_compiles(
    sources: int, capability: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its registers."""
    pytest.importorskip("triton")
    from compiling import local_bytes, recorded

    from convtasnet_kernels import pit_si_sdr as kernels

    masks = torch.empty(2, dtype=torch.int32, device="meta")
    monkeypatch.setattr(kernels, "_masks", lambda sources, device: masks)
    signals = torch.empty(8, sources, 32_000, device="meta")
    lengths = torch.empty(8, dtype=torch.int64, device="meta")
    with recorded() as launches:
        loss, *others = kernels.forward(signals, signals, lengths)
        kernels.backward(loss, signals, signals, lengths, *others)
    assert len(launches) == 3
    for launch in launches:
        assert local_bytes(launch.build(capability)) == 0, launch.name
