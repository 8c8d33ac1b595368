"""What a checkpoint of this project holds, and the one reader of it.

A training checkpoint is Lightning's dictionary with one more entry, ``"convtasnet"``: format
version, constructor arguments of the model, resolved configuration, versions of the software.
All of it is plain data, so that ``torch.load(..., weights_only=True)`` reads it.
"""

from __future__ import annotations

import pickle
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from convtasnet.data.shown import some

ENTRY = "convtasnet"
FORMAT_VERSION = 1
MAX_LISTED = 5
# What the restricted unpickler raises on bytes that are no checkpoint.
DAMAGE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
WRAPPERS = ("_orig_mod.", "module.")  # torch.compile's and DataParallel's marks in the keys


@dataclass(frozen=True)
class Checkpoint:
    """A model as a checkpoint stores it.

    Args:
        path: the file, absolute.
        model_args: constructor arguments of ``ConvTasNet``.
        state_dict: its weights, on the CPU.
        config: the resolved configuration of the training run, plain data; empty if unknown.
        about: what else is known of the model, plain data: see :mod:`convtasnet.portable`.
    """

    path: Path
    model_args: dict[str, Any]
    state_dict: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


def checkpoint_entry(model_args: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Build the project's entry of a training checkpoint, plain data only.

    Example:
        >>> checkpoint_entry({"n_src": 2}, {})["format_version"]
        1
    """
    return {
        "format_version": FORMAT_VERSION,
        "model": dict(model_args),
        "config": config,
        "software": {"convtasnet": package_version(), "torch": str(torch.__version__)},
    }


def parse_checkpoint(raw: dict[str, Any], path: str | PathLike[str]) -> Checkpoint:
    """Take the model out of a training checkpoint's dictionary, as ``read_raw`` gives it.

    Args:
        raw: the dictionary.
        path: its file, for messages.

    Raises:
        ValueError: it is not one of this project, is damaged, or of a newer format.
    """
    where = Path(path).absolute()
    entry = raw.get(ENTRY)
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is no checkpoint of convtasnet: it has no {ENTRY!r} entry")
    check_format(entry, where)
    weights: Any = raw.get("state_dict")
    if not _is_named(weights, Tensor) or not _is_named(entry.get("model"), object):
        raise ValueError(f"{where} is damaged: its model arguments or its weights have no names")
    prefix = "model."
    state = {
        key.removeprefix(prefix): value
        for key, value in plain_keys(weights).items()
        if key.startswith(prefix)
    }
    return Checkpoint(where, dict(entry["model"]), state, dict(entry.get("config") or {}))


def check_format(entry: dict[str, Any], where: Path) -> None:
    """Refuse what a newer version of this project wrote.

    Raises:
        ValueError: names the file and both versions of the format.
    """
    if entry.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{where} has format version {entry.get('format_version')!r}; this convtasnet "
            f"{package_version()} reads version {FORMAT_VERSION}: install a newer one"
        )


def read_raw(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the dictionary in a checkpoint file without running any code that it may hold.

    Tensors of any device come to the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or holds more than plain data and tensors.
    """
    where = Path(path).absolute()
    if not where.is_file():
        found = "is no file" if where.exists() else "does not exist"
        raise FileNotFoundError(f"checkpoint {where} {found}")
    try:
        if zipfile.is_zipfile(where) and zipfile.ZipFile(where).testzip() is not None:
            raise ValueError("a checksum does not fit")
        with torch.serialization.safe_globals([TorchVersion]):  # a string, in asteroid's files
            raw = torch.load(where, map_location="cpu", weights_only=True)
    except DAMAGE as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        more = f" ({named[1]}, which is not run)" if named else ""
        raise ValueError(
            f"{where} cannot be read as a checkpoint: it is none, is damaged, or holds more than "
            f"tensors and plain data{more}"
        ) from error
    if not isinstance(raw, dict):
        raise ValueError(f"{where} holds a {type(raw).__name__}, not a checkpoint's dictionary")
    return raw


def plain_keys(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the marks of compiled and parallel wrappers from the keys, wherever they stand.

    Example:
        >>> list(plain_keys({"model._orig_mod.module.mask.bias": torch.zeros(1)}))
        ['model.mask.bias']
    """

    def plain(key: str) -> str:
        for mark in WRAPPERS:
            key = key.replace(f".{mark}", ".").removeprefix(mark)
        return key

    return {plain(key): value for key, value in state.items()}


def load_weights(model: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load every weight, or say what differs.

    Args:
        model: gets the weights.
        state: its state dictionary.
        source: where the weights come from, for the message.

    Raises:
        ValueError: keys, shapes or kinds of numbers differ, or weights are NaN or infinite; the
            message lists the first of each.
    """
    own = model.state_dict()
    shapes = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own.keys() & state.keys()
        if state[key].shape != own[key].shape
    ]
    problems = {
        "missing": sorted(own.keys() - state.keys()),
        "unexpected": sorted(state.keys() - own.keys()),
        "of another shape": sorted(shapes),
        "of another kind of numbers": [
            f"{key} {state[key].dtype}"
            for key in sorted(own.keys() & state.keys())
            if state[key].is_floating_point() != own[key].is_floating_point()
        ],
    }
    found = [
        f"{len(keys)} {kind}: {some(keys, MAX_LISTED)}" for kind, keys in problems.items() if keys
    ]
    if found:
        raise ValueError(f"the weights in {source} do not fit the model: {'; '.join(found)}")
    check_finite(state, f"the weights in {source}")
    model.load_state_dict(state)


def check_finite(state: Mapping[str, Tensor], what: str) -> None:
    """Refuse weights that make every output NaN.

    Args:
        state: a state dictionary.
        what: how to call it in the message.

    Raises:
        ValueError: names the first parameters or buffers that hold NaN or infinity.

    Example:
        >>> check_finite({"mask.bias": torch.tensor([0.0, torch.nan])}, "the weights")
        Traceback (most recent call last):
            ...
        ValueError: the weights hold NaN or infinity: mask.bias
    """
    bad = [
        key
        for key, value in state.items()
        if value.is_floating_point() and not bool(value.isfinite().all())
    ]
    if bad:
        raise ValueError(f"{what} hold NaN or infinity: {some(bad, MAX_LISTED)}")


def package_version() -> str:
    """Version of the installed convtasnet."""
    try:
        return version("convtasnet")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _is_named(part: Any, kind: type) -> bool:
    """Is it a dictionary from names to values of this kind?"""
    return isinstance(part, dict) and all(
        isinstance(key, str) and isinstance(value, kind) for key, value in part.items()
    )
