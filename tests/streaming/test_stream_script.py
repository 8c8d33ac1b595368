"""scripts/stream.py: PCM in, separated PCM out, and what it says about the rest."""

from __future__ import annotations

import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import write_checkpoint

from convtasnet import ConvTasNet
from convtasnet.inference import rescale
from convtasnet.streaming.levels import RunningLevels

SCRIPT = str(Path(__file__).parents[2] / "scripts" / "stream.py")
Run = Callable[..., tuple[Any, bytes, str]]


class Pipe(io.BytesIO):
    """Bytes of a pipe or a terminal."""

    def __init__(self, data: bytes = b"", terminal: bool = False) -> None:
        super().__init__(data)
        self.buffer, self.isatty = self, lambda: terminal


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "causal.ckpt", norm="cumulative", causal=True)


@pytest.fixture
def run(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the script on bytes; exit code, stdout, stderr."""

    def run(data: bytes | Pipe, *options: str, terminal: bool = False) -> tuple[Any, bytes, str]:
        out = Pipe(terminal=terminal)
        monkeypatch.setattr(sys, "stdin", data if isinstance(data, Pipe) else Pipe(data))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "argv", [SCRIPT, "--checkpoint", str(checkpoint), *options])
        try:
            runpy.run_path(SCRIPT, run_name="__main__")
        except SystemExit as stop:
            return stop.code, out.getvalue(), capsys.readouterr().err
        return 0, out.getvalue(), capsys.readouterr().err

    return run


def mixture(n_samples: int = 4001) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, n_samples).astype("<f4")


def expected(checkpoint: Path, samples: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return ConvTasNet.from_pretrained(checkpoint)(torch.from_numpy(samples)).numpy()


def test_a_pipe_gives_what_the_model_gives(run: Run, checkpoint: Path) -> None:
    x = mixture()
    code, out, said = run(x.tobytes(), "--format", "f32le", "--levels", "model")
    voices = np.frombuffer(out, "<f4").reshape(-1, 2).T
    np.testing.assert_allclose(voices, expected(checkpoint, x), atol=1e-5)
    assert code == 0
    assert said.startswith("0.5 s, real-time factor ")


def test_one_voice_in_16_bits(run: Run, checkpoint: Path) -> None:
    x = np.rint(mixture() * 32767).astype("<i2")
    code, out, _ = run(x.tobytes(), "--voice", "2", "--block-ms", "7", "--levels", "model")
    voice = expected(checkpoint, (x / 32768).astype("<f4"))[1]
    assert code == 0
    np.testing.assert_allclose(np.frombuffer(out, "<i2"), voice * 32768, atol=0.6)


def test_levels_settle_at_those_of_files(run: Run, checkpoint: Path) -> None:
    x = mixture(40_000)
    _, out, _ = run(x.tobytes(), "--format", "f32le", "--block-ms", "100")
    voices = torch.from_numpy(np.frombuffer(out, "<f4").reshape(-1, 2).T.copy())
    wanted = rescale(torch.from_numpy(expected(checkpoint, x)), torch.from_numpy(x))
    tail = slice(-8000, None)
    assert float((voices - wanted)[:, tail].norm() / wanted[:, tail].norm()) < 0.1


def test_broken_samples_are_told(run: Run) -> None:
    x = mixture()
    x[100:103] = np.nan, np.inf, -np.inf
    code, out, said = run(x.tobytes(), "--format", "f32le")
    assert code == 0
    assert np.isfinite(np.frombuffer(out, "<f4")).all()
    assert "3 NaN or infinite samples set to zero" in said


def test_clipping_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningLevels, "__call__", lambda self, voices, _: 0 * voices - 1.5)
    _, out, said = run(b"\0" * 2000)
    assert (np.frombuffer(out, "<i2") == -32768).all()
    assert "2000 samples clipped" in said


def test_an_incomplete_sample_is_told_after_all_else_is_written(run: Run) -> None:
    code, out, said = run(b"\0" * 2001)
    assert (code, len(out)) == (2, 4000)
    assert "error: stdin ended 1 bytes into a sample: is it s16le of one channel?" in said


def test_a_reader_that_has_enough_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: Pipe, data: bytes) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(Pipe, "write", write)
    monkeypatch.setattr(Pipe, "fileno", lambda self: 99)
    code, _, said = run(b"\0" * 2000)
    assert (code, "error" in said) == (0, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "16000"], "--rate 16000, but the model is one of 8000 Hz"),
        (["--voice", "3"], "--voice 3: the model has voices 1 to 2"),
        (["--play", "0"], "--play 0: the model has voices 1 to 2"),
        (["--block-ms", "0.01"], "--block-ms 0.01 is less than a sample"),
        (["--block-ms", "-1"], "--block-ms -1 is less than a sample"),
        (["--block-ms", "inf"], "--block-ms inf is more than a minute"),
        (["--half-life", "0"], "half_life=0.0 s"),
        (["--format", "u8"], "invalid choice: 'u8'"),
    ],
)
def test_what_does_not_fit_is_refused(run: Run, options: list[str], message: str) -> None:
    code, out, said = run(b"\0" * 100, *options)
    assert (code, out, said.count("\n")) == (2, b"", 1)
    assert message in said


def test_terminals_are_no_pipes(run: Run) -> None:
    assert "stdin is a terminal" in run(Pipe(terminal=True))[2]
    assert "stdout is a terminal" in run(b"", terminal=True)[2]


class Sound:
    """Stands for sounddevice: a microphone that is stopped in the end, and a loudspeaker."""

    PortAudioError = RuntimeError

    def __init__(self, samples: np.ndarray) -> None:
        self.samples, self.played = samples, [np.zeros((0, 1), np.float32)]
        self.OutputStream = lambda rate, channels, dtype: SimpleNamespace(
            start=lambda: None, write=self.played.append
        )

    def InputStream(self, rate: int, block: int, *_: Any, **__: Any) -> Sound:  # noqa: N802
        return self

    def __enter__(self) -> Sound:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, n_samples: int) -> tuple[np.ndarray, bool]:
        if not len(self.samples):
            raise KeyboardInterrupt
        block, self.samples = np.split(self.samples, [n_samples])
        return block[:, None], len(self.samples) == 0


def test_a_microphone_and_a_loudspeaker(
    run: Run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = mixture(4000)
    sound = Sound(x)
    monkeypatch.setitem(sys.modules, "sounddevice", sound)  # type: ignore[arg-type]
    code, out, said = run(b"", "--mic", "--play", "2", "--levels", "model")
    assert (code, out) == (0, b"")
    played = np.concatenate(sound.played)[:, 0]
    np.testing.assert_allclose(played, expected(checkpoint, x)[1], atol=1e-5)
    assert "1 times samples were lost" in said


def test_sounddevice_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    code, _, said = run(b"", "--mic")
    assert code == 2
    assert "pip install 'convtasnet[live]'" in said
