"""Parsing and printing of graph programs."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import relax, script
from relaxish.ir import assert_structural_equal
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import DiagnosticError


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def add1(var_x: T.handle, var_y: T.handle):
        n = T.int64()
        X = T.match_buffer(var_x, (n, T.int64(4)))
        Y = T.match_buffer(var_y, (n, T.int64(4)))
        for i, j in T.grid(n, T.int64(4)):
            with T.block("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        R.func_attr({"num_input": 1})
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.call_tir(cls.add1, (lv,), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            gv = R.add(lv1, R.const(1.0, "float32"))
            R.output(gv)
        if c:
            y = R.add(gv, gv)
        else:
            y = gv
        return y


GOLDEN = """\
    @R.function
    def main(x: R.Tensor(("n", 4), dtype="float32"), w: R.Tensor((4, 4), dtype="float32"), \
c: R.Tensor((), dtype="bool")) -> R.Tensor(("n", 4), dtype="float32"):
        n = T.int64()
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            lv: R.Tensor((n, 4), dtype="float32") = R.matmul(x, w, out_dtype="void")
            lv1 = R.call_tir(cls.add1, (lv,), out_sinfo=R.Tensor((n, 4), dtype="float32"))
            gv: R.Tensor((n, 4), dtype="float32") = R.add(lv1, R.const(1.0, "float32"))
            R.output(gv)
        if c:
            y_1: R.Tensor((n, 4), dtype="float32") = R.add(gv, gv)
            y: R.Tensor((n, 4), dtype="float32") = y_1
        else:
            y: R.Tensor((n, 4), dtype="float32") = gv
        return y
"""


def test_golden_text() -> None:
    text = Module.script()
    assert text.endswith(GOLDEN.rstrip("\n")), "main stands last, after the tensor programs"


def test_round_trip() -> None:
    assert_structural_equal(Module, script.from_source(Module.script()))


def test_hidden_struct_info() -> None:
    assert "gv = R.add(" in Module.script(show_all_struct_info=False)


def test_match_cast_and_shapes() -> None:
    @R.function
    def func(x: R.Tensor(dtype="float32", ndim=2), s: R.Shape(ndim=2), p: R.Prim("int64"), t: R.Tuple(R.Object)):
        m, k = T.int64(), T.int64()
        y = R.match_cast(x, R.Tensor((m, k), "float32"))
        z = R.reshape(y, (m * k,))
        return (z, R.shape([m, k]), R.prim_value(1), R.str("a"), t)

    assert_structural_equal(func, script.from_source(func.script()))
    text = func.script()
    assert 'R.match_cast(x, R.Tensor((m, k), dtype="float32"))' in text and "m = T.int64()" in text


def test_calls_of_packed_functions() -> None:
    @R.function(pure=False)
    def func(x: R.Tensor((2, 3), "float32")):
        y = R.call_packed("f", x, sinfo_args=(R.Tensor((2, 3), dtype="float32"),))
        z = R.call_dps_packed("g", (y,), out_sinfo=R.Tensor((2, 3), dtype="float32"))
        return z

    assert_structural_equal(func, script.from_source(func.script()))


def test_local_functions() -> None:
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        @R.function
        def inner(y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            z = R.add(y, x)
            return z

        r = inner(x)
        return r

    assert_structural_equal(func, script.from_source(func.script()))


def test_constants_go_to_metadata() -> None:
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(R.add(x, relax.const(np.array([1, 2], "float32"))))
        builder.emit_func_output(y)
    mod = builder.get()
    assert 'metadata["relax.expr.Constant"][0]' in mod.script()
    assert "Metadata omitted" in mod.script()
    assert_structural_equal(mod, script.from_source(mod.script(show_meta=True)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = x = R.add(x, x)\n    return y", "Consequential"),
        ("R.add(x, x)\n    return x", "Non-void"),
        ("y = R.nothing(x)\n    return y", "nothing"),
        ("y = R.add(x, x)", "return value"),
    ],
)
def test_errors(body: str, message: str) -> None:
    with pytest.raises((DiagnosticError, ValueError), match=message):
        script.from_source(f"@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n    {body}\n")


def test_malformed_program_says_why() -> None:
    source = """
@R.function
def f(x: R.Tensor((2,), "float32")):
    y = R.call_packed("effect", x, sinfo_args=R.Tensor((2,), "float32"))
    return y
"""
    with pytest.raises(DiagnosticError, match="impure call"):
        script.from_source(source)
    assert script.from_source(source, check_well_formed=False).params[0].name_hint == "x"


def test_call_of_a_tensor_program_by_name() -> None:
    @I.ir_module
    class Caller:
        @T.prim_func(private=True)
        def copy(A: T.Buffer((T.int64(4),), "float32"), B: T.Buffer((T.int64(4),), "float32")):
            for i in range(T.int64(4)):
                with T.block("copy"):
                    v = T.axis.spatial(T.int64(4), i)
                    B[v] = A[v]

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Caller
            cls.copy(x, y)
            return y

    info = Caller["copy"].struct_info
    assert not info.purity and [p.ndim for p in info.params] == [1, 1]
    assert_structural_equal(Caller, script.from_source(Caller.script()))
