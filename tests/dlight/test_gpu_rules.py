"""The GPU rules: each scheduled program computes what the unscheduled one does, on random shapes, and is bound to threads."""

from __future__ import annotations

import numpy as np
import pytest
from programs.gpu import CASES, N, elementwise, matmul, softmax, typed_product

from relaxish import dlight, interp, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.functor import post_order_visit
from relaxish.relax.transform import LegalizeOps
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.target import Target

CUDA = Target("nvidia/geforce-rtx-3090-ti")
rng = np.random.default_rng(7)


@pytest.mark.parametrize("name", CASES)
def test_same_result(name):
    rule, func, shapes = CASES[name]
    schedule = rule.apply(func, CUDA, False)
    assert schedule is not None
    data = [rng.standard_normal(s).astype("float32") for s in shapes]
    wanted, got = [d.copy() for d in data], [d.copy() for d in data]
    interp.run_prim_func(func, wanted)
    interp.run_prim_func(schedule.mod["main"], got)
    np.testing.assert_allclose(got[-1], wanted[-1], rtol=1e-4, atol=1e-4)
    assert {"blockIdx.x", "threadIdx.x"} <= threads_of(schedule.mod["main"])


def threads_of(func):
    found = set()

    def look(node):
        if isinstance(node, tir.For) and node.thread_binding is not None:
            found.add(node.thread_binding.thread_tag)

    post_order_visit(func.body, look)
    return found


@pytest.mark.parametrize(
    "rule, func",
    [
        (dlight.gpu.Matmul(), elementwise(4, 4)),
        (dlight.gpu.GEMV(), elementwise(4, 4)),
        (dlight.gpu.GEMV(), matmul(16, 16, 16)),
        (dlight.gpu.Reduction(), softmax(4, 4)),
        (dlight.gpu.GeneralReduction(), elementwise(4, 4)),
        (dlight.gpu.Transpose(), elementwise(4, 4)),
        (dlight.gpu.RMSNorm(), softmax(4, 4)),
    ],
)
def test_not_mine(rule, func):
    assert rule.apply(func, CUDA, False) is None


def test_only_gpus():
    assert dlight.gpu.Fallback().apply(elementwise(4, 4), Target("llvm"), False) is None


def test_fallback_text():
    @T.prim_func
    def expected(
        A: T.Buffer((T.int64(30), T.int64(41)), "float32"), out: T.Buffer((T.int64(30), T.int64(41)), "float32")
    ):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "main"})
        for bx in T.thread_binding(T.int64(2), thread="blockIdx.x"):
            for tx in T.thread_binding(T.int64(1024), thread="threadIdx.x"):
                with T.block("compute"):
                    v0 = T.axis.spatial(T.int64(30), (bx * T.int64(1024) + tx) // T.int64(41))
                    v1 = T.axis.spatial(T.int64(41), (bx * T.int64(1024) + tx) % T.int64(41))
                    T.where(bx * T.int64(1024) + tx < T.int64(1230))
                    out[v0, v1] = T.max(A[v0, v1] + A[v0, v1], T.float32(0))

    with CUDA:
        made = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(
            IRModule({"main": elementwise(30, 41)})
        )
    assert_structural_equal(made["main"].without_attr("global_symbol"), expected.without_attr("global_symbol"))


@pytest.mark.parametrize(
    "extents, threads", [([1000], [512]), ([4, 1000], [4, 256]), ([3], [2]), ([2048, 2], [1024, 1])]
)
def test_suggested_threads(extents, threads):
    from relaxish.dlight.base import suggest_threads_per_block

    loops = [tir.For(tir.Var("i"), 0, e, tir.ForKind.SERIAL, tir.Evaluate(0)) for e in extents]
    assert suggest_threads_per_block(Target("cuda"), loops) == threads


def test_suggested_threads_for_unknown_extents():
    from relaxish.dlight.base import suggest_threads_per_block

    loops = [tir.For(tir.Var("i"), 0, e, tir.ForKind.SERIAL, tir.Evaluate(0)) for e in (tir.Var("n"), 8)]
    assert suggest_threads_per_block(Target("cuda"), loops) == [128, 8]


@pytest.mark.parametrize(
    "dtype, out_dtype, rows",
    [("float16", "float16", 128), ("float16", "float32", 70), ("int8", "int32", 128), ("float16", "float32", N)],
)
def test_tensor_cores(dtype, out_dtype, rows):
    func = typed_product(rows, 128, 128, dtype, out_dtype)
    schedule = dlight.gpu.Matmul().apply(func, Target("nvidia/nvidia-a100"), False)
    made = schedule.mod["main"]
    assert "tvm_mma_sync" in made.script() and "wmma.accumulator" in made.script()
    m = 70 if rows is N else rows
    if dtype == "int8":
        a, b = (rng.integers(-128, 128, (r, 128)).astype(dtype) for r in (m, 128))
    else:
        a, b = (rng.standard_normal((r, 128)).astype(dtype) for r in (m, 128))
    out = np.empty((m, 128), out_dtype)
    interp.run_prim_func(made, [a, b, out])
    wanted = a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(out, wanted, rtol=0, atol=0 if dtype == "int8" else 0.2 if out_dtype == dtype else 1e-3)


def test_short_sides_and_requests_stay_off_tensor_cores():
    short = typed_product(128, 64, 128, "float16", "float16")
    asked = typed_product(128, 128, 128, "float16", "float16").with_attr("dlight.do_not_tensorize", True)
    for func in (short, asked):
        schedule = dlight.gpu.Matmul().apply(func, Target("nvidia/nvidia-a100"), False)
        assert "tvm_mma_sync" not in schedule.mod["main"].script()


def test_a_rule_that_fails_makes_way_for_the_next(caplog):
    @dlight.ScheduleRule.from_callable("Broken")
    def broken(func, target, tunable):
        tir.Schedule(func).get_block("no such block")

    with CUDA, caplog.at_level("WARNING"):
        made = dlight.ApplyDefaultSchedule(broken, dlight.gpu.Fallback())(IRModule({"main": elementwise(4, 4)}))
    assert made["main"].attrs["tir.is_scheduled"]
    assert "Broken does not fit main" in caplog.text


def test_reductions_that_a_row_needs_all_of_are_not_put_into_shared_memory():
    """A group norm of a dynamic batch: which sums a row needs is not seen through its reshapes."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor(("n", 8, "h", "w"), "float32"), g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")
        ):
            return R.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3])

    mod = LegalizeOps()(Module)
    with CUDA:
        assert not _scheduled(dlight.ApplyDefaultSchedule(dlight.gpu.GeneralReduction())(mod))
        assert _scheduled(dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(CUDA))(mod))


def _scheduled(mod):
    return all(f.attrs.get("tir.is_scheduled") for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
