"""Evaluation of a model, or of a baseline, on a data set of full-length mixtures."""

from convtasnet.evaluation.estimators import BASELINES, Baseline, ModelEstimator
from convtasnet.evaluation.rows import Row
from convtasnet.evaluation.run import Settings, evaluate
from convtasnet.evaluation.summary import summarize, summary_table

__all__ = [
    "BASELINES",
    "Baseline",
    "ModelEstimator",
    "Row",
    "Settings",
    "evaluate",
    "summarize",
    "summary_table",
]
