"""Laws of the masked decoder, on each path: PyTorch, Triton's interpreter, Triton on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from norm_cases import INTERPRET, ROUNDING, relative_error
from torch import Tensor

from convtasnet_kernels import decode_masked

NAMES = ("scores", "features", "filters", "bias")
ITEMS = 1 if INTERPRET else 2  # the interpreter is slow
TF32 = 1e-3  # relative error of products of numbers of 11 bits


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import masked_decode

    tile = masked_decode.EXACT_TILE._replace(filters=16, frames=32)
    monkeypatch.setattr(masked_decode, "EXACT_TILE", tile)


@dataclass
class Case:
    """Arguments of the operator, and the gradient of its samples."""

    scores: Tensor  # (B, S·N, F)
    features: Tensor  # (B, N, F)
    filters: Tensor  # (N, L)
    bias: Tensor | None  # (S·N,)
    dy: Tensor  # (B·S, L, F)

    def tensors(self) -> list[Tensor | None]:
        return [self.scores, self.features, self.filters, self.bias, self.dy]

    def run(self, function=decode_masked) -> dict[str, Tensor]:
        """The samples under "y" and the gradient of each argument under its name."""
        given = dict(zip(NAMES, self.tensors()[:4], strict=True))
        leaves = {k: v.detach().requires_grad_() for k, v in given.items() if v is not None}
        y = function(**leaves)
        gradients = torch.autograd.grad(y, list(leaves.values()), self.dy)
        return {"y": y.detach(), **dict(zip(leaves, gradients, strict=True))}

    def double(self) -> Case:
        return Case(*(None if value is None else value.double() for value in self.tensors()))


def make_case(
    device: str = "cpu",
    sources: int = 2,
    filters: int = 20,
    taps: int = 10,
    frames: int = 40,
    items: int = ITEMS,
    dtype: torch.dtype = torch.float32,
    scores: torch.dtype | None = None,
    bias: bool = True,
) -> Case:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    parameter = torch.float64 if dtype == torch.float64 else torch.float32
    return Case(
        normal(items, sources * filters, frames).to(device, scores or dtype),
        normal(items, filters, frames).to(device, dtype),
        normal(filters, taps).to(device, parameter),
        normal(sources * filters).to(device, parameter) if bias else None,
        normal(items * sources, taps, frames).to(device, dtype),
    )


def reference(
    scores: Tensor, features: Tensor, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Step by step, as the model's plain path."""
    if bias is not None:
        scores = scores + bias[:, None]
    masks = scores.unflatten(1, (-1, features.shape[1])).relu()
    masked = features.unsqueeze(1) * masks
    return torch.einsum("bsnf,nl->bslf", masked, filters).flatten(0, 1)


def check(case: Case, rounding: float = 0.0) -> None:
    """rounding: of the maps, which the product and the features' gradient keep to."""
    result, expected = case.run(), case.double().run(reference)
    for name, value in result.items():
        stored = value.dtype if name in ("y", *NAMES[:2]) else torch.float32
        limit = max(2e-6, 2 * ROUNDING.get(stored, 0.0), rounding)
        error = relative_error(value, expected[name])
        assert error <= limit, f"{name}: relative error {error:.2e} > {limit:.0e}"


@pytest.fixture(autouse=True)
def _float32_products() -> Iterator[None]:
    """Exact ones, unless a test asks for others."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("frames", "bias"), [(40, True), (37, False)])
@pytest.mark.parametrize(
    ("sources", "filters", "taps"), [(2, 20, 16), (1, 16, 10), (3, 7, 33), (2, 32, 1)]
)
def test_equals_the_float64_reference(
    device: str, sources: int, filters: int, taps: int, frames: int, bias: bool
) -> None:
    check(make_case(device, sources, filters, taps, frames, bias=bias))


@pytest.mark.parametrize("scores", [torch.float16, torch.bfloat16])
def test_scores_of_half_precision(device: str, scores: torch.dtype) -> None:
    """As under autocast: the features keep float32, and so do the samples."""
    case = make_case(device, scores=scores)
    result = case.run()
    assert result["scores"].dtype == scores
    assert all(value.dtype == torch.float32 for name, value in result.items() if name != "scores")
    check(case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(device: str, dtype: torch.dtype) -> None:
    if INTERPRET and dtype == torch.bfloat16:
        pytest.skip("the interpreter cannot multiply tiles of bfloat16")
    case = make_case(device, dtype=dtype)
    assert case.run()["y"].dtype == dtype
    check(case, rounding=2 * ROUNDING[dtype])


def test_products_in_tf32(device: str) -> None:
    torch.set_float32_matmul_precision("high")
    check(make_case(device), TF32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("allowed", ["high", "highest"])
def test_papers_size(allowed: str, dtype: torch.dtype) -> None:
    torch.set_float32_matmul_precision(allowed)
    check(make_case("cuda", 2, 512, 16, 4000, 8, scores=dtype), TF32 if allowed == "high" else 0.0)


@pytest.mark.parametrize("allowed", ["high", "highest"])
def test_what_is_not_finite_stays_where_it_is(device: str, allowed: str) -> None:
    """A NaN score is no zero; other frames and sources do not feel it."""
    torch.set_float32_matmul_precision(allowed)
    case = make_case(device, bias=False)
    clean = case.run()["y"]
    case.scores[0, 3, 20] = float("nan")
    y = case.run()["y"]
    assert y[0, :, 20].isnan().all()
    y[0, :, 20] = clean[0, :, 20]
    assert torch.equal(y, clean)


def test_strides_do_not_matter(device: str) -> None:
    case = make_case(device)
    expected = case.run()
    turned = [t if t.dim() == 1 else t.mT.contiguous().mT for t in case.tensors()]
    result = Case(*turned).run()
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_bits_repeat(device: str) -> None:
    case = make_case(device)
    first, second = case.run(), case.run()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("wanted", NAMES)
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = make_case(device)
    expected = case.run()[wanted]
    arguments = dict(zip(NAMES, case.tensors()[:4], strict=True))
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    decode_masked(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)


@pytest.mark.parametrize("changes", [{"items": 0}, {"frames": 0}])
def test_empty_input(device: str, changes: dict[str, int]) -> None:
    case = make_case(device, **changes)
    result = case.run()
    assert result["y"].shape == case.dy.shape
    assert not result["filters"].any()
    assert not result["bias"].any()


def test_long_filters_of_many_sources(device: str) -> None:
    """They have no kernel."""
    check(make_case(device, sources=3, taps=65, filters=4, frames=9))


@pytest.mark.parametrize("bias", [True, False])
def test_opcheck(bias: bool) -> None:
    case = make_case(filters=3, frames=5, bias=bias, dtype=torch.float32)
    leaves = [t if t is None else t.clone().requires_grad_() for t in case.tensors()[:4]]
    ops = torch.ops.convtasnet
    torch.library.opcheck(ops.masked_decode.default, (*leaves, "auto"))
    arguments = (case.dy, *case.tensors()[:4], True, bias, "auto")
    torch.library.opcheck(ops.masked_decode_backward.default, arguments)


def test_gradcheck() -> None:
    case = make_case(filters=3, taps=2, frames=4, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in case.tensors()[:4]]
    assert torch.autograd.gradcheck(decode_masked, leaves)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": torch.zeros(2, 7, 5)}, r"scores must be \(2, S·4, 5\), got \(2, 7, 5\)"),
        ({"scores": torch.zeros(2, 0, 5)}, r"scores must be .* got \(2, 0, 5\)"),
        ({"scores": torch.zeros(2, 8, 5).int()}, "scores must be float16, .* got torch.int32"),
        ({"features": torch.zeros(4, 5)}, r"features must be \(B, N, F\) .* got \(4, 5\)"),
        ({"filters": torch.zeros(3, 2)}, r"filters must be \(4, L\) .* got \(3, 2\)"),
        ({"filters": torch.zeros(4, 2, device="meta")}, "filters is on meta, features on cpu"),
        ({"bias": torch.zeros(4)}, r"bias must be \(8,\), got \(4,\)"),
        ({"bias": 0.0}, "bias must be .* got float"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Tensor], message: str) -> None:
    arguments = {
        "scores": torch.zeros(2, 8, 5),
        "features": torch.zeros(2, 4, 5),
        "filters": torch.zeros(4, 2),
    }
    with pytest.raises(ValueError, match=message):
        decode_masked(**{**arguments, **changes})


@pytest.mark.skipif(INTERPRET, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(
    ("capability", "precision"), [(80, "high"), (90, "high"), (100, "high"), (90, "highest")]
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_kernel_compiles(direction: str, capability: int, precision: str) -> None:
    """Within its registers, and with whole vectors."""
    pytest.importorskip("triton")
    from compiling import is_vector, local_bytes, recorded

    from convtasnet_kernels import masked_decode as kernels

    empty = partial(torch.empty, device="meta")
    scores, features = empty(8, 1024, 4000, dtype=torch.bfloat16), empty(8, 512, 4000)
    bias, filters = empty(1024), empty(512, 16)
    torch.set_float32_matmul_precision(precision)
    with recorded() as launches:
        if direction == "forward":
            kernels.forward(scores, bias, features, filters)
        else:
            kernels.backward(empty(16, 16, 4000), scores, bias, features, filters, True, True)
    built = launches[0].build(capability)
    assert local_bytes(built) == 0
    assert any(map(is_vector, built.asm["ptx"].splitlines()))
