"""CanonicalizeBindings, EliminateCommonSubexpr, ConvertToDataflow, FoldConstant and DeadCodeElimination, to the letter."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def _same(pass_, before, expected):
    after = pass_(before)
    assert well_formed(after)
    assert_structural_equal(after, expected)


def test_constants_are_used_directly():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((5,), "float32")):
            pair = (x, R.const(2.0, "float32"))
            a = pair[0]
            b = pair[1]
            c = R.const(7.0, "float32")
            d = R.add(a, b)
            e = R.multiply(d, c)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((5,), "float32")):
            pair = (x, R.const(2.0, "float32"))
            b = pair[1]
            c = R.const(7.0, "float32")
            d = R.add(x, R.const(2.0, "float32"))
            e = R.multiply(d, R.const(7.0, "float32"))
            return e

    _same(transform.CanonicalizeBindings(), Before, Expected)


def test_output_that_casts_a_value_is_bound_to_it():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor("float32", ndim=1)):
            with R.dataflow():
                k = T.int64()
                a = R.exp(x)
                b = R.match_cast(a, R.Tensor((k,), "float32"))
                R.output(b)
            return b

    lowered = transform.CanonicalizeBindings()(Before)
    (cast,) = lowered["main"].body.blocks[0].bindings
    assert isinstance(cast, relax.MatchCast) and cast.value.op.name == "relax.exp"


def _module_of(func):
    from relaxish import IRModule

    return IRModule({"main": func.with_attr("global_symbol", "main")})


def test_branches_keep_their_common_shape():
    @I.ir_module
    class Before:
        @R.function
        def main(c: R.Prim("bool"), x: R.Tensor((6,), "float32"), y: R.Tensor(["p"], "float32")):
            p = T.int64()
            if c:
                a = R.match_cast(y, R.Tensor((6,), "float32"))
                b = R.add(a, x)
                r = R.match_cast(b, R.Tensor((p,), "float32"))
            else:
                r = R.exp(y)
            return r

    after = transform.CanonicalizeBindings()(Before)
    assert well_formed(after)
    assert_structural_equal(after["main"].ret_struct_info, Before["main"].ret_struct_info, map_free_vars=True)


def test_casts_that_contradict():
    @R.function(private=True)
    def func(x: R.Tensor((6,), "float32"), y: R.Tensor((8,), "float32")):
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.match_cast(y, R.Tensor((n,), "float32"))
        return (a, b)

    with pytest.raises(ValueError, match="MatchCast statements must be consistent"):
        transform.CanonicalizeBindings()(_module_of(func))


def test_tuple_taken_apart_and_put_together():
    @I.ir_module
    class Before:
        @R.function
        def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))):
            a = t[0]
            b = t[1]
            again = (a, b)
            return again

    after = transform.DeadCodeElimination()(transform.CanonicalizeBindings()(Before))
    assert not after["main"].body.blocks and after["main"].body.body.same_as(after["main"].params[0])


def test_equal_values_of_every_kind_are_shared():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((5,), "float32")):
            with R.dataflow():
                n1 = R.prim_value(3)
                n2 = R.prim_value(3)
                a = R.exp(x)
                b = R.exp(x)
                R.output(a, b, n1, n2)
            c = R.add(a, b)
            return (c, n1, n2)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((5,), "float32")):
            with R.dataflow():
                n1 = R.prim_value(3)
                n2 = n1
                a = R.exp(x)
                b = a
                R.output(a, b, n1, n2)
            c = R.add(a, b)
            return (c, n1, n2)

    _same(transform.EliminateCommonSubexpr(), Before, Expected)


def test_existing_dataflow_blocks_grow():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((5,), "float32")):
            a = R.exp(x)
            with R.dataflow():
                b = R.exp(a)
                c = R.exp(b)
                R.output(c)
            d = R.exp(c)
            _ = R.print(format="done")
            e = R.exp(d)
            return e

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((5,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                c = R.exp(b)
                d = R.exp(c)
                R.output(d)
            _ = R.print(format="done")
            e = R.exp(d)
            return e

    _same(transform.ConvertToDataflow(), Before, Expected)
    one = transform.ConvertToDataflow(min_size=1)(Before)
    assert [isinstance(b, relax.DataflowBlock) for b in one["main"].body.blocks] == [True, False, True]


def test_operators_fold_in_dataflow_blocks_only():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            with R.dataflow():
                two = R.add(R.const(np.ones(6, "float32")), R.const(np.ones(6, "float32")))
                shape = R.shape([2, 3])
                y = R.multiply(x, two)
                z = R.reshape(y, shape)
                R.output(z)
            w = R.add(R.const(np.ones(2, "float32")), R.const(np.ones(2, "float32")))
            return (z, w)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            with R.dataflow():
                y = R.multiply(x, R.const(np.full(6, 2, "float32")))
                z = R.reshape(y, R.shape([2, 3]))
                R.output(z)
            w = R.add(R.const(np.ones(2, "float32")), R.const(np.ones(2, "float32")))
            return (z, w)

    _same(transform.FoldConstant(), Before, Expected)


def test_dead_code_elimination_of_unknown_entry():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((6,), "float32")):
            return x

        @R.function(private=True)
        def spare(x: R.Tensor((6,), "float32")):
            return x

    assert [v.name_hint for v in transform.DeadCodeElimination()(Module).functions] == ["main"]
    assert len(transform.DeadCodeElimination(["spare"])(Module).functions) == 2
    with pytest.raises(ValueError):
        transform.DeadCodeElimination(["missing"])(Module)
