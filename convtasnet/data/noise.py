"""What becomes of the noise that mixtures were made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from convtasnet.data.manifest import Manifest
from convtasnet.data.shown import some

NOISES = ("batch", "source", "ignore")


def place_noise(manifest: Manifest, choice: str) -> Manifest:
    """Mixtures with their noise where it is wanted.

    Args:
        manifest: mixtures, of which some, all or none say what their noise is.
        choice: "batch" leaves it beside the sources; "source" makes it the last source; "ignore"
            forgets it.

    Raises:
        ValueError: the noise is wanted, and some mixtures have none ("batch": but others have).

    >>> from convtasnet.data.row import Row
    >>> noisy = Manifest([Row("a", "mix/a.wav", ("s1/a.wav",), "noise/a.wav")])
    >>> place_noise(noisy, "source")[0].sources, place_noise(noisy, "ignore")[0].noise
    (('s1/a.wav', 'noise/a.wav'), None)
    """
    bare = [row.id for row in manifest if row.noise is None]
    if bare and (choice == "source" or (choice == "batch" and len(bare) < len(manifest))):
        raise ValueError(
            f"{manifest.origin}: noise is '{choice}', but {len(bare)} of {len(manifest)} mixtures "
            f"have no noise: {some(bare)}; set data.noise=ignore, or name the noise of each"
        )
    if choice == "batch":
        return manifest
    rows = [
        dataclasses.replace(
            row, sources=row.files[1:] if choice == "source" else row.sources, noise=None
        )
        for row in manifest
    ]
    return Manifest(rows, manifest.origin)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """A ValueError that names the argument, unless its value is one of these."""
    if value not in choices:
        raise ValueError(f"{name} is '{value}', expected one of {tuple(choices)}")
