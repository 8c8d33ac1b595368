"""What the cumulative norm's PyTorch path adds to the laws of test_cumulative.py."""

from __future__ import annotations

import pytest
import torch
from norm_cases import assert_close, make_case

from convtasnet_kernels import cumulative_layer_norm, cumulative_torch, reference, use_backend


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("items", [1, 2])
def test_a_few_items_at_a_time(
    items: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case((5, 4, 33), dtype=dtype)
    monkeypatch.setattr(cumulative_torch, "ELEMENTS_A_THREAD", items * 4 * 33 // 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    slices = list(cumulative_torch._few_items(case.x))
    assert len(slices) == -(-5 // items)
    with use_backend("torch"):
        result = case.run(cumulative_layer_norm)
    assert_close(result, case.double().run(reference.cumulative), case)


def test_zero_takes_the_slope() -> None:
    # As torch.nn.PReLU: the derivative at 0 is the slope.
    case = make_case((1, 3, 20), slope=0.25)
    case.x[0, 1, ::2] = 0.0
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)
