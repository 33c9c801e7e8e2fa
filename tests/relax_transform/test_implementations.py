"""Replaced implementations, in-place calls, lifting, sharing of values, trivial bindings."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def check(run, before, expected):
    after = run(before)
    assert_structural_equal(after, expected)
    assert well_formed(after)


@I.ir_module
class Add:
    @T.prim_func(private=True)
    def add(
        a: T.Buffer((T.int64(16),), "float32"),
        b: T.Buffer((T.int64(16),), "float32"),
        c: T.Buffer((T.int64(16),), "float32"),
    ):
        T.func_attr({"operator_name": "relax.add"})
        for i in range(T.int64(16)):
            with T.block("add"):
                vi = T.axis.remap("S", [i])
                c[vi] = a[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        with R.dataflow():
            lv = R.call_tir(Add.add, (x, y), out_sinfo=R.Tensor((16,), dtype="float32"))
            gv = lv
            R.output(gv)
        return gv


@T.prim_func(private=True)
def add_2d(
    a: T.Buffer((T.int64(4), T.int64(4)), "float32"),
    b: T.Buffer((T.int64(4), T.int64(4)), "float32"),
    c: T.Buffer((T.int64(4), T.int64(4)), "float32"),
):
    T.func_attr({"operator_name": "relax.add"})
    for i, j in T.grid(T.int64(4), T.int64(4)):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]


@T.prim_func(private=True)
def add_padded(
    a: T.Buffer((T.int64(3), T.int64(6)), "float32"),
    b: T.Buffer((T.int64(3), T.int64(6)), "float32"),
    c: T.Buffer((T.int64(3), T.int64(6)), "float32"),
):
    T.func_attr({"operator_name": "relax.add"})
    for i, j in T.grid(T.int64(3), T.int64(6)):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]


@pytest.mark.parametrize(
    ("func", "transform_map"), [(add_2d, lambda i: (i // 4, i % 4)), (add_padded, lambda i: (i // 6, i % 6))]
)
def test_alter_op_impl(func, transform_map):
    after = transform.AlterOpImpl({"relax.add": func}, {"relax.add": [transform_map] * 3}, {}, {})(Add)
    after = transform.DeadCodeElimination()(after)
    assert well_formed(after)
    assert "relax_add_replacement" in [v.name_hint for v in after.functions]
    assert ("remove_pad" in [v.name_hint for v in after.functions]) is (func is add_padded)
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    x, y = np.arange(16, dtype="float32"), np.ones(16, "float32")
    np.testing.assert_array_equal(vm["main"](relaxish.nd.array(x), relaxish.nd.array(y)).numpy(), x + y)


def test_in_place_calls():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((1, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                z = R.add(x, y)
                p = R.add(z, y)
                q = R.multiply(p, p)
                r = R.subtract(q, p)
                R.output(r)
            return r

    after = transform.DataflowUseInplaceCalls()(Before)
    assert well_formed(after)
    values = [b.value for b in after["main"].body.blocks[0].bindings]
    assert [v.op.name for v in values] == [
        "relax.add", "relax.call_tir_inplace", "relax.multiply", "relax.call_tir_inplace",
    ]  # fmt: skip
    assert sorted(v.name_hint for v in after.functions) == ["add_inplace", "main", "subtract_inplace"]
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.ones((1, 3), "float32")
    p = x + 2 * y
    np.testing.assert_allclose(vm["main"](relaxish.nd.array(x), relaxish.nd.array(y)).numpy(), p * p - p)


def test_fuse_in_place_calls():
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def exp_inplace(a: T.Buffer((T.int64(4),), "float32")):
            T.func_attr({"op_pattern": 0})
            for i in range(T.int64(4)):
                with T.block("exp"):
                    vi = T.axis.remap("S", [i])
                    a[vi] = T.exp(a[vi])

        @T.prim_func(private=True)
        def sqrt_inplace(a: T.Buffer((T.int64(4),), "float32")):
            T.func_attr({"op_pattern": 0})
            for i in range(T.int64(4)):
                with T.block("sqrt"):
                    vi = T.axis.remap("S", [i])
                    a[vi] = T.sqrt(a[vi])

        @R.function(private=True)
        def fused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Primitive": True})
            cls = Before
            with R.dataflow():
                lv = R.call_tir_inplace(cls.exp_inplace, (x,), [0], R.Tensor((4,), "float32"))
                gv = R.call_tir_inplace(cls.sqrt_inplace, (lv,), [0], R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                gv = cls.fused(x)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def fused(x: T.Buffer((T.int64(4),), "float32")):
            T.func_attr({"tir.noalias": True})
            for i in range(T.int64(4)):
                with T.block("exp"):
                    vi = T.axis.remap("S", [i])
                    x[vi] = T.exp(x[vi])
            for i in range(T.int64(4)):
                with T.block("sqrt"):
                    vi = T.axis.remap("S", [i])
                    x[vi] = T.sqrt(x[vi])

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                gv = R.call_tir_inplace(cls.fused, (x,), [0], R.Tensor((4,), "float32"))
                R.output(gv)
            return gv

    check(transform.FuseTIR(), Before, Expected)


def test_lambda_lift():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            @R.function
            def outer(c: R.Tensor((2,), "float32")):
                @R.function
                def inner(x1: R.Tensor((2,), "float32")):
                    s = R.add(x1, c)
                    return s

                return inner

            made = outer(x)
            res = made(y)
            return res

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def main_inner(x1: R.Tensor((2,), "float32"), c: R.Tensor((2,), "float32")):
            s = R.add(x1, c)
            return s

        @R.function(private=True)
        def main_outer(c: R.Tensor((2,), "float32")) -> R.Object:
            inner = R.make_closure(Expected.main_inner, (c,))
            return inner

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            made = Expected.main_outer(x)
            res = R.invoke_pure_closure(made, (y,), sinfo_args=(R.Tensor((2,), "float32")))
            return res

    check(transform.LambdaLift(), Before, Expected)


def test_common_subexpressions_become_copies():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                lv0 = R.add(x, y)
                lv1 = R.add(x, y)
                gv = R.multiply(lv0, lv1)
                R.output(gv)
            z = R.add(x, y)
            return (gv, z)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                lv0 = R.add(x, y)
                lv1 = lv0
                gv = R.multiply(lv0, lv0)
                R.output(gv)
            z = R.add(x, y)
            return (gv, z)

    check(transform.EliminateCommonSubexpr(), Before, Expected)


def test_outputs_equal_to_inner_values_stay_outputs():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                lv0 = R.exp(x)
                gv = R.exp(x)
                lv1 = R.add(lv0, gv)
                gv1 = R.sin(lv1)
                R.output(gv, gv1)
            z = R.add(gv, gv1)
            return z

    after = transform.EliminateCommonSubexpr()(Before)
    assert well_formed(after)
    after = transform.CanonicalizeBindings()(after)
    assert well_formed(after) and after["main"].script().count("R.exp") == 1


def test_allocations_are_not_shared():
    @I.ir_module
    class Before:
        @R.function
        def main():
            a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
            return (a, b)

    check(transform.EliminateCommonSubexpr(), Before, Before)


def test_canonicalize_bindings():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = x
                z = R.add(y, y)
                gv = z
                gv1 = R.exp(z)
                R.output(gv, gv1)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                gv = R.add(x, x)
                gv1 = R.exp(gv)
                R.output(gv)
            return gv

    check(transform.CanonicalizeBindings(), Before, Expected)


def test_canonicalize_tuples_and_casts():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("m",), "float32"), y: R.Tensor((4,), "float32")):
            m = T.int64()
            n = T.int64()
            t = (x, y)
            a = t[0]
            b = R.match_cast(a, R.Tensor((n,), "float32"))
            c = R.zeros(R.shape([n]), "float32")
            d = R.add(b, c)
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("m",), "float32"), y: R.Tensor((4,), "float32")):
            m = T.int64()
            t = (x, y)
            c = R.zeros(R.shape([m]), "float32")
            d = R.add(x, c)
            return d

    check(transform.CanonicalizeBindings(), Before, Expected)


def test_reshapes_inside_a_block_copy_nothing():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")):
            with R.dataflow():
                a = R.reshape(x, (8,))
                b = R.exp(a)
                c = R.reshape(b, (4, 2))
                R.output(c)
            return c

    after = transform.RewriteDataflowReshape()(transform.LegalizeOps()(Before))
    names = [b.value.op.name for b in after["main"].body.blocks[0].bindings]
    assert names == ["relax.reshape", "relax.call_tir", "relax.call_tir"]  # the output keeps memory of its own


def test_reshape_of_one_field_of_a_tuple():
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def pick(
            a: T.Buffer((T.int64(8),), "float32"),
            b: T.Buffer((T.int64(8),), "float32"),
            c: T.Buffer((T.int64(2), T.int64(4)), "float32"),
        ):
            for i, j in T.grid(T.int64(2), T.int64(4)):
                with T.block("c"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    c[vi, vj] = b[vi * T.int64(4) + vj]

        @R.function
        def main(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")):
            cls = Before
            with R.dataflow():
                a = R.call_tir(cls.pick, (x, y), out_sinfo=R.Tensor((2, 4), "float32"))
                b = R.exp(a)
                R.output(b)
            return b

    after = transform.RewriteDataflowReshape()(Before)
    first = after["main"].body.blocks[0].bindings[0].value
    assert first.op.name == "relax.reshape" and first.args[0].name_hint == "y"
