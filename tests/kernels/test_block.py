"""Laws of the fused block, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from block_cases import NORMS, Setting, check, expected_of, fused, make_case, run
from norm_cases import INTERPRET
from torch import Tensor

from convtasnet_kernels import backend, block_torch
from convtasnet_kernels.block_op import tcn_block
from convtasnet_kernels.block_parameters import BlockParameters

pytestmark = pytest.mark.usefixtures("exact_products")
SPILLS = 128  # bytes of local memory of a thread: values that stay the same, from the L1


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import block_depthwise as depthwise
    from convtasnet_kernels import (
        block_frame_sums,
        block_normalize,
        block_rows,
        block_statistics,
        lookback,
    )
    from convtasnet_kernels.block_tile import Tile

    for module in (block_frame_sums, block_normalize):
        monkeypatch.setattr(module, "TILES", dict.fromkeys((2, 4), Tile(4, 2, 2, 1, None)))
    monkeypatch.setattr(depthwise, "TILES", dict.fromkeys((2, 4), Tile(2, None, 2, 1, None)))
    monkeypatch.setattr(depthwise, "WHOLE_TILES", dict.fromkeys((2, 4), Tile(4, None, 2, 1, None)))
    monkeypatch.setattr(block_rows, "TILE", (2, 1))
    monkeypatch.setattr(block_statistics, "FRAMES", 8)
    monkeypatch.setattr(block_statistics, "FILL", 8)
    monkeypatch.setattr(block_statistics, "ALONE", 16)
    monkeypatch.setattr(lookback, "GROUP", 2)


SETTINGS = [
    Setting("cumulative", dilation=4, frames=16),
    Setting("global", taps=2, dilation=3, causal=False, frames=17),
    Setting("channelwise", taps=5, dilation=4, causal=False, skip=0, frames=16, lengths=(9, 16)),
    Setting("global", taps=1, residual=False, frames=8, lengths=(3, 8)),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_equals_the_float64_reference(device: str, setting: Setting) -> None:
    torch.manual_seed(0)
    check(make_case(setting, device))


@pytest.mark.parametrize("kind", NORMS)
def test_statistics_of_any_number_of_items(device: str, kind: str) -> None:
    u, slope = torch.randn(7, 5, 16, device=device), torch.tensor([0.25], device=device)
    lengths = torch.tensor([16, 0, 3, 9, 16, 1, 8], device=device)
    names = ("block_torch", "block_forward")
    path = backend.module("tcn_blocks", backend.requested(), u, *names)
    stats = path.statistics(path.frame_sums(u, slope), 5, kind, lengths, 1e-8)
    sums = block_torch.frame_sums(u.double(), slope.double())
    expected = block_torch.statistics(sums, 5, kind, lengths, 1e-8)
    torch.testing.assert_close(stats.double(), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.skipif(INTERPRET, reason="too many for the interpreter, which is slow")
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_norm(device: str, setting: Setting, kind: str) -> None:
    torch.manual_seed(1)
    check(make_case(setting._replace(kind=kind), device, sizes=(2, 4, 70)))


@pytest.mark.skipif(INTERPRET, reason="too many for the interpreter, which is slow")
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("taps", [3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 4, 8, 16, 32, 64, 128])
def test_any_dilation(device: str, dilation: int, taps: int, causal: bool) -> None:
    torch.manual_seed(2)
    setting = Setting("channelwise", taps, dilation, causal, frames=301, lengths=(301, 100))
    check(make_case(setting, device))


@pytest.mark.parametrize("kind", ["cumulative", "channelwise"])
def test_the_past_does_not_feel_the_future(device: str, kind: str) -> None:
    torch.manual_seed(3)
    case = make_case(Setting(kind, dilation=4, frames=16), device, sizes=(1, 2, 4))
    clean = fused(case.x, case.skips, case.parameters, case.setting, None)
    case.x[:, :, 9:] = float("nan")
    poisoned = fused(case.x, case.skips, case.parameters, case.setting, None)
    for before, after in zip(clean, poisoned, strict=True):
        assert torch.equal(before[..., :9], after[..., :9])
        assert after[..., 9:].isnan().all()


def test_padding_has_no_influence(device: str) -> None:
    torch.manual_seed(4)
    setting = Setting("global", dilation=4, causal=False, frames=16, lengths=(11,))
    case = make_case(setting, device, sizes=(1, 2, 4))
    first = run(case)
    case.x[0, :, 11:] = 100.0
    second = run(case)
    for name in ("onward", "sum"):
        assert torch.equal(first[name], second[name])
    for name in BlockParameters._fields[:-2]:  # the last convolution sees x nowhere
        assert torch.equal(first[name], second[name]), name


@pytest.mark.skipif(INTERPRET, reason="too many for the interpreter, which is slow")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", NORMS)
def test_half_precision_costs_a_few_roundings(device: str, kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    setting = Setting(kind, dilation=2, causal=kind != "global", skip=8, frames=200)
    case = make_case(setting, device, dtype, sizes=(2, 16, 64))
    # The roundings push a few values over the kinks, which are low here.
    case.parameters.slope_1.fill_(0.9)
    case.parameters.slope_2.fill_(1.1)
    check(case)
    with torch.autocast(device, dtype):  # of float32 maps, the same
        wide = run(case._replace(x=case.x.float(), skips=case.skips.float()))
    for name, value in run(case).items():
        assert torch.equal(wide[name], value.to(wide[name].dtype)), name


@pytest.mark.parametrize("large", [-1000.0] if INTERPRET else [100.0, -1000.0])
def test_large_means(device: str, large: float) -> None:
    """The statistics of both norms keep the digits that their input has."""
    torch.manual_seed(6)
    case = make_case(Setting("cumulative", dilation=4, frames=16), device, sizes=(1, 2, 4))
    p = case.parameters
    for bias, slope in ((p.bias_in, p.slope_1), (p.bias_taps, p.slope_2)):
        bias += large
        slope.fill_(1.0)
    result, (expected, _) = run(case), expected_of(case)
    for name in ("onward", "sum"):
        error = (result[name].double() - expected[name]).abs().max() / expected[name].abs().max()
        assert error <= abs(large) * 1e-6


@pytest.mark.parametrize("full", [True, False])
def test_opcheck(full: bool) -> None:
    setting = Setting("global", causal=False, skip=2, residual=full, lengths=(24, 5))
    case = make_case(setting)
    leaves = [p.requires_grad_() for p in case.parameters]
    slope = None if full else torch.tensor([0.3], requires_grad=True)
    bias = torch.randn(2, requires_grad=True) if full else None
    arguments = (
        case.x.requires_grad_(), case.skips if full else None, leaves, slope, bias, case.lengths,
        "global", [2], False, full, 1e-8, True, "torch",
    )  # fmt: skip
    torch.library.opcheck(torch.ops.convtasnet.blocks.default, arguments)
    _, _, kept = torch.ops.convtasnet.blocks(*arguments)
    arguments = (
        case.d_onward if full else None, case.d_skips, case.x.detach(),
        [each.detach() for each in kept], [p.detach() for p in leaves],
        None if slope is None else slope.detach(), case.lengths,
        "global", [2], False, "torch",
    )  # fmt: skip
    torch.library.opcheck(torch.ops.convtasnet.blocks_backward.default, arguments)


def test_gradcheck() -> None:
    case = make_case(Setting("cumulative", frames=6), dtype=torch.float64)
    leaves = [p.requires_grad_() for p in (case.x, case.skips, *case.parameters)]
    assert torch.autograd.gradcheck(
        lambda x, skips, *p: fused(x, skips, BlockParameters(*p), case.setting, None), leaves
    )


def test_compiled_equals_eager() -> None:
    torch.compiler.reset()
    case = make_case(Setting("global", causal=False, lengths=(24, 5)))
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    eager, result = run(case), run(case, compiled)
    assert all(torch.equal(result[name], eager[name]) for name in eager)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(2, 24)}, r"x must be .* got \(2, 24\)"),
        ({"kind": "batch"}, "kind must be one of cumulative, .*'batch'"),
        ({"dilation": 0}, "dilation must be at least 1, got 0"),
        ({"skips": torch.zeros(2, 4, 24)}, r"skips must be \(2, 3, 24\), got \(2, 4, 24\)"),
        ({"taps": torch.zeros(5, 3)}, r"taps must be .*\(5, 1, 3\).* got \(5, 3\)"),
        ({"bias_in": torch.zeros(4)}, r"bias_in must be .*\(5,\).* got \(4,\)"),
        ({"lengths": torch.tensor([1, 25])}, r"lengths must lie in \[0, 24\]"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    case = make_case(Setting("cumulative"))
    given: dict[str, Any] = {
        "x": case.x, "skips": case.skips, "parameters": case.parameters, "kind": "cumulative",
        "dilation": 1, "causal": True,
    }  # fmt: skip
    for name, value in changes.items():
        if name in BlockParameters._fields:
            given["parameters"] = case.parameters._replace(**{name: value})
        else:
            given[name] = value
    with pytest.raises(ValueError, match=message):
        tcn_block(**given)


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(
    ("capability", "dtype", "shape", "dilation"),
    [
        (90, torch.bfloat16, (8, 512, 4000), 1),
        (90, torch.bfloat16, (8, 512, 4000), 128),
        (90, torch.float32, (8, 512, 4000), 2),
        (80, torch.float16, (1, 70, 16), 4),
        (100, torch.float32, (1, 3, 8), 8),
    ],
)
def test_every_forward_kernel_compiles(
    capability: int, dtype: torch.dtype, shape: tuple[int, int, int], dilation: int
) -> None:
    pytest.importorskip("triton")
    from compiling import is_vector, local_bytes

    found = launches(dtype, shape, dilation, lengths=dtype != torch.bfloat16)
    assert {launch.name for launch in found} == {
        "_sums_kernel", "_frames_kernel", "_depthwise_kernel",
        "_normalize_kernel", "_take_kernel", "_join_kernel",
    }  # fmt: skip
    for launch in found:
        built = launch.build(capability)
        assert built.asm["cubin"]
        if launch.name != "_frames_kernel":
            assert any(map(is_vector, built.asm["ptx"].splitlines())), launch.name
            assert local_bytes(built) <= SPILLS, launch.name


def launches(
    dtype: torch.dtype, shape: tuple[int, int, int], dilation: int, lengths: bool
) -> list[Any]:
    """What a block launches forward."""
    from compiling import recorded

    from convtasnet_kernels import block_forward

    def meta(*size: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=of, device="meta")

    items, inner, frames = shape
    u, channel, slope = meta(*shape, of=dtype), meta(inner), meta(1)
    count = meta(items, of=torch.int64) if lengths else None
    norm = (u, slope, channel, channel)
    with recorded() as found:
        partial = block_forward.frame_sums(u, slope, channel)
        for kind in ("cumulative", "global"):
            stats = block_forward.statistics(partial, inner, kind, count, 1e-8)
        block_forward.depthwise_norm(
            *norm, stats, meta(inner, 1, 3), channel, dilation, True, slope, channel
        )
        block_forward.normalize(*norm, stats)
        both, part = meta(items, 16, frames, of=dtype), meta(items, 8, frames, of=dtype)
        block_forward.joined_rows(part, None if lengths else part, part, 16)
        block_forward.taken_rows(both, 8, 8, *((channel, slope) if lengths else ()))
    return found


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
def test_the_statistics_of_long_recordings_compile() -> None:
    pytest.importorskip("triton")
    from compiling import recorded

    from convtasnet_kernels import block_backward, block_forward

    partial = torch.empty(3, 1, 2, 40_000, device="meta")
    with recorded() as found:
        stats = block_forward.statistics(partial, 64, "global", None, 1e-8)
        block_backward.gradient_statistics(partial[:2], stats, "global", None, 64)
    assert [launch.name for launch in found] == ["_frames_kernel", "_global_kernel"] * 2
    assert all(launch.build(90).asm["cubin"] for launch in found)


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
def test_few_binaries_serve_many_lengths_and_dilations() -> None:
    pytest.importorskip("triton")
    variants = {
        str(launch)
        for frames in (8, 16, 264, 1000, 4000)
        for dilation in (8, 16, 128)
        for launch in launches(torch.bfloat16, (2, 64, frames), dilation, lengths=True)
    }
    assert len(variants) == 7
