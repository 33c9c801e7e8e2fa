"""Graph passes on programs made by the BlockBuilder."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import pipeline, relax, tir, transform
from relaxish.ir import structural_equal
from relaxish.ir.op import Op
from relaxish.relax import analysis
from relaxish.relax.op_table import op_function
from relaxish.tir import PrimFunc
from relaxish.transform.fold_batchnorm import CPUBatchnormFolding

add, exp, matmul = (
    (lambda *a: op_function("add")(*a)),
    (lambda *a: op_function("exp")(*a)),
    (lambda *a: op_function("matmul")(*a)),
)


def _tensor(shape, dtype="float32"):
    return relax.TensorStructInfo(shape, dtype)


def _module(params, build, *, dataflow=True):
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        if dataflow:
            with bb.dataflow():
                out = bb.emit_output(build(bb))
        else:
            out = build(bb)
        bb.emit_func_output(out)
    return bb.finalize()


def _mlp(rows=3):
    x, w = relax.Var("x", _tensor([rows, 4])), relax.Var("w", _tensor([4, 4]))
    return _module([x, w], lambda bb: bb.emit(exp(bb.emit(add(bb.emit(matmul(x, w)), x)))))


def _bindings(mod, name="main"):
    return [b for block in mod[name].body.blocks for b in block.bindings]


def _calls(mod, name="main"):
    return [
        b.value.op.name for b in _bindings(mod, name) if isinstance(b.value, relax.Call) and isinstance(b.value.op, Op)
    ]


def test_legalize_and_fuse_make_one_kernel():
    mod = transform.LegalizeOps()(_mlp())
    assert _calls(mod) == ["relax.call_tir"] * 3
    mod = transform.AnnotateTIROpPattern()(mod)
    patterns = {v.name_hint: int(f.attrs["op_pattern"]) for v, f in mod.functions.items() if isinstance(f, PrimFunc)}
    assert sorted(patterns.values()) == [0, 0, 4]
    grouped = transform.FuseOps()(mod)
    fused = [
        v.name_hint for v, f in grouped.functions.items() if isinstance(f, relax.Function) and f.attrs.get("Primitive")
    ]
    assert len(fused) == 1 and fused[0].startswith("fused_matmul_add")
    assert analysis.well_formed(grouped)
    done = transform.FuseTIR()(grouped)
    assert [type(f) for f in done.functions.values()].count(PrimFunc) == 1
    assert analysis.well_formed(done)


def test_fused_symbolic_shapes():
    n = tir.Var("n", "int64")
    mod = pipeline.get_pipeline("zero")(_mlp(n))
    assert len(mod.functions) == 2 and analysis.well_formed(mod)


def test_dead_code_elimination_keeps_effects():
    x = relax.Var("x", _tensor([2]))

    def build(bb):
        bb.emit(exp(x))
        bb.emit(relax.Call(relax.ExternFunc("side_effect"), [x], sinfo_args=[relax.ObjectStructInfo()]))
        return bb.emit(add(x, x))

    mod = transform.DeadCodeElimination()(_module([x], build, dataflow=False))
    assert len(_bindings(mod)) == 2


def test_canonicalize_removes_copies():
    x = relax.Var("x", _tensor([2]))

    def build(bb):
        y = bb.emit(x)
        t = bb.emit(relax.Tuple([y, x]))
        z = bb.emit(relax.TupleGetItem(t, 0))
        return bb.emit(add(z, y))

    mod = transform.DeadCodeElimination()(transform.CanonicalizeBindings()(_module([x], build)))
    (only,) = _bindings(mod)
    assert only.value.args[0].same_as(mod["main"].params[0])


def test_common_subexpressions():
    x = relax.Var("x", _tensor([2]))
    mod = _module([x], lambda bb: bb.emit(add(bb.emit(exp(x)), bb.emit(exp(x)))))
    assert _calls(transform.EliminateCommonSubexpr()(mod)) == ["relax.exp", "relax.add"]


def test_lowering_reuses_storage_and_frees_it():
    x = relax.Var("x", _tensor([8, 8]))

    def build(bb):
        y = x
        for _ in range(6):
            y = bb.emit(exp(y))
        return y

    mod = transform.LegalizeOps()(_module([x], build))
    for make in (transform.ToNonDataflow, transform.RemovePurityChecking, transform.CallTIRRewrite):
        mod = make()(mod)
    mod = transform.StaticPlanBlockMemory()(mod)
    assert _calls(mod).count("relax.memory.alloc_storage") == 2
    mod = transform.KillAfterLastUse()(transform.LowerAllocTensor()(mod))
    calls = _calls(mod)
    assert calls.count("relax.memory.kill_storage") == 3
    assert calls.count("relax.memory.kill_tensor") == 5
    assert analysis.well_formed(mod)


def test_shape_lowering_checks_and_computes():
    n = tir.Var("n", "int64")
    mod = pipeline.get_pipeline("default_build")(_mlp(n))
    packed = [
        b.value.op.global_symbol
        for b in _bindings(mod)
        if isinstance(b.value, relax.Call) and isinstance(b.value.op, relax.ExternFunc)
    ]
    assert packed.count("vm.builtin.check_tensor_info") == 2
    assert "vm.builtin.match_shape" in packed and "vm.builtin.make_shape" in packed
    assert "shape_func" in mod and analysis.well_formed(mod)


def test_remove_purity_checking_unwraps():
    x = relax.Var("x", _tensor([2]))

    def build(bb):
        from relaxish.relax.call_forms import call_pure_packed

        return bb.emit(call_pure_packed("f", x, sinfo_args=_tensor([2])))

    mod = transform.RemovePurityChecking()(_module([x], build))
    assert mod["main"].attrs["relax.force_pure"]
    assert isinstance(_bindings(mod)[0].value.op, relax.ExternFunc)


def test_convert_to_dataflow_and_back():
    x = relax.Var("x", _tensor([2]))
    flat = _module([x], lambda bb: bb.emit(exp(bb.emit(add(x, x)))), dataflow=False)
    mod = transform.ConvertToDataflow()(flat)
    assert isinstance(mod["main"].body.blocks[0], relax.DataflowBlock)
    assert structural_equal(transform.ToNonDataflow()(mod), flat)


def test_inline_private_functions():
    x, a = relax.Var("x", _tensor([2])), relax.Var("a", _tensor([2]))
    bb = relax.BlockBuilder()
    with bb.function("helper", [a], private=True):
        helper = bb.emit_func_output(bb.emit(exp(a)))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.Call(helper, [x])))
    mod = transform.InlinePrivateFunctions()(bb.finalize())
    assert [v.name_hint for v in mod.functions] == ["main"] and "relax.exp" in _calls(mod)


def test_batch_norm_decomposes_and_folds():
    x = relax.Var("x", _tensor([1, 3, 8, 8]))
    rng = np.random.default_rng(0)
    weight = relax.const(rng.random((4, 3, 3, 3), "float32"))
    params = [relax.const(rng.random(4, "float32")) for _ in range(4)]

    def build(bb):
        conv = bb.emit(op_function("nn").conv2d(x, weight))
        norm = bb.emit(op_function("nn").batch_norm(conv, *params, axis=1, training=False))
        return bb.emit(relax.TupleGetItem(norm, 0))

    mod = _module([x], build)
    folded = transform.FoldBatchnormToConv2D()(mod)
    assert _calls(folded) == [
        f"relax.{name}"
        for name in (
            "add",
            "sqrt",
            "divide",
            "reshape",
            "multiply",
            "nn.conv2d",
            "multiply",
            "subtract",
            "reshape",
            "add",
        )
    ]
    by_value = CPUBatchnormFolding()(mod)
    assert _calls(transform.FoldConstant()(folded)) == _calls(by_value) == ["relax.nn.conv2d", "relax.add"]
    weights = [_bindings(m)[0].value.args[1].data.numpy() for m in (transform.FoldConstant()(folded), by_value)]
    np.testing.assert_allclose(*weights, rtol=1e-5)
    simple = transform.DecomposeOpsForInference()(mod)
    assert "relax.nn.batch_norm" not in _calls(simple)


def test_pipelines_by_name():
    with pytest.raises(ValueError):
        pipeline.get_pipeline("no such pipeline")
    assert {"zero", "default", "default_build", "static_shape_tuning"} <= set(pipeline.PIPELINE_MAP)


def test_long_chains_need_no_recursion():
    x = relax.Var("x", _tensor([2]))

    def build(bb):
        y = x
        for _ in range(3000):
            y = bb.emit(exp(y))
        return y

    mod = _module([x], build)
    for make in (
        transform.LegalizeOps,
        transform.AnnotateTIROpPattern,
        transform.FuseOps,
        transform.DeadCodeElimination,
    ):
        mod = make()(mod)
    assert analysis.well_formed(mod)


def test_weights_are_transformed_once():
    x, w = relax.Var("x", _tensor([3, 4])), relax.Var("w", _tensor([5, 4]))
    mod = _module([x, w], lambda bb: bb.emit(matmul(x, bb.emit(op_function("permute_dims")(w)))))
    mod["main"] = mod["main"].with_attr("num_input", 1)
    assert [v.name_hint for v in analysis.computable_at_compile_time(mod["main"])] == ["w", "lv"]
    lifted = transform.LiftTransformParams()(mod)
    assert _calls(lifted) == ["relax.matmul"]
    assert _calls(lifted, "main_transform_params") == ["relax.permute_dims"]
    assert structural_equal(lifted["main"].params[1].struct_info, _tensor([4, 5]))
    assert analysis.well_formed(lifted)


def test_layout_free_buffers_are_marked():
    x, w = relax.Var("x", _tensor([3, 4])), relax.Var("w", _tensor([4, 4]))
    mod = transform.LegalizeOps()(_module([x, w], lambda bb: bb.emit(matmul(x, w))))
    mod["main"] = mod["main"].with_attr("num_input", 1)
    marked = transform.AttachAttrLayoutFreeBuffers()(mod)
    (kernel,) = [f for f in marked.functions.values() if isinstance(f, PrimFunc)]
    assert [int(i) for i in kernel.attrs["layout_free_buffers"]] == [1]


def test_lambda_lift_makes_a_closure():
    x, a = relax.Var("x", _tensor([2])), relax.Var("a", _tensor([2]))
    inner_bb = relax.BlockBuilder()
    inner_bb.begin_scope([a])
    inner_bb.begin_binding_block()
    out = inner_bb.emit(add(a, x))
    body = inner_bb.normalize(relax.SeqExpr([inner_bb.end_block()], out))
    inner_bb.end_scope()
    inner = relax.Function([a], body)
    mod = _module([x], lambda bb: bb.emit(relax.Call(bb.emit(inner), [x])), dataflow=False)
    lifted = transform.LambdaLift()(mod)
    assert "relax.make_closure" in _calls(lifted) and "relax.invoke_pure_closure" in _calls(lifted)
    assert len(lifted.functions) == 2 and analysis.well_formed(lifted)
