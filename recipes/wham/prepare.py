"""Make WHAM! from WSJ0 or wsj0-2mix, noise and lists; see README.md beside this file.

``python recipes/wham/prepare.py --mixtures /data/wsj0-mix --noise wham_noise --out /data/wham``
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from wham_lists import ListedMixture, read_mixtures
from wham_mixing import RATE, Job, Part, make_mixture
from wham_talkers import CHUNK, SPLITS, Folder, Sources, Talkers, Utterances

from convtasnet.cli import Parser
from convtasnet.data.checks import Problem, gather, raise_problems
from convtasnet.data.tree import MIXTURES, NOISE, wav_folder
from convtasnet.generation.options import add_common, folders, run_recipe
from convtasnet.generation.recordings import samples_at
from convtasnet.generation.target import Target
from convtasnet.generation.work import (
    Portion,
    digest,
    generate,
    remember_settings,
    report_dry_run,
)

log = logging.getLogger("wham")


def prepare(options: argparse.Namespace) -> None:
    """All of the recipe, for the options of ``parser()``.

    Raises:
        FileNotFoundError, ValueError: folders, lists or recordings are missing or wrong; the output
            was begun with other lists; or it isn't what it should be in the end.
    """
    if options.corpus and options.lists is None:
        raise ValueError("--corpus: name the --lists folder, data in wham_scripts.tar.gz")
    splits = [Split(options, name) for name in SPLITS]
    talkers: Talkers
    if options.mixtures:
        talkers = Sources(options.mixtures, folders(options))
    else:
        talkers = Utterances(options.corpus, options.lists)
    problems = [problem for split in splits for problem in split.look(talkers)]
    if options.dry_run:
        n_files = len(talkers) + sum(len(split.mixtures) for split in splits)
        report_dry_run(problems, n_files)
        return
    raise_problems(problems)
    settings = {"talkers": "WSJ0" if talkers.from_wsj0 else "wsj0-2mix"}
    for split in splits:
        settings |= split.digests()
    remember_settings(options.out / "settings.json", settings)
    generate([split.portion(talkers) for split in splits], make_mixture, options.workers)


class Split:
    """One of tr, cv and tt.

    Args:
        options: of the command line.
        name: of the split.

    Raises:
        FileNotFoundError, ValueError: its list is missing or wrong.
    """

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self.options, self.name, self.folders = options, name, folders(options)
        scaling = options.noise / "metadata" / f"scaling_{name}.npz"
        self.mixtures = {mixture.name: mixture for mixture in read_mixtures(scaling, self.folders)}
        self._noise_lengths: Mapping[str, int] = {}

    def noise(self, mixture: str) -> str:
        """File of the noise of a mixture."""
        return str(self.options.noise / self.name / f"{mixture}.wav")

    def look(self, talkers: Talkers) -> list[Problem]:
        """All that is wrong with the recordings that are needed."""
        problems = talkers.look(self.name, list(self.mixtures.values()))
        users = {self.noise(name): name for name in self.mixtures}
        title = f"Looking at the noise of {self.name}"
        length = partial(samples_at, sample_rate=RATE)
        self._noise_lengths, wrong = gather(users, length, CHUNK, title)
        return problems + wrong + self._too_short(talkers)

    def _too_short(self, talkers: Talkers) -> list[Problem]:
        """Noise that ends before the talkers do."""
        problems = []
        for mixture in self.mixtures.values():
            path = self.noise(mixture.name)
            for rate, mode in self.folders if path in self._noise_lengths else ():
                lengths = talkers.lengths(self.name, mixture.name, (rate, mode))
                end = mixture.start * rate // RATE + max(lengths)
                if end > self._noise_samples(mixture.name, rate):
                    reason = f"ends before the talkers, which go to sample {end} at {rate} Hz"
                    problems.append(Problem(path, mixture.name, reason))
        return problems

    def _noise_samples(self, name: str, rate: int) -> int:
        return -(-self._noise_lengths[self.noise(name)] * rate // RATE)

    def digests(self) -> dict[str, str]:
        """The factors of each folder in short."""
        digests = {}
        for rate, mode in self.folders:
            scales = [(m.name, m.start, vars(m.scales[rate, mode])) for m in self.mixtures.values()]
            digests[f"scaling_{self.name}_{rate}_{mode}"] = digest(scales)
        return digests

    def portion(self, talkers: Talkers) -> Portion[Job]:
        """What is made of the split."""
        kinds = ("s1", "s2", NOISE, *(kind for kind in MIXTURES if kind in self.options.types))

        def job(name: str, targets: tuple[Target, ...]) -> Job:
            mixture: ListedMixture = self.mixtures[name]
            parts = []
            for target in targets:
                folder: Folder = (target.sample_rate, target.mode)
                files = talkers.files(self.name, name, folder)
                parts.append(Part(target, files, mixture.scales[folder], talkers.from_wsj0))
            return Job(name, self.noise(name), mixture.start, tuple(parts))

        def samples(name: str, target: Target) -> int:
            rate, mode = target.sample_rate, target.mode
            if mode == "max":
                return self._noise_samples(name, rate)
            return min(talkers.lengths(self.name, name, (rate, mode)))

        return Portion(
            self.name,
            list(self.mixtures),
            [
                Target(self.options.out / wav_folder(rate) / mode / self.name, kinds, rate, mode)
                for rate, mode in self.folders
            ],
            job,
            samples,
        )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    new = Parser(
        description="Make WHAM!. Killed, it goes on where it stopped when started again.",
    )
    add = new.add_argument
    source = new.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--mixtures", type=Path, metavar="DIR", help="wsj0-2mix, which holds 2speakers/wav8k/…"
    )
    source.add_argument("--corpus", type=Path, metavar="DIR", help="folder of WSJ0 (wav or sph)")
    add(
        "--lists",
        type=Path,
        metavar="DIR",
        help="with --corpus: folder of mix_2_spk_filenames_{tr,cv,tt}.csv",
    )
    add(
        "--noise",
        type=Path,
        required=True,
        metavar="DIR",
        help="wham_noise, which holds tr, cv, tt and metadata",
    )
    add_common(new, "wav8k/…")
    add(
        "--types",
        nargs="+",
        choices=MIXTURES,
        default=list(MIXTURES),
        help="kinds of mixtures; default: all",
    )
    return new


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    run_recipe(parser(), prepare, arguments)


if __name__ == "__main__":
    main()
