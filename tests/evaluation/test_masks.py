"""Ideal masks do what their definitions say."""

from __future__ import annotations

import pytest
import torch
from voices import RATE, items

from convtasnet.evaluation import BASELINES, Baseline
from convtasnet.evaluation.masks import ideal_binary, ideal_ratio, masked, wiener_like
from convtasnet.metrics import score

MAGNITUDES = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]])


def test_masks_equal_their_definitions() -> None:
    assert ideal_ratio(MAGNITUDES).tolist() == [[0.75, 0.0], [0.25, 0.0], [0.0, 1.0]]
    assert wiener_like(MAGNITUDES)[:, 0].tolist() == pytest.approx([0.9, 0.1, 0.0])
    assert ideal_binary(MAGNITUDES).tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    assert ideal_ratio(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("mask", ["irm", "ibm", "wfm"])
@pytest.mark.parametrize("length", [1, 100, 8001])
def test_masked_parts_sum_to_the_mixture_or_leave_noise_out(mask: str, length: int) -> None:
    sources = torch.randn(2, length)
    parts = masked(sources.sum(0), sources, RATE, mask)
    torch.testing.assert_close(parts.sum(0), sources.sum(0), atol=1e-4, rtol=1e-4)
    with_noise = masked(sources.sum(0) + torch.randn(length), sources, RATE, mask)
    if length > 1000:
        assert with_noise.sum(0).norm() < 0.95 * (sources.sum(0).norm() ** 2 + length) ** 0.5


def test_baselines_come_in_the_expected_order() -> None:
    (item,) = items(2)
    gains = {
        name: score(Baseline(name, RATE)([item])[0], item["sources"], item["mixture"], RATE)
        for name in BASELINES
    }
    improved = {name: scores.values["si_sdri"] for name, scores in gains.items()}
    assert improved["mixture"] == pytest.approx(0, abs=1e-9)
    assert improved["mixture"] < improved["irm"] < improved["wfm"] < improved["oracle"]
    assert 5 < improved["ibm"] < improved["wfm"]
    with pytest.raises(ValueError, match="baseline='best': choose from mixture"):
        Baseline("best", RATE)
