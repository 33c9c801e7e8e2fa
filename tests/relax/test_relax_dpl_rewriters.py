"""Rewriters written as modules, combined, over several values at once, and with symbolic dimensions."""

from __future__ import annotations

import pytest

from relaxish import TVMError, relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import dpl
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")


@R.rewriter
class AddToPacked:
    @R.function
    def pattern(a: R.Tensor(["p", "q"], "float32"), b: R.Tensor(["p", "q"], "float32")):
        return R.add(a, b)

    @R.function
    def replacement(a: R.Tensor(["p", "q"], "float32"), b: R.Tensor(["p", "q"], "float32")):
        p, q = T.int64(), T.int64()
        return R.call_pure_packed("sum", a, b, sinfo_args=R.Tensor([p, q], "float32"))


@R.rewriter
class ReluToFunction:
    @R.function
    def pattern(a: R.Tensor((4, 4), "float32")):
        return R.nn.relu(a)

    @R.function
    def replacement(a: R.Tensor((4, 4), "float32")):
        return ReluToFunction.clip(a)

    @R.function(private=True)
    def clip(a: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        return R.call_pure_packed("clip", a, sinfo_args=R.Tensor((4, 4), "float32"))


def _sum(shape, other=None):
    @R.function(private=True)
    def func(x: R.Tensor(shape, "float32"), y: R.Tensor(other or shape, "float32")):
        return R.multiply(R.add(x, y), x)

    return func


@pytest.mark.parametrize("shape", [(3, 5), ["s", "t"], [4, "t"]])
def test_symbolic_patterns_take_the_dimensions_they_find(shape):
    @R.function(private=True)
    def expected(x: R.Tensor(["s", "t"], "float32"), y: R.Tensor(["s", "t"], "float32")):
        s, t = T.int64(), T.int64()
        z = R.call_pure_packed("sum", x, y, sinfo_args=R.Tensor([s, t], "float32"))
        return R.multiply(z, x)

    sizes = {name: size for name, size in zip("st", shape) if size != name}
    assert_structural_equal(AddToPacked(_sum(shape)), expected.bind_symbolic_vars(sizes))


@pytest.mark.parametrize("shapes", [((3, 5), (1, 5)), ((2, 3, 5), (2, 3, 5)), ((3, 5), (5,))])
def test_contradicting_dimensions_do_not_match(shapes):
    func = _sum(*shapes)
    assert_structural_equal(AddToPacked(func), func)


def test_struct_info_patterns_agree_with_each_other():
    x = relax.Var("x", R.Tensor((4, 4), "float32"))
    y = relax.Var("y", R.Tensor((4, 5), "float32"))
    square = dpl.wildcard().has_struct_info(R.Tensor([n, n], "float32"))
    assert square.match(x) and not square.match(y)
    same = dpl.is_tuple([dpl.wildcard().has_struct_info(R.Tensor([n, m], "float32")) for _ in range(2)])
    assert same.match(relax.Tuple([x, x])) and not same.match(relax.Tuple([x, y]))
    assert not dpl.wildcard().has_struct_info(R.Tensor([n, n], "float16")).match(x)


def _relus(x):
    return R.nn.relu(R.nn.relu(x))


@I.ir_module
class Effects:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32")):
        a = R.nn.relu(x)
        R.print(a, format="{}")
        b = R.nn.relu(R.add(a, x))
        return b


def test_functions_come_along_with_what_calls_them():
    out = ReluToFunction(Effects)
    calls = [b.value for b in out["main"].body.blocks[0].bindings]
    assert [getattr(c.op, "name_hint", None) or c.op.name for c in calls] == [
        "clip",
        "relax.print",
        "relax.add",
        "clip",
    ]
    assert "clip" in out
    # A function alone has no place for them.
    with pytest.raises(TVMError):
        ReluToFunction(Effects["main"])
    untouched = AddToPacked(ReluToFunction(Effects))
    assert "clip" in untouched


def test_both_rewriters_of_a_pair_apply():
    out = (AddToPacked | ReluToFunction)(Effects)
    names = [
        getattr(b.value.op, "name_hint", "") or getattr(b.value.op, "name", "")
        for b in out["main"].body.blocks[0].bindings
    ]
    assert names == ["clip", "relax.print", "relax.call_pure_packed", "clip"]


@R.rewriter
class TwoAtOnce:
    @R.function
    def pattern(a: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
        return (R.exp(a), R.add(a, b))

    @R.function
    def replacement(a: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
        return R.call_pure_packed(
            "both", a, b, sinfo_args=R.Tuple([R.Tensor((8,), "float32"), R.Tensor((8,), "float32")])
        )


def test_values_that_no_tuple_holds_are_rewritten_together():
    @R.function(private=True)
    def before(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")):
        total = R.add(x, y)
        power = R.exp(x)
        return R.multiply(total, power)

    out = TwoAtOnce(before)
    first, total, power, result = (b.value for b in out.body.blocks[0].bindings)
    assert first.args[0].global_symbol == "both" and sorted([total.index, power.index]) == [0, 1]
    assert result.op.name == "relax.multiply"

    @R.function(private=True)
    def dependent(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")):
        power = R.exp(x)
        shifted = R.negative(power)
        total = R.add(x, shifted)
        return R.multiply(total, power)

    # The sum needs the power: they cannot come out of one call.
    assert_structural_equal(TwoAtOnce(dependent), dependent)


def test_implicit_tuples_have_three_fields_at_most():
    pattern = dpl.is_tuple([dpl.is_op("relax.exp")(dpl.wildcard()) for _ in range(4)])
    with pytest.raises(TVMError):
        dpl.rewrite_call(pattern, lambda expr, matches: expr, _sum((2, 2)))


def test_modules_that_are_no_rewriters():
    from_module = dpl.PatternMatchingRewriter.from_module
    a, b = (relax.Var("a", R.Tensor((size,), "float32")) for size in (4, 8))
    pattern, other = relax.Function([a], a), relax.Function([b], b)
    from relaxish import IRModule

    with pytest.raises(KeyError):
        from_module(IRModule({"pattern": pattern}))
    with pytest.raises(ValueError):
        from_module(IRModule({"pattern": pattern, "replacement": other}))
    public = relax.Function([b], b).with_attr("global_symbol", "more")
    with pytest.raises(ValueError):
        from_module(IRModule({"pattern": pattern, "replacement": relax.Function([a], a), "more": public}))
    with pytest.raises(TypeError):
        from_module(IRModule({"pattern": tir.PrimFunc([], tir.Evaluate(0)), "replacement": pattern}))


def test_small_rules_of_the_language():
    x = relax.Var("x", R.Tensor((4,), "float32"))
    assert dpl.is_gv("mat").match(relax.GlobalVar("tir_matmul")) and not dpl.is_gv("conv").match(
        relax.GlobalVar("matmul")
    )
    assert dpl.ExternFuncPattern().match(relax.ExternFunc("any"))
    pair = dpl.is_tuple([dpl.wildcard(), dpl.is_var("x")])
    assert pair[-1].index == 1 and pair[None].index == -1
    with pytest.raises(IndexError):
        pair[2]
    for wrong in (lambda: dpl.wildcard().has_shape(4), lambda: dpl.is_shape(4), lambda: dpl.is_tuple(4)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TVMError):
        dpl.PatternContext(incremental=True)
    with pytest.raises(TVMError):
        dpl.PatternSeq([])
    with dpl.PatternContext() as ctx:
        source = dpl.is_op("relax.exp")(dpl.wildcard())
        dpl.CallPattern(dpl.is_op("relax.add"), [source, dpl.wildcard()], add_constraint=False)
    assert source not in ctx.edges
    assert dpl.is_var("x").match(x)
