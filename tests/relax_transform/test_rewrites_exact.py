"""AdjustMatmulOrder, AlterOpImpl, AttachAttrLayoutFreeBuffers, BindParams, BindSymbolicVars and DecomposeOps."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import InternalError


def _same(pass_, before, expected):
    after = pass_(before)
    assert well_formed(after)
    assert_structural_equal(after, expected)


@I.ir_module
class LowRank:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), a: R.Tensor((16, 4), "float32"), b: R.Tensor((4, 32), "float32")):
        w = R.matmul(a, b)
        return R.matmul(x, w)


def test_bounds_of_symbols_decide_the_order():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32"), a: R.Tensor((16, 4), "float32"), b: R.Tensor((4, 32), "float32")):
            R.func_attr({"tir_var_upper_bound": {"n": 16}})
            y = R.matmul(x, a)
            return R.matmul(y, b)

    # (x a) b takes 192 n multiplications, x (a b) 2048 + 64 n: equal at n = 16.
    assert_structural_equal(transform.AdjustMatmulOrder()(LowRank), LowRank)
    for attr, bound, changed in (("upper", 16, True), ("upper", 17, False), ("lower", 17, False)):
        mod = LowRank.clone()
        mod["main"] = LowRank["main"].with_attr(f"tir_var_{attr}_bound", {"n": bound})
        after = transform.AdjustMatmulOrder()(mod)
        assert_structural_equal(after, Expected if changed else mod)


@T.prim_func(private=True)
def blocked(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
    for i, j in T.grid(2, 4):
        with T.block("exp"):
            v, w = T.axis.remap("SS", [i, j])
            y[v, w] = T.exp(x[v, w])


def test_padding_is_removed_by_one_function_for_all_shapes():
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def exp(x: T.Buffer((7,), "float32"), y: T.Buffer((7,), "float32")):
            T.func_attr({"operator_name": "relax.exp"})
            for i in range(7):
                with T.block("exp"):
                    v = T.axis.spatial(7, i)
                    y[v] = T.exp(x[v])

        @R.function
        def main(x: R.Tensor((7,), "float32")):
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.exp, (x,), R.Tensor((7,), "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def relax_exp_replacement(x: T.Buffer((2, 4), "float32"), y: T.Buffer((2, 4), "float32")):
            T.func_attr({"operator_name": "relax.exp"})
            for i, j in T.grid(2, 4):
                with T.block("exp"):
                    v, w = T.axis.remap("SS", [i, j])
                    y[v, w] = T.exp(x[v, w])

        @T.prim_func(private=True)
        def remove_pad(var_input: T.handle, var_output: T.handle):
            T.func_attr({"operator_name": "remove_pad", "tir.noalias": T.bool(True)})
            p0 = T.int64()
            source = T.match_buffer(var_input, (p0,))
            i0 = T.int64()
            output = T.match_buffer(var_output, (i0,))
            for i in range(i0):
                with T.block("output"):
                    v = T.axis.spatial(i0, i)
                    output[v] = source[v]

        @R.function
        def main(x: R.Tensor((7,), "float32")):
            cls = Expected
            with R.dataflow():
                a = R.layout_transform(x, lambda i: (i // 4, i % 4))
                b = R.call_tir(cls.relax_exp_replacement, (a,), R.Tensor((2, 4), "float32"))
                c = R.layout_transform(b, lambda i, j: (i * 4 + j,))
                y = R.call_tir(cls.remove_pad, (c,), R.Tensor((7,), "float32"))
                R.output(y)
            return y

    alter = transform.AlterOpImpl({"relax.exp": blocked}, {"relax.exp": [lambda i: (i // 4, i % 4)] * 2})
    after = alter(Before)
    assert "exp" in after
    assert_structural_equal(transform.DeadCodeElimination()(after), Expected)
    with pytest.raises(InternalError):
        transform.AlterOpImpl({"relax.exp": blocked}, {"relax.exp": [lambda i: (i // 4, i % 4)]})(Before)


def test_only_weights_and_constants_have_free_layouts():
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def add(x: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("add"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[v] + w[v]

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            cls = Module
            twice = R.call_tir(cls.add, (w, w), R.Tensor((4,), "float32"))
            y = R.call_tir(cls.add, (x, twice), R.Tensor((4,), "float32"))
            return y

    after = transform.AttachAttrLayoutFreeBuffers()(Module)
    calls = [b.value.args[0] for b in after["main"].body.blocks[0].bindings]
    assert [c.name_hint for c in calls] == ["add1", "add"]
    assert [int(i) for i in after["add1"].attrs["layout_free_buffers"]] == [0, 1]


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        return x

    @R.function(private=True)
    def helper(x: R.Tensor(("n", "m"), "float32")):
        return x


def test_symbols_are_bound_in_all_functions():
    after = transform.BindSymbolicVars({"n": 3, "m": 5})(Symbolic)
    shapes = [[int(d) for d in after[name].params[0].struct_info.dims()] for name in ("main", "helper")]
    assert shapes == [[3, 4], [3, 5]]
    one = transform.BindSymbolicVars({"n": 3}, "main")(Symbolic)
    assert_structural_equal(one["helper"], Symbolic["helper"])
    with pytest.raises(InternalError, match="did not correspond to any symbolic variables"):
        transform.BindSymbolicVars({"n": 3, "other": 5})(Symbolic)
    with pytest.raises(InternalError, match="Expected symbolic variable"):
        transform.BindSymbolicVars({3: 5})(Symbolic)


def test_params_of_a_missing_function_change_nothing():
    assert transform.BindParams("nothing", {"x": np.zeros((2, 4), "float32")})(Symbolic) is Symbolic
    after = transform.BindParams("helper", {"x": np.zeros((2, 4), "float32")})(Symbolic)
    assert not after["helper"].params
    with pytest.raises(AssertionError):
        transform.BindParams("helper", {"x": "text"})


def test_batch_norm_for_training_takes_two_steps():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), v: R.Tensor((3,), "float32")):
            norm = R.nn.batch_norm(x, v, v, v, v, axis=1, momentum=0.25)
            return norm[1]

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), v: R.Tensor((3,), "float32")):
            mean = R.mean(x, axis=[0])
            var = R.variance(x, axis=[0])
            a = R.expand_dims(mean, axis=[0])
            b = R.subtract(x, a)
            c = R.expand_dims(var, axis=[0])
            d = R.add(c, R.const(1e-05, "float32"))
            e = R.sqrt(d)
            f = R.divide(b, e)
            g = R.expand_dims(v, axis=[0])
            h = R.multiply(f, g)
            i = R.expand_dims(v, axis=[0])
            j = R.add(h, i)
            batch = (j, mean, var)
            first = batch[0]
            k = R.multiply(R.const(0.75, "float32"), v)
            m = R.multiply(R.const(0.25, "float32"), mean)
            new_mean = R.add(k, m)
            n = R.multiply(R.const(0.75, "float32"), v)
            o = R.multiply(R.const(0.25, "float32"), var)
            new_var = R.add(n, o)
            norm = (first, new_mean, new_var)
            return norm[1]

    _same(transform.DecomposeOpsForTraining(), Before, Expected)


def test_shape_of_a_tensor_is_cast_to_an_ordinary_variable():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6,), "float32"), t: R.Tensor((2,), "int64")):
            s = R.tensor_to_shape(t)
            return R.reshape(x, s)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((6,), "float32"), t: R.Tensor((2,), "int64")) -> R.Tensor("float32", ndim=2):
            a = T.int64()
            b = T.int64()
            packed = R.call_pure_packed("vm.builtin.tensor_to_shape", t, sinfo_args=(R.Shape(ndim=2),))
            y = R.match_cast(packed, R.Shape([a, b]))
            s: R.Shape([a, b]) = R.shape([a, b])
            z = R.reshape(x, s)
            return z

    after = transform.DecomposeOpsForInference("main")(Before)
    assert well_formed(after)
    kinds = [type(b).__name__ for b in after["main"].body.blocks[0].bindings]
    assert kinds == [type(b).__name__ for b in Expected["main"].body.blocks[0].bindings]


def test_pass_on_some_functions_removes_no_others():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            spare = R.exp(x)
            return Module.helper(x)

        @R.function(private=True)
        def helper(x: R.Tensor((6,), "float32")) -> R.Tensor((6,), "float32"):
            spare = R.exp(x)
            return x

        @R.function(private=True)
        def unused(x: R.Tensor((6,), "float32")):
            return x

    after = transform.ApplyPassToFunction(transform.DeadCodeElimination(), "help")(Module)
    assert sorted(v.name_hint for v in after.functions) == ["helper", "main", "unused"]
    assert not after["helper"].body.blocks and "global_symbol" not in after["helper"].attrs
    assert after["main"].body.blocks[0].bindings[0].value.op.name == "relax.exp"


def test_transposed_sums_are_taken_apart():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), a: R.Tensor((3, 4), "float32"), b: R.Tensor((3, 4), "float32")):
            s = R.add(a, b)
            t = R.permute_dims(s)
            return R.matmul(x, t)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), a: R.Tensor((3, 4), "float32"), b: R.Tensor((3, 4), "float32")):
            at = R.permute_dims(a)
            xa = R.matmul(x, at)
            bt = R.permute_dims(b)
            xb = R.matmul(x, bt)
            return R.add(xa, xb)

    _same(transform.ExpandMatmulOfSum(), Before, Expected)


def test_symbols_are_names_with_the_library_prefix():
    @I.ir_module
    class Module:
        I.module_attrs({"system_lib_prefix": "net_"})

        @T.prim_func(private=True)
        def zero(x: T.Buffer((2,), "float32")):
            x[0] = T.float32(0)

        @R.function(private=True)
        def main():
            return R.call_tir(Module.zero, (), R.Tensor((2,), "float32"))

    after = transform.AttachGlobalSymbol()(Module)
    assert {v.name_hint: str(f.attrs["global_symbol"]) for v, f in after.functions.items()} == {
        "net_zero": "net_zero", "main": "main",
    }  # fmt: skip
    assert after["main"].body.blocks[0].bindings[0].value.args[0].name_hint == "net_zero"


def test_transposed_product_of_constants_and_of_itself():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", "n"), "float32"):
            n = T.int64()
            with R.dataflow():
                own = R.permute_dims(x)
                a = R.matmul(x, own)
                R.output(a)
            return a

    after = transform.FuseTransposeMatmul()(Before)
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    assert call.op.name == "relax.call_tir" and [f.name_hint for f in call.args[1].fields] == ["x", "x"]

    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((2, 4), "float32"))
    weight = relax.const(np.ones((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = builder.emit(relax.op.permute_dims(weight))
            out = builder.emit_output(relax.op.matmul(x, turned))
        builder.emit_func_output(out)
    after = transform.FuseTransposeMatmul()(builder.get())
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    assert [type(f).__name__ for f in call.args[1].fields] == ["Var", "Constant"]


def test_transposed_weights_that_others_read_stay():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                turned = R.permute_dims(w)
                a = R.matmul(x, turned)
                b = R.exp(turned)
                out = (a, b)
                R.output(out)
            return out

    assert_structural_equal(transform.FuseTransposeMatmul()(Before), Before)
