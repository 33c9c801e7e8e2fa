"""Scans, sorting and sampling on GPUs, run in the emulator, which also looks for races."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from relaxish import te, topi
from relaxish.interp import run_prim_func
from relaxish.relax.backend.gpu_generic import gpu_2d_continuous_cumsum, gpu_multinomial_from_uniform
from relaxish.target import Target
from relaxish.tir import Schedule

pytest.importorskip("llvmlite")
CUDA = Target("cuda", host="llvm")


def emulate(func, *arrays):
    from relaxish.testing import emulate_cuda

    emulate_cuda(func.with_attr("global_symbol", "main"), *arrays, target=CUDA)


def test_sums_of_rows():
    func = gpu_2d_continuous_cumsum(in_dtype="int32", out_dtype="int64")
    for n in (5, 600):
        x = np.random.default_rng(n).integers(-9, 9, (3, n)).astype("int32")
        out = np.zeros(x.shape, "int64")
        emulate(func, x, out)
        np.testing.assert_array_equal(out, np.cumsum(x, 1))
    with pytest.raises(ValueError, match="power of 2"):
        gpu_2d_continuous_cumsum(ty_len=3)


def test_totals_of_totals():
    """Small blocks, so that one row takes three rounds."""
    func = gpu_2d_continuous_cumsum(2, 4, 1, "int32")
    x = np.random.default_rng(0).integers(0, 9, (2, 1000)).astype("int32")
    out = np.zeros_like(x)
    emulate(func, x, out)
    np.testing.assert_array_equal(out, np.cumsum(x, 1))


def test_draws():
    rng = np.random.default_rng(0)
    prob = rng.random((4, 1300)).astype("float32")
    prob /= prob.sum(1, keepdims=True)
    draws, rows = rng.random((6, 1)).astype("float32"), rng.integers(0, 4, (6, 1))
    out = np.zeros((6, 1), "int64")
    emulate(gpu_multinomial_from_uniform(lockstep=False), prob, draws, rows, out)
    want = [(np.cumsum(prob[r].astype("float64")) >= u - 1e-6).argmax() for (r,), (u,) in zip(rows, draws)]
    assert out.ravel().tolist() == want
    with pytest.raises(ValueError, match="power of 2"):
        gpu_multinomial_from_uniform(tx_len=33)


def program(shape, compute, dtype="float32", dynamic=False):
    with CUDA:
        dims = [te.var(f"n{i}", "int64") for i in range(len(shape))] if dynamic else shape
        x = te.placeholder(dims, dtype, "x")
        return te.create_prim_func([x, compute(x)])


@pytest.fixture
def short_stretches(monkeypatch):
    """Blocks of few elements: lines are longer than one, at little cost."""
    for name in ("sort", "scan"):
        monkeypatch.setattr(sys.modules[f"relaxish.topi.cuda.{name}"], "_STRETCH", 32)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((3, 150), 1), ((70, 3), 0), ((5,), 0), ((2, 33, 3), 1)])
def test_sorting_is_stable(short_stretches, shape, axis, ascending):
    x = np.random.default_rng(0).integers(0, 9, shape).astype("float32")
    order, values = np.zeros(shape, "int32"), np.zeros_like(x)
    run_prim_func(program(shape, lambda t: topi.cuda.argsort(t, None, axis, ascending, "int32")), [x, order])
    np.testing.assert_array_equal(order, np.argsort(x if ascending else -x, axis=axis, kind="stable"))
    run_prim_func(program(shape, lambda t: topi.cuda.sort(t, axis, ascending)), [x, values])
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


def first_sorted(x, counts, axis, ascending):
    """Positions that sort the first ``counts`` elements of each line along ``axis``."""
    lines = np.moveaxis(x, axis, -1)
    places = np.empty(lines.shape, "int32")
    for line, out, count in zip(lines.reshape(-1, lines.shape[-1]), places.reshape(-1, lines.shape[-1]), counts):
        out[:] = np.arange(len(out))
        out[:count] = np.argsort(line[:count] if ascending else -line[:count], kind="stable")
    return np.moveaxis(places, -1, axis)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((4, 150), 1), ((70, 4), 0), ((2, 33, 2), 1)])
@pytest.mark.parametrize("where", ["gpu", "cpu"])
def test_only_the_first_elements_of_lines_are_sorted(short_stretches, shape, axis, ascending, where):
    x = np.random.default_rng(0).integers(0, 9, shape).astype("float32")
    counts = np.array([0, 17, shape[axis] - 5, shape[axis] + 3], "int32")
    order = np.zeros(shape, "int32")
    with CUDA:
        t, c = te.placeholder(shape, "float32", "x"), te.placeholder((4,), "int32", "counts")
        argsort = topi.cuda.argsort if where == "gpu" else topi.argsort
        func = te.create_prim_func([t, c, argsort(t, c, axis, ascending, "int32")])
    run_prim_func(func, [x, counts, order])
    np.testing.assert_array_equal(order, first_sorted(x, counts, axis, ascending))


def test_sorting_first_elements_has_no_races(short_stretches):
    x, counts = np.random.default_rng(5).standard_normal((3, 100)).astype("float32"), np.array([100, 0, 40], "int32")
    order = np.zeros((3, 100), "float32")
    with CUDA:
        t, c = te.placeholder((3, 100), "float32", "x"), te.placeholder((3,), "int32", "counts")
        func = te.create_prim_func([t, c, topi.cuda.argsort_thrust(t, c)])
    sch = Schedule(func)
    sch.bind(sch.get_loops("argsorted")[0], "blockIdx.x")
    sch.bind(sch.get_loops("argsorted")[1], "threadIdx.x")
    emulate(sch.mod["main"], x, counts, order)
    np.testing.assert_array_equal(order, first_sorted(x, counts, 1, True))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((3, 70), 1), ((70, 3), 0), ((2, 9, 3), 1), ((3, 5), None)])
def test_scans(short_stretches, shape, axis, exclusive):
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape).astype("float32")
    for name, undo in (("cumsum", np.subtract), ("cumprod", np.divide)):
        want = getattr(np, name)(x.astype("float64"), axis)
        if exclusive:
            want = undo(want, x.reshape(want.shape))
        out = np.zeros(want.shape, "float64")
        run_prim_func(program(shape, lambda t: getattr(topi.cuda, name)(t, axis, "float64", exclusive)), [x, out])
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_scans_and_sorts_have_no_races(short_stretches):
    x = np.random.default_rng(2).standard_normal((2, 100)).astype("float32")
    order, total = np.zeros((2, 100), "int32"), np.zeros_like(x)
    emulate(program((2, 100), lambda t: topi.cuda.argsort(t, axis=1, dtype="int32"), dynamic=True), x, order)
    np.testing.assert_array_equal(order, np.argsort(x, axis=1, kind="stable"))
    emulate(program((2, 100), lambda t: topi.cuda.cumsum(t, 1), dynamic=True), x, total)
    np.testing.assert_allclose(total, np.cumsum(x, 1), rtol=1e-4, atol=1e-4)


def test_reductions_of_lines():
    x = np.random.default_rng(3).standard_normal((3, 40)).astype("float32")
    with CUDA:
        t = te.placeholder(x.shape, "float32", "x")
        scan, whole = topi.cuda.exclusive_scan(t, 1, return_reduction=True)
        func = te.create_prim_func([t, scan, whole])
    out, total = np.zeros_like(x), np.zeros(3, "float32")
    run_prim_func(func, [x, out, total])
    np.testing.assert_allclose(out, np.cumsum(x, 1) - x, atol=1e-5)
    np.testing.assert_allclose(total, x.sum(1), atol=1e-5)


def test_topk_of_a_model():
    import relaxish
    from relaxish.runtime.nvidia import providers
    from relaxish.script import ir as I
    from relaxish.script import relax as R

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((3, 70), "float32")):
            with R.dataflow():
                best = R.topk(x, k=3, axis=1, ret_type="both", largest=True, dtype="int64")
                places = best[1]
                c = R.cumsum(x, axis=1)
                d = R.cumsum(x, axis=0, exclusive=True)
                total = R.add(c, d)
                R.output(places, total)
            return (places, total)

    x = np.random.default_rng(4).standard_normal((3, 70)).astype("float32")
    with providers.use("emulator"):
        vm = relaxish.VirtualMachine(relaxish.build(Model, target="cuda"), relaxish.cuda())
        places, total = (t.numpy() for t in vm["main"](relaxish.nd.array(x, relaxish.cuda())))
    np.testing.assert_array_equal(places, np.argsort(-x, 1, kind="stable")[:, :3])
    np.testing.assert_allclose(total, np.cumsum(x, 1) + np.cumsum(x, 0) - x, rtol=1e-4, atol=1e-4)


def test_draws_of_a_model():
    import relaxish
    from relaxish.runtime.nvidia import providers
    from relaxish.script import ir as I
    from relaxish.script import relax as R

    @I.ir_module
    class Model:
        @R.function
        def main(p: R.Tensor((3, 40), "float32"), u: R.Tensor((4, 1), "float32"), rows: R.Tensor((4, 1), "int64")):
            with R.dataflow():
                out = R.multinomial_from_uniform(p, u, rows, dtype="int64")
                R.output(out)
            return out

    rng = np.random.default_rng(5)
    prob = rng.random((3, 40)).astype("float32")
    prob /= prob.sum(1, keepdims=True)
    draws, rows = rng.random((4, 1)).astype("float32"), rng.integers(0, 3, (4, 1))
    with providers.use("emulator"):  # which would report the races of the field's kernel
        vm = relaxish.VirtualMachine(relaxish.build(Model, target="cuda"), relaxish.cuda())
        out = vm["main"](*(relaxish.nd.array(a, relaxish.cuda()) for a in (prob, draws, rows))).numpy()
    want = [(np.cumsum(prob[r].astype("float64")) >= u - 1e-6).argmax() for (r,), (u,) in zip(rows, draws)]
    assert out.ravel().tolist() == want
