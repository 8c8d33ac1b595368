"""One run of a folded model over some frames, from the state that earlier frames left.

Products have an ``out=``, so that autocast, which leaves such calls alone, changes nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.streaming.folded import FoldedBlock, FoldedModel, FoldedNorm
from convtasnet.streaming.history import History
from convtasnet.streaming.rows import new_rows
from convtasnet.streaming.state import StreamState
from convtasnet.streaming.statistics import Statistics, Window


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
    features = new_rows(frames, n_frames, n_filters)
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
    paths = new_rows(features, n_frames, bn_chan + model.skip_chan).zero_()
    residual = paths[:, :bn_chan]
    values = _normalized(features.clone(), model.norm, state.statistics, window)
    torch.mm(values, model.bottleneck, out=residual)
    # Room for the maps of a block, before and behind its convolution.
    hidden = new_rows(features, 2, n_frames, len(model.blocks[0].bias_in)).unbind()
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
    hidden: Sequence[Tensor],
) -> Tensor:
    """What a block's last linear map takes, (F, H), from the residual path (F, B)."""
    n_frames = len(residual)
    values, mixed = hidden
    torch.addmm(block.bias_in, residual, block.weight_in, out=values)
    F.leaky_relu_(values, block.slope_in)
    values = _normalized(values, block.norm_in, statistics, window)
    new = torch.add(values, block.offset, out=history.grow(n_frames))
    bias = block.bias_mid
    for weight, back in block.taps:
        seen = history.back(back, n_frames) if back else new
        torch.addcmul(bias, seen, weight, out=mixed)
        bias = mixed
    F.leaky_relu_(mixed, block.slope_out)
    return _normalized(mixed, block.norm_out, statistics, window)


def _normalized(values: Tensor, norm: FoldedNorm, statistics: Statistics, window: Window) -> Tensor:
    """Values (F, C) without mean and deviation, in their place if the statistics are over time."""
    if norm.kind == "batch":
        return values
    if norm.kind == "channelwise":
        return torch.native_layer_norm(values, values.shape[1:], None, None, norm.eps)[0]
    statistics.advance(norm, *window.moments(values), window)
    return values.sub_(window.mean).mul_(window.rstd)


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
