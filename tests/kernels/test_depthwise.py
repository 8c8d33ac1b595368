"""Laws of the depthwise convolution, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

import pytest
import torch
from depthwise_cases import check, convolution, reference, taps_case
from norm_cases import INTERPRET, ROUNDING, Case, assert_close, relative_error
from torch import Tensor

from convtasnet_kernels import depthwise_conv

ITEMS, CHANNELS = (1, 1) if INTERPRET else (2, 3)  # the interpreter is slow


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import depthwise

    for table in (depthwise.FORWARD_TILES, depthwise.BACKWARD_TILES):
        for size in table:
            monkeypatch.setitem(table, size, (8, 1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("frames", [40, 37])  # rows that begin with a vector, or inside one
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 7])
def test_equals_the_float64_reference(device: str, taps: int, frames: int, causal: bool) -> None:
    check(taps_case((ITEMS, CHANNELS, frames), taps, device=device), 3, causal)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("frames", [40, 43])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4, 5, 8, 16, 32, 64, 128])
def test_any_dilation(device: str, dilation: int, frames: int, causal: bool) -> None:
    """The taps of the largest see zeros only, most of them."""
    if INTERPRET and dilation in (16, 32, 64):
        pytest.skip("as 8 for the interpreter, which is slow")
    frames = frames if INTERPRET else 10 * frames
    check(taps_case((ITEMS, CHANNELS, frames), device=device), dilation, causal)


@pytest.mark.parametrize("dilation", [8, 12])
@pytest.mark.parametrize("taps", [2, 4])
def test_even_kernels_reach_further_ahead(device: str, taps: int, dilation: int) -> None:
    check(taps_case((ITEMS, 2, 56), taps, device=device), dilation)


@pytest.mark.parametrize("dilation", [1, 8])
@pytest.mark.parametrize("frames", [1, 2, 7, 8, 9, 33, 1000, 4097, 30000])
def test_any_length(device: str, frames: int, dilation: int) -> None:
    if INTERPRET and frames > 33:
        pytest.skip("too slow in the interpreter")
    check(taps_case((ITEMS, 2, frames), device=device), dilation)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 8, 5), (2, 4, 7), (1, 3, 35), (1, 1, 24)])
def test_rows_that_share_vectors(
    device: str, shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    if INTERPRET and dtype == torch.float32:
        pytest.skip("the longer vectors are enough for the interpreter, which is slow")
    check(taps_case(shape, dtype=dtype, device=device), 2, causal=True)


def test_without_bias(device: str) -> None:
    case = taps_case((ITEMS, 3, 37), device=device)
    case.bias = None
    check(case, 2)


@pytest.mark.parametrize("dilation", [1, 16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_costs_one_rounding(device: str, dtype: torch.dtype, dilation: int) -> None:
    case = taps_case((ITEMS, 2, 75), dtype=dtype, device=device)
    result = case.run(convolution(dilation))
    expected = case.double().run(reference(dilation))
    assert result["y"].dtype == result["x"].dtype == dtype
    assert result["weight"].dtype == result["bias"].dtype == torch.float32
    for name in ("y", "x"):
        error = (result[name].double() - expected[name]).abs()
        floor = 1e-6 * expected[name].abs().max()
        assert (error <= ROUNDING[dtype] * expected[name].abs() + floor).all(), name
    assert_close(result, expected, case)


def test_half_precision_parameters_get_gradients_of_their_dtype(device: str) -> None:
    case = taps_case((ITEMS, 2, 33), dtype=torch.bfloat16, device=device)
    case.weight, case.bias = case.weight.bfloat16(), case.bias.bfloat16()
    result = case.run(convolution(4))
    assert result["weight"].dtype == result["bias"].dtype == torch.bfloat16
    assert_close(result, case.double().run(reference(4)), case, 2**-7)


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
@pytest.mark.parametrize("dilation", [1, 3, 8])
def test_the_past_does_not_feel_the_future(device: str, dilation: int, poison: float) -> None:
    case = taps_case((ITEMS, 1, 43), device=device)
    clean = depthwise_conv(case.x, case.weight, case.bias, dilation, causal=True)
    case.x[:, :, 20:] = poison
    poisoned = depthwise_conv(case.x, case.weight, case.bias, dilation, causal=True)
    assert torch.equal(poisoned[:, :, :20], clean[:, :, :20])
    assert not poisoned[:, :, 20:].isfinite().any()


@pytest.mark.parametrize("dilation", [1, 8])
@pytest.mark.parametrize("frames", [40, 43])
def test_channels_do_not_feel_each_other(device: str, frames: int, dilation: int) -> None:
    case = taps_case((ITEMS, 3, frames), device=device)
    clean = case.run(convolution(dilation))
    case.x[:, 1], case.dy[:, 1] = float("nan"), float("nan")
    poisoned = case.run(convolution(dilation))
    for name, axis in (("y", 1), ("x", 1), ("weight", 0), ("bias", 0)):
        for c in (0, 2):
            one, other = poisoned[name].select(axis, c), clean[name].select(axis, c)
            assert torch.equal(one, other), name
        assert poisoned[name].select(axis, 1).isnan().all(), name


def test_strides_do_not_matter(device: str) -> None:
    case = taps_case((ITEMS, 2, 33), device=device)
    expected = case.run(convolution(2))
    case.x = case.x.transpose(1, 2).contiguous().transpose(1, 2)
    case.dy = case.dy.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    case.weight = case.weight.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    result = case.run(convolution(2))
    assert all(torch.equal(result[name], expected[name]) for name in expected)
    assert result["y"].is_contiguous()


@pytest.mark.parametrize("dilation", [1, 8])
def test_a_map_that_begins_inside_a_vector(device: str, dilation: int) -> None:
    case = taps_case((ITEMS, 3, 40), device=device)
    flat = torch.cat((torch.full((1,), float("nan"), device=device), case.x.flatten()))
    case.x = flat[1:].view(case.x.shape)
    check(case, dilation)


def test_expanded_input_and_gradient(device: str) -> None:
    case = taps_case((1, 2, 33), device=device)
    case.x = case.x.expand(2, 2, 33)
    case.dy = torch.ones((), device=device).expand(2, 2, 33)
    check(case)


@pytest.mark.parametrize("shape", [(0, 4, 7), (2, 4, 0)])
def test_empty_input(device: str, shape: tuple[int, int, int]) -> None:
    result = taps_case(shape, device=device).run(convolution(8))
    assert result["y"].shape == result["x"].shape == shape
    assert result["weight"].shape == (4, 1, 3)
    assert all((result[name] == 0).all() for name in ("weight", "bias"))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = taps_case((ITEMS, 2, 33), device=device)
    expected = case.run(convolution(2))[wanted]
    arguments = case.parameters()
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    convolution(2)(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)
    assert all(p.grad is None for name, p in arguments.items() if name != wanted)


def test_bits_repeat_and_items_are_independent(device: str) -> None:
    case = taps_case((2, 3, 45), device=device)
    first, second = case.run(convolution(4)), case.run(convolution(4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    for b in range(2):
        one = Case(case.x[b : b + 1], case.weight, case.bias, None, case.dy[b : b + 1])
        alone = one.run(convolution(4))
        assert torch.equal(alone["y"][0], first["y"][b])
        assert torch.equal(alone["x"][0], first["x"][b])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, dtype: torch.dtype) -> None:
    case = taps_case((ITEMS, 2, 33), dtype=dtype, device=device)
    expected = case.run(convolution(2))
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(convolution(2))
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_float64_takes_the_torch_path(device: str) -> None:
    check(taps_case((ITEMS, 3, 33), dtype=torch.float64, device=device), 8, causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("full", [True, False])
def test_opcheck(full: bool, dtype: torch.dtype) -> None:
    case = taps_case((2, 3, 20), dtype=dtype)
    bias = case.bias if full else None
    leaves = [p if p is None else p.clone().requires_grad_() for p in (case.x, case.weight, bias)]
    ops = torch.ops.convtasnet
    torch.library.opcheck(ops.depthwise_conv.default, (*leaves, 2, full, "auto"))
    arguments = (case.dy, case.x, case.weight, 2, full, full, "auto")
    torch.library.opcheck(ops.depthwise_conv_backward.default, arguments)


@pytest.mark.parametrize("causal", [True, False])
def test_gradcheck(causal: bool) -> None:
    case = taps_case((2, 3, 6), dtype=torch.float64)
    leaves = [p.requires_grad_() for p in (case.x, case.weight, case.bias)]
    assert torch.autograd.gradcheck(lambda x, w, b: depthwise_conv(x, w, b, 2, causal), leaves)


def test_compiled_equals_eager_for_two_lengths() -> None:
    torch.compiler.reset()
    function = convolution(2)
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for frames in (40, 57):
        case = taps_case((2, 4, frames))
        eager, result = case.run(function), case.run(compiled)
        assert all(torch.equal(result[name], eager[name]) for name in eager)
        with torch.inference_mode():
            assert torch.equal(compiled(**case.parameters()), eager["y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(4, 5)}, r"x must be .* got shape \(4, 5\)"),
        ({"x": torch.zeros(2, 4, 5, dtype=torch.long)}, "x must be float16.*int64"),
        ({"weight": torch.ones(4, 3)}, r"weight must be .* \(4, 1, taps\), got \(4, 3\)"),
        ({"weight": torch.ones(3, 1, 3)}, r"weight must be .* got \(3, 1, 3\)"),
        ({"weight": torch.ones(4, 1, 0)}, r"weight must be .* got \(4, 1, 0\)"),
        ({"weight": torch.ones(4, 1, 3).int()}, "weight must be a floating tensor.*int32"),
        ({"weight": torch.ones(4, 1, 3, device="meta")}, "weight is on meta, x on cpu"),
        ({"bias": torch.ones(1, 4)}, r"bias must be .* \(4,\), got \(1, 4\)"),
        ({"dilation": 0}, "dilation must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        depthwise_conv(**{"x": torch.zeros(2, 4, 5), "weight": torch.ones(4, 1, 3), **arguments})


@pytest.mark.gpu
def test_offsets_past_two_to_the_31() -> None:
    torch.cuda.empty_cache()
    shape = (1, 512, 2**22 + 64)
    case = Case(
        torch.randn(shape, dtype=torch.half, device="cuda"),
        torch.randn(512, 1, 3, device="cuda"),
        torch.randn(512, device="cuda"),
        None,
        torch.randn(shape, dtype=torch.half, device="cuda"),
    )
    result = case.run(convolution(4))
    last = Case(case.x[:, 511:], case.weight[511:], case.bias[511:], None, case.dy[:, 511:])
    for name, value in last.run(convolution(4)).items():
        if name in ("y", "x"):
            assert torch.equal(result[name][:, 511:], value), name
        else:  # sums over another number of programs
            assert relative_error(result[name][511:], value.double()) <= 2e-6, name


@pytest.mark.gpu
@pytest.mark.parametrize("frames", [4000, 3999])
def test_replay_in_a_cuda_graph(frames: int) -> None:
    case = taps_case((2, 64, frames), dtype=torch.bfloat16, device="cuda")
    case.run(convolution(2))  # compiles
    x = case.x.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static = Case(x, case.weight, case.bias, None, case.dy).run(convolution(2))
    for _ in range(2):
        case.x = torch.randn_like(case.x)
        x.copy_(case.x)
        for value in static.values():
            value.fill_(float("nan"))
        graph.replay()
        expected = case.run(convolution(2))
        assert all(torch.equal(static[name], expected[name]) for name in expected)


@pytest.mark.multigpu
def test_second_device_while_the_first_is_current() -> None:
    assert torch.cuda.current_device() == 0
    check(taps_case((2, 64, 333), device="cuda:1"), 2)
    assert torch.cuda.current_device() == 0
