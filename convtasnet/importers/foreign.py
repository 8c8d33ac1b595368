"""What all importers share: finding the weights, and collecting this project's from them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from convtasnet.checkpoint import plain_keys
from convtasnet.data.shown import some
from convtasnet.other_norms import LOOK_AHEAD

log = logging.getLogger(__name__)
MAX_LISTED = 5
Weights = dict[str, Tensor]
# Constructor arguments, weights, hyper-parameters in the toolkit's own names.
Converted = tuple[dict[str, Any], Weights, dict[str, Any]]


@dataclass(frozen=True)
class Imported:
    """A converted model.

    Args:
        toolkit: where it comes from.
        model_args: constructor arguments of ``ConvTasNet``.
        state_dict: its weights.
        hparams: the hyper-parameters that were found or given, in the toolkit's own names.
    """

    toolkit: str
    model_args: dict[str, Any]
    state_dict: Weights
    hparams: dict[str, Any]


@dataclass(frozen=True)
class BlockKeys:
    """Foreign keys of the parts of one block; None where the toolkit has no such part."""

    conv_in: str
    slope_in: str
    norm_in: str
    depthwise: str
    slope_out: str
    norm_out: str
    residual: str
    skip: str | None = None


def weights_in(content: Mapping[str, Any], mark: str) -> Weights | None:
    """The tensors of a checkpoint whose keys, behind some prefix, contain ``mark``.

    Example:
        >>> content = {"state_dict": {"module.model.a.b": torch.ones(1), "loss.c": torch.ones(1)}}
        >>> weights_in(content, "a.b"), weights_in(content, "a.c")
        ({'a.b': tensor([1.])}, None)
    """
    inner = content.get("state_dict")
    state = inner if isinstance(inner, Mapping) else content
    tensors = plain_keys({str(k): v for k, v in state.items() if isinstance(v, Tensor)})
    prefixes = [key.removesuffix(mark) for key in tensors if key.endswith(mark)]
    if len(prefixes) != 1:
        return None
    (prefix,) = prefixes
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def shape_of(weights: Weights, key: str, source: str) -> torch.Size:
    """The shape of a weight that every such model has.

    Raises:
        ValueError: it is missing.
    """
    if key not in weights:
        raise ValueError(f"the weights in {source} do not fit: {key} is missing")
    return weights[key].shape


class Translation:
    """Collects this project's weights from those of another toolkit, and sees that none is lost.

    Args:
        weights: the foreign state dictionary.
        source: its file, for messages.
        norm_names: what the toolkit calls gain and offset of a norm.
    """

    def __init__(
        self, weights: Weights, source: str, norm_names: tuple[str, str] = ("gamma", "beta")
    ) -> None:
        self.state: Weights = {}
        self._weights, self._source, self._norm_names = weights, source, norm_names
        self._used: set[str] = set()
        self._missing: list[str] = []
        self._integers: list[str] = []

    def take(self, key: str) -> Tensor:
        """A foreign weight, as float32."""
        self._used.add(key)
        if key not in self._weights:
            self._missing.append(key)
            return torch.zeros(1, 1, 1)
        if not self._weights[key].is_floating_point():
            self._integers.append(key)
        return self._weights[key].float()

    def conv(self, name: str, *keys: str, biases: bool = True) -> None:
        """A convolution, or several of one input side by side; zero biases where there are none."""
        weight = torch.cat([self.take(f"{key}.weight") for key in keys])
        bias = [self.take(f"{key}.bias") for key in keys] if biases else [torch.zeros(len(weight))]
        self.state |= {f"{name}.weight": weight, f"{name}.bias": torch.cat(bias)}

    def norm(self, name: str, key: str, slope: str | None = None) -> None:
        """A norm, with the PReLU in front of it; running statistics too where it has some."""
        batch = f"{key}.running_mean" in self._weights
        names = ("weight", "bias") if batch else self._norm_names
        parts = dict(zip(("weight", "bias"), names, strict=True))
        if batch:
            parts |= {"running_mean": "running_mean", "running_var": "running_var"}
            self._used.add(f"{key}.num_batches_tracked")
        for ours, theirs in parts.items():
            self.state[f"{name}.{ours}"] = self.take(f"{key}.{theirs}").flatten()
        if slope is not None:
            self.state[f"{name}.slope"] = self.take(slope)

    def block(self, number: int, keys: BlockKeys, with_residual: bool, biases: bool) -> None:
        """A block; the residual convolution of the last one may have no use."""
        name = f"separator.blocks.{number}"
        self.conv(f"{name}.conv_in", keys.conv_in, biases=biases)
        self.norm(f"{name}.norm_in", keys.norm_in, keys.slope_in)
        self.conv(f"{name}.depthwise", keys.depthwise, biases=biases)
        self.norm(f"{name}.norm_out", keys.norm_out, keys.slope_out)
        outputs = [keys.residual] if with_residual else []
        outputs += [keys.skip] if keys.skip is not None else []
        self.conv(f"{name}.conv_out", *outputs, biases=biases)

    def identity_slope(self) -> None:
        """No PReLU before the mask: one with slope 1."""
        self.state["separator.mask_prelu.weight"] = torch.ones(1)

    def finish(self, without_effect: Iterable[str] = ()) -> Weights:
        """The weights.

        Args:
            without_effect: keys that a file may hold and that its outputs do not depend on.

        Raises:
            ValueError: some were missing, are left over, or are no floating-point numbers.
        """
        left = sorted(self._weights.keys() - self._used - set(without_effect))
        problems = {
            "missing": self._missing,
            "unexpected": left,
            "not floating-point": self._integers,
        }
        found = [
            f"{len(keys)} {kind}: {some(keys, MAX_LISTED)}"
            for kind, keys in problems.items()
            if keys
        ]
        if found:
            raise ValueError(f"the weights in {self._source} do not fit: {'; '.join(found)}")
        return self.state


def later_taps(state: Weights, count: int) -> None:
    """Append zero taps to all depthwise convolutions: a causal one then looks less far ahead.

    Example:
        >>> state = {"separator.blocks.0.depthwise.weight": torch.ones(1, 1, 2)}
        >>> later_taps(state, 1)
        >>> state["separator.blocks.0.depthwise.weight"].flatten()
        tensor([1., 1., 0.])
    """
    for key, value in state.items():
        if key.endswith(".depthwise.weight"):
            state[key] = torch.nn.functional.pad(value, (0, count))


def without_causal_claim(arguments: dict[str, Any], state: Weights, source: str) -> None:
    """Make causal convolutions joined with a norm that looks ahead what they are: not causal.

    Both are changed in place. Zero taps on the later side make a non-causal convolution of a
    causal one, so the outputs stay the same.
    """
    if not arguments["causal"] or arguments["norm"] not in LOOK_AHEAD:
        return
    log.warning(
        "%s joins causal convolutions with norm=%r, whose statistics contain the whole recording: "
        "it is not causal. It is loaded as causal=False, with zeros for the later taps of its "
        "convolutions; its outputs are the same, and streaming is not possible",
        source,
        arguments["norm"],
    )
    taps = arguments["conv_kernel_size"]
    later_taps(state, taps - 1)
    arguments |= {"causal": False, "conv_kernel_size": 2 * taps - 1}
