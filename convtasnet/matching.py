"""Which estimate belongs to which reference."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

MAX_EXHAUSTIVE_SOURCES = 5  # 120 permutations; the Hungarian method beyond, on the CPU


def best_permutation(scores: Tensor) -> Tensor:
    """Matching of estimates with references that has the highest mean score, item by item.

    Every permutation is tried on the device for up to 5 sources, without waiting for the host;
    beyond, the Hungarian method (Kuhn 1955) runs on the CPU. Both are exact. NaN counts as 0:
    the column of a silent reference then leaves the choice to the others.

    Args:
        scores: (B, n_src, n_src), estimate by reference, higher is better.

    Returns:
        (B, n_src) int64, ``perm[b, j]`` = estimate matched with reference ``j``.

    Example:
        >>> best_permutation(torch.tensor([[[0.0, 9.0], [8.0, 1.0]]]))
        tensor([[1, 0]])
    """
    scores = scores.nan_to_num(nan=0.0)
    n_src = scores.shape[-1]
    if n_src > MAX_EXHAUSTIVE_SOURCES:
        rows = scores.transpose(1, 2).double().cpu().numpy()
        best = [linear_sum_assignment(item, maximize=True)[1].tolist() for item in rows]
        return torch.tensor(best, dtype=torch.int64, device=scores.device).view(-1, n_src)
    perms = _permutations(n_src, scores.device)
    references = torch.arange(n_src, device=scores.device)
    totals = scores[:, perms, references].sum(-1)  # (B, n_src!)
    return perms[totals.argmax(-1)]


@cache
def _permutations(n_src: int, device: torch.device) -> Tensor:
    """(n_src!, n_src), copied to the device once: each copy would wait for what it has to do."""
    with torch.inference_mode(False):  # validation may be the first to ask, training needs them
        return torch.tensor(list(permutations(range(n_src))), device=device)
