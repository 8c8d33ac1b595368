"""Norms that write another dtype than they read, on each path; the interpreter's as in
test_cumulative.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from norm_cases import INTERPRET, ROUNDING, TOLERANCES, Case, assert_close, make_case
from torch import Tensor

from convtasnet_kernels import (
    channelwise_layer_norm,
    cumulative_layer_norm,
    global_layer_norm,
    reference,
)
from convtasnet_kernels.backend import triton_import_error


class Way(NamedTuple):
    """A way through the kernels.

    Args:
        norm: the function.
        reference: what it computes.
        shape: of x.
        changes: names of the kernels' modules, and what their constants become.
    """

    norm: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    shape: tuple[int, int, int]
    changes: tuple[tuple[str, str, int], ...] = ()


CUMULATIVE = (cumulative_layer_norm, reference.cumulative)
GLOBAL = (global_layer_norm, reference.global_)
CHANNELWISE = (channelwise_layer_norm, reference.channelwise)
# The interpreter is slow, and cuts bfloat16 off instead of rounding it.
WRITTEN = [torch.float16] if INTERPRET else [torch.bfloat16, torch.float16]
ROWS = ("cumulative_item", "ELEMENTS", 0)
STREAMED = ("cumulative", "HELD_CHANNELS", 0)
WIDE = (("channelwise", "CHANNELS", 16), ("channelwise_backward", "CHANNELS", 16))
WAYS = {
    "small items": Way(*CUMULATIVE, (2, 20, 36)),
    "small items of odd rows": Way(*CUMULATIVE, (2, 3, 37)),
    "a tile held in registers": Way(*CUMULATIVE, (1, 20, 40), (ROWS,)),
    "a streamed tile": Way(*CUMULATIVE, (1, 80, 40), (ROWS, STREAMED)),
    "rows of whole vectors of x alone": Way(*CUMULATIVE, (1, 20, 36), (ROWS,)),
    "odd rows": Way(*CUMULATIVE, (1, 20, 37), (ROWS,)),
    "global": Way(*GLOBAL, (2, 5, 40)),
    "global, whole vectors of x alone": Way(*GLOBAL, (2, 5, 36)),
    "global, odd rows": Way(*GLOBAL, (3, 7, 37)),
    "channelwise": Way(*CHANNELWISE, (2, 20, 48)),
    "channelwise, odd rows": Way(*CHANNELWISE, (2, 20, 37)),
    "more channels than registers hold": Way(*CHANNELWISE, (2, 20, 37), WIDE),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    way = WAYS[request.param]
    if triton_import_error() is None:
        for module, name, value in way.changes:
            monkeypatch.setattr(f"convtasnet_kernels.{module}.{name}", value)
    return way


def make_mixed(way: Way, device: str, read: torch.dtype, written: torch.dtype) -> Case:
    """A case whose upstream gradient the written dtype holds."""
    case = make_case(way.shape, mean=0.3, dtype=read, device=device)
    case.dy = case.dy.to(written)
    return case


@pytest.mark.parametrize("written", WRITTEN)
def test_float32_in_and_16_bits_out(device: str, way: Way, written: torch.dtype) -> None:
    case = make_mixed(way, device, torch.float32, written)
    result = case.run(way.norm, out_dtype=written)
    assert result["y"].dtype == written
    assert result["x"].dtype == torch.float32
    table = {**TOLERANCES[torch.float32], "y": ROUNDING[written]}
    assert_close(result, case.double().run(way.reference), case, table)


def test_16_bits_in_and_float32_out(device: str, way: Way) -> None:
    case = make_mixed(way, device, torch.bfloat16, torch.float32)
    result = case.run(way.norm, out_dtype=torch.float32)
    assert result["y"].dtype == torch.float32
    assert result["x"].dtype == torch.bfloat16
    table = {**TOLERANCES[torch.bfloat16], "y": TOLERANCES[torch.float32]["y"]}
    assert_close(result, case.double().run(way.reference), case, table)


@pytest.mark.parametrize("written", WRITTEN)
def test_the_same_bits_as_rounded_afterwards(device: str, way: Way, written: torch.dtype) -> None:
    case = make_mixed(way, device, torch.float32, written)
    y = way.norm(**case.parameters(), out_dtype=written)
    assert torch.equal(y, way.norm(**case.parameters()).to(written))


@pytest.mark.parametrize("norm", [norm for norm, _ in (CUMULATIVE, GLOBAL, CHANNELWISE)])
def test_operators_and_graphs_know_it(norm: Callable[..., Tensor]) -> None:
    case = make_case((2, 3, 20))
    operator = getattr(torch.ops.convtasnet, norm.__name__.replace("_layer", "")).default
    leaves = [p.clone().requires_grad_() for p in case.parameters().values()]
    lengths = [None] if norm is global_layer_norm else []
    torch.library.opcheck(operator, (*leaves, *lengths, 1e-8, torch.bfloat16, "auto"))
    torch.compiler.reset()
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    eager, result = (case.run(f, out_dtype=torch.bfloat16) for f in (norm, compiled))
    assert all(torch.equal(result[name], eager[name]) for name in eager)
