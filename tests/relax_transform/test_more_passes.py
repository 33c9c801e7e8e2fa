"""Interprocedural passes, orders, callbacks for weights, algebra of matrix products, devices."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import TVMError


def check(run, before, expected):
    after = run(before)
    assert_structural_equal(after, expected)
    assert well_formed(after)


def test_expand_tuple_arguments():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return Before.func((a, b))

        @R.function(private=True)
        def func(args: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))) -> R.Tensor((4,), "float32"):
            return args[0]

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return Expected.func(a, b)

        @R.function(private=True)
        def func(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return a

    check(transform.ExpandTupleArguments(), Before, Expected)


def test_remove_unused_parameters():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return Before.func(a, b)

        @R.function(private=True)
        def func(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return a

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return Expected.func(a)

        @R.function(private=True)
        def func(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return a

    check(transform.RemoveUnusedParameters(), Before, Expected)


def test_symbols_of_unused_parameters_become_scalars():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            return Before.func(a)

        @R.function(private=True)
        def func(a: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            m = T.int64()
            n = T.int64()
            return R.zeros(R.shape([m, n]), dtype="float32")

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            m = T.int64()
            n = T.int64()
            return Expected.func(R.prim_value(m), R.prim_value(n))

        @R.function(private=True)
        def func(param_m: R.Prim(value="m"), param_n: R.Prim(value="n")) -> R.Tensor(("m", "n"), "float32"):
            m = T.int64()
            n = T.int64()
            return R.zeros(R.shape([m, n]), dtype="float32")

    check(transform.RemoveUnusedParameters(), Before, Expected)


def test_remove_unused_outputs():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            out = Before.func(a)
            return out[1]

        @R.function(private=True)
        def func(a: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            b = R.exp(a)
            c = R.sin(a)
            return (b, c)

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            out = Expected.func(a)
            return out

        @R.function(private=True)
        def func(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            c = R.sin(a)
            return c

    check(transform.RemoveUnusedOutputs(), Before, Expected)


@pytest.mark.parametrize(
    ("order", "direction", "names"),
    [
        ("depth-first", "from-inputs", ["b1", "c1", "b2", "c2", "d"]),
        ("breadth-first", "from-inputs", ["b1", "b2", "c1", "c2", "d"]),
        ("depth-first", "from-outputs", ["b1", "c1", "b2", "c2", "d"]),
        ("breadth-first", "from-outputs", ["b2", "b1", "c2", "c1", "d"]),
    ],
)
def test_topological_sort(order, direction, names):
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((4,), "float32")):
            with R.dataflow():
                b1 = R.exp(a)
                b2 = R.sin(a)
                c2 = R.add(a, b2)
                c1 = R.add(a, b1)
                d = R.add(c1, c2)
                R.output(d)
            return d

    after = transform.TopologicalSort(order, direction)(Before)
    assert well_formed(after)
    assert [b.var.name_hint for b in after["main"].body.blocks[0].bindings] == names
    with pytest.raises(ValueError):
        transform.TopologicalSort("sideways")


def test_lazy_get_input():
    @I.ir_module
    class Before:
        @R.function
        def f(x: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            c = R.add(x, a)
            d = R.add(c, b)
            return (d, b)

    @I.ir_module
    class Expected:
        @R.function
        def f(
            x: R.Tensor((4,), "float32"), fget_param: R.Callable([R.Prim("int64"), R.Object], R.Object, True)
        ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 2})
            a0 = fget_param(R.prim_value(0), R.str("a"))
            a = R.match_cast(a0, R.Tensor((4,), "float32"))
            c = R.add(x, a)
            b0 = fget_param(R.prim_value(1), R.str("b"))
            b = R.match_cast(b0, R.Tensor((4,), "float32"))
            d = R.add(c, b)
            return (d, b)

    check(transform.LazyGetInput(), Before, Expected)


def test_lazy_set_output():
    @I.ir_module
    class Before:
        @R.function
        def f(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            c = R.exp(a)
            d = R.add(c, b)
            return (d, b)

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def f(
            a: R.Tensor((4,), "float32"),
            b: R.Tensor((4,), "float32"),
            fset_output: R.Callable([R.Prim("int64"), R.Object], R.Tuple([]), False),
        ) -> R.Tuple([]):
            _ = fset_output(R.prim_value(1), b)
            c = R.exp(a)
            d = R.add(c, b)
            _1 = fset_output(R.prim_value(0), d)
            return R.tuple()

    check(transform.LazySetOutput(), Before, Expected)


def test_lazy_transform_params_runs():
    @I.ir_module
    class Before:
        @R.function
        def main_transform_params(params: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((3,), "float32"))):
            with R.dataflow():
                a = params[0]
                b = params[1]
                at = R.permute_dims(a)
                gv = (b, at)
                R.output(gv)
            return gv

    after = transform.LazyTransformParams()(Before)
    assert well_formed(after)
    func = after["main_transform_params"]
    text = func.script()
    assert not func.params and text.count('"get_item"') == 2 and text.count('"set_item"') == 2
    assert text.count("R.vm.kill_object") == 2
    weights = [relaxish.nd.array(np.arange(6, dtype="float32").reshape(2, 3)), relaxish.nd.array(np.ones(3, "float32"))]
    given = {}
    relaxish.register_func("get_item", lambda i: weights[int(i)], override=True)
    relaxish.register_func("set_item", lambda i, v: given.__setitem__(int(i), v.numpy()), override=True)
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    vm["main_transform_params"]()
    np.testing.assert_array_equal(given[1], weights[0].numpy().T)
    np.testing.assert_array_equal(given[0], np.ones(3, "float32"))


def test_adjust_matmul_order():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16,), "float32"), a: R.Tensor((32, 2), "float32"), b: R.Tensor((2, 16), "float32")):
            w = R.matmul(a, b)
            out = R.matmul(w, x)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((16,), "float32"), a: R.Tensor((32, 2), "float32"), b: R.Tensor((2, 16), "float32")):
            v = R.matmul(b, x)
            out = R.matmul(a, v)
            return out

    check(transform.AdjustMatmulOrder(), Before, Expected)
    assert_structural_equal(transform.AdjustMatmulOrder()(Expected), Expected)


def test_expand_matmul_of_sum():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((16,), "float32"),
            a: R.Tensor((32, 16), "float32"),
            b: R.Tensor((32, 16), "float32"),
            y: R.Tensor((32,), "float32"),
        ):
            w = R.add(a, b)
            out = R.matmul(y, w)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((16,), "float32"),
            a: R.Tensor((32, 16), "float32"),
            b: R.Tensor((32, 16), "float32"),
            y: R.Tensor((32,), "float32"),
        ):
            one = R.matmul(y, a)
            two = R.matmul(y, b)
            out = R.add(one, two)
            return out

    check(transform.ExpandMatmulOfSum(), Before, Expected)
    weights = Before.clone()
    weights["main"] = Before["main"].with_attr("num_input", 1)
    assert_structural_equal(transform.ExpandMatmulOfSum()(weights), weights)


def test_reorder_permute_dims_after_concat():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((4, 8), "float32"), b: R.Tensor((6, 8), "float32")):
            at = R.permute_dims(a)
            bt = R.permute_dims(b)
            out = R.concat([at, bt], axis=1)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((4, 8), "float32"), b: R.Tensor((6, 8), "float32")):
            both = R.concat([a, b], axis=0)
            out = R.permute_dims(both)
            return out

    check(transform.ReorderPermuteDimsAfterConcat(), Before, Expected)


def test_reorder_take_after_matmul():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 16), "float32"), w: R.Tensor((16, 32), "float32"), i: R.Tensor((8,), "int64")):
            picked = R.take(w, i, axis=1)
            out = R.matmul(x, picked)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 16), "float32"), w: R.Tensor((16, 32), "float32"), i: R.Tensor((8,), "int64")):
            whole = R.matmul(x, w)
            out = R.take(whole, i, axis=1)
            return out

    check(transform.ReorderTakeAfterMatmul(), Before, Expected)


def test_combine_parallel_matmul():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 4, 8), "float32"),
            w0: R.Tensor((8, 6), "float32"),
            w1: R.Tensor((8, 10), "float32"),
            b0: R.Tensor((6,), "float32"),
            b1: R.Tensor((10,), "float32"),
        ):
            with R.dataflow():
                m0 = R.matmul(x, w0)
                a0 = R.add(m0, b0)
                r0 = R.nn.relu(a0)
                m1 = R.matmul(x, w1)
                a1 = R.add(m1, b1)
                r1 = R.nn.relu(a1)
                out = (r0, r1)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 4, 8), "float32"),
            w0: R.Tensor((8, 6), "float32"),
            w1: R.Tensor((8, 10), "float32"),
            b0: R.Tensor((6,), "float32"),
            b1: R.Tensor((10,), "float32"),
        ):
            with R.dataflow():
                lv = R.concat((w0, w1), axis=1)
                lv1 = R.matmul(x, lv, out_dtype="float32")
                lv2 = R.concat((b0, b1), axis=0)
                lv3 = R.add(lv1, lv2)
                lv4 = R.nn.relu(lv3)
                lv5 = R.split(lv4, indices_or_sections=[6], axis=2)
                r0 = lv5[0]
                r1 = lv5[1]
                out = (r0, r1)
                R.output(out)
            return out

    check(transform.CombineParallelMatmul(), Before, Expected)
    assert_structural_equal(transform.CombineParallelMatmul(lambda *_: False)(Before), Before)


def test_parallel_products_of_a_vector():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6,), "float32"), v: R.Tensor((6, 1), "float32"), w: R.Tensor((6, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, v)
                b = R.matmul(x, w)
                out = (a, b)
                R.output(out)
            return out

    after = transform.CombineParallelMatmul()(Before)
    assert well_formed(after) and "split" in after.script()
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    rng = np.random.default_rng(1)
    x, v, w = (rng.standard_normal(shape).astype("float32") for shape in ((6,), (6, 1), (6, 4)))
    for have, want in zip(vm["main"](x, v, w), (x @ v, x @ w)):
        np.testing.assert_allclose(have.numpy(), want, rtol=1e-4, atol=1e-5)


def test_fuse_transpose_matmul():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4, 8), "float32"), w: R.Tensor((6, 8), "float32")):
            with R.dataflow():
                wt = R.permute_dims(w)
                out = R.matmul(x, wt)
                R.output(out)
            return out

    after = transform.FuseTransposeMatmul()(Before)
    assert well_formed(after) and "NT_matmul" in [v.name_hint for v in after.functions]
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 8)).astype("float32"), rng.standard_normal((6, 8)).astype("float32")
    np.testing.assert_allclose(
        vm["main"](relaxish.nd.array(x), relaxish.nd.array(w)).numpy(), x @ w.T, rtol=1e-4, atol=1e-5
    )


def test_redundant_reshapes():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            with R.dataflow():
                a = R.reshape(x, (12,))
                b = R.reshape(a, (3, 4))
                c = R.reshape(b, (3, 4))
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            with R.dataflow():
                c = R.reshape(x, (3, 4))
                R.output(c)
            return c

    check(transform.RemoveRedundantReshape(), Before, Expected)


def test_inverse_layout_transforms():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((8, 16), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(R.layout_transform(x, index_map=lambda i, j: (i, j // 4, j % 4)))
            b = bb.emit(R.layout_transform(a, index_map=lambda i, j, k: (i, j * 4 + k)))
            gv = bb.emit_output(R.exp(b))
        bb.emit_func_output(gv)
    after = transform.OptimizeLayoutTransform()(bb.finalize())
    assert "layout_transform" not in after["main"].script()


def test_fast_math():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            z = R.tanh(y)
            return z

    after = transform.FastMathTransform()(Before)
    assert after["main"].script().count("R.call_tir") == 2


def test_update_vdevice():
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "llvm:0"):
            y = R.exp(x)
            return y

    new = relaxish.ir.VDevice(relaxish.Target("cuda"), 1)
    after = transform.UpdateVDevice(new, 0)(Before)
    assert after.global_infos["vdevice"][0] is new
    assert after["main"].params[0].struct_info.vdevice is new
    with pytest.raises(TVMError):
        transform.UpdateVDevice(new, 5)(Before)


def test_realize_vdevice():
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.hint_on_device(x, relaxish.cpu())
                b = R.add(a, y)
                R.output(b)
            return b

    after = transform.RealizeVDevice()(Before)
    assert all(p.struct_info.vdevice is not None for p in after["main"].params)
    assert "hint_on_device" not in after["main"].script()


def test_memory_shared_between_gpus():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 2), "float32")):
            a = R.builtin.alloc_tensor(R.shape([4, 2]), R.dtype("float32"), R.prim_value(0), R.str("ipc_memory"))
            b = R.builtin.alloc_tensor(R.shape([4, 2]), R.dtype("float32"), R.prim_value(0))
            return (a, b)

    after = transform.LowerGPUIPCAllocStorage()(Before)
    text = after["main"].script()
    assert text.count("runtime.disco.cuda_ipc.alloc_storage") == 1 and "R.shape([32])" in text
    assert text.count("R.builtin.alloc_tensor") == 1
    assert transform.IPCAllReduceRewrite(1)(Before) is Before
