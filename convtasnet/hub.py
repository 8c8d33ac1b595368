"""Models from the Hugging Face hub, this project's or another toolkit's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

# What a model is read from: this project's files, asteroid's, SpeechBrain's.
FILES = [
    "config.json",
    "model.safetensors",
    "pytorch_model.bin",
    "encoder.ckpt",
    "masknet.ckpt",
    "decoder.ckpt",
]
OPTIONS = frozenset(signature(snapshot_download).parameters) - {"repo_id", "allow_patterns"}
# "owner/name" or "name", as the hub writes them; a suffix of a checkpoint makes it a file.
MODEL_ID = re.compile(r"(?:[\w\-.]{1,96}/)?[\w\-.]{1,96}", re.ASCII)
FILE_SUFFIXES = (".ckpt", ".pt", ".pth", ".bin", ".tar", ".safetensors", ".json", ".wav")


def is_model_id(name: str) -> bool:
    """Can this be a model on the hub, rather than a file that is not there?

    Example:
        >>> [is_model_id(name) for name in ("me/voices", "best.ckpt", "./voices", "a/b/c")]
        [True, False, False, False]
    """
    parts = name.split("/")
    wrong = name.lower().endswith(FILE_SUFFIXES) or any(part.startswith(".") for part in parts)
    return MODEL_ID.fullmatch(name) is not None and not wrong


def check_options(options: Mapping[str, Any]) -> None:
    """Raises a ValueError for what ``download`` does not take, also where nothing is downloaded."""
    unknown = options.keys() - OPTIONS
    if unknown:
        raise ValueError(
            f"{', '.join(sorted(unknown))}: no such option; there are hparams and, for the hub, "
            "revision, token, cache_dir, force_download, local_files_only"
        )


def download(model_id: str, **options: Any) -> Path:
    """Bring the files of a model into the hub's cache; nothing else of the repository.

    Args:
        model_id: "owner/name".
        options: ``revision``, ``token``, ``cache_dir``, ``force_download``, ``local_files_only``
            of ``huggingface_hub.snapshot_download``.

    Returns:
        The folder in the cache.

    Raises:
        FileNotFoundError: there is neither such a file here nor such a model there, or no
            connection and nothing in the cache.
    """
    try:
        return Path(snapshot_download(model_id, allow_patterns=FILES, **options))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(
            f"{model_id} is neither a file or folder here ({Path(model_id).absolute()}) nor a "
            f"model that the hub gives: {reason}"
        ) from error
