"""Hyper-parameters of a foreign model: from its file, from its shapes, from the caller."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from convtasnet.data.shown import some

log = logging.getLogger(__name__)
UNKNOWN: Any = object()
SAMPLE_RATE = 8000


class Hparams:
    """Settles each hyper-parameter among those who know it, and asks for what nobody knows.

    Args:
        toolkit: for messages.
        source: the file, for messages.
        held: what the file holds, in the toolkit's own names.
        given: what the caller says, in the same names.

    Example:
        >>> hparams = Hparams("kaituoxu", "final.pth.tar", {"N": 32}, {"causal": 1})
        >>> hparams.get("N", told=32), hparams.get("causal", choices=(0, 1))
        (32, 1)
        >>> _ = hparams.get("norm_type", choices=("gLN", "cLN"))
        >>> hparams.check()
        Traceback (most recent call last):
            ...
        ValueError: final.pth.tar is a checkpoint of kaituoxu that does not hold ...
    """

    def __init__(
        self, toolkit: str, source: str, held: Mapping[str, Any], given: Mapping[str, Any]
    ) -> None:
        self.values: dict[str, Any] = {}
        self._who = f"{source} is a checkpoint of {toolkit}"
        self._held, self._given = held, given
        self._known: set[str] = {"sample_rate"}
        self._missing: list[str] = []

    def get(
        self,
        name: str,
        told: Any = UNKNOWN,
        choices: Collection[Any] | None = None,
        meaning: str = "",
    ) -> Any:
        """The value of one hyper-parameter; a placeholder until ``check`` if nobody knows it.

        Args:
            name: in the toolkit's own words.
            told: what the weights' shapes or keys say.
            choices: all that it may be.
            meaning: for the question.

        Raises:
            ValueError: those who know it do not agree, or it is none of the choices.
        """
        self._known.add(name)
        knowing = {
            "its hyper-parameters": self._held.get(name, UNKNOWN),
            "its weights": told,
            "hparams": self._given.get(name, UNKNOWN),
        }
        said = {who: value for who, value in knowing.items() if value is not UNKNOWN}
        if not said:
            how = f"one of {', '.join(map(repr, choices))}" if choices else meaning
            self._missing.append(f"{name} ({how})" if how else name)
            return UNKNOWN
        (who, value), *others = said.items()
        for other, opinion in others:
            if opinion != value:
                raise ValueError(f"{self._who}: {name}={value!r} in {who}, {opinion!r} in {other}")
        if choices is not None and value not in choices:
            raise ValueError(
                f"{self._who} with {name}={value!r}, which has no counterpart here: only "
                f"{', '.join(map(repr, choices))} have"
            )
        self.values[name] = value
        return value

    def sample_rate(self) -> int:
        """The sample rate in Hz: 8000, with a warning, where neither file nor caller says it."""
        if "sample_rate" not in self._given and self._held.get("sample_rate") is None:
            log.warning(
                "%s without a sample rate: %d Hz are assumed; give hparams={'sample_rate': …} "
                "(--hparams sample_rate=…) if it is another",
                self._who,
                SAMPLE_RATE,
            )
            return SAMPLE_RATE
        value = self.get("sample_rate")
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise ValueError(f"{self._who}: sample_rate={value!r} must be a whole number of Hz")
        return int(value)

    def check(self, also_known: Collection[str] = ()) -> None:
        """Refuse what is missing or unknown.

        Args:
            also_known: names beside those that were asked for.

        Raises:
            ValueError: names every hyper-parameter that is needed, or that nobody knows.
        """
        known = self._known | set(also_known)
        strange = [name for name in self._given if name not in known]
        if strange:
            raise ValueError(
                f"{self._who}: hparams names {some(strange)}, unknown; known are "
                f"{', '.join(sorted(known))}"
            )
        if self._missing:
            names = [text.split(" ")[0] for text in self._missing]
            raise ValueError(
                f"{self._who} that does not hold {', '.join(self._missing)}: give hparams="
                f"{{{', '.join(f'{name!r}: …' for name in names)}}} "
                f"(--hparams {' '.join(f'{name}=…' for name in names)})"
            )
