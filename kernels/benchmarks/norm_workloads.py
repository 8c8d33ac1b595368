"""What is measured: the maps of each family of norms, and their tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FAMILIES = ("cumulative", "global", "channelwise", "layer")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

Shape = tuple[int, ...]
Map = tuple[Shape, str]  # and its dtype, a key of DTYPES
PAPER: Shape = (8, 512, 4000)  # 8 mixtures of 4 s at 8 kHz in the paper's network
ODD: Shape = (8, 512, 3999)  # rows that are not 16-byte aligned
LARGE: Shape = (32, 512, 4000)
SMALL: Shape = (80, 64, 301)
LONG: Shape = (1, 512, 160_000)
HUGE: Shape = (1, 512, 1_000_000)
ROWS = 4096  # of the layer norm in Triton's tutorial, which takes N = 512·i, i = 2..31
COLUMNS = [512 * i for i in (*range(2, 31, 2), 31)]
SWEEP = [1000, 2000, 4000, 8000, 16_000]  # frames, for the plots

COMPILED_QUICK = {(PAPER, "bf16"), ((ROWS, 4096), "fp16")}


@dataclass(frozen=True)
class Workload:
    """A map to normalize.

    Args:
        family: one of ``FAMILIES``.
        shape: (B, C, T), or (M, N) for the layer norm.
        dtype: a key of ``DTYPES``.
        prelu: whether a PReLU comes first.
        threads: of PyTorch on a CPU; 0 on a GPU.
    """

    family: str
    shape: Shape
    dtype: str
    prelu: bool = False
    threads: int = 0

    @property
    def bytes(self) -> int:
        """Of one pass: one read or one write of the map."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def is_common(self) -> bool:
        """Whether peers are compiled for it unless one asks for all or few; each takes seconds."""
        return self.prelu or self.is_matrix

    @property
    def is_matrix(self) -> bool:
        """(M, N), for the layer norm."""
        return len(self.shape) == 2

    def tensors(self, device: str, parameters: torch.dtype) -> tuple[list[Tensor], Tensor]:
        """Leaves (x, weight, bias and, with a PReLU, its slope), and the gradient of y."""
        torch.manual_seed(0)
        x = torch.randn(self.shape, device=device)
        if self.is_matrix:  # as the tutorial does
            x = 0.5 * x - 2.3
        weight, bias = (torch.rand(self.shape[1], device=device) for _ in range(2))
        leaves = [x.to(DTYPES[self.dtype]), weight.to(parameters), bias.to(parameters)]
        if self.prelu:
            leaves.append(torch.full((1,), 0.25, dtype=parameters, device=device))
        dy = 0.1 * torch.randn(self.shape, device=device).to(DTYPES[self.dtype])
        return [leaf.requires_grad_() for leaf in leaves], dy


def gpu_maps(family: str, quick: bool) -> list[Map]:
    """Maps of a family on a GPU."""
    if family == "layer":
        return [((ROWS, n), "fp16") for n in sizes(family, quick)]
    if quick:
        return [(PAPER, "bf16"), (PAPER, "fp32"), (SMALL, "fp32")]
    known = [*((PAPER, dtype) for dtype in DTYPES), (ODD, "bf16"), (LARGE, "bf16"), (SMALL, "fp32")]
    if family == "cumulative":
        return [*known, (ODD, "fp32"), (LARGE, "fp32"), (LONG, "bf16"), (HUGE, "bf16")]
    return known


def cpu_maps(family: str, quick: bool) -> list[Map]:
    """Maps of a family on a CPU."""
    if family == "layer":
        return [((ROWS, 1024), "fp32")]
    shapes = [SMALL] if quick else [(4, 512, 4000), SMALL]
    return [(shape, dtype) for shape in shapes for dtype in ("fp32", "bf16")]


def workloads(family: str, maps: Sequence[Map], quick: bool, threads: int = 0) -> list[Workload]:
    """Each map with a PReLU in front, if the family knows one, and, unless quick, without."""
    slopes = [False] if family == "layer" else [True] if quick else [False, True]
    return [Workload(family, *each, prelu, threads) for each in maps for prelu in slopes]


def sizes(family: str, quick: bool) -> list[int]:
    """N of the layer norm, T of the others, from small to large."""
    if family == "layer":
        return [1024, 4096, COLUMNS[-1]] if quick else COLUMNS
    return SWEEP[::2] if quick else SWEEP


def sized(family: str, size: int) -> Workload:
    """The map of a plot at one of ``sizes``."""
    if family == "layer":
        return Workload(family, (ROWS, size), "fp16")
    return Workload(family, (*PAPER[:2], size), "bf16", prelu=True)
