"""From wishes for a few placements to the program that each worker runs."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.interp import run_primfunc
from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.relax.distributed.transform import (
    LegalizeRedistribute,
    LowerDistIR,
    LowerGlobalViewToLocalView,
    PropagateSharding,
)
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import InternalError


@I.ir_module
class Mlp:
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

    @R.function
    def main(
        x: R.Tensor((6, 8), "float32"), up: R.Tensor((8, 10), "float32"), down: R.Tensor((10, 4), "float32")
    ) -> R.Tensor((6, 4), "float32"):
        with R.dataflow():
            a = R.matmul(x, up)
            b = R.nn.relu(a)
            c = R.dist.annotate_sharding(b, device_mesh="mesh[0]", placement="S[1]")
            d = R.matmul(c, down)
            R.output(d)
        return d


def test_columns_then_rows():
    @I.ir_module
    class Expected:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(
            x: R.DTensor((6, 8), "float32", "mesh[0]", "R"),
            up: R.DTensor((8, 10), "float32", "mesh[0]", "S[1]"),
            down: R.DTensor((10, 4), "float32", "mesh[0]", "S[0]"),
        ) -> R.DTensor((6, 4), "float32", "mesh[0]", "R"):
            with R.dataflow():
                a = R.matmul(x, up)
                b = R.nn.relu(a)
                d = R.matmul(b, down)
                R.output(d)
            return d

    assert_structural_equal(PropagateSharding()(Mlp), Expected)


def test_each_worker_computes_with_its_part():
    mod = PropagateSharding()(transform.LegalizeOps()(Mlp))
    mod = LowerDistIR()(LegalizeRedistribute()(LowerGlobalViewToLocalView()(mod)))
    names = [b.value.op.name for b in mod["main"].body.blocks[0].bindings]
    assert names == [
        "relax.ccl.broadcast_from_worker0",
        *["relax.ccl.scatter_from_worker0"] * 2,
        *["relax.call_tir"] * 3,
        "relax.ccl.allreduce",
    ]
    calls = [b.value for b in mod["main"].body.blocks[0].bindings if b.value.op.name == "relax.call_tir"]
    rng = np.random.default_rng(5)
    x, up, down = (rng.standard_normal(s).astype("float32") for s in [(6, 8), (8, 10), (10, 4)])
    total = np.zeros((6, 4), "float32")
    for worker in range(2):
        half = slice(5 * worker, 5 * worker + 5)
        values = [x, up[:, half]]
        for call in calls:
            shape = [int(d) for d in call.struct_info.shape.values]
            out = np.zeros(shape, "float32")
            run_primfunc(mod[call.args[0]], *values, out)
            values = [out, down[half]] if len(shape) and call is calls[1] else [out]
        total += values[0]
    np.testing.assert_allclose(total, np.maximum(x @ up, 0) @ down, rtol=1e-4, atol=1e-5)


def test_two_axes_of_a_mesh():
    @I.ir_module
    class Before:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(x: R.Tensor((4, 6, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((4, 8, 6), "float32"):
            y = R.matmul(x, w)
            z = R.permute_dims(y, [0, 2, 1])
            s = R.nn.softmax(z, axis=2)
            a = R.dist.annotate_sharding(s, device_mesh="mesh[0]", placement="S[0], S[1]")
            return a

    @I.ir_module
    class Expected:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(
            x: R.DTensor((4, 6, 8), "float32", "mesh[0]", "S[0], R"),
            w: R.DTensor((8, 8), "float32", "mesh[0]", "R, S[1]"),
        ) -> R.DTensor((4, 8, 6), "float32", "mesh[0]", "S[0], S[1]"):
            y = R.matmul(x, w)
            z = R.permute_dims(y, [0, 2, 1])
            s = R.nn.softmax(z, axis=2)
            return s

    assert_structural_equal(PropagateSharding()(Before), Expected)


def test_a_result_that_lies_otherwise_is_redistributed():
    @I.ir_module
    class Before:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(x: R.Tensor((6, 8), "float32"), w: R.Tensor((8, 4), "float32")) -> R.Tensor((6, 4), "float32"):
            a = R.dist.annotate_sharding(x, device_mesh="mesh[0]", placement="S[0], R")
            b = R.matmul(a, w)
            c = R.dist.annotate_sharding(b, device_mesh="mesh[0]", placement="R, S[0]")
            d = R.nn.relu(c)
            return d

    @I.ir_module
    class Expected:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @R.function
        def main(
            x: R.DTensor((6, 8), "float32", "mesh[0]", "S[0], R"), w: R.DTensor((8, 4), "float32", "mesh[0]", "R, R")
        ) -> R.DTensor((6, 4), "float32", "mesh[0]", "R, S[0]"):
            b: R.DTensor((6, 4), "float32", "mesh[0]", "S[0], R") = R.matmul(x, w)
            c = R.dist.redistribute(b, device_mesh="mesh[0]", placement="R, S[0]")
            d = R.nn.relu(c)
            return d

    assert_structural_equal(PropagateSharding()(Before), Expected)


def test_axes_too_short_are_not_split():
    @I.ir_module
    class Before:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.Tensor((6, 8), "float32"), b: R.Tensor((1, 8), "float32")) -> R.Tensor((6, 8), "float32"):
            y = R.add(x, b)
            z = R.dist.annotate_sharding(y, device_mesh="mesh[0]", placement="S[0]")
            return z

    params = PropagateSharding()(Before)["main"].params
    assert [str(p.struct_info.placement) for p in params] == ["S[0]", "R"]


def test_contradictions():
    @I.ir_module
    class Twice:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.Tensor((6, 8), "float32"), w: R.Tensor((8, 4), "float32")) -> R.Tensor((6, 4), "float32"):
            a = R.dist.annotate_sharding(x, device_mesh="mesh[0]", placement="S[0]")
            b = R.dist.annotate_sharding(w, device_mesh="mesh[0]", placement="S[1]")
            c = R.matmul(a, b)
            return c

    with pytest.raises(InternalError, match="Sharding conflict detected for tensor c"):
        PropagateSharding()(Twice)

    @I.ir_module
    class SplitsConstant:
        I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2))]})

        @R.function
        def main(x: R.Tensor((6, 2), "float32")) -> R.Tensor((6, 2), "float32"):
            a = R.dist.annotate_sharding(x, device_mesh="mesh[0]", placement="S[1]")
            b = R.add(a, R.const([1.0, 2.0], "float32"))
            return b

    with pytest.raises(InternalError, match="Constant is not allowed to be sharded"):
        PropagateSharding()(SplitsConstant)


def test_tuples_and_inner_buffers():
    @I.ir_module
    class Before:
        I.module_global_infos({"mesh": [R.device_mesh((3,), I.Range(0, 3))]})

        @T.prim_func(private=True)
        def both(
            X: T.Buffer((T.int64(6), T.int64(4)), "float32"),
            S: T.Buffer((T.int64(6),), "float32"),
            D: T.Buffer((T.int64(6), T.int64(4)), "float32"),
        ):
            tmp = T.alloc_buffer((T.int64(6), T.int64(4)))
            for i, j in T.grid(T.int64(6), T.int64(4)):
                with T.block("tmp"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    tmp[vi, vj] = X[vi, vj] * T.float32(2)
            for i, j in T.grid(T.int64(6), T.int64(4)):
                with T.block("sum"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        S[vi] = T.float32(0)
                    S[vi] = S[vi] + tmp[vi, vj]
            for i, j in T.grid(T.int64(6), T.int64(4)):
                with T.block("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = tmp[vi, vj] + tmp[vi, vj]

        @R.function
        def main(x: R.Tensor((6, 4), "float32")) -> R.Tensor((6, 4), "float32"):
            cls = Before
            a = R.dist.annotate_sharding(x, device_mesh="mesh[0]", placement="S[0]")
            b = R.call_tir(cls.both, (a,), out_sinfo=[R.Tensor((6,), "float32"), R.Tensor((6, 4), "float32")])
            s = b[0]
            d = b[1]
            return d

    spread = PropagateSharding()(Before)
    infos = {b.var.name_hint: b.var.struct_info for b in spread["main"].body.blocks[0].bindings}
    assert {k: str(infos[k].placement) for k in ("s", "d")} == {"s": "S[0]", "d": "S[0]"}
    local = LowerGlobalViewToLocalView()(spread)
    func = local["both1"]
    assert [[int(d) for d in b.shape] for b in func.buffer_map.values()] == [[2, 4], [2], [2, 4]]
    assert [int(d) for d in func.body.block.alloc_buffers[0].shape] == [2, 4]
    final = LowerDistIR()(local)
    assert_structural_equal(final["main"].ret_struct_info, R.Tensor((2, 4), "float32"))
