import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiny_model import TINY
from torch import nn

from convtasnet import ConvTasNet, pieces
from convtasnet.inference import rescale, separate
from convtasnet.resampling import resample

RATE = 8000


class BandSplitter(nn.Module):
    """Two 'speakers', below and above 1 kHz, in an order that the first sample decides."""

    sample_rate, n_src = RATE, 2

    def __init__(self):
        super().__init__()
        self.lengths = []

    def forward(self, mix):
        self.lengths.append(mix.shape[-1])
        spectrum = torch.fft.rfft(mix)
        low = torch.arange(len(spectrum)) * RATE < 1000 * mix.shape[-1]
        bands = [torch.fft.irfft(spectrum * part, n=mix.shape[-1]) for part in (low, ~low)]
        return torch.stack(bands if mix[0] > 0 else bands[::-1])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ConvTasNet(**TINY).eval()


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK_SECONDS", 0.5)


def two_bands(n_samples):
    """Two tones in noise-like amplitude, one a 'speaker': (2, n_samples)."""
    generator = torch.Generator().manual_seed(n_samples)
    t = torch.arange(n_samples) / RATE
    tones = torch.stack([torch.sin(2 * torch.pi * 330 * t), torch.sin(2 * torch.pi * 2210 * t)])
    envelope = torch.rand(2, n_samples // 400 + 1, generator=generator).repeat_interleave(400, 1)
    return tones * (0.2 + envelope[:, :n_samples])


@pytest.mark.parametrize("n_samples", [1, 7, 16, 8001])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_exact_length_at_the_rate_of_the_input(model, n_samples, rate):
    wav = torch.randn(n_samples)
    estimates = separate(model, wav, rate)
    assert estimates.shape == (2, n_samples)
    assert bool(estimates.isfinite().all())
    if rate == RATE:
        with torch.no_grad():
            torch.testing.assert_close(estimates, model(wav))


@pytest.mark.parametrize("rate", [16000, 44100])
def test_resampling_keeps_time_and_level(rate):
    t = torch.arange(rate) / rate
    tone = torch.sin(2 * torch.pi * 330 * t)
    estimates = separate(BandSplitter(), tone, rate)
    error = (estimates.sum(0) - tone)[rate // 10 : -rate // 10]
    assert float(error.abs().max()) < 0.02


def test_types_and_shapes_in_and_out(model):
    wav = torch.randn(500, dtype=torch.float64)
    expected = separate(model, wav, RATE)
    assert expected.dtype == torch.float32
    for other in (wav[None], wav.numpy(), wav.numpy()[None], wav.float().requires_grad_()):
        result = separate(model, other, RATE)
        assert isinstance(result, type(other))
        torch.testing.assert_close(torch.as_tensor(result), expected)
    read_only = wav.numpy().astype(np.float32)
    read_only.flags.writeable = False
    assert isinstance(separate(model, read_only[::-1], RATE), np.ndarray)
    assert not expected.is_inference()


@pytest.mark.parametrize(
    ("wav", "rate", "message"),
    [
        (torch.zeros(2, 100), RATE, r"\(2, 100\).*average stereo"),
        (torch.zeros(1, 1, 100), RATE, r"\(1, 1, 100\)"),
        (np.zeros(100, dtype=np.int16), RATE, "int16.*32768"),
        (torch.zeros(100, dtype=torch.int32), RATE, "int32"),
        (torch.zeros(0), RATE, "no samples"),
        (torch.tensor([0.0, torch.nan]), RATE, "NaN"),
        (torch.zeros(100), 0, "sample_rate=0"),
        (torch.zeros(100), 8000.5, "sample_rate=8000.5"),
        ([0.0, 0.1], RATE, "list"),
    ],
)
def test_errors_say_what_would_be_right(model, wav, rate, message):
    with pytest.raises(ValueError, match=message):
        separate(model, wav, rate)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("x", "model is a str"), (torch.nn.Linear(1, 1), "model, a Linear, has no sample_rate")],
)
def test_what_is_no_separator_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        separate(wrong, torch.zeros(100), RATE)


def test_a_rate_may_be_a_whole_float(model):
    wav = torch.randn(4410)
    assert torch.equal(separate(model, wav, 44100.0), separate(model, wav, 44100))


def test_training_flags_come_back(model):
    model.train()
    model.encoder.eval()
    separate(model, torch.randn(100), RATE)
    assert model.training
    assert not model.encoder.training
    with pytest.raises(ValueError, match="NaN"):
        separate(model, torch.full((9,), torch.nan), RATE)
    assert model.training


@pytest.mark.parametrize("rate", [8000, 44100])
def test_long_recordings_lose_nothing_and_swap_nobody(short_pieces, rate):
    sources = resample(two_bands(23001), RATE, rate)
    model = BandSplitter()
    estimates = separate(model, sources.sum(0), rate)
    assert estimates.shape == sources.shape
    assert 3000 < max(model.lengths) <= 4000
    order = [0, 1] if float(sources.sum(0)[0]) > 0 else [1, 0]
    error = (estimates - sources[order]).square().sum(1) / sources.square().sum(1)
    assert float(error.max()) < 0.05


@pytest.mark.parametrize("framing", ["complete", "drop", "centered"])
def test_a_causal_model_never_starts_anew(short_pieces, framing):
    torch.manual_seed(0)
    model = ConvTasNet(**TINY, norm="cumulative", causal=True, framing=framing).eval()
    wav = torch.randn(20_003) * torch.linspace(1e-3, 1, 20_003)
    with torch.no_grad():
        whole = model(wav)
    voices = separate(model, wav, RATE)
    torch.testing.assert_close(voices, whole, atol=1e-5 * float(whole.abs().max()), rtol=0)
    halves = separate(model.double(), wav, RATE)
    torch.testing.assert_close(halves, whole, atol=1e-5 * float(whole.abs().max()), rtol=0)


def test_a_long_recording_goes_through_a_model_in_half_precision(short_pieces):
    model = ConvTasNet(**TINY, norm="cumulative", causal=True).bfloat16().eval()
    wav = torch.randn(9001)
    voices = separate(model, wav, RATE)
    expected = separate(copy.deepcopy(model).float(), wav, RATE)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(voices, expected)


def test_rescale_restores_levels():
    voices = two_bands(8000) * 0.1
    moved = voices * torch.tensor([[40.0], [-0.003]])
    result = rescale(moved, voices.sum(0))
    torch.testing.assert_close(result, voices, atol=2e-3, rtol=0)
    as_numpy = rescale(moved.numpy(), voices.sum(0).numpy())
    torch.testing.assert_close(torch.from_numpy(as_numpy), result)


def test_rescale_attenuates_all_outputs_together(caplog):
    voices = two_bands(8000) * torch.tensor([[2.0], [0.5]])
    result = rescale(voices, voices.sum(0))
    assert float(result.abs().max()) == 1
    torch.testing.assert_close(result, voices / voices.abs().max(), atol=0.02, rtol=0)
    assert "attenuated" in caplog.text


def test_rescale_keeps_silence_and_checks_shapes():
    voices = torch.stack([torch.zeros(100), torch.ones(100)])
    assert torch.equal(rescale(voices, 0.5 * torch.ones(100)), 0.5 * voices)
    with pytest.raises(ValueError, match=r"\(2, 100\).*\(99,\)"):
        rescale(voices, torch.ones(99))


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rate", [RATE, 44100])
def test_a_model_on_the_gpu_serves_the_cpu(short_pieces, causal, rate):
    model = ConvTasNet(**TINY, norm="cumulative" if causal else "global", causal=causal)
    wav = torch.randn(3 * rate)
    expected = separate(model, wav, rate)
    on_the_gpu = separate(model.cuda(), wav.cuda(), rate)
    assert on_the_gpu.device.type == "cuda"
    torch.testing.assert_close(on_the_gpu.cpu(), expected, atol=1e-3, rtol=1e-3)
    result = separate(model, wav, rate)
    assert result.device.type == "cpu"
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


def test_inference_loads_neither_lightning_nor_hydra():
    code = (
        "import sys, convtasnet, convtasnet.inference, convtasnet.cli\n"
        "bad = {'lightning', 'pytorch_lightning', 'hydra', 'omegaconf'} & set(sys.modules)\n"
        "sys.exit(', '.join(bad) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("estimates", "mixture", "message"),
    [
        ([0.0], torch.ones(9), "estimates is a list"),
        (torch.ones(2, 9).int(), torch.ones(9), "estimates has dtype torch.int32"),
        (torch.ones(2, 9), torch.ones(9).numpy(), "both tensors or both arrays"),
        (torch.ones(0, 9), torch.ones(9), "n_src >= 1"),
    ],
)
def test_rescale_names_what_it_cannot_take(estimates, mixture, message):
    with pytest.raises(ValueError, match=message):
        rescale(estimates, mixture)
