"""One training step of a separator, and what it costs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from convtasnet.flat_adam import join_updates
from convtasnet.flat_clip import clipped_as_one
from convtasnet.graphed_loss import GraphedLoss, LossOfBatch
from convtasnet.losses import pit_loss
from convtasnet_kernels.timing.stopwatch import event_time, graph_time, wall_time

# What torch.set_float32_matmul_precision takes, and whether bfloat16 autocast is on.
PRECISIONS = {"fp32": ("highest", False), "tf32": ("high", False), "bf16": ("high", True)}
MODES = ("eager", "graph", "compiled", "reduce-overhead")
COMPILED = {"compiled": "default", "reduce-overhead": "reduce-overhead"}  # modes of torch.compile
# By the stopwatch; what is not runs as it is, with graphs of its own or without any.
CAPTURED_STEPS, CAPTURED_FORWARDS = ("compiled",), ("graph", "compiled")
LEARNING_RATE, MAX_NORM = 1e-3, 5.0
REPLAYS = 10  # of a step, at least


@dataclass(frozen=True)
class Variant:
    """What is measured.

    Args:
        model: a name, such as "ours".
        experiment: "causal" or "noncausal".
        precision: a key of ``PRECISIONS``.
        mode: one of ``MODES``.
        batch: items.
        seconds: length of each.
    """

    model: str
    experiment: str
    precision: str
    mode: str
    batch: int
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """Medians of a variant.

    Args:
        variant: what was measured.
        step_ms: milliseconds of a training step.
        forward_ms: milliseconds of a forward pass without gradients.
        peak_gib: most memory that tensors held at once, weights and Adam's state included, from
            the first step on; None on a CPU.
    """

    variant: Variant
    step_ms: float
    forward_ms: float
    peak_gib: float | None

    @property
    def audio_seconds(self) -> float:
        """Seconds of audio that training takes in a second."""
        return 1e3 * self.variant.batch * self.variant.seconds / self.step_ms


@dataclass(frozen=True)
class Failure:
    """A variant that could not be measured, and why."""

    variant: Variant
    reason: str

    def __str__(self) -> str:
        v = self.variant
        size = f"{v.batch} × {v.seconds:g} s"
        return f"{v.model}, {v.experiment}, {v.precision}, {v.mode}, {size}: {self.reason}"


class TrainingStep:
    """Forward, PIT SI-SDR loss, backward, clipping and Adam, on noise, as ``train.py`` does it.

    Nothing in it waits for the GPU, so that a CUDA graph can hold all of it.

    Args:
        model: a separator with ``n_src`` and ``sample_rate``, on the device to be used.
        batch: items.
        seconds: length of each.
        bf16: run the model under bfloat16 autocast.
        mode: one of ``MODES``; "graph" is the one of ``train.py``.
    """

    def __init__(
        self, model: Any, batch: int, seconds: float, bf16: bool = False, mode: str = "eager"
    ) -> None:
        self.parameters = list(model.parameters())
        self.device, self.bf16 = self.parameters[0].device, bf16
        self.separate: Callable[[Tensor, Tensor | None], Tensor] = model.forward
        if mode in COMPILED:
            self.separate = torch.compile(model.forward, mode=COMPILED[mode], dynamic=False)
        self.loss: LossOfBatch = self._loss
        if mode == "graph":
            self.loss = GraphedLoss(self._loss, model)
        self.optimizer = torch.optim.Adam(
            self.parameters, LEARNING_RATE, fused=True, capturable=self.device.type == "cuda"
        )
        if mode == "graph":
            join_updates(self.optimizer)
        samples = round(seconds * model.sample_rate)
        self.sources = torch.randn(batch, model.n_src, samples, device=self.device)
        self.mixture = self.sources.sum(1)
        self.lengths = torch.full((batch,), samples, device=self.device)

    def __call__(self) -> Tensor:
        """Train on the batch once more; the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.loss(self.mixture, self.sources, self.lengths)
        loss.backward()
        if not clipped_as_one(self.parameters, MAX_NORM):
            nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
        self.optimizer.step()
        return loss.detach()

    def _loss(self, mixture: Tensor, sources: Tensor, lengths: Tensor | None) -> Tensor:
        return pit_loss(self.separate(mixture, lengths), sources, lengths)[0]

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Estimates (B, n_src, T) of the batch, without gradients."""
        with self._autocast():
            return self.separate(self.mixture, None)

    def _autocast(self) -> AbstractContextManager[None]:
        # Without its cache, as under Lightning.
        return torch.autocast(self.device.type, torch.bfloat16, self.bf16, cache_enabled=False)


def measure(
    variant: Variant, build: Callable[[], nn.Module], device: torch.device
) -> Measurement | Failure:
    """Cost of a variant; never an error of the model's own.

    Args:
        variant: what is measured.
        build: makes the model.
        device: a CUDA device wants a current stream that is not the default one.
    """
    try:
        return _measure(variant, build, device)
    except Exception as error:  # another toolkit's code: anything may go wrong
        return Failure(variant, reason(error))


def _measure(variant: Variant, build: Callable[[], nn.Module], device: torch.device) -> Measurement:
    on_gpu = device.type == "cuda"
    if variant.mode in COMPILED:
        torch.compiler.reset()
    if on_gpu:
        gc.collect()  # graphs of the variant before
        torch.cuda.empty_cache()
    matmul, bf16 = PRECISIONS[variant.precision]
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = matmul != "highest"
    torch.manual_seed(0)
    model = build().to(device)
    step = TrainingStep(model, variant.batch, variant.seconds, bf16, variant.mode)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    step_us = _time(step, variant.mode in CAPTURED_STEPS, on_gpu)
    if on_gpu and isinstance(step.loss, GraphedLoss) and not step.loss.captured:
        raise RuntimeError("its step cannot be captured")
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
    step.optimizer.zero_grad(set_to_none=True)  # they belong to the graph of the step
    forward_us = _time(step.forward, variant.mode in CAPTURED_FORWARDS, on_gpu)
    return Measurement(variant, 1e-3 * step_us, 1e-3 * forward_us, peak)


def _time(call: Callable[[], object], captured: bool, on_gpu: bool) -> float:
    """Median microseconds."""
    if not on_gpu:
        return wall_time(call)
    return (graph_time if captured else event_time)(call, least=REPLAYS)


def reason(error: BaseException) -> str:
    r"""An error in one line, with the one at its origin: the end of a failed capture hides it.

    >>> try:
    ...     try:
    ...         raise RuntimeError("no memory\nfree some")
    ...     finally:
    ...         raise OSError("capture failed")
    ... except OSError as error:
    ...     reason(error)
    'OSError: capture failed (first RuntimeError: no memory)'
    """
    origin = error
    while origin.__context__ is not None:
        origin = origin.__context__
    first = "" if origin is error else f" (first {_in_short(origin)})"
    return f"{_in_short(error)}{first}"


def _in_short(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {line}"
