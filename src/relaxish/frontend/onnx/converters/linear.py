"""Matrix products and Einstein sums."""

from __future__ import annotations

from typing import Any

from .... import op, topi
from ....relax.expr import Expr, Tuple
from ....relax.scalars import product, simplify
from ..context import Context, convert


@convert("MatMul")
def _matmul(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return op.matmul(ctx.tensor(inputs[0]), ctx.tensor(inputs[1]))


@convert("Gemm")
def transposed_gemm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """``alpha * A B + beta * C``, of matrices that may be transposed."""
    a, b = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    c = ctx.tensor(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
    kind = ctx.dtype(a)
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))
    if attrs.get("transA", 0):
        a = ctx.emit(op.permute_dims(a, [1, 0]))
    if attrs.get("transB", 0):
        b = ctx.emit(op.permute_dims(b, [1, 0]))
    out = ctx.emit(op.matmul(a, b))
    if alpha != 1.0:
        out = ctx.emit(op.multiply(out, ctx.const(alpha, kind)))
    if c is None:
        return out
    if beta != 1.0:
        c = ctx.emit(op.multiply(c, ctx.const(beta, kind)))
    return op.add(out, c)


@convert("Einsum")
def _einsum(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return op.einsum(Tuple([ctx.tensor(x) for x in inputs]), attrs["equation"])


@convert("Det", 11)
def _det(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    *lead, rows, columns = ctx.dims(x)
    stack = ctx.emit(ctx.reshape(x, [simplify(product(lead)), rows, columns]))
    made = ctx.builder.emit_te(topi.linalg.determinant, stack, primfunc_name_hint="determinant")
    return ctx.reshape(ctx.builder.emit(made[0]), lead)
