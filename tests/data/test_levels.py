"""Levels of files: measured once, remembered, measured again where the memory is damaged."""

import numpy as np
import torch

from convtasnet.audio import write_audio
from convtasnet.data.levels import file_levels


def test_a_damaged_cache_of_levels_is_made_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CONVTASNET_CACHE", str(tmp_path / "cache"))
    write_audio(tmp_path / "a.wav", 0.5 * torch.ones(8000), 8000)
    first = file_levels([str(tmp_path / "a.wav")])
    (store,) = (tmp_path / "cache" / "levels").iterdir()
    store.write_bytes(b"no array")
    assert np.array_equal(file_levels([str(tmp_path / "a.wav")]), first)
    assert "scanned again" in caplog.text
