"""The trained model that comes with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import soundfile as sf
import torch
from tiny_corpus import voice

from convtasnet import ConvTasNet, separate
from convtasnet.cli import main
from convtasnet.portable import CONFIG
from convtasnet.shipped import shipped_model

LOOKAHEAD = 15  # kernel_size - 1 samples


@pytest.fixture(scope="module")
def model() -> ConvTasNet:
    return ConvTasNet.from_pretrained(shipped_model())


def test_what_it_is(model: ConvTasNet) -> None:
    assert (model.causal, model.sample_rate, model.n_src) == (True, 8000, 2)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(("rate", "n_samples"), [(8000, 2003), (44100, 11025)])
def test_voices_have_the_rate_and_length_of_the_recording(
    model: ConvTasNet, rate: int, n_samples: int
) -> None:
    mixture = torch.sin(torch.arange(n_samples) * 900 / rate) + 0.1 * torch.randn(n_samples)
    voices = separate(model, mixture, rate)
    assert voices.shape == (2, n_samples)
    assert voices.isfinite().all()
    assert voices.square().mean(-1).min() > 0
    assert not torch.equal(*voices)


def test_it_hears_nothing_of_the_future(model: ConvTasNet) -> None:
    mixture = voice(0, 0.25) + voice(1, 0.25)
    changed = mixture.clone()
    changed[1000:] = torch.randn(len(mixture) - 1000)
    with torch.inference_mode():
        before, after = model(mixture), model(changed)
    same = 1000 - LOOKAHEAD
    torch.testing.assert_close(before[:, :same], after[:, :same], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(before[:, 1000:], after[:, 1000:], atol=1e-2)


def test_the_command_needs_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sf.write("mixture.wav", 0.1 * (voice(0, 0.3) + voice(1, 0.3)).numpy(), 8000)
    main(["separate", "mixture.wav", "--device", "cpu"])
    assert [sf.info(f"mixture_s{i}.wav").frames for i in (1, 2)] == [2400, 2400]


def test_the_card_is_made_of_what_the_model_knows(model: ConvTasNet) -> None:
    card = (shipped_model() / "README.md").read_text(encoding="utf-8")
    assert str(model.generate_model_card()).strip() == card.strip()
    assert "convtasnet separate mixture.wav\n" in card
    assert "PATH_OR_HUB_ID" not in card


def test_the_card_says_what_one_must_know(model: ConvTasNet) -> None:
    card = (shipped_model() / "README.md").read_text(encoding="utf-8")
    texts, scores = model.about["card"], model.about["scores"]
    for text in (*texts.values(), "LibriSpeech", "CC BY 4.0", "license: cc-by-4.0"):
        assert text in card
    assert set(texts) == {"name", "use", "data", "scored_on", "license", "limits"}
    assert f"{scores['si_sdr']:.2f} dB | {scores['si_sdri']:.2f} dB" in card
    assert f"{scores['n']} mixtures (test set)" in card


@pytest.mark.parametrize("name", [CONFIG, "README.md"])
def test_it_tells_no_paths_of_the_training(name: str) -> None:
    text = (shipped_model() / name).read_text(encoding="utf-8")
    assert not re.findall(r"[\"'` ](?:/|~|[A-Z]:\\)\w[^\"'`\s]*", text)
