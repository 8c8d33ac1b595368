"""Make Libri2Mix and Libri3Mix from LibriSpeech, noise and lists; see README.md beside this file.

``python recipes/librimix/prepare.py --librispeech /data/LibriSpeech --lists LibriMix --out /data``
"""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from librimix_lists import SETS, ListedMixture, find_list, read_list
from librimix_mixing import FADE, RATE, Job, Noise, make_mixture

from convtasnet.cli import Parser
from convtasnet.data.checks import Problem, gather, raise_problems
from convtasnet.data.manifest import Manifest
from convtasnet.data.row import Row
from convtasnet.data.tree import MIXTURES, NOISE, wav_folder
from convtasnet.generation.options import add_common, add_n_src, folders, run_recipe
from convtasnet.generation.recordings import samples_at
from convtasnet.generation.target import Target
from convtasnet.generation.work import (
    Portion,
    digest,
    generate,
    remember_settings,
    report_dry_run,
)

log = logging.getLogger("librimix")

CHUNK = 64  # headers that a thread reads at a time
PERTURBED = re.compile(r"(.+)sp(08|12)\.wav")
SPEEDS = {"08": (4, 5), "12": (6, 5)}


def prepare(options: argparse.Namespace) -> None:
    """All of the recipe, for the options of ``parser()``.

    Raises:
        FileNotFoundError, ValueError: folders, lists or recordings are missing or wrong; the output
            was begun with other lists; or it isn't what it should be in the end.
    """
    lists = {
        (n_src, name): read_list(find_list(options.lists, n_src, name), n_src)
        for n_src in sorted(set(options.n_src))
        for name in options.sets
    }
    recordings = Recordings(options)
    lengths, problems = recordings.look([m for mixtures in lists.values() for m in mixtures])
    if options.dry_run:
        report_dry_run(problems, len(lengths) + len({problem.path for problem in problems}))
        return
    raise_problems(problems)
    portions = []
    for (n_src, name), mixtures in lists.items():
        settings = {f"list_{name}": digest([vars(mixture) for mixture in mixtures])}
        remember_settings(options.out / f"Libri{n_src}Mix" / "settings.json", settings)
        portions.append(portion(options, n_src, name, mixtures, recordings, lengths))
    generate(portions, make_mixture, options.workers)
    for (_, name), mixtures, made in zip(lists, lists.values(), portions, strict=True):
        for target in made.targets:
            write_metadata(target, name, [mixture.name for mixture in mixtures], made)


class Recordings:
    """Where the recordings of the lists are.

    Args:
        options: of the command line.

    Raises:
        FileNotFoundError: no folder of that name.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.speech = existing(options.librispeech, "LibriSpeech")
        self.noise: Path | None = None
        if options.types != ["mix_clean"]:
            if options.noise is None:
                raise ValueError(f"--types {' '.join(options.types)}: name the --noise folder")
            self.noise = existing(options.noise, "wham_noise")

    def utterance(self, listed: str) -> str:
        """Path of an utterance."""
        return str(self.speech / listed)

    def noise_file(self, listed: str) -> tuple[str, tuple[int, int]]:
        """Path of a noise, and the speed that it is to be played at.

        Noise at another speed, ``…sp08.wav``, is taken from the disk if it is there; else it is
        made from the original.
        """
        assert self.noise is not None
        path, match = str(self.noise / listed), PERTURBED.fullmatch(listed)
        if match is None or os.path.isfile(path):
            return path, (1, 1)
        return str(self.noise / f"{match[1]}.wav"), SPEEDS[match[2]]

    def look(self, mixtures: Sequence[ListedMixture]) -> tuple[dict[str, int], list[Problem]]:
        """Samples of every recording at 16 kHz, by its path, and all that is wrong."""
        users: dict[str, str] = {}
        for mixture in mixtures:
            users |= {self.utterance(path): mixture.name for path in mixture.sources}
            if self.noise:
                users[self.noise_file(mixture.noise)[0]] = mixture.name
        length = partial(samples_at, sample_rate=RATE)
        lengths, problems = gather(users, length, CHUNK, "Looking at recordings")
        if self.noise:
            problems += self._too_short(mixtures, lengths)
        return lengths, problems

    def _too_short(
        self, mixtures: Sequence[ListedMixture], lengths: Mapping[str, int]
    ) -> list[Problem]:
        """Noise that would have to be repeated, and is shorter than the transition."""
        problems = []
        for mixture in mixtures:
            longest = max(lengths.get(self.utterance(path), 0) for path in mixture.sources)
            path, (speed, unit) = self.noise_file(mixture.noise)
            if path in lengths and lengths[path] * unit // speed <= min(longest - 1, FADE):
                reason = f"{lengths[path]} samples are too few to be repeated"
                problems.append(Problem(path, mixture.name, reason))
        return problems


def existing(root: Path, inner: str) -> Path:
    """A folder, or the one of this name in it.

    Raises:
        FileNotFoundError: no such folder.
    """
    root = Path(os.path.abspath(root))
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    return root / inner if (root / inner).is_dir() else root


def portion(
    options: argparse.Namespace,
    n_src: int,
    name: str,
    mixtures: Sequence[ListedMixture],
    recordings: Recordings,
    lengths: Mapping[str, int],
) -> Portion[Job]:
    """The mixtures of one list."""
    by_name = {mixture.name: mixture for mixture in mixtures}
    types = [kind for kind in MIXTURES if kind in options.types]
    kinds = [f"s{k + 1}" for k in range(n_src)] + [NOISE] * (types != ["mix_clean"]) + types
    base = options.out / f"Libri{n_src}Mix"

    def job(mixture_name: str, targets: tuple[Target, ...]) -> Job:
        mixture = by_name[mixture_name]
        noise = None
        if recordings.noise:
            path, speed = recordings.noise_file(mixture.noise)
            noise = Noise(path, mixture.noise_gain, speed)
        paths = tuple(map(recordings.utterance, mixture.sources))
        return Job(mixture_name, paths, mixture.gains, noise, targets)

    def samples(mixture_name: str, target: Target) -> int:
        # Noise is as long as the longest talker.
        paths = map(recordings.utterance, by_name[mixture_name].sources)
        return target.samples(lengths[path] for path in paths)

    return Portion(
        f"{n_src} talkers, {name}",
        list(by_name),
        [
            Target(base / wav_folder(rate) / mode / name, tuple(kinds), rate, mode)
            for rate, mode in folders(options)
        ],
        job,
        samples,
    )


def write_metadata(target: Target, name: str, names: Sequence[str], made: Portion[Job]) -> None:
    """Write a csv for each kind of mixture, as the generator does, with absolute paths."""
    for kind in [kind for kind in target.kinds if kind in MIXTURES]:
        rows = []
        for mixture in names:
            files = {one: str(file) for one, file in target.files(mixture).items()}
            talkers = [one for one in target.kinds if re.fullmatch(r"s\d+", one)]
            sources = [files[one] for one in (["s1"] if kind == "mix_single" else talkers)]
            noise = None if kind == "mix_clean" else files[NOISE]
            length = made.samples(mixture, target)
            rows.append(Row(mixture, files[kind], tuple(sources), noise, length))
        folder = target.folder.parent / "metadata"
        Manifest(rows).to_csv(folder / f"mixture_{name}_{kind}.csv", "absolute")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    new = Parser(
        description="Make LibriMix. Killed, it goes on where it stopped when started again.",
    )
    add = new.add_argument
    add(
        "--librispeech",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of train-clean-100, train-clean-360, dev-clean, test-clean",
    )
    add(
        "--lists",
        type=Path,
        required=True,
        metavar="DIR",
        help="the published generator's folder, or its metadata",
    )
    add("--noise", type=Path, metavar="DIR", help="folder of tr, cv, tt: WHAM!'s noise")
    add_common(new, "Libri2Mix/…")
    add_n_src(new, (2, 3))
    add(
        "--sets",
        nargs="+",
        choices=tuple(SETS),
        default=["train-100", "dev", "test"],
        help="default: train-100 dev test",
    )
    add(
        "--types",
        nargs="+",
        choices=MIXTURES,
        default=["mix_clean"],
        help="default: mix_clean, which needs no noise",
    )
    return new


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    run_recipe(parser(), prepare, arguments)


if __name__ == "__main__":
    main()
