"""Saved models: whole, small, plain, the same on any machine and in later versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from tiny_model import TINY, write_checkpoint
from torch import Tensor

from convtasnet import ConvTasNet
from convtasnet.checkpoint import FORMAT_VERSION
from convtasnet.losses import si_sdr

GOLDEN = Path(__file__).parent / "assets" / "golden"
CAUSAL = {**TINY, "norm": "cumulative", "causal": True}
CONFIG = {"data": {"root": "/home/somebody/speech", "segment": 4.0}, "seed": 3}


@pytest.fixture
def model() -> ConvTasNet:
    return ConvTasNet(**CAUSAL, n_src=3, sample_rate=16000).eval()


@pytest.fixture
def folder(model: ConvTasNet, tmp_path: Path) -> Path:
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def outputs(model: ConvTasNet) -> Tensor:
    x = torch.randn(800, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(x)


def change_config(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | changes))


@pytest.mark.parametrize("source", ["training.ckpt", "model"])
def test_golden_checkpoints_give_what_they_gave(source: str) -> None:
    model = ConvTasNet.from_pretrained(GOLDEN / source)
    arrays = np.load(GOLDEN / "outputs.npz")
    with torch.no_grad():
        est = model(torch.from_numpy(arrays["mix"]))
    torch.testing.assert_close(est, torch.from_numpy(arrays["est"]), atol=2e-6, rtol=1e-5)
    assert model.hparams["n_repeats"] == 2
    assert model.training_config["optimizer"]["lr"] == 1e-3


def test_the_golden_files_are_of_the_first_format() -> None:
    raw = torch.load(GOLDEN / "training.ckpt", weights_only=True)
    config = json.loads((GOLDEN / "model" / "config.json").read_text())
    assert raw["convtasnet"]["format_version"] == config["format_version"] == 1


def test_saved_and_loaded_is_the_same(model: ConvTasNet, folder: Path) -> None:
    again = ConvTasNet.from_pretrained(folder)
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert again.hparams == model.hparams
    assert not again.training
    assert torch.equal(outputs(again), outputs(model))
    assert ConvTasNet.from_pretrained(str(folder)).hparams == model.hparams
    assert load_file(folder / "model.safetensors").keys() == again.state_dict().keys()


def test_half_precision_halves_the_file(model: ConvTasNet, folder: Path) -> None:
    whole = outputs(model)
    model.half().save_pretrained(folder.with_name("half"))
    sizes = [(f / "model.safetensors").stat().st_size for f in (folder, folder.with_name("half"))]
    assert sizes[1] < 0.7 * sizes[0]  # the names of the weights take a part of so small a file
    again = ConvTasNet.from_pretrained(folder.with_name("half"))
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    assert float(si_sdr(outputs(again), whole).min()) > 40


def test_a_training_checkpoint_becomes_portable(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "best.ckpt", CONFIG, **CAUSAL)
    model = ConvTasNet.from_pretrained(path)
    model.about["scores"] = {"n": 10, "si_sdr": 4.5, "si_sdri": 4.75, "split": "test"}
    model.about["card"] = {"name": "Two", "license": "MIT", "data": "speech", "limits": "music"}
    model.save_pretrained(tmp_path / "a")
    again = ConvTasNet.from_pretrained(tmp_path / "a")
    again.save_pretrained(tmp_path / "b")
    for name in ("a", "b"):
        folder = tmp_path / name
        card = (folder / "README.md").read_text()
        assert "somebody" not in card + (folder / "config.json").read_text()
        for text in ("# Two", "license: mit", "| SI-SDR | 4.50 dB | 4.75 dB |", '"segment": 4.0'):
            assert text in card
    assert again.training_config == {"data": {"root": "…/speech", "segment": 4.0}, "seed": 3}
    assert again.about["scores"] == model.about["scores"]
    assert huggingface_hub.ModelCard.load(tmp_path / "b" / "README.md").data.license == "mit"


def test_a_card_that_is_there_stays(model: ConvTasNet, folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    model.save_pretrained(folder)
    assert (folder / "README.md").read_text() == "mine"
    kwargs = {"limits": "one room only"}
    model.save_pretrained(folder.with_name("new"), model_card_kwargs=kwargs)
    assert "one room only" in (folder.with_name("new") / "README.md").read_text()


def test_marks_of_compiled_and_parallel_models_go(model: ConvTasNet, tmp_path: Path) -> None:
    compiled: Any = torch.compile(model, backend="eager")
    compiled.save_pretrained(tmp_path / "compiled")
    assert ConvTasNet.from_pretrained(tmp_path / "compiled").hparams == model.hparams
    state = {f"model._orig_mod.{key}": v for key, v in model.state_dict().items()}
    entry = {"format_version": FORMAT_VERSION, "model": model.hparams, "config": {}}
    torch.save({"state_dict": state, "convtasnet": entry}, tmp_path / "compiled.ckpt")
    plain = ConvTasNet.from_pretrained(tmp_path / "compiled.ckpt")
    assert torch.equal(outputs(plain), outputs(model))
    compiled.load_state_dict({f"_orig_mod.{k}": v for k, v in plain.state_dict().items()})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": 2}, "format version 2; this convtasnet"),
        ({"model": None}, "names no arguments of a model"),
        ({"model": {**CAUSAL, "heads": 4}}, r"does not know: \['heads'\]"),
        ({"model": {**CAUSAL, "n_src": 2}}, r"mask_conv.weight \(48, 8, 1\) instead of \(32, 8"),
        ({"model": {**CAUSAL, "n_blocks": 3, "n_src": 3}}, "12 missing: separator.blocks.2"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], words: str, folder: Path) -> None:
    change_config(folder, **changes)
    with pytest.raises(ValueError, match=words) as error:
        ConvTasNet.from_pretrained(folder)
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 700


def test_damaged_and_missing_files_are_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (b"", content[:100], content[:-10]):
        weights.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
            ConvTasNet.from_pretrained(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors does not exist"):
        ConvTasNet.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json is no JSON"):
        ConvTasNet.from_pretrained(folder)
    with pytest.raises(ValueError, match="name its folder"):
        ConvTasNet.from_pretrained(weights)


@pytest.mark.parametrize("source", [None, "", " ", 7])
def test_what_names_no_model_is_refused(source: Any) -> None:
    with pytest.raises(ValueError, match=f"^{source!r} names no model"):
        ConvTasNet.from_pretrained(source)


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_bad_weights_are_neither_saved_nor_loaded(
    model: ConvTasNet, folder: Path, value: float
) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with torch.no_grad():
        model.separator.mask_conv.bias[3] = value
    message = r"hold NaN or infinity: separator\.mask_conv\.bias$"
    for target in (folder, folder.with_name("new")):
        with pytest.raises(ValueError, match=f"^the weights {message}"):
            model.save_pretrained(target)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]
    save_file(model.state_dict(), folder / "model.safetensors")
    with pytest.raises(ValueError, match=rf"^the weights in {folder} {message}"):
        ConvTasNet.from_pretrained(folder)


def test_a_file_is_no_folder_to_save_in(model: ConvTasNet, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ValueError, match=f"{tmp_path}/model is a file: name a folder"):
        model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


@pytest.mark.parametrize("step", ["model_card", "write_portable"])
def test_a_save_that_breaks_off_leaves_the_older_model(
    model: ConvTasNet, folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.txt").touch()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def breaks(*_: Any) -> None:
        assert {name: (folder / name).read_bytes() for name in before} == before
        raise KeyboardInterrupt

    (folder / "README.md").rename(folder.with_name("card"))
    before.pop("README.md")
    other = ConvTasNet(**CAUSAL, n_src=2)
    with monkeypatch.context() as patch:
        patch.setattr(f"convtasnet.hub_model.{step}", breaks)
        with pytest.raises(KeyboardInterrupt):
            other.save_pretrained(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    other.save_pretrained(folder)
    assert ConvTasNet.from_pretrained(folder).n_src == 2
    assert (folder / "mine.txt").exists()


def test_a_model_that_holds_all_needs_no_hparams(folder: Path) -> None:
    with pytest.raises(ValueError, match="holds its own hyper-parameters"):
        ConvTasNet.from_pretrained(folder, hparams={"n_src": 2})
    with pytest.raises(ValueError, match=r"hparams=\[1\] must be a dictionary"):
        ConvTasNet.from_pretrained(folder, hparams=[1])  # type: ignore[arg-type]


class Hub:
    """The hub, as a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(self, repo_id: str, **_: Any) -> Any:
        return type("Repo", (), {"repo_id": repo_id})

    def upload_folder(self, repo_id: str, folder_path: Path, **_: Any) -> str:
        shutil.copytree(folder_path, self.root / repo_id)
        return f"hub/{repo_id}"

    def snapshot_download(self, repo_id: str, allow_patterns: list[str], **options: Any) -> str:
        assert "README.md" not in allow_patterns
        assert options.get("revision") in (None, "v1")
        if not (self.root / repo_id).exists():
            raise LocalEntryNotFoundError("cannot be reached\nin detail")
        return str(self.root / repo_id)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    fake = Hub(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", lambda **_: fake)
    monkeypatch.setattr("convtasnet.hub.snapshot_download", fake.snapshot_download)
    monkeypatch.chdir(tmp_path)
    return fake


def test_up_to_the_hub_and_down(model: ConvTasNet, hub: Hub) -> None:
    assert model.push_to_hub("me/voices") == "hub/me/voices"
    assert (hub.root / "me" / "voices" / "README.md").is_file()
    again = ConvTasNet.from_pretrained("me/voices", revision="v1")
    assert torch.equal(outputs(again), outputs(model))


def test_another_toolkits_model_on_the_hub(hub: Hub) -> None:
    (hub.root / "them" / "asteroid").mkdir(parents=True)
    package = GOLDEN.parent / "interop" / "asteroid_cgln_causal" / "best_model.pth"
    shutil.copy(package, hub.root / "them" / "asteroid" / "pytorch_model.bin")
    assert ConvTasNet.from_pretrained("them/asteroid").about["source"]["toolkit"] == "asteroid"


def test_the_file_system_comes_before_the_hub(model: ConvTasNet, hub: Hub) -> None:
    model.save_pretrained("me/voices")
    assert ConvTasNet.from_pretrained("me/voices").hparams == model.hparams
    with pytest.raises(FileNotFoundError, match=r"neither a file or folder here.*cannot be reach"):
        ConvTasNet.from_pretrained("me/other")
    for missing in ("best.ckpt", "./you", "/no/where", "a/b/c", "~/none.pth"):
        with pytest.raises(FileNotFoundError, match=r"checkpoint /.* does not exist"):
            ConvTasNet.from_pretrained(missing)


@pytest.mark.parametrize("nowhere", ["", " ", None])
def test_no_folder_is_not_the_current_one(model: ConvTasNet, nowhere: Any) -> None:
    with pytest.raises(ValueError, match=f"save_directory={nowhere!r} names no folder"):
        model.save_pretrained(nowhere)


def test_an_unknown_option_is_named_for_a_file_too(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^hparam: no such option; there are hparams and"):
        ConvTasNet.from_pretrained(folder, hparam={"X": 8})
    ConvTasNet.from_pretrained(folder, revision="main")  # a folder may stand where the hub did


def test_arguments_without_a_meaning_are_named_with_their_file(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["model"]["n_src"] = "2"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"^{folder}: n_src='2' must be an integer"):
        ConvTasNet.from_pretrained(folder)
