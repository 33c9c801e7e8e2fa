"""Sorting, scans and sampling by kernels of their own."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, topi
from relaxish.ir import assert_structural_equal
from relaxish.contrib.thrust import can_use_thrust
from relaxish.relax.backend import DispatchSampling, DispatchSortScan
from relaxish.relax.backend.gpu_generic import gpu_multinomial_from_uniform
from relaxish.runtime.registry import register_func, remove_global_func
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


def test_draws_on_a_gpu_are_one_kernel():
    with relaxish.Target("cuda"):
        after = DispatchSampling()(Draws)
    (found,) = after["main"].body.blocks[0].bindings
    assert found.value.args[0].name_hint == "gpu_multinomial_from_uniform"
    kernel = after["gpu_multinomial_from_uniform"]
    assert_structural_equal(kernel, gpu_multinomial_from_uniform(), map_free_vars=True)
    assert kernel.attrs["tir.is_scheduled"]


def test_no_target_no_dispatch():
    for dispatch in (DispatchSampling(), DispatchSortScan()):
        mod = Draws if dispatch.info.name == "DispatchSampling" else one(lambda x: relax.op.sort(x))
        with pytest.raises(ValueError, match="Target not found"):
            dispatch(mod)


def one(make, shape=(3, 4), device=None):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32", device))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(make(x))
        bb.emit_func_output(out)
    return bb.get()


def called(mod):
    (binding,) = mod["main"].body.blocks[0].bindings
    return mod[binding.value.args[0]]


@pytest.mark.parametrize(
    ("make", "compute"),
    [
        (lambda x: relax.op.sort(x, axis=1, descending=True), lambda x: topi.cuda.sort(x, 1, False)),
        (lambda x: relax.op.argsort(x, axis=0, dtype="int64"), lambda x: topi.cuda.argsort(x, axis=0, dtype="int64")),
    ],
)
def test_sorting_on_a_gpu(make, compute):
    with relaxish.Target("cuda"):
        after = DispatchSortScan()(one(make))
        bb = relax.BlockBuilder()
        x = relax.Var("x", R.Tensor((3, 4), "float32"))
        with bb.function("main", [x]):
            with bb.dataflow():
                out = bb.emit_output(bb.call_te(compute, x))
            bb.emit_func_output(out)
    assert_structural_equal(called(after).without_attr("tir.is_scheduled"), called(bb.get()))


def test_topk_on_a_gpu_is_scheduled():
    with relaxish.Target("cuda"):
        after = DispatchSortScan()(one(lambda x: relax.op.topk(x, k=2, axis=1, ret_type="values")))
    assert called(after).attrs["tir.is_scheduled"]


def test_sums_along_rows_have_a_kernel():
    with relaxish.Target("cuda"):
        after = DispatchSortScan()(one(lambda x: relax.op.cumsum(x, axis=-1), (2, 3, 4)))
    flat, total, back = after["main"].body.blocks[0].bindings
    assert flat.value.args[0].global_symbol == "vm.builtin.reshape"
    assert [int(d) for d in flat.var.struct_info.shape] == [6, 4]
    assert total.value.args[0].name_hint == "gpu_2d_continuous_cumsum"
    assert [int(d) for d in back.var.struct_info.shape] == [2, 3, 4]
    for op in (lambda x: relax.op.cumsum(x, axis=-1, exclusive=True), lambda x: relax.op.cumprod(x, axis=0)):
        with relaxish.Target("cuda"):
            after = DispatchSortScan()(one(op))
        assert called(after).attrs["tir.is_scheduled"]


def test_the_virtual_device_decides():
    device = relaxish.ir.VDevice("cuda")
    with relaxish.Target("llvm"):
        after = DispatchSortScan()(one(lambda x: relax.op.cumsum(x, axis=1), device=device))
    assert "gpu_2d_continuous_cumsum" in [g.name_hint for g in after.functions]


def test_thrust_where_target_and_registry_have_it():
    target = relaxish.Target("cuda -libs=thrust")
    assert not can_use_thrust(target, "tvm.contrib.thrust.sort")
    register_func("tvm.contrib.thrust.sort", lambda *args: None)
    register_func("tvm.contrib.thrust.sum_scan", lambda *args: None)
    try:
        assert can_use_thrust(target, "tvm.contrib.thrust.sort")
        assert not can_use_thrust(relaxish.Target("cuda"), "tvm.contrib.thrust.sort")
        for make, name in (
            (lambda x: relax.op.argsort(x, axis=0), "tvm.contrib.thrust.sort"),
            (lambda x: relax.op.topk(x, 2, axis=1), "tvm.contrib.thrust.sort"),
            (lambda x: relax.op.cumsum(x, axis=1), "tvm.contrib.thrust.sum_scan"),
        ):
            with target:
                after = DispatchSortScan()(one(make))
            space, call = after["main"].body.blocks[0].bindings
            assert space.value.op.name == "relax.builtin.alloc_tensor"
            # eight times the input, 8 MiB, and 12 bytes for each of the 12 elements
            assert int(space.value.args[0].values[0]) == 8 * 48 + 8 * 1024 * 1024 + 12 * 12
            assert name in after[call.value.args[0]].script()
    finally:
        remove_global_func("tvm.contrib.thrust.sort")
        remove_global_func("tvm.contrib.thrust.sum_scan")
