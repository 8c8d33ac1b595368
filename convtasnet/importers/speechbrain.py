"""SpeechBrain's Conv-TasNet: ``encoder.ckpt``, ``masknet.ckpt`` and ``decoder.ckpt`` of a folder.

The architecture is kaituoxu's, with two differences in the depthwise convolutions: non-causal ones
reflect the map at its ends, and causal ones are padded twice, so that they look half their reach
further back. The latter is a convolution with more taps, the last ones zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convtasnet.importers.foreign import (
    BlockKeys,
    Converted,
    Translation,
    Weights,
    later_taps,
    shape_of,
    without_causal_claim,
)
from convtasnet.importers.hparams import Hparams
from convtasnet.importers.kaituoxu import architecture

PARTS = ("encoder", "masknet", "decoder")  # the folder's files, and what their keys are prefixed by
MARK = "masknet.bottleneck_conv1x1.conv.weight"
NORMS = {"gLN": "global", "cLN": "channelwise"}
MASK_ACTIVATIONS = {"relu": "relu", "softmax": "softmax_filters"}
# Names in the recipes' yaml, plain or as CLASS.ARGUMENT, and the one used here.
NAMES = {
    "num_spks": "C",
    "N_encoder_out": "N",
    "out_channels": "N",
    "kernel_stride": "stride",
    "Encoder.kernel_size": "kernel_size",
    "Encoder.out_channels": "N",
    "Decoder.in_channels": "N",
    "Decoder.kernel_size": "kernel_size",
    "Decoder.stride": "stride",
    "Decoder.out_channels": "Decoder.out_channels",
    "Decoder.bias": "Decoder.bias",
}


def convert(
    content: Mapping[str, Any], weights: Weights, given: dict[str, Any], source: str
) -> Converted:
    """Convert the weights of the three files.

    ``given`` says ``norm_type``, ``causal`` and ``mask_nonlinear``, plain or as the recipe's
    nested ``{"MaskNet": {…}}``.
    """
    hparams = Hparams("SpeechBrain", source, {}, _flat(given, source))
    arguments = _arguments(hparams, weights, source)
    state = _state(weights, arguments, source)
    if arguments["causal"]:
        delay = arguments["conv_kernel_size"] // 2
        later_taps(state, delay)
        arguments["conv_kernel_size"] += delay
    without_causal_claim(arguments, state, source)
    return arguments, state, hparams.values


def _flat(given: dict[str, Any], source: str) -> dict[str, Any]:
    """Nested names as dotted ones, all in one spelling."""
    dotted: dict[str, Any] = {}
    for name, value in given.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        dotted |= {f"{name}.{key}".rstrip("."): entry for key, entry in inner.items()}
    flat: dict[str, Any] = {}
    for name, value in dotted.items():
        plain = NAMES.get(name, name.removeprefix("MaskNet."))
        if flat.setdefault(plain, value) != value:
            raise ValueError(f"{source}: hparams says {plain}={flat[plain]!r} and {name}={value!r}")
    return flat


def _arguments(hparams: Hparams, weights: Weights, source: str) -> dict[str, Any]:
    bn_chan, features, _ = shape_of(weights, MARK, source)
    outputs = shape_of(weights, "masknet.mask_conv1x1.conv.weight", source)[0]
    hid_chan, _, taps = shape_of(weights, f"{_block(0, 0)}.DSconv.conv_0.conv.weight", source)
    kernel_size = shape_of(weights, "encoder.conv1d.weight", source)[2]
    blocks = [key.split(".")[2] for key in weights if ".temporalblock_" in key]
    places = [[int(part) for part in name.split("_")[1:]] for name in blocks]
    get = hparams.get
    norm = get("norm_type", choices=NORMS)
    mask_act = get("mask_nonlinear", choices=MASK_ACTIVATIONS)
    arguments = {
        "n_src": get("C", told=outputs // features),
        "n_filters": get("N", told=features),
        "kernel_size": get("kernel_size", told=kernel_size),
        "bn_chan": get("B", told=bn_chan),
        "hid_chan": get("H", told=hid_chan),
        "conv_kernel_size": get("P", told=taps),
        "n_blocks": get("X", told=1 + max(x for _, x in places)),
        "n_repeats": get("R", told=1 + max(r for r, _ in places)),
        "causal": get("causal", choices=(True, False)),
    }
    # The encoder's hop has no other value.
    get("stride", told=kernel_size // 2)
    get("Decoder.out_channels", told=1)
    get("Decoder.bias", told=False)
    hparams.check()
    arguments["sample_rate"] = hparams.sample_rate()
    if taps % 2 == 0:
        raise ValueError(f"{source}: SpeechBrain's paddings make no whole delay of P={taps} taps")
    arguments["mask_act"] = MASK_ACTIVATIONS[mask_act]
    arguments["causal"] = bool(arguments["causal"])
    arguments["conv_padding"] = "zeros" if arguments["causal"] else "reflect"
    return arguments | architecture(NORMS[norm], kernel_size)


def _block(repeat: int, number: int) -> str:
    return f"masknet.temporal_conv_net.temporalblock_{repeat}_{number}.layers"


def _state(weights: Weights, arguments: dict[str, Any], source: str) -> Weights:
    translation = Translation(weights, source)
    translation.state |= {
        "encoder.filterbank._filters": translation.take("encoder.conv1d.weight"),
        "decoder.filterbank._filters": translation.take("decoder.weight"),
    }
    translation.norm("separator.norm", "masknet.layer_norm")
    translation.conv("separator.bottleneck", "masknet.bottleneck_conv1x1.conv", biases=False)
    for i in range(arguments["n_blocks"] * arguments["n_repeats"]):
        layers = _block(*divmod(i, arguments["n_blocks"]))
        keys = BlockKeys(
            conv_in=f"{layers}.conv.conv",
            slope_in=f"{layers}.act.weight",
            norm_in=f"{layers}.norm",
            depthwise=f"{layers}.DSconv.conv_0.conv",
            slope_out=f"{layers}.DSconv.act.weight",
            norm_out=f"{layers}.DSconv.act_0",
            residual=f"{layers}.DSconv.conv_1.conv",
        )
        translation.block(i, keys, with_residual=True, biases=False)
    translation.identity_slope()
    translation.conv("separator.mask_conv", "masknet.mask_conv1x1.conv", biases=False)
    return translation.finish()
