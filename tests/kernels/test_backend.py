"""Which path runs, who decides, and what the log says."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from convtasnet_kernels import (
    backend,
    channelwise_layer_norm,
    cumulative_layer_norm,
    depthwise_conv,
    global_layer_norm,
    layer_norm,
    use_backend,
)

X = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
HAS_TRITON = backend.triton_import_error() is None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton cannot be imported")
compiles = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors"
)


def test_blocks_nest_and_end() -> None:
    assert backend.requested() == "auto"
    with use_backend("torch"):
        with use_backend("torch"):
            assert backend.requested() == "torch"
        assert backend.requested() == "torch"
    with pytest.raises(RuntimeError), use_backend("torch"):
        raise RuntimeError
    assert backend.requested() == "auto"


def test_a_block_stays_in_its_thread() -> None:
    seen = []
    with use_backend("torch"):
        thread = threading.Thread(target=lambda: seen.append(backend.requested()))
        thread.start()
        thread.join()
    assert seen == ["auto"]


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="name is 'cuda'; choose one of torch, triton"):
        use_backend("cuda").__enter__()


def test_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(backend.ENVIRONMENT_VARIABLE, "tritn")
    with pytest.raises(ValueError, match="CONVTASNET_KERNELS is 'tritn'"):
        cumulative_layer_norm(X)
    monkeypatch.setenv(backend.ENVIRONMENT_VARIABLE, "torch")
    cumulative_layer_norm(X)


@needs_triton
@compiles
def test_triton_on_cpu_tensors_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"x is on cpu.*TRITON_INTERPRET=1"), use_backend("triton"):
        cumulative_layer_norm(X)
    monkeypatch.setenv(backend.ENVIRONMENT_VARIABLE, "triton")
    with pytest.raises(ValueError, match="CONVTASNET_KERNELS=triton: x is on cpu"):
        cumulative_layer_norm(X)
    with use_backend("torch"):  # the block wins
        cumulative_layer_norm(X)


@needs_triton
@compiles
def test_a_compiled_function_follows_the_block() -> None:
    torch.compiler.reset()
    compiled = torch.compile(cumulative_layer_norm, fullgraph=True, backend="aot_eager")
    compiled(X)
    with use_backend("triton"), pytest.raises(ValueError, match="x is on cpu"):
        compiled(X)
    assert torch.equal(compiled(X), cumulative_layer_norm(X))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "channelwise_layer_norm": channelwise_layer_norm,
    "cumulative_layer_norm": cumulative_layer_norm,
    "depthwise_conv": lambda x: depthwise_conv(x, x.new_ones(2, 1, 3)),
    "global_layer_norm": global_layer_norm,
    "layer_norm": layer_norm,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_obeys_the_block_and_logs_its_path_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend._log_once.cache_clear()
    with caplog.at_level(logging.INFO):
        FUNCTIONS[name](X)
        with use_backend("torch"):
            FUNCTIONS[name](X)
            FUNCTIONS[name](X)
    assert caplog.messages == [
        f"{name} on cpu runs on the torch path (default for this device)",
        f"{name} on cpu runs on the torch path (use_backend('torch'))",
    ]


@needs_triton
@compiles
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_kernels_but_not_for_float64(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend._log_once.cache_clear()
    with caplog.at_level(logging.INFO), use_backend("triton"):
        with pytest.raises(ValueError, match="x is on cpu"):
            FUNCTIONS[name](X)
        FUNCTIONS[name](X.double())
    assert caplog.messages == [
        f"{name} on cpu runs on the torch path (float64 has no Triton kernel)"
    ]


SCRIPT = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
if "block" in sys.argv:
    sys.modules["triton"] = None  # import triton: ModuleNotFoundError
import torch
from convtasnet_kernels import cumulative_layer_norm, use_backend
x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
for _ in range(2):
    y = cumulative_layer_norm(x)
print(y.flatten().tolist())
if "block" in sys.argv:
    try:
        with use_backend("triton"):
            pass
    except ValueError as error:
        print(error)
"""


def run_script(*arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_same_numbers_and_one_log_line_wherever_triton_is_missing_or_interpreted() -> None:
    blocked = run_script("block")
    interpreted = run_script(TRITON_INTERPRET="1")
    line = "cumulative_layer_norm on cpu runs on the torch path (default for this device)"
    assert interpreted == [line, str(cumulative_layer_norm(X).flatten().tolist())]
    assert blocked[:2] == interpreted
    assert len(blocked) == 3
    assert blocked[2].startswith("use_backend('triton'): triton cannot be imported (")
    assert blocked[2].endswith("; install triton or use the torch backend")


@needs_triton
def test_the_environment_asks_for_the_interpreter() -> None:
    lines = run_script(TRITON_INTERPRET="1", CONVTASNET_KERNELS="triton")
    assert lines == [
        "cumulative_layer_norm on cpu runs on the triton (interpreter) path "
        "(CONVTASNET_KERNELS=triton)",
        str(cumulative_layer_norm(X).flatten().tolist()),
    ]
