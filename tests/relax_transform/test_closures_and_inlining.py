"""Closures and private functions through the passes that move code between functions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.ir import assert_structural_equal
from relaxish.relax import transform
from relaxish.relax.analysis import well_formed
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class WithClosure:
    @R.function(private=True)
    def twice(a: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        b = R.add(a, a)
        return b

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = WithClosure

        @R.function
        def shifted(z: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            inner = R.add(z, x)
            return inner

        s = shifted(x)
        t = cls.twice(s)
        u = R.negative(t)
        return u


@pytest.mark.parametrize("inline", [False, True])
def test_results_of_closures_are_arguments_of_functions(inline):
    mod = transform.LambdaLift()(WithClosure)
    if inline:
        mod = transform.InlinePrivateFunctions()(mod)
        # A closure is made of the lifted function, so it is still there; the other one is gone.
        assert sorted(v.name_hint for v in mod.functions) == ["main", "main_shifted"]
    assert well_formed(mod)
    built = relaxish.build(mod, "llvm", relax_pipeline="default_build")
    x = np.arange(3, dtype="float32")
    out = relaxish.VirtualMachine(built, relaxish.cpu())["main"](relaxish.nd.array(x))
    np.testing.assert_array_equal(out.numpy(), -4 * x)


def test_blocks_between_which_nothing_is_left_become_one():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            a = R.exp(x)
            with R.dataflow():
                unused = R.exp(a)
                also = R.negative(unused)
                R.output(also)
            b = R.add(a, x)
            return b

    after = transform.DeadCodeElimination()(Before)
    assert [len(block.bindings) for block in after["main"].body.blocks] == [2]
    assert_structural_equal(from_source(after.script()), after)
