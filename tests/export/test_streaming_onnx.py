"""Streaming ONNX files give what PyTorch gives, whatever the model and the pieces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from streamed import VARIANTS, causal

from convtasnet import ConvTasNet, StreamingSeparator
from convtasnet.export import onnx_stream
from convtasnet.export.builder import GraphBuilder
from convtasnet.export.onnx_stream import OnnxStream
from convtasnet.export.streaming_graph import streaming_graph
from convtasnet.export.verify import babble
from convtasnet.export.verify_onnx import both_streams, check_streaming
from convtasnet.streaming.folded import fold
from convtasnet.streaming.separator import decay_of

EXAMPLE = Path(__file__).parents[2] / "scripts" / "run_onnx_stream.py"
INTEROP = Path(__file__).parents[1] / "assets" / "interop"


def exported(model: ConvTasNet, frames: int, **options: Any) -> bytes:
    return streaming_graph(fold(model), frames, **options).SerializeToString()


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("frames", [1, 3, 20])
def test_files_equal_the_model(changes: dict[str, Any], frames: int) -> None:
    model = causal(**changes)
    stream = OnnxStream(exported(model, frames))
    for length in (1, 16, 17, 24, 601):
        mixture = torch.randn(length)
        with torch.no_grad():
            whole = model(mixture).numpy()
        pieces = np.array_split(mixture.numpy(), [0, 5, 7, 100, 300])
        voices = np.concatenate([*map(stream.push, pieces), stream.flush()], 1)
        assert voices.shape == whole.shape
        assert np.abs(voices - whole).max() <= 1e-5 * max(np.abs(whole).max(), 1e-30)


@pytest.mark.parametrize("frames", [1, 10, 100])
@pytest.mark.parametrize("half_life", [None, 0.1])
@pytest.mark.parametrize("norm", ["cumulative", "cumulative_legacy"])
def test_pushes_of_any_length_equal_those_of_a_stream(
    norm: str, half_life: float | None, frames: int
) -> None:
    model = causal(norm=norm)
    file = exported(model, frames, decay=decay_of(model, half_life))
    assert check_streaming(model, file, half_life) < 1e-5


def test_a_wrong_export_is_noticed() -> None:
    model = causal()
    file = exported(model, 10, decay=decay_of(model, 0.1))
    with pytest.raises(RuntimeError, match="differs from PyTorch"):
        check_streaming(model, file, None)


@pytest.mark.parametrize("frames", [1, 10])
def test_a_delayed_model_without_biases(frames: int) -> None:
    """Its first frames are exact zeros, whose norms amplify any rounding."""
    hparams = {"norm_type": "cLN", "causal": True, "mask_nonlinear": "relu"}
    model = ConvTasNet.from_pretrained(INTEROP / "speechbrain_cln_causal", hparams)
    assert check_streaming(model, exported(model, frames), None) < 1e-5


def test_later_samples_reach_no_earlier_output() -> None:
    """Not even within one step."""
    model, mixture = causal(), np.random.default_rng(0).standard_normal(800, dtype=np.float32)
    stream = OnnxStream(exported(model, 100))
    before = stream.push(mixture)
    stream.reset()
    mixture[400:] = np.nan
    after = stream.push(mixture)
    safe = 400 - model.latency
    np.testing.assert_array_equal(after[:, :safe], before[:, :safe])
    assert np.isnan(after[:, 416:]).any()


def test_long_streams_do_not_drift() -> None:
    model, mixture = causal(n_blocks=1, n_repeats=1), babble(300_000) + 0.3
    own, stream = StreamingSeparator(model), OnnxStream(exported(model, 250))
    expected = own.push(mixture).numpy()
    found = np.concatenate([stream.push(block.numpy()) for block in mixture.split(2000)], 1)
    assert np.abs(found - expected)[:, -9000:].max() < 2e-6 * np.abs(expected).max()


def test_int8_is_close() -> None:
    model = causal(n_filters=64, bn_chan=32, hid_chan=64, skip_chan=32)
    expected, found = both_streams(model, exported(model, 10, int8=True), None)
    noise = (found - expected).square().sum() / expected.square().sum()
    assert 1e-6 < noise < 1e-2


@pytest.mark.parametrize("length", [5, 1003])
@pytest.mark.parametrize("frames", [2, 10])  # some blocks' frames are picked out; none are
def test_the_example_needs_neither_torch_nor_this_project(
    tmp_path: Path, frames: int, length: int
) -> None:
    model = causal()
    (tmp_path / "stream.onnx").write_bytes(exported(model, frames))
    shutil.copy(onnx_stream.__file__, tmp_path)
    mixture = babble(length)
    blocked = "import sys; sys.modules.update(torch=None, convtasnet=None, convtasnet_kernels=None)"
    code = f"{blocked}; sys.argv = ['', 'stream.onnx']; exec(open({str(EXAMPLE)!r}).read())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=mixture.numpy().tobytes() + b"\0",  # and a part of a sample
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    voices = np.frombuffer(done.stdout, np.float32).reshape(-1, 2).T
    assert voices.shape == (2, length)
    with torch.no_grad():
        np.testing.assert_allclose(voices, model(mixture).numpy(), atol=1e-5)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_files_of_other_versions_are_told(tmp_path: Path, as_bytes: bool) -> None:
    whole = streaming_graph(fold(causal()), 2)
    kept = [each for each in whole.metadata_props if each.key not in ("margin", "backs")]
    del whole.metadata_props[:]
    whole.metadata_props.extend(kept)
    path = tmp_path / "old.onnx"
    path.write_bytes(whole.SerializeToString())
    name = "the ONNX file" if as_bytes else str(path)
    expected = f"{name} lacks the metadata margin, backs: .* scripts/export.py --streaming"
    with pytest.raises(ValueError, match=expected):
        OnnxStream(path.read_bytes() if as_bytes else path)


def test_outputs_of_other_versions_are_told() -> None:
    graph = GraphBuilder()
    samples = graph.input("samples", np.float32, ["k"])
    graph.output("voices", graph.node("Neg", samples), np.float32, ["k"])
    graph.output("rest", graph.node("Abs", graph.input("tail", np.float32, [8])), np.float32, [8])
    file = graph.model(dict.fromkeys((*onnx_stream.NUMBERS, "backs"), "1")).SerializeToString()
    with pytest.raises(ValueError, match="lacks the outputs next_tail: it is no file for streams"):
        OnnxStream(file)


@pytest.mark.parametrize(("frames", "picked"), [(1, 6), (2, 4), (4, 2), (10, 0)])
def test_the_file_says_what_a_host_needs(frames: int, picked: int) -> None:
    session = onnxruntime.InferenceSession(exported(causal(), frames))
    nearest = [d for d in (1, 2, 4, 1, 2, 4) if d >= frames]
    assert session.get_modelmeta().custom_metadata_map == {
        "n_src": "2",
        "sample_rate": "8000",
        "kernel_size": "16",
        "stride": "8",
        "frames": str(frames),
        "margin": "0",
        "complete": "1",
        "backs": ",".join(str(times * d) for times in (2, 1) for d in nearest),
    }
    shapes = {value.name: value.shape for value in session.get_inputs()}
    taps = {"taps": [2, picked, "frames", 12]} if picked else {}
    reach = {i: 2 * 2 ** (i % 3) for i in range(6)}
    assert shapes == {
        "samples": ["samples"],
        "pending": [8],
        "count": [1],
        "sums": [2 * 13, 1],
        **taps,
        **{f"past_{i}": [1, reach[i], 12] for i in range(6) if reach[i] < 2 * frames or not picked},
        "tail": [2, 8],
    }
