"""Whole items, in order, whatever the batches, processes, kills and caches."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fragile_job import fragile
from tiny_model import TINY
from voices import RATE, Halves, items

from convtasnet import ConvTasNet
from convtasnet.audio import read_audio
from convtasnet.evaluation import Baseline, ModelEstimator, Row, Settings, evaluate
from convtasnet.evaluation import run as run_module
from convtasnet.evaluation.folder import EvaluationFolder
from convtasnet.evaluation.mixture_scores import MixtureScores
from convtasnet.evaluation.workers import Job, ScoringPool, run_job
from convtasnet.metrics import Measured, value_names

HERE = Settings(["si_sdr", "sdr"], num_workers=0)
IDENTITY = {"checkpoint": "abc"}


def values(rows: list[Row]) -> list[dict[str, float]]:
    return [row.values for row in rows]


def test_items_are_scored_whole_and_in_order() -> None:
    rows = evaluate(ModelEstimator(Halves()), items(1, 5, 9, 20), replace(HERE, metrics=["si_sdr"]))
    assert [row.id for row in rows] == ["mix0", "mix1", "mix2", "mix3"]
    assert [row.n_samples for row in rows] == [8000, 40000, 72000, 160000]
    limited = replace(HERE, limit=2)
    assert len(evaluate(ModelEstimator(Halves()), items(1, 1, 1), limited)) == 2


def test_batches_change_nothing() -> None:
    model = ModelEstimator(ConvTasNet(**TINY).eval())
    data = items(0.3, 0.8, 0.5, 0.2, 0.7)
    alone = evaluate(model, data, HERE)
    together = evaluate(model, data, replace(HERE, batch_seconds=1.7))
    assert [row.id for row in together] == [row.id for row in alone]
    for one, other in zip(values(together), values(alone), strict=True):
        assert one == pytest.approx(other, abs=1e-3)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("seconds", [None, 1.7])
@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_a_killed_evaluation_goes_on_as_if_nothing_had_been(
    tmp_path: Path, after: int, seconds: float | None
) -> None:
    model = ModelEstimator(ConvTasNet(**TINY).eval())
    data = items(0.3, 0.8, 0.5, 0.2, 0.7)
    settings = replace(HERE, batch_seconds=seconds)

    def run(path: Path, kill_after: int | None) -> EvaluationFolder:
        folder = EvaluationFolder(path, IDENTITY, settings.metrics)
        folder.start()
        written = 0

        def sink(row: Row) -> None:
            nonlocal written
            if written == kill_after:
                raise KilledError
            folder.add(row)
            written += 1

        rows = evaluate(model, data, settings, None, folder.done, sink)
        if kill_after is not None:
            raise KilledError
        folder.sort(rows)
        return folder

    run(tmp_path / "whole", None)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", after)
    assert len(EvaluationFolder(tmp_path / "killed", IDENTITY, settings.metrics).done) == after
    killed = run(tmp_path / "killed", None)
    expected = (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert killed.rows.path.read_bytes() == expected
    # Killed between the sorting of the rows and the summary: they are recognized.
    again = run(tmp_path / "killed", None)
    assert again.rows.path.read_bytes() == expected
    again.finish({"n": 5})
    assert EvaluationFolder(tmp_path / "killed", IDENTITY, settings.metrics).finished


def test_rows_of_other_data_are_not_gone_on_with() -> None:
    done = [Row("other", 8000, {})]
    with pytest.raises(ValueError, match="row 1 that is there already is mixture other"):
        evaluate(ModelEstimator(Halves()), items(1, 1), HERE, None, done)


def job(name: str, index: int = 0) -> Job:
    (item,) = items(0.5)
    signals = (item["sources"].flip(0), item["sources"], item["mixture"])
    arrays = [signal.numpy() for signal in signals]
    return Job(index, name, *arrays, RATE, ["si_sdr", "pesq"], Measured())


@pytest.mark.usefixtures("forked")
def test_a_process_that_dies_takes_no_other_item_along() -> None:
    jobs = [job(name, index) for index, name in enumerate(["a", "bad", "b"])]
    with ScoringPool(1, fragile) as pool:
        outcomes = {done.id: outcome for done, outcome in pool.run(jobs)}
    assert list(outcomes) == ["a", "bad", "b"]
    scores, facts = run_job(jobs[0])
    for name in ("a", "b"):
        assert outcomes[name][0].values == pytest.approx(scores.values)
        assert outcomes[name][1] == facts
    bad = outcomes["bad"][0]
    assert list(bad.values) == value_names(jobs[0].metrics)
    assert bad.values["si_sdr"] == pytest.approx(scores.values["si_sdr"])
    assert bad.reasons == dict.fromkeys(["pesq", "pesqi"], "its program crashed")


def test_scores_of_mixtures_are_kept_for_the_next_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    original = run_module._job

    def spy(*arguments):
        result = original(*arguments)
        asked.append(result.of_mixture)
        return result

    monkeypatch.setattr(run_module, "_job", spy)
    data = items(1.0, 1.2)
    settings = replace(HERE, metrics=["si_sdr", "stoi"])
    rows = []
    for model in (Baseline("irm", RATE), Baseline("irm", RATE), Baseline("wfm", RATE)):
        cache = MixtureScores(tmp_path / "cache.sqlite")
        rows.append(evaluate(model, data, settings, cache))
        cache.close()
        data[1]["sources"][0] *= 1.0 if model.name == "wfm" else 1 + 1e-3 * (len(rows) == 2)
    known = [list(measured.values) for measured in asked]
    assert known == [[], [], *[["si_sdr", "stoi"]] * 3, []]  # the last one's samples have changed
    assert values(rows[0]) == values(rows[1])
    expected = evaluate(Baseline("wfm", RATE), data, settings)
    assert values(rows[2]) == values(expected)


def test_a_cache_that_cannot_be_used_is_done_without(tmp_path: Path, caplog) -> None:
    (tmp_path / "cache.sqlite").write_text("this is no database, whatever its name says" * 20)
    cache = MixtureScores(tmp_path / "cache.sqlite")
    assert len(evaluate(Baseline("irm", RATE), items(0.5), HERE, cache)) == 1
    assert "can't be kept" in caplog.text


def test_voices_are_written_in_the_order_of_the_sources(tmp_path: Path) -> None:
    class Swapped(Halves):
        def forward(self, mix):
            return 7 * data[0]["sources"].flip(0)

    data = items(1)
    data[0]["id"] = "folder/mix"
    evaluate(ModelEstimator(Swapped()), data, replace(HERE, audio_folder=tmp_path))
    for j in range(2):
        written, _ = read_audio(tmp_path / f"folder%2Fmix_s{j + 1}.wav")
        torch.testing.assert_close(written, data[0]["sources"][j], atol=0.02, rtol=0)


def test_errors_name_the_value() -> None:
    model = ModelEstimator(Halves())
    with pytest.raises(ValueError, match="limit=0"):
        replace(HERE, limit=0)
    with pytest.raises(ValueError, match="psnr"):
        replace(HERE, metrics=["psnr"])
    with pytest.raises(ValueError, match="no items"):
        evaluate(model, items(), HERE)
    data = items(0.1)
    data[0]["sources"] = torch.randn(3, 800)
    with pytest.raises(ValueError, match="mix0 has 3 sources"):
        evaluate(model, data, HERE)


def test_a_silent_reference_is_a_row_without_values() -> None:
    data = items(1, 1)
    data[1]["sources"][0] = 0
    row = evaluate(ModelEstimator(Halves()), data, HERE)[1]
    assert all(math.isnan(value) for value in row.values.values())
    assert set(row.reasons.values()) == {"silent reference"}
