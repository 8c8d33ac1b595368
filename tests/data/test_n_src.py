"""From one source to five: data, training and evaluation have no favourite number."""

import math

import pytest
from tiny_corpus import RATE, voice
from training import TINY, composed, read_rows, script

from convtasnet import ConvTasNet
from convtasnet.audio import write_audio
from convtasnet.data.speakers import SpeakersData
from convtasnet.evaluation import ModelEstimator, Settings, evaluate

N_SPEAKERS = 15  # five each for training, validation and test


@pytest.fixture(scope="module")
def speakers(tmp_path_factory):
    root = tmp_path_factory.mktemp("speakers")
    for k in range(N_SPEAKERS):
        write_audio(root / f"s{k:02d}" / "a.wav", voice(k, 0.8).clamp(-1, 1), RATE)
    return root


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("n_src", [1, 3, 5])
def test_training_and_evaluation(speakers, tmp_path, n_src):
    split = {"n_valid_speakers": 5, "n_test_speakers": 5, "n_valid": 1, "n_test": 1}
    own = [f"data.root='{speakers}'", f"run_dir='{tmp_path}'", "logger=none", "data=speakers"]
    own += [f"data.{name}={value}" for name, value in split.items()]
    limits = ["data.epoch_size=4", "trainer.max_epochs=1", "trainer.limit_train_batches=1"]
    script.train(composed(*TINY, *own, *limits, f"data.n_src={n_src}"))
    (row,) = read_rows(tmp_path)
    assert math.isfinite(float(row["train_loss"]))
    model = ConvTasNet.from_pretrained(tmp_path / "checkpoints" / "best.ckpt")
    assert model.n_src == n_src
    dataset = SpeakersData(speakers, n_src=n_src, **split).dataset("test")
    settings = Settings(["si_sdr"], num_workers=0)
    (scored,) = evaluate(ModelEstimator(model), dataset, settings)
    assert scored.values.keys() == {"si_sdr", "si_sdri"}
    assert math.isfinite(scored.values["si_sdr"])
    assert math.isfinite(scored.values["si_sdri"]) == (n_src > 1)  # one is its own mixture
    assert float(row["valid_si_sdri"]) < 100
