"""The fused block's backward kernels become real binaries for each architecture, without a GPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from compiling import Launch, is_vector, local_bytes, recorded

from convtasnet_kernels import block_backward, persistent

pytestmark = pytest.mark.skipif(persistent.INTERPRETED, reason="the interpreter compiles nothing")

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
SPILLS = 64  # bytes of local memory a thread, for 16 warps on a multiprocessor
MAPS = ("_gradient_sums_kernel", "_norm_gradient_kernel", "_depthwise_gradient_kernel")


def launches(
    dtype: torch.dtype,
    shape: tuple[int, int, int] = (8, 512, 4000),
    kind: str = "cumulative",
    dilation: int = 1,
    causal: bool = True,
    with_lengths: bool = False,
    with_bias: bool = True,
    taps: int = 3,
) -> list[Launch]:
    """What the backward steps of a norm and of the taps before it launch."""
    items, channels, frames = shape
    u = torch.empty(shape, dtype=dtype, device="meta")
    norm = [u.new_empty(n, dtype=FP32) for n in (1, channels)]
    beta, stats = norm[1], u.new_empty((2, items, frames), dtype=FP32)
    weight = u.new_empty((channels, 1, taps), dtype=FP32)
    lengths = u.new_empty((items,), dtype=torch.int64) if with_lengths else None
    bias = beta if with_bias else None
    with recorded() as found:
        partial = block_backward.norm_gradient_sums(u, u, *norm, stats, lengths)
        coeff = block_backward.gradient_statistics(partial, stats, kind, lengths, channels)
        norm_step = (u, u, *norm, beta, stats, coeff, lengths, not with_lengths, bias)
        *_, rows = block_backward.norm_gradient(*norm_step)
        taps_step = (u, u, *norm, beta, stats, weight, dilation, causal, lengths, bias)
        _, taps_rows, _ = block_backward.depthwise_gradient(*taps_step)
        block_backward.parameter_gradients(rows, taps_rows, rows)
        block_backward.joined_gradients(None, u, u, 2 * channels)
        behind = (u.repeat(1, 2, 1), beta.repeat(2), norm[0])
        block_backward.joined_gradients(None, u, u, 2 * channels, *behind)
    return found


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_maps_are_read_by_16_bytes(dtype: torch.dtype) -> None:
    for launch in launches(dtype):
        built = launch.build(90)
        assert local_bytes(built) <= SPILLS, launch.name
        if launch.name in MAPS:
            assert any(map(is_vector, built.asm["ptx"].splitlines())), launch.name


def test_lengths_and_whole_vectors_between_taps() -> None:
    for launch in launches(BF16, kind="global", dilation=16, causal=False, with_lengths=True):
        assert local_bytes(launch.build(90)) <= SPILLS, launch.name


@pytest.mark.parametrize("capability", [80, 100])
def test_other_architectures(capability: int) -> None:
    for launch in launches(
        FP16, (2, 5, 40), "channelwise", taps=2, with_lengths=True, with_bias=False
    ):
        assert launch.build(capability).asm["cubin"]


def test_many_lengths_and_dilations_share_binaries() -> None:
    variants: dict[str, set[str]] = {}
    for frames in (8, 16, 24, 4000, 4008, 160_000):
        for dilation in (8, 16, 128):
            for launch in launches(BF16, (3, 512, frames), dilation=dilation):
                variants.setdefault(launch.name, set()).add(str(launch))
    for name, found in variants.items():
        assert len(found) <= 2, name
