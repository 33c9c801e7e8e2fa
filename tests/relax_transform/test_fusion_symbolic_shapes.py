"""Fusion where dimensions are expressions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.ir.transform import Sequential
from relaxish.relax import op, transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.transform.fuse_tir import _solve

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("formal", "actual", "want"),
    [
        (n * 2, m * 2, m),
        (n * 2, tir.Mul(tir.IntImm("int64", 2), m), m),
        (n * 2 + 1, m * 4 + 1, m * 2),
        (tir.Mul(tir.IntImm("int64", 3), n), tir.IntImm("int64", 12), tir.IntImm("int64", 4)),
    ],
)
def test_dimensions_are_solved(formal, actual, want):
    values = {}
    _solve(formal, actual, values)
    assert_structural_equal(values[n], want)


def test_dimensions_that_cannot_be_solved():
    with pytest.raises(relaxish.TVMError, match="cannot be matched"):
        _solve(n * 2, m * 3, {})
    with pytest.raises(relaxish.TVMError, match="cannot be matched"):
        _solve(n * m, tir.Var("k", "int64"), {})


def test_shapes_keep_their_form_in_functions_of_groups():
    two = tir.IntImm("int64", 2)
    x = relax.Var("x", relax.TensorStructInfo([tir.Mul(two, n), n], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.exp(x))
            b = builder.emit_output(op.nn.relu(a))
        builder.emit_func_output(b)
    passes = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps()]
    after = Sequential(passes)(builder.get())
    assert str(after["fused_tir_exp_relu"].params[0].struct_info) == 'R.Tensor((2 * n, n), dtype="float32")'


def test_fused_programs_compute_the_same():
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2, "n", "n"), "float32")):
            n = T.int64()
            with R.dataflow():
                flat = R.reshape(x, (2 * n, n))
                a = R.nn.softmax(flat)
                b = R.nn.silu(a)
                c = R.maximum(b, b)
                R.output(c)
            return c

    fuse = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps(), transform.FuseTIR()]
    x = np.random.default_rng(1).uniform(0, 1, (2, 3, 3)).astype("float32")
    results = []
    for mod in (Model, Sequential(fuse)(Model)):
        built = relaxish.build(mod, "llvm", relax_pipeline="default_build")
        results.append(relaxish.VirtualMachine(built, relaxish.cpu())["main"](relaxish.nd.array(x)).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_copies_at_the_end_go_with_fusion():
    x = relax.Var("x", relax.TensorStructInfo([4, 6], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(op.nn.relu(builder.emit(op.exp(x))))
            b = builder.emit_output(a)
        builder.emit_func_output(b)
    passes = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps()]
    grouped = Sequential(passes)(builder.get())
    assert any(isinstance(b.value, relax.Var) for b in grouped["main"].body.blocks[0].bindings)
    after = transform.FuseTIR()(grouped)
    (only,) = after["main"].body.blocks[0].bindings
    assert only.value.op.name == "relax.call_tir"
