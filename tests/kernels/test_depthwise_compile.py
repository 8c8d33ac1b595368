"""The depthwise convolution's kernels compile, into few variants."""

from __future__ import annotations

import random

import pytest
import torch
from depthwise_cases import convolution, taps_case
from norm_cases import INTERPRET


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_kernel_compiles(direction: str, dtype: torch.dtype, capability: int) -> None:
    """Rows that begin inside a vector, by a dilation that does: all the same, whole vectors."""
    pytest.importorskip("triton")
    from compiling import is_vector

    ptx = build_kernel(direction, dtype, capability, (8, 512, 3999), dilation=1).splitlines()
    assert any(map(is_vector, ptx))
    loads = [line for line in ptx if "ld.global" in line and not is_vector(line)]
    assert len(loads) <= 4  # of weight and bias


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("shape", "taps", "dilation"),
    [((8, 512, 4000), 3, 1), ((8, 512, 4000), 3, 128), ((1, 3, 7), 2, 8), ((1, 1, 1), 1, 1)],
)
def test_other_variants_compile(
    direction: str, shape: tuple[int, int, int], taps: int, dilation: int
) -> None:
    pytest.importorskip("triton")
    assert build_kernel(direction, torch.bfloat16, 90, shape, dilation, taps, full=False)


def build_kernel(
    direction: str,
    dtype: torch.dtype,
    capability: int,
    shape: tuple[int, int, int],
    dilation: int,
    taps: int = 3,
    full: bool = True,
) -> str:
    """The PTX of a kernel as its launcher wants it; full: with a bias, or sums for the weights."""
    from compiling import recorded

    from convtasnet_kernels import depthwise

    x = torch.empty(shape, dtype=dtype, device="meta")
    weight, bias = x.new_empty(shape[1], 1, taps).float(), x.new_empty(shape[1]).float()
    with recorded() as launches:
        if direction == "forward":
            depthwise.forward(x, weight, bias if full else None, dilation, True)
        else:
            depthwise.backward(x, x, weight, dilation, True, full)
    built = launches[0].build(capability)
    assert built.asm["cubin"]
    return built.asm["ptx"]


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [48, 3])  # maps of whole vectors, and others
def test_many_lengths_and_dilations_compile_few_variants(channels: int) -> None:
    from convtasnet_kernels import depthwise

    kernels = (depthwise._forward_kernel, depthwise._backward_kernel)
    for kernel in kernels:
        kernel.device_caches.clear()
    for i, frames in enumerate([1, 16, *random.Random(0).sample(range(2, 5000), 48)]):
        taps_case((2, channels, frames), device="cuda").run(convolution(8 << i % 5))
    for kernel in kernels:
        variants = kernel.device_caches[torch.cuda.current_device()][0]
        assert 1 <= len(variants) <= 3, kernel.fn.__name__
