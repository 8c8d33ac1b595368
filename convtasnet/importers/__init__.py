"""Checkpoints of other Conv-TasNet implementations: one file a toolkit.

An importer turns the content of a foreign file into constructor arguments of ``ConvTasNet`` and
its weights, and nothing more. It converts weights exactly where mathematics allows, so that the
model stays the project's own; what does not convert is an argument of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convtasnet.importers import asteroid, kaituoxu, speechbrain, torchaudio
from convtasnet.importers.foreign import Imported, weights_in

TOOLKITS = {
    "asteroid": asteroid,
    "torchaudio": torchaudio,
    "SpeechBrain": speechbrain,
    "kaituoxu": kaituoxu,
}


def import_foreign(
    content: Mapping[str, Any], hparams: Mapping[str, Any] | None, source: str
) -> Imported | None:
    """Convert the content of a checkpoint of another toolkit.

    Args:
        content: what the file holds: a state dictionary, or one under ``"state_dict"``, in any
            wrapper (``module.``, ``model.``, ``_orig_mod.``).
        hparams: hyper-parameters that the file does not hold, in the toolkit's own names.
        source: the file, for messages.

    Returns:
        The toolkit's name, constructor arguments and weights; None if no toolkit has such keys.

    Raises:
        ValueError: hyper-parameters are missing (all are named), unknown or contradict the file;
            weights are missing or left over; or the model has a feature that this one lacks.
    """
    for name, toolkit in TOOLKITS.items():
        weights = weights_in(content, toolkit.MARK)
        if weights is not None:
            arguments, state, held = toolkit.convert(content, weights, dict(hparams or {}), source)
            return Imported(name, arguments, state, held)
    return None
