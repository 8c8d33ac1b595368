"""The model: sizes, lengths, causality, shapes, padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_model import CAUSAL, small
from written_out import written_out

from convtasnet import ConvTasNet
from convtasnet.other_norms import ALL_NORMS, LOOK_AHEAD


def test_the_papers_size() -> None:
    model = ConvTasNet()
    assert sum(p.numel() for p in model.parameters()) == 4_984_881
    assert model.hparams["n_filters"] == 512
    assert ConvTasNet(**CAUSAL).latency == 15


def test_receptive_field_of_the_papers_size() -> None:
    """1 + R·(P − 1)·(2^X − 1) frames: the paper's 1.53 s at 8 kHz."""
    model = ConvTasNet(**CAUSAL)
    reach = sum(2 * block.depthwise.dilation[0] for block in model.separator.blocks)  # type: ignore
    assert reach == 3 * 2 * 255


@pytest.mark.parametrize("changes", [CAUSAL, {}, {"kernel_size": 20}, {"kernel_size": 8}])
@pytest.mark.parametrize("length", [1, 7, 15, 16, 17, 8000, 8001])
def test_output_length_is_input_length(changes: dict[str, Any], length: int) -> None:
    y = small(**changes)(torch.randn(2, length))
    assert y.shape == (2, 2, length)
    assert y.isfinite().all()
    assert (y[..., -1].abs() > 0).all() or length < 2


def test_the_last_samples_come_from_real_frames() -> None:
    model = small(**CAUSAL)
    for length in range(64, 90):
        y = model(torch.randn(length))
        assert (y[:, -8:].abs().sum(-1) > 0).all(), length
        assert (y[:, -1] != 0).all(), length


@pytest.mark.parametrize("norm", ["cumulative", "channelwise", "batch", "cumulative_legacy"])
@pytest.mark.parametrize("kernel_size", [16, 17, 20])
@pytest.mark.parametrize("filterbank", ["free", "param_sinc"])
def test_causal_means_causal(norm: str, kernel_size: int, filterbank: str) -> None:
    model = small(norm=norm, causal=True, kernel_size=kernel_size, filterbank=filterbank)
    x = torch.randn(2, 1500)
    whole = model(x)
    for t0 in (500, 501, 507, 1499):
        poisoned = x.clone()
        poisoned[:, t0:] = torch.nan
        y = model(poisoned)
        end = t0 - (kernel_size - 1)
        assert torch.equal(y[..., :end], whole[..., :end])
        assert y[..., t0:].isnan().all()


def test_a_non_causal_model_looks_ahead() -> None:
    x = torch.randn(1, 1500)
    changed = x.clone()
    changed[:, 1000:] += 1
    y, z = small()(x), small()(changed)
    assert (y[..., :500] - z[..., :500]).abs().max() > 1e-4


@pytest.mark.parametrize("n_src", [1, 2, 3])
@pytest.mark.parametrize("mask_act", ["relu", "sigmoid", "softmax"])
def test_shapes(n_src: int, mask_act: str) -> None:
    model = small(n_src=n_src, mask_act=mask_act)
    x = torch.randn(3, 400)
    batch = model(x)
    assert batch.shape == (3, n_src, 400)
    assert torch.equal(model(x[:, None]), batch)
    assert model(x[:1]).shape == (1, n_src, 400)
    assert model(x[:0]).shape == (0, n_src, 400)
    torch.testing.assert_close(model(x[1]), batch[1])


@pytest.mark.parametrize("skip_chan", [0, 8])
@pytest.mark.parametrize(
    ("norm", "causal"),
    [
        (norm, causal)
        for norm in ALL_NORMS
        for causal in (False, True)
        if norm not in LOOK_AHEAD or not causal
    ],
)
def test_every_parameter_gets_a_gradient(skip_chan: int, norm: str, causal: bool) -> None:
    model = small(skip_chan=skip_chan, norm=norm, causal=causal).train()
    model(torch.randn(2, 500)).square().sum().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


@pytest.mark.parametrize(
    "changes",
    [
        CAUSAL,
        {},
        {"norm": "cumulative"},
        {"norm": "channelwise"},
        {"norm": "cumulative_legacy", "causal": True, "framing": "drop"},
        {"norm": "featurewise", "conv_padding": "reflect", "framing": "centered"},
    ],
)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kernel_size": 20, "skip_chan": 0, "encoder_act": "relu", "input_norm": "channelwise"},
    ],
)
def test_padding_changes_nothing(changes: dict[str, Any], more: dict[str, Any]) -> None:
    model = small(**changes, **more).double()
    lengths = torch.tensor([900, 1, 17, 512])
    x = torch.randn(4, 1000, dtype=torch.float64)
    for b, n in enumerate(lengths.tolist()):
        x[b, n:] = torch.nan
    x.requires_grad_()
    y = model(x, lengths)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    assert x.grad is not None
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for b, n in enumerate(lengths.tolist()):
        item = x.detach()[b, :n].clone().requires_grad_()
        alone = model(item)
        alone.backward(upstream[b, :, :n])
        assert item.grad is not None
        torch.testing.assert_close(y.detach()[b, :, :n], alone.detach(), atol=1e-10, rtol=1e-8)
        torch.testing.assert_close(x.grad[b, :n], item.grad, atol=1e-9, rtol=1e-7)
        assert y.detach()[b, :, n:].abs().sum() == 0
        assert x.grad[b, n:].abs().sum() == 0
    for p, together in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(together, p.grad, atol=1e-8, rtol=1e-6)


def test_batch_norm_never_sees_padding() -> None:
    model = small(norm="batch").double().train()
    lengths = torch.tensor([700, 700])
    x = torch.randn(2, 1000, dtype=torch.float64)
    y = model(x, lengths)
    padded = {k: v.clone() for k, v in model.named_buffers()}
    other = small(norm="batch").double().train()
    torch.testing.assert_close(y[..., :700], other(x[:, :700]), atol=1e-8, rtol=1e-6)
    for name, value in other.named_buffers():
        torch.testing.assert_close(padded[name], value, atol=1e-9, rtol=1e-6, check_dtype=False)


@pytest.mark.parametrize("changes", [CAUSAL, {}])
def test_a_batch_equals_its_items(changes: dict[str, Any]) -> None:
    model = small(**changes)
    x = torch.randn(4, 777)
    torch.testing.assert_close(model(x), torch.stack([model(item) for item in x]))


@pytest.mark.parametrize("changes", [CAUSAL, {}])
def test_dtypes(changes: dict[str, Any]) -> None:
    model = small(**changes)
    x = torch.randn(2, 800)
    exact = model.double()(x.double())
    single = model.float()(x)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, atol=1e-5, rtol=1e-3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(x)
    assert half.dtype == torch.float32  # waveforms are never rounded to 16 bits
    assert (half - exact).norm() / exact.norm() < 0.02


@pytest.mark.parametrize("changes", [CAUSAL, {}])
def test_traced_equals_eager(changes: dict[str, Any]) -> None:
    """The graphs of forward and backward, without Inductor's minutes of C++ compilation."""
    check_compiled(small(**changes, n_blocks=2, n_repeats=1).train(), "aot_eager", "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [CAUSAL, {}])
def test_compiled_equals_eager(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    check_compiled(small(**changes).train().cuda(), "inductor", "cuda")


def check_compiled(model: ConvTasNet, backend: str, device: str) -> None:
    compiled = torch.compile(model.forward, backend=backend, dynamic=False)
    for length in (320, 801):
        x = torch.randn(2, length, device=device)
        model.zero_grad()
        expected = model(x)
        expected.square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        y = compiled(x)
        y.square().sum().backward()
        torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-4)
        for p, g in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad, g, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("norm", ["cumulative", "global"])
def test_equals_an_independent_composition(norm: str) -> None:
    """The network written out once more, in float64, from the paper's figure 1."""
    model = small(norm=norm, causal=norm == "cumulative", n_src=3).double()
    x = torch.randn(1, 400, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0], written_out(model, x[0]), atol=1e-10, rtol=1e-8)
