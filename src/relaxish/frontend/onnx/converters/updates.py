"""Steps of optimisers: operators of the domain ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .... import op
from ....relax.expr import Expr
from ....support.errors import OpAttributeInvalid
from ..context import Context, convert

_DOMAIN = "ai.onnx.preview.training"

#: New values of a parameter and its state, from the attributes, the rate, the number of steps done and the tensors of one
#: parameter: itself, its gradient and its state.
_Step = Callable[["_Arithmetic", dict[str, Any], Expr, Expr, Sequence[Expr]], Sequence[Expr]]


class _Arithmetic:
    """Arithmetic of tensors and numbers in one dtype."""

    def __init__(self, ctx: Context, kind: str) -> None:
        self.ctx, self.kind = ctx, kind

    def value(self, x: Expr | float) -> Expr:
        return x if isinstance(x, Expr) else self.ctx.const(x, self.kind)

    def add(self, a: Expr | float, b: Expr | float) -> Expr:
        return self.ctx.emit(op.add(self.value(a), self.value(b)))

    def sub(self, a: Expr | float, b: Expr | float) -> Expr:
        return self.ctx.emit(op.subtract(self.value(a), self.value(b)))

    def mul(self, a: Expr | float, b: Expr | float) -> Expr:
        return self.ctx.emit(op.multiply(self.value(a), self.value(b)))

    def div(self, a: Expr | float, b: Expr | float) -> Expr:
        return self.ctx.emit(op.divide(self.value(a), self.value(b)))

    def root(self, a: Expr) -> Expr:
        return self.ctx.emit(op.sqrt(a))

    def power(self, a: float, b: Expr) -> Expr:
        return self.ctx.emit(op.power(self.value(a), b))

    def begun(self, steps: Expr, then: Expr | float, otherwise: Expr | float) -> Expr:
        """``then`` from the second step on."""
        later = self.ctx.emit(op.greater(steps, self.value(0.0)))
        return self.ctx.emit(op.where(later, self.value(then), self.value(otherwise)))


def _by_parameter(ctx: Context, inputs: list[Any], attrs: dict[str, Any], held: int, step: _Step) -> list[Expr]:
    """The step for every parameter; inputs and outputs have all parameters, then all gradients, and so on."""
    rate, steps, *rest = (ctx.tensor(x) for x in inputs)
    if len(rest) % held:
        raise OpAttributeInvalid(f"{held} tensors for each parameter are needed, {len(rest)} are given")
    count = len(rest) // held
    columns = []
    for k in range(count):
        one = rest[k::count]
        work = _Arithmetic(ctx, ctx.dtype(one[0]))
        by, done = (x if ctx.dtype(x) == work.kind else ctx.emit(op.astype(x, work.kind)) for x in (rate, steps))
        columns.append(step(work, attrs, by, done, one))
    return [made for results in zip(*columns) for made in results]


def _regularised(work: _Arithmetic, attrs: dict[str, Any], x: Expr, gradient: Expr) -> Expr:
    return work.add(work.mul(x, float(attrs.get("norm_coefficient", 0.0))), gradient)


@convert("Adagrad", domain=_DOMAIN)
def _adagrad(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    def step(
        work: _Arithmetic, attrs: dict[str, Any], rate: Expr, steps: Expr, given: Sequence[Expr]
    ) -> Sequence[Expr]:
        x, gradient, squares = given
        by = work.div(rate, work.add(work.mul(steps, float(attrs.get("decay_factor", 0.0))), 1.0))
        gradient = _regularised(work, attrs, x, gradient)
        squares = work.add(squares, work.mul(gradient, gradient))
        scale = work.add(work.root(squares), float(attrs.get("epsilon", 1e-6)))
        return [work.sub(x, work.div(work.mul(by, gradient), scale)), squares]

    return _by_parameter(ctx, inputs, attrs, 3, step)


@convert("Adam", domain=_DOMAIN)
def _adam(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    def step(
        work: _Arithmetic, attrs: dict[str, Any], rate: Expr, steps: Expr, given: Sequence[Expr]
    ) -> Sequence[Expr]:
        x, gradient, mean, squares = given
        alpha, beta = float(attrs.get("alpha", 0.9)), float(attrs.get("beta", 0.999))
        gradient = _regularised(work, attrs, x, gradient)
        mean = work.add(work.mul(mean, alpha), work.mul(gradient, 1 - alpha))
        squares = work.add(work.mul(squares, beta), work.mul(work.mul(gradient, gradient), 1 - beta))
        scale = work.add(work.root(squares), float(attrs.get("epsilon", 1e-6)))
        # The first moments are drawn to zero, where they began.
        corrected = work.div(
            work.mul(rate, work.root(work.sub(1.0, work.power(beta, steps)))), work.sub(1.0, work.power(alpha, steps))
        )
        by = work.begun(steps, corrected, rate)
        x = work.sub(x, work.mul(by, work.div(mean, scale)))
        return [work.mul(x, 1 - float(attrs.get("norm_coefficient_post", 0.0))), mean, squares]

    return _by_parameter(ctx, inputs, attrs, 4, step)


@convert("Momentum", domain=_DOMAIN)
def _momentum(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    mode = str(attrs["mode"])
    if mode not in ("standard", "nesterov"):
        raise OpAttributeInvalid(f"Momentum knows no mode {mode!r}")

    def step(
        work: _Arithmetic, attrs: dict[str, Any], rate: Expr, steps: Expr, given: Sequence[Expr]
    ) -> Sequence[Expr]:
        x, gradient, momentum = given
        alpha = float(attrs["alpha"])
        gradient = _regularised(work, attrs, x, gradient)
        share = work.begun(steps, float(attrs["beta"]), 1.0)
        momentum = work.add(work.mul(momentum, alpha), work.mul(gradient, share))
        way = momentum if mode == "standard" else work.add(gradient, work.mul(momentum, alpha))
        return [work.sub(x, work.mul(rate, way)), momentum]

    return _by_parameter(ctx, inputs, attrs, 3, step)
