"""The command line: ``convtasnet separate``, and the error policy of every entry point."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from convtasnet.audio import audio_info, check_samples, read_audio, write_audio
from convtasnet.inference import rescale, separate
from convtasnet.model import ConvTasNet

log = logging.getLogger(__name__)

USER_ERRORS = (ValueError, OSError)
Result = TypeVar("Result")
DEVICES = ("auto", "cpu", "cuda")


def run_main(main: Callable[[], Result]) -> Result:
    """Call ``main``; turn what the user can mend into one line on stderr and exit code 2.

    That is ``ValueError``, ``OSError`` (``FileNotFoundError``, a full disk), what Lightning calls a
    misconfiguration, and whatever hydra and omegaconf raise about the configuration: where such an
    exception came from a user error, as it does when hydra builds an object, the latter's message
    is printed. Everything else passes, with its traceback. The traceback of the one line is logged
    at level DEBUG (``--verbose``, ``hydra.verbose=true``).

    Args:
        main: called without arguments.

    Returns:
        What ``main`` returns.

    Example:
        >>> run_main(lambda: int("eight"))
        Traceback (most recent call last):
            ...
        SystemExit: 2
    """
    try:
        return main()
    except Exception as error:
        cause: BaseException = error
        # Told by name: inference imports none of these libraries.
        while _is_config_error(cause) and cause.__cause__ is not None:
            cause = cause.__cause__
        if not isinstance(cause, USER_ERRORS) and not _is_misconfiguration(cause):
            if not _is_config_error(error):
                raise
            cause = error
        log.debug("traceback of the error below", exc_info=True)
        print("error:", " ".join(str(cause).split()), file=sys.stderr)
        raise SystemExit(2) from None


def run_hydra(main: Callable[[], Any]) -> None:
    """Call a function that hydra decorates, under the policy of :func:`run_main`.

    This covers what hydra itself finds wrong, such as an unknown override: it would print several
    lines and exit with 1, but lets the exception pass when it is asked for the full error. The
    body of the function needs :func:`run_main` as well, or hydra prints a line of its own first.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # argparse takes overrides on one side of a flag only: with the flag first any order works.
    sys.argv[1:] = sorted(sys.argv[1:], key=lambda item: item not in ("-m", "--multirun"))
    run_main(main)


def _is_config_error(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("hydra", "omegaconf")


def _is_misconfiguration(error: BaseException) -> bool:
    return type(error).__name__ == "MisconfigurationException"


def resolve_device(name: str) -> torch.device:
    """Device of a name: "auto" takes CUDA where there is one.

    Raises:
        ValueError: "cuda" without a CUDA device, or another name.

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    if name not in DEVICES:
        raise ValueError(f"device={name!r}: choose from {', '.join(DEVICES)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda', but no CUDA device is available; use cpu or auto")
    return torch.device(name)


def separate_files(
    files: Sequence[Path], checkpoint: Path | None, out: Path | None = None, device: str = "auto"
) -> list[Path]:
    """Separate audio files into ``NAME_s1.wav``, ``NAME_s2.wav``, … (16-bit).

    Everything is checked before any file is separated. Outputs have the rate and length of their
    input; stereo is averaged; levels follow :func:`convtasnet.inference.rescale`. Outputs of an
    earlier run are replaced.

    Args:
        files: whatever libsndfile reads.
        checkpoint: what ``ConvTasNet.from_pretrained`` takes.
        out: folder of the outputs; None writes beside each input.
        device: "auto", "cpu" or "cuda".

    Returns:
        The files written.

    Raises:
        ValueError, FileNotFoundError: bad inputs, all named; two inputs that would write one file;
            an output that would replace an input; no checkpoint, or an unreadable one.
    """
    if checkpoint is None:
        raise ValueError("--checkpoint is missing: name a training checkpoint (….ckpt)")
    _check_inputs(files)
    _check_outputs(files, [_stem(file, out) for file in files])
    where = resolve_device(device)
    model = ConvTasNet.from_pretrained(checkpoint).to(where)
    outputs = {file: _targets(_stem(file, out), model.n_src) for file in files}
    _check_inputs_stay(outputs)
    if out is not None:
        _make_folder(out)
    written = []
    for file, targets in outputs.items():
        _separate_file(model, file, targets)
        written += targets
    return written


def _separate_file(model: ConvTasNet, file: Path, targets: list[Path]) -> None:
    channels = audio_info(file).channels
    if channels > 1:
        log.info("%s: the %d channels are averaged", file, channels)
    mixture, rate = read_audio(file)
    estimates = rescale(separate(model, mixture, rate), mixture)
    for target, estimate in zip(targets, estimates, strict=True):
        write_audio(target, estimate, rate)
        print(target)


def _make_folder(out: Path) -> None:
    """Make the folder of the outputs now, rather than after the first file is separated."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"--out {out}: it, or a part of it, is a file, not a folder") from None


def _stem(file: Path, out: Path | None) -> Path:
    """Absolute path of the outputs of ``file``, without ``_s1.wav``."""
    return (file.parent if out is None else out).resolve() / file.stem


def _targets(stem: Path, n_src: int) -> list[Path]:
    return [stem.with_name(f"{stem.name}_s{i + 1}.wav") for i in range(n_src)]


def _check_inputs(files: Sequence[Path]) -> None:
    """Every file can be decoded and is finite, or one error that names all others."""
    problems: list[str] = []
    kinds = set()
    for file in files:
        try:
            check_samples(file)
        except USER_ERRORS as error:
            problems.append(str(error))
            kinds.add(type(error))
    if problems:
        kind = FileNotFoundError if kinds == {FileNotFoundError} else ValueError
        raise kind("; ".join(problems))


def _check_outputs(files: Sequence[Path], stems: Sequence[Path]) -> None:
    """No two inputs share their outputs, and none is named twice."""
    writers = defaultdict(list)
    for file, stem in zip(files, stems, strict=True):
        writers[stem].append(str(file))
    clashes = [f"{stem}_s1.wav ({', '.join(who)})" for stem, who in writers.items() if who[1:]]
    if clashes:
        raise ValueError(f"more than one input would write {'; '.join(clashes)}")


def _check_inputs_stay(outputs: dict[Path, list[Path]]) -> None:
    """No output replaces an input."""
    inputs = {file.resolve() for file in outputs}
    lost = [str(target) for targets in outputs.values() for target in targets if target in inputs]
    if lost:
        raise ValueError(f"outputs would replace inputs: {', '.join(lost)}; use --out")


class Parser(argparse.ArgumentParser):
    """Under ``run_main``, errors of arguments become one line and exit code 2, as all others do."""

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError, where ``argparse`` would print the usage and exit."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="convtasnet", description="Conv-TasNet speech separation.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser(
        "separate",
        help="separate recordings into one file a speaker",
        description=(
            "Separate each FILE into FILE_s1.wav, FILE_s2.wav, … of the same rate and length, 16 "
            "bit, beside it or in --out. Several channels are averaged. Each voice gets the level "
            "that it has in the mixture; if one would exceed full scale, all are attenuated "
            "together, with a warning."
        ),
    )
    add.add_argument("files", nargs="+", type=Path, metavar="FILE", help="wav, flac, ogg, …")
    add.add_argument("--checkpoint", type=Path, metavar="X", help="a training checkpoint (….ckpt)")
    add.add_argument("--out", type=Path, metavar="DIR", help="folder of the outputs; is made")
    add.add_argument("--device", choices=DEVICES, default="auto", help="default: %(default)s")
    add.add_argument("-v", "--verbose", action="store_true", help="tracebacks of errors too")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``convtasnet``."""
    run_main(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> None:
    options = _parser().parse_args(arguments)
    level = logging.DEBUG if options.verbose else logging.INFO
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s")
    separate_files(options.files, options.checkpoint, options.out, options.device)
