"""Laws of the fused block, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from norm_cases import INTERPRET
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import reference
from convtasnet_kernels.block_op import tcn_block
from convtasnet_kernels.block_parameters import BlockParameters

NORMS = {
    "cumulative": reference.cumulative,
    "global": reference.global_,
    "channelwise": reference.channelwise,
}
SPILLS = 128  # bytes of local memory of a thread: values that stay the same, from the L1
MAPS = ("onward", "sum", "x", "skips")
# Relative errors: of float32 products, and of a few roundings of 16 bits.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import block_forward, block_residual, block_statistics, block_tile

    small = block_tile.Tile(4, 2, 2, 1, None)
    for name in ("SUMS_TILES", "DEPTHWISE_TILES", "NORMALIZE_TILES"):
        monkeypatch.setattr(block_forward, name, {2: small, 4: small})
    for name in ("ADD_TILES", "JOIN_TILES"):
        monkeypatch.setattr(block_residual, name, {2: (2, 1), 4: (2, 1)})
    for module in (block_tile, block_statistics):
        monkeypatch.setattr(module, "CHUNK", 4)
    monkeypatch.setattr(block_statistics, "FRAMES", 8)
    monkeypatch.setattr(block_statistics, "LANES", 2)


class Setting(NamedTuple):
    """What a block is, beside its parameters."""

    kind: str
    taps: int = 3
    dilation: int = 1
    causal: bool = True
    skip: int = 3
    residual: bool = True
    frames: int = 24
    lengths: tuple[int, ...] | None = None


class Case(NamedTuple):
    """Arguments of a block and the gradients of its outputs."""

    setting: Setting
    x: Tensor
    skips: Tensor | None
    parameters: BlockParameters
    lengths: Tensor | None
    d_onward: Tensor
    d_skips: Tensor


def make_case(
    setting: Setting,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    sizes: tuple[int, int, int] | None = None,
) -> Case:
    """Sizes: items, channels outside, channels inside."""
    items, outer, inner = sizes or (1 if INTERPRET and setting.lengths is None else 2, 2, 5)
    kind = torch.float64 if dtype == torch.float64 else torch.float32

    def draw(*shape: int, center: float = 0.0) -> Tensor:
        return (torch.randn(shape, dtype=torch.float64) + center).to(device, kind)

    out = setting.skip + (outer if setting.residual else 0)
    parameters = BlockParameters(
        draw(inner, outer, 1) / outer**0.5, draw(inner), draw(1) / 4, draw(inner), draw(inner),
        draw(inner, 1, setting.taps), draw(inner), draw(1) / 4, draw(inner), draw(inner),
        draw(out, inner, 1) / inner**0.5, draw(out),
    )  # fmt: skip
    x = draw(items, outer, setting.frames).to(dtype)
    skips = draw(items, setting.skip, setting.frames).to(dtype) if setting.skip else None
    lengths = setting.lengths and torch.tensor(setting.lengths, device=device)
    d_skips = draw(items, setting.skip, setting.frames)
    return Case(setting, x, skips, parameters, lengths, draw(*x.shape), d_skips)


def written_out(
    x: Tensor,
    skips: Tensor | None,
    p: BlockParameters,
    setting: Setting,
    lengths: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """The block by its definition; what goes into the PReLUs, with their kinks, is of a dtype."""
    options: dict[str, Any] = {"lengths": lengths} if setting.kind == "global" else {}
    norm = NORMS[setting.kind]
    y = rounded(F.conv1d(x, p.weight_in), dtype) + p.bias_in[:, None]
    y = norm(y, p.gamma_1, p.beta_1, 1e-8, p.slope_1, **options) * valid(x, lengths)
    reach = setting.dilation * (setting.taps - 1)
    left = reach if setting.causal else reach // 2
    y = F.pad(y, (left, reach - left))
    y = F.conv1d(y, p.taps, p.bias_taps, dilation=setting.dilation, groups=y.shape[1])
    y = norm(rounded(y, dtype), p.gamma_2, p.beta_2, 1e-8, p.slope_2, **options)
    y = F.conv1d(y, p.weight_out, p.bias_out)
    if setting.residual:
        x, y = x + y[:, : x.shape[1]], y[:, x.shape[1] :]
    return x, None if skips is None else skips + y


def rounded(y: Tensor, dtype: torch.dtype) -> Tensor:
    """y as the dtype holds it, with the gradient of y."""
    return y + (y.to(dtype).to(y.dtype) - y).detach()


def valid(x: Tensor, lengths: Tensor | None) -> Tensor:
    frames = torch.arange(x.shape[2], device=x.device)
    return frames >= 0 if lengths is None else (frames < lengths[:, None])[:, None]


def fused(
    x: Tensor, skips: Tensor | None, p: BlockParameters, setting: Setting, lengths: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    return tcn_block(
        x, skips, p, setting.kind, setting.dilation, setting.causal, setting.residual,
        lengths=lengths,
    )  # fmt: skip


def run(case: Case, function: Any = fused) -> dict[str, Tensor]:
    """Outputs in the valid frames, and the gradient of each argument under its name."""
    named = {"x": case.x, "skips": case.skips, **case.parameters._asdict()}
    leaves = {name: v.detach().requires_grad_() for name, v in named.items() if v is not None}
    parameters = BlockParameters(*(leaves[name] for name in BlockParameters._fields))
    x, skips = function(leaves["x"], leaves.get("skips"), parameters, case.setting, case.lengths)
    mask = valid(case.x, case.lengths)
    outputs = {"onward": x * mask}
    gradients = [case.d_onward.to(x.dtype)]
    if skips is not None:
        outputs["sum"] = skips * mask
        gradients.append(case.d_skips.to(x.dtype))
    grads = torch.autograd.grad(list(outputs.values()), list(leaves.values()), gradients)
    outputs = {name: y.detach() for name, y in outputs.items()}
    return {**outputs, **dict(zip(leaves, grads, strict=True))}


def expected_of(case: Case) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Float64 reference results, and the sums of the magnitudes that a slope's gradient adds up.

    The products' weights are what the map's dtype holds of them.
    """
    p = BlockParameters(*(p.double() for p in case.parameters.at(case.x.dtype)))
    inner = len(p.gamma_1)
    p = p._replace(slope_1=p.slope_1.expand(inner), slope_2=p.slope_2.expand(inner))
    skips = None if case.skips is None else case.skips.double()
    definition = partial(written_out, dtype=case.x.dtype)
    result = run(case._replace(x=case.x.double(), skips=skips, parameters=p), definition)
    magnitudes = {}
    for name in ("slope_1", "slope_2"):
        magnitudes[name] = float(result[name].abs().sum())
        result[name] = result[name].sum(0, keepdim=True)
    return result, magnitudes


def check(case: Case) -> None:
    """Errors are measured by the largest value, and of a slope, whose sum cancels, by its terms."""
    result = run(case)
    expected, magnitudes = expected_of(case)
    assert result.keys() == expected.keys()
    for name, value in result.items():
        assert value.dtype == (case.x.dtype if name in MAPS else torch.float32), name
        scale = magnitudes.get(name, float(expected[name].abs().max()))
        error = float((value.double() - expected[name]).abs().max()) / scale
        assert error <= TOLERANCES[case.x.dtype], f"{name}: relative error {error:.2e}"


@pytest.fixture(autouse=True)
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32, with which PyTorch computes convolutions on a GPU, has ten bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


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
    arguments = (
        case.x.requires_grad_(), case.skips if full else None, leaves, case.lengths,
        "global", 2, False, full, 1e-8, "torch",
    )  # fmt: skip
    torch.library.opcheck(torch.ops.convtasnet.block.default, arguments)
    _, _, *kept = torch.ops.convtasnet.block(*arguments)
    arguments = (
        case.d_onward if full else None, case.d_skips, case.x.detach(),
        *(each.detach() for each in kept), [p.detach() for p in leaves], case.lengths,
        "global", 2, False, "torch",
    )  # fmt: skip
    torch.library.opcheck(torch.ops.convtasnet.block_backward.default, arguments)


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
        "_sums_kernel", "_frames_kernel", "_statistics_kernel", "_depthwise_kernel",
        "_normalize_kernel", "_add_kernel", "_join_kernel",
    }  # fmt: skip
    for launch in found:
        built = launch.build(capability)
        assert built.asm["cubin"]
        if launch.name not in ("_frames_kernel", "_statistics_kernel"):
            assert any(map(is_vector, built.asm["ptx"].splitlines())), launch.name
            assert local_bytes(built) <= SPILLS, launch.name


def launches(
    dtype: torch.dtype, shape: tuple[int, int, int], dilation: int, lengths: bool
) -> list[Any]:
    """What a block launches forward, and what joins its gradients."""
    from compiling import recorded

    from convtasnet_kernels import block_forward, block_residual

    def meta(*size: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=of, device="meta")

    items, inner, frames = shape
    u, outer = meta(*shape, of=dtype), meta(items, 8, frames, of=dtype)
    channel, slope = meta(inner), meta(1)
    count = meta(items, of=torch.int64) if lengths else None
    norm = (u, slope, channel, channel)
    with recorded() as found:
        partial = block_forward.frame_sums(u, slope, channel)
        stats = block_forward.statistics(partial, u, slope, "cumulative", count, 1e-8, channel)
        block_forward.depthwise_norm(
            *norm, stats, meta(inner, 1, 3), channel, dilation, True, count, slope, channel
        )
        block_forward.normalize(*norm, stats, count)
        both = meta(items, 16, frames, of=dtype)
        block_residual.add_outputs(both, meta(16), outer, outer if lengths else None, True)
        block_residual.join_gradients(outer, outer)
    return [launch for launch in found if launch.name != "_sum_rows_kernel"]


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
