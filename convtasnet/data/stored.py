"""The data that a checkpoint says it was trained on."""

from __future__ import annotations

from typing import Any

DATA_SETS = (
    "convtasnet.data.demo.DemoData",
    "convtasnet.data.librimix.LibriMixData",
    "convtasnet.data.module.ManifestData",
    "convtasnet.data.module.Wsj0MixData",
    "convtasnet.data.speakers.SpeakersData",
    "convtasnet.data.wham.WhamData",
)


def stored_data(config: dict[str, Any], source: object) -> dict[str, Any]:
    """Data settings of a checkpoint's configuration, if they name data of this package.

    A checkpoint is somebody's file, and building what it names runs that code. So the whole name
    counts (``convtasnet.data.module.os.system`` begins well, too), and values are plain: numbers,
    strings, lists of them.

    Args:
        config: the checkpoint's resolved configuration.
        source: the checkpoint, for the message.

    Returns:
        The settings with their ``_target_``; empty if the checkpoint names no data.

    Raises:
        ValueError: they name anything else.

    Example:
        >>> stored_data({"data": {"_target_": "os.system", "command": "id"}}, "x.ckpt")
        Traceback (most recent call last):
            ...
        ValueError: x.ckpt names data 'os.system', not of this package: name the data yourself
    """
    data = config.get("data") or {}
    if not data:
        return {}
    target = data.get("_target_")
    if target not in DATA_SETS:
        raise ValueError(
            f"{source} names data {target!r}, not of this package: name the data yourself"
        )
    nested = [name for name, value in data.items() if not _is_plain(value)]
    if nested:
        raise ValueError(f"{source} has data settings that are no plain values: {nested}")
    return dict(data)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str | int | float) for item in value)
    return not isinstance(value, dict | tuple)
