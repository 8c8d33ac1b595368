"""Make WSJ0-2mix, WSJ0-3mix, … from WSJ0 and lists of mixtures; see README.md beside this file.

``python recipes/wsj0_mix/prepare.py --corpus /data/wsj0 --lists /data/lists --out /data/wsj0-mix``
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from wsj0_levels import read_levels
from wsj0_mixing import SCALINGS, Job, make_mixture

from convtasnet.cli import Parser
from convtasnet.data.checks import Problem, raise_problems
from convtasnet.data.mixing_list import ListedMixture, draw_lists, read_list, write_list
from convtasnet.data.wsj0_mix import FOLDERS, layout
from convtasnet.generation.options import above, add_common, add_n_src, folders, run_recipe
from convtasnet.generation.target import Target
from convtasnet.generation.work import (
    Portion,
    digest,
    generate,
    remember_settings,
    report_dry_run,
)
from convtasnet.generation.wsj0 import TEST_SETS, TRAIN_SETS, Wsj0Corpus, check_utterances

log = logging.getLogger("wsj0_mix")

SPLITS = tuple(FOLDERS.values())
COUNTS = (20000, 5000, 3000)

Lists = Mapping[str, Sequence[ListedMixture]]
Levels = Mapping[str, float] | None


def prepare(options: argparse.Namespace) -> None:
    """All of the recipe, for the options of ``parser()``.

    Raises:
        FileNotFoundError, ValueError: folders, lists or utterances are missing or wrong; the output
            was begun with other settings; or it isn't what it should be in the end.
    """
    levels = read_levels(options.active_levels) if options.active_levels else None
    corpus = Wsj0Corpus(options.corpus)
    log.info("%s: %d utterances", corpus.root, len(corpus))
    wanted = {n_src: listed(options, corpus, n_src) for n_src in options.n_src}
    user_of = {
        path: mixture.name
        for lists in wanted.values()
        for mixtures in lists.values()
        for mixture in mixtures
        for path in mixture.paths
    }
    lengths, problems = check_utterances(corpus, user_of, options.decode)
    problems += [
        Problem(path, user_of[path], "no active level in the files given")
        for path in sorted(user_of)
        if levels is not None and _stem(path) not in levels
    ]
    if options.dry_run:
        report_dry_run(problems, len(user_of), "samples" if options.decode else "headers")
        return
    raise_problems(problems)
    for n_src, lists in wanted.items():
        settings = settings_of(options, lists, levels)
        remember_settings(options.out / f"{n_src}speakers" / "settings.json", settings)
        if options.draw:
            for split, mixtures in lists.items():
                write_list(options.out / "lists" / list_name(n_src, split), mixtures)
        portions = [
            portion(options, n_src, split, mixtures, corpus, levels, lengths)
            for split, mixtures in lists.items()
        ]
        generate(portions, make_mixture, options.workers)


def listed(options: argparse.Namespace, corpus: Wsj0Corpus, n_src: int) -> Lists:
    """The lists of tr, cv and tt: read, or drawn."""
    if options.draw:
        train, test = corpus.by_speaker(TRAIN_SETS), corpus.by_speaker(TEST_SETS)
        return draw_lists(train, test, options.counts, n_src, options.seed)
    lists, errors = {}, []
    for split in SPLITS:
        try:
            lists[split] = read_list(options.lists / list_name(n_src, split), n_src)
        except (ValueError, OSError) as error:
            errors.append(error)
    if errors:
        message = "\n".join(map(str, errors))
        if all(isinstance(error, FileNotFoundError) for error in errors):
            raise FileNotFoundError(f"{message}\n(--draw makes lists of one's own)")
        raise ValueError(message)
    return lists


def list_name(n_src: int, split: str) -> str:
    """File name of a list.

    >>> list_name(2, "tr")
    'mix_2_spk_tr.txt'
    """
    return f"mix_{n_src}_spk_{split}.txt"


def settings_of(options: argparse.Namespace, lists: Lists, levels: Levels) -> dict[str, str]:
    """What determines the samples."""
    digests = {
        f"list_{split}": digest([(m.paths, m.gains_db) for m in mixtures])
        for split, mixtures in lists.items()
    }
    measured = "ITU-T P.56" if levels is None else digest(sorted(levels.items()))
    return {"scaling": options.scaling, "active_levels": measured, **digests}


def portion(
    options: argparse.Namespace,
    n_src: int,
    split: str,
    mixtures: Sequence[ListedMixture],
    corpus: Wsj0Corpus,
    levels: Levels,
    lengths: Mapping[str, int],
) -> Portion[Job]:
    """The mixtures of one list."""
    by_name = {mixture.name: mixture for mixture in mixtures}
    kinds = (*(f"s{k + 1}" for k in range(n_src)), "mix")

    def job(name: str, targets: tuple[Target, ...]) -> Job:
        mixture = by_name[name]
        paths = tuple(str(corpus.find(path)) for path in mixture.paths)
        powers = None if levels is None else tuple(levels[_stem(path)] for path in mixture.paths)
        return Job(name, paths, mixture.gains_db, powers, targets, options.scaling)

    return Portion(
        f"{n_src} speakers, {split}",
        list(by_name),
        [
            Target(layout(options.out, n_src, rate, mode, split), kinds, rate, mode)
            for rate, mode in folders(options)
        ],
        job,
        lambda name, target: target.samples(lengths[path] for path in by_name[name].paths),
    )


def _stem(path: str) -> str:
    return PurePosixPath(path).stem


def parser() -> argparse.ArgumentParser:
    """The command line."""
    new = Parser(
        description="Make WSJ0-mix. Killed, it goes on where it stopped when started again.",
    )
    add = new.add_argument
    add("--corpus", type=Path, required=True, metavar="DIR", help="folder of WSJ0 (wav or sph)")
    source = new.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--lists", type=Path, metavar="DIR", help="folder of mix_{2,3}_spk_{tr,cv,tt}.txt"
    )
    source.add_argument(
        "--draw", action="store_true", help="draw lists of one's own, written to OUT/lists"
    )
    add_n_src(new)
    add_common(new, "2speakers/…")
    add("--decode", action="store_true", help="look at all samples first, not at headers alone")
    add("--scaling", choices=SCALINGS, default=SCALINGS[0], help="default: %(default)s")
    add(
        "--active-levels",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="lines 'utterance power', in place of levels measured by ITU-T P.56",
    )
    add(
        "--counts",
        type=above(0),
        nargs=3,
        default=COUNTS,
        metavar=("TR", "CV", "TT"),
        help="mixtures to draw; default: 20000 5000 3000",
    )
    add("--seed", type=int, default=0, help="of --draw; default: 0")
    return new


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    run_recipe(parser(), prepare, arguments)


if __name__ == "__main__":
    main()
