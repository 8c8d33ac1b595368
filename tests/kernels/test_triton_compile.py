"""Every Triton kernel becomes a real binary for each architecture; no GPU is needed.

The launchers run on the meta device, so that constants, options and types are those of a real
launch; see compiling.py.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections import defaultdict
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from compiling import Launch, is_vector, local_bytes, recorded

import convtasnet_kernels
from convtasnet_kernels import persistent

pytestmark = pytest.mark.skipif(persistent.INTERPRETED, reason="the interpreter compiles nothing")

# Bytes of local memory that a thread may use on sm_90, where registers are spilled to: in the L1,
# some cost less than a second read of the map. Rows that no vector divides take more addresses.
ALIGNED_SPILLS, RAGGED_SPILLS = 320, 1200
# kernels of small inputs, in columns or frame by frame
SMALL = (
    "_sum_rows_kernel",
    "_sum_partials_kernel",
    "_combine_kernel",
    "_scan_kernel",
    "_terms_kernel",
)
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


class Family(NamedTuple):
    """A norm's modules and the shapes to compile it for; others take other ways through its code.

    Args:
        modules: forward, then backward.
        aligned: vectors of 16 bytes divide its rows in every dtype.
        ragged: they do not.
        narrow: the same two with few channels, which compile fast.
        others: shape, dtype and which optional arguments there are (see ``launches``).
    """

    modules: tuple[str, str]
    aligned: tuple[int, ...]
    ragged: tuple[int, ...]
    narrow: tuple[tuple[int, ...], tuple[int, ...]]
    others: tuple[tuple[tuple[int, ...], torch.dtype, str], ...]


FAMILIES = {
    "cumulative": Family(
        ("cumulative", "cumulative_backward"),
        (8, 512, 4000),
        (8, 512, 3999),
        ((8, 64, 4000), (8, 64, 3999)),
        (
            ((8, 64, 3998), BF16, "all"),
            ((2, 512, 1), FP32, "none"),
            ((1, 3, 7), BF16, "none"),
            ((1, 5000, 72), FP32, "all"),
            ((2, 64, 301), FP32, "all"),
        ),
    ),
    "global": Family(
        ("global_", "global_backward"),
        (8, 512, 4000),
        (8, 512, 3999),
        ((8, 64, 4000), (8, 64, 3999)),
        (
            ((1, 3, 7), BF16, "all"),
            ((2, 512, 1), FP32, "none"),
            ((1, 8, 2**24), FP16, "frozen"),
        ),
    ),
    "channelwise": Family(
        ("channelwise", "channelwise_backward"),
        (8, 512, 4000),
        (8, 512, 3999),
        ((8, 64, 4000), (8, 64, 3999)),
        (
            ((1, 3, 7), BF16, "all"),
            ((2, 100, 1), FP32, "none"),
            ((1, 5000, 72), FP32, "all"),
            ((1, 5000, 71), BF16, "none"),
        ),
    ),
    "layer": Family(
        ("layer", "layer_backward"),
        (4096, 4096),
        (4096, 4001),
        ((4096, 512), (4096, 501)),
        (
            ((1, 1), BF16, "all"),
            ((64, 8192), FP32, "all"),
            ((64, 6144), BF16, "all"),
            ((64, 12_000), BF16, "all"),
            ((64, 15_872), FP16, "none"),
            ((64, 40_000), FP32, "all"),
            ((64, 40_001), BF16, "none"),
        ),
    ),
}


def launches(
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    given: str = "all",
    written: torch.dtype | None = None,
) -> list[Launch]:
    """What forward and backward of a norm launch.

    Args:
        name: of the family.
        shape: of x.
        dtype: of x.
        given: which optional arguments: "all", "none", or "frozen", all but without gradients.
        written: dtype of the output, None for x's; not of the layer norm.
    """

    def parameter(size: int, kind: torch.dtype = torch.float32) -> Tensor | None:
        return None if given == "none" else torch.empty(size, dtype=kind, device="meta")

    forward, backward = (
        importlib.import_module(f"convtasnet_kernels.{m}") for m in FAMILIES[name].modules
    )
    x = torch.empty(shape, dtype=dtype, device="meta")
    weight, bias, prelu = (parameter(size) for size in (shape[1], shape[1], 1))
    others = (parameter(shape[0], torch.int64),) if name == "global" else ()
    trained = given == "all"
    with recorded() as found:
        if name == "layer":
            y, stats = forward.forward(x, weight, bias, 1e-5)
            backward.backward(y, x, weight, stats, trained, torch.float32)
        else:
            y, stats = forward.forward(x, weight, bias, prelu, *others, 1e-8, written)
            backward.backward(y, x, weight, prelu, stats, *others, trained, trained)
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("name", FAMILIES)
def test_aligned_rows_are_read_by_16_bytes(name: str, dtype: torch.dtype) -> None:
    for launch in launches(name, FAMILIES[name].aligned, dtype):
        built = launch.build(90)
        assert local_bytes(built) <= ALIGNED_SPILLS, launch.name
        if launch.name not in SMALL:
            assert any(map(is_vector, built.asm["ptx"].splitlines())), launch.name


@pytest.mark.parametrize("name", ["cumulative", "global", "channelwise"])
def test_float32_in_and_16_bits_out(name: str) -> None:
    for launch in launches(name, FAMILIES[name].aligned, FP32, written=BF16):
        if "*bf16" in launch.signature.values():
            built = launch.build(90)
            assert local_bytes(built) == 0, launch.name
            assert any(map(is_vector, built.asm["ptx"].splitlines())), launch.name


@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_rows(name: str) -> None:
    for launch in launches(name, FAMILIES[name].ragged, FP16):
        assert local_bytes(launch.build(90)) <= RAGGED_SPILLS, launch.name


@pytest.mark.parametrize("name", FAMILIES)
def test_optional_arguments_may_be_absent(name: str) -> None:
    aligned, ragged = FAMILIES[name].narrow
    for launch in launches(name, aligned, FP16, "none") + launches(name, ragged, FP32, "frozen"):
        assert launch.build(90).asm["cubin"]


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "given"),
    [(name, *other) for name, family in FAMILIES.items() for other in family.others],
)
def test_other_shapes(name: str, shape: tuple[int, ...], dtype: torch.dtype, given: str) -> None:
    for launch in launches(name, shape, dtype, given):
        assert launch.build(90).asm["cubin"]


@pytest.mark.parametrize("name", FAMILIES)
def test_other_architectures(name: str) -> None:
    aligned, ragged = FAMILIES[name].narrow
    for launch in launches(name, ragged, FP16):
        assert launch.build(80).asm["cubin"]
    for launch in launches(name, aligned, BF16):
        assert launch.build(100).asm["cubin"]


def test_the_table_reaches_all_kernels() -> None:
    reached = {
        launch.kernel
        for name, family in FAMILIES.items()
        for shape in (family.aligned, family.ragged, *(shape for shape, *_ in family.others))
        for launch in launches(name, shape, FP32)
    }
    # Compiled in the tests of their own; a kernel that does nothing.
    apart = ("depthwise", "block_", "masked_decode", "overlap", "pit_si_sdr", "persistent")
    for module in pkgutil.iter_modules(convtasnet_kernels.__path__):
        if not module.name.startswith(apart):
            contents = vars(importlib.import_module(f"convtasnet_kernels.{module.name}"))
            for name, value in contents.items():
                assert not name.endswith("_kernel") or value in reached, (module.name, name)


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16])
@pytest.mark.parametrize("channels", [3, 48, 512, 5000])
@pytest.mark.parametrize("name", FAMILIES)
def test_fifty_lengths_need_few_binaries(name: str, channels: int, dtype: torch.dtype) -> None:
    binaries = defaultdict(set)
    for frames in [1, 16, *random.Random(0).sample(range(2, 5000), 48)]:
        shape = (2 * frames, channels) if name == "layer" else (2, channels, frames)
        for launch in launches(name, shape, dtype):
            binaries[launch.kernel].add(str(launch))
    for kernel, variants in binaries.items():
        assert len(variants) <= 3, kernel.fn.__name__
