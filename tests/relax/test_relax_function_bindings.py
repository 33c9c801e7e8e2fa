"""Functions with parameters or dimensions bound, and with calls inlined; variable analyses; memory reports."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import TVMError, relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import analysis, transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@R.function(private=True)
def product(a: R.Tensor(["rows", "inner"], "float32"), b: R.Tensor(["inner", "columns"], "float32")):
    return R.matmul(a, b)


def _symbols():
    return {v.name: v for v in analysis.defined_symbolic_vars(product)}


def test_dimensions_are_bound_by_name_and_by_variable():
    @R.function(private=True)
    def expected(a: R.Tensor([8, "inner"], "float32"), b: R.Tensor(["inner", 4], "float32")):
        return R.matmul(a, b)

    bound = product.bind_symbolic_vars({"rows": 8, _symbols()["columns"]: 4})
    assert_structural_equal(bound, expected)
    assert product.bind_symbolic_vars({}) is product


@pytest.mark.parametrize(
    "mapping",
    [
        lambda s: {"depth": 3},
        lambda s: {tir.Var("rows", "int64"): 3},
        lambda s: {"rows": 3, s["rows"]: 4},
        lambda s: {3: 4},
        lambda s: {"rows": s["rows"] + tir.Var("free", "int64")},
    ],
)
def test_bad_dimension_bindings(mapping):
    with pytest.raises(TVMError):
        product.bind_symbolic_vars(mapping(_symbols()))


def test_every_key_of_the_pass_must_be_known():
    mod = relax.transform.BindSymbolicVars({"rows": 2})(_module(product))
    assert str(mod["f"].params[0].struct_info.shape.values[0]) == "T.int64(2)"
    with pytest.raises(TVMError):
        transform.BindSymbolicVars({"depth": 2})(mod)


def _module(func):
    from relaxish import IRModule

    return IRModule({"f": func})


def test_values_determine_dimensions():
    weight = np.zeros((3, 4), "float32")
    for key in ("a", product.params[0]):
        bound = product.bind_params({key: weight})
        assert [p.name_hint for p in bound.params] == ["b"]
        assert str(bound.params[0].struct_info.shape.values[0]) == "T.int64(4)"

    @R.function(private=True)
    def fill(count: R.Prim(value="c"), shape: R.Shape(["d"])):
        c, d = T.int64(), T.int64()
        return R.zeros(R.shape([c, d]), "float32")

    (binding,) = fill.bind_params({"count": 5, "shape": relax.ShapeExpr([7])}).body.blocks[0].bindings
    assert [d.value for d in binding.value.args[0].values] == [5, 7]


@pytest.mark.parametrize(
    "mapping",
    [
        lambda p: {"c": np.zeros((3, 4), "float32")},
        lambda p: {relax.Var("a", p.struct_info): np.zeros((3, 4), "float32")},
        lambda p: {"a": np.zeros((3, 4), "float32"), p: np.zeros((3, 4), "float32")},
        lambda p: {"a": np.zeros((3,), "float32")},
        lambda p: {"a": relax.ShapeExpr([3, 4])},
        lambda p: {4: np.zeros((3, 4), "float32")},
    ],
)
def test_bad_parameter_bindings(mapping):
    with pytest.raises(TVMError):
        product.bind_params(mapping(product.params[0]))


@I.ir_module
class Calls:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = Calls.step(x)
        z = Calls.step(y)
        return z

    @R.function(private=True)
    def step(v: R.Tensor(["q"], "float32")) -> R.Tensor(["q"], "float32"):
        q = T.int64()
        with R.dataflow():
            w = R.exp(v)
            out = R.add(w, R.zeros(R.shape([q]), "float32"))
            R.output(out)
        return out

    @R.function(private=True)
    def loop(v: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return Calls.loop(v)


def test_inlined_bodies_keep_their_dataflow():
    inlined = Calls["main"].inline_functions({"step": Calls["step"]})
    (block,) = inlined.body.blocks
    assert isinstance(block, relax.DataflowBlock)
    assert [b.value.op.name for b in block.bindings] == ["relax.exp", "relax.zeros", "relax.add"] * 2
    shapes = {str(b.var.struct_info) for b in block.bindings}
    assert shapes == {'R.Tensor((4,), dtype="float32")'}
    untouched = Calls["main"].inline_functions({"other": Calls["step"]})
    assert untouched is Calls["main"]


def test_bad_inlining():
    gvar = Calls.get_global_var("step")
    with pytest.raises(ValueError):
        Calls["main"].inline_functions({"step": Calls["step"], gvar: Calls["step"]})
    with pytest.raises(TVMError):
        Calls["loop"].inline_functions({"loop": Calls["loop"]})
    with pytest.raises(TVMError):
        Calls["main"].inline_functions({"step": product})


def test_variables_come_in_the_order_of_their_definition():
    x, y = (relax.Var(name, R.Tensor((2,), "float32")) for name in "xy")
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, R.add(x, x))])], y)
    assert analysis.all_vars(body) == [y, x]
    assert analysis.free_vars(body) == [x] and analysis.bound_vars(body) == [y]


def test_memory_report():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(["n"], "float32"), y: R.Tensor((2, 4), "float32")):
            n = T.int64()
            a = R.builtin.alloc_tensor(R.shape([2, 4]), R.dtype("float32"), R.prim_value(0))
            b = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0))
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("float32"))
            t = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"))
            return (a, b, t)

    lines = analysis.estimate_memory_usage(Mod).splitlines()
    assert lines[0] == "Memory usage estimation:" and lines[1] == "- Function main:"
    assert lines[2].startswith(" * Without memory planning, there are 2 constant-size memory allocation(s)")
    assert lines[2].endswith(" GB, and 1 dynamic-size allocation(s).")
    assert lines[3].startswith(" * With memory planning, there are 2 constant-size memory allocation(s)")
    assert lines[4] == " * Memory planning reduces constant memory size to 100.0%."
    assert analysis.estimate_memory_usage(Mod["main"]).splitlines()[1] == "- Function foo:"


def test_what_weights_determine():
    @R.function(pure=False, private=True)
    def func(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32"), v: R.Tensor(["s"], "float32")):
        R.func_attr({"num_input": 1})
        s = T.int64()
        a = R.add(w, w)
        b = R.add(x, w)
        c = R.call_packed("load", w, sinfo_args=R.Tensor((4,), "float32"))
        d = R.zeros(R.shape([s]), "float32")
        e = R.add(b, a)
        return (a, b, c, d, e, v)

    # A packed function counts as well: it may run once, ahead of time.
    assert [v.name_hint for v in analysis.computable_at_compile_time(func)] == ["w", "v", "a", "c", "d"]
    assert [v.name_hint for v in analysis.computable_at_compile_time(func.without_attr("num_input"))] == []


def _kernel(build):
    bb = relax.BlockBuilder()
    rows = tir.Var("rows", "int64")
    x = relax.Var("x", R.Tensor((rows, 16, 8), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(build(x, rows)))
    mod = transform.LegalizeOps()(bb.get())
    return next(f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))


@pytest.mark.parametrize(
    ("build", "moves_nothing"),
    [
        (lambda x, rows: R.reshape(x, (1, rows, 16, 8)), True),
        (lambda x, rows: R.reshape(x, (rows * 16, 8)), True),
        (lambda x, rows: R.flatten(x), True),
        (lambda x, rows: R.expand_dims(x, 1), True),
        (lambda x, rows: R.permute_dims(x, [1, 0, 2]), False),
        (lambda x, rows: R.nn.relu(x), False),
    ],
)
def test_reshapes_of_unknown_size_are_recognized(build, moves_nothing):
    assert analysis.has_reshape_pattern(_kernel(build)) is moves_nothing


def test_equal_functions_have_equal_hashes():
    from relaxish.ir import structural_equal, structural_hash

    def build():
        size = tir.Var("size", "int64")
        x = relax.Var("x", R.Tensor((size,), "float32"))
        bb = relax.BlockBuilder()
        with bb.function("f", [x], private=True):
            bb.emit_func_output(bb.emit(R.add(x, x)))
        return bb.get()["f"]

    first, second = build(), build()
    assert structural_equal(first, second) and structural_hash(first) == structural_hash(second)
    bb = relax.BlockBuilder()
    assert bb.add_func(first, "a") is bb.add_func(second, "b")
