"""The command line: ``convtasnet separate``, and the error policy of every entry point."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from convtasnet.audio import SUBTYPES
from convtasnet.levels import NORMALIZE
from convtasnet.model import ConvTasNet
from convtasnet.separation import check_inputs, separate_files
from convtasnet.shipped import shipped_model

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


class Parser(argparse.ArgumentParser):
    """Under ``run_main``, errors of arguments become one line and exit code 2, as all others do.

    Empty texts and paths are such errors: a shell's unset variable would else name the current
    folder, or count as an option that is not given.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", None, _not_empty)  # of options without a type
        self.register("type", Path, lambda text: Path(_not_empty(text)))

    def error(self, message: str) -> NoReturn:
        """Raise a ValueError, where ``argparse`` would print the usage and exit."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def _not_empty(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` of an option: JSON, and Python's True, False and None; anything else is text.

    Example:
        >>> [setting(text) for text in ("X=8", "causal=True", "norm_type=gLN")]
        [('X', 8), ('causal', True), ('norm_type', 'gLN')]
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    words = {"True": True, "False": False, "None": None}
    try:
        return key, words[value] if value in words else json.loads(value)
    except ValueError:
        return key, value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="convtasnet", description="Conv-TasNet speech separation.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.type = str  # empty arguments are for the command's own parser to name
    add = commands.add_parser(
        "separate",
        help="separate recordings into one file a speaker",
        description=(
            "Separate each FILE into FILE_s1.wav, FILE_s2.wav, … of the same rate and length, "
            "beside it or in --out. Several channels are averaged. Any duration: memory does not "
            "grow with it."
        ),
    )
    add.add_argument("files", nargs="+", type=Path, metavar="FILE", help="wav, flac, ogg, …")
    add.add_argument(
        "--checkpoint",
        metavar="X",
        help=(
            "a training checkpoint, a saved folder, a model of the Hugging Face hub, or another "
            "toolkit's checkpoint; default: the model that comes with the package"
        ),
    )
    add.add_argument(
        "--hparams",
        nargs="+",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="what another toolkit's checkpoint does not hold",
    )
    add.add_argument("--out", type=Path, metavar="DIR", help="folder of the outputs; is made")
    add.add_argument(
        "--normalize",
        choices=NORMALIZE,
        default="mixture",
        help=(
            "levels: as in the mixture (the default), then all voices by one factor to full scale "
            "(peak), or the model's own (none). Nothing clips: where a voice would exceed full "
            "scale, all are attenuated together, with a warning"
        ),
    )
    add.add_argument(
        "--subtype",
        choices=SUBTYPES,
        default="PCM_16",
        help="samples of the outputs; FLOAT keeps levels beyond full scale; default: %(default)s",
    )
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
    source = options.checkpoint or shipped_model()
    check_inputs(options.files, options.out)
    device = resolve_device(options.device)
    model = ConvTasNet.from_pretrained(source, dict(options.hparams) or None).to(device)
    written = separate_files(model, options.files, options.out, options.normalize, options.subtype)
    for file in written:
        print(file, flush=True)
