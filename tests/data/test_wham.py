"""WHAM!: float32 files with noise, in the folders and under the names of wsj0-2mix."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tiny_noisy import WHAM, write_tree
from training import TINY, composed, script

from convtasnet.data.wham import WhamData
from convtasnet.log_filters import WARNINGS

EVALUATE = str(Path(__file__).parents[2] / "scripts" / "evaluate.py")


@pytest.fixture
def root(tmp_path):
    write_tree(tmp_path / "wham", WHAM, subtype="FLOAT")
    return tmp_path / "wham"


def data_of(root, **changes):
    return WhamData(root, **({"segment": 0.5, "batch_size": 2, "num_workers": 0} | changes))


@pytest.mark.parametrize(
    ("mixture", "noise", "sources"),
    [
        ("mix_both", "ignore", "s1 s2"),
        ("mix_both", "batch", "s1 s2"),
        ("mix_both", "source", "s1 s2 noise"),
        ("mix_clean", "ignore", "s1 s2"),
        ("mix_single", "ignore", "s1"),
        ("mix_single", "source", "s1 noise"),
    ],
)
@pytest.mark.parametrize("resident", [False, True])
def test_rows_and_batches(root, mixture, noise, sources, resident):
    n_src = len(sources.split())
    data = data_of(root, mixture=mixture, noise=noise, n_src=n_src, resident=resident)
    data.check()
    for split, name in (("train", "tr"), ("valid", "cv"), ("test", "tt")):
        manifest = data.manifest(split)
        assert [row.id for row in manifest] == [f"{name}_{i}" for i in range(WHAM[name])]
        base = root / "wav8k/min" / name
        assert manifest[1].mixture == str(base / mixture / f"{name}_1.wav")
        assert manifest[1].sources[:n_src] == tuple(
            str(base / kind / f"{name}_1.wav") for kind in sources.split()
        )
    for batch in data.train_dataloader():
        assert batch["sources"].shape == (2, n_src, 4000)
        assert ("noise" in batch) is (noise == "batch")
        everything = batch["sources"].sum(1) + batch.get("noise", 0)
        if noise != "ignore" or mixture == "mix_clean":
            torch.testing.assert_close(batch["mixture"], everything, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("rate", "mode"), [(8000, "max"), (16000, "min"), (16000, "max")])
def test_rate_and_mode_choose_folders(root, rate, mode):
    write_tree(root, WHAM, rate=rate, mode=mode, subtype="FLOAT")
    row = data_of(root, sample_rate=rate, mode=mode).manifest("test")[0]
    assert row.mixture == str(root / f"wav{rate // 1000}k/{mode}/tt/mix_both/tt_0.wav")


@pytest.mark.parametrize(
    ("gone", "arguments", "words"),
    [
        ("wav8k", {}, "data.root=.*wham holds nothing: expected in it wav8k and wav16k"),
        ("wav8k/min/tr/noise", {"noise": "source", "n_src": 3}, r"tr: folders \['noise'\] are mis"),
        ("wav8k/min/cv", {}, "min/cv: no such folder; .*min holds tr, tt"),
        (None, {"n_src": 3}, r"folders \['s3'\] are missing, there holds mix_both"),
        (None, {"sample_rate": 16000}, "nothing above 4000 Hz: set data.sample_rate=8000"),
        (None, {"mode": "max"}, "wav8k/max/tr: no such folder; .*wav8k holds min"),
    ],
)
def test_what_is_absent_is_named_with_what_is_there(root, gone, arguments, words):
    if gone:
        shutil.rmtree(root / gone)
    with pytest.raises(FileNotFoundError, match=words):
        data_of(root, **arguments).check()


def test_files_without_partners_and_nan_are_named(root):
    noise = root / "wav8k/min/tt/noise/tt_0.wav"
    wav = soundfile.read(noise, dtype="float32")[0]
    wav[5] = np.nan
    soundfile.write(noise, wav, 8000, subtype="FLOAT")
    data_of(root, noise="ignore").check(["test"])
    with pytest.raises(ValueError, match=r"noise/tt_0\.wav .*holds NaN .* at 5"):
        data_of(root, noise="batch").check(["test"])
    noise.unlink()
    with pytest.raises(ValueError, match="1 files are missing") as error:
        data_of(root, noise="batch").check(["test"])
    assert str(noise) in str(error.value)


@pytest.mark.filterwarnings(*[f"ignore:{message}" for message in WARNINGS])
@pytest.mark.parametrize(("noise", "n_src"), [("batch", 2), ("source", 3)])
def test_training_and_evaluation(root, tmp_path, run_script, noise, n_src):
    run, out = tmp_path / "run", tmp_path / "out"
    own = ["data=wham", f"data.root={root}", f"data.noise={noise}", f"data.n_src={n_src}"]
    own += [f"run_dir={run}", "logger=none", "trainer.max_steps=2"]
    script.train(composed(*(item for item in TINY if item != "data=manifest"), *own))
    common = [f"checkpoint={run}/checkpoints/last.ckpt", "metrics=[si_sdr]"]
    code, _, err = run_script(EVALUATE, *common, f"hydra.run.dir={out}", "save_audio=true")
    assert code == 0, err
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["n"], summary["n_valid"], summary["data"]["noise"]) == (2, 2, noise)
    names = {path.name for path in (out / "audio").rglob("*.wav")}
    assert len({name.split("_s")[-1] for name in names}) == n_src
    named = ["data=wham", f"data.root={root}", f"data.noise={noise}", f"hydra.run.dir={out}2"]
    code, _, err = run_script(EVALUATE, *common, *named)
    assert code == 0, err
