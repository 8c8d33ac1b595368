"""The one place that chooses between the Triton kernels and the PyTorch formulas.

Without a wish, Triton runs on a CUDA device where it can be imported, PyTorch elsewhere.
A wish is ``use_backend(...)`` or, for a whole process, the environment variable
``CONVTASNET_KERNELS=torch|triton``; the context manager wins.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Iterator
from contextvars import ContextVar
from types import ModuleType

import torch

BACKENDS = ("torch", "triton")
ENVIRONMENT_VARIABLE = "CONVTASNET_KERNELS"
AUTO = "auto"

logger = logging.getLogger(__name__)
_wish: ContextVar[str] = ContextVar("convtasnet_kernels_backend", default=AUTO)


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Runs this package's functions inside the block on one backend; nests, and is local to the
    thread or task.

    A compiled function called inside the block follows it, without a recompilation; only its
    backward on a GPU, which autograd runs in a thread of its own, follows the process's default
    (the numbers are the same). The block itself cannot stand inside a compiled function.

    Args:
        name: ``"torch"`` or ``"triton"``. Triton on CPU tensors means its interpreter, and needs
            ``TRITON_INTERPRET=1`` in the environment before the process first imports triton.
            float64 tensors, which have no Triton kernels, use PyTorch all the same and log it.

    Raises:
        ValueError: another name, or ``"triton"`` where triton cannot be imported.

    >>> import torch
    >>> from convtasnet_kernels import cumulative_layer_norm
    >>> with use_backend("torch"):
    ...     cumulative_layer_norm(torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])).shape
    torch.Size([1, 2, 2])
    """
    _check_name(name, "use_backend: name")
    if name == "triton":
        require_triton("use_backend('triton')")
    token = _wish.set(name)
    try:
        yield
    finally:
        _wish.reset(token)


def requested() -> str:
    """The wish of the running thread: ``"torch"``, ``"triton"`` or ``"auto"``.

    A compiled function is told ``"auto"``, so that no choice freezes in its graph (and as older
    compilers cannot read a context variable); ``choose`` looks again when the operator runs.
    """
    return AUTO if torch.compiler.is_compiling() else _wish.get()


def choose(function: str, wish: str, x: torch.Tensor) -> str:
    """Picks the backend of one call and logs, once a process, which path a function takes where.

    Args:
        function: name of the calling function, for the log.
        wish: what ``requested()`` gave where the call was made.
        x: the function's input; its device and dtype decide.

    Returns:
        ``"torch"`` or ``"triton"``.

    Raises:
        ValueError: Triton is wished for and cannot run, or the environment names no backend.
    """
    wish = _wish.get() if wish == AUTO else wish
    source = f"use_backend({wish!r})"
    if wish == AUTO and os.environ.get(ENVIRONMENT_VARIABLE):
        wish = os.environ[ENVIRONMENT_VARIABLE]
        source = f"{ENVIRONMENT_VARIABLE}={wish}"
        _check_name(wish, ENVIRONMENT_VARIABLE)
    if wish == "torch":
        return _use("torch", function, x, source)
    if wish == "triton":
        require_triton(source)
    if x.dtype == torch.float64:
        return _use("torch", function, x, "float64 has no Triton kernel")
    if wish == "triton":
        if not x.is_cuda and not _interpreted():
            raise ValueError(
                f"{source}: x is on {x.device}, Triton compiles for CUDA devices only; move x, "
                "use the torch backend, or set TRITON_INTERPRET=1 before triton is imported"
            )
        return _use("triton", function, x, source)
    if not x.is_cuda:
        return _use("torch", function, x, "default for this device")
    if triton_import_error() is None:
        return _use("triton", function, x, "default for this device")
    return _use("torch", function, x, f"triton cannot be imported: {triton_import_error()}")


def module(
    function: str, wish: str, x: torch.Tensor, torch_path: str, triton_path: str
) -> ModuleType:
    """The module of this package that serves a call: one of two names, by ``choose``.

    The Triton one is imported where it is wanted, so that a machine without triton still works.
    """
    path = torch_path if choose(function, wish, x) == "torch" else triton_path
    return importlib.import_module(f"convtasnet_kernels.{path}")


def runs_in_triton(function: str, x: torch.Tensor) -> bool:
    """Whether a function of x would run in Triton kernels; compiled functions keep the answer.

    >>> runs_in_triton("tcn_blocks", torch.zeros(1, 2, 8, dtype=torch.float64))
    False
    """
    if torch.compiler.is_compiling():
        return _compiled_choice(function, x.device.type, x.dtype)
    return choose(function, requested(), x) == "triton"


@torch.compiler.assume_constant_result
def _compiled_choice(function: str, device: str, dtype: torch.dtype) -> bool:
    x = torch.empty(0, device=device, dtype=dtype)
    return choose(function, AUTO, x) == "triton"


@functools.cache
def triton_import_error() -> str | None:
    """None where triton can be imported, else the reason."""
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return str(error) or type(error).__name__
    return None


def require_triton(source: str) -> None:
    """Raises a ValueError that names ``source``, who asks for triton, where it cannot be had."""
    if triton_import_error() is not None:
        raise ValueError(
            f"{source}: triton cannot be imported ({triton_import_error()}); install triton or "
            "use the torch backend"
        )


def _interpreted() -> bool:
    from convtasnet_kernels import persistent

    return persistent.INTERPRETED


def _check_name(name: str, source: str) -> None:
    if name not in BACKENDS:
        raise ValueError(f"{source} is {name!r}; choose one of {', '.join(BACKENDS)}")


def _use(backend: str, function: str, x: torch.Tensor, reason: str) -> str:
    _log_once(backend, function, x.device.type, reason)
    return backend


@functools.cache
def _log_once(backend: str, function: str, device: str, reason: str) -> None:
    how = backend
    if backend == "triton" and _interpreted():
        how = "triton (interpreter)"
    slow = backend == "torch" and device == "cuda" and reason.startswith("triton cannot")
    level = logging.WARNING if slow else logging.INFO
    logger.log(level, "%s on %s runs on the %s path (%s)", function, device, how, reason)
