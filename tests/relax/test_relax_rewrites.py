"""Block edits, memory reports, pattern registry."""

from __future__ import annotations

import pytest

from relaxish import relax, transform
from relaxish.backend import get_pattern, get_patterns_with_prefix, patterns, register_patterns
from relaxish.ir import assert_structural_equal
from relaxish.relax.analysis import estimate_memory_usage, name_to_binding, well_formed
from relaxish.relax.binding_rewrite import DataflowBlockRewrite
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import TVMError


@I.ir_module
class Identity:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv0 = R.exp(x)
            lv1 = R.sin(lv0)
            R.output(lv1)
        return lv1


def _rewrite():
    func = Identity["main"]
    return DataflowBlockRewrite(func.body.blocks[0], func), name_to_binding(func)


def test_replace_and_remove():
    rewrite, names = _rewrite()
    lv0 = names["lv0"][0].var
    with pytest.raises(TVMError, match="used"):
        rewrite.remove_unused(lv0)
    rewrite.replace_all_uses(lv0, Identity["main"].params[0])
    rewrite.remove_unused(lv0)
    with pytest.raises(TVMError, match="not defined"):
        rewrite.remove_unused(lv0)
    rewrite.remove_unused(lv0, allow_undef=True)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                lv1 = R.sin(x)
                R.output(lv1)
            return lv1

    assert_structural_equal(rewrite.mutated_root_fn(), Expected["main"])
    assert_structural_equal(rewrite.mutate_irmodule(Identity), Expected)
    assert_structural_equal(rewrite.mutated_dfb(), Expected["main"].body.blocks[0], map_free_vars=True)


def test_add_and_remove_all():
    rewrite, _ = _rewrite()
    x = Identity["main"].params[0]
    rewrite.add(R.cos(x), name="c", is_dfvar=True)
    rewrite.add(x)
    rewrite.add_binding(relax.VarBinding(relax.DataflowVar("d", x.struct_info), x))
    # A binding comes right after the last one that it needs; one that needs none after the first.
    assert [b.var.name_hint for b in rewrite.dfb.bindings] == ["lv0", "d", "tmp", "c", "lv1"]
    assert well_formed(rewrite.mutate_irmodule(Identity))
    rewrite.remove_all_unused()
    assert_structural_equal(rewrite.mutated_root_fn(), Identity["main"])


def test_memory_report():
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((256, 256), "float32")):
            a = R.exp(x)
            b = R.sin(a)
            c = R.cos(b)
            d = R.tan(c)
            return d

    mod = transform.CallTIRRewrite()(transform.LegalizeOps()(Model))
    mod = transform.StaticPlanBlockMemory()(mod)
    text = estimate_memory_usage(mod)
    assert text.startswith("Memory usage estimation:\n- Function main:")
    assert "4 constant-size memory allocation(s)" in text


def test_pattern_registry():
    register_patterns(
        [("mine.conv", *patterns.make_conv2d_pattern()), ("mine.matmul", *patterns.make_matmul_pattern(True))]
    )
    assert [p.name for p in get_patterns_with_prefix("mine.")] == ["mine.matmul", "mine.conv"]
    assert get_pattern("mine.conv").name == "mine.conv" and get_pattern("nobody") is None
    with pytest.raises(TypeError):
        register_patterns([3])
    x, w, b = (relax.Var(n, relax.TensorStructInfo((4, 4), "float32")) for n in "xwb")
    assert get_pattern("mine.matmul").pattern.match(R.add(R.matmul(x, w), b))
