"""The network of the paper's figure 1 once more, frame by frame (L = 16, P = 3, with skips)."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet import ConvTasNet


def written_out(model: ConvTasNet, x: Tensor) -> Tensor:
    """Separate x (T,), T of whole frames, with the model's parameters: (n_src, T)."""
    p, h = dict(model.named_parameters()), model.hparams
    features = x.unfold(0, 16, 8) @ p["encoder.filterbank._filters"][:, 0].T  # (F, N)

    def norm(y: Tensor, name: str) -> Tensor:
        if f"{name}.slope" in p:
            y = torch.where(y > 0, y, p[f"{name}.slope"] * y)
        if h["norm"] == "global":
            y = (y - y.mean()) / (y.var(unbiased=False) + 1e-8).sqrt()
        else:
            y = torch.stack(
                [
                    (y[t] - y[: t + 1].mean()) / (y[: t + 1].var(unbiased=False) + 1e-8).sqrt()
                    for t in range(len(y))
                ]
            )
        return y * p[f"{name}.weight"] + p[f"{name}.bias"]

    def product(y: Tensor, name: str) -> Tensor:
        return y @ p[f"{name}.weight"][..., 0].T + p[f"{name}.bias"]

    y = product(norm(features, "separator.norm"), "separator.bottleneck")
    skips = torch.zeros(len(y), h["skip_chan"], dtype=y.dtype)
    for i in range(h["n_blocks"] * h["n_repeats"]):
        name, dilation = f"separator.blocks.{i}", 2 ** (i % h["n_blocks"])
        z = norm(product(y, f"{name}.conv_in"), f"{name}.norm_in")
        reach = 2 * dilation if h["causal"] else dilation
        taps = p[f"{name}.depthwise.weight"][:, 0]
        out = p[f"{name}.depthwise.bias"].expand_as(z).clone()
        for t in range(len(z)):
            for k in range(3):
                at = t - reach + k * dilation
                if 0 <= at < len(z):
                    out[t] += taps[:, k] * z[at]
        z = product(norm(out, f"{name}.norm_out"), f"{name}.conv_out")
        if z.shape[1] > h["skip_chan"]:
            y = y + z[:, : h["bn_chan"]]
        skips = skips + z[:, -h["skip_chan"] :]
    slope = p["separator.mask_prelu.weight"]
    masks = product(torch.where(skips > 0, skips, slope * skips), "separator.mask_conv").relu()
    sources = []
    for mask in masks.unflatten(1, (h["n_src"], -1)).unbind(1):
        frames = (mask * features) @ p["decoder.filterbank._filters"][:, 0]
        wav = torch.zeros(len(x), dtype=x.dtype)
        for t, frame in enumerate(frames):
            wav[8 * t : 8 * t + 16] += frame
        sources.append(wav)
    return torch.stack(sources)
