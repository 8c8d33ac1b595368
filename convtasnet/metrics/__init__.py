"""Separation metrics: SI-SDR, SNR, SDR, SIR, SAR, STOI, ESTOI, PESQ, and their improvements.

``score`` and ``score_batch`` are one function for validation, evaluation and reports.
"""

from convtasnet.metrics.invalid import SILENT_ESTIMATE, SILENT_MIXTURE, SILENT_REFERENCE, UNMIXED
from convtasnet.metrics.measure import METRICS, Measured, metric_version, ordered, value_names
from convtasnet.metrics.scores import Scores, score, score_batch

__all__ = [
    "METRICS",
    "SILENT_ESTIMATE",
    "SILENT_MIXTURE",
    "SILENT_REFERENCE",
    "UNMIXED",
    "Measured",
    "Scores",
    "metric_version",
    "ordered",
    "score",
    "score_batch",
    "value_names",
]
