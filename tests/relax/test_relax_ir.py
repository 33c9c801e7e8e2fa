"""Graph nodes, struct info, the BlockBuilder and the analyses."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import relax, tir
from relaxish.ir import structural_equal
from relaxish.relax import analysis
from relaxish.relax.op_table import op_function
from relaxish.support.errors import RelaxishError


def _tensor(shape, dtype="float32"):
    return relax.TensorStructInfo(shape, dtype)


def test_shape_expr_dims_are_int64_and_others_are_refused():
    n = tir.Var("n", "int64")
    shape = relax.ShapeExpr([n, 4])
    assert [d.dtype for d in shape.values] == ["int64", "int64"]
    assert shape.struct_info.ndim == 2
    with pytest.raises(RelaxishError):
        relax.ShapeExpr([tir.Var("i", "int32")])


def test_constant_dtypes():
    assert relax.const(1).struct_info.dtype == "int32"
    assert relax.const(1.5).struct_info.dtype == "float32"
    assert relax.const(np.ones((2, 3), "float16")).struct_info.ndim == 2


def test_tuple_index_out_of_bounds_raises_index_error():
    x = relax.Var("x", relax.TupleStructInfo([_tensor([2]), _tensor([3])]))
    assert len(list(iter(x))) == 2
    with pytest.raises(IndexError):
        x[2]


def test_struct_info_is_raised_when_absent():
    with pytest.raises(ValueError):
        relax.Var("x").struct_info


@pytest.mark.parametrize(
    ("base", "derived", "result"),
    [
        (_tensor([2, 3]), _tensor([2, 3]), "PASS"),
        (_tensor([2, 3]), _tensor([2, 4]), "FAIL_L0"),
        (relax.TensorStructInfo(None, "float32", ndim=2), _tensor([2, 3]), "PASS"),
        (_tensor([2, 3]), relax.TensorStructInfo(None, "float32", ndim=2), "FAIL_L2"),
        (_tensor([2, 3]), relax.TensorStructInfo(None, "float32"), "FAIL_L1"),
        (_tensor([2, 3]), relax.ObjectStructInfo(), "FAIL_L1"),
        (relax.ObjectStructInfo(), _tensor([2]), "PASS"),
        (_tensor([2]), _tensor([2], "int32"), "FAIL_L0"),
        (relax.ShapeStructInfo(ndim=2), relax.ShapeStructInfo([1, 2]), "PASS"),
        (relax.TupleStructInfo([_tensor([2])]), relax.TupleStructInfo([]), "FAIL_L0"),
    ],
)
def test_base_check(base, derived, result):
    assert analysis.struct_info_base_check(base, derived) == analysis.BaseCheckResult[result]


def test_lca_keeps_what_both_have():
    merged = analysis.struct_info_lca(_tensor([2, 3]), _tensor([2, 4]))
    assert structural_equal(merged, relax.TensorStructInfo(None, "float32", ndim=2))
    assert isinstance(analysis.struct_info_lca(_tensor([2]), relax.ShapeStructInfo([2])), relax.ObjectStructInfo)


def test_erase_to_well_defined():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    erased = analysis.erase_to_well_defined(_tensor([n, m + 1]), {n: n})
    assert erased.shape is None and erased.ndim == 2
    kept = analysis.erase_to_well_defined(_tensor([n, m + 1]), {n: n, m: tir.IntImm("int64", 3)})
    assert structural_equal(kept, _tensor([n, 4]))


def test_call_result_binds_symbolic_dims():
    n = tir.Var("n", "int64")
    info = relax.FuncStructInfo([_tensor([n, 2])], _tensor([n + 1, 2]))
    func = relax.Var("f", info)
    arg = relax.Var("a", _tensor([5, 2]))
    got = analysis.derive_call_ret_struct_info(info, relax.Call(func, [arg]), relax.BlockBuilder())
    assert structural_equal(got, _tensor([6, 2]))
    with pytest.raises(RelaxishError):
        analysis.derive_call_ret_struct_info(info, relax.Call(func, []), relax.BlockBuilder())


def test_builder_makes_a_well_formed_function():
    n = tir.Var("n", "int64")
    x = relax.Var("x", _tensor([n, 4]))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op_function("add")(x, x))
            z = bb.emit(op_function("exp")(op_function("multiply")(y, x)))
            out = bb.emit_output(z)
        bb.emit_func_output(out)
    mod = bb.get()
    func = mod["main"]
    assert analysis.well_formed(mod)
    assert structural_equal(func.ret_struct_info, _tensor([n, 4]), map_free_vars=True)
    names = [b.var.name_hint for b in func.body.blocks[0].bindings]
    assert names == ["lv", "lv1", "lv2", "gv"]
    assert [type(b.var) for b in func.body.blocks[0].bindings][-1] is relax.Var


def test_builder_misuse_is_reported():
    bb = relax.BlockBuilder()
    x = relax.Var("x", _tensor([2]))
    with pytest.raises(RuntimeError), bb.function("f", [x]):
        pass
    with pytest.raises(RuntimeError), bb.function("g", [x]):
        bb.emit_output(x)
    with pytest.raises(TypeError):
        bb.function("h", [1])
    assert relax.BlockBuilder.current() is None


def test_match_cast_defines_symbols():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo(None, "float32", ndim=1))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.match_cast(x, _tensor([n]))
        z = bb.emit(op_function("exp")(y))
        bb.emit_func_output(z)
    assert analysis.well_formed(bb.get())
    assert analysis.defined_symbolic_vars(bb.get()["main"]) == [n]


def test_equal_functions_are_added_once():
    bb = relax.BlockBuilder()
    x = relax.Var("x", _tensor([4]))

    def twice(a):
        from relaxish import te

        return te.compute(a.shape, lambda i: a[i] * tir.const(2, "float32"), name="twice")

    with bb.function("main", [x]):
        y = bb.emit_te(twice, x)
        bb.emit_func_output(bb.emit_te(twice, y))
    mod = bb.get()
    assert sorted(g.name_hint for g in mod.get_global_vars()) == ["main", "twice"]


def test_emit_te_passes_unbound_symbols_as_tir_vars():
    n = tir.Var("n", "int64")
    x = relax.Var("x", _tensor([n * 2]))
    y = relax.Var("y", relax.ShapeStructInfo([n]))
    bb = relax.BlockBuilder()

    def half(a):
        from relaxish import te

        return te.compute(a.shape, lambda i: a[i], name="half")

    with bb.function("main", [x, y]):
        bb.emit_func_output(bb.emit_te(half, x))
    call = bb.get()["main"].body.blocks[0].bindings[0].value
    assert len(call.args) == 3 and call.args[2].values[0].same_as(n)


def test_well_formed_finds_undefined_variables():
    x, ghost = relax.Var("x", _tensor([2])), relax.Var("ghost", _tensor([2]))
    body = relax.SeqExpr([], ghost)
    body.struct_info_ = ghost.struct_info
    assert not analysis.well_formed(relax.Function([x], body, _tensor([2])))


def test_bind_params_and_symbolic_vars():
    n = tir.Var("n", "int64")
    x, w = relax.Var("x", _tensor([n, 2])), relax.Var("w", _tensor([n, 2]))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        bb.emit_func_output(bb.emit(op_function("add")(x, w)))
    func = bb.get()["main"]
    bound = func.bind_params({"w": np.ones((3, 2), "float32")})
    assert len(bound.params) == 1 and structural_equal(bound.ret_struct_info, _tensor([3, 2]))
    fixed = func.bind_symbolic_vars({"n": 7})
    assert structural_equal(fixed.params[0].struct_info, _tensor([7, 2]))


def test_mutator_follows_changes_through_struct_info():
    x = relax.Var("x", _tensor([2, 3]))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(op_function("exp")(x))
        bb.emit_func_output(bb.emit(op_function("negative")(y)))

    class Halve(relax.PyExprMutator):
        def visit_call_(self, op):
            call = super().visit_call_(op)
            if call.op.name == "relax.exp":
                return op_function("astype")(call.args[0], "float16")
            return call

    func = Halve().visit_expr(bb.get()["main"])
    assert func.ret_struct_info.dtype == "float16"
