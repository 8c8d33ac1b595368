"""Every Triton kernel becomes a real binary for each architecture; no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
backends = pytest.importorskip("triton.backends.compiler")
cumulative = pytest.importorskip("convtasnet_kernels.cumulative")
cumulative_backward = pytest.importorskip("convtasnet_kernels.cumulative_backward")

MAPS = {"x_ptr", "y_ptr", "dy_ptr", "dx_ptr"}  # of the input's dtype; all else is float32
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SCANS = ("scan", "reverse_scan")
KERNELS = {
    "frame_stats": (cumulative, cumulative._frame_stats_kernel),
    "scan": (cumulative, cumulative._scan_kernel),
    "apply": (cumulative, cumulative._apply_kernel),
    "gradient_sums": (cumulative_backward, cumulative_backward._gradient_sums_kernel),
    "reverse_scan": (cumulative_backward, cumulative_backward._reverse_scan_kernel),
    "input_gradient": (cumulative_backward, cumulative_backward._input_gradient_kernel),
}
pytestmark = pytest.mark.skipif(cumulative.INTERPRETED, reason="the interpreter compiles nothing")


def build(
    kernel: Any,
    constants: dict[str, int | None],
    dtype: str,
    capability: int,
    warps: int,
    aligned: bool = True,
) -> Any:
    """Compiles a kernel as its launcher would; ``aligned``: for a T that is a multiple of 16."""
    signature, constexprs, attributes = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], constexprs[(i,)] = "constexpr", constants[name]
            continue
        if name.endswith("_ptr"):
            signature[name] = f"*{dtype}" if name in MAPS else "*fp32"
        else:
            signature[name] = "fp32" if name == "eps" else "i32"
        if name.endswith("_ptr") or (name == "T" and aligned):
            attributes[(i,)] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, constexprs, attributes)
    return triton.compile(
        source, target=backends.GPUTarget("cuda", capability, 32), options={"num_warps": warps}
    )


def constants(name: str, dtype: str, channels: int = 512) -> tuple[dict[str, int | None], int]:
    """The constants that the launcher gives the kernel, and its number of warps."""
    module, _ = KERNELS[name]
    if name in SCANS:
        return {"C": channels, "BLOCK": module.SCAN_BLOCK}, module.SCAN_WARPS
    x = torch.empty((1, channels, 1), dtype=DTYPES[dtype], device="meta")
    tile = module.tile_sizes(x, module.TILES)
    return tile, tile.pop("num_warps")


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_compiles(name: str, dtype: str, capability: int) -> None:
    if name in SCANS and dtype != "fp32":
        pytest.skip("the scans see float32 statistics only")
    fixed, warps = constants(name, dtype)
    built = build(KERNELS[name][1], fixed, dtype, capability, warps)
    assert built.asm["cubin"]
    # Rows are read 16 bytes at a time: the divisibility of T reaches the loads.
    assert "v4.b32" in built.asm["ptx"]


@pytest.mark.parametrize("name", KERNELS)
def test_other_variants_compile(name: str) -> None:
    """One frame; a ragged length with one channel and no optional argument."""
    fixed, warps = constants(name, "bf16")
    assert build(KERNELS[name][1], {**fixed, "T": 1}, "bf16", 90, warps).asm["cubin"]
    fixed, warps = constants(name, "bf16", channels=1)
    absent = dict.fromkeys(("weight_ptr", "bias_ptr", "prelu_ptr", "partial_ptr"))
    built = build(KERNELS[name][1], {**absent, **fixed}, "bf16", 90, warps, aligned=False)
    assert built.asm["cubin"]
