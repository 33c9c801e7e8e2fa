"""FuseOpsByPattern, CombineParallelMatmul and AnnotateTIROpPattern, to the letter."""

from __future__ import annotations

import pytest

from relaxish import transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.relax.dpl import is_op, is_tuple_get_item, wildcard
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import InternalError


def _same(pass_, before, expected):
    after = pass_(before)
    assert well_formed(after)
    assert_structural_equal(after, expected)


def test_literals_stay_and_tuples_become_one_parameter():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.concat((x, y))
                b = R.clip(a, 0, 3)
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_concat(pair: R.Tuple(R.Tensor((6,), "float32"), R.Tensor((2,), "float32"))) -> R.Tensor(
            (8,), "float32"
        ):
            R.func_attr({"Composite": "lib.concat", "Primitive": True})
            with R.dataflow():
                gv = R.concat(pair, axis=0)
                R.output(gv)
            return gv

        @R.function(private=True)
        def fused_relax_clip(a: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Composite": "lib.clip", "Primitive": True})
            with R.dataflow():
                gv = R.clip(a, 0, 3)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((6,), "float32"), y: R.Tensor((2,), "float32")) -> R.Tensor((8,), "float32"):
            cls = Expected
            with R.dataflow():
                a = cls.fused_relax_concat((x, y))
                gv = cls.fused_relax_clip(a)
                R.output(gv)
            return gv

    patterns = [
        ("lib.concat", is_op("relax.concat")(wildcard())),
        ("lib.clip", is_op("relax.clip")(wildcard(), wildcard(), wildcard())),
    ]
    _same(transform.FuseOpsByPattern(patterns), Before, Expected)


def test_a_larger_match_takes_in_a_smaller_one():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                c = R.exp(b)
                R.output(c)
            return c

    product = is_op("relax.matmul")(wildcard(), wildcard())
    active = is_op("relax.nn.relu")(product)
    after = transform.FuseOpsByPattern([("lib.chain", active | is_op("relax.exp")(active))])(Before)
    names = sorted(v.name_hint for v in after.functions)
    assert names == ["fused_relax_matmul_relax_nn_relu_relax_exp", "main"]


def test_patterns_end_in_calls():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.split(x, 2)
                b = a[0]
                R.output(b)
            return b

    pattern = is_tuple_get_item(is_op("relax.split")(wildcard()), 0)
    assert_structural_equal(transform.FuseOpsByPattern([("lib.first", pattern)])(Before), Before)


def test_entry_functions_are_graph_functions():
    @I.ir_module
    class Module:
        @T.prim_func
        def kernel(a: T.Buffer((4,), "float32")):
            T.evaluate(0)

    with pytest.raises(InternalError, match="relax function"):
        transform.FuseOpsByPattern([("a.b", wildcard())], entry_functions=["kernel"])(Module)
    with pytest.raises(ValueError, match="Invalid pattern"):
        transform.FuseOpsByPattern([wildcard()])


@I.ir_module
class Projections:
    @R.function
    def main(
        x: R.Tensor((3, 8), "float32"), w0: R.Tensor((8, 4), "float32"), w1: R.Tensor((8, 6), "float32"),
        w2: R.Tensor((8, 2), "float32"), b0: R.Tensor((4,), "float32"), b1: R.Tensor((6,), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            a = R.matmul(x, w0)
            b = R.matmul(x, w1)
            c = R.matmul(x, w2)
            d = R.add(a, b0)
            e = R.add(b, b1)
            out = (d, e, c)
            R.output(out)
        return out


def test_more_products_together_beat_fewer_with_bias():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((3, 8), "float32"), w0: R.Tensor((8, 4), "float32"), w1: R.Tensor((8, 6), "float32"),
            w2: R.Tensor((8, 2), "float32"), b0: R.Tensor((4,), "float32"), b1: R.Tensor((6,), "float32"),
        ):  # fmt: skip
            with R.dataflow():
                w = R.concat((w0, w1, w2), axis=1)
                whole = R.matmul(x, w, out_dtype="float32")
                parts = R.split(whole, [4, 10], axis=1)
                a = parts[0]
                b = parts[1]
                c = parts[2]
                d = R.add(a, b0)
                e = R.add(b, b1)
                out = (d, e, c)
                R.output(out)
            return out

    _same(transform.CombineParallelMatmul(), Projections, Expected)


def test_check_sees_weights_and_may_refuse():
    seen = []

    def check(source, weights, biases, bindings):
        seen.append(([w.name_hint for w in weights], [b.name_hint for b in biases]))
        return False

    assert_structural_equal(transform.CombineParallelMatmul(check)(Projections), Projections)
    assert seen == [(["w0", "w1", "w2"], []), (["w0", "w1"], ["b0", "b1"])]


def test_one_unknown_width_comes_last():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 8), "float32"), w0: R.Tensor((8, "m"), "float32"), w1: R.Tensor((8, 6), "float32")):
            with R.dataflow():
                a = R.matmul(x, w0)
                b = R.matmul(x, w1)
                c = R.nn.relu(a)
                d = R.nn.relu(b)
                out = (c, d)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 8), "float32"), w0: R.Tensor((8, "m"), "float32"), w1: R.Tensor((8, 6), "float32")):
            with R.dataflow():
                w = R.concat((w1, w0), axis=1)
                whole = R.matmul(x, w, out_dtype="float32")
                active = R.nn.relu(whole)
                parts = R.split(active, [6], axis=1)
                c = parts[1]
                d = parts[0]
                out = (c, d)
                R.output(out)
            return out

    _same(transform.CombineParallelMatmul(), Before, Expected)


@pytest.mark.parametrize(("name", "kind"), [("gather", 8), ("copy", 0), ("spread", 1), ("turned", 2)])
def test_kinds_of_prim_funcs(name, kind):
    @I.ir_module
    class Module:
        @T.prim_func
        def gather(x: T.Buffer((8,), "float32"), at: T.Buffer((4,), "int64"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("take"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[at[v]]

        @T.prim_func
        def copy(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("copy"):
                    v = T.axis.spatial(8, i)
                    y[v] = x[v]

        @T.prim_func
        def spread(x: T.Buffer((8,), "float32"), y: T.Buffer((2, 8), "float32")):
            for i, j in T.grid(2, 8):
                with T.block("spread"):
                    v, w = T.axis.remap("SS", [i, j])
                    y[v, w] = x[w]

        @T.prim_func
        def turned(x: T.Buffer((8, 2), "float32"), y: T.Buffer((2, 8), "float32")):
            for i, j in T.grid(2, 8):
                with T.block("turned"):
                    v, w = T.axis.remap("SS", [i, j])
                    y[v, w] = x[w, v]

    assert int(transform.AnnotateTIROpPattern()(Module)[name].attrs["op_pattern"]) == kind
