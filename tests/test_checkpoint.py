"""Reading checkpoints: what is refused and why, and weights that fit or do not."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import TINY, checkpoint_content

from convtasnet import ConvTasNet
from convtasnet.checkpoint import (
    load_weights,
    parse_checkpoint,
    plain_keys,
    read_raw,
)
from convtasnet.resume import check_resume, position


def raw(config=None, epoch=4, last_batch=True, ended=False, **changes):
    """A training checkpoint of ``TINY`` as Lightning writes it."""
    groups = [{"lr": 2e-4, "params": []}]
    loop = {
        "epoch_loop.batch_progress": {"is_last_batch": last_batch},
        "epoch_progress": {"current": {"processed": epoch + ended}},
    }
    return {
        **checkpoint_content(config),
        "epoch": epoch,
        "global_step": 50,
        "loops": {"fit_loop": loop},
        "optimizer_states": [{"state": {}, "param_groups": groups}],
        **changes,
    }


def saved(folder, content):
    torch.save(content, folder / "model.ckpt")
    return folder / "model.ckpt"


def test_a_checkpoint_holds_what_rebuilds_the_model(tmp_path):
    content = raw({"data": {"root": "/data"}})
    path = saved(tmp_path, content)
    checkpoint = parse_checkpoint(read_raw(path), path)
    assert checkpoint.path == tmp_path / "model.ckpt"
    assert checkpoint.config == {"data": {"root": "/data"}}
    model = ConvTasNet(**checkpoint.model_args)
    load_weights(model, checkpoint.state_dict, "here")
    assert model.hparams["n_filters"] == 16
    for key, value in model.state_dict().items():
        assert torch.equal(value, content["state_dict"][f"model.{key}"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read as a checkpoint"),
        (b"no checkpoint at all", "cannot be read as a checkpoint"),
        ([1, 2], "holds a list, not a checkpoint's dictionary"),
        ({"state_dict": {}}, "no checkpoint of convtasnet: it has no 'convtasnet' entry"),
        (raw(convtasnet={"format_version": 2, "model": {}}), "format version 2; this convtasnet"),
        (raw(extra=Path("x")), r"cannot be read as a checkpoint: .*"),
        (raw(extra=np.float64(1.0)), r"cannot be read as a checkpoint: .*"),
    ],
)
def test_what_is_no_checkpoint_is_named(tmp_path, content, words):
    path = tmp_path / "model.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=words) as error:
        parse_checkpoint(read_raw(path), path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kept", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(tmp_path, kept):
    path = saved(tmp_path, raw())
    path.write_bytes(path.read_bytes()[: round(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        read_raw(path)


def test_a_missing_file_is_named_with_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/best.ckpt does not exist"):
        read_raw("best.ckpt")


@pytest.mark.parametrize("mark", ["_orig_mod.", "module.", "_orig_mod.module."])
def test_marks_of_wrappers_go_wherever_they_stand(mark):
    state = ConvTasNet(**TINY).state_dict()
    for wrapped in (f"model.{mark}", f"{mark}model."):
        marked = {f"{wrapped}{key}": value for key, value in state.items()}
        assert list(plain_keys(marked)) == [f"model.{key}" for key in state]


def test_integers_are_no_weights():
    model = ConvTasNet(**TINY, norm="batch")  # whose counts are integers
    key = "separator.bottleneck.bias"
    state = model.state_dict()
    state[key] = state[key].to(torch.int8)
    with pytest.raises(ValueError, match=rf"1 of another kind of numbers: {key} torch\.int8"):
        load_weights(model, state, "x.ckpt")


def test_weights_that_differ_are_listed_shortly_and_none_is_loaded():
    model, other = ConvTasNet(**TINY), ConvTasNet(**{**TINY, "bn_chan": 6, "n_blocks": 3})
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"the weights in x\.ckpt do not fit the model") as error:
        load_weights(model, other.state_dict(), "x.ckpt")
    message = str(error.value)
    assert "unexpected: separator.blocks.2." in message
    assert "of another shape: " in message
    assert "(16, 6, 1) instead of (16, 8, 1)" in message
    assert " more" in message
    assert len(message) < 1200
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_position_counts_complete_epochs():
    assert position(raw()).epochs == 5
    assert position(raw(ended=True)).epochs == 5
    assert position(raw(last_batch=False)).epochs == 4
    assert position(raw(last_batch=False, ended=True)).epochs == 5  # by max_steps, for instance
    assert (position(raw()).steps, position(raw()).lr) == (50, 2e-4)
    with pytest.raises(ValueError, match="epoch, loops missing"):
        position({"global_step": 1, "optimizer_states": []})


def test_a_resume_says_where_it_goes_on_and_what_it_ignores(tmp_path, caplog):
    old = {"optimizer": {"_target_": "Adam", "lr": 1e-3}, "scheduler": {"T_max": 3}}
    new = {"optimizer": {"_target_": "Adam", "lr": 1e-2}, "scheduler": {"T_max": 6}}
    path = saved(tmp_path, raw(old))
    with caplog.at_level("INFO"):
        start = check_resume(path, ConvTasNet(**TINY), new)
    assert (start.epochs, start.steps) == (5, 50)
    assert "after 5 epochs, 50 steps, with learning rate 0.0002" in caplog.text
    assert "optimizer.lr=0.001, not 0.01; scheduler.T_max=3, not 6" in caplog.text


def test_a_checkpoint_without_its_configuration_resumes(tmp_path, caplog):
    config = {"optimizer": {"_target_": "Adam", "lr": 1e-3}}
    check_resume(saved(tmp_path, raw()), ConvTasNet(**TINY), config)
    assert not caplog.records


@pytest.mark.parametrize(
    ("entry", "weights", "words"),
    [
        ({"model": None}, {}, "is damaged: its model arguments"),
        ({"model": {1: 2}}, {}, "is damaged: its model arguments"),
        ({}, [1], "is damaged: its model arguments"),
        ({}, {3: torch.zeros(1)}, "is damaged: its model arguments"),
        ({}, {"model.x": "text"}, "is damaged: its model arguments"),
        ({"model": {**TINY, "n_heads": 4}}, {}, r"does not know: \['n_heads'\]"),
    ],
)
def test_a_malformed_checkpoint_is_named(tmp_path, entry, weights, words):
    content = raw()
    content["convtasnet"] = {**content["convtasnet"], **entry}
    path = saved(tmp_path, {**content, "state_dict": weights})
    with pytest.raises(ValueError, match=words) as error:
        ConvTasNet.from_pretrained(path)
    assert str(path) in str(error.value)


def test_a_flipped_bit_is_found(tmp_path):
    path = saved(tmp_path, raw())
    with zipfile.ZipFile(path) as archive:
        record = max(archive.infolist(), key=lambda info: info.file_size)
    content = bytearray(path.read_bytes())
    lengths = struct.unpack_from("<HH", content, record.header_offset + 26)  # of name and padding
    content[record.header_offset + 30 + sum(lengths) + record.file_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        read_raw(path)
