"""Launches written down instead of run, and compiled for any GPU without having one."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
}


class Launch(NamedTuple):
    """What decides which binary a launch needs.

    Args:
        kernel: a function under ``triton.jit``.
        signature: the type of each argument, by its name.
        constants: the values of those that are compiled in.
        divisible: names of those that are multiples of 16.
        options: the compiler's, such as num_warps.
    """

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    divisible: tuple[str, ...]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__

    def build(self, capability: int) -> Any:
        """Compiles for ``capability``, 90 for sm_90."""
        index = {name: (i,) for i, name in enumerate(self.kernel.arg_names)}
        source = triton.compiler.ASTSource(
            self.kernel,
            self.signature,
            {index[name]: value for name, value in self.constants.items()},
            {index[name]: [["tt.divisibility", 16]] for name in self.divisible},
        )
        target = GPUTarget("cuda", capability, 32)
        return triton.compile(source, target=target, options=self.options)


def describe(kernel: Any, values: dict[str, Any]) -> Launch:
    """A launch with these arguments and options, specialized as Triton does it."""
    signature, constants, divisible = {}, {}, []
    for param in kernel.params:
        value = values.pop(param.name)
        whole = isinstance(value, int) and not param.do_not_specialize
        if param.is_constexpr or value is None or (whole and value == 1):
            signature[param.name], constants[param.name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[param.name] = "*" + TYPES[value.dtype]
            divisible.append(param.name)  # as all memory from PyTorch's allocator
        else:
            signature[param.name] = "fp32" if isinstance(value, float) else "i32"
            if whole and value % 16 == 0:
                divisible.append(param.name)
    return Launch(kernel, signature, constants, tuple(divisible), values)


@contextlib.contextmanager
def recorded() -> Iterator[list[Launch]]:
    """The launches of the block, whose tensors are on the meta device: none of them runs."""
    launches: list[Launch] = []

    def note(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        values = dict(zip(kernel.arg_names, args, strict=False))
        launches.append(describe(kernel, {**values, **kwargs}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", note)
        yield launches


def local_bytes(built: Any) -> int:
    """Local memory of a thread, where registers that do not suffice are spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        usage = subprocess.check_output([tool, "--dump-resource-usage", file.name], text=True)
    stack = re.search(r"STACK:(\d+)", usage)
    assert stack is not None, usage
    return int(stack[1])


def is_vector(line: str) -> bool:
    """Whether a line of PTX reads global memory 16 bytes at a time."""
    return ("ld.global" in line and re.search(r"v4\.[bfu]32|v2\.[bfu]64", line) is not None) or (
        "cp.async" in line and re.search(r"(0x10|16)[,;]", line) is not None
    )
