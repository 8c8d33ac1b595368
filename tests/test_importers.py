"""Other toolkits' checkpoints give here what they give there; what is missing is asked for."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from convtasnet import ConvTasNet
from convtasnet.importers.speechbrain import PARTS

INTEROP = Path(__file__).parent / "assets" / "interop"
TORCHAUDIO = {"msk_num_layers": 3, "msk_activate": "relu"}
SPEECHBRAIN = {"norm_type": "gLN", "causal": False, "mask_nonlinear": "relu"}
# Folder, file in it (SpeechBrain: the folder itself), what it does not hold.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "asteroid_cgln_causal": ("best_model.pth", {}),
    "asteroid_extra_oldpackage": ("best_model.pth", {"sample_rate": 8000}),
    "torchaudio_relu": ("model.pt", TORCHAUDIO),
    "kaituoxu_cln_causal": ("final.pth.tar", {}),
    "kaituoxu_extra_softmax": ("final.pth.tar", {"C": 3}),
    "speechbrain_cln_causal": ("", {**SPEECHBRAIN, "norm_type": "cLN", "causal": True}),
    "speechbrain_gln": ("", {"MaskNet": SPEECHBRAIN, "num_spks": 2, "Decoder": {"stride": 8}}),
    "speechbrain_extra_gln_causal": ("", {**SPEECHBRAIN, "causal": True}),
}


def path_of(variant: str) -> Path:
    return INTEROP / variant / VARIANTS[variant][0]


def content_of(variant: str) -> dict[str, Any]:
    with torch.serialization.safe_globals([torch.torch_version.TorchVersion]):
        return torch.load(path_of(variant), weights_only=True)


def saved(tmp_path: Path, content: Any, name: str = "model.pth") -> Path:
    torch.save(content, tmp_path / name)
    return tmp_path / name


def check_outputs(model: ConvTasNet, variant: str, prefix: str = "", device: str = "cpu") -> None:
    """Within 5e-5 of the rms, where float32 alone makes 6e-6."""
    arrays = np.load(INTEROP / variant / "outputs.npz")
    mix, est = (torch.from_numpy(arrays[f"{prefix}{name}"]) for name in ("mix", "est"))
    with torch.no_grad():
        y = model.to(device)(mix.to(device)).cpu()[..., : est.shape[-1]]
    assert float((y - est).abs().max() / est.square().mean().sqrt()) < 5e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_are_the_toolkits(variant: str, tmp_path: Path) -> None:
    model = ConvTasNet.from_pretrained(path_of(variant), VARIANTS[variant][1])
    assert not model.training
    check_outputs(model, variant)
    model.save_pretrained(tmp_path / "saved")
    again = ConvTasNet.from_pretrained(tmp_path / "saved")
    assert again.hparams == model.hparams
    assert again.about["source"]["toolkit"].lower() in variant
    check_outputs(again, variant)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_on_a_gpu(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels take these models' numbers of taps, norms and reflections too."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = ConvTasNet.from_pretrained(path_of(variant), VARIANTS[variant][1])
    check_outputs(model, variant, device="cuda")


def test_eps_is_theirs() -> None:
    model = ConvTasNet.from_pretrained(path_of("asteroid_cgln_causal"))
    check_outputs(model, "asteroid_cgln_causal", "quiet_")


@pytest.mark.parametrize(
    "variant", ["asteroid_cgln_causal", "kaituoxu_cln_causal", "speechbrain_cln_causal"]
)
def test_causal_models_stay_causal(variant: str) -> None:
    model = ConvTasNet.from_pretrained(path_of(variant), VARIANTS[variant][1])
    x = torch.randn(1, 2000)
    poisoned = x.clone()
    poisoned[:, 1200:] = torch.nan
    assert model.causal
    assert torch.equal(model(poisoned)[..., : 1200 - 15], model(x)[..., : 1200 - 15])


def test_causal_convolutions_with_the_global_norm_are_called_what_they_are(caplog: Any) -> None:
    variant = "speechbrain_extra_gln_causal"
    model = ConvTasNet.from_pretrained(path_of(variant), VARIANTS[variant][1])
    assert not model.causal
    assert "it is not causal" in caplog.text
    assert "norm='global'" in caplog.text


@pytest.mark.parametrize(
    ("variant", "given", "asked"),
    [
        ("torchaudio_relu", None, ["msk_num_layers", "msk_activate"]),
        ("torchaudio_relu", {"msk_num_stacks": 2}, ["msk_activate"]),
        ("speechbrain_gln", {"causal": True}, ["norm_type", "mask_nonlinear"]),
        ("speechbrain_gln", {"MaskNet": {"norm_type": "gLN"}}, ["mask_nonlinear", "causal"]),
    ],
)
def test_what_a_file_does_not_hold_is_asked_for(
    variant: str, given: dict[str, Any] | None, asked: list[str]
) -> None:
    with pytest.raises(ValueError, match="does not hold") as error:
        ConvTasNet.from_pretrained(path_of(variant), given)
    message = str(error.value)
    assert f"hparams={{{', '.join(f'{name!r}: …' for name in asked)}}}" in message
    assert f"--hparams {' '.join(f'{name}=…' for name in asked)}" in message


@pytest.mark.parametrize(
    ("variant", "given", "words"),
    [
        ("asteroid_cgln_causal", {"mask_act": "relu"}, "mask_act='sigmoid'.*'relu' in hparams"),
        ("asteroid_cgln_causal", {"mask": "relu"}, "hparams names mask, unknown"),
        ("kaituoxu_cln_causal", {"N": 64}, "N=32 .*64 in hparams"),
        ("torchaudio_relu", {**TORCHAUDIO, "msk_num_feats": 8}, "msk_num_feats=16 in its weights"),
        ("torchaudio_relu", {**TORCHAUDIO, "msk_num_layers": 4}, "6 blocks.*msk_num_layers=4"),
        ("torchaudio_relu", {**TORCHAUDIO, "msk_activate": "tanh"}, "'tanh'.*'sigmoid', 'relu'"),
        ("speechbrain_gln", {**SPEECHBRAIN, "norm_type": "BN"}, "norm_type='BN'"),
        ("speechbrain_gln", {**SPEECHBRAIN, "stride": 4}, "stride=8 in its weights"),
        ("kaituoxu_cln_causal", {"sample_rate": 8000.5}, "sample_rate=8000.5"),
    ],
)
def test_contradictions_are_refused(variant: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        ConvTasNet.from_pretrained(path_of(variant), given)
    assert str(path_of(variant)) in str(error.value)


def test_a_missing_sample_rate_is_said(caplog: Any) -> None:
    variant = "kaituoxu_cln_causal"
    assert ConvTasNet.from_pretrained(path_of(variant)).sample_rate == 8000
    assert "8000 Hz are assumed" in caplog.text
    caplog.clear()
    model = ConvTasNet.from_pretrained(path_of(variant), {"sample_rate": 16000})
    assert model.sample_rate == 16000
    assert not caplog.text


@pytest.mark.parametrize(("version", "norm"), [("0.6.0", "_legacy"), ("0.6.1", "")])
def test_asteroids_old_variance(version: str, norm: str, tmp_path: Path, caplog: Any) -> None:
    content = content_of("asteroid_cgln_causal")
    content["infos"]["software_versions"]["asteroid_version"] = version
    model = ConvTasNet.from_pretrained(saved(tmp_path, content))
    assert model.hparams["norm"] == f"cumulative{norm}"
    assert ("no true variance" in caplog.text) == bool(norm)
    given = {"asteroid_version": "0.5.0"}  # trained with it, saved by another
    model = ConvTasNet.from_pretrained(tmp_path / "model.pth", given)
    assert model.hparams["norm"] == "cumulative_legacy"
    del content["infos"]
    with pytest.raises(ValueError, match="asteroid_version=…"):
        ConvTasNet.from_pretrained(saved(tmp_path, content))


def test_a_bare_state_dictionary_in_wrappers(tmp_path: Path) -> None:
    content = content_of("asteroid_cgln_causal")
    wrapped = {f"module.model.{key}": value for key, value in content["state_dict"].items()}
    wrapped["loss_func.weight"] = torch.ones(1)
    path = saved(tmp_path, {"state_dict": wrapped})
    with pytest.raises(ValueError, match=r"does not hold fb_name .*stride .*norm_type .*mask_act"):
        ConvTasNet.from_pretrained(path)
    given = content["model_args"] | {"asteroid_version": "0.7.0"}
    check_outputs(ConvTasNet.from_pretrained(path, given), "asteroid_cgln_causal")


@pytest.mark.parametrize("variant", ["asteroid_cgln_causal", "kaituoxu_cln_causal"])
def test_missing_and_left_over_weights_are_listed(variant: str, tmp_path: Path) -> None:
    content = content_of(variant)
    state = content["state_dict"]
    norm = next(key for key in state if key.endswith(".gamma"))
    state["extra.weight"] = state.pop(norm)
    with pytest.raises(ValueError, match=rf"1 missing: {norm}; 1 unexpected: extra.weight"):
        ConvTasNet.from_pretrained(saved(tmp_path, content))


@pytest.mark.parametrize("variant", ["asteroid_cgln_causal", "kaituoxu_cln_causal"])
def test_weights_that_are_integers_are_refused(variant: str, tmp_path: Path) -> None:
    """Quantized ones, say, whose scale is lost."""
    content = content_of(variant)
    norm = next(key for key in content["state_dict"] if key.endswith(".gamma"))
    content["state_dict"][norm] = content["state_dict"][norm].to(torch.int8)
    with pytest.raises(ValueError, match=rf"do not fit: 1 not floating-point: {norm}"):
        ConvTasNet.from_pretrained(saved(tmp_path, content))


def test_other_models_are_refused(tmp_path: Path) -> None:
    content = content_of("asteroid_cgln_causal") | {"model_name": "DPRNNTasNet"}
    with pytest.raises(ValueError, match="asteroid's DPRNNTasNet"):
        ConvTasNet.from_pretrained(saved(tmp_path, content))
    with pytest.raises(ValueError, match=r"no checkpoint of convtasnet.*nor.*asteroid"):
        ConvTasNet.from_pretrained(saved(tmp_path, {"layer.weight": torch.ones(1)}))


def test_nothing_is_unpickled_freely(tmp_path: Path) -> None:
    content = copy.deepcopy(content_of("asteroid_cgln_causal"))
    content["infos"]["path"] = Path("x")
    with pytest.raises(ValueError, match=r"pathlib\S*Path, which is not run"):
        ConvTasNet.from_pretrained(saved(tmp_path, content))


def test_speechbrains_folder_is_named(tmp_path: Path) -> None:
    source = path_of("speechbrain_gln")
    folder = tmp_path / "save" / "CKPT+1"
    folder.mkdir(parents=True)
    for part in PARTS:
        shutil.copy(source / f"{part}.ckpt", folder)
    (folder / "counter.ckpt").write_text("3")
    assert ConvTasNet.from_pretrained(folder, SPEECHBRAIN).n_src == 2
    with pytest.raises(ValueError, match=r"holds no model.*did you mean .*CKPT\+1"):
        ConvTasNet.from_pretrained(folder.parent, SPEECHBRAIN)
    with pytest.raises(ValueError, match=r"did you mean .*CKPT\+1\?"):
        ConvTasNet.from_pretrained(tmp_path, SPEECHBRAIN)
    with pytest.raises(ValueError, match="name the folder of SpeechBrain's files"):
        ConvTasNet.from_pretrained(folder / "masknet.ckpt", SPEECHBRAIN)
    (folder / "decoder.ckpt").unlink()
    with pytest.raises(ValueError, match=r"encoder\.ckpt, masknet\.ckpt, decoder\.ckpt"):
        ConvTasNet.from_pretrained(folder, SPEECHBRAIN)
