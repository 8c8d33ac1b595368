"""One run of a folded model over some frames, from the state that earlier frames left.

Products have an ``out=``, so that autocast, which leaves such calls alone, changes nothing here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.streaming.folded import FoldedBlock, FoldedModel, FoldedNorm
from convtasnet.streaming.history import History
from convtasnet.streaming.state import StreamState
from convtasnet.streaming.statistics import Statistics, Window

# Keeps a frame of equal values, such as silence, finite: 1 / sqrt of it, squared, fits float32.
TINY_VARIANCE = 1e-30


def run(model: FoldedModel, state: StreamState, frames: Tensor) -> Tensor:
    """Separate the next frames and move the state on.

    Args:
        model: the model.
        state: the state before the frames; is changed to that after them, but for ``pending``.
        frames: (F, L) samples, F > 0.

    Returns:
        (n_src, F · stride) samples, final from the first frame's start on.
    """
    n_frames, n_filters = len(frames), len(model.decoder)
    features = frames.new_empty(n_frames, n_filters)
    # Overlapping rows would take a slow path.
    torch.mm(frames.contiguous(), model.encoder, out=features)
    if model.encoder_relu:
        features.relu_()
    window = state.statistics.window(n_frames, like=frames)
    masked = _masks(model, state, window, features).mul_(features[:, None])
    parts = frames.new_empty(n_frames * model.n_src, frames.shape[1])
    torch.mm(masked.view(-1, n_filters), model.decoder, out=parts)
    return _overlap_add(model, state, parts.view(n_frames, model.n_src, -1).transpose(0, 1))


def _masks(model: FoldedModel, state: StreamState, window: Window, features: Tensor) -> Tensor:
    """Masks (F, n_src, N) of features (F, N)."""
    n_frames, bn_chan = len(features), model.bottleneck.shape[1]
    # Residual and skip path side by side, so that a block adds to both with one product.
    paths = features.new_zeros(n_frames, bn_chan + model.skip_chan)
    residual = paths[:, :bn_chan]
    values = _normalized(features, model.norm, state.statistics, window)
    torch.mm(values, model.bottleneck, out=residual)
    hidden = features.new_empty((2, n_frames, model.blocks[0].bias_in.shape[0]))
    for block, history in zip(model.blocks, state.histories, strict=True):
        values = _block(block, history, state.statistics, window, residual, hidden)
        columns = paths if block.n_residual else paths[:, bn_chan:]
        columns.addmm_(values, block.weight_out)
    last = paths[:, bn_chan:] if model.skip_chan else paths
    F.leaky_relu_(last.add_(model.mask_offset), model.mask_slope)
    scores = features.new_empty(n_frames, len(model.mask_bias))
    torch.addmm(model.mask_bias, last, model.mask_weight, out=scores)
    scores = scores.view(n_frames, model.n_src, -1)
    if model.mask_act.startswith("softmax"):
        return scores.softmax(1 if model.mask_act == "softmax" else 2)
    return scores.relu_() if model.mask_act == "relu" else scores.sigmoid_()


def _block(
    block: FoldedBlock,
    history: History,
    statistics: Statistics,
    window: Window,
    residual: Tensor,
    hidden: Tensor,
) -> Tensor:
    """What a block's last linear map takes, (F, H), from the residual path (F, B).

    ``hidden`` (2, F, H) is room for intermediate maps.
    """
    n_frames = len(residual)
    values, mixed = hidden
    torch.addmm(block.bias_in, residual, block.weight_in, out=values)
    F.leaky_relu_(values, block.slope_in)
    values = _normalized(values, block.norm_in, statistics, window)
    torch.add(values, block.offset, out=history.grow(n_frames))
    bias = block.bias_mid
    for weight, back in block.taps:
        torch.addcmul(bias, history.back(back, n_frames), weight, out=mixed)
        bias = mixed
    F.leaky_relu_(mixed, block.slope_out)
    return _normalized(mixed, block.norm_out, statistics, window)


def _normalized(values: Tensor, norm: FoldedNorm, statistics: Statistics, window: Window) -> Tensor:
    """Values (F, C) without mean and deviation."""
    if norm.kind == "batch":
        return values
    own_eps = norm.eps if norm.kind == "channelwise" else TINY_VARIANCE
    values, mean, rstd = torch.native_layer_norm(values, values.shape[1:], None, None, own_eps)
    if norm.kind == "channelwise":
        return values
    statistics.advance(norm, mean, rstd, window)
    return values.mul_(window.scale).add_(window.shift)


def _overlap_add(model: FoldedModel, state: StreamState, parts: Tensor) -> Tensor:
    """Samples (n_src, F · stride) of frames (n_src, F, L); the rest goes to the state's tail."""
    n_frames, length, stride = parts.shape[1], parts.shape[2], model.framing.stride
    done = n_frames * stride
    samples = parts.new_zeros(model.n_src, done + length - stride)
    samples[:, : length - stride] = state.tail
    for start in range(0, length, stride):
        part = parts[..., start : start + stride]  # the last one may be shorter
        there = samples[:, start:].unfold(1, part.shape[-1], stride)
        there[:, :n_frames].add_(part)
    state.tail = samples[:, done:].clone()
    return samples[:, :done]
