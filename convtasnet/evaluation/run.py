"""Score a data set: items are read, separated and scored at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from convtasnet.audio import write_audio
from convtasnet.evaluation.estimators import Estimator
from convtasnet.evaluation.facts import people
from convtasnet.evaluation.mixture_scores import MixtureScores
from convtasnet.evaluation.mixtures import Mixtures, Reading, batches, read_ahead
from convtasnet.evaluation.rows import Row
from convtasnet.evaluation.workers import Job, Outcome, ScoringPool, default_workers
from convtasnet.inference import rescale
from convtasnet.metrics import METRICS, Scores, ordered

Sink = Callable[[Row], None]


@dataclass(frozen=True)
class Settings:
    """How a data set is scored.

    Args:
        metrics: names.
        sample_rate: of the items, in Hz.
        limit: only the first so many items; None takes all.
        num_workers: processes that compute metrics; 0 computes them in this one, None takes one
            for every 20 items, at most 16 and at most one a core.
        batch_seconds: of audio that goes through the model at once; None puts each item alone.
        audio_folder: where the separated voices are written, in the order of the sources.
        genders: speaker in lower case -> M or F.

    Raises:
        ValueError: unknown metrics, or a limit below 1.
    """

    metrics: Sequence[str] = tuple(METRICS)
    sample_rate: int = 8000
    limit: int | None = None
    num_workers: int | None = None
    batch_seconds: float | None = None
    audio_folder: Path | None = None
    genders: dict[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", ordered(self.metrics))
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit={self.limit} must be at least 1 (or null for all items)")

    def plan(self, dataset: Mixtures) -> list[list[int]]:
        """Indices of the items in the order of the evaluation, in batches.

        Raises:
            ValueError: there are no items.
        """
        if len(dataset) == 0:
            raise ValueError("the data set has no items to evaluate")
        count = len(dataset) if self.limit is None else min(self.limit, len(dataset))
        return batches(dataset, count, self.sample_rate, self.batch_seconds)


def evaluate(
    estimator: Estimator,
    dataset: Mixtures,
    settings: Settings,
    cache: MixtureScores | None = None,
    done: Sequence[Row] = (),
    sink: Sink | None = None,
) -> list[Row]:
    """Separate every mixture whole and score it.

    Args:
        estimator: a model or a baseline.
        dataset: mixtures; ``lengths`` beside them lets items of like length share a batch.
        settings: see :class:`Settings`.
        cache: scores of the mixtures themselves, from earlier evaluations and for later ones.
        done: rows of an interrupted evaluation, the first of the plan in its order.
        sink: gets each row as soon as it is known, when its audio files are written.

    Returns:
        One row a mixture, in the order of the data set.

    Raises:
        ValueError: no items, items that do not fit the model, or ``done`` of other data.
    """
    plan = settings.plan(dataset)
    order = [index for batch in plan for index in batch]
    if len(done) == len(order):
        order = _order_of(done, dataset, order)
    check_done(dataset, order, done)
    rows = dict(zip(order, done, strict=False))
    workers = settings.num_workers
    if workers is None:
        workers = default_workers(len(order) - len(done))
    cache = cache or MixtureScores(None)
    with _bar() as progress, ScoringPool(workers) as pool:
        task = progress.add_task("evaluating", total=len(order), completed=len(done))
        for job, outcome in pool.run(_jobs(estimator, dataset, plan, settings, cache, len(done))):
            rows[job.index] = _row(job, outcome, settings)
            if settings.audio_folder is not None:
                write_voices(job, outcome[0], settings.audio_folder)
            if sink is not None:
                sink(rows[job.index])
            cache.put(job.key, outcome[0].mixture)
            progress.advance(task)
    return [rows[index] for index in sorted(order)]


def _order_of(rows: Sequence[Row], dataset: Mixtures, order: list[int]) -> list[int]:
    """The order of all rows: that of the plan, or of the data set if they were sorted already."""
    for position, (index, sorted_index) in enumerate(zip(order, sorted(order), strict=True)):
        if index != sorted_index:
            return order if rows[position].id == dataset[index]["id"] else sorted(order)
    return order


def check_done(dataset: Mixtures, order: Sequence[int], done: Sequence[Row]) -> None:
    """Compare the first and the last row that is done with the items of the data set.

    Raises:
        ValueError: more rows than items, or another item.
    """
    if len(done) > len(order):
        raise ValueError(f"{len(done)} rows are there already, the data set has {len(order)} items")
    for position in sorted({0, len(done) - 1}) if done else ():
        item, row = dataset[order[position]], done[position]
        if (item["id"], item["mixture"].shape[-1]) != (row.id, row.n_samples):
            raise ValueError(
                f"row {position + 1} that is there already is mixture {row.id} of {row.n_samples} "
                f"samples, the data have {item['id']} of {item['mixture'].shape[-1]} in its place"
            )


def _jobs(
    estimator: Estimator,
    dataset: Mixtures,
    plan: Sequence[Sequence[int]],
    settings: Settings,
    cache: MixtureScores,
    done: int,
) -> Iterator[Job]:
    """Jobs of the plan but the first ``done``; batches are separated as they would be without."""
    for batch in plan:
        if done < len(batch):
            break
        plan, done = plan[1:], done - len(batch)
    for readings in read_ahead(dataset, plan, settings.sample_rate):
        estimates = estimator([reading.item for reading in readings])
        for reading, estimate in list(zip(readings, estimates, strict=True))[done:]:
            yield _job(reading, estimate, settings, cache)
        done = 0


def _job(reading: Reading, estimates: Tensor, settings: Settings, cache: MixtureScores) -> Job:
    item = reading.item
    return Job(
        reading.index,
        item["id"],
        estimates.float().numpy(),
        item["sources"].float().numpy(),
        item["mixture"].float().numpy(),
        settings.sample_rate,
        settings.metrics,
        cache.get(reading.key, settings.metrics),
        reading.key,
    )


def _row(job: Job, outcome: Outcome, settings: Settings) -> Row:
    scores, facts = outcome
    speakers, genders = people(job.id, len(job.sources), settings.genders or {})
    facts = replace(facts, speakers=speakers, genders=genders)
    return Row(job.id, len(job.mixture), scores.values, scores.reasons, facts)


def write_voices(job: Job, scores: Scores, folder: Path) -> None:
    """``ID_s1.wav``, … in the order of the sources, at the level that they have in the mixture."""
    name = job.id.replace("%", "%25").replace("/", "%2F")  # other ids, other files
    estimates, mixture = torch.from_numpy(job.estimates), torch.from_numpy(job.mixture)
    voices = rescale(estimates[list(scores.permutation)], mixture)
    for number, voice in enumerate(voices, start=1):
        write_audio(folder / f"{name}_s{number}.wav", voice, job.sample_rate)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
