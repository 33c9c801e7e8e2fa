"""Programs over distributed tensors, and all-reduces between GPUs."""

from __future__ import annotations

import pytest

from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.relax.distributed.transform import LegalizeRedistribute, LowerDistIR
from relaxish.runtime.registry import register_func, remove_global_func
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import InternalError


def test_redistribution_is_legalized():
    @I.ir_module
    class Before:
        I.module_attrs({"device_num": 4})
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.DTensor((6, 4), "float32", "mesh[0]", "R")):
            a = R.dist.redistribute(x, device_mesh="mesh[0]", placement="S[0]")
            b = R.dist.redistribute(a, device_mesh="mesh[0]", placement="S[0]")
            return b

    after = LegalizeRedistribute()(Before)
    first, second = after["main"].body.blocks[0].bindings
    assert first.value.op.name == "relax.dist.redistribute_replica_to_shard"
    assert (int(first.value.attrs.num_workers), int(first.value.attrs.axis)) == (2, 0)
    assert str(first.var.struct_info.placement) == "S[0]"
    assert second.value is first.var

    @I.ir_module
    class Gathers:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.DTensor((6, 4), "float32", "mesh[0]", "S[0]")):
            a = R.dist.redistribute(x, device_mesh="mesh[0]", placement="R")
            return a

    with pytest.raises(InternalError, match="Allgather"):
        LegalizeRedistribute()(Gathers)


def test_each_worker_gets_its_part():
    @I.ir_module
    class Before:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @T.prim_func(private=True)
        def double(X: T.Buffer((T.int64(3), T.int64(4)), "float32"), Y: T.Buffer((T.int64(3), T.int64(4)), "float32")):
            for i, j in T.grid(T.int64(3), T.int64(4)):
                with T.block("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj] + X[vi, vj]

        @R.function
        def main(
            x: R.DTensor((6, 4), "float32", "mesh[0]", "S[0]"), y: R.DTensor((6, 4), "float32", "mesh[0]", "R")
        ) -> R.DTensor((6, 4), "float32", "mesh[0]", "S[0]"):
            a = R.dist.call_tir_local_view(
                Before.double, (x,), out_sinfo=R.DTensor((6, 4), "float32", "mesh[0]", "S[0]")
            )
            return a

    @I.ir_module
    class Expected:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @T.prim_func(private=True)
        def double(X: T.Buffer((T.int64(3), T.int64(4)), "float32"), Y: T.Buffer((T.int64(3), T.int64(4)), "float32")):
            for i, j in T.grid(T.int64(3), T.int64(4)):
                with T.block("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj] + X[vi, vj]

        @R.function
        def main(x: R.Tensor((6, 4), "float32"), y: R.Tensor((6, 4), "float32")) -> R.Tensor((3, 4), "float32"):
            mine = R.ccl.scatter_from_worker0(x, num_workers=2, axis=0)
            whole = R.ccl.broadcast_from_worker0(y)
            a = R.call_tir(Expected.double, (mine,), out_sinfo=R.Tensor((3, 4), "float32"))
            return a

    assert_structural_equal(LowerDistIR()(Before), Expected)


def test_all_reduce_by_kernels_of_the_gpus():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float16")) -> R.Tensor((4,), "float16"):
            a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float16"), R.prim_value(0), R.str("global"))
            b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float16"), R.prim_value(0), R.str("global"))
            v: R.Tensor((2, 2), "float16") = R.reshape(a, R.shape([2, 2]))
            _ = R.call_packed("runtime.disco.allreduce", v, R.shape([0]), True, b, sinfo_args=R.Tuple())
            _1 = R.call_packed("runtime.disco.allreduce", b, R.shape([3]), True, a, sinfo_args=R.Tuple())
            return b

    assert transform.IPCAllReduceRewrite(1)(Before) is Before
    register_func("runtime.disco.cuda_ipc.custom_allreduce", lambda *args: None)
    try:
        text = transform.IPCAllReduceRewrite(2)(Before).script()
    finally:
        remove_global_func("runtime.disco.cuda_ipc.custom_allreduce")
    assert text.count("ipc_memory") == 1
    assert '"runtime.disco.cuda_ipc.custom_allreduce", v, R.prim_value(2), b' in text
    assert text.count('"runtime.disco.allreduce"') == 1
