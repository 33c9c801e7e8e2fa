"""Constructors of statements, buffers and regions: what they accept, refuse and normalise."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import tir
from relaxish.ir import PointerType, PrimType, Range, assert_structural_equal
from relaxish.script import tir as T

NOP = tir.Evaluate(0)
ONE = tir.Evaluate(1)


def test_loop_bounds_have_the_type_of_the_variable() -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int64")
    assert tir.For(j, 0, 4, tir.ForKind.SERIAL, NOP).extent.dtype == "int64"
    for var, low, extent in [
        (i, 0, j),
        (i, j, 4),
        (j, 0, i),
        (i, 0, tir.const(4, "int64")),
        (tir.Var("f", "float32"), 0, 1),
    ]:
        with pytest.raises(TypeError):
            tir.For(var, low, extent, tir.ForKind.SERIAL, NOP)


def test_sequences() -> None:
    for parts in ([], [ONE]):
        with pytest.raises(ValueError, match="prohibited"):
            tir.SeqStmt(parts)
    assert len(tir.SeqStmt([NOP, ONE])) == 2
    assert len(tir.SeqStmt([NOP, tir.SeqStmt([ONE, ONE])])) == 2, "opening a sequence drops no-ops"
    assert tir.SeqStmt.flatten(NOP, [None, NOP]).value == 0 and tir.SeqStmt.flatten(NOP, ONE) is ONE


def test_conditions_of_statements() -> None:
    number, truth = tir.Var("n", "int32"), tir.Var("t", "bool")
    with pytest.raises(ValueError, match="trivial"):
        tir.While(True, NOP)
    assert tir.While(truth, NOP).condition is truth
    with pytest.raises(TypeError):
        tir.AssertStmt(number, "message", NOP)
    with pytest.raises(TypeError):
        tir.AssertStmt(truth, tir.Var("m", "float32"), NOP)
    assert tir.AssertStmt(truth, "message", NOP).message == "message"


def test_allocations_match_their_pointer() -> None:
    pointer = tir.Var("p", PointerType(PrimType("float32")))
    tir.Allocate(pointer, "float32", [4], True, NOP)
    tir.Allocate(tir.Var("b", PointerType(PrimType("int8"))), "bool", [4], True, NOP)
    for var, dtype in [(tir.Var("h", "handle"), "float32"), (pointer, "int32")]:
        with pytest.raises(TypeError, match="does not match the type annotation"):
            tir.Allocate(var, dtype, [4], True, NOP)


def test_lets_and_axes_have_one_type() -> None:
    with pytest.raises(TypeError):
        tir.LetStmt(tir.Var("h", "handle"), 1, NOP)
    with pytest.raises(TypeError, match="extent of an IterVar"):
        tir.IterVar(Range(0, 10), tir.Var("i", "int64"), tir.IterVar.DataPar)
    with pytest.raises(TypeError):
        tir.Shuffle([tir.Var("a", "int32"), tir.Var("b", "float32")], [0])


def test_regions_fit_their_buffers() -> None:
    a = tir.decl_buffer((8, 8), "float32", name="a")
    with pytest.raises(ValueError, match="dimension"):
        tir.BufferRegion(a, [Range(0, 4)])
    region = a[0:4, 0:4]
    assert tir.MatchBufferRegion(tir.decl_buffer((tir.Var("n"), 4), "float32"), region).source is region
    assert tir.MatchBufferRegion(tir.decl_buffer((4,), "float32"), a[0:1, 0:4]).buffer.ndim == 1
    for view in (
        tir.decl_buffer((4, 8), "float32"), tir.decl_buffer((4, 4), "int32"), tir.decl_buffer((4,), "float32"),
        tir.decl_buffer((4, 4), "float32", scope="shared"), tir.decl_buffer((4, 4), "float32", data_alignment=128),
        tir.decl_buffer((4, 4, 4), "float32"), tir.decl_buffer((4, 4), "float32", buffer_type="auto_broadcast"),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            tir.MatchBufferRegion(view, region)


def test_buffer_declarations() -> None:
    n = tir.SizeVar("n", "int64")
    broadcast = tir.decl_buffer((4, n), buffer_type="auto_broadcast")
    assert [s.name for s in broadcast.strides] == ["stride", "stride"] and broadcast.strides[1].dtype == "int64"
    for separators in ([3], [-1], [2, 1]):
        with pytest.raises(ValueError):
            tir.decl_buffer((4, 4), axis_separators=separators)
    with pytest.raises(TypeError, match="type annotation"):
        tir.decl_buffer((4,), data=tir.Var("p", "handle"))


def test_pointers_into_buffers() -> None:
    m, n = tir.SizeVar("m"), tir.SizeVar("n")
    a = tir.decl_buffer((m, n), "float32", name="a", elem_offset=tir.Var("o"))
    vectors = a.access_ptr("r", content_lanes=4, offset=8)
    assert isinstance(vectors.args[2], tir.Div) and isinstance(vectors.args[3], tir.Div) and int(vectors.args[4]) == 1
    assert_structural_equal(a.access_ptr("w", extent=m).args[3], m, map_free_vars=True)
    assert int(tir.decl_buffer(()).access_ptr("rw", offset=3).args[3]) == 1
    with pytest.raises(ValueError):
        a.access_ptr("x")
    with pytest.raises(TypeError):
        a.vload((0, 0), "int32x4")
    strided = tir.decl_buffer((4, 8), strides=[16, 1], elem_offset=tir.Var("o"))
    i, j = tir.Var("i"), tir.Var("j")
    assert str(strided.offset_of([i, j])[0]) == "i * 16 + j + o"


def test_walks_see_uses_once() -> None:
    x = tir.Var("x")
    a = tir.decl_buffer((tir.Var("n"),), "int32", name="a")
    loop = tir.For(x, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(a, x + x, [x]))
    seen: list[str] = []
    tir.stmt_functor.post_order_visit(loop, lambda node: seen.append(type(node).__name__))
    assert seen == ["IntImm", "IntImm", "Var", "Add", "BufferStore", "For"]
    seen.clear()
    tir.stmt_functor.pre_order_visit(
        loop, lambda node: seen.append(type(node).__name__) or not isinstance(node, tir.Add)
    )
    assert seen == ["For", "IntImm", "IntImm", "BufferStore", "Add", "Var"]


def test_rewriting_a_sequence_drops_no_ops() -> None:
    seq = tir.SeqStmt([tir.Evaluate(1), tir.Evaluate(2)])

    def erase(node):
        return NOP if node.value == 2 else None

    made = tir.stmt_functor.ir_transform(seq, None, erase, ["tir.Evaluate"])
    assert isinstance(made, tir.Evaluate) and made.value == 1


@T.prim_func
def scaled(a: T.handle, b: T.handle, n: T.int32):
    m = T.int32()
    A = T.match_buffer(a, (m, n * 2), "float32")
    B = T.match_buffer(b, (m, n), "float32")
    for i, j in T.grid(m, n):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj + n * 2 - n]


def test_specialize_folds_constants() -> None:
    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        m = T.int32()
        A = T.match_buffer(a, (m, 16), "float32")
        B = T.match_buffer(b, (m, 8), "float32")
        for i, j in T.grid(m, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj + 16 - 8])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj + 16 - 8]

    made = scaled.specialize({scaled.params[2]: 8})
    assert_structural_equal(made, expected.with_attr("global_symbol", "scaled"))


def test_specialize_errors() -> None:
    a, b, n = scaled.params
    for binding in (
        {tir.Var("other"): 4}, {a: 4}, {n: tir.decl_buffer((4,))}, {b: tir.decl_buffer((4,))},
        {b: tir.decl_buffer((4, 8), strides=[8, 1])}, {b: tir.decl_buffer((4, 8), data_alignment=128)},
        {n: 9, b: tir.decl_buffer((4, 8))},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            scaled.specialize(binding)
    for binding in ({n: "eight"}, {a: tir.decl_buffer((4, 8))}):
        with pytest.raises(TypeError):
            scaled.specialize(binding)


def test_index_map_padding_is_told_in_the_new_indices() -> None:
    inverse, padding = tir.IndexMap.from_func(lambda i: [(i + 3) // 8, (i + 3) % 8]).non_surjective_inverse([10])
    x, y = inverse.initial_indices
    left = tir.And(x.equal(tir.const(0, "int64")), y < 3)
    right = tir.And(x.equal(tir.const(1, "int64")), tir.const(5, "int64") <= y)
    assert_structural_equal(padding, tir.Or(left, right), map_free_vars=True)


def test_index_map_forms() -> None:
    packed = tir.IndexMap.from_func(lambda *idx: [idx[1], idx[0]], ndim=2)
    assert [v.name for v in packed.initial_indices] == ["idx_0", "idx_1"]
    with pytest.raises(AssertionError):
        tir.IndexMap.from_func(lambda *idx: list(idx))
    n = tir.SizeVar("n", "int32")
    shape = tir.IndexMap.from_func(lambda i: [i // 4, i % 4]).map_shape([n])
    assert [d.dtype for d in shape] == ["int32", "int32"]
    moved = packed.map_ndarray(relaxish.nd.array(np.arange(6).reshape(2, 3)))
    assert isinstance(moved, relaxish.nd.NDArray) and moved.shape == (3, 2)


def test_tensor_intrinsics_take_handles() -> None:
    @T.prim_func
    def one(A: T.Buffer((4,), "float32")):
        A[0] = 0.0

    @T.prim_func
    def scalar(n: T.int32):
        T.evaluate(n)

    with pytest.raises(ValueError):
        tir.TensorIntrin(one, scalar)
    assert tir.TensorIntrin(one, one).desc is one


def test_masks_fit_their_vectors() -> None:
    a = tir.decl_buffer((16,), "float32", name="a")
    four, yes = tir.Ramp(0, 1, 4), tir.const(True)
    assert a.vload([four], predicate=tir.Broadcast(yes, 4)).predicate.dtype == "uint1x4"
    with pytest.raises(ValueError, match="8 lanes, but trying to load a vector with 4 lanes"):
        a.vload([four], predicate=tir.Broadcast(yes, 8))
    with pytest.raises(ValueError, match="boolean"):
        a.vload([four], predicate=tir.Broadcast(1, 4))
    with pytest.raises(ValueError, match="scalable"):
        a.vstore([four], tir.Broadcast(1.0, 4), predicate=tir.get_active_lane_mask("uint1xvscalex4", 0, 16))
    assert bool(tir.vscale().equal(tir.vscale()))


def test_scalars_and_tensors() -> None:
    from relaxish import te

    tensor, x = te.placeholder((4,), name="t"), tir.Var("x", "float32")
    for made in (x + tensor, tensor - x, x * tensor, x / tensor):
        assert isinstance(made, te.Tensor)


def test_literal_bases_and_reductions() -> None:
    assert isinstance(tir.const(1), tir.expr.ConstExpr) and isinstance(tir.LT(1, 2), tir.expr.CmpExpr)
    with pytest.raises(ValueError, match="reduce_axis"):
        tir.sum(tir.const(1.0), axis=tir.IterVar((0, 4), "i", tir.IterVar.DataPar))
    x, y = tir.Var("x"), tir.Var("y")
    with pytest.raises(ValueError):
        tir.CommReducer([x], [y, x], [x + y], [tir.const(0)])
    with pytest.raises(AttributeError):
        tir.Call("int32", "tir.no_such_intrinsic", [])
    with pytest.raises(ValueError):
        tir.Call("int32", "printf", [])
