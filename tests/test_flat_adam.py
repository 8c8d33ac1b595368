"""Adam's update in one launch: the same bits, the same state, and a way back."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from convtasnet import flat_adam
from convtasnet.flat_adam import join_updates
from convtasnet.side_by_side import as_one, laid_out

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_adam, "gains", lambda parameter: True)


@pytest.fixture
def updated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors each update was about."""
    found: list[int] = []
    for name in ("_fused_adam_", "_fused_adamw_"):
        update = getattr(torch, name)

        def counted(params: list[Tensor], *args, update=update, **kwargs) -> None:
            found.append(len(params))
            update(params, *args, **kwargs)

        monkeypatch.setattr(torch, name, counted)
    return found


def network(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 300), nn.PReLU(), nn.Linear(300, 3)).to(device)


class Pair:
    """A network under PyTorch's Adam, and its twin whose updates are joined."""

    def __init__(self, device: str, kind: type[Adam] = Adam) -> None:
        plain = network(device)
        self.plain, self.joined = list(plain.parameters()), list(network(device).parameters())
        self.theirs, self.ours = (self.optimizer(p, kind) for p in (self.plain, self.joined))
        join_updates(self.ours)
        self.gradients = laid_out(self.joined)

    def optimizer(self, parameters: list[nn.Parameter], kind: type[Adam] = Adam) -> Adam:
        return kind(parameters, lr=0.1, weight_decay=0.1, fused=True)

    def step(self, apart: bool = False, missing: int | None = None) -> None:
        for i, (p, q, own) in enumerate(zip(self.plain, self.joined, self.gradients, strict=True)):
            p.grad = None if i == missing else torch.randn_like(p)
            if p.grad is not None:
                own.copy_(p.grad)
            q.grad = None if i == missing else own.clone() if apart else own.detach()
        self.theirs.step()
        self.ours.step()

    def check(self) -> None:
        for p, q in zip(self.plain, self.joined, strict=True):
            assert_same(p, q)
        assert_same_state(self.ours, self.theirs)


def assert_same(value: Tensor, expected: Tensor) -> None:
    """To the bit on a GPU; a CPU's vectors round otherwise than what is left behind them."""
    tolerance = 0.0 if value.is_cuda else 1e-6
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)


def assert_same_state(one: Optimizer, other: Optimizer) -> None:
    one_state, other_state = one.state_dict(), other.state_dict()
    assert one_state["param_groups"] == other_state["param_groups"]
    assert one_state["state"].keys() == other_state["state"].keys()
    for key, values in other_state["state"].items():
        for name, value in values.items():
            assert_same(one_state["state"][key][name], value)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_the_same_in_one_launch(updated: list[int], kind: type[Adam], device: str) -> None:
    pair = Pair(device, kind)
    for _ in range(3):
        pair.step()
    assert updated == 3 * [5, 1]
    pair.check()


def test_gradients_that_lie_apart_are_no_matter(updated: list[int]) -> None:
    pair = Pair("cpu")
    for apart in (False, True, False, True):
        pair.step(apart)
    assert updated == [5, 1, 5, 5, 5, 1, 5, 5]
    pair.check()


def test_parameters_of_different_age(updated: list[int]) -> None:
    """One without a gradient for a step is corrected for its own number of steps ever after."""
    pair = Pair("cpu")
    for missing in (None, 2, None, None):
        pair.step(missing=missing)
    assert updated == [5, 1, 4, 4, 5, 5, 5, 5]
    pair.check()


@pytest.mark.parametrize("to_ours", [True, False])
def test_a_checkpoint_goes_on_in_either(updated: list[int], to_ours: bool) -> None:
    pair = Pair("cpu")
    pair.step()
    pair.step()
    file = io.BytesIO()
    torch.save((pair.theirs if to_ours else pair.ours).state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    if to_ours:
        pair.ours.load_state_dict(state)
    else:
        pair.theirs = pair.optimizer(pair.plain)
        pair.theirs.load_state_dict(state)
    pair.step()
    assert updated[-2:] == [5, 1]
    pair.check()


def test_a_copy_of_the_optimizer_is_pytorchs() -> None:
    pair = Pair("cpu")
    pair.step()
    twin = copy.deepcopy(pair.ours)
    for p, q in zip(twin.param_groups[0]["params"], pair.joined, strict=True):
        p.grad = q.grad.clone()
    twin.step()
    pair.ours.step()
    for p, q in zip(twin.param_groups[0]["params"], pair.joined, strict=True):
        assert_same(p, q)
    assert_same_state(twin, pair.ours)


@pytest.mark.parametrize("changes", [{"amsgrad": True}, {"fused": False}])
def test_others_stay_as_they_are(changes: dict[str, bool]) -> None:
    model = network("cpu")
    places = [p.data_ptr() for p in model.parameters()]
    join_updates(Adam(model.parameters(), **{"fused": True, **changes}))
    join_updates(torch.optim.SGD(model.parameters()))
    assert [p.data_ptr() for p in model.parameters()] == places


def test_what_cannot_lie_side_by_side() -> None:
    for others in (
        [torch.ones(3), torch.ones(3).half()],
        [torch.ones(3), torch.ones(2, 3).mT],
        [torch.ones(2, 3).mT],
    ):
        places = laid_out(others)
        assert as_one(places) is None
        assert [p.stride() for p in places] == [t.stride() for t in others]


def test_as_one_is_all_of_it() -> None:
    tensors = laid_out([torch.ones(3), torch.ones(2, 2), torch.ones(200)])
    memory = as_one(tensors)
    assert memory is not None
    memory += 1
    assert all((tensor == 1).all() for tensor in tensors)
    assert as_one(tensors[:2]) is None  # it would reach the third
    assert as_one(tensors[::-1]) is None
    assert as_one([tensors[0], tensors[1].flatten()[:3], tensors[2]]) is not None
