"""How the Triton kernels that keep their input in registers get by with few of them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def again(x, sums):
    """The tile x in float32 once more, out of its 16-bit registers, behind the sums of it.

    Else the compiler keeps the float32 copies alive meanwhile, which take twice the registers.

    Args:
        x: a tile as it was loaded.
        sums: float32, of a shape that broadcasts to x's; where they are not finite, nor is x.
    """
    if x.dtype.primitive_bitwidth == 16:
        # A zero that no compiler can foresee; positive, as the interpreter adds bfloat16's bits.
        x = x + tl.abs(sums * 0.0).to(x.dtype)
    return x.to(tl.float32)
