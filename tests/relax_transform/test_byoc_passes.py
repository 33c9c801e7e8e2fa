"""Handing parts of a graph to other compilers: pattern fusion, merging, code generation, workspaces."""

from __future__ import annotations

import pytest

from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.relax.dpl import is_op, make_fused_bias_activation_pattern, wildcard
from relaxish.runtime.registry import register_func, remove_global_func
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import TVMError
from relaxish.transform import FusionPattern


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=(1, 1))
            b = R.nn.relu(a)
            c = R.exp(b)
            R.output(c)
        return c


@I.ir_module
class Grouped:
    @R.function(private=True)
    def fused_relax_nn_conv2d_relax_nn_relu(
        x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")
    ) -> R.Tensor((1, 8, 14, 14), "float32"):
        R.func_attr({"Composite": "dnnl.conv2d_relu", "Primitive": True})
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=(1, 1))
            gv = R.nn.relu(a)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        cls = Grouped
        with R.dataflow():
            b = cls.fused_relax_nn_conv2d_relax_nn_relu(x, w)
            c = R.exp(b)
            R.output(c)
        return c


@I.ir_module
class Annotated:
    @R.function
    def fused_relax_nn_conv2d_relax_nn_relu_dnnl(
        x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")
    ) -> R.Tensor((1, 8, 14, 14), "float32"):
        R.func_attr({"Codegen": "dnnl"})

        @R.function
        def inner(x1: R.Tensor((1, 8, 14, 14), "float32"), w1: R.Tensor((8, 8, 3, 3), "float32")) -> R.Tensor(
            (1, 8, 14, 14), "float32"
        ):
            R.func_attr({"Composite": "dnnl.conv2d_relu"})
            with R.dataflow():
                a = R.nn.conv2d(x1, w1, padding=(1, 1))
                gv = R.nn.relu(a)
                R.output(gv)
            return gv

        out = inner(x, w)
        return out

    @R.function
    def main(x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        cls = Annotated
        with R.dataflow():
            b = cls.fused_relax_nn_conv2d_relax_nn_relu_dnnl(x, w)
            c = R.exp(b)
            R.output(c)
        return c


CONV_RELU = ("dnnl.conv2d_relu", make_fused_bias_activation_pattern("relax.nn.conv2d", activation="relax.nn.relu"))
CONV = ("dnnl.conv2d", is_op("relax.nn.conv2d")(wildcard(), wildcard()))


def test_group_by_pattern():
    assert_structural_equal(transform.FuseOpsByPattern([CONV_RELU])(Before), Grouped)
    assert_structural_equal(transform.FuseOpsByPattern([FusionPattern(*CONV_RELU), CONV])(Before), Grouped)
    assert_structural_equal(transform.FuseOpsByPattern([CONV_RELU], annotate_codegen=True)(Before), Annotated)


def test_bad_pattern():
    with pytest.raises(ValueError, match="Invalid pattern"):
        transform.FuseOpsByPattern([1])


def test_order_of_patterns_decides():
    mod = transform.FuseOpsByPattern([CONV, CONV_RELU])(Before)
    names = sorted(v.name_hint for v in mod.functions)
    assert names == ["fused_relax_nn_conv2d", "main"]


def test_check_sees_the_match():
    x, w = wildcard(), wildcard()
    conv = is_op("relax.nn.conv2d")(x, w)
    relu = is_op("relax.nn.relu")(conv)
    seen = []

    def check(context):
        seen.append(context)
        return False

    mod = transform.FuseOpsByPattern([("dnnl.c", relu, {"conv": conv, "data": x}, check)])(Before)
    assert_structural_equal(mod, Before)
    (context,) = seen
    assert context.matched_expr.op.name == "relax.nn.relu"
    assert context.annotated_expr["conv"].op.name == "relax.nn.conv2d"
    assert context.annotated_expr["data"].name_hint == "x"
    assert [v.name_hint for v in context.matched_bindings] in (["a", "b"], ["b", "a"])
    root = context.value_to_bound_var[context.annotated_expr["conv"]]
    assert [u.name_hint for u in context.var_usages[root]] == ["b"]


def test_attributes_of_the_group():
    x, w = wildcard(), wildcard()
    conv = is_op("relax.nn.conv2d")(x, w)
    pattern = FusionPattern("p.conv", conv, {"w": w}, None, lambda annotated: {"weight": annotated["w"].name_hint})
    mod = transform.FuseOpsByPattern([pattern])(Before)
    assert mod["fused_relax_nn_conv2d"].attrs["weight"] == "w"


@pytest.mark.parametrize("bind", [True, False])
def test_constants(bind):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 2), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(R.add(x, relax.const([[1.0, 2.0], [3.0, 4.0]], "float32")))
        bb.emit_func_output(gv)
    pattern = ("p.add", is_op("relax.add")(wildcard(), wildcard()))
    mod = transform.FuseOpsByPattern([pattern], bind_constants=bind)(bb.finalize())
    assert len(mod["fused_relax_add"].params) == (1 if bind else 2)
    assert well_formed(mod)


def test_only_entry_functions():
    mod = transform.FuseOpsByPattern([CONV], entry_functions=["other"])
    two = Before.clone()
    two["other"] = Before["main"].with_attr("global_symbol", "other")
    out = mod(two)
    assert_structural_equal(out["main"], Before["main"])
    assert "fused_relax_nn_conv2d" in [v.name_hint for v in out.functions]


def test_value_used_outside_becomes_an_output():
    @I.ir_module
    class Leaky:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.relu(a)
                c = R.add(a, b)
                R.output(c)
            return c

    relu_of_exp = is_op("relax.nn.relu")(is_op("relax.exp")(wildcard()))
    mod = transform.FuseOpsByPattern([("p.q", relu_of_exp)])(Leaky)
    assert len(mod["fused_relax_exp_relax_nn_relu"].ret_struct_info.fields) == 2
    assert well_formed(mod)


def _two_convs():
    @I.ir_module
    class Two:
        @R.function
        def main(
            x: R.Tensor((1, 8, 14, 14), "float32"),
            w1: R.Tensor((8, 8, 3, 3), "float32"),
            w2: R.Tensor((8, 8, 3, 3), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, w1, padding=(1, 1))
                b = R.nn.relu(a)
                c = R.nn.conv2d(b, w2, padding=(1, 1))
                d = R.nn.relu(c)
                R.output(d)
            return d

    return transform.FuseOpsByPattern([CONV_RELU])(Two)


def test_merge_neighbours():
    mod = transform.MergeCompositeFunctions()(_two_convs())
    name = "fused_relax_nn_conv2d_relax_nn_relu_relax_nn_conv2d_relax_nn_relu_dnnl"
    assert sorted(v.name_hint for v in mod.functions) == [name, "main"]
    merged = mod[name]
    assert merged.attrs["Codegen"] == "dnnl" and merged.attrs["global_symbol"] == name
    assert len(merged.params) == 3 and well_formed(mod)
    composites = [
        b.value for block in merged.body.blocks for b in block.bindings if isinstance(b.value, relax.Function)
    ]
    assert composites and all("Composite" in f.attrs and "Primitive" not in f.attrs for f in composites)


def test_merge_avoids_cycles():
    """a -> b (plain) -> c and a -> c: a and c may not be merged, because b stands between."""

    @I.ir_module
    class Branch:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                c = R.add(a, b)
                R.output(c)
            return c

    patterns = [("k.exp", is_op("relax.exp")(wildcard())), ("k.add", is_op("relax.add")(wildcard(), wildcard()))]
    mod = transform.MergeCompositeFunctions()(transform.FuseOpsByPattern(patterns)(Branch))
    assert sorted(v.name_hint for v in mod.functions) == ["fused_relax_add_k", "fused_relax_exp_k", "main"]
    assert well_formed(mod)


def test_run_codegen():
    calls = []

    @register_func("relax.ext.dnnl", override=True)
    def generate(functions, options, constants):
        calls.append(([f.attrs["global_symbol"] for f in functions], options, constants))
        return ["compiled"]

    try:
        mod = transform.RunCodegen({"dnnl": {"level": 3}})(Annotated)
    finally:
        remove_global_func("relax.ext.dnnl")

    @I.ir_module
    class Expected:
        I.module_attrs({"external_mods": ["compiled"]})

        @R.function
        def main(x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
            with R.dataflow():
                b = R.call_dps_packed(
                    "fused_relax_nn_conv2d_relax_nn_relu_dnnl", (x, w), R.Tensor((1, 8, 14, 14), "float32")
                )
                c = R.exp(b)
                R.output(c)
            return c

    assert_structural_equal(mod, Expected)
    assert calls == [(["fused_relax_nn_conv2d_relax_nn_relu_dnnl"], {"level": 3}, {})]


def test_codegen_not_found():
    with pytest.raises(TVMError, match="relax.ext.dnnl"):
        transform.RunCodegen()(Annotated)


def test_workspace():
    mod = Annotated.clone()
    name = "fused_relax_nn_conv2d_relax_nn_relu_dnnl"
    mod[name] = mod[name].with_attr("WorkspaceSize", 4096)
    out = transform.AllocateWorkspace()(mod)
    assert sorted(v.name_hint for v in out.functions) == [f"{name}1", "main"]
    assert out[f"{name}1"].params[-1].struct_info.dtype == "uint8"
    text = out["main"].script()
    assert text.count("R.builtin.alloc_tensor(R.shape([4096])") == 1
    assert transform.AllocateWorkspace()(Annotated) is Annotated
