"""Attention that a model has written out: two products with a softmax between them.

Exporters leave chains like this one, with any of the steps in brackets missing or in float32::

    s = R.matmul(q, k_transposed)         # (batch, heads, rows, keys)
    s = [R.multiply(s, c) or R.divide(s, c)]
    s = [R.add(s, bias) or R.where(mask, s, lowest)]
    out = R.matmul(R.nn.softmax(s), v)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .... import op
from ....ir.op import op_name_of
from ....relax.block_builder import BlockBuilder
from ....relax.expr import Call, Constant, Expr, Function, Var, VarBinding, const
from ....relax.expr_functor import PyExprVisitor
from ....relax.scalars import const_int, prove_equal
from ....relax.struct_info import tensor_dims

__all__ = ["Chain", "find_chains"]

_LOWEST = -1e4  # what is added to scores that are not to count is at most this


@dataclass
class Chain:
    """The operands of a written-out attention: tensors ``[batch, heads, rows, size]`` and keys transposed.

    ``bias`` is added; with ``mask``, ``bias`` is what scores become where the mask is false.
    """

    q: Expr
    k_transposed: Expr
    v: Expr
    scale: float
    bias: Expr | None = None
    mask: Expr | None = None
    shape: tuple[Any, ...] = ()

    def emit_bias(self, builder: BlockBuilder, renew: Callable[[Any], Any]) -> Expr:
        """The bias as a tensor of four axes; ``renew`` gives expressions of the program being built."""
        bias = renew(self.bias)
        if self.mask is not None:
            bias = builder.emit(op.where(renew(self.mask), const(0, bias.struct_info.dtype), bias))
        dims = list(bias.struct_info.dims())
        four = [1] * (4 - len(dims)) + dims
        if len(dims) < 4:
            bias = builder.emit(op.reshape(bias, four))
        if const_int(four[3]) == 1 and const_int(self.shape[3]) != 1:
            bias = builder.emit(op.broadcast_to(bias, [*four[:3], self.shape[3]]))
        return bias


class _Uses(PyExprVisitor):
    """Which values variables are bound to, and how often each is used."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Any, Any] = {}
        self.count: Counter[Any] = Counter()
        self.products: list[Call] = []

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.values[binding.var] = binding.value
        if _is(binding.value, "matmul"):
            self.products.append(binding.value)
        self.visit_expr(binding.value)

    def visit_var_(self, var: Var) -> None:
        self.count[var] += 1

    def visit_dataflow_var_(self, var: Expr) -> None:
        self.count[var] += 1


def _is(value: Expr | None, *names: str) -> bool:
    return op_name_of(value) in {f"relax.{n}" for n in names}


def find_chains(func: Function) -> dict[Call, Chain]:
    """The written-out attentions of a function, by the product that ends them."""
    uses = _Uses()
    uses.visit_expr(func)
    found = {}
    for product in uses.products:
        chain = _Reader(uses).read(product)
        if chain is not None:
            found[product] = chain
    return found


class _Reader:
    """Follows one chain backwards. Values that others use too are not followed: they are needed anyway."""

    def __init__(self, uses: _Uses) -> None:
        self.uses = uses

    def _value(self, expr: Expr) -> Any:
        """What an expression that only this chain uses is computed by, behind conversions between floats."""
        while isinstance(expr, Var) and self.uses.count[expr] == 1:
            value = self.uses.values.get(expr)
            if value is None:
                return None
            if not _is(value, "astype") or "float" not in str(value.attrs.dtype):
                return value
            expr = value.args[0]
        return None if isinstance(expr, Var) else expr

    def read(self, product: Call) -> Chain | None:
        """The chain that ends in this product, if there is one."""
        weights = self._value(product.args[0])
        if not _is(weights, "nn.softmax") or int(weights.attrs.axis) not in (-1, 3):
            return None
        shape = _shape(weights)
        if shape is None or _shape(product) is None:
            return None
        chain = Chain(product, product, product.args[1], 1.0, shape=shape)
        scores = self._factor(chain, self._added(chain, self._factor(chain, self._value(weights.args[0]))))
        if not _is(scores, "matmul") or chain.scale <= 0:
            return None
        chain.q, chain.k_transposed = scores.args
        return chain if self._fits(chain) else None

    def _added(self, chain: Chain, value: Any) -> Any:
        """Behind the sum with a bias, or the choice by a mask."""
        if chain.scale != 1.0:
            return value  # the bias, too, would have been multiplied
        if _is(value, "where") and _lowest(value.args[2]) and _repeats(value.args[0], chain.shape):
            chain.mask, chain.bias = value.args[0], value.args[2]
            return self._value(value.args[1])
        if not _is(value, "add"):
            return value
        for scores, bias in (value.args, value.args[::-1]):
            inner = self._value(scores)
            whole = (
                isinstance(bias, (Var, Constant)) and _repeats(bias, chain.shape) and "float" in bias.struct_info.dtype
            )
            if whole and _is(inner, "matmul", "multiply", "divide"):
                chain.bias = bias
                return inner
        return None

    def _factor(self, chain: Chain, value: Any) -> Any:
        """Behind a multiplication by a constant."""
        if not _is(value, "multiply", "divide"):
            return value
        scores, factor = value.args
        if _is(value, "multiply") and isinstance(scores, Constant):
            scores, factor = factor, scores
        number = _scalar(factor)
        if not number:
            return None
        chain.scale *= number if _is(value, "multiply") else 1.0 / number
        return self._value(scores)

    @staticmethod
    def _fits(chain: Chain) -> bool:
        """Four axes throughout, nothing broadcast by the products."""
        shapes = [_shape(e) for e in (chain.q, chain.k_transposed, chain.v)]
        if any(s is None or len(s) != 4 for s in shapes):
            return False
        q, k, v = ([*s] for s in shapes if s is not None)
        wanted = (q[0], q[1], q[2], k[3])
        equal = [*zip(wanted, chain.shape), *zip(q[:2], k[:2]), *zip(q[:2], v[:2]), (q[3], k[2]), (k[3], v[2])]
        return all(prove_equal(a, b) for a, b in equal)


def _shape(expr: Expr) -> tuple[Any, ...] | None:
    info = expr.struct_info
    return tensor_dims(info)


def _scalar(expr: Expr) -> float | None:
    """The value of a constant of one element."""
    if not isinstance(expr, Constant):
        return None
    array = expr.data.numpy()
    return float(array.reshape(-1)[0]) if array.size == 1 else None


def _lowest(expr: Expr) -> bool:
    value = _scalar(expr)
    return value is not None and value <= _LOWEST


def _repeats(expr: Expr, shape: tuple[Any, ...]) -> bool:
    """Whether a tensor has the shape of the scores but for axes of one element, or axes that are missing in front."""
    dims = _shape(expr)
    if dims is None or not 0 < len(dims) <= 4:
        return False
    return all(const_int(d) == 1 or prove_equal(d, n) for d, n in zip(dims[::-1], shape[::-1], strict=False))
