"""Whatever a model can be read from: the one place that tells the kinds apart."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from convtasnet.checkpoint import ENTRY, Checkpoint, parse_checkpoint, read_raw
from convtasnet.hub import check_options, download, is_model_id
from convtasnet.importers import TOOLKITS, import_foreign
from convtasnet.importers.speechbrain import PARTS
from convtasnet.portable import is_portable, read_portable

HUB_WEIGHTS = "pytorch_model.bin"  # other toolkits' on the hub


def read_model(
    source: str | PathLike[str], hparams: Mapping[str, Any] | None = None, **hub_options: Any
) -> Checkpoint:
    """Read a model, without running any code that its file may hold.

    The file system comes first: only what is not there can be a model on the hub.

    Args:
        source: a folder from ``save_pretrained``, a training checkpoint, a model of the hub
            ("owner/name"), or another toolkit's checkpoint (SpeechBrain: its CKPT folder).
        hparams: what another toolkit's file does not hold, in that toolkit's own names.
        hub_options: see :func:`convtasnet.hub.download`.

    Returns:
        Constructor arguments, weights and what else is known of the model.

    Raises:
        FileNotFoundError: there is no such file, nor such a model on the hub.
        ValueError: it is no checkpoint, or damaged; hyper-parameters are missing or contradict it;
            an unknown option.
    """
    if not isinstance(source, str | PathLike) or not str(source).strip():
        raise ValueError(f"{source!r} names no model: give a file, a folder or a model of the hub")
    if hparams is not None and not isinstance(hparams, Mapping):
        raise ValueError(f"hparams={hparams!r} must be a dictionary, in the toolkit's own names")
    check_options(hub_options)
    path = Path(source).expanduser()
    if not path.exists():
        if not is_model_id(str(source)):
            raise FileNotFoundError(f"checkpoint {path.absolute()} does not exist")
        path = download(str(source), **hub_options)
    if path.is_dir():
        return _read_folder(path, hparams)
    return _read_file(path, hparams)


def _read_folder(folder: Path, hparams: Mapping[str, Any] | None) -> Checkpoint:
    files = {part: folder / f"{part}.ckpt" for part in PARTS}
    if all(file.is_file() for file in files.values()):
        return _import(_joined(files), folder, hparams)
    if (folder / HUB_WEIGHTS).is_file():
        return _read_file(folder / HUB_WEIGHTS, hparams)
    if is_portable(folder):
        _refuse_hparams(hparams, folder)
        return read_portable(folder)
    inside = sorted(folder.glob("**/CKPT*/")) + sorted(folder.glob("**/*.ckpt"))[:1]
    hint = f"; did you mean {inside[0]}?" if inside else ""
    raise ValueError(
        f"folder {folder.absolute()} holds no model: neither config.json with model.safetensors "
        f"nor SpeechBrain's {', '.join(file.name for file in files.values())}{hint}"
    )


def _joined(files: Mapping[str, Path]) -> dict[str, Tensor]:
    """SpeechBrain's three state dictionaries as one."""
    return {
        f"{part}.{key}": value
        for part, file in files.items()
        for key, value in read_raw(file).items()
    }


def _read_file(path: Path, hparams: Mapping[str, Any] | None) -> Checkpoint:
    if path.suffix == ".safetensors":
        raise ValueError(f"{path.absolute()} holds weights only: name its folder, {path.parent}")
    raw = read_raw(path)
    if ENTRY in raw:
        _refuse_hparams(hparams, path)
        return parse_checkpoint(raw, path)
    return _import(raw, path, hparams)


def _refuse_hparams(hparams: Mapping[str, Any] | None, path: Path) -> None:
    if hparams:
        raise ValueError(f"{path} holds its own hyper-parameters: hparams must not be given")


def _import(
    content: Mapping[str, Any], path: Path, hparams: Mapping[str, Any] | None
) -> Checkpoint:
    imported = import_foreign(content, hparams, str(path))
    if imported is None:
        hint = ""
        if any(str(key).startswith("bottleneck_conv1x1.") for key in content):
            hint = f"; name the folder of SpeechBrain's files, {path.parent}"
        raise ValueError(
            f"{path.absolute()} is no checkpoint of convtasnet: it has no {ENTRY!r} entry, nor "
            f"the weights of a Conv-TasNet of {', '.join(TOOLKITS)}{hint}"
        )
    origin = {"toolkit": imported.toolkit, "file": path.name, "hparams": imported.hparams}
    about = {"source": origin}
    return Checkpoint(path.absolute(), imported.model_args, imported.state_dict, {}, about)
