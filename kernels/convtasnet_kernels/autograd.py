"""What the norms' operators share: which tensors are saved, and how gradients are handed back."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def connect(forward: Any, backward: Any) -> None:
    """Registers the operator ``backward`` as the gradient of ``forward``, and its own fake.

    Args:
        forward: ``(x, weight, bias, prelu, *others, eps, out_dtype, wish) -> (y, stats)``, where
            others are tensors without a gradient, or None.
        backward: ``(dy, x, weight, prelu, stats, *others, needs_params, needs_prelu, wish) ->
            (dx, dparams (2, C), dprelu (1,))``; what is not needed is empty.
    """

    def fake(dy: Tensor, x: Tensor, weight: Any, prelu: Any, stats: Tensor, *rest: Any) -> Any:
        needs_params, needs_prelu, _ = rest[-3:]
        dparams = stats.new_empty((2, x.shape[1]) if needs_params else (0,))
        return x.new_empty(x.shape), dparams, stats.new_empty((1 if needs_prelu else 0,))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weight, bias, prelu, *others, _, _, ctx.wish = inputs
        ctx.dtypes = tuple(None if p is None else p.dtype for p in (weight, bias, prelu))
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, prelu, output[1], *others)

    def gradients(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        rest = (None,) * (len(ctx.needs_input_grad) - 4)
        if dy is None:
            return (None,) * 4 + rest
        x, weight, prelu, stats, *others = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, needs_prelu = ctx.needs_input_grad[:4]
        needs_params = needs_weight or needs_bias
        dx, dparams, dprelu = backward(
            dy, x, weight, prelu, stats, *others, needs_params, needs_prelu, ctx.wish
        )
        weight_dtype, bias_dtype, prelu_dtype = ctx.dtypes
        return (
            dx if needs_x else None,
            dparams[0].to(weight_dtype) if needs_weight else None,
            dparams[1].to(bias_dtype) if needs_bias else None,
            dprelu.to(prelu_dtype) if needs_prelu else None,
            *rest,
        )

    backward.register_fake(fake)
    forward.register_autograd(gradients, setup_context=setup_context)
