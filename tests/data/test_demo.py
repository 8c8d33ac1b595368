"""The demo corpus: same bytes, sensible levels, different voices, nothing half done."""

import hashlib
import importlib.util
import json
import logging
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import torch

from convtasnet.audio import read_audio
from convtasnet.data import demo_corpus, espeak
from convtasnet.data.demo import DemoData
from convtasnet.data.demo_corpus import VARIANTS, DemoSpec, make_demo_corpus
from convtasnet.data.demo_text import sentence
from convtasnet.data.espeak import Line, speak
from convtasnet.data.file_cache import cache_folder
from convtasnet.data.mixing import active_level

needs_espeak = pytest.mark.skipif(
    importlib.util.find_spec("espeakng_loader") is None, reason="espeakng-loader isn't installed"
)
SMALL = DemoSpec(n_train=12, n_valid=3, n_test=3)


def digest(root: Path) -> str:
    """Of the names and bytes of all wavs."""
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.wav")):
        found.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return make_demo_corpus(tmp_path_factory.mktemp("demo"), SMALL, n_workers=2)


def mixtures(root: Path, split: str) -> list[Path]:
    return sorted((root / "2speakers" / "wav8k" / "min" / split / "mix").glob("*.wav"))


def pitch_and_centroid(wav: np.ndarray, rate: int) -> tuple[float, float]:
    """Median fundamental frequency by autocorrelation and spectral centroid, in Hz."""
    size = rate // 25
    found = []
    for start in range(0, len(wav) - size, size):
        frame = wav[start : start + size] - wav[start : start + size].mean()
        power = np.correlate(frame, frame, "full")[size - 1 :]
        lag = rate // 400 + int(power[rate // 400 : rate // 60].argmax())
        if power[0] > 0.05 * wav.var() * size and power[lag] > 0.5 * power[0]:
            found.append(rate / lag)
    spectrum = np.abs(np.fft.rfft(wav)) ** 2
    frequencies = np.fft.rfftfreq(len(wav), 1 / rate)
    return float(np.median(found)), float((spectrum * frequencies).sum() / spectrum.sum())


@needs_espeak
def test_same_bytes_whatever_the_workers(small, tmp_path):
    assert digest(make_demo_corpus(tmp_path, SMALL, n_workers=1)) == digest(small)


@needs_espeak
def test_another_seed_gives_another_corpus(small, tmp_path):
    other = DemoSpec(n_train=1, n_valid=1, n_test=1, seed=1)
    assert other.key != SMALL.key
    root = make_demo_corpus(tmp_path, other)
    names = {file.name for file in mixtures(root, "tt")}
    assert not names & {file.name for file in mixtures(small, "tt")}


@needs_espeak
def test_levels_lengths_and_sums(small):
    for split, count in (("tr", 12), ("cv", 3), ("tt", 3)):
        files = mixtures(small, split)
        assert len(files) == count
        for file in files:
            mixture, rate = read_audio(file)
            sources = torch.stack(
                [read_audio(file.parent.parent / s / file.name)[0] for s in ("s1", "s2")]
            )
            assert sf.info(file).subtype == "PCM_16"
            assert rate == 8000
            assert 2 < len(mixture) / rate < 9
            assert (mixture - sources.sum(0)).abs().max() < 2 / 32768
            largest = max(mixture.abs().max(), sources.abs().max())
            assert float(largest) == pytest.approx(0.9, abs=1e-3)
            levels = [20 * np.log10(active_level(source)) for source in sources]
            assert -35 < min(levels) < max(levels) < -10
            parts = file.stem.split("_")
            gains = [float(parts[1]), float(parts[3])]
            assert gains[0] == -gains[1]
            assert levels[0] - levels[1] == pytest.approx(gains[0] - gains[1], abs=0.1)


@needs_espeak
def test_speakers_of_the_splits_differ(small):
    heard = {}
    for split in ("tr", "cv", "tt"):
        names = [file.stem.split("_") for file in mixtures(small, split)]
        heard[split] = {part[0][:-3] for part in (n[i:] for n in names for i in (0, 2))}
        assert heard[split] <= set(VARIANTS[split])
        assert all(n[0][:-3] != n[2][:-3] for n in names)  # two timbres in a mixture
    variants = [variant for split in VARIANTS.values() for variant in split]
    assert len(variants) == len(set(variants)) >= 20


@needs_espeak
def test_voices_differ_in_pitch_or_timbre(tmp_path):
    text = "The old farmer carried nine heavy baskets across the bridge."
    variants = [*VARIANTS["cv"], *VARIANTS["tt"]]
    batches = [
        [Line(f"en-us+{v}", 50, 50, 165, text, str(tmp_path / f"{v}.wav"))] for v in variants
    ]
    assert sum(speak(batches, 2)) == len(variants)
    voices = []
    for variant in variants:
        wav, rate = sf.read(tmp_path / f"{variant}.wav")
        assert np.abs(wav).max() < 0.99
        voices.append(np.log(pitch_and_centroid(wav, rate)))
    apart = [np.abs(voices[i] - voices[j]).max() for i in range(len(voices)) for j in range(i)]
    assert np.median(apart) > 0.25
    assert min(apart) > 0.01
    pitches = np.exp([pitch for pitch, _ in voices])
    assert min(pitches) < 105
    assert max(pitches) > 200


@needs_espeak
@pytest.mark.parametrize(("n_src", "sample_rate"), [(1, 8000), (3, 16000), (5, 8000)])
def test_other_numbers_of_speakers_and_rates(tmp_path, n_src, sample_rate):
    module = DemoData(
        tmp_path, 4, 2, 2, n_src=n_src, sample_rate=sample_rate, segment=1.0, num_workers=0
    )
    module.prepare_data()
    for split, count in (("train", 4), ("valid", 2), ("test", 2)):
        dataset = module.dataset(split)
        assert len(dataset) == count
        assert dataset[0]["sources"].shape[0] == n_src
    assert module.dataset("train")[0]["mixture"].shape == (sample_rate,)
    assert sf.info(next(tmp_path.rglob("mix/*.wav"))).samplerate == sample_rate


@needs_espeak
def test_data_module_makes_once_and_says_what_it_is(tmp_path, caplog):
    kwargs = {"num_workers": 0, "segment": 1.0, "batch_size": 2}
    with caplog.at_level(logging.INFO):
        module = DemoData(tmp_path, 4, 1, 1, **kwargs)
        batch = next(iter(module.train_dataloader()))
    assert "synthetic voices" in caplog.text
    assert "GPL" in caplog.text
    assert batch["sources"].shape == (2, 2, 8000)
    about = json.loads((module.root / "corpus.json").read_text(encoding="utf-8"))
    assert about["n_train"] == 4
    caplog.clear()
    changed = module.root.stat().st_mtime_ns
    DemoData(tmp_path, 4, 1, 1, **kwargs).prepare_data()
    assert module.root.stat().st_mtime_ns == changed
    assert "synthetic" not in caplog.text


@needs_espeak
def test_default_place_is_the_cache():
    assert DemoData().root.parent == cache_folder() / "demo"
    assert DemoData().root.name == DemoSpec().key


@needs_espeak
def test_two_at_once_leave_one_whole_corpus(tmp_path):
    spec = DemoSpec(n_train=2, n_valid=1, n_test=1)
    threads = [threading.Thread(target=make_demo_corpus, args=(tmp_path, spec)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == [spec.key]
    assert len(list(tmp_path.rglob("*.wav"))) == 4 * 3


@needs_espeak
def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_corpus, "ACCENTS", ("no-such-language",))
    with pytest.raises(ValueError, match="no voice no-such-language"):
        make_demo_corpus(tmp_path, DemoSpec(n_train=1, n_valid=1, n_test=1))
    assert list(tmp_path.iterdir()) == []


@needs_espeak
def test_long_paths(tmp_path, monkeypatch):
    library, data = espeak.find_espeak()
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    (deep / "espeak-ng-data").symlink_to(data)
    monkeypatch.setattr(espeak, "find_espeak", lambda: (library, str(deep / "espeak-ng-data")))
    line = Line("en-us+f1", 50, 50, 165, "Hello there.", str(deep / "a.wav"))
    assert list(speak([[line]], 1)) == [1]
    assert sf.info(line.path).frames > 8000


def test_without_espeak_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'convtasnet\[demo\]'") as error:
        DemoData(tmp_path).prepare_data()
    assert "data=wsj0_mix, data=manifest or data=speakers" in str(error.value)


def test_a_package_without_the_library_is_named(tmp_path, monkeypatch):
    loader = pytest.importorskip("espeakng_loader")
    monkeypatch.setattr(loader, "get_library_path", lambda: str(tmp_path / "libespeak-ng.so"))
    with pytest.raises(ValueError, match=r"has no .*libespeak-ng.so"):
        espeak.find_espeak()


@pytest.mark.parametrize(
    "wrong", [{"n_src": 0}, {"n_src": 7}, {"n_train": 0}, {"n_test": 0}, {"sample_rate": 0}]
)
def test_arguments_out_of_range(wrong):
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"{name}={wrong[name]}"):
        DemoSpec(**wrong)


def test_sentences_vary():
    rng = random.Random(0)
    texts = [sentence(rng) for _ in range(500)]
    assert len(set(texts)) > 495
    assert all(7 < len(text.split()) < 26 for text in texts)
    assert len({text.split()[0] for text in texts}) > 10


@pytest.mark.parametrize("count", [0, 1.5, "10"])
def test_a_corpus_needs_whole_numbers_of_mixtures(count):
    with pytest.raises(ValueError, match=f"n_valid={count!r}, expected at least 1 mixture"):
        DemoSpec(n_valid=count)
