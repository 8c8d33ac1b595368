"""torchaudio's ``ConvTasNet`` (``torchaudio.models``): a plain state dictionary, non-causal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convtasnet.importers.foreign import BlockKeys, Converted, Translation, Weights, shape_of
from convtasnet.importers.hparams import UNKNOWN, Hparams

MARK = "mask_generator.input_conv.weight"
BLOCKS = "mask_generator.conv_layers"


def convert(
    content: Mapping[str, Any], weights: Weights, given: dict[str, Any], source: str
) -> Converted:
    """Convert a state dictionary.

    ``given`` says ``msk_activate``, and ``msk_num_layers`` or ``msk_num_stacks``.
    """
    hparams = Hparams("torchaudio", source, {}, given)
    arguments = _arguments(hparams, weights, given, source)
    return arguments, _state(weights, arguments, source), hparams.values


def _arguments(
    hparams: Hparams, weights: Weights, given: dict[str, Any], source: str
) -> dict[str, Any]:
    bn_chan, features, _ = shape_of(weights, MARK, source)
    outputs = shape_of(weights, "mask_generator.output_conv.weight", source)[0]
    hid_chan, _, taps = shape_of(weights, f"{BLOCKS}.0.conv_layers.3.weight", source)
    count = sum(key.endswith("conv_layers.3.weight") for key in weights)
    kernel_size = shape_of(weights, "encoder.weight", source)[2]
    get = hparams.get
    told = _share(count, given.get("msk_num_stacks"))
    layers = get("msk_num_layers", told=told, meaning="blocks in a stack")
    stacks = _share(count, layers)
    if layers is not UNKNOWN:
        if stacks is UNKNOWN:
            raise ValueError(
                f"{source} is a checkpoint of torchaudio with {count} blocks: they make no whole "
                f"number of stacks of msk_num_layers={layers!r}"
            )
        get("msk_num_stacks", told=stacks)
    arguments = {
        "n_src": get("num_sources", told=outputs // features),
        "n_filters": get("enc_num_feats", told=features),
        "kernel_size": get("enc_kernel_size", told=kernel_size),
        "stride": kernel_size // 2,
        "bn_chan": get("msk_num_feats", told=bn_chan),
        "hid_chan": get("msk_num_hidden_feats", told=hid_chan),
        "skip_chan": bn_chan,
        "conv_kernel_size": get("msk_kernel_size", told=taps),
        "n_blocks": layers,
        "n_repeats": stacks,
        "norm": "global",
        "causal": False,
        "mask_act": get("msk_activate", choices=("sigmoid", "relu")),
        "framing": "centered",
    }
    hparams.check(also_known=("msk_num_stacks",))
    arguments["sample_rate"] = hparams.sample_rate()
    return arguments


def _share(count: int, parts: Any) -> Any:
    """A number of blocks divided by stacks or layers, where that works out."""
    fits = isinstance(parts, int) and parts > 0 and count % parts == 0
    return count // parts if fits else UNKNOWN


def _state(weights: Weights, arguments: dict[str, Any], source: str) -> Weights:
    translation = Translation(weights, source, norm_names=("weight", "bias"))
    for part in ("encoder", "decoder"):
        translation.state[f"{part}.filterbank._filters"] = translation.take(f"{part}.weight")
    translation.norm("separator.norm", "mask_generator.input_norm")
    translation.conv("separator.bottleneck", "mask_generator.input_conv")
    last = arguments["n_blocks"] * arguments["n_repeats"] - 1
    for i in range(last + 1):
        block = f"{BLOCKS}.{i}"
        layers = f"{block}.conv_layers"
        keys = BlockKeys(
            conv_in=f"{layers}.0",
            slope_in=f"{layers}.1.weight",
            norm_in=f"{layers}.2",
            depthwise=f"{layers}.3",
            slope_out=f"{layers}.4.weight",
            norm_out=f"{layers}.5",
            residual=f"{block}.res_out",
            skip=f"{block}.skip_out",
        )
        translation.block(i, keys, with_residual=i < last, biases=True)
    slope = translation.take("mask_generator.output_prelu.weight")
    translation.state["separator.mask_prelu.weight"] = slope
    translation.conv("separator.mask_conv", "mask_generator.output_conv")
    return translation.finish()
