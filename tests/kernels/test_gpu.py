"""What only a GPU can show: huge offsets, compiled variants, CUDA graphs, a second device."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from norm_cases import ROUNDING, Case, assert_close, make_case, relative_error

from convtasnet_kernels import cumulative_layer_norm, global_layer_norm, reference, use_backend

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _free_memory() -> None:
    torch.cuda.empty_cache()


def kernels() -> list[Any]:
    from convtasnet_kernels import cumulative, cumulative_backward

    return [
        cumulative._frame_stats_kernel,
        cumulative._scan_kernel,
        cumulative._apply_kernel,
        cumulative_backward._gradient_sums_kernel,
        cumulative_backward._reverse_scan_kernel,
        cumulative_backward._input_gradient_kernel,
    ]


def test_offsets_past_two_to_the_31_in_one_item() -> None:
    # All frames repeat a short pattern whose statistics are known, and the end is compared.
    frames, period = 2**22 + 64, 64
    pattern = torch.randn(512, period, device="cuda").half()
    x = pattern.repeat(1, frames // period)[None].requires_grad_()
    y = cumulative_layer_norm(x)
    d = pattern.double()
    expected = (d - d.mean()) / (d.var(correction=0) + 1e-8).sqrt()
    error = (y[0, :, -64:].double() - expected).abs()
    assert (error <= ROUNDING[torch.half] * expected.abs() + 1e-5).all()
    # The last frames reach none but themselves: n is so large that dx = rstd·dy to 1e-6.
    dy = torch.zeros_like(y)
    dy[:, :, -64:] = 1 + torch.rand(512, 64, device="cuda").half()
    (dx,) = torch.autograd.grad(y, x, dy)
    scaled = dy[0, :, -64:].double() / (d.var(correction=0) + 1e-8).sqrt()
    assert relative_error(dx[0, :, -64:], scaled) <= 1e-3


def test_offsets_past_two_to_the_31_in_a_batch() -> None:
    shape = (8, 512, 2**31 // (8 * 512) + 16)
    x = torch.randn(shape, dtype=torch.half, device="cuda").requires_grad_()
    y = cumulative_layer_norm(x)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    last = x.detach()[7:].requires_grad_()
    y_last = cumulative_layer_norm(last)
    assert torch.equal(y[7:], y_last)
    assert torch.equal(dx[7:], torch.autograd.grad(y_last, last, dy[7:])[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fifty_lengths_compile_few_variants(dtype: torch.dtype) -> None:
    index = torch.cuda.current_device()
    for kernel in kernels():
        kernel.device_caches.clear()
    lengths = [1, 16, *random.Random(0).sample(range(2, 5000), 48)]
    for frames in lengths:
        make_case((2, 48, frames), dtype=dtype, device="cuda").run(cumulative_layer_norm)
    for kernel in kernels():
        assert 1 <= len(kernel.device_caches[index][0]) <= 3, kernel.fn.__name__


def test_replay_in_a_cuda_graph() -> None:
    case = make_case((2, 64, 333), dtype=torch.bfloat16, device="cuda")
    case.run(cumulative_layer_norm)  # compiles
    x = case.x.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static = Case(x, case.weight, case.bias, case.prelu, case.dy).run(cumulative_layer_norm)
    for _ in range(2):
        case.x = torch.randn_like(case.x)
        x.copy_(case.x)
        for value in static.values():
            value.fill_(float("nan"))
        graph.replay()
        expected = case.run(cumulative_layer_norm)
        assert all(torch.equal(static[name], expected[name]) for name in expected)


def test_bits_repeat() -> None:
    case = make_case((8, 512, 1000), dtype=torch.bfloat16, device="cuda")
    first = case.run(cumulative_layer_norm)
    for _ in range(5):
        again = case.run(cumulative_layer_norm)
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_nothing_of_old_memory_reaches_the_result() -> None:
    case = make_case((3, 129, 333), device="cuda")
    expected = case.run(cumulative_layer_norm)
    torch.cuda.empty_cache()
    poison = torch.full((2**22,), float("nan"), device="cuda")
    del poison  # its block is handed out again
    result = case.run(cumulative_layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.parametrize("norm", [cumulative_layer_norm, global_layer_norm])
def test_compiled_equals_eager(norm: Any) -> None:
    torch.compiler.reset()
    compiled = torch.compile(norm, fullgraph=True, dynamic=True)
    for frames in (320, 333):
        case = make_case((2, 64, frames), device="cuda")
        eager, result = case.run(norm), case.run(compiled)
        assert all(relative_error(result[n], eager[n].double()) <= 3e-6 for n in eager)


def test_both_paths_agree() -> None:
    case = make_case((2, 512, 500), mean=3.0, device="cuda")
    expected = case.double().run(reference.cumulative)
    for name in ("torch", "triton"):
        with use_backend(name):
            assert_close(case.run(cumulative_layer_norm), expected, case)


def test_wide_frames() -> None:
    case = make_case((1, 5000, 70), mean=5.0, dtype=torch.bfloat16, device="cuda")
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.multigpu
def test_second_device_while_the_first_is_current() -> None:
    case = make_case((2, 64, 333), device="cuda:1")
    assert torch.cuda.current_device() == 0
    result = case.run(cumulative_layer_norm)
    assert_close(result, case.double().run(reference.cumulative), case)
    assert torch.cuda.current_device() == 0
