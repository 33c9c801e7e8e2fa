"""Local functions, weights lifted out or fetched one by one, devices, mixed precision: who is called what, and when."""

from __future__ import annotations

import pytest

from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError


def test_names_of_lifted_functions():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def f(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                @R.function
                def g(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    return R.add(b, b)

                return g(a)

            @R.function
            def h(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                @R.function
                def g(b: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    return R.multiply(b, b)

                return g(a)

            y = f(x)
            return h(y)

        @R.function(private=True)
        def main_h() -> R.Tensor((), "int32"):
            return R.const(1, "int32")

    after = transform.LambdaLift()(Before)
    names = sorted(v.name_hint for v in after.functions)
    assert names == ["main", "main_f", "main_f_g", "main_h", "main_h_0", "main_h_g"]
    assert well_formed(after)
    assert [b.value.op.name_hint for b in after["main"].body.blocks[0].bindings] == ["main_f", "main_h_0"]


def test_recursive_closures_pass_on_what_they_capture():
    @I.ir_module
    class Before:
        @R.function
        def main(n: R.Tensor((), "int32"), s: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def loop(i: R.Tensor((), "int32"), t: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                c = R.less(i, n)
                if c:
                    j = R.add(i, R.const(1, "int32"))
                    r = loop(j, R.add(t, t))
                else:
                    r = t
                return r

            out = loop(n, s)
            return out

    after = transform.LambdaLift()(Before)
    assert well_formed(after)
    text = after["main_loop"].script()
    assert "main_loop(" in text and len(after["main_loop"].params) == 3
    first, second = after["main"].body.blocks[0].bindings
    assert first.value.op.name == "relax.make_closure" and second.value.op.name == "relax.invoke_pure_closure"


def test_what_needs_no_weight_is_not_handed_over():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                z = R.zeros((4,), "float32")
                u = R.add(w, z)
                y = R.add(x, u)
                o = R.add(y, z)
                R.output(o)
            return o

    after = transform.LiftTransformParams()(Before)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), p: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                z = R.zeros((4,), "float32")
                y = R.add(x, p)
                o = R.add(y, z)
                R.output(o)
            return o

        @R.function
        def main_transform_params(params: R.Tuple(R.Tensor((4,), "float32"))) -> R.Tuple(R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                z = R.zeros((4,), "float32")
                w = params[0]
                u = R.add(w, z)
                gv = (u,)
                R.output(gv)
            return gv

    assert_structural_equal(after, Expected)
    assert_structural_equal(
        transform.LiftTransformParams()(after)["main_transform_params"], after["main_transform_params"]
    )


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "no function named"), ("kernel", "no graph function"), ("plain", "num_input")]
)
def test_functions_to_share_a_transform_are_checked(name, message):
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def kernel(x: T.Buffer((4,), "float32")):
            x[0] = T.float32(0)

        @R.function
        def plain(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

    with pytest.raises(RelaxishError, match=message):
        transform.LiftTransformParams([name])(Before)


def test_weights_are_fetched_and_results_handed_over_after_their_last_use():
    handle = relax.Var("handle", relax.ObjectStructInfo())

    @I.ir_module
    class Before:
        @R.function
        def main_transform_params(
            params: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            R.func_attr({"relax.force_pure": True})
            a = params[0]
            b = R.exp(a)
            c = params[1]
            d = R.add(b, c)
            out = (d, b, b)
            return out

    after = transform.LazyTransformParams("get", "put", extra_get_item_params=[handle])(Before)["main_transform_params"]
    assert [p.name_hint for p in after.params] == ["handle"] and not after.is_pure
    assert "relax.force_pure" not in after.attrs
    steps = []
    for block in after.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call):
                name = getattr(call.op, "global_symbol", None) or call.op.name
                index = next((int(a.value) for a in call.args if isinstance(a, relax.PrimValue)), None)
                steps.append((name, index))
    assert steps == [
        ("get", 0), ("relax.exp", None), ("relax.vm.kill_object", None), ("get", 1), ("relax.add", None), ("put", 1),
        ("put", 2), ("relax.vm.kill_object", None), ("put", 0),
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="set_item only"):
        transform.LazyTransformParams(None, "put")


def test_symbols_of_fetched_weights_stay_parameters():
    @I.ir_module
    class Before:
        @R.function
        def main_transform_params(
            params: R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"])),
        ) -> R.Tuple(R.Tensor(("n",), "float32")):
            n = T.int64()
            a = params[0]
            b = R.exp(a)
            out = (b,)
            return out

    after = transform.LazyTransformParams()(Before)["main_transform_params"]
    (holder,) = after.params
    (n,) = holder.struct_info.values
    assert isinstance(holder.struct_info, relax.ShapeStructInfo)
    casts = [b for block in after.body.blocks for b in block.bindings if isinstance(b, relax.MatchCast)]
    assert [c.struct_info.shape.values[0] for c in casts] == [n]


def test_weights_asked_for_twice_come_once():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32"), v: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            a = R.add(x, w)
            b = R.add(a, w)
            return (b, w)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32"), fget_param: R.Callable([R.Prim("int64"), R.Object], R.Object)):
            R.func_attr({"num_input": 2})
            w0 = fget_param(R.prim_value(0), R.str("w"))
            w = R.match_cast(w0, R.Tensor((4,), "float32"))
            a = R.add(x, w)
            b = R.add(a, w)
            return (b, w)

    assert_structural_equal(transform.LazyGetInput()(Before), Expected)


def test_devices_spread_from_results_and_hints():
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32", "cuda:0")):
            a = R.add(x, x)
            h = R.hint_on_device(a, R.device(1, 0))
            b = R.hint_on_device(y, R.device(1, 0))
            return (h, b)

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0"), y: R.Tensor((4,), "float32", "cuda:0")):
            a: R.Tensor((4,), "float32", "llvm:0") = R.add(x, x)
            h: R.Tensor((4,), "float32", "llvm:0") = a
            b: R.Tensor((4,), "float32", "llvm:0") = R.to_vdevice(y, "llvm:0")
            return (h, b)

    assert_structural_equal(transform.RealizeVDevice()(Before), Expected)

    @I.ir_module
    class Unknown:
        I.module_global_infos({"vdevice": [I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            b = R.hint_on_device(x, R.device(1, 0))
            return b

    with pytest.raises(ValueError, match="Expected to find device"):
        transform.RealizeVDevice()(Unknown)


def test_constants_that_float16_cannot_hold_keep_float32():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.add(a, R.const(1.0, "float32"))
                c = R.multiply(b, R.const(1e6, "float32"))
                R.output(c)
            return c

    bindings = transform.ToMixedPrecision()(Before)["main"].body.blocks[0].bindings
    dtypes = {b.value.op.name: b.var.struct_info.dtype for b in bindings if b.value.op.name != "relax.astype"}
    assert dtypes == {"relax.matmul": "float32", "relax.add": "float16", "relax.multiply": "float32"}


def test_gathers_of_tables_of_matrices_come_after_the_product():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 1, 8), "float32"), table: R.Tensor((5, 8, 4), "float32"), i: R.Tensor((3,), "int64")):
            w = R.take(table, i, axis=0)
            y = R.matmul(x, w)
            return y

    calls = [b.value.op.name for b in transform.ReorderTakeAfterMatmul()(Before)["main"].body.blocks[0].bindings]
    assert calls == [f"relax.{name}" for name in ("permute_dims", "reshape", "matmul", "reshape", "take", "einsum")]


@pytest.mark.parametrize(("order", "direction"), [("deep", "from-inputs"), ("depth-first", "sideways")])
def test_unknown_orders_are_refused(order, direction):
    with pytest.raises(ValueError, match="Allowed values are"):
        transform.TopologicalSort(order, direction)


def test_parameters_decide_the_order_from_the_inputs():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                c = R.const(1.0, "float32")
                b = R.exp(y)
                a = R.exp(x)
                d = R.add(b, c)
                e = R.add(a, d)
                R.output(e)
            return e

    after = transform.TopologicalSort("depth-first", "from-inputs")(Before)
    assert [v.var.name_hint for v in after["main"].body.blocks[0].bindings] == ["a", "b", "c", "d", "e"]
