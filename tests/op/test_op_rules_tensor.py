"""Struct-info rules of operators on plain tensors: arithmetic, shapes, indexing, creation, sets and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaxish import relax, tir
from relaxish.ir import Op, VDevice, assert_structural_equal
from relaxish.relax import op
from relaxish.script import relax as R
from relaxish.support.errors import InternalError, RelaxishError

m, n, k = (tir.Var(name, "int64") for name in ("m", "n", "k"))
DEVICE, OTHER = VDevice("llvm", 0), VDevice("cuda", 0)
RANKED = relax.Var("s2", R.Shape(ndim=2))
VALUED = relax.Var("s23", R.Shape((2, 3)))


def var(info: Any) -> Any:
    return relax.Var("x", info)


def tensor(*shape: Any, dtype: str = "float32") -> Any:
    return var(R.Tensor(shape, dtype))


def shaped(shape: Any, dtype: str = "float32") -> Any:
    return var(relax.TensorStructInfo(shape, dtype))


def ranked(ndim: int, dtype: str = "float32") -> Any:
    return var(R.Tensor(dtype=dtype, ndim=ndim))


def placed(device: Any, *shape: Any) -> Any:
    return var(relax.TensorStructInfo(shape, "float32", device))


def infer(call: Any) -> Any:
    return relax.BlockBuilder().normalize(call).struct_info


F32 = "float32"
RULES: list[tuple[str, Callable[[], Any], Any]] = [
    # -- arithmetic: a scalar counts as a tensor of shape (1,)
    ("scalar and 0-d", lambda: op.add(tensor(), var(R.Prim(F32))), R.Tensor((1,), F32)),
    ("scalar and matrix", lambda: op.add(tensor(m, 3), var(R.Prim(F32))), R.Tensor((m, 3), F32)),
    ("scalar and ranked", lambda: op.multiply(var(R.Prim(F32)), ranked(3)), R.Tensor(dtype=F32, ndim=3)),
    ("two scalars", lambda: op.add(var(R.Prim(F32)), var(R.Prim(F32))), R.Prim(F32)),
    ("two compared scalars", lambda: op.less(var(R.Prim(F32)), var(R.Prim("int64"))), R.Prim("bool")),
    ("same shape variable", lambda: op.add(shaped(RANKED), shaped(RANKED)), relax.TensorStructInfo(RANKED, F32)),
    ("valued shape variable", lambda: op.add(shaped(VALUED), tensor(2, 1)), R.Tensor((2, 3), F32)),
    ("symbols that may differ", lambda: op.add(tensor(m, n), tensor(m, k)), R.Tensor(dtype=F32, ndim=2)),
    ("symbol against one", lambda: op.add(tensor(m, 1), tensor(1, n)), R.Tensor((m, n), F32)),
    ("equal forms", lambda: op.add(tensor(2 * m), tensor(m + m)), R.Tensor((2 * m,), F32)),
    ("comparison of other dtypes", lambda: op.equal(tensor(2), tensor(2, dtype="int8")), R.Tensor((2,), "bool")),
    ("one dtype unknown", lambda: op.add(tensor(2), tensor(2, dtype="")), R.Tensor((2,), "")),
    ("one device", lambda: op.add(placed(DEVICE, 2), tensor(2)), relax.TensorStructInfo((2,), F32, DEVICE)),
    ("check gives bool", lambda: op.isnan(shaped(RANKED)), relax.TensorStructInfo(RANKED, "bool")),
    ("fma", lambda: op.ewise_fma(tensor(m, 2), tensor(m, 2), tensor(m, 2)), R.Tensor((m, 2), F32)),
    ("fma of ranks", lambda: op.ewise_fma(ranked(-1), ranked(2), ranked(-1)), R.Tensor(dtype=F32, ndim=2)),
    # -- where, argmax
    ("where", lambda: op.where(tensor(m, 1, dtype="bool"), tensor(1, 4), tensor(4)), R.Tensor((m, 4), F32)),
    ("where devices differ", lambda: op.where(tensor(2, dtype="bool"), placed(DEVICE, 2), placed(OTHER, 2)),
     R.Tensor((2,), F32)),
    ("argmax of unknown rank", lambda: op.argmax(ranked(-1)), R.Tensor((), "int64")),
    ("argmax of one axis of one", lambda: op.argmax(ranked(1), axis=0), R.Tensor((), "int64")),
    ("argmin keeps", lambda: op.argmin(ranked(2), keepdims=True), R.Tensor((1, 1), "int64")),
    # -- matmul, einsum
    ("matmul broadcasts", lambda: op.matmul(tensor(m, 1, 4, k), tensor(5, k, 6)), R.Tensor((m, 5, 4, 6), F32)),
    ("matmul of vectors", lambda: op.matmul(tensor(4), tensor(4)), R.Tensor((), F32)),
    ("matmul devices differ", lambda: op.matmul(placed(DEVICE, 2, 2), placed(OTHER, 2, 2)), R.Tensor((2, 2), F32)),
    ("matmul batch unknown", lambda: op.matmul(tensor(m, 2, 2), tensor(n, 2, 2)), R.Tensor(dtype=F32, ndim=3)),
    ("matmul out dtype", lambda: op.matmul(tensor(2, 2), tensor(2, 2, dtype="int8"), "float16"),
     R.Tensor((2, 2), "float16")),
    ("einsum", lambda: op.einsum((tensor(m, n), tensor(n, k)), "ij,jk->ik"), R.Tensor((m, k), F32)),
    ("einsum of unknown shape", lambda: op.einsum((ranked(3), tensor(2)), "abc,a->bc"), R.Tensor(dtype=F32, ndim=3)),
    # -- shapes
    ("broadcast_to a variable", lambda: op.broadcast_to(tensor(2, 1), RANKED), relax.TensorStructInfo(RANKED, F32)),
    ("reshape hole", lambda: op.reshape(tensor(m, 6), (-1, 4)), R.Tensor((m * 6 // 4, 4), F32)),
    ("reshape copies", lambda: op.reshape(tensor(m, 6), (0, 2, -1)), R.Tensor((m, 2, 3), F32)),
    ("reshape to a variable", lambda: op.reshape(tensor(m), RANKED), relax.TensorStructInfo(RANKED, F32)),
    ("reshape to known values", lambda: op.reshape(tensor(6), VALUED), R.Tensor((2, 3), F32)),
    ("flatten", lambda: op.flatten(tensor(m, n)), R.Tensor((m * n,), F32)),
    ("flatten of a scalar", lambda: op.flatten(tensor()), R.Tensor((1,), F32)),
    ("concat one", lambda: op.concat([ranked(-1)], 3), R.Tensor(dtype=F32)),
    ("concat equal", lambda: op.concat([tensor(m, 2)] * 3), R.Tensor((m * 3, 2), F32)),
    ("concat sums in order", lambda: op.concat([tensor(n), tensor(m), tensor(4)]), R.Tensor((n + m + 4,), F32)),
    ("concat unsure", lambda: op.concat([tensor(2, m), tensor(3, n)]), R.Tensor(dtype=F32, ndim=2)),
    ("concat a dtype unknown", lambda: op.concat([tensor(2), tensor(3, dtype="")]), R.Tensor((5,), "")),
    ("expand_dims", lambda: op.expand_dims(tensor(m, n), [1, -1]), R.Tensor((m, 1, n, 1), F32)),
    ("squeeze symbolic", lambda: op.squeeze(tensor(1, m)), R.Tensor(dtype=F32)),
    ("squeeze named", lambda: op.squeeze(tensor(1, m, 4), [0, 1]), R.Tensor((4,), F32)),
    ("squeeze nothing", lambda: op.squeeze(shaped(VALUED)), relax.TensorStructInfo(VALUED, F32)),
    ("squeeze ranked", lambda: op.squeeze(ranked(3), [0, -1]), R.Tensor(dtype=F32, ndim=1)),
    ("permute_dims identity", lambda: op.permute_dims(shaped(RANKED), [0, 1]), relax.TensorStructInfo(RANKED, F32)),
    ("split unevenly", lambda: op.split(tensor(10), 3), R.Tuple(*[R.Tensor((d,), F32) for d in (4, 4, 2)])),
    ("split symbolic", lambda: op.split(tensor(n), 2),
     R.Tuple(R.Tensor(((n + 1) // 2,), F32), R.Tensor((n - (n + 1) // 2,), F32))),
    ("split into one", lambda: op.split(tensor(n), 1), R.Tensor((n,), F32)),
    ("split at nothing", lambda: op.split(tensor(n), []), R.Tensor((n,), F32)),
    ("split beyond", lambda: op.split(tensor(5), [3, 9]), R.Tuple(*[R.Tensor((d,), F32) for d in (3, 2, 0)])),
    ("split ranked", lambda: op.split(ranked(2), 2), R.Tuple(*[R.Tensor(dtype=F32, ndim=2)] * 2)),
    ("repeat once", lambda: op.repeat(shaped(RANKED), 1, 0), relax.TensorStructInfo(RANKED, F32)),
    ("repeat flat", lambda: op.repeat(ranked(3), 2), R.Tensor(dtype=F32, ndim=1)),
    ("tile once", lambda: op.tile(shaped(RANKED), [1, 1]), relax.TensorStructInfo(RANKED, F32)),
    ("tile longer", lambda: op.tile(ranked(2), [1, 1, 2]), R.Tensor(dtype=F32, ndim=3)),
    ("collapse_sum_like", lambda: op.collapse_sum_like(tensor(2, m), tensor(m)), R.Tensor((m,), F32)),
    ("collapse_sum_to", lambda: op.collapse_sum_to(tensor(2, 3, m), (1, m)), R.Tensor((1, m), F32)),
    # -- indexing
    ("take of a scalar", lambda: op.take(tensor(m, n), relax.PrimValue(1), 0), R.Tensor((n,), F32)),
    ("take of many", lambda: op.take(tensor(m, n), tensor(2, k, dtype="int32"), 1), R.Tensor((m, 2, k), F32)),
    ("take ranked", lambda: op.take(ranked(3), tensor(2, dtype="int64"), 1), R.Tensor(dtype=F32, ndim=3)),
    ("slice", lambda: op.strided_slice(tensor(8, 9), [0, -1], [1, 8], [8, 0], [2, -3]), R.Tensor((4, 3), F32)),
    ("slice symbolic", lambda: op.strided_slice(tensor(m), [0], [1], [3]),
     R.Tensor((tir.min(3, m) - tir.min(1, m),), F32)),
    ("slice inbound", lambda: op.strided_slice(tensor(m), [0], [1], [k], assume_inbound=True), R.Tensor((k - 1,), F32)),
    ("slice of unknown bounds", lambda: op.strided_slice(tensor(8), [0], [var(R.Prim("int64"))], [4]),
     R.Tensor(dtype=F32, ndim=1)),
    ("dynamic slice", lambda: op.dynamic_strided_slice(tensor(m, n), *[tensor(2, dtype="int64")] * 3),
     R.Tensor(dtype=F32, ndim=2)),
    ("dynamic slice of unknown rank", lambda: op.dynamic_strided_slice(ranked(-1), *[tensor(2, dtype="int64")] * 3),
     R.Tensor(dtype=F32)),
    ("gather_elements", lambda: op.gather_elements(tensor(4, 5), tensor(2, m, dtype="int64")), R.Tensor((2, m), F32)),
    ("gather_nd", lambda: op.gather_nd(tensor(m, 4, 5), tensor(m, 7, 1, dtype="int64"), 1), R.Tensor((m, 7, 5), F32)),
    ("gather_nd ranked", lambda: op.gather_nd(ranked(3), tensor(7, 2, dtype="int64")), R.Tensor(dtype=F32, ndim=2)),
    ("scatter_elements", lambda: op.scatter_elements(shaped(RANKED), *[tensor(2, 2, dtype="int64")] * 1, tensor(2, 2)),
     R.Tensor(dtype=F32, ndim=2)),
    ("scatter_nd", lambda: op.scatter_nd(tensor(m, 4), tensor(3, 1, dtype="int64"), tensor(3, 4)),
     R.Tensor((m, 4), F32)),
    ("one_hot", lambda: op.one_hot(tensor(m, dtype="int32"), relax.PrimValue(1), relax.PrimValue(0), 5, 0),
     R.Tensor((5, m), "int64")),
    # -- creation
    ("full takes the device", lambda: op.full((m,), placed(DEVICE)), relax.TensorStructInfo((m,), F32, DEVICE)),
    ("zeros of a variable", lambda: op.zeros(RANKED, "int8"), relax.TensorStructInfo(RANKED, "int8")),
    ("arange", lambda: op.arange(1, n, 2), R.Tensor((n // 2,), "int64")),
    ("arange floats", lambda: op.arange(0, 1.0, 0.25), R.Tensor((4,), F32)),
    ("eye", lambda: op.eye(m, n, 1, "int8"), R.Tensor((m, n), "int8")),
    ("tril", lambda: op.tril(shaped(RANKED), tir.Var("d", "int64")), relax.TensorStructInfo(RANKED, F32)),
    # -- sorting, sets, scans, statistics, sampling
    ("argsort", lambda: op.argsort(shaped(RANKED)), relax.TensorStructInfo(RANKED, "int32")),
    ("topk of few", lambda: op.topk(tensor(2, m), 9, 0, "values"), R.Tensor((2, m), F32)),
    ("topk symbolic", lambda: op.topk(tensor(2, m), 9, -1, "indices", dtype="int64"), R.Tensor((2, 9), "int64")),
    ("unique", lambda: op.unique(tensor(2, m), return_counts=True),
     R.Tuple(R.Tensor(dtype=F32, ndim=1), R.Tensor(dtype="int64", ndim=1))),
    ("unique of a scalar", lambda: op.unique(tensor()), R.Tensor((1,), F32)),
    ("nonzero", lambda: op.nonzero(ranked(-1)), R.Tensor(dtype="int64", ndim=2)),
    ("cumsum flat", lambda: op.cumsum(tensor(m, n), dtype="int32"), R.Tensor((m * n,), "int32")),
    ("sum to a scalar", lambda: op.sum(ranked(-1)), R.Tensor((), F32)),
    ("sum of all named axes", lambda: op.sum(ranked(2), [0, 1]), R.Tensor((), F32)),
    ("mean keeps", lambda: op.mean(tensor(m, n, 4), [-1, 0], True), R.Tensor((1, n, 1), F32)),
    ("multinomial", lambda: op.multinomial_from_uniform(tensor(m, 9), tensor(k, 1), tensor(k, 1, dtype="int64")),
     R.Tensor((k, 1), "int64")),
    # -- shapes as values, devices
    ("shape_of a variable", lambda: op.shape_of(shaped(VALUED)), R.Shape(ndim=2)),
    ("shape_of", lambda: op.shape_of(tensor(m, 2)), R.Shape((m, 2))),
    ("tensor_to_shape", lambda: op.tensor_to_shape(ranked(1, "int64")), R.Shape(ndim=-1)),
    ("shape_to_tensor", lambda: op.shape_to_tensor(RANKED), R.Tensor((2,), "int64")),
    ("to_vdevice", lambda: op.to_vdevice(shaped(RANKED), DEVICE), relax.TensorStructInfo(RANKED, F32, DEVICE)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "want"), [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_rule(call: Callable[[], Any], want: Any) -> None:
    assert_structural_equal(infer(call()), var(want).struct_info)


WRONG: list[tuple[str, type, Callable[[], Any]]] = [
    ("add of dtypes", TypeError, lambda: op.add(tensor(2), tensor(2, dtype="int32"))),
    ("add of a shape", TypeError, lambda: op.add(tensor(2), VALUED)),
    ("add of devices", TypeError, lambda: op.add(placed(DEVICE, 2), placed(OTHER, 2))),
    ("add of extents", ValueError, lambda: op.add(tensor(m, 2), tensor(m, 3))),
    ("exp of integers", TypeError, lambda: op.exp(tensor(2, dtype="int8"))),
    ("exp of a tuple", TypeError, lambda: op.exp(var(R.Tuple(R.Tensor((2,), F32))))),
    ("where of an unknown condition", TypeError, lambda: op.where(tensor(2, dtype=""), tensor(2), tensor(2))),
    ("fma of symbols", ValueError, lambda: op.ewise_fma(tensor(m), tensor(n), tensor(m))),
    ("matmul of a scalar", ValueError, lambda: op.matmul(tensor(), tensor(2))),
    ("matmul of lengths", ValueError, lambda: op.matmul(tensor(2, n), tensor(n + 1, 2))),
    ("einsum of dtypes", TypeError, lambda: op.einsum((tensor(2), tensor(2, dtype="")), "a,a->a")),
    ("broadcast_to fewer", ValueError, lambda: op.broadcast_to(tensor(2, 1), (2,))),
    ("broadcast_to another", ValueError, lambda: op.broadcast_to(tensor(n), (n + 1,))),
    ("reshape of a number", TypeError, lambda: op.reshape(tensor(4), 4)),
    ("reshape of two holes", ValueError, lambda: op.reshape(tensor(4), (-1, -1))),
    ("reshape negative", ValueError, lambda: op.reshape(tensor(4), (-2, 2))),
    ("reshape unknown hole", ValueError, lambda: op.reshape(ranked(2), (-1, 2))),
    ("reshape elements", ValueError, lambda: op.reshape(tensor(4), (5,))),
    ("concat nothing", ValueError, lambda: op.concat([])),
    ("concat ranks", ValueError, lambda: op.concat([tensor(2), tensor(2, 2)])),
    ("concat of two axes without axis", ValueError, lambda: op.concat([tensor(2, 2), tensor(2, 2)], None)),
    ("concat extents", ValueError, lambda: op.concat([tensor(2, 2), tensor(2, 3)])),
    ("expand_dims twice", ValueError, lambda: op.expand_dims(tensor(2), [1, -2])),
    ("squeeze of two", ValueError, lambda: op.squeeze(tensor(2, m), [0])),
    ("permute_dims of fewer", ValueError, lambda: op.permute_dims(tensor(2, 3), [0])),
    ("permute_dims twice", ValueError, lambda: op.permute_dims(tensor(2, 3), [1, -1])),
    ("split into none", ValueError, lambda: op.split(tensor(2), 0)),
    ("split at a symbol", TypeError, lambda: op.split(tensor(m), [n])),
    ("collapse_sum symbols", ValueError, lambda: op.collapse_sum_to(tensor(m), (n,))),
    ("flip an axis", ValueError, lambda: op.flip(tensor(2), 1)),
    ("take without axis", ValueError, lambda: op.take(ranked(-1), tensor(2, dtype="int64"))),
    ("take at floats", TypeError, lambda: op.take(tensor(2), tensor(2), 0)),
    ("slice lengths", ValueError, lambda: op.strided_slice(tensor(8), [0], [1, 2], [3])),
    ("slice by int32", TypeError, lambda: op.strided_slice(tensor(8), [0], [tir.Var("b", "int32")], [3])),
    ("slice of a stride of zero", ValueError, lambda: op.strided_slice(tensor(m), [0], [0], [1], [0])),
    ("dynamic slice too few", ValueError, lambda: op.dynamic_strided_slice(
        tensor(8, 8), *[tensor(1, dtype="int64")] * 3)),
    ("dynamic slice int32", TypeError, lambda: op.dynamic_strided_slice(tensor(8), *[tensor(1, dtype="int32")] * 3)),
    ("gather_nd int32", TypeError, lambda: op.gather_nd(tensor(4), tensor(1, 1, dtype="int32"))),
    ("gather_nd too deep", ValueError, lambda: op.gather_nd(tensor(4), tensor(1, 2, dtype="int64"))),
    ("scatter_elements ranks", ValueError, lambda: op.scatter_elements(
        tensor(4), tensor(1, 1, dtype="int64"), tensor(1, 1))),
    ("scatter_nd unknown dtype", TypeError, lambda: op.scatter_nd(
        tensor(4), tensor(1, 1, dtype="int64"), tensor(1, dtype=""))),
    ("scatter_nd symbols", ValueError, lambda: op.scatter_nd(tensor(4), tensor(m, 1, dtype="int64"), tensor(n))),
    ("one_hot dtypes", TypeError, lambda: op.one_hot(tensor(4, dtype="int8"), 1, 0.0, 4)),
    ("one_hot depth", ValueError, lambda: op.one_hot(tensor(4, dtype="int8"), 1, 0, 0)),
    ("full of a vector", ValueError, lambda: op.full((2,), tensor(2))),
    ("ones of no dtype", ValueError, lambda: op.ones((2,), "")),
    ("tril of a vector", ValueError, lambda: op.tril(tensor(2))),
    ("eye_like of a cube", ValueError, lambda: op.eye_like(tensor(2, 2, 2))),
    ("topk of nothing", ValueError, lambda: op.topk(tensor(2), 1, ret_type="none")),
    ("multinomial of integers", TypeError, lambda: op.multinomial_from_uniform(
        tensor(2, 2, dtype="int8"), tensor(2, 1), tensor(2, 1, dtype="int64"))),
    ("multinomial of wide draws", ValueError, lambda: op.multinomial_from_uniform(
        tensor(2, 2), tensor(2, 2), tensor(2, 1, dtype="int64"))),
    ("tensor_to_shape of a matrix", ValueError, lambda: op.tensor_to_shape(tensor(2, 2, dtype="int64"))),
    ("shape_of a scalar", TypeError, lambda: op.shape_of(var(R.Prim("int64")))),
    ("a number as tensor", TypeError, lambda: op.add(tensor(2), "one")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "call"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong(kind: type, call: Callable[[], Any]) -> None:
    with pytest.raises(RelaxishError) as caught:
        infer(call())
    assert isinstance(caught.value, kind)
    assert isinstance(caught.value, InternalError)


def test_wrong_number_of_arguments() -> None:
    x = tensor(2)
    for name, args in (("add", (x,)), ("exp", (x, x)), ("where", (x, x)), ("matmul", (x,)), ("take", (x, x, x))):
        with pytest.raises(InternalError, match="arguments"):
            infer(relax.Call(Op.get(f"relax.{name}"), args))
