"""Checks of arguments that every norm shares; none of them waits for a GPU."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor
from torch.autograd import forward_ad

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_arguments(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, prelu: Tensor | None
) -> None:
    """Raises a ValueError that names the argument and its value unless all fit together.

    Args:
        x: (B, C, T) of a floating dtype; B and T may be 0.
        weight: (C,) or None.
        bias: (C,) or None.
        prelu: one element or None.
    """
    check_tensor("x", x)
    if x.dim() != 3:
        raise ValueError(f"x must be (batch, channels, time), got shape {tuple(x.shape)}")
    if x.dtype not in DTYPES:
        raise ValueError(f"x must be float16, bfloat16, float32 or float64, got {x.dtype}")
    if x.shape[1] == 0:
        raise ValueError(f"x must have at least one channel, got shape {tuple(x.shape)}")
    check_parameter("weight", weight, x.shape[1], x)
    check_parameter("bias", bias, x.shape[1], x)
    check_parameter("prelu", prelu, 1, x)


def check_rows(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """``check_arguments`` for x (..., N), weight (N,) and bias (N,); leading sizes may be 0."""
    check_tensor("x", x)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x must be (..., N) with N > 0, got shape {tuple(x.shape)}")
    if x.dtype not in DTYPES:
        raise ValueError(f"x must be float16, bfloat16, float32 or float64, got {x.dtype}")
    check_parameter("weight", weight, x.shape[-1], x)
    check_parameter("bias", bias, x.shape[-1], x)


def check_eps(eps: float) -> None:
    """Raises a ValueError unless eps is a finite number >= 0: another makes NaN of all values."""
    if not isinstance(eps, int | float) or not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be a finite number >= 0, got {eps!r}")


def check_dtype(name: str, dtype: torch.dtype | None) -> None:
    """Raises a ValueError unless dtype is None or one that the norms take."""
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"{name} must be float16, bfloat16, float32 or float64, got {dtype!r}")


def check_tensor(name: str, value: object) -> None:
    """Raises a ValueError unless the value is a tensor, and one without a forward-mode tangent.

    An operator that has none of these derivatives would be taken for a constant.
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None:
        raise ValueError(f"{name} has a forward-mode tangent: only reverse mode has gradients")


def check_taps(dilation: int, causal: bool) -> None:
    """Raises a ValueError unless the taps of a convolution can lie so."""
    if not isinstance(dilation, Integral):
        raise ValueError(f"dilation must be a whole number, got {dilation!r}")
    if dilation < 1:
        raise ValueError(f"dilation must be at least 1, got {dilation}")
    if not isinstance(causal, bool):  # "no" would count as true
        raise ValueError(f"causal must be True or False, got {causal!r}")


def check_parameter(name: str, value: Tensor | None, size: int, x: Tensor) -> None:
    """Raises a ValueError unless the value is (size,), floating and where x is, or None."""
    if value is None:
        return
    check_tensor(name, value)
    if value.shape != (size,) or value.dtype not in DTYPES:
        raise ValueError(
            f"{name} must be a floating tensor of shape ({size},), "
            f"got {tuple(value.shape)} of {value.dtype}"
        )
    if value.device != x.device:
        raise ValueError(f"{name} is on {value.device}, x on {x.device}: move one of them")


def check_lengths(lengths: Tensor, x: Tensor) -> None:
    """Raises a ValueError unless lengths is (B,) of integers in [0, T].

    The values are read on the CPU only, and not while compiling: on a GPU that would wait for the
    device. There the norms clamp them to [0, T].
    """
    if not isinstance(lengths, Tensor):
        raise ValueError(f"lengths must be a tensor ({x.shape[0]},), got {lengths!r}")
    if lengths.shape != (x.shape[0],):
        raise ValueError(f"lengths must be ({x.shape[0]},), got shape {tuple(lengths.shape)}")
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must hold integers (frames), got {lengths.dtype}")
    if lengths.device.type != "cpu" or torch.compiler.is_compiling() or not lengths.numel():
        return
    if int(lengths.min()) < 0 or int(lengths.max()) > x.shape[2]:
        raise ValueError(f"lengths must lie in [0, {x.shape[2]}], got {lengths.tolist()}")
