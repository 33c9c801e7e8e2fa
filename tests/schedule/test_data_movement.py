"""Copies, padding and views: exact programs after cache_*, reindex, pad_einsum, decompose_padding, compute_at."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.testing.examples import outline
from relaxish.tir import IterVar
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def check(sch, before, expected):
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, before)


# -- caches ------------------------------------------------------------------------------------------------


def test_caches_stand_within_the_constants_of_a_scope():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        table = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", [4])
        W = T.decl_buffer((4,), data=table)
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                C[v] = A[v] + W[v]

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        W_shared = T.alloc_buffer((4,), scope="shared")
        C_local = T.alloc_buffer((4,), scope="local")
        table = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", [4])
        W = T.decl_buffer((4,), data=table)
        for ax0 in range(4):
            with T.block("W_shared"):
                v0 = T.axis.spatial(4, ax0)
                W_shared[v0] = W[v0]
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                C_local[v] = A[v] + W_shared[v]
        for ax0 in range(4):
            with T.block("C_local"):
                v0 = T.axis.spatial(4, ax0)
                C[v0] = C_local[v0]

    sch = Schedule(before)
    sch.cache_read("C", "W", "shared")
    sch.cache_write("C", 0, "local")
    check(sch, before, expected)


def test_cache_inplace_stands_around_the_block():
    @T.prim_func
    def before(A: T.Buffer((32,), "int32")):
        t = T.alloc_buffer((32,), "int32")
        for i in range(32):
            with T.block("in"):
                v = T.axis.spatial(32, i)
                t[v] = A[v]
        for _ in range(1):
            with T.block("call"):
                T.reads(t[0:32])
                T.writes(t[0:32])
                T.evaluate(T.call_extern("void", "sort", t.data))
        for i in range(32):
            with T.block("out"):
                v = T.axis.spatial(32, i)
                A[v] = t[v]

    sch = Schedule(before)
    first, second = sch.cache_inplace("call", 0, "local")
    assert [sch.get(loop).loop_var.name for loop in sch.get_loops(first)] == ["_", "ax0"]
    assert [sch.get(x).name_hint for x in sch.get_child_blocks(sch.get_loops(second)[0])] == [
        "t_local",
        "call",
        "t_local",
    ]
    assert sch.get(sch.get_block("call")).body.value.args[1].same_as(sch.get(first).writes[0].buffer.data)
    with pytest.raises(ScheduleError, match="does not both read and write"):
        sch.cache_inplace("in", 0, "local")


def test_a_block_that_sets_up_its_own_result_can_be_cached():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 8):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                T.reads(C[v], A[v, r])
                T.writes(C[v])
                if r == 0:
                    C[v] = 0.0
                C[v] = C[v] + A[v, r]

    sch = Schedule(before)
    sch.cache_write("C", 0, "local")
    assert {r.buffer.name for r in sch.get(sch.get_block("C")).writes} == {"C_local"}


def test_a_cache_in_a_symbolic_tile_is_as_large_as_the_tile():
    @T.prim_func
    def before(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (n * 16, 8))
        C = T.match_buffer(c, (n * 16, 8))
        for i in range(n):
            with T.block("tile"):
                vo = T.axis.spatial(n, i)
                T.reads(A[vo * 16 : vo * 16 + 16, 0:8])
                T.writes(C[vo * 16 : vo * 16 + 16, 0:8])
                for j, k in T.grid(16, 8):
                    with T.block("C"):
                        vj, vk = T.axis.remap("SS", [j, k])
                        C[vo * 16 + vj, vk] = A[vo * 16 + vj, vk] * 2.0

    @T.prim_func
    def expected(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (n * 16, 8))
        C = T.match_buffer(c, (n * 16, 8))
        for i in range(n):
            with T.block("tile"):
                vo = T.axis.spatial(n, i)
                T.reads(A[vo * 16 : vo * 16 + 16, 0:8])
                T.writes(C[vo * 16 : vo * 16 + 16, 0:8])
                A_shared = T.alloc_buffer((16, 8), scope="shared")
                C_local = T.alloc_buffer((16, 8), scope="local")
                for ax0, ax1 in T.grid(16, 8):
                    with T.block("A_shared"):
                        v0, v1 = T.axis.remap("SS", [ax0, ax1])
                        A_shared[v0, v1] = A[vo * 16 + v0, v1]
                for j, k in T.grid(16, 8):
                    with T.block("C"):
                        vj, vk = T.axis.remap("SS", [j, k])
                        C_local[vj, vk] = A_shared[vj, vk] * 2.0
                for ax0, ax1 in T.grid(16, 8):
                    with T.block("C_local"):
                        v0, v1 = T.axis.remap("SS", [ax0, ax1])
                        C[vo * 16 + v0, v1] = C_local[v0, v1]

    sch = Schedule(before)
    sch.cache_read("C", 0, "shared")
    sch.cache_write("C", 0, "local")
    check(sch, before, expected)


# -- reindex -----------------------------------------------------------------------------------------------


def test_reindex_keeps_unit_variables_and_simplifies_indices():
    @T.prim_func
    def before(A: T.Buffer((1, 9, 3), "float32"), C: T.Buffer((1, 7, 5), "float32")):
        for n, i, o, k, c in T.grid(1, 7, 5, 3, 3):
            with T.block("C"):
                vn, vi, vo, vk, vc = T.axis.remap("SSSRR", [n, i, o, k, c])
                with T.init():
                    C[vn, vi, vo] = 0.0
                C[vn, vi, vo] += A[vn, vk + vi + 0 * vk, vc]

    sch = Schedule(before)
    made = sch.reindex("C", ("read", 0))
    block = sch.get(made)
    assert [int(x) for x in block.writes[0].buffer.shape] == [1, 7, 3, 3]
    assert [iv.var.name for iv in block.iter_vars] == ["v0", "v1", "v2", "v3"]
    assert block.name_hint == "A_reindex_reindex"
    with pytest.raises(ScheduleError, match="more than one index"):
        sch.reindex(two_reads(sch), ("read", 0))


def two_reads(sch):
    """A block of another schedule's program that reads a buffer at two places."""

    @T.prim_func
    def before(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("two"):
                v = T.axis.spatial(8, i)
                C[v] = A[v] + A[v + 1]

    other = Schedule(before)
    sch.replace_state(other.state)
    sch.work_on("main")
    return sch.get_block("two")


# -- padding -----------------------------------------------------------------------------------------------


def test_pad_einsum_keeps_scopes_and_allocates_in_order_of_use():
    @T.prim_func
    def before(A: T.Buffer((7, 8), "float32"), B: T.Buffer((8, 5), "float32"), D: T.Buffer((7, 5), "float32")):
        C = T.alloc_buffer((7, 5), scope="local")
        for i, j, k in T.grid(7, 5, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] += A[vi, vk] * B[vk, vj]
        for i, j in T.grid(7, 5):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj]

    @T.prim_func
    def expected(A: T.Buffer((7, 8), "float32"), B: T.Buffer((8, 5), "float32"), D: T.Buffer((7, 5), "float32")):
        C = T.alloc_buffer((7, 5), scope="local")
        A_pad = T.alloc_buffer((8, 8))
        B_pad = T.alloc_buffer((8, 8))
        C_pad = T.alloc_buffer((8, 8), scope="local")
        for i0, i1 in T.grid(8, 8):
            with T.block("A_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                A_pad[v0, v1] = T.if_then_else(v0 < 7, A[v0, v1], T.float32(0))
        for i0, i1 in T.grid(8, 8):
            with T.block("B_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                B_pad[v0, v1] = T.if_then_else(v1 < 5, B[v0, v1], T.float32(0))
        for i, j, k in T.grid(8, 8, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C_pad[vi, vj] = 0.0
                C_pad[vi, vj] += A_pad[vi, vk] * B_pad[vk, vj]
        for i0, i1 in T.grid(7, 5):
            with T.block("C_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                C[v0, v1] = C_pad[v0, v1]
        for i, j in T.grid(7, 5):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj]

    sch = Schedule(before, debug_mask="all")
    sch.pad_einsum("C", [8, 8, 8])
    check(sch, before, expected)


@T.prim_func
def bordered(A: T.Buffer((1, 20, 30), "int8"), B: T.Buffer((1, 22, 34), "int8")):
    for n, i, j in T.grid(1, 22, 34):
        with T.block("B"):
            vn, vi, vj = T.axis.remap("SSS", [n, i, j])
            B[vn, vi, vj] = T.if_then_else(
                1 <= vi and vi < 21 and 2 <= vj and vj < 32, A[vn, vi - 1, vj - 2], T.int8(0)
            )


def test_decompose_padding_below_a_loop():
    @T.prim_func
    def expected(A: T.Buffer((1, 20, 30), "int8"), B: T.Buffer((1, 22, 34), "int8")):
        for n in range(1):
            for i, j in T.grid(22, 34):
                with T.block("B_pad_const"):
                    vn = T.axis.spatial(1, 0)
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vn, vi, vj] = T.int8(0)
            for i, j in T.grid(20, 30):
                with T.block("B"):
                    vn = T.axis.spatial(1, 0)
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vn, vi + 1, vj + 2] = A[vn, vi, vj]

    sch = Schedule(bordered, debug_mask="all")
    fill = sch.decompose_padding("B", sch.get_loops("B")[1])
    assert sch.get(fill).name_hint == "B_pad_const"
    check(sch, bordered, expected)


def test_decompose_padding_of_a_split_loop_leaves_a_predicate():
    @T.prim_func
    def expected(A: T.Buffer((1, 20, 30), "int8"), B: T.Buffer((1, 22, 34), "int8")):
        for n, i, j_0 in T.grid(1, 22, 2):
            for j_1 in range(17):
                with T.block("B_pad_const"):
                    vn = T.axis.spatial(1, 0)
                    vi = T.axis.spatial(22, i)
                    vj = T.axis.spatial(34, j_0 * 17 + j_1)
                    B[vn, vi, vj] = T.int8(0)
            for j_1 in T.vectorized(17):
                with T.block("B"):
                    vn = T.axis.spatial(1, 0)
                    vi = T.axis.spatial(20, i - 1)
                    vj = T.axis.spatial(30, j_0 * 17 + j_1 - 2)
                    T.where(1 <= i and i < 21 and 2 <= j_0 * 17 + j_1 and j_0 * 17 + j_1 < 32)
                    B[vn, vi + 1, vj + 2] = A[vn, vi, vj]

    sch = Schedule(bordered)
    _, inner = sch.split(sch.get_loops("B")[2], [2, 17])
    sch.vectorize(inner)
    sch.decompose_padding("B", inner)
    check(sch, bordered, expected)


@pytest.mark.parametrize(
    "value, message",
    [
        (lambda A, v: A[v], "constrained by a padding predicate"),
        (lambda A, v: T.if_then_else(0 <= v, A[v], T.float32(0)), "predicate is trivial"),
        (lambda A, v: T.if_then_else(2 <= v, A[v], A[0]), "Pad value should be constant"),
        (lambda A, v: T.if_then_else(v % 3 != 1, A[v], T.float32(0)), "not independent"),
    ],
)
def test_what_is_no_padding(value, message):
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = value(A, v)

    sch = Schedule(before)
    (loop,) = sch.get_loops("B")
    assert not sch.can_decompose_padding("B", loop)
    with pytest.raises(ScheduleError, match=message):
        sch.decompose_padding("B", loop)


# -- index caches ------------------------------------------------------------------------------------------


@T.prim_func
def stretched(A: T.Buffer((10,), "float32"), B: T.Buffer((4, 5), "float32")):
    for i, j in T.grid(4, 5):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[T.min(vi * 3 // 2 + vj // 2, 9)] * A[vi * 3 // 2] - A[T.max(vi * 3 // 2, 1)]


def test_cache_index_takes_what_occurs_often_enough():
    sch = Schedule(stretched)
    assert len(sch.cache_index("B", "global")) == 3
    sch = Schedule(stretched)
    (made,) = sch.cache_index("B", "global", 3)
    assert str(sch.get(made).body.value) == "v0 * 3 // 2"
    text = outline(sch, "B")
    assert text.count("index_var_0[vi]") == 3
    verify_trace_roundtrip(sch, stretched)
    assert Schedule(stretched).cache_index("B", "global", 4) == []


# -- properties --------------------------------------------------------------------------------------------


@T.prim_func
def viewed(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(B[vi, vj])
            S = T.match_buffer(B[vi, vj], (1, 1), offset_factor=1)
            S[0, 0] = A[vi, vj] * 2.0
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


def test_views_follow_the_type_of_what_they_view():
    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8), "float16")
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                S = T.match_buffer(B[vi, vj], (1, 1), "float16", offset_factor=1)
                S[0, 0] = T.cast(A[vi, vj] * 2.0, "float16")
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.cast(B[vi, vj], "float32") + 1.0

    sch = Schedule(viewed, debug_mask="all")
    sch.unsafe_set_dtype("B", 0, "float16")
    check(sch, viewed, expected)


def test_views_follow_the_separators_and_scope_of_what_they_view():
    sch = Schedule(viewed, debug_mask="all")
    sch.set_axis_separator("B", "B", [1])
    view = sch.get(sch.get_block("B")).match_buffers[0].buffer
    assert [int(x) for x in view.axis_separators] == [1]
    sch.set_scope("B", 0, "shared")
    block = sch.get(sch.get_block("B"))
    assert block.match_buffers[0].buffer.scope() == "shared"
    assert block.body.buffer is block.match_buffers[0].buffer


def test_storage_align_replaces_in_place():
    sch = Schedule(viewed)
    sch.storage_align("B", 0, axis=0, factor=16, offset=1)
    sch.storage_align("B", 0, axis=1, factor=8, offset=2)
    sch.storage_align("B", 0, axis=0, factor=32, offset=3)
    text = outline(sch, "B")
    assert '"buffer_dim_align": [[0, 0, 32, 3], [0, 1, 8, 2]]' in text
    sch.annotate(sch.get_block("C"), "buffer_dim_align", 0)
    with pytest.raises(ScheduleError, match="4-integer-tuples"):
        sch.cache_write("C", 0, "local")
        sch.storage_align("C", 0, axis=0, factor=32, offset=3)


# -- moving ------------------------------------------------------------------------------------------------


def test_compute_at_through_nested_quotients_and_remainders():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32"), C: T.Buffer((128,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]
        for i in range(128):
            with T.block("C"):
                v = T.axis.spatial(128, i)
                C[v] = B[v // 4 // 8]

    sch = Schedule(before)
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert [str(loop.extent) for loop in map(sch.get, sch.get_loops("C"))] == ["4", "32"]
    assert str(sch.mod).count("i * 32 + ax0") == 1


def test_rolling_axes_become_opaque():
    @T.prim_func
    def before(A: T.Buffer((10,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((10,))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = A[v] * 2.0
        for i, k in T.grid(8, 3):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = 0.0
                C[v] += B[v + r]

    sch = Schedule(before)
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("B", outer)
    sch.rolling_buffer("B", 0)
    assert [iv.iter_type for iv in sch.get(sch.get_block("C")).iter_vars] == [IterVar.Opaque, IterVar.CommReduce]


# -- refusals ----------------------------------------------------------------------------------------------


@T.prim_func
def row_sums(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
    for i, k in T.grid(6, 8):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = 0.0
            B[v] += A[v, r]


@pytest.mark.parametrize(
    "act",
    [
        lambda sch, b: sch.cache_write(b, 0, "local"),
        lambda sch, b: sch.write_at(sch.get_loops(b)[0], b, 0, "local"),
        lambda sch, b: sch.reindex(b, ("write", 0)),
        lambda sch, b: sch.reindex_cache_write(b, 0, "local", lambda r: (r,)),
    ],
)
def test_a_result_that_is_begun_outside_is_not_cached(act):
    sch = Schedule(row_sums)
    outer = sch.blockize(sch.get_loops("B")[1])
    (inner,) = sch.get_child_blocks(outer)
    with pytest.raises(ScheduleError):
        act(sch, inner)


def test_padding_must_not_overwrite_results():
    @T.prim_func
    def unit(A: T.Buffer((1, 6), "float32"), B: T.Buffer((6, 1), "float32")):
        for i, j in T.grid(1, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj, 0] = A[vi, vj]

    with pytest.raises(ScheduleError, match="would overwrite results"):
        Schedule(unit).pad_einsum("B", [2, 4])
    sch = Schedule(unit)
    sch.pad_einsum("B", [1, 4])
    assert "B_pad" in str(sch.mod)
    split = Schedule(unit)
    split.split(split.get_loops("B")[1], [2, 3])
    with pytest.raises(ScheduleError, match="must be bound to a loop"):
        split.pad_einsum("B", [1, 4])


def test_arguments_of_the_wrong_type():
    sch = Schedule(row_sums)
    loop = sch.get_loops("B")[0]
    for act in (
        lambda: sch.compute_at("B", loop, False, "first"),
        lambda: sch.storage_align("B", 0, 0, "16", 1),
        lambda: sch.cache_index("B", "global", 1.5),
        lambda: sch.read_at(loop, "B", "A", "shared"),
        lambda: sch.pad_einsum("B", [1.0, 2.0]),
        lambda: sch.rolling_buffer("B", None),
    ):
        with pytest.raises(TypeError):
            act()


def test_write_at_needs_a_block_that_always_runs():
    sch = Schedule(bordered)
    sch.decompose_padding("B", sch.get_loops("B")[2])
    inner = sch.get_loops("B")[2]
    with pytest.raises(ScheduleError, match="sure to be written"):
        sch.write_at(inner, "B", 0, "local")
