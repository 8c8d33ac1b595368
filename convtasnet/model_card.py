"""The model card of a saved model, from what is known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from convtasnet.metrics import METRICS

TEMPLATE = Path(__file__).with_name("model_card.md")
UNKNOWN = "Not stated."


def model_card(
    card_data: ModelCardData,
    model_args: Mapping[str, Any],
    n_parameters: int,
    training: Mapping[str, Any],
    about: Mapping[str, Any],
) -> ModelCard:
    """Fill the template.

    Args:
        card_data: metadata for the hub.
        model_args: constructor arguments of ``ConvTasNet``.
        n_parameters: number of its parameters.
        training: resolved configuration of the training; may be empty.
        about: what else is known, see :mod:`convtasnet.portable`.

    Example:
        >>> args = {"n_src": 2, "sample_rate": 8000, "causal": True}
        >>> about = {"scores": {"n": 200, "si_sdr": 5.0, "si_sdri": 4.96}}
        >>> card = model_card(ModelCardData(), args, 1000, {}, about)
        >>> [line for line in card.text.splitlines() if "SI-SDR" in line]
        ['| SI-SDR | 5.00 dB | 4.96 dB |']
    """
    texts = about.get("card", {})
    license = texts.get("license")
    data = ModelCardData(**card_data.to_dict() | ({"license": license.lower()} if license else {}))
    scores = about.get("scores", {})
    return ModelCard.from_template(
        data,
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        name=texts.get("name", "Conv-TasNet"),
        use=texts.get("use"),
        data=texts.get("data", UNKNOWN),
        limits=texts.get("limits", UNKNOWN),
        license=license or UNKNOWN,
        scores=_rows(scores),
        scored_on=_scored_on(scores, texts.get("scored_on")),
        model=dict(model_args),
        parameters=f"{n_parameters:,}",
        source=about.get("source"),
        training=json.dumps(training, indent=2, ensure_ascii=False) if training else "",
    )


def _scored_on(scores: Mapping[str, Any], text: str | None) -> str:
    means = f"Means over {scores.get('n')} mixtures ({scores.get('split', 'test')} set)"
    return f"{means}: {text}" if text else f"{means}."


def _rows(scores: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Name, mean and improvement of each metric that has a value."""
    return [
        (
            name.upper().replace("_", "-"),
            *(f"{scores[key]:.2f} {metric.unit}".rstrip() for key in (name, f"{name}i")),
        )
        for name, metric in METRICS.items()
        if scores.get(name) is not None and scores.get(f"{name}i") is not None
    ]
