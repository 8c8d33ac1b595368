"""What a fused block is given, what it has to give in float64, and how both are compared."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from norm_cases import INTERPRET
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import reference
from convtasnet_kernels.block_op import tcn_block
from convtasnet_kernels.block_parameters import BlockParameters, cast_weights

NORMS = {
    "cumulative": reference.cumulative,
    "global": reference.global_,
    "channelwise": reference.channelwise,
}
MAPS = ("onward", "sum", "x", "skips")
# Relative errors: of float32 products, and of a few roundings of 16 bits.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


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


def wide(p: BlockParameters, dtype: torch.dtype) -> BlockParameters:
    """In float64, of weights as maps of the dtype hold them, with a slope for each channel.

    The gradients of these slopes are the terms of the sum that is one slope's.
    """
    p = BlockParameters(*(value.double() for value in cast_weights([p], dtype)[0]))
    inner = len(p.gamma_1)
    return p._replace(slope_1=p.slope_1.expand(inner), slope_2=p.slope_2.expand(inner))


def expected_of(case: Case) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Float64 reference results, and the sums of the magnitudes that a slope's gradient adds up."""
    p = wide(case.parameters, case.x.dtype)
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
