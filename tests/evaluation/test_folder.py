"""A folder belongs to one evaluation, and never to a training run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from convtasnet.evaluation import Row
from convtasnet.evaluation.folder import EvaluationFolder, files_digest, identity_of, weights_digest

METRICS = ["sdr"]
ROW = Row("a", 8, {"sdr": 1.0, "sdri": 0.5})
ROW_B = Row("b", 8, {"sdr": 2.0, "sdri": 0.7})


def folder(path: Path, resume: bool = True, **identity: object) -> EvaluationFolder:
    told = {"checkpoint": "x", "data": {"root": "r"}, **identity}
    return EvaluationFolder(path, told, METRICS, resume)


@pytest.mark.parametrize("finish", [True, False])
def test_another_evaluation_is_refused_or_replaced(tmp_path: Path, finish: bool) -> None:
    first = folder(tmp_path)
    first.start()
    first.add(ROW)
    if finish:
        first.finish({"n": 1})
    other = r"holds an evaluation with other checkpoint, data\.root, limit:"
    with pytest.raises(ValueError, match=other):
        folder(tmp_path, checkpoint="y", limit=2, data={"root": "s"})
    same = folder(tmp_path)
    assert [row.id for row in same.done] == ["a"]
    assert same.finished == finish
    other = folder(tmp_path, resume=False, checkpoint="y")
    assert (other.done, other.finished) == ([], False)
    other.start()
    assert not (tmp_path / "metrics.csv").exists()
    assert not (tmp_path / "summary.json").exists()


def test_an_evaluation_that_lost_rows_goes_on(tmp_path: Path) -> None:
    first = folder(tmp_path)
    first.start()
    first.add(ROW)
    first.add(ROW_B)
    first.finish({"n": 2})
    path = tmp_path / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-4])
    again = folder(tmp_path)
    assert [row.id for row in again.done] == ["a"]
    assert not again.finished


def test_a_training_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,train_loss\n")
    for resume in (True, False):
        with pytest.raises(ValueError, match="holds a training run"):
            folder(tmp_path, resume)


@pytest.mark.parametrize("name", ["summary.json", "examples/thesis.txt", "audio/a_s1.wav"])
def test_what_no_evaluation_has_written_is_left_alone(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    for resume in (True, False):
        with pytest.raises(ValueError, match=f"holds {Path(name).parts[0]}, which are of no eval"):
            folder(tmp_path, resume)
    assert file.exists()


def test_the_identity_tells_weights_files_and_data(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    path = tmp_path / "a.wav"
    path.write_bytes(b"1")

    class Data:
        paths = (str(path),)

    def identity(**data: object) -> dict[str, object]:
        return identity_of(model, Data(), {"root": "r", "num_workers": 2, **data}, METRICS)

    first = identity()
    assert identity(num_workers=5, batch_size=3) == first
    assert identity(root="s")["data"] != first["data"]
    path.write_bytes(b"12")
    assert identity()["files"] != first["files"]
    with torch.no_grad():
        model.bias[0] += 1
    assert identity()["checkpoint"] != first["checkpoint"]
    assert identity_of("irm", Data(), {}, METRICS)["baseline"] == "irm"
    assert weights_digest(model) != weights_digest(model.bfloat16())
    assert files_digest(()) == files_digest([])
