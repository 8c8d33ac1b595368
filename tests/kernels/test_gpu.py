"""What only a GPU can show, for every norm: huge offsets, compiled variants, CUDA graphs, streams,
other devices, and lengths that the interpreter cannot reach.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from norm_cases import ROUNDING, Case, assert_close, make_case, relative_error
from torch import Tensor

from convtasnet_kernels import (
    channelwise_layer_norm,
    cumulative_layer_norm,
    global_layer_norm,
    layer_norm,
    reference,
    use_backend,
)

pytestmark = pytest.mark.gpu


def layer(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """The layer norm's kernels on the rows of (B, C, T) with the channels last: as channelwise."""
    return layer_norm(x.transpose(1, 2), weight, bias, 1e-8).transpose(1, 2)


class Norm(NamedTuple):
    function: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    modules: tuple[str, ...]  # with its kernels
    slope: float | None = 0.25  # of the PReLU in front, None where the norm takes none

    def case(self, shape: tuple[int, int, int], **options: Any) -> Case:
        return make_case(shape, **{"device": "cuda", "slope": self.slope, **options})

    def kernels(self) -> list[Any]:
        modules = [importlib.import_module(f"convtasnet_kernels.{name}") for name in self.modules]
        return [k for m in modules for name, k in vars(m).items() if name.endswith("_kernel")]


NORMS = {
    "cumulative": Norm(
        cumulative_layer_norm,
        reference.cumulative,
        (
            *("cumulative", "cumulative_item", "cumulative_rows"),
            *("cumulative_backward", "cumulative_item_backward", "cumulative_rows_backward"),
            "partials",
        ),
    ),
    "global": Norm(
        global_layer_norm,
        reference.global_,
        ("global_", "global_backward", "global_tile", "partials"),
    ),
    "channelwise": Norm(
        channelwise_layer_norm,
        reference.channelwise,
        ("channelwise", "channelwise_backward", "channelwise_wide", "partials"),
    ),
    "layer": Norm(
        layer, reference.channelwise, ("layer", "layer_backward", "partials"), slope=None
    ),
}


@pytest.fixture(params=NORMS)
def norm(request: pytest.FixtureRequest) -> Norm:
    return NORMS[request.param]


@pytest.fixture(autouse=True)
def _free_memory() -> None:
    torch.cuda.empty_cache()


@pytest.fixture
def _much_memory() -> None:
    if torch.cuda.get_device_properties(0).total_memory < 44e9:
        pytest.skip("seven maps of 4.3 GB do not fit")


def assert_equal(result: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        assert torch.equal(result[name], value), name


@pytest.mark.usefixtures("_much_memory")
@pytest.mark.parametrize("norm", ["cumulative", "global"], indirect=True)
def test_offsets_past_two_to_the_31_in_one_item(norm: Norm) -> None:
    # All frames repeat a short pattern whose statistics are known, and the end is compared.
    frames, period = 2**22 + 64, 64
    pattern = torch.randn(512, period, device="cuda").half()
    x = pattern.repeat(1, frames // period)[None].requires_grad_()
    y = norm.function(x)
    d = pattern.double()
    expected = (d - d.mean()) / (d.var(correction=0) + 1e-8).sqrt()
    error = (y[0, :, -64:].double() - expected).abs()
    assert (error <= ROUNDING[torch.half] * expected.abs() + 1e-5).all()
    # The last frames reach hardly any but themselves: n is so large that dx = rstd·dy to 1e-6.
    dy = torch.zeros_like(y)
    dy[:, :, -64:] = 1 + torch.rand(512, 64, device="cuda").half()
    (dx,) = torch.autograd.grad(y, x, dy)
    scaled = dy[0, :, -64:].double() / (d.var(correction=0) + 1e-8).sqrt()
    assert relative_error(dx[0, :, -64:], scaled) <= 1e-3


@pytest.mark.usefixtures("_much_memory")
@pytest.mark.parametrize("norm", ["channelwise", "layer"], indirect=True)
def test_offsets_past_two_to_the_31_frame_by_frame(norm: Norm) -> None:
    shape = (1, 512, 2**22 + 64)
    x, dy = (torch.randn(shape, dtype=torch.half, device="cuda") for _ in range(2))
    result = Case(x, None, None, None, dy).run(norm.function)
    last = Case(x[:, :, -64:], None, None, None, dy[:, :, -64:])
    ends = {name: value[:, :, -64:] for name, value in result.items()}
    assert_close(ends, last.double().run(norm.reference), last)


@pytest.mark.usefixtures("_much_memory")
def test_offsets_past_two_to_the_31_in_a_batch(norm: Norm) -> None:
    shape = (8, 512, 2**31 // (8 * 512) + 16)
    x, dy = (torch.randn(shape, dtype=torch.half, device="cuda") for _ in range(2))
    result = Case(x, None, None, None, dy).run(norm.function)
    last = Case(x[7:], None, None, None, dy[7:]).run(norm.function)
    assert_equal({name: value[7:] for name, value in result.items()}, last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("norm", "channels", "longest"),
    [
        ("cumulative", 48, 5000),
        ("global", 48, 5000),
        ("channelwise", 48, 5000),
        ("channelwise", 4100, 300),
        ("layer", 48, 5000),
    ],
    indirect=["norm"],
)
def test_fifty_lengths_compile_few_variants(
    norm: Norm, channels: int, longest: int, dtype: torch.dtype
) -> None:
    kernels = norm.kernels()
    for kernel in kernels:
        kernel.device_caches.clear()
    for frames in [1, 16, *random.Random(0).sample(range(2, longest), 48)]:
        norm.case((2, channels, frames), dtype=dtype).run(norm.function)
    device = torch.cuda.current_device()
    variants = {k: len(k.device_caches[device][0]) for k in kernels if device in k.device_caches}
    assert len(variants) >= 3  # forward, backward and the sum of the partial gradients
    for kernel, count in variants.items():
        assert 1 <= count <= 3, kernel.fn.__name__


def test_replay_in_a_cuda_graph(norm: Norm) -> None:
    case = norm.case((2, 64, 333), dtype=torch.bfloat16)
    case.run(norm.function)  # compiles
    x = case.x.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static = Case(x, case.weight, case.bias, case.prelu, case.dy).run(norm.function)
    for _ in range(2):
        case.x = torch.randn_like(case.x)
        x.copy_(case.x)
        for value in static.values():
            value.fill_(float("nan"))
        graph.replay()
        assert_equal(static, case.run(norm.function))


@pytest.mark.parametrize("frames", [1000, 999])
def test_bits_repeat(norm: Norm, frames: int) -> None:
    case = norm.case((8, 512, frames), dtype=torch.bfloat16)
    first = case.run(norm.function)
    for _ in range(5):
        assert_equal(case.run(norm.function), first)


def test_nothing_of_old_memory_reaches_the_result(norm: Norm) -> None:
    case = norm.case((3, 129, 333))
    expected = case.run(norm.function)
    torch.cuda.empty_cache()
    # Blocks of both of the allocator's pools, which it hands out again.
    poison = [torch.full((n,), float("nan"), device="cuda") for n in [2**22] * 4 + [2**17] * 64]
    del poison
    assert_equal(case.run(norm.function), expected)


def test_two_streams_at_once(norm: Norm) -> None:
    cases = [norm.case((4, 512, frames)) for frames in (3000, 2999)]
    expected = [case.run(norm.function) for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda._sleep(20_000_000)  # so that what is queued meanwhile starts together
    results = []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(4):
        for case, stream in zip(cases, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(case.run(norm.function))
    torch.cuda.synchronize()
    for i, result in enumerate(results):
        assert_equal(result, expected[i % 2])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0])
def test_programs_that_wait_for_each_other_end(norm: Norm, value: float) -> None:
    """Sums that are zero or not a number are published like all others."""
    case = norm.case((2, 16, 40_000))
    clean = case.run(norm.function)
    case.x[0] = value
    result = case.run(norm.function)
    for name in ("y", "x"):
        assert torch.equal(result[name][1], clean[name][1]), name
        bad = result[name][0].isfinite() if value == 0 else result[name][0].isnan()
        assert bad.all(), name


def test_compiled_equals_eager_for_two_lengths(norm: Norm) -> None:
    torch.compiler.reset()
    compiled = torch.compile(norm.function, fullgraph=True, dynamic=True)
    for frames in (320, 333):
        case = norm.case((2, 64, frames))
        eager = case.run(norm.function)
        assert_equal(case.run(compiled), eager)
        with torch.inference_mode():
            assert torch.equal(compiled(**case.parameters()), eager["y"])


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_both_paths_agree(norm: Norm, backend: str) -> None:
    case = norm.case((2, 512, 500), mean=3.0)
    with use_backend(backend):
        assert_close(case.run(norm.function), case.double().run(norm.reference), case)


@pytest.mark.multigpu
def test_second_device_while_the_first_is_current(norm: Norm) -> None:
    case = norm.case((2, 64, 333), device="cuda:1")
    assert torch.cuda.current_device() == 0
    assert_close(case.run(norm.function), case.double().run(norm.reference), case)
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cumulative_norm_of_wide_frames(dtype: torch.dtype) -> None:
    case = make_case((1, 5000, 70), mean=5.0, dtype=dtype, device="cuda")
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("shape", [(2, 64, 30_000), (1, 64, 1_000_000)])
def test_cumulative_norm_of_many_groups_of_tiles(shape: tuple[int, int, int]) -> None:
    case = make_case(shape, mean=1.0, device="cuda")
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("channels", [1, 2])
def test_cumulative_norm_keeps_its_digits_for_hours(channels: int) -> None:
    case = make_case((1, channels, 10_000_000), mean=1.0, device="cuda")
    result, expected = case.run(cumulative_layer_norm), case.double().run(reference.cumulative)
    for name in ("y", "x"):
        assert relative_error(result[name], expected[name]) <= 1e-6, name
