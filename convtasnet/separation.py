"""Audio files in, one file a voice out, of any length."""

from __future__ import annotations

import logging
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from convtasnet.audio import BLOCK, audio_info, audio_writer, check_samples, iter_blocks
from convtasnet.inference import separated
from convtasnet.levels import Levels
from convtasnet.model import ConvTasNet
from convtasnet.pack import file_of

log = logging.getLogger(__name__)
ONE_BIT = 2**-15  # of 16: what rounding leaves of channels that cancel out
INPUT_ERRORS = (ValueError, OSError)


def check_inputs(files: Sequence[Path], out: Path | None) -> None:
    """Look at all inputs before any is separated.

    Args:
        files: what is to be separated.
        out: folder of the outputs; None for those of the inputs.

    Raises:
        ValueError, FileNotFoundError: inputs that cannot be decoded or hold NaN, all named; two
            that would write one file.
    """
    problems: list[str] = []
    kinds = set()
    for file in files:
        try:
            check_samples(file)
        except INPUT_ERRORS as error:
            problems.append(str(error))
            kinds.add(type(error))
    if problems:
        kind = FileNotFoundError if kinds == {FileNotFoundError} else ValueError
        raise kind("; ".join(problems))
    writers = defaultdict(list)
    for file in files:
        writers[_stem(file, out)].append(str(file))
    clashes = [f"{stem}_s1.wav ({', '.join(who)})" for stem, who in writers.items() if who[1:]]
    if clashes:
        raise ValueError(f"more than one input would write {'; '.join(clashes)}")


def separate_files(
    model: ConvTasNet,
    files: Sequence[Path],
    out: Path | None = None,
    normalize: str = "mixture",
    subtype: str = "PCM_16",
) -> Iterator[Path]:
    """Separate audio files into ``NAME_s1.wav``, ``NAME_s2.wav``, …

    Outputs have the rate and length of their input; several channels are averaged. Memory does not
    grow with the duration: the voices wait for their levels in an unnamed file beside the outputs,
    4 bytes a sample. Outputs of an earlier run are replaced, each when it is complete.

    Args:
        model: run where its weights are.
        files: whatever libsndfile reads, as ``check_inputs`` has seen them.
        out: folder of the outputs, made if missing; None writes beside each input.
        normalize: levels, see :meth:`convtasnet.levels.Levels.gains`.
        subtype: "PCM_16", "PCM_24" or "PCM_32", in which all voices are attenuated where one would
            clip, or "FLOAT", which holds any level.

    Yields:
        The files written.

    Raises:
        ValueError: an output that would replace an input, before any file is separated; a model
            whose outputs are NaN.
    """
    outputs = {file: _targets(_stem(file, out), model.n_src) for file in files}
    inputs = {file.resolve() for file in files}
    lost = [str(target) for targets in outputs.values() for target in targets if target in inputs]
    if lost:
        raise ValueError(f"outputs would replace inputs: {', '.join(lost)}; use --out")
    if out is not None:
        _make_folder(out)
    for number, (file, targets) in enumerate(outputs.items(), start=1):
        title = f"{file.name} ({number} of {len(outputs)})"
        _separate_file(model, file, targets, normalize, subtype, title)
        yield from targets


def _separate_file(
    model: ConvTasNet,
    file: Path,
    targets: Sequence[Path],
    normalize: str,
    subtype: str,
    title: str,
) -> None:
    info = audio_info(file)
    if info.channels > 1:
        log.info("%s: the %d channels are averaged", file, info.channels)
    blocks = (torch.from_numpy(block) for block in iter_blocks(file))
    voices = separated(model, blocks, info.sample_rate, info.n_samples)
    with tempfile.TemporaryFile(dir=targets[0].parent) as store:
        for block in _with_bar(voices, info.n_samples, title):
            store.write(block.T.contiguous().cpu().numpy().tobytes())
        levels, heard = Levels(model.n_src), False
        for stored, mixture in zip(_stored(store, model.n_src), iter_blocks(file), strict=True):
            levels.add(stored, torch.from_numpy(mixture))
            heard = heard or bool((abs(mixture) > ONE_BIT).any())
        if info.channels > 1 and not heard:
            log.warning("%s: the mean of its channels is silent, and so are the outputs", file)
        try:
            gains = levels.gains(normalize, full_scale=subtype != "FLOAT")
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        with ExitStack() as stack:
            writers = [
                stack.enter_context(audio_writer(target, info.sample_rate, info.n_samples, subtype))
                for target in targets
            ]
            for stored in _stored(store, model.n_src):
                scaled = (stored * gains[:, None]).float()
                if subtype != "FLOAT":
                    scaled.clamp_(-1, 1)  # the product may round up to just above 1
                for write, voice in zip(writers, scaled, strict=True):
                    write(voice.numpy())


def _stored(store: IO[bytes], n_src: int) -> Iterator[Tensor]:
    """The voices (n_src, k) from their file, in the blocks that ``iter_blocks`` reads."""
    store.seek(0)
    while content := store.read(4 * n_src * BLOCK):
        yield torch.from_numpy(np.frombuffer(content, np.float32).reshape(-1, n_src).T.copy())


def _with_bar(blocks: Iterable[Tensor], n_samples: int, title: str) -> Iterator[Tensor]:
    """Pass the blocks on, with a progress bar where there is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(escape(title), total=n_samples)
        for block in blocks:
            yield block
            progress.advance(task, block.shape[1])


def _make_folder(out: Path) -> None:
    """Make the folder of the outputs now, rather than after the first file is separated."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"--out {out}: it, or a part of it, is a file, not a folder") from None


def _stem(file: Path, out: Path | None) -> Path:
    """Absolute path of the outputs of ``file``, without ``_s1.wav``; beside a pack, not in it."""
    return (Path(file_of(file)).parent if out is None else out).resolve() / file.stem


def _targets(stem: Path, n_src: int) -> list[Path]:
    return [stem.with_name(f"{stem.name}_s{i + 1}.wav") for i in range(n_src)]
