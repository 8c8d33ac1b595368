"""A causal model's parameters, folded for running it frame by frame.

Gains and offsets of norms are folded into the linear maps behind them, and all biases of the
residual path into those of its readers: what is left are few, large operations. The streaming
separator and the ONNX graph both run this.

The norm in front of a depthwise convolution keeps its offset, in units of the gain that went into
the convolution. Folded, the offset would have to be taken back where there is no frame yet, and the
rest of that, by rounding, is no longer the zero that a following norm leaves alone: divided by
sqrt(eps) it is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
from torch import Tensor, nn

from convtasnet.block import Block
from convtasnet.depthwise import DepthwiseConv
from convtasnet.framing import Framing
from convtasnet.model import ConvTasNet
from convtasnet.norms import BATCH_EPS, EPS, BatchNorm, ChannelwiseNorm, CumulativeNorm, Norm
from convtasnet.other_norms import LegacyCumulativeNorm
from convtasnet.streaming.rows import new_rows

NORM_KINDS: dict[type[Norm], str] = {
    CumulativeNorm: "cumulative",
    LegacyCumulativeNorm: "cumulative_legacy",
    ChannelwiseNorm: "channelwise",
    BatchNorm: "batch",
}
Cast = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FoldedNorm:
    """What is left of a norm: (v − mean) / sqrt(variance + eps), or nothing.

    Args:
        kind: "cumulative", "cumulative_legacy" or "channelwise", whose statistics mean and variance
            are; or "batch", of which nothing is left.
        channels: C.
        eps: added to the variance.
        number: which of the cumulative norms it is, from 0; −1 for the others.
    """

    kind: str
    channels: int
    eps: float
    number: int


@dataclass(frozen=True)
class FoldedBlock:
    """A block: linear map, leaky ReLU, norm, depthwise convolution, leaky ReLU, norm, linear map.

    Args:
        weight_in: (B, H), of the residual path's frames (F, B).
        bias_in: (H,).
        slope_in: of the first leaky ReLU, below zero.
        norm_in: the first norm.
        offset: (H,), added behind the first norm, whose gain the taps have.
        taps: for each tap its weights (H,) and how many frames it looks back.
        bias_mid: (H,), of the convolution.
        slope_out: of the second leaky ReLU.
        norm_out: the second norm.
        weight_out: (H, B' + Sc), whose columns are added to the residual and the skip path; B' is B
            or, without a residual, 0.
        n_residual: B'.
    """

    weight_in: Tensor
    bias_in: Tensor
    slope_in: float
    norm_in: FoldedNorm
    offset: Tensor
    taps: tuple[tuple[Tensor, int], ...]
    bias_mid: Tensor
    slope_out: float
    norm_out: FoldedNorm
    weight_out: Tensor
    n_residual: int

    @property
    def reach(self) -> int:
        """Frames that the convolution looks back."""
        return max(back for _, back in self.taps)


@dataclass(frozen=True)
class FoldedModel:
    """A causal model.

    Args:
        n_src: sources.
        framing: where the frames lie; L is its ``kernel_size``.
        sample_rate: Hz.
        encoder: (L, N).
        encoder_relu: whether a ReLU follows the encoder.
        norm: of the features.
        bottleneck: (N, B).
        blocks: in their order.
        n_cumulative: cumulative norms in all.
        skip_chan: Sc, 0 where the masks come from the residual path.
        mask_offset: (Sc or B,), added before the masks' leaky ReLU.
        mask_slope: of the latter.
        mask_weight: (Sc or B, n_src · N).
        mask_bias: (n_src · N,).
        mask_act: one of ``convtasnet.separator.MASK_ACTIVATIONS``.
        decoder: (N, L).
    """

    n_src: int
    framing: Framing
    sample_rate: int
    encoder: Tensor
    encoder_relu: bool
    norm: FoldedNorm
    bottleneck: Tensor
    blocks: tuple[FoldedBlock, ...]
    n_cumulative: int
    skip_chan: int
    mask_offset: Tensor
    mask_slope: float
    mask_weight: Tensor
    mask_bias: Tensor
    mask_act: str
    decoder: Tensor

    @property
    def norms(self) -> list[FoldedNorm]:
        """All norms in the order in which they run."""
        of_blocks = (norm for block in self.blocks for norm in (block.norm_in, block.norm_out))
        return [self.norm, *of_blocks]


def fold(model: ConvTasNet) -> FoldedModel:
    """Fold a model's parameters as they are now; sums are in float64.

    Args:
        model: a causal model in float32 or float64.

    Returns:
        Its tensors have the model's dtype and device.

    Raises:
        ValueError: the model is not causal, or its batch norms are training.

    Example:
        >>> size = {"n_filters": 16, "bn_chan": 8, "hid_chan": 16, "skip_chan": 8, "n_blocks": 2}
        >>> folded = fold(ConvTasNet(**size, norm="cumulative", causal=True))
        >>> [block.reach for block in folded.blocks]
        [2, 4, 2, 4, 2, 4]
    """
    check_streams(model)
    separator = model.separator
    like = separator.bottleneck.weight
    cast = partial(_cast, like=like)
    numbers = count()
    norm, gain, norm_offset = _fold_norm(separator.norm, numbers)
    bottleneck, offset = _linear(separator.bottleneck)
    offset = offset + bottleneck @ norm_offset  # what the residual path lacks
    blocks, skip_offset = [], torch.zeros((), dtype=offset.dtype)
    for block in separator.blocks:
        assert isinstance(block, Block)
        folded, bias_out = _fold_block(block, offset, numbers, cast)
        blocks.append(folded)
        if folded.n_residual:
            offset = offset + bias_out[: folded.n_residual]
        skip_offset = skip_offset + bias_out[folded.n_residual :]
    mask_weight, mask_bias = _linear(separator.mask_conv)
    return FoldedModel(
        n_src=model.n_src,
        framing=model.framing,
        sample_rate=model.sample_rate,
        encoder=cast(model.encoder.get_filters()[:, 0].T),
        encoder_relu=model.encoder_act == "relu",
        norm=norm,
        bottleneck=cast((bottleneck * gain).T),
        blocks=tuple(blocks),
        n_cumulative=next(numbers),
        skip_chan=len(skip_offset),
        mask_offset=cast(skip_offset if len(skip_offset) else offset),
        mask_slope=separator.mask_prelu.weight.item(),
        mask_weight=cast(mask_weight.T),
        mask_bias=cast(mask_bias),
        mask_act=separator.mask_act,
        decoder=cast(model.decoder.get_filters()[:, 0]),
    )


def check_streams(model: ConvTasNet) -> None:
    """Raise a ValueError that says why a model cannot run frame by frame, if it cannot."""
    if not isinstance(getattr(model, "_orig_mod", model), ConvTasNet):
        raise ValueError(f"model is a {type(model).__name__}: a causal ConvTasNet is needed")
    if not model.causal:
        raise ValueError(
            "only causal models can stream, and this one has causal=False: its outputs depend on "
            "later input; train one with causal=True, norm='cumulative', or use separate()"
        )
    dtype = model.separator.bottleneck.weight.dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the model has dtype {dtype}: streams run in float32 or float64")
    for name, module in model.separator.named_modules():
        if isinstance(module, Norm) and type(module) not in NORM_KINDS:
            raise ValueError(
                f"{name} is a {type(module).__name__}, whose statistics contain later frames: "
                f"streams know the norms {', '.join(NORM_KINDS.values())}"
            )
        if isinstance(module, BatchNorm) and module.training:
            raise ValueError(f"{name} is a batch norm in training: call model.eval() first")


def _fold_block(
    block: Block, offset: Tensor, numbers: Iterator[int], cast: Cast
) -> tuple[FoldedBlock, Tensor]:
    """The block behind a residual path that lacks ``offset`` (B,), and the bias of its output."""
    weight_in, bias_in = _linear(block.conv_in)
    norm_in, gain_in, offset_in = _fold_norm(block.norm_in, numbers)
    gain_in, offset_in = _in_units_of_gain(gain_in, offset_in, torch.finfo(cast(gain_in).dtype).eps)
    taps, bias_mid = _depthwise(block.depthwise)
    norm_out, gain_out, offset_out = _fold_norm(block.norm_out, numbers)
    weight_out, bias_out = _linear(block.conv_out)
    folded = FoldedBlock(
        weight_in=cast(weight_in.T),
        bias_in=cast(bias_in + weight_in @ offset),
        slope_in=_slope(block.norm_in),
        norm_in=norm_in,
        offset=cast(offset_in),
        taps=tuple((cast(weight * gain_in), back) for weight, back in taps),
        bias_mid=cast(bias_mid),
        slope_out=_slope(block.norm_out),
        norm_out=norm_out,
        weight_out=cast((weight_out * gain_out).T),
        n_residual=block.split[0],
    )
    return folded, bias_out + weight_out @ offset_out


def _fold_norm(norm: Norm, numbers: Iterator[int]) -> tuple[FoldedNorm, Tensor, Tensor]:
    """The norm without gain and offset, and these two, (C,), float64."""
    gain, offset = _exact(norm.weight), _exact(norm.bias)
    if isinstance(norm, BatchNorm):
        gain = gain * (_exact(norm.running_var) + BATCH_EPS).rsqrt()
        offset = offset - _exact(norm.running_mean) * gain
    kind = NORM_KINDS[type(norm)]
    number = next(numbers) if kind.startswith("cumulative") else -1
    return FoldedNorm(kind, len(gain), EPS, number), gain, offset


def _in_units_of_gain(gain: Tensor, offset: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Gain g and what o is to be for (v + o) g to be v · gain + offset, with ``eps`` of rounding.

    A gain that is nothing beside the offset, such as 0, becomes the least that is something.
    """
    least = offset.abs() * (eps / 64)
    gain = torch.where(gain.abs() < least, least.copysign(gain), gain)
    return gain, torch.where(gain == 0, 0.0, offset / gain)


def _slope(norm: Norm) -> float:
    """Of the leaky ReLU in front of the norm."""
    assert norm.slope is not None
    return norm.slope.item()


def _linear(conv: nn.Conv1d) -> tuple[Tensor, Tensor]:
    """Weight (out, in) and bias (out,) of a 1×1 convolution, float64."""
    assert conv.bias is not None
    return _exact(conv.weight)[..., 0], _exact(conv.bias)


def _depthwise(conv: DepthwiseConv) -> tuple[list[tuple[Tensor, int]], Tensor]:
    """Weights (H,) of each tap and how many frames it looks back; the bias (H,). float64."""
    assert conv.bias is not None
    weights = _exact(conv.weight)[:, 0].T
    last = len(weights) - 1
    taps = [(weight, (last - i) * conv.dilation[0]) for i, weight in enumerate(weights)]
    # Imported models may have taps of zeros, which stand for a delay.
    return [tap for tap in taps if tap[0].any()] or taps[-1:], _exact(conv.bias)


def _exact(value: Tensor) -> Tensor:
    return value.detach().cpu().double()


def _cast(value: Tensor, like: Tensor) -> Tensor:
    value = value.detach().to(like.device, like.dtype)
    rows = new_rows(like, *value.shape)
    return rows.copy_(value)
