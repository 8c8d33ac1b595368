"""Filterbanks in the model: they train, and equal the library's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from asteroid_filterbanks import multiphase_gammatone_fb as library
from small_model import small

from convtasnet.filterbanks import GammatoneFilterbank


@pytest.mark.parametrize("filterbank", ["free", "stft", "analytic_free", "param_sinc", "mpgtf"])
@pytest.mark.parametrize("kernel_size", [16, 21])
def test_every_filterbank_trains(filterbank: str, kernel_size: int) -> None:
    model = small(filterbank=filterbank, n_filters=64, kernel_size=kernel_size).train()
    y = model(torch.randn(2, 1003))
    y.square().mean().backward()
    assert y.shape == (2, 2, 1003)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.encoder.filters().shape[-1] == kernel_size


@pytest.mark.parametrize("filterbank", ["stft", "analytic_free", "param_sinc", "mpgtf"])
def test_odd_filter_counts_are_refused(filterbank: str) -> None:
    with pytest.raises(ValueError, match="even n_filters, got 65"):
        small(filterbank=filterbank, n_filters=65)


def test_gammatone_filters_equal_the_librarys() -> None:
    """The library's own function, with its NumPy 1 names, is the reference."""
    assert not hasattr(library.np, "math")
    ours = GammatoneFilterbank(128, 16, sample_rate=8000, stride=8).filters()
    assert not hasattr(library.np, "math"), "the lent names are taken back"
    np.float, np.math = float, math  # type: ignore[attr-defined]
    try:
        expected = library.MultiphaseGammatoneFB(128, 16, sample_rate=8000, stride=8).filters()
    finally:
        del np.float, np.math
    torch.testing.assert_close(ours, expected)
