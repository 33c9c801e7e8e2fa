"""Each primitive against the program it must give, then a round trip of the trace through text and JSON."""

from __future__ import annotations

import pytest

from relaxish import te, tir
from relaxish.ir import structural_equal
from relaxish.script import tir as T
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


@T.prim_func
def chain(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    B = T.alloc_buffer((128, 128))
    for i, j in T.grid(128, 128):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(128, 128):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0


@T.prim_func
def matmul(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 128):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def check(sch, expected, mod):
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, mod)


def make(func):
    return Schedule(func, debug_mask="all")


def test_split_with_predicate():
    @T.prim_func
    def expected(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
        for i_0, i_1, j in T.grid(5, 30, 128):
            with T.block("C"):
                vi = T.axis.spatial(128, i_0 * 30 + i_1)
                vj = T.axis.spatial(128, j)
                T.where(i_0 * 30 + i_1 < 128)
                C[vi, vj] = A[vi, vj] * 2.0 + 1.0

    sch = make(chain)
    sch.compute_inline("B")
    i, _ = sch.get_loops("C")
    sch.split(i, [None, 30])
    check(sch, expected, chain)


def test_fuse_split_reorder():
    @T.prim_func
    def expected(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
        for ij in T.parallel(64):
            for j1 in T.serial(16):
                for i1 in T.serial(16):
                    with T.block("C"):
                        vi = T.axis.spatial(128, ij // 8 * 16 + i1)
                        vj = T.axis.spatial(128, ij % 8 * 16 + j1)
                        C[vi, vj] = A[vi, vj] * 2.0 + 1.0

    sch = make(chain)
    sch.reverse_compute_inline("C")
    i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [8, 16])
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(i0, j0, j1, i1)
    sch.parallel(sch.fuse(i0, j0))
    check(sch, expected, chain)


def test_unit_loops_are_kept_in_bindings():
    sch = make(matmul)
    k = sch.get_loops("C")[2]
    sch.split(k, [1, 32, 4])
    text = sch.mod.script()
    assert "k_0 * 128 + k_1 * 4 + k_2" in text
    verify_trace_roundtrip(sch, matmul)


def test_compute_at():
    @T.prim_func
    def expected(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
        B = T.alloc_buffer((128, 128))
        for i0, j0 in T.grid(8, 16):
            for ax0, ax1 in T.grid(16, 8):
                with T.block("B"):
                    vi = T.axis.spatial(128, i0 * 16 + ax0)
                    vj = T.axis.spatial(128, j0 * 8 + ax1)
                    B[vi, vj] = A[vi, vj] * 2.0
            for i1, j1 in T.grid(16, 8):
                with T.block("C"):
                    vi = T.axis.spatial(128, i0 * 16 + i1)
                    vj = T.axis.spatial(128, j0 * 8 + j1)
                    C[vi, vj] = B[vi, vj] + 1.0

    sch = make(chain)
    i, j = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at("B", j0)
    check(sch, expected, chain)


def test_cache_and_reverse_compute_at():
    @T.prim_func
    def expected(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        C_local = T.alloc_buffer((128, 128), scope="local")
        A_shared = T.alloc_buffer((128, 128), scope="shared")
        for i_0 in range(8):
            for k_0 in range(16):
                for ax0, ax1 in T.grid(16, 8):
                    with T.block("A_shared"):
                        v0 = T.axis.spatial(128, i_0 * 16 + ax0)
                        v1 = T.axis.spatial(128, k_0 * 8 + ax1)
                        A_shared[v0, v1] = A[v0, v1]
                for i_1, j, k_1 in T.grid(16, 128, 8):
                    with T.block("C"):
                        vi = T.axis.spatial(128, i_0 * 16 + i_1)
                        vj = T.axis.spatial(128, j)
                        vk = T.axis.reduce(128, k_0 * 8 + k_1)
                        with T.init():
                            C_local[vi, vj] = 0.0
                        C_local[vi, vj] = C_local[vi, vj] + A_shared[vi, vk] * B[vk, vj]
            for ax0, ax1 in T.grid(16, 128):
                with T.block("C_local"):
                    v0 = T.axis.spatial(128, i_0 * 16 + ax0)
                    v1 = T.axis.spatial(128, ax1)
                    C[v0, v1] = C_local[v0, v1]

    sch = make(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 16])
    k0, k1 = sch.split(k, [None, 8])
    sch.reorder(i0, k0, i1, j, k1)
    out = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(out, i0)
    read = sch.cache_read(block, 0, "shared")
    sch.compute_at(read, k0)
    check(sch, expected, matmul)


def test_decompose_reduction_drops_foreign_predicates():
    sch = make(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    k0, k1 = sch.split(k, [None, 30])
    sch.reorder(k0, i, j, k1)
    init = sch.decompose_reduction(block, k0)
    assert sch.get(init).name_hint == "C_init"
    assert "T.where" in sch.mod.script()
    node = sch.state.stmt2ref[sch.get(init)]
    assert len(sch.get_loops(init)) == 2
    assert node.stmt.init is None
    verify_trace_roundtrip(sch, matmul)


def test_rfactor():
    @T.prim_func
    def expected(
        A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")
    ):
        C_rf = T.alloc_buffer((8, 128, 128))
        for i, j, k_0, k_1 in T.grid(128, 128, 16, 8):
            with T.block("C_rf"):
                vk_1, vi, vj, vk_0 = T.axis.remap("SSSR", [k_1, i, j, k_0])
                with T.init():
                    C_rf[vk_1, vi, vj] = 0.0
                C_rf[vk_1, vi, vj] = C_rf[vk_1, vi, vj] + A[vi, vk_0 * 8 + vk_1] * B[vk_0 * 8 + vk_1, vj]
        for i, j, k_1 in T.grid(128, 128, 8):
            with T.block("C"):
                vk_1, vi, vj = T.axis.remap("RSS", [k_1, i, j])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + C_rf[vk_1, vi, vj]

    sch = make(matmul)
    k = sch.get_loops("C")[2]
    _, k1 = sch.split(k, [None, 8])
    sch.rfactor(k1, 0)
    check(sch, expected, matmul)


def test_blockize_and_tensorize_amx():
    @T.prim_func
    def packed(
        A: T.Buffer((64, 128), "bfloat16"), B: T.Buffer((64, 32, 2), "bfloat16"), C: T.Buffer((64, 32), "float32")
    ):
        for i, j, k in T.grid(64, 32, 128):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "float32") * T.cast(B[vk // 2, vj, vk % 2], "float32")

    sch = make(packed)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 32])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.decompose_reduction(block, k0)
    sch.tensorize(i1, "amx_dot_16x16x32_bf16bf16f32")
    text = sch.mod.script()
    assert "amx.tdpbf16ps" in text and "B[vk_o * 16:vk_o * 16 + 16, vj_o * 16:vj_o * 16 + 16, 0:2]" in text
    verify_trace_roundtrip(sch, packed)


def test_tensorize_mismatch_says_why():
    sch = make(matmul)
    i, j, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="does not match"):
        sch.tensorize(i, "dot_16x4_vnni")


def test_transform_layout_and_block_layout():
    @T.prim_func
    def expected(A: T.Buffer((128, 128), "float32"), C: T.Buffer((8, 8, 16, 16), "float32")):
        B = T.alloc_buffer((8, 8, 16, 16))
        for i, j in T.grid(128, 128):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 16, vj // 16, vi % 16, vj % 16] = A[vi, vj] * 2.0
        for a, b, c, d in T.grid(8, 8, 16, 16):
            with T.block("C"):
                v0, v1, v2, v3 = T.axis.remap("SSSS", [a, b, c, d])
                T.reads(B[(v0 * 16 + v2) // 16, (v1 * 16 + v3) // 16, (v0 * 16 + v2) % 16, (v1 * 16 + v3) % 16])
                T.writes(C[(v0 * 16 + v2) // 16, (v1 * 16 + v3) // 16, (v0 * 16 + v2) % 16, (v1 * 16 + v3) % 16])
                C[(v0 * 16 + v2) // 16, (v1 * 16 + v3) // 16, (v0 * 16 + v2) % 16, (v1 * 16 + v3) % 16] = (
                    B[(v0 * 16 + v2) // 16, (v1 * 16 + v3) // 16, (v0 * 16 + v2) % 16, (v1 * 16 + v3) % 16] + 1.0
                )

    def tile(i, j):
        return [i // 16, j // 16, i % 16, j % 16]

    sch = make(chain)
    sch.transform_layout("C", ("read", 0), tile)
    sch.transform_layout("C", ("write", 0), tile)
    sch.transform_block_layout("C", tile)
    check(sch, expected, chain)


def test_block_layout_with_a_dynamic_stride():
    @T.prim_func
    def before(a: T.handle, b: T.handle, n: T.int64):
        m = T.int64()
        A = T.match_buffer(a, (m, n))
        B = T.match_buffer(b, (m, n))
        for i, j in T.grid(m, n):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)

    @T.prim_func
    def expected(a: T.handle, b: T.handle, n: T.int64):
        m = T.int64()
        A = T.match_buffer(a, (m, n))
        B = T.match_buffer(b, (m, n))
        for ax in range(n * m):
            with T.block("B"):
                v = T.axis.spatial(n * m, ax)
                B[v // n, v % n] = A[v // n, v % n] * T.float32(2.0)

    sch = make(before)
    size = before.params[2]
    sch.transform_block_layout("B", lambda i, j: [i * size + j])
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)


def test_reindex():
    sch = make(matmul)
    made = sch.reindex("C", ("read", 1))
    assert sch.get(made).name_hint == "B_reindex_reindex"
    verify_trace_roundtrip(sch, matmul)


def test_pad_einsum():
    a = te.placeholder((127, 127), "float32", name="A")
    k = te.reduce_axis((0, 127), name="k")
    c = te.compute((127, 127), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="C")
    func = te.create_prim_func([a, c])
    sch = make(func)
    with pytest.raises(ScheduleError, match="Einsum pattern"):
        sch.pad_einsum("C", [32, 32, 32])


def test_decompose_padding():
    @T.prim_func
    def before(x: T.Buffer((128,), "int32"), y: T.Buffer((140,), "int32")):
        for i in range(140):
            with T.block("block"):
                vi = T.axis.remap("S", [i])
                y[vi] = T.if_then_else(vi >= 6 and vi < 134, x[vi - 6], 0)

    @T.prim_func
    def expected(x: T.Buffer((128,), "int32"), y: T.Buffer((140,), "int32")):
        for i in range(140):
            with T.block("block_pad_const"):
                vi = T.axis.spatial(140, i)
                T.reads()
                T.writes(y[vi])
                y[vi] = 0
        for i in range(128):
            with T.block("block"):
                vi = T.axis.spatial(128, i)
                T.reads(x[vi])
                T.writes(y[vi + 6])
                y[vi + 6] = x[vi]

    sch = make(before)
    block = sch.get_block("block")
    assert sch.can_decompose_padding(block, sch.get_loops(block)[0])
    sch.decompose_padding(block, sch.get_loops(block)[0])
    check(sch, expected, before)


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.merge(s.get_loops("B")[1], s.get_loops("C")[1]),
        lambda s: s.loop_partition(s.get_loops("B")[0], [2, None]),
        lambda s: s.annotate_buffer_access("B", 0, "read", lambda i, j: [(i, i + 2), j]),
        lambda s: s.unsafe_hide_buffer_access("C", "read", [0]),
        lambda s: s.storage_align("B", 0, 0, 32, 8),
        lambda s: s.set_scope("B", 0, "shared"),
        lambda s: s.unsafe_set_dtype("B", 0, "float16"),
        lambda s: s.set_axis_separator("B", ("write", 0), [1]),
        lambda s: s.reorder_block_iter_var("C", [1, 0]),
        lambda s: s.add_unit_loop(s.get_loops("C")[1]),
        lambda s: s.annotate(s.get_loops("C")[0], "pragma_auto_unroll_max_step", 16),
        lambda s: s.annotate("C", "list", [1, "two", 3.5]),
        lambda s: s.bind(s.get_loops("C")[0], "threadIdx.x"),
    ],
)
def test_small_primitives_round_trip(act):
    sch = make(chain)
    act(sch)
    assert not structural_equal(sch.mod["main"], chain.with_attr("global_symbol", "main"))
    verify_trace_roundtrip(sch, chain)


def test_errors():
    sch = make(matmul)
    i, j, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="vectorize"):
        sch.vectorize(k)
    with pytest.raises(ScheduleError, match="cannot be"):
        sch.parallel(k)
    with pytest.raises(ScheduleError):
        sch.fuse(i, k)
    with pytest.raises(ScheduleError):
        sch.split(i, [2, 3])
    with pytest.raises(ScheduleError):
        sch.get_block("nothing")
    with pytest.raises(ScheduleError):
        sch.compute_inline("C")
    with pytest.raises(TypeError):
        sch.split(sch.get_block("C"), [None, 2])
    fast = Schedule(matmul, error_render_level="fast")
    with pytest.raises(ScheduleError) as info:
        fast.vectorize(fast.get_loops("C")[2])
    assert "prim_func" not in str(info.value)


def test_failed_primitive_leaves_no_trace():
    sch = make(matmul)
    k = sch.get_loops("C")[2]
    before, length = sch.mod, len(sch.trace.insts)
    with pytest.raises(ScheduleError):
        sch.vectorize(k)
    assert len(sch.trace.insts) == length
    assert structural_equal(before, sch.mod)


def test_copy_is_independent():
    sch = make(chain)
    i, j = sch.get_loops("C")
    other = sch.copy()
    sch.split(i, [None, 2])
    assert len(other.get_loops("C")) == 2
    other.vectorize(j)
    assert sch.get(j).kind == tir.ForKind.SERIAL
