"""Matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..ir.errors import CheckValueError
from ..ir.expr import PrimExpr
from ..relax.axis_groups import Axis, AxisGroupGraph, Edge
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Var
from ..relax.op_table import Sample
from ..relax.scalars import const_int, prove_equal, prove_equal_shapes
from ..relax.struct_info import StructInfo
from ..tir import IntImm, const
from .binary import add, multiply
from .inference import (
    agreed_vdevice,
    as_expr,
    broadcast,
    check_count,
    fail,
    input_tensors,
    make_call,
    product_dtype,
    provably_differ,
    take_equal,
    tensor,
    tensor_of_tuple,
    type_fail,
    written_dims,
)
from .kinds import CONTRACTION, dims_of, join_broadcast
from .lowering import te_call, tuple_fields
from .manipulate import collapse_sum_to, expand_dims, permute_dims, squeeze
from .record import define

__all__ = ["einsum", "linear", "matmul"]


def matmul(x1: Expr, x2: Expr, out_dtype: str | None = None) -> Expr:
    """Matrix product with NumPy's rules for vectors and batches."""
    return make_call("matmul", [as_expr(x1), as_expr(x2)], {"out_dtype": "" if out_dtype is None else str(out_dtype)})


def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | None = None) -> Expr:
    """``data @ weight.T (+ bias)``, written with :func:`matmul`."""
    product = matmul(data, permute_dims(weight, axes=None), out_dtype=out_dtype)
    return add(product, bias) if bias is not None else product


def einsum(operands: Expr | Sequence[Expr], subscripts: str) -> Expr:
    """Einstein sum, e.g. ``einsum((a, b), "ij,jk->ik")``."""
    return make_call("einsum", [as_expr(operands)], {"subscripts": subscripts})


def _infer_matmul(call: Call, builder: BlockBuilder) -> StructInfo:
    a, b = input_tensors(call, 2)
    dtype = product_dtype(call, a, b, "the operands have different datatypes, {} and {}")
    device = agreed_vdevice([a, b])
    if a.ndim < 0 or b.ndim < 0:
        return tensor(None, dtype, -1, device)
    if a.ndim == 0 or b.ndim == 0:
        raise fail(call, f"requires both inputs to have at least one dimension, but they have {a.ndim} and {b.ndim}")
    ndim = max(a.ndim, b.ndim, 2) - (a.ndim == 1) - (b.ndim == 1)
    dims_a, dims_b = written_dims(a), written_dims(b)
    if dims_a is None or dims_b is None:
        return tensor(None, dtype, ndim, device)
    rows, cols = list(dims_a), list(dims_b)
    if a.ndim == 1:
        rows.insert(0, const(1, "int64"))
    if b.ndim == 1:
        cols.append(const(1, "int64"))
    batch = broadcast(call, rows[:-2], cols[:-2])
    if batch is None:
        return tensor(None, dtype, ndim, device)
    k_a, k_b = rows[-1], cols[-2]
    if provably_differ(k_a, k_b):
        raise fail(call, f"requires the reduction length of x1 and x2 to be equal, but they are {k_a} and {k_b}")
    shape = list(batch)
    if a.ndim > 1:
        shape.append(rows[-2])
    if b.ndim > 1:
        shape.append(cols[-1])
    return tensor(shape, dtype, vdevice=device)


def te_matmul(dtype: str) -> Callable[[te.Tensor, te.Tensor], te.Tensor]:
    """The compute definition for operands of the given result."""

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        shape_a, shape_b = list(a.shape), list(b.shape)
        vector_a, vector_b = len(shape_a) == 1, len(shape_b) == 1
        one = const(1, "int64")
        if vector_a:
            shape_a.insert(0, one)
        if vector_b:
            shape_b.append(one)
        longer_a = len(shape_a) > len(shape_b)
        offset = abs(len(shape_a) - len(shape_b))
        batch = max(len(shape_a), len(shape_b)) - 2
        shape = _result_shape(shape_a, shape_b, vector_a, vector_b)

        def element(*indices: PrimExpr) -> PrimExpr:
            k = te.reduce_axis((const(0, str(shape_a[-1].dtype)), shape_a[-1]), "k")
            at_a: list[Any] = []
            at_b: list[Any] = []
            for i in range(offset):
                (at_a if longer_a else at_b).append(indices[i])
            for i in range(offset, batch):
                dim_a = shape_a[i if longer_a else i - offset]
                dim_b = shape_b[i if not longer_a else i - offset]
                if prove_equal(dim_a, dim_b):
                    at_a.append(indices[i])
                    at_b.append(indices[i])
                else:
                    at_a.append(const(0, "int64") if const_int(dim_a) == 1 else indices[i])
                    at_b.append(const(0, "int64") if const_int(dim_b) == 1 else indices[i])
            if not vector_a:
                at_a.append(indices[-2 + vector_b])
            at_a.append(k.var)
            at_b.append(k.var)
            if not vector_b:
                at_b.append(indices[-1])
            left, right = (v.astype(dtype) if dtype else v for v in (a(*at_a), b(*at_b)))
            return te.sum(left * right, axis=k)

        return te.compute(shape, element, "matmul")

    return compute


def _result_shape(a: list[Any], b: list[Any], vector_a: bool, vector_b: bool) -> list[Any]:
    lead_a, lead_b = a[:-2], b[:-2]
    count = max(len(lead_a), len(lead_b))
    lead_a = [IntImm("int64", 1)] * (count - len(lead_a)) + lead_a
    lead_b = [IntImm("int64", 1)] * (count - len(lead_b)) + lead_b
    shape = [y if const_int(x) == 1 else x for x, y in zip(lead_a, lead_b)]
    if not vector_a:
        shape.append(a[-2])
    if not vector_b:
        shape.append(b[-1])
    return shape


def _legalize_matmul(builder: BlockBuilder, call: Call) -> Expr:
    for which, arg in zip(("LHS", "RHS"), call.args):
        if not arg.struct_info.dtype:
            raise AssertionError(
                "To legalize R.matmul into R.call_tir, the dtype of both operands must be known, "
                f"but the {which} {arg} has struct info {arg.struct_info}"
            )
    dtype = str(call.attrs.out_dtype or "")
    compute = te_matmul("" if dtype == "void" else dtype)
    return builder.call_te(compute, call.args[0], call.args[1], primfunc_name_hint="matmul")


def _infer_einsum(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    infos = tensor_of_tuple(call, call.args[0])
    if not infos:
        raise fail(call, "expects at least one operand")
    dtype = infos[0].dtype
    device = agreed_vdevice(infos)
    for info in infos:
        if info.dtype != dtype:
            raise type_fail(call, f"expects all input tensors to have the same dtype, but got {dtype} and {info.dtype}")
        if written_dims(info) is None:
            return tensor(None, dtype, info.ndim, device)
    try:
        terms, output = topi.einsum_terms(call.attrs.subscripts, [i.ndim for i in infos])
    except CheckValueError as err:
        raise fail(call, str(err)) from None
    shapes = [list(i.dims() or ()) for i in infos]
    found = topi.einsum_extents(terms, shapes)
    for term, shape in zip(terms, shapes):
        for letter, dim in zip(term, shape):
            x, y = const_int(dim), const_int(found[letter])
            if x is not None and y is not None and x != y and 1 not in (x, y):
                raise fail(call, f"index '{letter}' stands for both {x} and {y}")
            if 1 not in (x, y):
                take_equal(dim, found[letter])
    return tensor([found[letter] for letter in output], dtype, vdevice=device)


def _legalize_einsum(builder: BlockBuilder, call: Call) -> Expr:
    return te_call(
        builder,
        "einsum",
        lambda tensors: topi.einsum(call.attrs.subscripts, *tensors),
        tuple_fields(builder, call.args[0]),
    )


def _matmul_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    a, b = call.args
    rank_a, rank_b = a.struct_info.ndim, b.struct_info.ndim

    def swapped(x: Expr, rank: int) -> Expr:
        return permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])

    if rank_a == 1 and rank_b == 1:
        by_a, by_b = multiply(out, b), multiply(out, a)
    elif rank_a == 1:
        # A row vector: (k) @ (..., k, n) -> (..., n).
        row = expand_dims(out, -2)
        by_a, by_b = matmul(row, swapped(b, rank_b)), matmul(expand_dims(a, 1), row)
    elif rank_b == 1:
        column = expand_dims(out, -1)
        by_a = matmul(column, expand_dims(b, 0))
        by_b = squeeze(matmul(swapped(a, rank_a), column), -1)
    else:
        by_a, by_b = matmul(out, swapped(b, rank_b)), matmul(swapped(a, rank_a), out)
    return [_summed(builder, by_a, a), _summed(builder, by_b, b)]


def _summed(builder: BlockBuilder, grad: Expr, arg: Expr) -> Expr:
    """Batches that were broadcast are summed."""
    have, want = builder.normalize(grad).struct_info.dims(), arg.struct_info.dims()
    return grad if prove_equal_shapes(have, want) else collapse_sum_to(grad, arg.struct_info.shape)


def _matmul_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    a, b = call.args
    a_dims, b_dims = dims_of(a), dims_of(b)
    rows, columns = len(a_dims) > 1, len(b_dims) > 1
    lead = join_broadcast(output, [(a, a_dims[:-2] if rows else ()), (b, b_dims[:-2] if columns else ())], graph)
    graph.join(Axis(a, len(a_dims) - 1), Axis(b, max(len(b_dims) - 2, 0)), Edge.SIBLING)
    if rows:
        graph.join(Axis(a, len(a_dims) - 2), Axis(output, lead), Edge.DESCEND)
    if columns:
        graph.join(Axis(b, len(b_dims) - 1), Axis(output, lead + rows), Edge.DESCEND)


def _samples() -> Sequence[Sample]:
    rng = np.random.default_rng(3)

    def a(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype("float32")

    return [((a(4, 5), a(5, 6)), {}), ((a(2, 1, 4, 5), a(3, 5, 6)), {}), ((a(5), a(5, 3)), {}), ((a(4, 5), a(5)), {})]


define(
    "matmul",
    _infer_matmul,
    kind=CONTRACTION,
    attrs="Matmul",
    gradient=_matmul_gradient,
    axes=_matmul_axes,
    legalize=_legalize_matmul,
    reference=lambda x1, x2, out_dtype=None: np.matmul(x1, x2),
    samples=_samples,
)
_A, _B = (np.random.default_rng(k).uniform(-1, 1, s).astype("float32") for k, s in enumerate(((2, 3, 4), (2, 4, 5))))
define(
    "einsum",
    _infer_einsum,
    kind=CONTRACTION,
    attrs="Einsum",
    precision="never",
    legalize=_legalize_einsum,
    reference=lambda operands, subscripts: np.einsum(subscripts, *operands),
    samples=lambda: [
        (((_A, _B),), {"subscripts": "bij,bjk->bik"}),
        (((_A,),), {"subscripts": "bij->ji"}),
        (((_A, _A),), {"subscripts": "bij,bij->"}),
    ],
)
