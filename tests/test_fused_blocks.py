"""The blocks of the model as one operator each: the same numbers as step by step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from tiny_model import TINY
from torch import Tensor

from convtasnet import ConvTasNet, block
from convtasnet.block import ReflectBlock

SETTINGS = [
    {"norm": "cumulative", "causal": True},
    {"norm": "channelwise", "causal": True, "skip_chan": 0},
    {"norm": "global", "conv_kernel_size": 4},
]
LENGTHS = torch.tensor([900, 411])


def pair(dtype: torch.dtype = torch.float64, **changes: Any) -> list[ConvTasNet]:
    """The model step by step, and fused, with the same weights."""
    torch.manual_seed(0)
    plain = ConvTasNet(**{**TINY, **changes}, fused=False).to(dtype)
    fused = ConvTasNet(**{**TINY, **changes}, fused=True).to(dtype)
    with torch.no_grad():  # defaults of 0 and 1 would hide a mistake
        for parameter in plain.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    fused.load_state_dict(plain.state_dict())
    return [plain, fused]


def trained(model: ConvTasNet, mix: Tensor, lengths: Tensor | None) -> list[Tensor]:
    """The output and the gradient of each parameter."""
    y = model(mix, lengths)
    torch.manual_seed(1)
    dy = torch.randn(y.shape, dtype=torch.float64).to(y)
    gradients = torch.autograd.grad(y, list(model.parameters()), dy)
    return [y.detach(), *gradients]


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("changes", SETTINGS)
def test_fused_equals_step_by_step(changes: dict[str, Any], lengths: Tensor | None) -> None:
    models = pair(**changes)
    mix = torch.randn(2, 900, dtype=torch.float64)
    plain, fused = (trained(model, mix, lengths) for model in models)
    for value, expected in zip(fused, plain, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)


def test_padding_may_hold_anything() -> None:
    _, model = pair(norm="cumulative", causal=True)
    mix = torch.randn(2, 900, dtype=torch.float64)
    clean = trained(model, mix, LENGTHS)
    mix[1, 411:] = float("nan")
    for value, expected in zip(trained(model, mix, LENGTHS), clean, strict=True):
        assert torch.equal(value, expected)


def test_autocast_rounds_no_more_than_step_by_step() -> None:
    mix, results = torch.randn(2, 900), []
    models = pair(torch.float32, norm="cumulative", causal=True)
    with torch.no_grad():
        exact = models[0](mix)
        for model in models:
            with torch.autocast("cpu", torch.bfloat16):
                results.append((model(mix) - exact).square().mean())
    assert results[1] <= 1.5 * results[0]


def test_compiled() -> None:
    torch.compiler.reset()
    _, model = pair(torch.float32)
    mix = torch.randn(2, 900)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(mix), model(mix))


def test_how_blocks_run_is_no_part_of_the_model() -> None:
    plain, fused = pair()
    assert plain.hparams == fused.hparams == ConvTasNet(**TINY).hparams
    assert "fused" not in plain.hparams
    assert plain.state_dict().keys() == ConvTasNet(**TINY).state_dict().keys()


def test_a_cpu_runs_step_by_step_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(block, "run_fused", lambda blocks, x, *_: taken.append(1) or (x, x))
    ConvTasNet(**TINY)(torch.randn(100))
    assert not taken
    ConvTasNet(**TINY, fused=True)(torch.randn(100))
    assert taken


@pytest.mark.parametrize("changes", [{"norm": "batch"}, {"norm": "featurewise"}])
def test_what_cannot_be_fused_is_said(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"fused=True needs norm .* got norm='{changes['norm']}'"):
        ConvTasNet(**TINY, **changes, fused=True)
    assert not ConvTasNet(**TINY, **changes).separator.blocks[0].fusible


def test_a_reflecting_block_is_not_fused() -> None:
    assert not ReflectBlock(4, 8, 4, 3, 1, "global", False).fusible
    with pytest.raises(ValueError, match=r"zeros beyond the ends.*ReflectBlock"):
        ReflectBlock(4, 8, 4, 3, 1, "global", False, fused=True)


# Relative errors of the output of 4 s, and of all blocks' gradients of one kind: in an untrained
# model of this size as large step by step, as rounding moves inputs of a PReLU across its bend.
GPU_ERRORS = {torch.float32: (1e-5, 5e-3), torch.float16: (5e-3, 0.1), torch.bfloat16: (0.03, 0.2)}


def block_errors(
    model: ConvTasNet, result: list[Tensor], expected: list[Tensor]
) -> dict[str, float]:
    """Relative error of what all blocks have of a kind, such as ``norm_in.slope``, together.

    A slope's gradient alone may cancel; those of all 24 blocks hardly do.
    """
    pairs = defaultdict(list)
    names = [name for name, _ in model.named_parameters()]
    for name, *pair in zip(names, result[1:], expected[1:], strict=True):
        if ".blocks." in name:
            pairs[name.split(".", 3)[-1]].append([x.double().flatten() for x in pair])
    errors = {}
    for kind, found in pairs.items():
        value, right = (torch.cat(parts) for parts in zip(*found, strict=True))
        errors[kind] = relative(value, right)
    return errors


def relative(value: Tensor, right: Tensor) -> float:
    return float(torch.linalg.vector_norm(value - right) / torch.linalg.vector_norm(right))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", GPU_ERRORS)
@pytest.mark.parametrize("changes", SETTINGS[::2])
def test_papers_size_on_a_gpu(
    changes: dict[str, Any], precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs and gradients round no more than step by step, against float64."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    torch.manual_seed(0)
    fused = ConvTasNet(**changes).cuda()
    assert fused.separator.blocks[0].is_fused(torch.zeros(1, 128, 8, device="cuda"))
    plain = ConvTasNet(**changes, fused=False).cuda()
    plain.load_state_dict(fused.state_dict())
    mix = torch.randn(2, 32_000, device="cuda")
    lengths = torch.tensor([32_000, 20_001], device="cuda")
    with torch.autocast("cuda", precision, enabled=precision != torch.float32):
        results = [trained(model, mix, lengths) for model in (fused, plain)]
    expected = trained(plain.double(), mix.double(), lengths)
    output_limit, limit = GPU_ERRORS[precision]
    assert relative(results[0][0], expected[0]) <= output_limit
    errors, yardstick = (block_errors(fused, result, expected) for result in results)
    for kind, error in errors.items():
        slack = 4 if kind.endswith("slope") else 1.5  # 24 numbers scatter more than maps do
        assert error <= slack * min(limit, yardstick[kind]), (kind, error, yardstick[kind])
