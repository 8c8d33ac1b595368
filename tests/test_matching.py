"""Matchings of estimates with references: the best, whatever the number of sources."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from convtasnet.matching import best_permutation


@pytest.mark.parametrize("n_src", [1, 2, 3, 5, 8])
def test_the_best_permutation_is_exact_for_each_item(n_src: int) -> None:
    scores = torch.randn(6, n_src, n_src, dtype=torch.float64)
    perm = best_permutation(scores)
    for item, chosen in zip(scores.numpy(), perm.numpy(), strict=True):
        est, ref = linear_sum_assignment(item, maximize=True)
        best = item[est, ref].sum()
        assert item[chosen, np.arange(n_src)].sum() == pytest.approx(best)
        assert sorted(chosen) == list(range(n_src))


def test_a_column_of_nan_leaves_the_choice_to_the_others() -> None:
    scores = torch.tensor([[[torch.nan, 1.0, 5.0], [torch.nan, 4.0, 6.0], [torch.nan, 0.0, 0.0]]])
    assert best_permutation(scores).tolist() == [[2, 1, 0]]
