"""From graph IR to results through ``relaxish.build``: static, dynamic, branching and calling models."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.runtime import VirtualMachine, cpu, load_module, nd

op = relaxish.op
RNG = np.random.default_rng(0)
W = RNG.standard_normal((16, 8)).astype("float32")


def static_model():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo([4, 16], "float32"))
    w = relax.Var("w", relax.TensorStructInfo([16, 8], "float32"))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            h = bb.emit(op.nn.relu(bb.emit(op.matmul(x, w))))
            total = bb.emit(op.sum(h, axis=1))
            out = bb.emit_output(relax.Tuple([h, total]))
        bb.emit_func_output(out)
    return bb.get()


def dynamic_model():
    bb = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo([n, 16], "float32"))
    y = relax.Var("y", relax.TensorStructInfo([n, 16], "float32"))
    with bb.function("main", [x, y]):
        with bb.dataflow():
            h = bb.emit(op.nn.relu(bb.emit(op.add(x, y))))
            out = bb.emit_output(op.matmul(h, relax.const(W)))
        bb.emit_func_output(out)
    return bb.get()


@pytest.mark.parametrize("pipeline", ["default_build", None])
@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_static_model(pipeline, exec_mode):
    ex = relaxish.build(static_model(), "llvm", relax_pipeline=pipeline, exec_mode=exec_mode)
    x = RNG.standard_normal((4, 16)).astype("float32")
    h, total = VirtualMachine(ex, cpu())["main"](x, W)
    want = np.maximum(x @ W, 0)
    np.testing.assert_allclose(h.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total.numpy(), want.sum(1), rtol=1e-4, atol=1e-5)
    assert "main" in ex.plans


@pytest.mark.parametrize("plan", [True, False])
def test_params_are_bound(plan):
    ex = relaxish.build(static_model(), "llvm", params={"w": W}, relax_pipeline="default_build")
    if not plan:
        ex.plans.clear()
    x = RNG.standard_normal((4, 16)).astype("float32")
    h, _ = VirtualMachine(ex, cpu())["main"](nd.array(x))
    np.testing.assert_allclose(h.numpy(), np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pipeline", ["default_build", None])
def test_dynamic_model_and_its_messages(pipeline):
    ex = relaxish.build(dynamic_model(), "llvm", relax_pipeline=pipeline)
    main = VirtualMachine(ex, cpu())["main"]
    for n in (1, 3, 17):
        x, y = RNG.standard_normal((2, n, 16)).astype("float32")
        np.testing.assert_allclose(main(x, y).numpy(), np.maximum(x + y, 0) @ W, rtol=1e-4, atol=1e-5)
    x = np.zeros((3, 16), "float32")
    with pytest.raises(RuntimeError, match="match_cast error"):
        main(x, np.zeros((4, 16), "float32"))
    with pytest.raises(ValueError, match="dtype float32"):
        main(x, x.astype("float64"))
    with pytest.raises(ValueError, match="ndim 2"):
        main(x, x[0])


def test_if_model():
    bb = relax.BlockBuilder()
    c = relax.Var("c", relax.TensorStructInfo([], "bool"))
    x = relax.Var("x", relax.TensorStructInfo([8], "float32"))
    yes, no = op.add(x, x), op.multiply(x, x)
    with bb.function("main", [c, x], attrs={"relax.force_pure": False}):
        out = bb.emit(relax.If(c, relax.SeqExpr([], yes), relax.SeqExpr([], no)))
        bb.emit_func_output(out)
    ex = relaxish.build(bb.get(), "llvm", relax_pipeline="default_build")
    main = VirtualMachine(ex, cpu())["main"]
    value = RNG.standard_normal(8).astype("float32")
    np.testing.assert_allclose(main(np.array(True), value).numpy(), value + value, rtol=1e-6)
    np.testing.assert_allclose(main(np.array(False), value).numpy(), value * value, rtol=1e-6)


def test_export_profile_and_timing(tmp_path):
    ex = relaxish.build(static_model(), "llvm", relax_pipeline="default_build")
    ex.export_library(str(tmp_path / "m.so"))
    x = RNG.standard_normal((4, 16)).astype("float32")
    vm = VirtualMachine(load_module(tmp_path / "m.so"), cpu(), profile=True)
    np.testing.assert_allclose(vm["main"](x, W)[0].numpy(), np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5)
    report = vm.profile("main", x, W)
    assert "float32[4, 16]" in str(report)
    assert vm.time_evaluator("main", cpu(), number=2, repeat=2)(x, W).min > 0


def test_interpreted_mode_agrees():
    pytest.importorskip("relaxish.interp")
    ex = relaxish.build(static_model(), "llvm", relax_pipeline="default_build", exec_mode="interpret")
    x = RNG.standard_normal((4, 16)).astype("float32")
    h, _ = VirtualMachine(ex, cpu())["main"](x, W)
    np.testing.assert_allclose(h.numpy(), np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5)


def test_compile_routes_and_bad_arguments():
    from relaxish import te

    a = te.placeholder((8,), name="A")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="B")])
    mod = relaxish.compile(func, "llvm")
    out = nd.empty((8,), "float32")
    mod(np.arange(8, dtype="float32"), out)
    np.testing.assert_array_equal(out.numpy(), np.arange(1, 9))
    assert isinstance(relaxish.compile(static_model(), "llvm"), relaxish.VMExecutable)
    with pytest.raises(ValueError, match="exec_mode"):
        relaxish.build(static_model(), "llvm", exec_mode="magic")
    with pytest.raises(TypeError, match="IRModule"):
        relaxish.build(3)
    with pytest.raises(relaxish.TVMError, match="no code generator"):
        relaxish.build(static_model(), "hexagon", relax_pipeline="default_build")


def test_constant_folding_runs_natively():
    from relaxish import te
    from relaxish.driver import _evaluate_natively

    a = te.placeholder((6, 4), name="A")
    func = te.create_prim_func([a, te.compute((4, 6), lambda i, j: a[j, i] * 2.0, name="B")])
    source, out = RNG.standard_normal((6, 4)).astype("float32"), np.empty((4, 6), "float32")
    assert _evaluate_natively(func, [source], [out])
    np.testing.assert_array_equal(out, source.T * 2)
