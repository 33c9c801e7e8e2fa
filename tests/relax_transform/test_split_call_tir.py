"""SplitCallTIRByPattern: parts of kernels for a library."""

from __future__ import annotations

from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.relax.analysis import well_formed
from relaxish.relax.expr import ExternFunc
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@T.prim_func
def matmul_pattern(a: T.handle, b: T.handle, c: T.handle, M: T.int64, N: T.int64, K: T.int64) -> None:
    A = T.match_buffer(a, (M, K), "float16")
    B = T.match_buffer(b, (K, N), "float16")
    C = T.match_buffer(c, (M, N), "float16")
    for i, j, k in T.grid(M, N, K):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float16(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def bias_pattern(a: T.handle, b: T.handle, c: T.handle, M: T.int64, N: T.int64) -> None:
    A = T.match_buffer(a, (M, N), "float16")
    B = T.match_buffer(b, (N,), "float16")
    C = T.match_buffer(c, (M, N), "float16")
    for i, j in T.grid(M, N):
        with T.block("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj], B[vj])
            T.writes(C[vi, vj])
            C[vi, vj] = A[vi, vj] + B[vj]


@I.ir_module
class Before:
    @T.prim_func(private=True)
    def fused(
        A: T.Buffer((T.int64(16), T.int64(32)), "float16"),
        B: T.Buffer((T.int64(32), T.int64(8)), "float16"),
        D: T.Buffer((T.int64(8),), "float16"),
        E: T.Buffer((T.int64(16), T.int64(8)), "float16"),
    ):
        T.func_attr({"op_pattern": 4, "tir.noalias": T.bool(True)})
        C = T.alloc_buffer((T.int64(16), T.int64(8)), "float16")
        F = T.alloc_buffer((T.int64(16), T.int64(8)), "float16")
        for i, j, k in T.grid(T.int64(16), T.int64(8), T.int64(32)):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float16(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(T.int64(16), T.int64(8)):
            with T.block("bias"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(C[vi, vj], D[vj])
                T.writes(F[vi, vj])
                F[vi, vj] = D[vj] + C[vi, vj]
        for i, j in T.grid(T.int64(16), T.int64(8)):
            with T.block("relu"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(F[vi, vj])
                T.writes(E[vi, vj])
                E[vi, vj] = T.max(F[vi, vj], T.float16(0))

    @R.function
    def main(
        x: R.Tensor((16, 32), "float16"), w: R.Tensor((32, 8), "float16"), b: R.Tensor((8,), "float16")
    ) -> R.Tensor((16, 8), "float16"):
        with R.dataflow():
            gv = R.call_tir(Before.fused, (x, w, b), out_sinfo=R.Tensor((16, 8), "float16"))
            R.output(gv)
        return gv


def _codegen(count):
    seen = []

    def codegen(matches):
        seen.append(matches)
        buffers = [*matches[0].matched_buffers[:2], *(matches[1].matched_buffers[1:2] if count > 1 else [])]
        return ["// {global_symbol}", min(count, len(matches)), buffers]

    return codegen, seen


def test_a_matched_start_becomes_a_library_call():
    codegen, seen = _codegen(2)
    after = transform.SplitCallTIRByPattern([matmul_pattern, bias_pattern], codegen)(Before)

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def unfused_epilogue(
            F: T.Buffer((T.int64(16), T.int64(8)), "float16"), E: T.Buffer((T.int64(16), T.int64(8)), "float16")
        ):
            T.func_attr({"op_pattern": 4, "tir.noalias": T.bool(True)})
            for i, j in T.grid(T.int64(16), T.int64(8)):
                with T.block("relu"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(F[vi, vj])
                    T.writes(E[vi, vj])
                    E[vi, vj] = T.max(F[vi, vj], T.float16(0))

        @R.function
        def main(
            x: R.Tensor((16, 32), "float16"), w: R.Tensor((32, 8), "float16"), b: R.Tensor((8,), "float16")
        ) -> R.Tensor((16, 8), "float16"):
            with R.dataflow():
                lv = R.call_dps_packed("fused", (x, w, b), out_sinfo=R.Tensor((16, 8), "float16"))
                gv = R.call_tir(Expected.unfused_epilogue, (lv,), out_sinfo=R.Tensor((16, 8), "float16"))
                R.output(gv)
            return gv

    for name in ("main", "unfused_epilogue"):
        assert_structural_equal(after[name], Expected[name], map_free_vars=True)
    assert well_formed(after)
    assert_structural_equal(after["fused"], Before["fused"])
    assert [len(matches) for matches in seen] == [2]
    first, second = seen[0]
    assert [b.name for b in first.matched_buffers] == ["A", "B", "C"]
    assert [b.name for b in second.matched_buffers] == ["C", "D", "F"]
    assert [int(v) for v in first.symbol_values] == [16, 8, 32]


def test_the_code_generator_may_take_less_or_nothing():
    codegen, _ = _codegen(1)
    after = transform.SplitCallTIRByPattern([matmul_pattern, bias_pattern], codegen)(Before)
    assert len(after["unfused_epilogue"].params) == 3
    nothing = transform.SplitCallTIRByPattern([matmul_pattern], lambda matches: ["", 0, []])(Before)
    assert_structural_equal(nothing, Before)
    assert_structural_equal(transform.SplitCallTIRByPattern([bias_pattern], codegen)(Before), Before)


def test_a_whole_kernel_becomes_the_external_function():
    @I.ir_module
    class Whole:
        @T.prim_func(private=True)
        def product(
            A: T.Buffer((T.int64(4), T.int64(4)), "float16"),
            B: T.Buffer((T.int64(4), T.int64(4)), "float16"),
            C: T.Buffer((T.int64(4), T.int64(4)), "float16"),
        ):
            for i, j, k in T.grid(T.int64(4), T.int64(4), T.int64(4)):
                with T.block("product"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float16(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

        @R.function
        def main(x: R.Tensor((4, 4), "float16"), w: R.Tensor((4, 4), "float16")) -> R.Tensor((4, 4), "float16"):
            gv = R.call_tir(Whole.product, (x, w), out_sinfo=R.Tensor((4, 4), "float16"))
            return gv

    codegen, _ = _codegen(1)
    after = transform.SplitCallTIRByPattern([matmul_pattern], codegen)(Whole)
    library = after["product"]
    assert isinstance(library, ExternFunc)
    assert library.attrs["c_source"] == "// product" and library.attrs["c_source_fmt"] == "cu"
    call = after["main"].body.blocks[0].bindings[0].value
    assert call.op.name == "relax.call_dps_packed" and call.args[0].global_symbol == "product"
