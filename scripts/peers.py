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
