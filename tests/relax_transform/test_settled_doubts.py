"""Small choices that two readings of the field's behaviour would make differently."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.interp import run_prim_func
from relaxish.ir.functor import post_order_visit
from relaxish.relax.transform import AlterOpImpl, DecomposeOpsForInference, LegalizeOps
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

TIES = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997]


@I.ir_module
class Scaled:
    @R.function
    def main(
        q: R.Tensor((1, 4, 2, 8), "float16"), k: R.Tensor((1, 5, 2, 8), "float16"), v: R.Tensor((1, 5, 2, 8), "float16")
    ):
        with R.dataflow():
            gv = R.nn.attention(q, k, v, scale=T.FloatImm("float32", 0.3))
            R.output(gv)
        return gv


def test_a_given_scale_makes_half_precision_attention_compute_in_single_precision():
    mod = LegalizeOps()(Scaled)
    assert mod["main"].ret_struct_info.dtype == "float16"
    buffers = {}
    kernel = mod["attention"]
    post_order_visit(
        kernel.body,
        lambda n: buffers.update({b.name: b.dtype for b in n.alloc_buffers} if type(n).__name__ == "Block" else {}),
    )
    assert buffers["T_batch_matmul_NT"] == "float16"
    assert buffers["T_multiply"] == buffers["T_softmax_norm"] == buffers["T_batch_matmul_NN"] == "float32"
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype("float16") for shape in ((1, 4, 2, 8), (1, 5, 2, 8), (1, 5, 2, 8)))
    vm = relax.VirtualMachine(relaxish.compile(mod, "llvm"), relaxish.cpu())
    got = vm["main"](*map(relaxish.nd.array, (q, k, v))).numpy()
    scores = np.einsum("bihd,bjhd->bhij", *(x.astype("float32") for x in (q, k))) * 0.3
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(got, np.einsum("bhij,bjhd->bihd", weights, v.astype("float32")), rtol=1e-2, atol=1e-2)


def test_decomposing_for_inference_leaves_dropout_to_legalisation():
    @I.ir_module
    class Dropped:
        @R.function
        def main(x: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                pair = R.nn.dropout(x, rate=0.5)
                gv = pair[0]
                R.output(gv)
            return gv

    relaxish.ir.assert_structural_equal(DecomposeOpsForInference()(Dropped), Dropped)
    x = np.ones((3, 4), "float32")
    vm = relax.VirtualMachine(relaxish.compile(Dropped, "llvm"), relaxish.cpu())
    np.testing.assert_array_equal(vm["main"](relaxish.nd.array(x)).numpy(), x)


@pytest.mark.parametrize("name", ["round", "nearbyint"])
def test_ties_of_rounding(name):
    """To even, at run time as in folded constants: what NumPy, PyTorch and ONNX mean by rounding."""

    @T.prim_func(private=True)
    def func(a: T.Buffer((7,), "float32"), b: T.Buffer((7,), "float32")):
        for i in range(7):
            with T.block("b"):
                v = T.axis.spatial(7, i)
                b[v] = getattr(T, name)(a[v])

    x = np.array(TIES, "float32")
    interpreted = np.zeros(7, "float32")
    run_prim_func(func, [x, interpreted])
    held = [relaxish.nd.array(x), relaxish.nd.array(np.zeros(7, "float32"))]
    relaxish.build(func.with_attr("global_symbol", "main"), target="llvm")["main"](*held)
    np.testing.assert_array_equal(interpreted, np.round(x))
    np.testing.assert_array_equal(held[1].numpy(), np.round(x))
    assert float(getattr(relaxish.tir, name)(T.float32(2.5))) == 2


def test_replaced_operators_stay_on_their_devices():
    @I.ir_module
    class Doubled:
        I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

        @T.prim_func(private=True)
        def double(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "own.double"})
            for i in range(16):
                with T.block("y"):
                    v = T.axis.spatial(16, i)
                    y[v] = x[v] + x[v]

        @R.function
        def main(x: R.Tensor((16,), "float32", "llvm")):
            cls = Doubled
            with R.dataflow():
                gv = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((16,), "float32", "llvm"))
                R.output(gv)
            return gv

    @T.prim_func(private=True)
    def tiled(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("y"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[v, w] + x[v, w]

    by_four = [lambda i: (i // 4, i % 4)] * 2
    mod = AlterOpImpl({"own.double": tiled}, {"own.double": by_four}, {}, {})(Doubled)
    infos = [binding.var.struct_info for block in mod["main"].body.blocks for binding in block.bindings]
    assert all(info.vdevice is not None and info.vdevice.target.kind.name == "llvm" for info in infos)
