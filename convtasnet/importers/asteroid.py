"""asteroid's ``ConvTasNet`` (https://github.com/asteroid-team/asteroid), its packages of all ages.

A package holds the constructor's arguments; versions differ in their defaults, so what is absent
is settled by the version that wrote it, or asked for.
"""

from __future__ import annotations

import logging
import re
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
from convtasnet.importers.hparams import UNKNOWN, Hparams

log = logging.getLogger(__name__)
MARK = "masker.bottleneck.1.weight"
NORMS = {
    "gLN": "global",
    "GlobLN": "global",
    "cLN": "channelwise",
    "ChanLN": "channelwise",
    "cgLN": "cumulative",
    "CumLN": "cumulative",
    "fgLN": "featurewise",
    "FeatsGlobLN": "featurewise",
    "bN": "batch",
    "BatchNorm": "batch",
}
FILTERBANKS = {
    "free": "free",
    "FreeFB": "free",
    "stft": "stft",
    "STFTFB": "stft",
    "analytic_free": "analytic_free",
    "AnalyticFreeFB": "analytic_free",
    "param_sinc": "param_sinc",
    "ParamSincFB": "param_sinc",
    "mpgtf": "mpgtf",
    "MultiphaseGammatoneFB": "mpgtf",
}
MASK_ACTIVATIONS = ("relu", "sigmoid", "softmax")
IGNORED = {"min_low_hz": 50, "min_band_hz": 50}  # as this project's param_sinc has them
ENCODER_ACTIVATIONS = (None, "linear", "relu")
FIRST_WITH_ENCODER_ACTIVATION = (0, 3, 1)
FIRST_WITH_VARIANCE = (0, 6, 1)  # before, cgLN's variance lacked a division


def convert(
    content: Mapping[str, Any], weights: Weights, given: dict[str, Any], source: str
) -> Converted:
    """Convert a package (or a bare state dictionary, with all of ``model_args`` in ``given``).

    ``given`` may also hold ``asteroid_version``: the version that a ``cgLN`` model was trained
    with, if it is not the one that wrote the package.
    """
    if content.get("model_name", "ConvTasNet") != "ConvTasNet":
        raise ValueError(f"{source} is asteroid's {content['model_name']}, not a ConvTasNet")
    version = given.pop("asteroid_version", None) or _version(content)
    held = _held(content, version)
    hparams = Hparams("asteroid", source, held, given)
    arguments = _arguments(hparams, weights, source)
    ignored = {k: v for k, v in held.items() if k not in hparams.values and IGNORED.get(k) != v}
    if ignored:
        log.warning("%s: model_args names %s, unknown here and ignored", source, ignored)
    if arguments["norm"] == "cumulative":
        arguments["norm"] = _cumulative(version, source)
    state = _state(weights, arguments, source)
    without_causal_claim(arguments, state, source)
    return arguments, state, hparams.values | {"asteroid_version": version}


def _version(content: Mapping[str, Any]) -> str | None:
    infos = content.get("infos")
    versions = infos.get("software_versions") if isinstance(infos, Mapping) else None
    version = versions.get("asteroid_version") if isinstance(versions, Mapping) else None
    return None if version is None else str(version)


def _number(version: str | None) -> tuple[int, ...] | None:
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _held(content: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """The package's arguments, with what a key's absence means."""
    held = content.get("model_args")
    if not isinstance(held, Mapping):
        return {}
    held = {str(name): value for name, value in held.items()}
    number = _number(version)
    if number is not None and number < FIRST_WITH_ENCODER_ACTIVATION:
        held.setdefault("encoder_activation", None)  # those versions had none
    if "skip_chan" in held:
        held["skip_chan"] = held["skip_chan"] or 0
    for name in ("in_chan", "out_chan", "sample_rate"):
        if held.get(name) is None:
            held.pop(name, None)
    return held


def _arguments(hparams: Hparams, weights: Weights, source: str) -> dict[str, Any]:
    bn_chan, features, _ = shape_of(weights, MARK, source)
    first = "masker.TCN.0"
    causal = f"{first}.shared_block.3.0.weight" in weights
    depthwise = f"{first}.shared_block.3.{'0.' if causal else ''}weight"
    skip = weights.get(f"{first}.skip_conv.weight")
    get = hparams.get
    n_src = shape_of(weights, "masker.mask_net.1.weight", source)[0] // features
    filterbank = get("fb_name", choices=FILTERBANKS)
    n_filters = kernel_size = UNKNOWN
    if FILTERBANKS.get(filterbank) == "free":
        n_filters, _, kernel_size = shape_of(weights, "encoder.filterbank._filters", source)
    arguments = {
        "filterbank": filterbank,
        "n_src": get("n_src", told=n_src),
        "n_filters": get("n_filters", told=n_filters),
        "kernel_size": get("kernel_size", told=kernel_size),
        "stride": get("stride", meaning="hop in samples"),
        "bn_chan": get("bn_chan", told=bn_chan),
        "hid_chan": get("hid_chan", told=shape_of(weights, depthwise, source)[0]),
        "skip_chan": get("skip_chan", told=0 if skip is None else skip.shape[0]),
        "conv_kernel_size": get("conv_kernel_size", told=shape_of(weights, depthwise, source)[2]),
        "n_blocks": get("n_blocks", meaning="blocks in a repeat"),
        "n_repeats": get("n_repeats", meaning="repeats"),
        "norm": get("norm_type", choices=NORMS),
        "causal": get("causal", told=causal),
        "mask_act": get("mask_act", choices=MASK_ACTIVATIONS),
        "encoder_act": get("encoder_activation", choices=ENCODER_ACTIVATIONS),
        "framing": "drop",
    }
    for name in ("in_chan", "out_chan"):
        get(name, told=features)
    hparams.check()
    arguments["sample_rate"] = hparams.sample_rate()
    arguments["norm"] = NORMS[arguments["norm"]]
    arguments["filterbank"] = FILTERBANKS[filterbank]
    arguments["encoder_act"] = "relu" if arguments["encoder_act"] == "relu" else None
    return arguments


def _cumulative(version: str | None, source: str) -> str:
    """Which of its two cumulative norms a model has."""
    number = _number(version)
    if number is None:
        raise ValueError(
            f"{source} is a checkpoint of asteroid with cgLN that does not say its version: before "
            "0.6.1 this was another norm; give hparams={'asteroid_version': …} "
            "(--hparams asteroid_version=…)"
        )
    if number >= FIRST_WITH_VARIANCE:
        return "cumulative"
    log.warning(
        "%s is of asteroid %s, whose cgLN has no true variance (0.6.1 has): it is loaded with "
        "norm='cumulative_legacy'",
        source,
        version,
    )
    return "cumulative_legacy"


def _state(weights: Weights, arguments: dict[str, Any], source: str) -> Weights:
    translation = Translation(weights, source)
    for key in weights:
        if key.startswith(("encoder.", "decoder.")):
            translation.state[key] = translation.take(key)
    translation.norm("separator.norm", "masker.bottleneck.0")
    translation.conv("separator.bottleneck", "masker.bottleneck.1")
    last = arguments["n_blocks"] * arguments["n_repeats"] - 1
    for i in range(last + 1):
        block = f"masker.TCN.{i}"
        shared = f"{block}.shared_block"
        keys = BlockKeys(
            conv_in=f"{shared}.0",
            slope_in=f"{shared}.1.weight",
            norm_in=f"{shared}.2",
            depthwise=f"{shared}.3.0" if arguments["causal"] else f"{shared}.3",
            slope_out=f"{shared}.4.weight",
            norm_out=f"{shared}.5",
            residual=f"{block}.res_conv",
            skip=f"{block}.skip_conv" if arguments["skip_chan"] else None,
        )
        used = i < last or not arguments["skip_chan"]
        translation.block(i, keys, with_residual=used, biases=True)
    translation.state["separator.mask_prelu.weight"] = translation.take("masker.mask_net.0.weight")
    translation.conv("separator.mask_conv", "masker.mask_net.1")
    unused = f"masker.TCN.{last}.res_conv"
    return translation.finish(without_effect=(f"{unused}.weight", f"{unused}.bias"))
