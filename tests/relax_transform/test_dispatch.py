"""Sorting, scans and sampling by kernels of their own."""

from __future__ import annotations

import numpy as np

import relaxish
from relaxish import relax, topi
from relaxish.ir import assert_structural_equal
from relaxish.relax.backend import DispatchSampling, DispatchSortScan
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Draws:
    @R.function
    def main(p: R.Tensor((2, 4), "float32"), u: R.Tensor((5, 1), "float32"), rows: R.Tensor((5, 1), "int64")):
        with R.dataflow():
            gv = R.multinomial_from_uniform(p, u, rows, dtype="int64")
            R.output(gv)
        return gv


def test_draws_are_looked_up_in_cumulated_probabilities():
    with relaxish.Target("llvm"):
        after = DispatchSampling()(Draws)
    total, found = after["main"].body.blocks[0].bindings
    assert total.value.op.name == "relax.cumsum" and found.value.args[0].name_hint == "get_sample_index"
    vm = relaxish.VirtualMachine(relaxish.build(after, "llvm"), relaxish.cpu())
    probabilities = np.array([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]], "float32")
    samples = np.array([[0.05], [0.15], [0.95], [0.6], [0.25]], "float32")
    rows = np.array([[0], [0], [0], [1], [1]], "int64")
    out = vm["main"](*map(relaxish.nd.array, (probabilities, samples, rows))).numpy()
    assert out.tolist() == [[0], [1], [3], [2], [1]]


def test_sorting_is_topi_s():
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((3, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(relax.op.sort(x, axis=1, descending=True))
            b = bb.emit(relax.op.cumsum(a, axis=0))
            out = bb.emit_output(b)
        bb.emit_func_output(out)
    with relaxish.Target("llvm"):
        after = DispatchSortScan()(bb.get())
    expected = relax.BlockBuilder()
    with expected.function("main", [x]):
        with expected.dataflow():
            a = expected.emit_te(topi.sort, x, 1, False)
            b = expected.emit_te(topi.cumsum, a, 0)
            out = expected.emit_output(b)
        expected.emit_func_output(out)
    assert_structural_equal(after, expected.get())
