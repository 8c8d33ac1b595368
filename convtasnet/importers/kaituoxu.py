"""kaituoxu's Conv-TasNet (https://github.com/kaituoxu/Conv-TasNet), and its architecture.

No biases, no skip path, no PReLU before the masks, a ReLU after the encoder and a first norm that
is always channelwise: SpeechBrain's model is of the same architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convtasnet.importers.foreign import (
    BlockKeys,
    Converted,
    Translation,
    Weights,
    shape_of,
    without_causal_claim,
)
from convtasnet.importers.hparams import Hparams

MARK = "separator.network.1.weight"
NORMS = {"gLN": "global", "cLN": "channelwise", "BN": "batch"}
MASK_ACTIVATIONS = ("relu", "softmax")  # over the sources
HELD = ("N", "L", "B", "H", "P", "X", "R", "C", "norm_type", "causal", "mask_nonlinear")


def convert(
    content: Mapping[str, Any], weights: Weights, given: dict[str, Any], source: str
) -> Converted:
    """Convert a package (or a bare state dictionary, with what it does not tell in ``given``)."""
    held = {name: content[name] for name in HELD if name in content}
    hparams = Hparams("kaituoxu", source, held, given)
    arguments = _arguments(hparams, weights, source)
    state = _state(weights, arguments, source)
    without_causal_claim(arguments, state, source)
    return arguments, state, hparams.values


def architecture(norm: str, kernel_size: int) -> dict[str, Any]:
    """Arguments that all models of this architecture share."""
    return {
        "stride": kernel_size // 2,
        "skip_chan": 0,
        "norm": norm,
        "input_norm": "channelwise",
        "encoder_act": "relu",
        "framing": "drop",
    }


def _arguments(hparams: Hparams, weights: Weights, source: str) -> dict[str, Any]:
    bn_chan, features, _ = shape_of(weights, MARK, source)
    outputs = shape_of(weights, "separator.network.3.weight", source)[0]
    hid_chan, _, taps = shape_of(weights, f"{_block(0, 0)}.3.net.0.weight", source)
    kernel_size = shape_of(weights, "encoder.conv1d_U.weight", source)[2]
    places = [key.split(".")[3:5] for key in weights if key.startswith("separator.network.2.")]
    get = hparams.get
    norm = get("norm_type", choices=NORMS)
    arguments = {
        "n_src": get("C", told=outputs // features),
        "n_filters": get("N", told=features),
        "kernel_size": get("L", told=kernel_size),
        "bn_chan": get("B", told=bn_chan),
        "hid_chan": get("H", told=hid_chan),
        "conv_kernel_size": get("P", told=taps),
        "n_blocks": get("X", told=1 + max(int(x) for _, x in places)),
        "n_repeats": get("R", told=1 + max(int(r) for r, _ in places)),
        # Behind a causal convolution stands the cut of its end, which has no weights.
        "causal": get("causal", told=f"{_block(0, 0)}.3.net.2.weight" in weights),
        "mask_act": get("mask_nonlinear", choices=MASK_ACTIVATIONS),
    }
    hparams.check()
    arguments["sample_rate"] = hparams.sample_rate()
    return (
        arguments | architecture(NORMS[norm], kernel_size) | {"causal": bool(arguments["causal"])}
    )


def _block(repeat: int, number: int) -> str:
    return f"separator.network.2.{repeat}.{number}.net"


def _state(weights: Weights, arguments: dict[str, Any], source: str) -> Weights:
    translation = Translation(weights, source)
    translation.state |= {
        "encoder.filterbank._filters": translation.take("encoder.conv1d_U.weight"),
        "decoder.filterbank._filters": translation.take("decoder.basis_signals.weight").T[:, None],
    }
    translation.norm("separator.norm", "separator.network.0")
    translation.conv("separator.bottleneck", "separator.network.1", biases=False)
    after = 2 if arguments["causal"] else 1
    for i in range(arguments["n_blocks"] * arguments["n_repeats"]):
        net = _block(*divmod(i, arguments["n_blocks"]))
        keys = BlockKeys(
            conv_in=f"{net}.0",
            slope_in=f"{net}.1.weight",
            norm_in=f"{net}.2",
            depthwise=f"{net}.3.net.0",
            slope_out=f"{net}.3.net.{after}.weight",
            norm_out=f"{net}.3.net.{after + 1}",
            residual=f"{net}.3.net.{after + 2}",
        )
        translation.block(i, keys, with_residual=True, biases=False)
    translation.identity_slope()
    translation.conv("separator.mask_conv", "separator.network.3", biases=False)
    return translation.finish()
