"""Live ranges, aliases and in-place calls."""

from __future__ import annotations

from relaxish import relax, transform
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.testing.relax.transform import (
    dataflow_alias_analysis,
    dataflow_inplace_analysis,
    dataflow_liveness_analysis,
    dataflow_single_inplace_call,
)


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((1, 4), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.multiply(a, y)
            c = R.subtract(b, b)
            d = R.add(b, c)
            R.output(d)
        return d


def _block(mod):
    return mod["main"].body.blocks[0]


def _named(found):
    return {var.name_hint: value for var, value in found.items()}


def test_live_ranges():
    ranges = _named(dataflow_liveness_analysis(_block(Chain)))
    assert ranges == {"x": (-1, 4), "y": (-1, 4), "a": (0, 1), "b": (1, 3), "c": (2, 3), "d": (3, 4)}


def test_aliases_of_tuples_and_unknown_calls():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32"), z: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                t = (a, x)
                b = t[1]
                c = R.call_pure_packed("anything", a, sinfo_args=R.Tensor((2,), "float32"))
                d = z
                R.output(b, c, d)
            return (b, c, d)

    sets, tuples = dataflow_alias_analysis(_block(Module), [Module["main"].params[0]])
    assert _named(sets) == {"x": {0}, "a": {1}, "t": {2}, "b": {0}, "c": {3, 1}, "d": {-1}}
    assert tuples == {2: [{1}, {0}]}


def test_opportunities():
    params = list(Chain["main"].params)
    sizes, exact = dataflow_inplace_analysis(_block(Chain), [], Chain)
    assert sizes == exact == [(1, {0}), (3, {0, 1})]
    # Parameters known not to be aliased still live after the block.
    assert dataflow_inplace_analysis(_block(Chain), params, Chain)[1] == exact


def test_dynamic_shapes_may_match():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(["n", 2], "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.relu(a)
                R.output(b)
            return b

    assert dataflow_inplace_analysis(_block(Module), [], Module)[1] == [(1, {0})]
    after = transform.DataflowUseInplaceCalls()(Module)
    assert well_formed(after) and "relu_inplace" in [v.name_hint for v in after.functions]


def test_views_are_not_written_over():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                v = R.reshape(a, (4,))
                b = R.nn.relu(a)
                c = R.add(b, v)
                R.output(c)
            return c

    assert dataflow_inplace_analysis(_block(Module), [], Module)[1] == [(3, {0, 1})]


def test_single_call():
    call = _block(Chain).bindings[1].value
    made, mod = dataflow_single_inplace_call(Chain, call, [0])
    assert made.op.name == "relax.call_tir_inplace" and made.args[0].name_hint == "multiply_inplace"
    assert len(mod["multiply_inplace"].params) == 2
    assert [int(i) for i in made.attrs.inplace_indices] == [0]


def test_of_two_arguments_the_last_is_written_over():
    after = transform.DataflowUseInplaceCalls()(Chain)
    calls = [b.value for b in _block(after).bindings if b.value.op.name == "relax.call_tir_inplace"]
    assert [[int(i) for i in c.attrs.inplace_indices] for c in calls] == [[0], [1]]
    assert isinstance(after["main"], relax.Function)


def test_integers_that_follow_the_outputs():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n * 2",), "float32"), s: R.Shape(["n"])) -> R.Tensor(("n * 2",), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.nn.relu(a)
                R.output(b)
            return b

    after = transform.DataflowUseInplaceCalls()(Before)
    call = after["main"].body.blocks[0].bindings[1].value
    assert call.op.name == "relax.call_tir_inplace" and len(call.args) == 3
    assert [p.dtype for p in after[call.args[0]].params] == ["handle", "int64"]
