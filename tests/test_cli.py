import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile as sf
import torch
from documents import ROOT
from tiny_model import TINY, write_checkpoint

from convtasnet import ConvTasNet, pieces, separate, shipped
from convtasnet.cli import main, resolve_device, run_hydra, run_main
from convtasnet.inference import rescale
from convtasnet.pack import write_pack

ASSETS = ROOT / "tests" / "assets"


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "models" / "best.ckpt")


@pytest.fixture(autouse=True)
def no_model_in_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nothing")


def write_wav(path, seconds=0.3, rate=8000, channels=1, level=0.1):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (round(seconds * rate), channels)
    sf.write(path, level * np.random.default_rng(0).uniform(-1, 1, shape), rate)
    return path


def run(*arguments):
    """Exit code of ``convtasnet separate``, run here."""
    try:
        main(["separate", *map(str, arguments)])
    except SystemExit as stop:
        return stop.code
    return 0


def test_the_installed_command_from_another_folder(checkpoint, tmp_path):
    elsewhere = tmp_path / "else where" / "é"
    write_wav(elsewhere / "one.wav", seconds=1.0, rate=44100)
    command = os.path.join(os.path.dirname(sys.executable), "convtasnet")
    arguments = [command, "separate", "one.wav", "--checkpoint", str(checkpoint)]
    result = subprocess.run(arguments, capture_output=True, text=True, cwd=elsewhere)
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr
    assert sorted(os.listdir(elsewhere)) == ["one.wav", "one_s1.wav", "one_s2.wav"]
    for name in ("one_s1.wav", "one_s2.wav"):
        info = sf.info(elsewhere / name)
        assert (info.frames, info.samplerate, info.channels) == (44100, 44100, 1)


def test_outputs_go_to_the_folder_named(checkpoint, tmp_path, capsys):
    files = [write_wav(tmp_path / "in" / name) for name in ("a.wav", "b.flac")]
    out = tmp_path / "new" / "out"
    assert run(*files, "--checkpoint", checkpoint, "--out", out, "--device", "cpu") == 0
    names = ["a_s1.wav", "a_s2.wav", "b_s1.wav", "b_s2.wav"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert capsys.readouterr().out.splitlines() == [str(out / name) for name in names]
    assert run(*files, "--checkpoint", checkpoint, "--out", out) == 0  # replaces its own outputs


def test_a_recording_of_a_pack_is_separated_beside_it(checkpoint, tmp_path):
    wav = np.random.default_rng(0).integers(-999, 999, 2400).astype(np.int16)
    write_pack(tmp_path / "audio.pack", np.array([2400]), 8000, [(wav, np.ones(1))])
    assert run(tmp_path / "audio.pack" / "0", "--checkpoint", checkpoint) == 0
    assert sf.info(tmp_path / "0_s1.wav").frames == 2400


def test_stereo_is_averaged_and_said(checkpoint, tmp_path, caplog):
    stereo = write_wav(tmp_path / "stereo.wav", channels=2)
    samples, rate = sf.read(stereo)
    sf.write(tmp_path / "mono.wav", samples.mean(1), rate, subtype="FLOAT")
    with caplog.at_level("INFO"):
        assert run(stereo, tmp_path / "mono.wav", "--checkpoint", checkpoint) == 0
    assert "2 channels are averaged" in caplog.text
    left, right = (sf.read(tmp_path / f"{name}_s1.wav")[0] for name in ("stereo", "mono"))
    np.testing.assert_allclose(left, right, atol=1e-4)


def test_channels_that_cancel_out_are_said(checkpoint, tmp_path, caplog):
    wav = sf.read(write_wav(tmp_path / "mono.wav"))[0]
    sf.write(tmp_path / "stereo.wav", np.stack([wav, 2**-15 - wav], 1), 8000, subtype="FLOAT")
    assert run(tmp_path / "mono.wav", tmp_path / "stereo.wav", "--checkpoint", checkpoint) == 0
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    silent = "the mean of its channels is silent, and so are the outputs"
    assert said == [f"{tmp_path / 'stereo.wav'}: {silent}"]


def test_nothing_clips(checkpoint, tmp_path):
    loud = tmp_path / "loud.wav"
    sf.write(loud, np.random.default_rng(0).uniform(-8, 8, 4000), 8000, subtype="FLOAT")
    assert run(loud, "--checkpoint", checkpoint) == 0
    peaks = [abs(sf.read(tmp_path / f"loud_s{i}.wav")[0]).max() for i in (1, 2)]
    assert max(peaks) == pytest.approx(1, abs=1e-3)
    full = [(abs(sf.read(tmp_path / f"loud_s{i}.wav")[0]) > 0.999).sum() for i in (1, 2)]
    assert sum(full) == 1


def test_the_files_hold_what_separate_gives(checkpoint, tmp_path, monkeypatch):
    """Also where the recording is separated in pieces, and resampled in blocks."""
    monkeypatch.setattr(pieces, "CHUNK_SECONDS", 1.0)
    wav = 0.1 * torch.randn(150_001)
    sf.write(tmp_path / "a.wav", wav.numpy(), 44100, subtype="FLOAT")
    model = ConvTasNet.from_pretrained(checkpoint)
    voices = separate(model, wav, 44100)
    for normalize, expected in (("none", voices), ("mixture", rescale(voices, wav))):
        words = ("--subtype", "FLOAT", "--normalize", normalize)
        assert run(tmp_path / "a.wav", "--checkpoint", checkpoint, *words) == 0
        for number, voice in enumerate(expected, start=1):
            samples, rate = sf.read(tmp_path / f"a_s{number}.wav", dtype="float32")
            assert rate == 44100
            torch.testing.assert_close(torch.from_numpy(samples), voice, atol=1e-6, rtol=1e-5)
    assert sf.info(tmp_path / "a_s1.wav").subtype == "FLOAT"


def test_levels_of_files(checkpoint, tmp_path, caplog):
    loud = tmp_path / "loud.wav"
    sf.write(loud, np.random.default_rng(0).uniform(-8, 8, 4000), 8000, subtype="FLOAT")

    def peaks(*words):
        caplog.clear()
        assert run(loud, "--checkpoint", checkpoint, *words) == 0
        return [abs(sf.read(tmp_path / f"loud_s{i}.wav")[0]).max() for i in (1, 2)]

    full = peaks("--subtype", "FLOAT")
    assert max(full) > 1.5
    assert "attenuated" not in caplog.text
    held = peaks("--subtype", "PCM_24")
    assert "attenuated" in caplog.text
    assert max(held) == pytest.approx(1, abs=1e-6)
    assert held[0] / held[1] == pytest.approx(full[0] / full[1], rel=1e-4)
    assert peaks("--normalize", "peak", "--subtype", "FLOAT") == pytest.approx(held, rel=1e-4)


def test_the_packages_own_model_needs_no_checkpoint(tmp_path, monkeypatch):
    ConvTasNet(**TINY, n_src=3).save_pretrained(tmp_path / "own")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "own")
    assert run(write_wav(tmp_path / "a.wav")) == 0
    assert (tmp_path / "a_s3.wav").is_file()


def test_another_toolkits_checkpoint(tmp_path, capsys):
    file = write_wav(tmp_path / "a.wav")
    checkpoint = ASSETS / "interop" / "torchaudio_relu" / "model.pt"
    assert run(file, "--checkpoint", checkpoint) == 2
    assert "--hparams msk_num_layers=… msk_activate=…" in capsys.readouterr().err
    hparams = ("msk_num_layers=3", "msk_activate=relu")
    assert run(file, "--checkpoint", checkpoint, "--hparams", *hparams) == 0


def test_a_model_that_gives_nan_leaves_no_file(checkpoint, tmp_path, capsys):
    content = torch.load(checkpoint, weights_only=True)
    content["state_dict"]["model.encoder.filterbank._filters"].fill_(3e38)  # overflows
    torch.save(content, checkpoint)
    file = write_wav(tmp_path / "in" / "a.wav")
    assert run(file, "--checkpoint", checkpoint) == 2
    assert "a.wav: the separated voices hold NaN" in capsys.readouterr().err
    assert os.listdir(tmp_path / "in") == ["a.wav"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.wav"], "--checkpoint is missing"),
        (["a.wav", "--checkpoint", "CKPT", "--normalize", "loud"], "'loud'"),
        (["a.wav", "--checkpoint", "CKPT", "--hparams", "n_src=2"], "holds its own"),
        (["a.wav", "--checkpoint", "absent.ckpt"], "absent.ckpt"),
        (["a.wav", "--checkpoint", "text.wav"], "cannot be read as a checkpoint"),
        (["--checkpoint", "CKPT"], "FILE"),
        (["a.wav", "no.wav", "neither.wav", "--checkpoint", "CKPT"], "neither.wav: no such file"),
        (["a.wav", "empty.wav", "text.wav", "--checkpoint", "CKPT"], "text.wav: not readable"),
        (["a.wav", "a.flac", "--checkpoint", "CKPT"], "more than one input would write"),
        (["a.wav", "sub/a.wav", "--out", "o", "--checkpoint", "CKPT"], "more than one input"),
        (["a.wav", "./a.wav", "--checkpoint", "CKPT"], "more than one input"),
        (["a.wav", "a_s1.wav", "--checkpoint", "CKPT"], "would replace inputs"),
        (["a.wav", "--checkpoint", "CKPT", "--device", "tpu"], "tpu"),
        (["a.wav", "--checkpoint", "CKPT", "--loud"], "--loud"),
        (["a.wav", "--checkpoint", ""], "--checkpoint: must not be empty"),
        (["a.wav", "--checkpoint", "CKPT", "--out", ""], "--out: must not be empty"),
        (["", "--checkpoint", "CKPT"], "FILE: must not be empty"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(
    arguments, message, checkpoint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "a.flac", "a_s1.wav", "sub/a.wav"):
        write_wav(tmp_path / name)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("no audio")
    before = sorted(tmp_path.rglob("*"))
    assert run(*(str(checkpoint) if item == "CKPT" else item for item in arguments)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert sorted(tmp_path.rglob("*")) == before


def test_all_bad_inputs_are_named(checkpoint, tmp_path, capsys):
    (tmp_path / "empty.wav").touch()
    files = [tmp_path / name for name in ("no.wav", "empty.wav", "none.flac")]
    assert run(*files, "--checkpoint", checkpoint) == 2
    message = capsys.readouterr().err
    assert all(str(file) in message for file in files)


def test_a_cuda_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="no CUDA device"):
        resolve_device("cuda")


def test_help_of_the_command(capsys):
    assert run("--help") == 0
    assert "--checkpoint" in capsys.readouterr().out


def test_run_main_returns_and_lets_bugs_through():
    assert run_main(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


def test_run_main_finds_the_user_error_that_hydra_wrapped(capsys):
    from hydra.utils import instantiate

    with pytest.raises(SystemExit) as stop:
        run_main(lambda: instantiate({"_target_": "convtasnet.ConvTasNet", "stride": 0}))
    assert stop.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert "stride" in line
    assert "_target_" not in line


def test_an_unknown_argument_of_a_configured_model_is_named_once(capsys):
    from hydra.utils import instantiate

    with pytest.raises(SystemExit):
        run_main(lambda: instantiate({"_target_": "convtasnet.ConvTasNet", "n_filter": 8}))
    line = capsys.readouterr().err
    assert line.startswith("error: ConvTasNet has no argument n_filter; it has n_src, n_filters, ")
    assert line.count("\n") == line.count("n_filter;") == 1


def test_run_hydra_asks_for_the_full_error(monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    seen = []
    run_hydra(lambda: seen.append(os.environ["HYDRA_FULL_ERROR"]))
    assert seen == ["1"]


def test_samples_are_looked_at_before_any_file_is_separated(checkpoint, tmp_path, capsys):
    good = write_wav(tmp_path / "good.wav")
    for name in ("a.wav", "b.wav"):
        sf.write(tmp_path / name, np.array([0.1, np.nan, 0.1]), 8000, subtype="FLOAT")
    bad = [tmp_path / "a.wav", tmp_path / "b.wav"]
    assert run(good, *bad, "--checkpoint", checkpoint, "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(f"{path}: holds NaN" in line for path in bad)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("below", ["", "x"])
def test_an_output_folder_that_is_a_file_is_refused(checkpoint, tmp_path, capsys, below):
    good = write_wav(tmp_path / "good.wav")
    (tmp_path / "file").touch()
    assert run(good, "--checkpoint", checkpoint, "--out", tmp_path / "file" / below) == 2
    assert "is a file, not a folder" in capsys.readouterr().err


def test_a_full_disk_is_one_line(capsys):
    def full():
        raise OSError(28, "No space left on device", "x.wav")

    with pytest.raises(SystemExit) as stop:
        run_main(full)
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
