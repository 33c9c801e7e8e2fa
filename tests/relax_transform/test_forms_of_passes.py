"""What passes, losses and optimizers emit where several forms compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, te, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import remove_all_unused, well_formed
from relaxish.relax.training.loss import CategoricalCrossEntropyLoss
from relaxish.relax.training.optimizer import Adam, MomentumSGD
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.tir import IndexMap

INFO = relax.TensorStructInfo((2, 3), "float32")


def _names(func: relax.Function) -> list[str]:
    calls = (b.value for block in func.body.blocks for b in block.bindings)
    return [c.op.name.removeprefix("relax.") for c in calls if isinstance(c, relax.Call)]


def test_short_dataflow_blocks_stay():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            R.print(y, format="{}")
            z = R.exp(y)
            R.print(z, format="{}")
            with R.dataflow():
                w = R.negative(z)
                R.output(w)
            return w

    assert_structural_equal(transform.ConvertToDataflow(min_size=2)(Before), Before)


def test_what_is_renamed_is_in_normal_form():
    x = relax.Var("x", INFO)
    nested = relax.Function([x], relax.op.exp(relax.op.add(x, x)), INFO).with_attr("global_symbol", "main")
    after = transform.NormalizeGlobalVar()(relaxish.IRModule({"other": nested}))
    assert well_formed(after)
    assert _names(after["main"]) == ["add", "exp"]
    prefixed = relaxish.IRModule({"main": nested, "f": _copy_kernel()}, attrs={"system_lib_prefix": "lib_"})
    after = transform.AttachGlobalSymbol()(prefixed)
    assert well_formed(after) and "lib_f" in [v.name_hint for v in after.get_global_vars()]


def _copy_kernel():
    @T.prim_func(private=True)
    def f(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        b[0] = a[0]
        b[1] = a[1]

    return f


def test_consumed_weights_are_counted_in_int32():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                wt = R.permute_dims(w)
                y = R.matmul(x, wt)
                R.output(y)
            return y

    with relaxish.transform.PassContext(config={"relax.lift_transform_params.consume_params": True}):
        func = transform.LiftTransformParams()(Before)["main_transform_params"]
    calls = [b.value for block in func.body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    index = calls[0].args[2].value
    assert (index.value, index.dtype) == (0, "int32")


def test_blocks_lose_what_nobody_uses():
    x = relax.Var("x", INFO)
    used, unused, given = relax.DataflowVar("a", INFO), relax.DataflowVar("b", INFO), relax.Var("c", INFO)
    bindings = [relax.VarBinding(v, relax.op.add(x, x)) for v in (used, unused)] + [relax.VarBinding(given, used)]
    for kind in (relax.DataflowBlock, relax.BindingBlock):
        block = remove_all_unused(kind(bindings))
        assert type(block) is kind and [b.var.name_hint for b in block.bindings] == ["a", "c"]
    bare = relax.Function([x], x, INFO)
    assert remove_all_unused(bare).body is bare.body


def test_ill_formed_calls_are_printed_and_reported():
    x, y = relax.Var("x", INFO), relax.Var("y", INFO)
    call = relax.Call(relaxish.ir.Op.get("relax.call_tir"), [relax.GlobalVar("f")], sinfo_args=[INFO])
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call)])], y)
    mod = relaxish.IRModule({"main": relax.Function([x], body, INFO)})
    assert "call_tir" in mod.script()
    assert not well_formed(mod)


def test_the_logarithm_is_negated_before_targets_are_cast():
    targets = relax.TensorStructInfo((2, 3), "int64")
    func = CategoricalCrossEntropyLoss()(INFO, targets)
    assert _names(func) == ["nn.log_softmax", "negative", "astype", "multiply", "mean"]


def _constants(func: relax.Function) -> list[float]:
    found: list[float] = []

    def look(node: object) -> None:
        if isinstance(node, relax.Constant) and not node.data.shape:
            found.append(float(node.data.numpy()))

    relax.analysis.post_order_visit(func, look)
    return found


def test_rates_have_the_complement_that_is_written():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float64"))
    assert {0.8, 0.2, 0.85, 0.15} <= set(_constants(Adam(0.01, (0.8, 0.85)).init(x).get_function()))
    assert 0.7 in _constants(MomentumSGD(0.01, 0.9, dampening=0.3).init(x).get_function())
    assert 1 - np.float64(0.8) != 0.2


def test_a_type_that_is_not_given():
    assert_structural_equal(relax.DataTypeImm(""), relax.DataTypeImm("void"))
    assert relax.DataTypeImm("").value == "void"
    mod = relaxish.IRModule({"f": _copy_kernel()})
    assert mod.replace_global_vars({}) is mod


@T.prim_func(private=True)
def _blocked_add(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32"), c: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]


@I.ir_module
class TwoAdds:
    @T.prim_func(private=True)
    def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
        T.func_attr({"operator_name": "relax.add"})
        for i in range(16):
            with T.block("add"):
                vi = T.axis.spatial(16, i)
                c[vi] = a[vi] + b[vi]

    @R.function
    def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")):
        cls = TwoAdds
        with R.dataflow():
            lv = R.call_tir(cls.add, (x, y), out_sinfo=R.Tensor((16,), "float32"))
            gv = R.call_tir(cls.add, (lv, y), out_sinfo=R.Tensor((16,), "float32"))
            R.output(gv)
        return gv


def _blocks(i):
    return i // 4, i % 4


@pytest.mark.parametrize(
    "layout",
    [
        _blocks,
        lambda i: (i // 4, te.AXIS_SEPARATOR, i % 4),
        (IndexMap.from_func(_blocks, index_dtype="int64"), [1]),
        IndexMap.from_func(_blocks, index_dtype="int64"),
    ],
)
def test_layouts_between_replaced_calls_cancel(layout):
    altered = transform.AlterOpImpl({"relax.add": _blocked_add}, {"relax.add": [layout] * 3})(TwoAdds)
    assert _names(altered["main"]).count("layout_transform") == 6
    optimized = transform.DeadCodeElimination()(transform.OptimizeLayoutTransform()(altered))
    # Back to rows and to blocks again, between the two calls, is nothing.
    assert _names(optimized["main"]).count("layout_transform") < 5
    x, y = (np.random.default_rng(s).random(16).astype("float32") for s in (0, 1))
    for mod in (altered, optimized):
        vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
        out = vm["main"](relaxish.nd.array(x), relaxish.nd.array(y)).numpy()
        np.testing.assert_allclose(out, x + y + y, rtol=1e-6)
