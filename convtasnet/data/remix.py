"""What training mixtures are made of, if the sources of a set of mixtures are mixed anew."""

from __future__ import annotations

import logging
from pathlib import Path

from convtasnet.data.augment import Augment
from convtasnet.data.corpus import Utterance
from convtasnet.data.manifest import Manifest
from convtasnet.data.part import Ingredients, Part, measured
from convtasnet.data.shown import some
from convtasnet.data.sounds import read_noise, read_rooms

logger = logging.getLogger(__name__)


def remixed(manifest: Manifest, n_talkers: int, augment: Augment, samples: bool) -> Ingredients:
    """The sources of mixtures as utterances, with noise and rooms.

    Noise is that of ``augment.noise_root`` or, without it, that of the mixtures. If the mixtures
    don't say who speaks, every source counts as a speaker of its own.

    Args:
        manifest: mixtures of at least ``n_talkers`` talkers.
        n_talkers: in the mixtures to be made.
        augment: where noise and rooms are.
        samples: see ``part.measured``.

    Raises:
        FileNotFoundError, ValueError: files are missing or damaged, all of them named; or there are
            fewer speakers than talkers in a mixture.
    """
    talkers = measured(_sources(manifest), Path(f"{manifest.origin} (sources)"), samples)
    speakers = {utterance.speaker for utterance in talkers.utterances}
    if len(speakers) < n_talkers:
        raise ValueError(
            f"{manifest.origin}: has {len(speakers)} speakers ({some(sorted(speakers))}), a "
            f"mixture needs {n_talkers}"
        )
    logger.info(
        "training mixes the sources of %s anew: %d speakers, %d utterances, %.2f hours",
        *(manifest.origin, len(speakers), len(talkers), talkers.hours),
    )
    own = None if augment.noise_root else _noise_of(manifest, samples)
    return surrounded(talkers, n_talkers, augment, samples, own)


def surrounded(
    talkers: Part, n_talkers: int, augment: Augment, samples: bool, noise: Part | None = None
) -> Ingredients:
    """Talkers with noise and rooms as ``augment`` names them, or else with this noise."""
    if augment.noise_root:
        noise = read_noise(Path(augment.noise_root), samples)
    rooms = None
    if augment.rir_root:
        rooms = read_rooms(Path(augment.rir_root), n_talkers, samples)
    if n_talkers == 1 and noise is None and augment.target == "reverberant":
        logger.warning(
            "each mixture is its one talker and nothing else: there is nothing to separate, and no "
            "improvement to measure; set data.noise_root, or data.n_src=2"
        )
    return Ingredients(talkers, noise, rooms)


def _sources(manifest: Manifest) -> list[Utterance]:
    """Every source once."""
    unknown = sum(row.speakers is None for row in manifest)
    if unknown:
        logger.warning(
            "%s: %d of %d mixtures don't say who speaks: a new mixture may hold a speaker twice",
            *(manifest.origin, unknown, len(manifest)),
        )
    found = {}
    for row in manifest:
        for path, speaker in zip(row.sources, row.speakers or row.sources, strict=True):
            found[path] = Utterance(speaker, path, path)
    return list(found.values())


def _noise_of(manifest: Manifest, samples: bool) -> Part | None:
    paths = dict.fromkeys(row.noise for row in manifest if row.noise)
    if not paths:
        return None
    noises = [Utterance("", path, path) for path in paths]
    return measured(noises, Path(f"{manifest.origin} (noise)"), samples)
