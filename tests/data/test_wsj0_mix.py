"""The layout of wsj0-2mix."""

import logging
import shutil

import pytest
import torch

from convtasnet.audio import write_audio
from convtasnet.data.module import Wsj0MixData
from convtasnet.data.wsj0_mix import wsj0_mix_manifest


def corpus(root, n_src=2, rate=8000, mode="min", names=("a_1.5_b_-1.5", "c_0_d_0")):
    for split in ("tr", "cv", "tt"):
        for kind in ["mix", *(f"s{k + 1}" for k in range(n_src))]:
            for name in names:
                folder = root / f"{n_src}speakers/wav{rate // 1000}k/{mode}/{split}/{kind}"
                write_audio(folder / f"{name}.wav", torch.zeros(rate // 10), rate)
    return root


@pytest.mark.parametrize("n_src", [2, 3])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_rows(tmp_path, n_src, mode):
    corpus(tmp_path, n_src, mode=mode)
    for split, folder in (("train", "tr"), ("valid", "cv"), ("test", "tt")):
        manifest = wsj0_mix_manifest(tmp_path, split, 8000, n_src, mode)
        assert [row.id for row in manifest] == ["a_1.5_b_-1.5", "c_0_d_0"]
        base = tmp_path / f"{n_src}speakers/wav8k/{mode}/{folder}"
        assert manifest[1].mixture == str(base / "mix/c_0_d_0.wav")
        assert manifest[1].sources == tuple(
            str(base / f"s{k + 1}/c_0_d_0.wav") for k in range(n_src)
        )


def test_root_may_be_the_folder_of_the_splits(tmp_path, monkeypatch):
    corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    inner = wsj0_mix_manifest("2speakers/wav8k/min", "train", 8000)
    assert inner.rows == wsj0_mix_manifest(tmp_path, "train", 8000).rows


def test_files_without_partners_are_all_listed(tmp_path):
    base = corpus(tmp_path) / "2speakers/wav8k/min/tr"
    (base / "s2/c_0_d_0.wav").unlink()
    (base / "mix/a_1.5_b_-1.5.wav").unlink()
    (base / "mix/.hidden.wav").touch()
    with pytest.raises(ValueError, match="2 files are missing") as error:
        wsj0_mix_manifest(tmp_path, "train", 8000)
    assert str(base / "s2/c_0_d_0.wav") in str(error.value)
    assert str(base / "mix/a_1.5_b_-1.5.wav") in str(error.value)


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("2speakers/wav8k/min/tr", r"min/tr: no such folder; .*min holds cv, tt"),
        ("2speakers/wav8k/min", r"min/tr: no such folder; .*wav8k holds nothing"),
        ("2speakers/wav8k", r"wav8k/min/tr: no such folder; .*2speakers holds nothing"),
        ("2speakers", r"no such folder; .* holds nothing"),
        ("2speakers/wav8k/min/tr/s2", r"\['s2'\] are missing, there holds mix, s1"),
        ("", "data root .*: no such folder"),
    ],
)
def test_what_is_absent_is_named_with_what_is_there(tmp_path, gone, words):
    root = corpus(tmp_path / "root")
    shutil.rmtree(root / gone)
    with pytest.raises(FileNotFoundError, match=words):
        wsj0_mix_manifest(root, "train", 8000)


def test_fewer_sources_than_the_corpus_has_are_refused(tmp_path):
    root = corpus(tmp_path, 3) / "3speakers/wav8k/min"
    with pytest.raises(ValueError, match="n_src is 2, but there holds mix, s1, s2, s3"):
        wsj0_mix_manifest(root, "train", 8000, 2)


def test_an_empty_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no wav files"):
        wsj0_mix_manifest(corpus_without_files(tmp_path), "train", 8000)


def corpus_without_files(root):
    for kind in ("mix", "s1", "s2"):
        (root / "tr" / kind).mkdir(parents=True)
    return root


def test_only_another_rate_is_there(tmp_path, caplog):
    corpus(tmp_path, rate=16000)
    with caplog.at_level(logging.INFO):
        data = Wsj0MixData(tmp_path, sample_rate=8000, segment=0.05, num_workers=0)
        item = data.dataset("train")[0]
        whole = data.dataset("valid")[0]
    assert item["mixture"].shape == (400,)
    assert whole["sources"].shape == (2, 800)
    assert "wav16k" in caplog.text
    assert "resampled" in caplog.text


def test_the_right_rate_is_preferred(tmp_path):
    corpus(tmp_path, rate=16000)
    corpus(tmp_path, rate=8000)
    for rate in (8000, 16000):
        manifest = wsj0_mix_manifest(tmp_path, "train", rate)
        assert f"wav{rate // 1000}k" in manifest[0].mixture
    assert "wav16k" in wsj0_mix_manifest(tmp_path, "train", 11025)[0].mixture
