"""Conv-TasNet: encoder, mask estimation, decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from convtasnet.filterbanks import encoder_decoder
from convtasnet.framing import FRAMINGS, Framing
from convtasnet.hub_model import HubModel
from convtasnet.lengths import checked_lengths
from convtasnet.norms import valid_frames
from convtasnet.other_norms import ALL_NORMS, LOOK_AHEAD
from convtasnet.separator import CONV_PADDINGS, MASK_ACTIVATIONS, Separator
from convtasnet_kernels import decode_masked, overlap_add
from convtasnet_kernels.backend import runs_in_triton

# Rows of so many frames start at 16-byte addresses: unaligned products and norms take up to twice
# the time. Frames are added up to a multiple of it, and left out again as padding is.
FRAME_ALIGNMENT = 8


class ConvTasNet(nn.Module, HubModel):
    """Time-domain speech separator (Luo & Mesgarani 2019, arXiv 1809.07454).

    The defaults are the paper's best non-causal model, of 4,984,881 parameters with two sources;
    ``norm="cumulative", causal=True`` gives its causal one. A causal model's output at a sample
    depends on no input later than ``latency = kernel_size − 1`` samples after it.

    Args:
        n_src: number of sources.
        n_filters: N, filters of the encoder.
        kernel_size: L, their length in samples.
        stride: hop between frames in samples, L/2 in the paper.
        bn_chan: B, channels of the bottleneck and the residual path.
        hid_chan: H, channels inside a block.
        skip_chan: Sc, channels of the skip path; 0 leaves it out.
        conv_kernel_size: P, taps of the depthwise convolutions.
        n_blocks: X, blocks in a repeat, with dilations 1, 2, …, 2^(X−1).
        n_repeats: R.
        norm: "cumulative" (the paper's cLN: all channels, all frames so far), "global" (gLN: all
            channels, all frames), "channelwise" (one frame; other toolkits' cLN) or "batch"; for
            imported models also "cumulative_legacy" and "featurewise", see
            :mod:`convtasnet.other_norms`.
        causal: whether the depthwise convolutions look back only.
        mask_act: "relu", "sigmoid", "softmax" (over the sources) or "softmax_filters" (over the
            filters of each source; SpeechBrain's).
        encoder_act: None, or "relu" after the encoder.
        filterbank: "free" (learned), "stft", "analytic_free", "param_sinc" or "mpgtf".
        sample_rate: Hz of the waveforms.
        framing: "complete", "drop" or "centered", see :class:`convtasnet.framing.Framing`; other
            toolkits' models need the others.
        input_norm: norm in front of the bottleneck, None for the same as in the blocks;
            SpeechBrain and kaituoxu have "channelwise" there in all models.
        conv_padding: what the depthwise convolutions find beyond the ends, "zeros" or, for
            non-causal models, "reflect" (SpeechBrain's).
        fused: how blocks and decoder run, not what they compute, and so not in ``hparams``: each
            as one operator (True; the decoder if ``mask_act="relu"``), step by step (False), or as
            one where a GPU has kernels for it (None).

    Raises:
        ValueError: an argument that has no meaning, ``norm="global"`` with ``causal=True``
            among them: the global norm's statistics contain the future.

    Example:
        >>> model = ConvTasNet(n_filters=64, bn_chan=16, hid_chan=32, skip_chan=16, n_blocks=2)
        >>> model(torch.randn(3, 4001)).shape
        torch.Size([3, 2, 4001])
        >>> ConvTasNet(norm="global", causal=True)
        Traceback (most recent call last):
            ...
        ValueError: norm='global' cannot be causal: ...
    """

    def __init__(
        self,
        n_src: int = 2,
        n_filters: int = 512,
        kernel_size: int = 16,
        stride: int = 8,
        bn_chan: int = 128,
        hid_chan: int = 512,
        skip_chan: int = 128,
        conv_kernel_size: int = 3,
        n_blocks: int = 8,
        n_repeats: int = 3,
        norm: str = "global",
        causal: bool = False,
        mask_act: str = "relu",
        encoder_act: str | None = None,
        filterbank: str = "free",
        sample_rate: int = 8000,
        framing: str = "complete",
        input_norm: str | None = None,
        conv_padding: str = "zeros",
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.hparams: dict[str, Any] = {
            "n_src": n_src,
            "n_filters": n_filters,
            "kernel_size": kernel_size,
            "stride": stride,
            "bn_chan": bn_chan,
            "hid_chan": hid_chan,
            "skip_chan": skip_chan,
            "conv_kernel_size": conv_kernel_size,
            "n_blocks": n_blocks,
            "n_repeats": n_repeats,
            "norm": norm,
            "causal": causal,
            "mask_act": mask_act,
            "encoder_act": encoder_act,
            "filterbank": filterbank,
            "sample_rate": sample_rate,
            "framing": framing,
            "input_norm": input_norm,
            "conv_padding": conv_padding,
        }
        self.training_config, self.about = {}, {}
        _check_hparams(self.hparams)
        self.n_src, self.causal, self.sample_rate = n_src, causal, sample_rate
        self.fused = fused
        # Batch norm mixes all frames while it trains.
        self.looks_back_only = causal and "batch" not in (norm, input_norm)
        self.frame_alignment = 1 if "batch" in (norm, input_norm) else FRAME_ALIGNMENT
        self.kernel_size, self.stride, self.encoder_act = kernel_size, stride, encoder_act
        self.framing = Framing(framing, kernel_size, stride)
        self.encoder, self.decoder = encoder_decoder(
            filterbank, n_filters, kernel_size, stride, sample_rate
        )
        self.separator = Separator(
            n_src,
            self.encoder.n_feats_out,
            bn_chan,
            hid_chan,
            skip_chan,
            conv_kernel_size,
            n_blocks,
            n_repeats,
            norm,
            causal,
            mask_act,
            input_norm,
            conv_padding,
            fused,
        )

    @property
    def latency(self) -> int:
        """Samples of input after an output sample on which it may depend, if causal."""
        return self.kernel_size - 1

    def forward(self, mix: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Separate mixtures.

        Args:
            mix: (T,), (B, T) or (B, 1, T), any T from 1 on.
            lengths: valid samples of each item, (B,), each from 1 to T, or None where all are T.
                What lies beyond is ignored: an item gives the same output as alone, zeros beyond
                its length, and padding gets no gradient.

        Returns:
            (n_src, T) for (T,), else (B, n_src, T).

        Raises:
            ValueError: another shape, integer samples, or lengths that do not fit.
        """
        x = _as_batch(mix, self.separator.mask_prelu.weight.dtype)  # convolutions' may be cast
        length, frames = x.shape[-1], None
        n_frames = self.framing.count(length)
        if lengths is not None:
            lengths = checked_lengths(lengths, x)
            frames = self.framing.count(lengths)
            x = torch.where(valid_frames(x, lengths), x, 0.0)
        x = self.framing.framed(x, n_frames + -n_frames % self.frame_alignment)
        samples = self._separate(x, n_frames, frames)
        with torch.autocast(x.device.type, enabled=False):
            y = overlap_add(
                samples, self.stride, length, self.framing.margin, n_frames, frames, lengths
            ).unflatten(0, (x.shape[0], self.n_src))
        return y.squeeze(0) if mix.ndim == 1 else y

    def _separate(self, x: Tensor, n_frames: int, frames: Tensor | None) -> Tensor:
        """Map x (B, 1, T) of whole frames F to the samples (B·n_src, L, F) of each source's.

        Waveforms keep float32 under autocast: bfloat16 would add noise at −50 dB.

        Args:
            x: the waveforms.
            n_frames: valid ones; those after them are there for the alignment.
            frames: valid frames of each item, (B,), or None where ``n_frames`` are.
        """
        with torch.autocast(x.device.type, enabled=False):
            features = self.encoder(x)
        if self.encoder_act == "relu":
            features = features.relu()
        return self._decoded(features, self._seen(features, n_frames, frames))

    def _decoded(self, features: Tensor, seen: Tensor | None) -> Tensor:
        """Samples (B·n_src, L, F) of each source's frames, of which the separator sees so many."""
        device, separator = features.device.type, self.separator
        if self._decodes_at_once(features):
            scores = separator.scores(features, seen)
            with torch.autocast(device, enabled=False):
                filters = self.decoder.get_filters()[:, 0]
                return decode_masked(scores, features, filters, separator.mask_conv.bias)
        masked = features.unsqueeze(1) * separator(features, seen)
        with torch.autocast(device, enabled=False):
            return self.decoder.frames(masked.to(features.dtype).flatten(0, 1))

    def _decodes_at_once(self, features: Tensor) -> bool:
        """Whether masks, their product with features and the decoder are one operator."""
        if self.separator.mask_act != "relu" or self.fused is False:
            return False
        return bool(self.fused) or runs_in_triton("decode_masked", features)

    def _seen(self, features: Tensor, n_frames: int, frames: Tensor | None) -> Tensor | None:
        """Which frames (B,) of features (B, N, F) the separator may see; None for all.

        Later frames never reach earlier ones in a causal model: there, none is kept from it.
        """
        if self.looks_back_only or (frames is None and n_frames == features.shape[-1]):
            return None
        return (
            features.new_full((len(features),), n_frames, dtype=torch.int64)
            if frames is None
            else frames
        )


def _check_hparams(hparams: dict[str, Any]) -> None:
    for name in ("n_src", "n_filters", "kernel_size", "stride", "bn_chan", "hid_chan"):
        _check_count(name, hparams[name], 1)
    for name in ("conv_kernel_size", "n_blocks", "n_repeats", "sample_rate"):
        _check_count(name, hparams[name], 1)
    _check_count("skip_chan", hparams["skip_chan"], 0)
    if hparams["stride"] > hparams["kernel_size"]:
        raise ValueError(
            f"stride={hparams['stride']} is above kernel_size={hparams['kernel_size']}: "
            "samples between the frames would be lost"
        )
    choices: dict[str, tuple[str | None, ...]] = {
        "norm": tuple(ALL_NORMS),
        "mask_act": MASK_ACTIVATIONS,
        "encoder_act": (None, "relu"),
        "framing": FRAMINGS,
        "input_norm": (None, *ALL_NORMS),
        "conv_padding": CONV_PADDINGS,
    }
    for name, allowed in choices.items():
        if hparams[name] not in allowed:
            raise ValueError(f"{name}={hparams[name]!r} is unknown; choose one of {allowed}")
    if not isinstance(hparams["causal"], bool):  # 'no' would count as true
        raise ValueError(f"causal={hparams['causal']!r} must be true or false")
    for name in ("norm", "input_norm"):
        if hparams[name] in LOOK_AHEAD and hparams["causal"]:
            raise ValueError(
                f"{name}={hparams[name]!r} cannot be causal: its statistics contain the whole "
                "future; use 'cumulative' (or 'channelwise') with causal=True, or causal=False"
            )
    if hparams["conv_padding"] == "reflect" and hparams["causal"]:
        raise ValueError("conv_padding='reflect' cannot be causal: it reads beyond the end")


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}")


def _as_batch(mix: Tensor, dtype: torch.dtype) -> Tensor:
    """(T,), (B, T) or (B, 1, T) as (B, 1, T)."""
    if not isinstance(mix, Tensor):
        raise ValueError(f"mix is a {type(mix).__name__}, must be a tensor")
    if mix.ndim not in (1, 2, 3) or (mix.ndim == 3 and mix.shape[1] != 1):
        raise ValueError(
            f"mix has shape {tuple(mix.shape)}, must be (T,), (B, T) or (B, 1, T): one channel; "
            "average the channels or separate them one by one"
        )
    if not mix.is_floating_point():
        raise ValueError(f"mix has dtype {mix.dtype}, must be floating point, in [-1, 1]")
    if mix.dtype != dtype:
        raise ValueError(f"mix has dtype {mix.dtype}, the model {dtype}: convert one of them")
    if mix.shape[-1] < 1:
        raise ValueError(f"mix has shape {tuple(mix.shape)}: at least one sample is needed")
    if mix.ndim == 1:
        return mix[None, None]
    return mix[:, None] if mix.ndim == 2 else mix
