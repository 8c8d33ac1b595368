"""Laws of fused blocks in a row, on each path: they are the single blocks one after the other.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from block_cases import Case, Setting, make_case, wide, written_out
from norm_cases import INTERPRET
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from convtasnet_kernels import backend, block_products
from convtasnet_kernels.block_op import tcn_blocks
from convtasnet_kernels.block_outer_biases import (
    first_biases,
    missing_biases,
    outer_bias_gradients,
)
from convtasnet_kernels.block_parameters import BlockParameters, cast_weights

pytestmark = pytest.mark.usefixtures("exact_products")
DILATIONS = (1, 2, 4)
SIZES = (2, 6, 40)  # items, channels outside, channels inside
SLOPE = 0.8  # of the PReLU behind all blocks
# Relative errors: a little above those of one block, as later ones add to earlier roundings.
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 6e-2}
SETTINGS = [
    Setting("cumulative", frames=16),
    Setting("global", causal=False, residual=False, frames=16),
    Setting("channelwise", skip=0, frames=17),
]
Outputs = list[Tensor]


class Ends(NamedTuple):
    """What is in front of all blocks, and behind them.

    Args:
        bias: (B',) that x lacks.
        slope: (1,) of the PReLU, or one a channel.
    """

    bias: Tensor
    slope: Tensor


def make_ends(x: Tensor, slopes: int = 1) -> Ends:
    options: Any = {"dtype": torch.promote_types(x.dtype, torch.float32), "device": x.device}
    bias = torch.linspace(-1, 1, x.shape[1], **options)
    return Ends(bias, torch.full((slopes,), SLOPE, **options))


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import block_rows

    monkeypatch.setattr(block_rows, "TILE", (2, 1))


class CountedOperators(TorchDispatchMode):
    """The names of all operators of a block that do something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def make_stack(setting: Setting, device: str, dtype: torch.dtype) -> tuple[Case, list[Any]]:
    """Arguments, and the parameters of each block; only the last may be without a residual."""
    last = len(DILATIONS) - 1
    cases = [
        make_case(setting._replace(residual=setting.residual or i < last), device, dtype, SIZES)
        for i in range(last + 1)
    ]
    return cases[-1], [case.parameters for case in cases]


def fused(
    x: Tensor, skips: Tensor | None, stack: list[BlockParameters], ends: Ends, case: Case
) -> Outputs:
    s = case.setting
    found = tcn_blocks(
        x, skips, stack, s.kind, DILATIONS, s.causal, s.residual, prelu=ends.slope, bias=ends.bias
    )
    return [y for y in found if y is not None]


def one_by_one(
    x: Tensor, skips: Tensor | None, stack: list[BlockParameters], ends: Ends, case: Case
) -> Outputs:
    x = x + ends.bias[:, None]
    for p, dilation in zip(stack, DILATIONS, strict=True):
        residual = len(p.bias_out) > case.setting.skip
        setting = case.setting._replace(dilation=dilation, residual=residual)
        x, skips = written_out(x, skips, p, setting, None, x.dtype)
    found = [y for y in (x if case.setting.residual else None, skips) if y is not None]
    return [*found[:-1], torch.where(found[-1] > 0, found[-1], ends.slope[:, None] * found[-1])]


def run(
    function: Callable[..., Outputs], case: Case, stack: list[Any], slopes: int = 1
) -> dict[str, Tensor]:
    """Outputs, and the gradient of each argument under its name.

    Of several slopes of the PReLU behind the blocks, one a channel, these are its terms.
    """
    named = {"x": case.x} if case.skips is None else {"x": case.x, "skips": case.skips}
    named |= make_ends(case.x, slopes)._asdict()
    for i, p in enumerate(stack):
        named |= {f"{name} {i}": value for name, value in p._asdict().items()}
    leaves = {name: value.detach().requires_grad_() for name, value in named.items()}
    parameters = [
        BlockParameters(*(leaves[f"{name} {i}"] for name in BlockParameters._fields))
        for i in range(len(stack))
    ]
    outputs = function(
        leaves["x"], leaves.get("skips"), parameters, Ends(leaves["bias"], leaves["slope"]), case
    )
    torch.manual_seed(7)
    upstream = [torch.randn(y.shape, dtype=torch.float64).to(y) for y in outputs]
    grads = torch.autograd.grad(outputs, list(leaves.values()), upstream)
    results = {f"output {i}": y.detach() for i, y in enumerate(outputs)}
    return results | dict(zip(leaves, grads, strict=True))


@pytest.mark.skipif(INTERPRET, reason="it is slow, and the laws of one block try its steps")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_stack_is_its_blocks_one_by_one(
    device: str, setting: Setting, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    case, stack = make_stack(setting, device, dtype)
    for p in stack:  # a few values that roundings push over the kinks would hide the rest
        p.slope_1.fill_(0.9)
        p.slope_2.fill_(1.1)
    result = run(fused, case, stack)
    skips = None if case.skips is None else case.skips.double()
    exact = case._replace(x=case.x.double(), skips=skips)
    slopes = setting.skip or SIZES[1]
    expected = run(one_by_one, exact, [wide(p, dtype) for p in stack], slopes)
    assert result.keys() == expected.keys()
    for name, value in result.items():
        right = expected[name]
        scale = float(right.abs().sum() if name.startswith("slope") else right.abs().max())
        right = right.sum(0, keepdim=True) if name.startswith("slope") else right
        error = float((value.double() - right).abs().max()) / scale
        assert error <= TOLERANCES[dtype], f"{name}: relative error {error:.2e}"


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_gradients_nothing_is_kept_and_nothing_changes(setting: Setting) -> None:
    torch.manual_seed(1)
    case, stack = make_stack(setting, "cpu", torch.float64)
    before = case.x.clone()
    kept = run(fused, case, stack)
    for i, y in enumerate(fused(case.x, case.skips, stack, make_ends(case.x), case)):
        torch.testing.assert_close(y, kept[f"output {i}"])
    assert torch.equal(case.x, before)


@pytest.mark.parametrize("keep", [True, False])
def test_convolutions_that_are_added(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of float32 on a GPU whose products and convolutions round differently."""
    case, stack = make_stack(SETTINGS[0], "cpu", torch.float64)
    expected = run(fused, case, stack)
    monkeypatch.setattr(block_products, "_has_one_precision", lambda x: False)
    if keep:
        result = run(fused, case, stack)
    else:
        outputs = fused(case.x, case.skips, stack, make_ends(case.x), case)
        result = {f"output {i}": y for i, y in enumerate(outputs)}
    for name, value in result.items():
        torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize("used", [0, 1])
def test_an_output_that_nobody_uses(used: int) -> None:
    case, stack = make_stack(SETTINGS[0], "cpu", torch.float64)
    results = []
    for function in (fused, one_by_one):
        x = case.x.double().requires_grad_()
        exact = [BlockParameters(*(value.double() for value in p)) for p in stack]
        y = function(x, case.skips.double(), exact, make_ends(x), case)[used]
        results.append(torch.autograd.grad(y.square().sum(), x)[0])
    torch.testing.assert_close(*results)


def test_upstream_gradients_are_left_as_they_are() -> None:
    case, stack = make_stack(SETTINGS[0], "cpu", torch.float32)
    x = case.x.requires_grad_()
    outputs = fused(x, case.skips, stack, make_ends(x), case)
    upstream = [torch.randn_like(y) for y in outputs]
    before = [g.clone() for g in upstream]
    torch.autograd.grad(outputs, x, upstream)
    assert all(torch.equal(g, b) for g, b in zip(upstream, before, strict=True))


def test_wrong_stacks_are_named() -> None:
    case, stack = make_stack(SETTINGS[0], "cpu", torch.float32)
    with pytest.raises(ValueError, match="3 blocks need as many dilations, got 2"):
        tcn_blocks(case.x, None, stack, "cumulative", (1, 2), True)
    stack[1] = stack[1]._replace(bias_out=torch.zeros(3))
    with pytest.raises(ValueError, match=r"bias_out must be .*\(9,\).* got \(3,\)"):
        tcn_blocks(case.x, None, stack, "cumulative", DILATIONS, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_put_together_and_taken_out(device: str, dtype: torch.dtype) -> None:
    first, second = (torch.randn(2, n, 40, device=device).to(dtype) for n in (2, 3))
    names = ("block_torch", "block_forward")
    path = backend.module("tcn_blocks", backend.requested(), first, *names)
    total = path.joined_rows(first, second, first, 5)
    assert torch.equal(total, torch.cat((first, second), 1))
    assert torch.equal(path.joined_rows(None, second, first, 5)[:, :2], torch.zeros_like(first))
    assert torch.equal(path.joined_rows(first, None, first, 5)[:, 2:], torch.zeros_like(second))
    backward = backend.module(
        "tcn_blocks", backend.requested(), first, "block_backward_torch", "block_backward"
    )
    for parts in ((first, second), (None, second)):
        joined, sums, nothing = backward.joined_gradients(*parts, first, 5)
        assert nothing.shape == (0,)
        assert torch.equal(joined, path.joined_rows(*parts, first, 5))
        assert sums.dtype == torch.float32
        torch.testing.assert_close(sums.double(), joined.double().sum((0, 2)), rtol=0, atol=1e-4)
    rows = path.taken_rows(total, 1, 3)
    assert torch.equal(rows, total[:, 1:4])
    assert rows.is_contiguous()
    alone = path.joined_rows(first, None, first, 2)  # as without skips
    assert alone.data_ptr() != first.data_ptr()
    assert path.taken_rows(alone, 0, 2).data_ptr() != alone.data_ptr()
    bias = torch.randn(3, device=device)
    expected = (total[:, 1:4].float() + bias[:, None]).to(dtype)
    rounding = 2**-7 if INTERPRET else 0.0  # the interpreter cuts 16 bits off instead of rounding
    torch.testing.assert_close(path.taken_rows(total, 1, 3, bias), expected, rtol=rounding, atol=0)


@pytest.mark.parametrize("slope", [0.25, 0.0, -0.5])
@pytest.mark.parametrize("skips", [True, False])
def test_rows_behind_a_prelu(device: str, skips: bool, slope: float) -> None:
    """Those of the skips, or without any the residual's, forward and backward."""
    u, bias = torch.randn(2, 5, 40, device=device), torch.randn(5, device=device)
    rows = 3 if skips else 5
    prelu = torch.tensor([slope], device=device)
    leaves = [each.double().requires_grad_() for each in (u, prelu)]
    v = (leaves[0] + bias.double()[:, None])[:, -rows:]
    expected = torch.where(v > 0, v, leaves[1] * v)
    names = ("block_torch", "block_forward"), ("block_backward_torch", "block_backward")
    forward, backward = (
        backend.module("tcn_blocks", backend.requested(), u, *each) for each in names
    )
    result = forward.taken_rows(u, 5 - rows, rows, bias[-rows:], prelu)
    torch.testing.assert_close(result.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    dy = torch.randn_like(result)
    parts = (None, dy, u[:, :2]) if skips else (dy, None, u)
    total, sums, d_prelu = backward.joined_gradients(*parts, 5, u, bias, prelu)
    du, d_slope = torch.autograd.grad(expected, leaves, dy.double())
    torch.testing.assert_close(total.double(), du, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sums.double(), du.sum((0, 2)), rtol=0, atol=1e-4)
    torch.testing.assert_close(d_prelu.double(), d_slope, rtol=0, atol=1e-4)


def test_weights_of_all_blocks_are_cast_by_one_operator() -> None:
    _, stack = make_stack(SETTINGS[0], "cpu", torch.float32)
    with CountedOperators() as counted:
        cast = cast_weights(stack, torch.bfloat16)
        assert cast_weights(cast, torch.bfloat16) is cast
    assert [name for name in counted.names if "empty" not in name] == [
        "aten._foreach_copy_.default"
    ]
    for p, narrow in zip(stack, cast, strict=True):
        for name, value in p._asdict().items():
            is_cast = name in ("weight_in", "weight_out")
            assert torch.equal(getattr(narrow, name), value.bfloat16() if is_cast else value), name


@pytest.mark.parametrize("residual", [True, False])
def test_biases_of_many_blocks_take_no_more_operators(residual: bool) -> None:
    """Each is a launch."""
    _, stack = make_stack(Setting("cumulative", residual=residual), "cpu", torch.float32)
    outer = len(stack[0].bias_out)
    counts = []
    for blocks in (stack, [*stack[:-1], *stack]):
        with CountedOperators() as counted:
            missing = missing_biases(blocks, outer, torch.float32, torch.randn(6))
            first_biases(blocks, missing)
            outer_bias_gradients(blocks, torch.randn(len(blocks), 40), torch.randn(outer))
        counts.append(counted.names)
    assert counts[0] == counts[1]
