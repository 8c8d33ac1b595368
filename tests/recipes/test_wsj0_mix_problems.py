"""WSJ0-mix: what is wrong with corpus, lists, levels or output is named."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import soundfile as sf
from wsj0_corpus import COUNTS, prepare, run, write_lists


def test_a_dry_run_lists_all_that_is_wrong(corpus, tmp_path, capsys):
    base = corpus / "wsj0/si_tr_s"
    (base / "01a/01ao030.wav").unlink()
    sf.write(base / "01a/01ao031.wav", np.ones(100), 8000)
    sf.write(base / "01a/01ao032.wav", np.ones((100, 2)), 16000)
    sphere = base / "01c/01co030.wv1"
    sphere.write_bytes(sphere.read_bytes()[:3000])
    compressed = base / "01c/01co031.wv1"
    header = compressed.read_bytes()[:1024].replace(b"-s3 pcm", b"-s26 pcm,embedded-shorten-v2.00")
    compressed.write_bytes(header[:1024] + b"ajkg" + bytes(200))
    names = ["01a/01ao030", "01a/01ao031", "01a/01ao032", "01c/01co030", "01c/01co031"]
    lines = [f"wsj0/si_tr_s/{name}.wav 1 wsj0/si_tr_s/01d/01do030.wav -1" for name in names]
    arguments = ["--lists", write_lists(tmp_path / "lists", lines)]
    with pytest.raises(ValueError, match="5 problems with the 6 recordings"):
        run(corpus, tmp_path / "out", *arguments, "--dry-run")
    shown = capsys.readouterr().out
    for path, reason in (
        ("wsj0/si_tr_s/01a/01ao030.wav", "no such utterance"),
        ("wsj0/si_tr_s/01a/01ao031.wav", "8000 Hz, WSJ0 has 16000"),
        ("wsj0/si_tr_s/01a/01ao032.wav", "2 channels"),
        ("wsj0/si_tr_s/01c/01co030.wv1", "truncated: 988 samples of"),
        ("wsj0/si_tr_s/01c/01co031.wv1", "decode it with sph2pipe"),
    ):
        (line,) = (line for line in shown.splitlines() if line.startswith(str(corpus / path)))
        assert reason in line
    with pytest.raises(ValueError, match="5 problems in the data"):
        run(corpus, tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_without_problems(original, tmp_path, capsys):
    run(original, tmp_path / "out", "--draw", *COUNTS, "--dry-run")
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_lists_that_are_wrong_or_missing(original, tmp_path):
    lists = write_lists(tmp_path / "lists", ["wsj0/si_tr_s/01a/01ao030.wav 1"])
    (lists / "mix_2_spk_tt.txt").unlink()
    with pytest.raises(
        ValueError, match=r"spk_tr.txt, line 1: 2 fields(.|\n)*spk_cv.*(.|\n)*no su"
    ):
        run(original, tmp_path / "out", "--lists", lists)
    with pytest.raises(FileNotFoundError, match=r"(?s)3_spk_tr.*3_spk_cv.*3_spk_tt.*--draw makes"):
        run(original, tmp_path / "out", "--lists", lists, "--n-src", 3)


def test_more_mixtures_than_there_can_be(original, tmp_path):
    # Three test speakers of five utterances: 3 · 25 pairs.
    with pytest.raises(ValueError, match=r"tt: n_mixtures=76 .* 15 utterances of 3 .* 75"):
        run(original, tmp_path, "--draw", "--counts", 4, 2, 76)


def test_silence_is_named(corpus, tmp_path, capsys):
    silent = corpus / "wsj0/si_tr_s/01a/01ao030.wav"
    sf.write(silent, np.zeros(16000), 16000)
    broken = corpus / "wsj0/si_tr_s/01b/01bo031.wav"
    sf.write(broken, np.full(16000, np.nan), 16000, subtype="FLOAT")
    pairs = [("01ao030", "01bo030"), ("01ao031", "01bo031"), ("01ao031", "01bo030")]
    lines = [f"wsj0/si_tr_s/01a/{a}.wav 1 wsj0/si_tr_s/01b/{b}.wav -1" for a, b in pairs]
    arguments = ["--lists", write_lists(tmp_path / "lists", lines)]
    run(corpus, tmp_path / "out", *arguments, "--dry-run")
    assert "with the right headers" in capsys.readouterr().out
    with pytest.raises(ValueError, match="2 problems with the 4 recordings"):
        run(corpus, tmp_path / "out", *arguments, "--dry-run", "--decode")
    shown = capsys.readouterr().out
    assert f"{silent} (mixture '01ao030_1_01bo030_-1'): silent" in shown
    assert f"{broken} (mixture '01ao031_1_01bo031_-1'): holds NaN" in shown
    with pytest.raises(ValueError, match="2 problems in the data"):
        run(corpus, tmp_path / "out", *arguments, "--decode")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="cannot be made, the others are") as error:
        run(corpus, tmp_path / "out", *arguments)
    assert f"{silent}: silent" in str(error.value)
    assert f"{broken}: holds NaN" in str(error.value)
    (made,) = (tmp_path / "out/2speakers/wav8k/min/tr/mix").iterdir()
    assert made.name.startswith("01ao031_1_01bo030_")


def test_levels_that_are_wrong_or_missing(original, tmp_path):
    levels = tmp_path / "levels.txt"
    arguments = ["--draw", *COUNTS, "--active-levels", levels]
    levels.write_text("01ao030 1e-3\n")
    with pytest.raises(ValueError, match=r"01bo03\d.wav .*no active level in the files given"):
        run(original, tmp_path / "out", *arguments)
    levels.write_text("01ao030 1e-3\n\n01ao031 -26\n")
    with pytest.raises(ValueError, match=r"levels.txt, line 3: '01ao031 -26' is not"):
        run(original, tmp_path / "out", *arguments)


def test_the_last_look_finds_what_is_wrong(original, tmp_path):
    out = run(original, tmp_path, "--draw", *COUNTS)
    folder = out / "2speakers/wav8k/min/tr"
    first, second = sorted((folder / "mix").iterdir())[:2]
    for kind in ("mix", "s1", "s2"):
        shutil.copy(folder / kind / first.name, folder / kind / "extra.wav")
    sf.write(first, np.zeros(77), 8000)
    second.write_bytes(b"")
    with pytest.raises(ValueError, match="3 problems") as error:
        run(original, out, "--draw", *COUNTS)
    message = str(error.value)
    assert f"{first} " in message
    assert "77 samples at 8000 Hz" in message
    assert f"{second} " in message
    assert message.count("(delete it and start again)") == 2
    assert "extra.wav (mixture 'extra'): not in the list" in message


@pytest.mark.parametrize("kind", ["mix", "s1", "s2"])
def test_the_last_look_finds_a_file_too_many(original, tmp_path, kind):
    out = run(original, tmp_path, "--draw", *COUNTS)
    extra = out / "2speakers/wav8k/min/cv" / kind / "extra.wav"
    sf.write(extra, np.zeros(77), 8000)
    with pytest.raises(ValueError, match=rf"{extra} .*not in the list"):
        run(original, out, "--draw", *COUNTS)


def test_errors_are_one_line(original, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        prepare.main(["--corpus", str(tmp_path / "none"), "--out", str(tmp_path), "--draw"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: no such folder\n"
