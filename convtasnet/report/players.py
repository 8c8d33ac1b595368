"""Sound and pictures of the examples, inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import soundfile

from convtasnet.audio import read_audio
from convtasnet.evaluation.examples import FOLDER
from convtasnet.report.evaluations import Evaluation


@dataclass
class Example:
    """One mixture to listen to.

    Args:
        id: of the mixture.
        labels: why it is here, such as ``worst 1 of NAME``.
        signals: title -> file, in the order of the players.
        pictures: title -> file.
    """

    id: str
    labels: list[str] = field(default_factory=list)
    signals: dict[str, Path] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)


def find_examples(evaluations: Sequence[Evaluation], count: int) -> list[Example]:
    """The first worst and best examples of each evaluation, each mixture once.

    An evaluation adds its estimates of others' examples where it has them: among its own examples,
    or in ``audio/``.

    Args:
        evaluations: in the order of the report.
        count: how many worst and how many best.
    """
    examples: dict[str, Example] = {}
    for evaluation in evaluations:
        for entry in evaluation.summary.get("examples", ()):
            kind, number = entry["folder"].rsplit("_", 1)
            if int(number) > count:
                continue
            example = examples.setdefault(entry["id"], Example(entry["id"]))
            example.labels.append(f"{kind} {int(number)} of {evaluation.name}")
            folder = evaluation.folder / FOLDER / entry["folder"]
            for name in ("mixture", *(f"source_{k + 1}" for k in range(entry["n_src"]))):
                example.signals.setdefault(name.replace("_", " "), folder / f"{name}.wav")
    for example in examples.values():
        for evaluation in evaluations:
            _add_estimates(example, evaluation)
    return list(examples.values())


def _add_estimates(example: Example, evaluation: Evaluation) -> None:
    """Estimates and picture of one evaluation, where there are any."""
    own = [e["folder"] for e in evaluation.summary.get("examples", ()) if e["id"] == example.id]
    n_src = sum(title.startswith("source") for title in example.signals)
    name = example.id.replace("%", "%25").replace("/", "%2F")
    for number in range(1, n_src + 1):
        file = evaluation.folder / "audio" / f"{name}_s{number}.wav"
        if own:
            file = evaluation.folder / FOLDER / own[0] / f"estimate_{number}.wav"
        if file.exists():
            example.signals[f"{evaluation.name}, {number}"] = file
    if own:
        picture = evaluation.folder / FOLDER / own[0] / "spectrogram.png"
        if picture.exists():
            example.pictures[evaluation.name] = picture


def card(example: Example, evaluations: Sequence[Evaluation], value: str) -> str:
    """HTML of an example: scores, players, pictures.

    Raises:
        FileNotFoundError, ValueError: a sound file is missing or damaged.
    """
    scores = [
        f"{escape(evaluation.name)}: {row.values[value]:.2f}"
        for evaluation in evaluations
        if (row := evaluation.row(example.id)) is not None
    ]
    players = "".join(
        f'<figure><figcaption>{escape(title)}</figcaption><audio controls preload="none" '
        f'src="{sound_uri(file)}"></audio></figure>'
        for title, file in example.signals.items()
    )
    pictures = "".join(
        f'<figure><figcaption>{escape(name)}</figcaption><img loading="lazy" '
        f'alt="spectrograms of {escape(name)}" src="{picture_uri(file)}"></figure>'
        for name, file in example.pictures.items()
    )
    labels = escape(", ".join(example.labels))
    return (
        f'<details class="example"><summary><b>{labels}</b> {escape(example.id)}'
        f"<br>{escape(value)}: {'; '.join(scores)}</summary>"
        f'<div class="players">{players}</div><div class="players">{pictures}</div></details>'
    )


def sound_uri(path: Path) -> str:
    """A sound file as a FLAC of 16 bits in a ``data:`` address."""
    wav, rate = read_audio(path)
    buffer = io.BytesIO()
    soundfile.write(buffer, wav.numpy(), rate, format="FLAC", subtype="PCM_16")
    return _uri("audio/flac", buffer.getvalue())


def picture_uri(path: Path) -> str:
    """A png in a ``data:`` address."""
    return _uri("image/png", path.read_bytes())


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
