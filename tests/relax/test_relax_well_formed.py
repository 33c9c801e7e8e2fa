"""The verifier, rule by rule, and the rules of the call_tir family."""

from __future__ import annotations

import pytest

from relaxish import IRModule, TVMError, relax, tir
from relaxish.relax import analysis, transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import DiagnosticError

n, m, k = (tir.Var(name, "int64") for name in "nmk")


def _info():
    return R.Tensor((n, m), "float32")


def _problems(bindings, *, dataflow=False, **options):
    """What is wrong with a normalized function of ``x`` and ``flag`` made of these bindings."""
    block = (relax.DataflowBlock if dataflow else relax.BindingBlock)(bindings(X))
    body = relax.SeqExpr([block], block.bindings[-1].var)
    func = relax.Function([X, FLAG], body, R.Tensor(ndim=2, dtype="float32"))
    mod = transform.Normalize()(IRModule({"main": func}))
    return analysis.find_ill_formed(mod, **options)


X, FLAG = relax.Var("x", _info()), relax.Var("flag", R.Tensor((), "bool"))


def _var(name="y", info=None, kind=relax.Var):
    return kind(name, _info() if info is None else info)


def test_good_functions_have_no_problems():
    inner = _var("inner", kind=relax.DataflowVar)
    assert not _problems(
        lambda x: [relax.VarBinding(inner, R.add(x, x)), relax.VarBinding(_var(), R.add(inner, x))], dataflow=True
    )
    cast = R.Tensor((k, m), "float32")
    assert not _problems(
        lambda x: [
            relax.MatchCast(relax.Var("c", cast), x, cast),
            relax.VarBinding(relax.Var("s"), relax.ShapeExpr([k])),
            relax.VarBinding(_var(), x),
        ]
    )


def _twice(x):
    y = _var()
    return [relax.VarBinding(y, R.add(x, x)), relax.VarBinding(y, R.add(x, x))]


def _leaving_branch(x):
    inside = _var("inside")
    branch = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(inside, R.add(x, x))])], inside)
    return [
        relax.VarBinding(_var(), relax.If(FLAG, branch, relax.SeqExpr([], x))),
        relax.VarBinding(_var("z"), R.add(inside, x)),
    ]


def _misfit(x):
    return [relax.VarBinding(_var(info=R.Tensor((2, 2), "int8")), x)]


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (lambda x: [relax.VarBinding(_var(), R.add(x, _var("u")))], "Var u is not defined"),
        (_twice, "defined more than once"),
        (_leaving_branch, "Var inside is not defined"),
        (
            lambda x: [relax.VarBinding(relax.Var("s"), relax.ShapeExpr([k])), relax.VarBinding(_var(), x)],
            "Symbolic Var k",
        ),
        (_misfit, "cannot be assigned"),
        (lambda x: [relax.VarBinding(relax.Var("p"), R.print(x)), relax.VarBinding(_var(), x)], "impure call"),
    ],
)
def test_breaches_are_found(bindings, message):
    assert any(message in problem for problem in _problems(bindings))


def test_dataflow_blocks_hold_no_branches_and_no_effects():
    branches = _problems(lambda x: [relax.VarBinding(_var(), relax.If(FLAG, x, x))], dataflow=True)
    assert any("If nodes are not allowed" in p for p in branches)
    effects = _problems(
        lambda x: [relax.VarBinding(relax.Var("p"), R.print(x)), relax.VarBinding(_var(), x)], dataflow=True
    )
    assert any("within a dataflow block" in p for p in effects)
    # Effects are known from struct infos only.
    assert not _problems(
        lambda x: [relax.VarBinding(relax.Var("p"), R.print(x)), relax.VarBinding(_var(), x)],
        dataflow=True,
        check_struct_info=False,
    )


def test_expressions_are_checked_before_normalization_too():
    call = R.add(X, X)
    func = relax.Function([X], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(_var(), call)])], X), _info())
    assert not analysis.well_formed(func, check_struct_info=False)
    nested = relax.Function([X], relax.SeqExpr([], R.nn.relu(X)), _info())
    assert any("SeqExpr bodies must be leaf" in p for p in analysis.find_ill_formed(nested))


def test_modules_share_no_parameters_and_no_dimensions():
    first = relax.Function([X], X)
    assert not analysis.well_formed(IRModule({"a": first, "b": first}))
    other = relax.Var("x", _info())
    problems = analysis.find_ill_formed(IRModule({"a": first, "b": relax.Function([other], other)}))
    assert problems and all("different functions" in p for p in problems)


def test_attributes_must_agree():
    func = relax.Function([X], X)
    assert not analysis.well_formed(IRModule({"a": func.with_attr("global_symbol", "b")}))
    forced = relax.Function([X], X, is_pure=False).with_attr("relax.force_pure", True)
    assert not analysis.well_formed(forced)


def _module(out, shape=(16,)):
    @I.ir_module(check_well_formed=False)
    class Mod:
        @R.function
        def main(a: R.Tensor(shape, "float32")):
            b = R.call_tir(Mod.twice, (a,), out_sinfo=R.Tensor(out, "float32"))
            return b

        @T.prim_func(private=True)
        def twice(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("b"):
                    v = T.axis.spatial(16, i)
                    b[v] = a[v] * T.float32(2)

    return Mod


@pytest.mark.parametrize(
    ("out", "shape", "fits"),
    [((16,), (16,), True), ((4,), (16,), False), ((16, 1), (16,), False), ((16,), (4,), False), ((16,), (4, 4), False)],
)
def test_outputs_of_call_tir_are_what_the_kernel_writes(out, shape, fits):
    assert analysis.well_formed(_module(out, shape)) is fits


def _dynamic(out):
    @I.ir_module(check_well_formed=False)
    class Mod:
        @R.function
        def main(a: R.Tensor(["p", "q"], "float32")):
            p, q = T.int64(), T.int64()
            b = R.call_tir(Mod.flatten, (a,), out_sinfo=R.Tensor(out(p, q), "float32"))
            return b

        @T.prim_func(private=True)
        def flatten(var_a: T.handle, var_b: T.handle):
            rows, columns = T.int64(), T.int64()
            a = T.match_buffer(var_a, (rows, columns))
            b = T.match_buffer(var_b, (rows * columns,))
            for i in range(rows * columns):
                with T.block("b"):
                    v = T.axis.spatial(rows * columns, i)
                    b[v] = a[v // columns, v % columns]

    return Mod


def test_symbolic_outputs_are_inferred_from_the_arguments():
    assert analysis.well_formed(_dynamic(lambda p, q: [p * q]))
    assert not analysis.well_formed(_dynamic(lambda p, q: [p + q]))


def test_argument_tuples_are_written_out():
    @I.ir_module(check_well_formed=False)
    class Before:
        @R.function
        def main(a: R.Tensor((16,), "float32"), rest: R.Tuple(R.Tensor((16,), "float32"))):
            args = (a,)
            b = R.call_tir(Before.same, args, out_sinfo=R.Tensor((16,), "float32"))
            c = R.call_tir(Before.same, rest, out_sinfo=R.Tensor((16,), "float32"))
            return (b, c)

        @T.prim_func(private=True)
        def same(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("b"):
                    v = T.axis.spatial(16, i)
                    b[v] = a[v]

    assert not analysis.well_formed(Before)
    after = transform.Normalize()(Before)
    assert analysis.well_formed(after)
    _, first, item, second = after["main"].body.blocks[0].bindings
    assert [a.name_hint for a in first.value.args[1]] == ["a"]
    assert isinstance(item.value, relax.TupleGetItem) and second.value.args[1][0] is item.var
    with pytest.raises(DiagnosticError):

        @I.ir_module
        class _:
            @R.function
            def main(rest: R.Tuple(R.Tensor((16,), "float32"))):
                return R.call_tir(_.same, rest, out_sinfo=R.Tensor((16,), "float32"))

            @T.prim_func(private=True)
            def same(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
                T.evaluate(0)


@pytest.mark.parametrize(
    ("indices", "out"),
    [([0, 1], [(4,)]), ([-1], [(4,)]), ([2], [(4,)]), ([0, 0], [(4,), (4,)]), ([0], [(8,)]), ([1], [(4,)])],
)
def test_in_place_calls_write_over_arguments_of_their_shape(indices, out):
    bb = relax.BlockBuilder()
    x, y = relax.Var("x", R.Tensor((4,), "float32")), relax.Var("y", R.Tensor((8,), "float32"))
    kernel = relax.GlobalVar("kernel", relax.FuncStructInfo([relax.ObjectStructInfo()] * 4, relax.TupleStructInfo([])))
    infos = [R.Tensor(shape, "float32") for shape in out]
    with pytest.raises(TVMError):
        bb.normalize(R.call_tir_inplace(kernel, (x, y), inplace_indices=indices, out_sinfo=infos))
    good = bb.normalize(
        R.call_tir_inplace(kernel, (x, y), inplace_indices=[-1, 1], out_sinfo=[x.struct_info, y.struct_info])
    )
    assert len(good.struct_info.fields) == 2


def test_packed_calls_and_unknown_output_shapes():
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "float32"))
    with pytest.raises(TVMError):
        R.call_tir(relax.GlobalVar("f"), (x,), out_sinfo=R.Tensor(ndim=1))
    known = relax.ExternFunc("f", relax.FuncStructInfo([x.struct_info], x.struct_info))
    with pytest.raises(TVMError):
        bb.normalize(R.call_pure_packed(known, x, sinfo_args=[x.struct_info]))
    with pytest.raises(TVMError):
        bb.normalize(R.call_inplace_packed("f", x, inplace_indices=[0], sinfo_args=[R.Tensor((8,), "float32")]))
    builtin = bb.normalize(R.call_builtin_with_ctx("f", (x,)))
    assert builtin.struct_info.fields == ()
