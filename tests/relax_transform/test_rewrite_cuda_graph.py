"""Kernels at fixed addresses become functions that a CUDA graph replays."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def rewritten(mod):
    with PassContext(config={"relax.backend.use_cuda_graph": True}):
        return relax.transform.RewriteCUDAGraph()(mod)


@I.ir_module
class Chain:
    @T.prim_func
    def halve(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = Chain
        storage: R.Object = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a: R.Tensor((4,), "float32") = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        _: R.Tuple = cls.halve(x, a)
        storage1: R.Object = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        b: R.Tensor((4,), "float32") = R.memory.alloc_tensor(
            storage1, R.prim_value(0), R.shape([4]), R.dtype("float32")
        )
        _1: R.Tuple = cls.halve(a, b)
        _2: R.Tuple = cls.halve(b, a)
        out: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(
            R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        _3: R.Tuple = cls.halve(a, out)
        return out


@I.ir_module
class ChainCaptured:
    @T.prim_func
    def halve(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(0.5)

    @R.function(private=True)
    def cuda_graph_alloc() -> R.Tuple(R.Object, R.Object):
        R.func_attr({"relax.force_pure": True})
        storage: R.Object = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        storage1: R.Object = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        gv: R.Tuple(R.Object, R.Object) = (storage, storage1)
        return gv

    @R.function(private=True)
    def main_cuda_graph_capture(
        a: R.Tensor((4,), "float32"),
        b: R.Tensor((4,), "float32"),
    ) -> R.Tuple:
        R.func_attr({"relax.force_pure": True})
        cls = ChainCaptured
        _1: R.Tuple = cls.halve(a, b)
        _2: R.Tuple = cls.halve(b, a)
        gv: R.Tuple = R.tuple()
        return gv

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = ChainCaptured
        gv: R.Tuple(R.Object, R.Object) = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc",
            (cls.cuda_graph_alloc, R.prim_value(0)),
            sinfo_args=(R.Tuple(R.Object, R.Object),),
        )
        storage: R.Object = gv[0]
        a: R.Tensor((4,), "float32") = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        _: R.Tuple = cls.halve(x, a)
        storage1: R.Object = gv[1]
        b: R.Tensor((4,), "float32") = R.memory.alloc_tensor(
            storage1, R.prim_value(0), R.shape([4]), R.dtype("float32")
        )
        gv1: R.Tuple = R.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.run_or_capture",
            (cls.main_cuda_graph_capture, (a, b), R.prim_value(0)),
            sinfo_args=(R.Tuple,),
        )
        out: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(
            R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        _3: R.Tuple = cls.halve(a, out)
        return out


def test_not_asked_for():
    assert relax.transform.RewriteCUDAGraph()(Chain) is Chain


def test_text():
    assert_structural_equal(rewritten(Chain), ChainCaptured)


def test_without_a_gpu_the_machine_runs_the_kernels():
    t = relax.transform
    lower = [
        t.LowerAllocTensor(),
        t.KillAfterLastUse(),
        t.LowerRuntimeBuiltin(),
        t.ComputePrimValue(),
        t.VMShapeLower(),
    ]
    lower.append(t.AttachGlobalSymbol())
    executable = relax.build(rewritten(Chain), "llvm", relax_pipeline=relaxish.ir.transform.Sequential(lower))
    machine = relax.VirtualMachine(executable, relaxish.cpu())
    for scale in (1, 2):
        x = np.random.default_rng(scale).standard_normal(4).astype("float32")
        np.testing.assert_allclose(machine["main"](relaxish.nd.array(x)).numpy(), x / 16, rtol=1e-6)


@I.ir_module
class Weights:
    @T.prim_func
    def halve(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor(("m",), "float32"), w: R.Tensor(("k",), "float32")) -> R.Tensor(("m",), "float32"):
        R.func_attr({"num_input": 1, "relax.rewrite_cuda_graph.capture_symbolic_vars": ["m"], "relax.force_pure": True})
        m = T.int64()
        k = T.int64()
        cls = Weights
        storage: R.Object = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a: R.Tensor((k,), "float32") = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([k]), R.dtype("float32"))
        _: R.Tuple = cls.halve(w, a)
        b: R.Tensor((m,), "float32") = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        _1: R.Tuple = cls.halve(x, b)
        _2: R.Tuple = cls.halve(b, b)
        return x


def test_weights_and_named_dimensions_are_captured():
    """Both dimensions go into the graph's function as a shape, which is also the key of the graph."""
    made = rewritten(Weights)
    names = sorted(gv.name_hint for gv in made.get_global_vars() if "cuda_graph" in gv.name_hint)
    assert names == ["cuda_graph_alloc", "main_cuda_graph_capture", "main_cuda_graph_capture1"]
    first = made["main_cuda_graph_capture"]
    assert [p.name_hint for p in first.params] == ["w", "a", "storage", "shape_expr"]
    assert [v.name for v in first.params[-1].struct_info.values] == ["k", "m"]
    text = made["main"].script()
    assert text.count("vm.builtin.cuda_graph.run_or_capture") == 2
    assert "R.shape([k, m])), R.prim_value(0), R.shape([k, m]))" in text


@I.ir_module
class Shared:
    @T.prim_func
    def halve(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(0.5)

    @R.function
    def one(x: R.Tensor((4,), "float32")) -> R.Tuple:
        R.func_attr({"relax.force_pure": True})
        cls = Shared
        small: R.Object = R.memory.alloc_storage(R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        large: R.Object = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a: R.Tensor((4,), "float32") = R.memory.alloc_tensor(small, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        b: R.Tensor((4,), "float32") = R.memory.alloc_tensor(large, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        _: R.Tuple = cls.halve(a, b)
        return R.tuple()

    @R.function
    def two(x: R.Tensor((4,), "float32")) -> R.Tuple:
        R.func_attr({"relax.force_pure": True})
        cls = Shared
        only: R.Object = R.memory.alloc_storage(R.shape([24]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a: R.Tensor((4,), "float32") = R.memory.alloc_tensor(only, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        _: R.Tuple = cls.halve(a, a)
        return R.tuple()


def test_functions_share_storage():
    """The largest storages of all functions become one, then the second largest."""
    made = rewritten(Shared)
    sizes = [int(b.value.args[0].values[0].value) for b in made["cuda_graph_alloc"].body.blocks[0].bindings[:-1]]
    assert sizes == [32, 16]
    places = {
        name: [b.value.index for b in made[name].body.blocks[0].bindings if isinstance(b.value, relax.TupleGetItem)]
        for name in ("one", "two")
    }
    assert places == {"one": [1, 0], "two": [0]}
    assert {gv.name_hint for gv in made.get_global_vars()} >= {"one_cuda_graph_capture", "two_cuda_graph_capture"}


@pytest.mark.parametrize("returned", [True, False])
def test_storage_of_results_is_not_shared(returned):
    """A tensor that the caller keeps must not be overwritten by the next call."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        storage = builder.emit(relax.op.memory.alloc_storage(relax.ShapeExpr([16]), 0, "global", "float32"))
        tensor = builder.emit(relax.op.memory.alloc_tensor(storage, 0, relax.ShapeExpr([4]), "float32"))
        twice = builder.emit(relax.op.add(tensor, tensor))
        builder.emit_func_output(relax.Tuple([tensor if returned else twice]))
    made = rewritten(builder.get())
    assert any(gv.name_hint == "cuda_graph_alloc" for gv in made.get_global_vars()) is not returned
