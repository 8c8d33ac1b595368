"""Make WSJ0-2mix, WSJ0-3mix, … from WSJ0 and lists of mixtures; see README.md beside this file.

``python recipes/wsj0_mix/prepare.py --corpus /data/wsj0 --lists /data/lists --out /data/wsj0-mix``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from wsj0_corpus import TEST_SETS, TRAIN_SETS, Wsj0Corpus, check_utterances, read_levels
from wsj0_mixing import SCALINGS, Job, run_jobs
from wsj0_tree import Target, finished, wrong_files

from convtasnet.cli import run_main
from convtasnet.cores import available_cores
from convtasnet.data.checks import Problem, raise_problems
from convtasnet.data.mixing_list import ListedMixture, draw_lists, read_list, write_list
from convtasnet.data.wsj0_mix import FOLDERS, layout
from convtasnet.files import replacing

log = logging.getLogger("wsj0_mix")

SPLITS = tuple(FOLDERS.values())
COUNTS = (20000, 5000, 3000)
RATES = (8000, 16000)
MODES = ("min", "max")

Lists = Mapping[str, Sequence[ListedMixture]]


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
    lengths, problems = check_utterances(corpus, user_of)
    problems += [
        Problem(path, user_of[path], "no active level in the files given")
        for path in sorted(user_of)
        if levels is not None and _stem(path) not in levels
    ]
    if options.dry_run:
        report(problems, len(user_of))
        return
    raise_problems(problems)
    for n_src, lists in wanted.items():
        remember_settings(options, n_src, lists, levels)
        if options.draw:
            for split, mixtures in lists.items():
                write_list(options.out / "lists" / list_name(n_src, split), mixtures)
        jobs = plan(options, n_src, lists, corpus, levels)
        run_jobs(jobs, options.workers)
        check_output(options, n_src, lists, lengths)


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


def report(problems: Sequence[Problem], n_utterances: int) -> None:
    """Print all problems, each on a line, and fail if there are any.

    Raises:
        ValueError: there are problems.
    """
    for problem in problems:
        print(problem)
    if problems:
        raise ValueError(f"{len(problems)} problems with the {n_utterances} utterances needed")
    print(f"all {n_utterances} utterances needed are there; nothing was written")


def remember_settings(
    options: argparse.Namespace, n_src: int, lists: Lists, levels: Mapping[str, float] | None
) -> None:
    """Note what determines the samples, so that a tree is never made half one way, half another.

    Raises:
        ValueError: the tree was begun with other settings.
    """
    settings = {
        "scaling": options.scaling,
        "active_levels": "ITU-T P.56" if levels is None else _digest(sorted(levels.items())),
        **{
            f"list_{split}": _digest([(m.paths, m.gains_db) for m in mixtures])
            for split, mixtures in lists.items()
        },
    }
    path = options.out / f"{n_src}speakers" / "settings.json"
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [key for key in settings if settings[key] != before.get(key)]
        if other:
            raise ValueError(
                f"{path.parent} was begun with other settings ({', '.join(other)}): take another "
                "--out, or delete that folder"
            )
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def targets(options: argparse.Namespace, n_src: int, split: str) -> list[Target]:
    """Folders to fill for one split."""
    return [
        Target(layout(options.out, n_src, rate, mode, split), rate, mode)
        for rate in sorted(set(options.sample_rate))
        for mode in sorted(set(options.mode))
    ]


def plan(
    options: argparse.Namespace,
    n_src: int,
    lists: Lists,
    corpus: Wsj0Corpus,
    levels: Mapping[str, float] | None,
) -> list[Job]:
    """The mixtures that are not there yet."""
    jobs: list[Job] = []
    for split, mixtures in lists.items():
        before = len(jobs)
        folders = targets(options, n_src, split)
        done = {target: finished(target, n_src) for target in folders}
        for mixture in mixtures:
            todo = tuple(target for target in folders if mixture.name not in done[target])
            if todo:
                paths = tuple(str(corpus.find(path)) for path in mixture.paths)
                powers = None
                if levels is not None:
                    powers = tuple(levels[_stem(path)] for path in mixture.paths)
                jobs.append(
                    Job(mixture.name, paths, mixture.gains_db, powers, todo, options.scaling)
                )
        log.info(
            "%d speakers, %s: %d mixtures, %d of them to make",
            *(n_src, split, len(mixtures), len(jobs) - before),
        )
    return jobs


def check_output(
    options: argparse.Namespace, n_src: int, lists: Lists, lengths: Mapping[str, int]
) -> None:
    """Look at all that was made: no file missing or too many, every rate and length right.

    Raises:
        ValueError: something is wrong; all is listed.
    """
    for split, mixtures in lists.items():
        for target in targets(options, n_src, split):
            expected = {m.name: target.length(lengths[p] for p in m.paths) for m in mixtures}
            raise_problems(wrong_files(target, n_src, expected))
            hours = sum(expected.values()) / target.sample_rate / 3600
            log.info("%s: %d mixtures, %.2f hours", target.folder, len(mixtures), hours)


def _stem(path: str) -> str:
    return PurePosixPath(path).stem


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _above(limit: int) -> Callable[[str], int]:
    """A type for argparse: whole numbers above the limit."""

    def whole(text: str) -> int:
        number = int(text)
        if number <= limit:
            raise ValueError
        return number

    whole.__name__ = f"whole number above {limit}"
    return whole


def parser() -> argparse.ArgumentParser:
    """The command line."""
    new = argparse.ArgumentParser(
        description="Make WSJ0-mix. Killed, it goes on where it stopped when started again.",
    )
    add = new.add_argument
    add("--corpus", type=Path, required=True, metavar="DIR", help="folder of WSJ0 (wav or sph)")
    add("--out", type=Path, required=True, metavar="DIR", help="where 2speakers/… is made")
    source = new.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--lists", type=Path, metavar="DIR", help="folder of mix_{2,3}_spk_{tr,cv,tt}.txt"
    )
    source.add_argument(
        "--draw", action="store_true", help="draw lists of one's own, written to OUT/lists"
    )
    add(
        "--n-src",
        type=_above(1),
        nargs="+",
        default=[2],
        metavar="N",
        help="speakers in a mixture; default: 2",
    )
    add(
        "--sample-rate",
        type=int,
        nargs="+",
        choices=RATES,
        default=[8000],
        help="in Hz; default: 8000",
    )
    add("--mode", nargs="+", choices=MODES, default=["min"], help="default: min")
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
        type=_above(0),
        nargs=3,
        default=COUNTS,
        metavar=("TR", "CV", "TT"),
        help="mixtures to draw; default: 20000 5000 3000",
    )
    add("--seed", type=int, default=0, help="of --draw; default: 0")
    add("--workers", type=_above(0), default=available_cores(), help="default: one for each core")
    add("--dry-run", action="store_true", help="write nothing, list all that is missing or wrong")
    return new


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options = parser().parse_args(arguments)
    options.out = Path(os.path.abspath(options.out))
    run_main(lambda: prepare(options))


if __name__ == "__main__":
    main()
