"""Separators of other toolkits behind this project's interface, for measurements side by side."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class AsteroidConvTasNet(nn.Module):
    """asteroid's ``ConvTasNet`` as ``model(mixture, lengths) -> (B, n_src, T)``.

    Args:
        **hparams: the arguments of ``convtasnet.ConvTasNet``; the cumulative norm is asteroid's
            ``cgLN``.
    """

    NORMS = {"cumulative": "cgLN", "global": "gLN", "channelwise": "cLN"}  # noqa: RUF012

    def __init__(self, **hparams: Any) -> None:
        super().__init__()
        from asteroid.models import ConvTasNet  # installed for measurements only

        self.hparams = dict(hparams)
        self.sample_rate, self.n_src = hparams["sample_rate"], hparams["n_src"]
        arguments = {key: value for key, value in hparams.items() if value is not None}
        arguments["norm_type"] = self.NORMS[arguments.pop("norm")]
        arguments["fb_name"] = arguments.pop("filterbank")
        arguments["encoder_activation"] = arguments.pop("encoder_act", None)
        self.network = ConvTasNet(**arguments)

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Separate (B, T); ``lengths`` are not used, as in asteroid."""
        return self.network(mixture)


class TorchaudioConvTasNet(nn.Module):
    """torchaudio's ``ConvTasNet`` as ``model(mixture, lengths) -> (B, n_src, T)``.

    Args:
        **hparams: the arguments of ``convtasnet.ConvTasNet``.

    Raises:
        ValueError: a network that torchaudio does not have, such as any causal one.
    """

    def __init__(self, **hparams: Any) -> None:
        super().__init__()
        from torchaudio.models import ConvTasNet

        fixed = {
            "norm": "global",
            "causal": False,
            "encoder_act": None,
            "filterbank": "free",
            "stride": hparams["kernel_size"] // 2,
            "skip_chan": hparams["bn_chan"],
        }
        for name, value in fixed.items():
            if hparams[name] != value:
                raise ValueError(f"torchaudio has no {name}={hparams[name]!r}, only {value!r}")
        self.hparams = dict(hparams)
        self.sample_rate, self.n_src = hparams["sample_rate"], hparams["n_src"]
        self.network = ConvTasNet(
            num_sources=hparams["n_src"],
            enc_kernel_size=hparams["kernel_size"],
            enc_num_feats=hparams["n_filters"],
            msk_kernel_size=hparams["conv_kernel_size"],
            msk_num_feats=hparams["bn_chan"],
            msk_num_hidden_feats=hparams["hid_chan"],
            msk_num_layers=hparams["n_blocks"],
            msk_num_stacks=hparams["n_repeats"],
            msk_activate=hparams["mask_act"],
        )

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Separate (B, T); ``lengths`` are not used, as in torchaudio."""
        return self.network(mixture[:, None])
