"""Evaluate a checkpoint: ``python scripts/evaluate.py checkpoint=FILE [data=…] [split=test]``.

Or a baseline that knows the sources: ``baseline=irm data=… data.root=…``. Leaves ``metrics.csv``
(one row a mixture), ``summary.json`` and the worst and best examples in a folder of its own,
``hydra.run.dir``. What a kill interrupted goes on when it is started with the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from evaluated import Subject, find_subject
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from rich.console import Console

from convtasnet.cli import run_hydra, run_main
from convtasnet.data.file_cache import cache_folder
from convtasnet.data.folders import check_apart
from convtasnet.evaluation import BASELINES, Settings, evaluate, summarize, summary_table
from convtasnet.evaluation.estimators import Estimator
from convtasnet.evaluation.examples import FOLDER, write_examples
from convtasnet.evaluation.facts import read_genders
from convtasnet.evaluation.folder import NAMES, EvaluationFolder, identity_of
from convtasnet.evaluation.mixture_scores import MixtureScores
from convtasnet.evaluation.mixtures import Mixtures, whole
from convtasnet.evaluation.rows import Row
from convtasnet.evaluation.summary import groups_table
from convtasnet.metrics import ordered
from convtasnet.settings import Choice, Kind, Name, Number, Whole, check_settings

log = logging.getLogger(__name__)
CACHE = "mixture_scores.sqlite"
SETTINGS: dict[str, Kind] = {
    "checkpoint": Name(),
    "baseline": Choice(None, *BASELINES),
    "split": Choice("train", "valid", "test"),
    "limit": Whole(1, or_none=True),
    "num_workers": Whole(0, or_none=True),
    "batch_seconds": Number(0, or_none=True),
    "save_audio": Choice(True, False),
    "examples": Whole(0),
    "cache": Choice(True, False),
    "resume": Choice(True, False),
    "speakers": Name(),
    "seed": Whole(0),
    "data.root": Name(),
}


def evaluate_subject(cfg: DictConfig) -> dict[str, Any]:
    check_settings(OmegaConf.to_container(cfg), SETTINGS)
    if not isinstance(cfg.metrics, ListConfig):
        raise ValueError(f"metrics={cfg.metrics} must be a list, such as metrics=[si_sdr,sdr]")
    if not isinstance(cfg.hparams, DictConfig | None):
        raise ValueError(f"hparams={cfg.hparams} must be names and values, as in hparams={{X: 8}}")
    metrics = ordered(list(cfg.metrics))
    genders = {} if cfg.speakers is None else read_genders(Path(cfg.speakers))
    subject = find_subject(cfg)
    check_apart(Path(cfg.run_dir), subject.data, NAMES)
    data = instantiate(subject.data, _recursive_=False)  # a checkpoint's values call nothing
    data.check((cfg.split,))
    dataset = whole(data.dataset(cfg.split))
    settings = Settings(
        metrics,
        data.sample_rate,
        cfg.limit,
        cfg.num_workers,
        subject.batch_seconds,
        Path(cfg.run_dir) / "audio" if cfg.save_audio else None,
        genders,
    )
    folder = open_folder(cfg, subject, dataset, settings)
    estimator = subject.estimator(data.sample_rate)
    rows = folder.sort(score_items(cfg, estimator, dataset, settings, folder))
    summary = summarize(rows, metrics, cfg.seed)
    summary["examples"] = write_examples(
        estimator,
        dataset,
        rows,
        f"{metrics[0]}i",
        cfg.examples,
        data.sample_rate,
        folder.path / FOLDER,
    )
    summary |= {"split": cfg.split, "data": subject.data} | subject.provenance
    folder.finish(summary)
    show(summary, metrics)
    log.info("metrics.csv and summary.json are in %s", folder.path)
    return summary


def open_folder(
    cfg: DictConfig, subject: Subject, dataset: Mixtures, settings: Settings
) -> EvaluationFolder:
    """The folder, if what is in it belongs to the same evaluation."""
    identity = identity_of(subject.what, dataset, subject.data, settings.metrics)
    more = ("split", "limit", "save_audio", "speakers")
    identity |= {name: cfg[name] for name in more} | {"batch_seconds": subject.batch_seconds}
    return EvaluationFolder(Path(cfg.run_dir), identity, settings.metrics, cfg.resume)


def score_items(
    cfg: DictConfig,
    estimator: Estimator,
    dataset: Mixtures,
    settings: Settings,
    folder: EvaluationFolder,
) -> Sequence[Row]:
    """Rows of all mixtures, of which the folder may have some or all."""
    if folder.finished:
        log.info("%s is complete: its rows are summarized again", folder.path)
        return folder.done
    n_items = sum(map(len, settings.plan(dataset)))
    done = f", {len(folder.done)} of them done before" if folder.done else ""
    log.info("%d mixtures of the %s set%s", n_items, cfg.split, done)
    folder.start()
    cache = MixtureScores(cache_folder() / CACHE if cfg.cache else None)
    try:
        return evaluate(estimator, dataset, settings, cache, folder.done, folder.add)
    finally:
        cache.close()


def show(summary: dict[str, Any], metrics: Sequence[str]) -> None:
    """The tables on the terminal."""
    console = Console()
    console.print(summary_table(summary, metrics))
    groups = groups_table(summary, f"{metrics[0]}i")
    if groups is not None:
        console.print(groups)
    if summary["n_valid"] < summary["n"]:
        log.warning("%d rows are not valid: see metrics.csv", summary["n"] - summary["n_valid"])


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    run_main(lambda: evaluate_subject(cfg))


if __name__ == "__main__":
    run_hydra(main)
