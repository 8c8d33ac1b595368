"""Laws of frames that overlap, on each path: PyTorch, Triton's interpreter, Triton on a GPU."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from norm_cases import INTERPRET, ROUNDING
from torch import Tensor

from convtasnet_kernels import overlap_add

ITEMS, SOURCES, FRAMES = 2, 2, 21


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import overlap

    monkeypatch.setattr(overlap, "TILE", 64)


class Setting(NamedTuple):
    """Arguments of the function, and L."""

    taps: int = 16
    stride: int = 8
    length: int = 160
    margin: int = 0
    n_frames: int | None = None
    frames: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None

    def run(self, samples: Tensor) -> Tensor:
        frames, lengths = (
            None if given is None else torch.tensor(given, device=samples.device)
            for given in (self.frames, self.lengths)
        )
        places = (self.stride, self.length, self.margin, self.n_frames)
        return overlap_add(samples, *places, frames, lengths)


SETTINGS = [
    Setting(),
    Setting(n_frames=19, frames=(19, 7), lengths=(160, 61)),
    Setting(margin=8, lengths=(150, 1)),
    Setting(taps=5, stride=2, length=50, n_frames=20, frames=(1, 20)),  # no frames at the end
    Setting(taps=4, stride=4, length=70),
    Setting(taps=7, stride=1, length=20),
]


def one_by_one(samples: Tensor, setting: Setting) -> Tensor:
    """Frame by frame, in float64."""
    found = []
    for row, item in enumerate(samples.double()):
        b = row // SOURCES
        frames = setting.frames[b] if setting.frames else setting.n_frames or FRAMES
        length = setting.lengths[b] if setting.lengths else setting.length
        whole = item.new_zeros(setting.margin + setting.length + FRAMES * setting.stride + 16)
        for f in range(frames):
            start = f * setting.stride
            whole = whole.index_add(0, start + torch.arange(setting.taps), item[:, f].cpu())
        y = whole[setting.margin :][: setting.length]
        found.append(torch.where(torch.arange(setting.length) < length, y, 0.0))
    return torch.stack(found)


def draw(setting: Setting, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    shape = (ITEMS * SOURCES, setting.taps, FRAMES)
    return torch.randn(shape, dtype=torch.float64).to(device, dtype)


@pytest.mark.parametrize("setting", SETTINGS)
def test_equals_the_sum_frame_by_frame(device: str, setting: Setting) -> None:
    samples = draw(setting, device).requires_grad_()
    exact = samples.detach().cpu().double().requires_grad_()
    y, expected = setting.run(samples), one_by_one(exact, setting)
    dy = torch.randn(y.shape)
    (gradient,) = torch.autograd.grad(y, samples, dy.to(device))
    (expected_gradient,) = torch.autograd.grad(expected, exact, dy.double())
    torch.testing.assert_close(y.detach().cpu().double(), expected.detach(), rtol=0, atol=2e-6)
    assert torch.equal(gradient.cpu().double(), expected_gradient)  # they are moved, not added


def test_half_precision(device: str) -> None:
    samples = draw(SETTINGS[1], device, torch.float16)
    y = SETTINGS[1].run(samples)
    assert y.dtype == torch.float16
    expected = one_by_one(samples.cpu(), SETTINGS[1])
    torch.testing.assert_close(y.cpu().double(), expected, rtol=ROUNDING[torch.float16], atol=0)


def test_what_is_not_valid_is_never_read(device: str) -> None:
    setting = SETTINGS[1]
    samples = draw(setting, device)
    expected = setting.run(samples)
    samples[2:, :, 7:] = torch.nan
    samples[:, :, 19:] = torch.nan
    assert torch.equal(setting.run(samples), expected)


def test_strides_do_not_matter(device: str) -> None:
    samples = draw(SETTINGS[0], device)
    dy = torch.randn(len(samples), 1, device=device).expand(-1, SETTINGS[0].length)
    found = []
    for given in (samples, samples.mT.contiguous().mT):
        y = SETTINGS[0].run(given.requires_grad_())
        found.append((y.detach(), *torch.autograd.grad(y, given, dy)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": torch.zeros(3, 4)}, r"samples must be .*B·S, L, F.* got \(3, 4\)"),
        ({"samples": [1.0]}, "samples must be a tensor, got list"),
        ({"samples": torch.zeros(4, 4, 3).int()}, "samples must be .* of torch.int32"),
        ({"stride": 5}, "stride must be between 1 and L = 4, got 5"),
        ({"length": -1}, "length and margin must be at least 0, got -1 and 0"),
        ({"margin": -2}, "length and margin must be at least 0, got 8 and -2"),
        ({"n_frames": 0}, "n_frames must be between 1 and F = 3, got 0"),
        ({"n_frames": 4}, "n_frames must be between 1 and F = 3, got 4"),
        ({"frames": torch.tensor([1, 2, 3])}, r"frames must be .*a divisor of 4, got \(3,\)"),
        ({"lengths": torch.tensor(3)}, r"lengths must be .*a divisor of 4, got \(\)"),
        ({"lengths": [8, 8]}, "lengths must be a tensor, got list"),
        ({"frames": torch.ones(2, device="meta")}, "frames is on meta, samples on cpu"),
    ],
)
def test_wrong_arguments_are_named(changes: dict, message: str) -> None:
    given = {"samples": torch.zeros(4, 4, 3), "stride": 2, "length": 8}
    with pytest.raises(ValueError, match=message):
        overlap_add(**{**given, **changes})


def test_opcheck(device: str) -> None:
    if device == "cpu" and not INTERPRET:
        pytest.skip("the operator is Triton's")
    samples = draw(SETTINGS[1], device).requires_grad_()
    frames, lengths = (torch.tensor(n, device=device) for n in ((19, 7), (160, 61)))
    ops = torch.ops.convtasnet
    torch.library.opcheck(ops.overlap_add.default, (samples, 8, 160, 0, 19, frames, lengths))
    dy = torch.randn(ITEMS * SOURCES, 160, device=device)
    arguments = (dy, 16, FRAMES, 8, 0, 19, frames, lengths)
    torch.library.opcheck(ops.overlap_add_backward.default, arguments)


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_every_kernel_compiles(capability: int) -> None:
    pytest.importorskip("triton")
    from compiling import local_bytes, recorded

    from convtasnet_kernels import overlap

    lengths = torch.empty(8, dtype=torch.int64, device="meta")
    with recorded() as launches:
        y = overlap.forward(
            torch.empty(16, 16, 4000, device="meta"), 8, 32_000, 0, 3999, None, None
        )
        overlap.backward(y, 16, 4000, 8, 0, 3999, lengths, lengths)
    assert len(launches) == 2
    for launch in launches:
        assert local_bytes(launch.build(capability)) == 0, launch.name
