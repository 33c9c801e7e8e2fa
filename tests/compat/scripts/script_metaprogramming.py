"""TVMScript written by Python: programs with parameters, macros, parsed and printed again, and schedules of them."""

import numpy as np
import pytest
import tvm
from tvm.script import from_source
from tvm.script import tir as T


@T.macro(hygienic=False)
def accumulate(out, value):
    out[vi, vj] = out[vi, vj] + value


def matmul(n: int, dtype: str, transposed: bool):
    @T.prim_func
    def main(a: T.handle, b: T.handle, c: T.handle) -> None:
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        A = T.match_buffer(a, (n, n), dtype)
        B = T.match_buffer(b, (n, n), dtype)
        C = T.match_buffer(c, (n, n), dtype)
        for i, j, k in T.grid(n, n, n):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.cast(0, dtype)
                if transposed:
                    accumulate(C, A[vi, vk] * B[vj, vk])
                else:
                    accumulate(C, A[vi, vk] * B[vk, vj])

    return main


def main():
    for dtype in ("float32", "int32"):
        for transposed in (False, True):
            func = matmul(16, dtype, transposed)
            again = from_source(func.script())
            tvm.ir.assert_structural_equal(func, again)
            sch = tvm.tir.Schedule(func)
            block = sch.get_block("C")
            i, j, k = sch.get_loops(block)
            io, ii = sch.split(i, [None, 4])
            sch.reorder(io, j, k, ii)
            sch.parallel(io)
            with pytest.raises(tvm.tir.ScheduleError):
                sch.vectorize(k)
            replayed = tvm.tir.Schedule(func)
            sch.trace.apply_to_schedule(replayed, remove_postproc=False)
            tvm.ir.assert_structural_equal(sch.mod, replayed.mod)
            built = tvm.compile(sch.mod, target="llvm")
            rng = np.random.default_rng(3)
            a, b = ((rng.random((16, 16)) * 10).astype(dtype) for _ in range(2))
            c = tvm.nd.empty((16, 16), dtype)
            built["main"](tvm.nd.array(a), tvm.nd.array(b), c)
            tvm.testing.assert_allclose(c.numpy(), a @ (b.T if transposed else b), rtol=1e-5)
    print("metaprogramming is right")


if __name__ == "__main__":
    main()
