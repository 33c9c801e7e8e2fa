"""Passes that move the preparation of weights out of the way: bundle, lift, share, split layout rewrites."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import transform
from relaxish.ir import assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.pipeline import get_pipeline
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import TVMError


@I.ir_module
class Repacking:
    @T.prim_func(private=True)
    def f(X: T.Buffer((8, 8), "float32"), W: T.Buffer((8, 8), "float32"), Out: T.Buffer((8, 8), "float32")):
        T.func_attr({"layout_free_buffers": [1]})
        W_r = T.alloc_buffer((2, 2, 4, 4))
        for i, j in T.grid(8, 8):
            with T.block("W_rewrite"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W[vi, vj])
                T.writes(W_r[vi // 4, vj // 4, vi % 4, vj % 4])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": T.bool(True)})
                W_r[vi // 4, vj // 4, vi % 4, vj % 4] = W[vi, vj]
        for i, j in T.grid(8, 8):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                Out[vi, vj] = X[vi, vj] + W_r[vi // 4, vj // 4, vi % 4, vj % 4]

    @R.function
    def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
        R.func_attr({"num_input": 1})
        cls = Repacking
        with R.dataflow():
            gv = R.call_tir(cls.f, (x, w), out_sinfo=R.Tensor((8, 8), "float32"))
            R.output(gv)
        return gv


@I.ir_module
class Repacked:
    @T.prim_func(private=True)
    def f_weight_prepack(W: T.Buffer((8, 8), "float32"), W_r: T.Buffer((2, 2, 4, 4), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("W_rewrite"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(W[vi, vj])
                T.writes(W_r[vi // 4, vj // 4, vi % 4, vj % 4])
                W_r[vi // 4, vj // 4, vi % 4, vj % 4] = W[vi, vj]

    @T.prim_func(private=True)
    def f_prepacked(
        X: T.Buffer((8, 8), "float32"), W_r: T.Buffer((2, 2, 4, 4), "float32"), Out: T.Buffer((8, 8), "float32")
    ):
        for i, j in T.grid(8, 8):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                Out[vi, vj] = X[vi, vj] + W_r[vi // 4, vj // 4, vi % 4, vj % 4]

    @R.function
    def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
        R.func_attr({"num_input": 1})
        cls = Repacked
        with R.dataflow():
            lv = R.call_tir(cls.f_weight_prepack, (w,), out_sinfo=R.Tensor((2, 2, 4, 4), "float32"))
            lv1 = R.call_tir(cls.f_prepacked, (x, lv), out_sinfo=R.Tensor((8, 8), "float32"))
            gv: R.Tensor((8, 8), "float32") = lv1
            R.output(gv)
        return gv


def test_split_layout_rewrite():
    assert_structural_equal(transform.SplitLayoutRewritePreproc()(Repacking), Repacked)


def test_split_layout_rewrite_then_lift_runs():
    mod = transform.SplitLayoutRewritePreproc()(Repacking)
    mod = transform.LiftTransformParams()(mod)
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((8, 8)).astype("float32") for _ in range(2))
    (packed,) = vm["main_transform_params"]((relaxish.nd.array(w),))
    assert packed.shape == (2, 2, 4, 4)
    np.testing.assert_allclose(vm["main"](relaxish.nd.array(x), packed).numpy(), x + w, rtol=1e-6)


def test_weight_prepack_pipeline(tmp_path):
    """Tuned with free weight layouts: the weight is repacked once, and the result is right."""

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((32, 64), "float32"), w: R.Tensor((64, 48), "float32")) -> R.Tensor((32, 48), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                lv = R.matmul(x, w)
                gv = R.nn.relu(lv)
                R.output(gv)
            return gv

    target = relaxish.Target("llvm -num-cores 1")
    mod = get_pipeline(
        "static_shape_tuning", total_trials=4, target=target, work_dir=str(tmp_path), cpu_weight_prepack=True
    )(Model)
    assert "main_transform_params" in [v.name_hint for v in mod.functions]
    vm = relaxish.VirtualMachine(relaxish.build(mod, target), relaxish.cpu())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((32, 64)).astype("float32"), rng.standard_normal((64, 48)).astype("float32")
    weights = vm["main_transform_params"]((relaxish.nd.array(w),))
    out = vm["main"](relaxish.nd.array(x), *weights).numpy()
    np.testing.assert_allclose(out, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_bundle_reads_each_weight_where_it_is_used():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor([16], "float32"), b: R.Tensor([16], "float32"), c: R.Tensor([16], "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                d = R.add(a, b)
                e = R.add(d, c)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor([16], "float32"), p: R.Tuple(R.Tensor([16], "float32"), R.Tensor([16], "float32"))):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                b = p[0]
                d = R.add(a, b)
                c = p[1]
                e = R.add(d, c)
                R.output(e)
            return e

    assert_structural_equal(transform.BundleModelParams()(Before), Expected)
    assert transform.BundleModelParams("mine")(Before)["main"].params[1].name_hint == "mine"


@I.ir_module
class TwoWeights:
    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((16, 8), "float32"), b: R.Tensor((16,), "float32")
    ) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            wt = R.permute_dims(w, [1, 0])
            y = R.matmul(x, wt)
            z = R.add(y, b)
            R.output(z)
        return z


def test_lift():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float32"), b: R.Tensor((16,), "float32"), wt: R.Tensor((8, 16), "float32")
        ) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.matmul(x, wt)
                z = R.add(y, b)
                R.output(z)
            return z

        @R.function
        def main_transform_params(params: R.Tuple(R.Tensor((16, 8), "float32"), R.Tensor((16,), "float32"))) -> R.Tuple(
            R.Tensor((16,), "float32"), R.Tensor((8, 16), "float32")
        ):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = params[0]
                wt = R.permute_dims(w, [1, 0])
                b = params[1]
                gv = (b, wt)
                R.output(gv)
            return gv

    assert_structural_equal(transform.LiftTransformParams()(TwoWeights), Expected)


def test_lift_consuming_weights():
    with PassContext(config={"relax.lift_transform_params.consume_params": True}):
        text = transform.LiftTransformParams()(TwoWeights)["main_transform_params"].script()
    assert text.count("vm.builtin.tuple_reset_item") == 2


def test_lift_stops_at_marker():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                wt = R.permute_dims(w)
                stop = R.builtin.stop_lift_params(wt)
                more = R.exp(stop)
                y = R.matmul(x, more)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), wt: R.Tensor((4, 4), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                more = R.exp(wt)
                y = R.matmul(x, more)
                R.output(y)
            return y

    assert_structural_equal(transform.LiftTransformParams()(Before)["main"], Expected["main"])


def test_symbols_of_weights_travel():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor(("k", 4), "float32")):
            R.func_attr({"num_input": 1})
            k = T.int64()
            with R.dataflow():
                total = R.sum(w, axis=[0])
                y = R.add(x, total)
                z = R.broadcast_to(x, R.shape([k, 4]))
                out = (y, z)
                R.output(out)
            return out

    mod = transform.LiftTransformParams()(Before)
    main = mod["main"]
    assert [p.name_hint for p in main.params][1] == "vars_from_compile_time_params"


def _pair():
    @I.ir_module
    class Before:
        @R.function
        def one(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                wt = R.permute_dims(w)
                y = R.matmul(x, wt)
                R.output(y)
            return y

        @R.function
        def two(x: R.Tensor((6, 8), "float32"), v: R.Tensor((8, 8), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                vt = R.permute_dims(v)
                ve = R.exp(vt)
                y = R.matmul(x, ve)
                R.output(y)
            return y

    return Before


@pytest.mark.parametrize("shared", [True, ["one", "two"]])
def test_shared_transform_is_the_intersection(shared):
    @I.ir_module
    class Expected:
        @R.function
        def one(x: R.Tensor((4, 8), "float32"), wt: R.Tensor((8, 8), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.matmul(x, wt)
                R.output(y)
            return y

        @R.function
        def transform_params(params: R.Tuple(R.Tensor((8, 8), "float32"))):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = params[0]
                wt = R.permute_dims(w)
                gv = (wt,)
                R.output(gv)
            return gv

        @R.function
        def two(x: R.Tensor((6, 8), "float32"), vt: R.Tensor((8, 8), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                ve = R.exp(vt)
                y = R.matmul(x, ve)
                R.output(y)
            return y

    assert_structural_equal(transform.LiftTransformParams(shared_transform=shared)(_pair()), Expected)


def test_shared_transform_of_different_weights_is_an_error():
    @I.ir_module
    class Before:
        @R.function
        def one(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            R.func_attr({"num_input": 1})
            return R.matmul(x, w)

        @R.function
        def two(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 9), "float32")):
            R.func_attr({"num_input": 1})
            return R.matmul(x, w)

    with pytest.raises(TVMError, match="same weights"):
        transform.LiftTransformParams(shared_transform=True)(Before)
