"""What graph functions parse to: annotations, nested functions, distribution, and where errors point."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from relaxish import relax
from relaxish.ir import assert_structural_equal, structural_hash
from relaxish.script import from_source
from relaxish.script.parser import ir as I
from relaxish.script.parser import relax as R
from relaxish.script.parser import tir as T
from relaxish.support.errors import DiagnosticError


def function(body: str, options: str = "") -> Any:
    """A function of a float32 tensor ``x`` of shape (4,) and a condition ``c``."""
    head = f'@R.function{options}\ndef f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):\n'
    return from_source(head + textwrap.indent(textwrap.dedent(body), "    "))


def test_return_from_inside_a_dataflow_block() -> None:
    made = function("with R.dataflow():\n    y = R.add(x, x)\n    z = R.multiply(y, y)\n    return z")
    first, second = made.body.blocks[0].bindings
    assert isinstance(first.var, relax.DataflowVar)
    assert not isinstance(second.var, relax.DataflowVar)
    assert made.body.body is second.var


def test_attributes_add_up() -> None:
    made = function('R.func_attr({"a": 1})\nR.func_attr({"b": 2})\nreturn x', "(private=True)")
    assert dict(made.attrs) == {"a": 1, "b": 2}


def test_annotations_stand_bare_inside_calls() -> None:
    made = function('y = R.call_pure_packed("p", x, sinfo_args=R.Object)\nreturn y')
    assert isinstance(made.body.body.struct_info, relax.ObjectStructInfo)


def test_recursive_local_functions_round_trip() -> None:
    made = function(
        """
        @R.function
        def again(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            z = again(y)
            return z
        w = again(x)
        return w
        """
    )
    binding = made.body.blocks[0].bindings[0]
    assert binding.value.body.blocks[0].bindings[0].value.op is binding.var
    copied = from_source(made.script())
    assert_structural_equal(made, copied)
    assert structural_hash(made) == structural_hash(copied)


def test_devices_by_name() -> None:
    @I.ir_module
    class Module:
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0), I.vdevice("cuda", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "cuda:1")) -> R.Tensor((4,), "float32", "llvm"):
            y = R.to_vdevice(x, "llvm:0")
            return y

    info = Module["main"].params[0].struct_info
    assert (info.vdevice.target.kind.name, info.vdevice.vdevice_id) == ("cuda", 1)
    assert_structural_equal(Module, from_source(Module.script()))


def test_distributed_tensors() -> None:
    @I.ir_module
    class Module:
        I.module_global_infos({"mesh": [R.device_mesh((2, 2), I.Range(0, 4))]})

        @T.prim_func
        def kernel(x: T.Buffer((8, 8)), y: T.Buffer((8, 8))) -> None:
            y[0, 0] = x[0, 0]

        @R.function
        def main(x: R.DTensor((8, 8), "float32", "mesh[0]", "S[0], R")) -> R.Object:
            y = R.dist.call_tir(Module.kernel, x, R.DTensor((8, 8), "float32", "mesh[0]", "S[0], R"))
            one = R.dist.const(1.0, R.DTensor((), "float32", "mesh[0]", "R, R"))
            z = R.dist.redistribute(y, device_mesh="mesh[0]", placement="R, S[1]")
            return (z, one)

    result = Module["main"].body.body.struct_info.fields
    assert [str(f.placement) for f in result] == ["R, S[1]", "R, R"]
    assert str(Module["main"].params[0].struct_info.placement) == "S[0], R"


def test_macros_return_values() -> None:
    @R.macro
    def scaled(a: Any, by: float = 2.0) -> Any:
        b = R.multiply(a, R.const(by, "float32"))
        return b

    @R.function
    def func(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = scaled(x)
        return scaled(y, 3.0)

    assert [b.value.op.name for b in func.body.blocks[0].bindings if isinstance(b.value, relax.Call)] == [
        "relax.multiply", "relax.multiply",
    ]  # fmt: skip


ERRORS = [
    ("return y", 0, "Undefined variable: y"),
    ("y = R.add(x, x)", None, "must have a return value"),
    ("return x\nreturn x", 1, "multiple return"),
    ("with R.dataflow():\n    y = R.add(x, x)\n    R.output(y)\n    z = y\nreturn y", 3, "R.output"),
    ("with R.dataflow():\n    y = R.add(x, x)\n    R.output(x)\nreturn x", 0, "not emitted by this dataflow block"),
    ("R.output(x)\nreturn x", 0, "R.output"),
    ("with R.dataflow():\n    if c:\n        y = x\n    else:\n        y = x\n    R.output(y)\nreturn y", 1, "IfFrame"),
    ("if c:\n    y = R.add(x, x)\nelse:\n    z = R.add(x, x)\nreturn y", 0, "must provide the same variable"),
    ("if c:\n    y = x\nreturn y", 0, "Else statements are required"),
    ("R.add(x, x)\nreturn x", 0, "Non-void relax expressions must be bound"),
    ("a = b = x\nreturn x", 0, "Consequential assignments"),
    ("for i in range(3):\n    y = x\nreturn x", 0, "For"),
    ("@T.prim_func\ndef g():\n    T.evaluate(0)\nreturn x", 1, "inline prim_func is disallowed"),
    ("def g(y: R.Object):\n    return y\nreturn x", 0, "Function must be decorated"),
    ("y: R.Tensor((4,)) = R.match_cast(x, R.Tensor((5,)))\nreturn x", 0, "inconsistent annotation"),
    ("y, z = R.add(x, x)\nreturn x", 0, ""),
    ("y = R.call_pure_packed('p', x)\nreturn x", 0, "type_args"),
    ("y = R.no_such_operator(x)\nreturn x", 0, "no_such_operator"),
    ("R.print(x, format='x')\nreturn x", None, "not well-formed"),
]


@pytest.mark.parametrize(("text", "line", "message"), ERRORS)
def test_errors_point_at_their_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        function(text)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.span.line == (2 if line is None else line + 3)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ('R.Tensor(("n + 1",), "float32")', "Undefined variable: n"),
        ('R.Tensor(("a b",), "float32")', "cannot evaluate 'a b'"),
        ('R.Tensor(4, "float32")', "shape must be a list/tuple"),
        ("R.Prim()", "R.Prim missing required argument"),
        ("3", "StructInfo"),
    ],
)
def test_bad_annotations(annotation: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match="error: ") as caught:
        from_source(f"@R.function\ndef f(x: {annotation}):\n    return x\n")
    assert message in str(caught.value)
    assert caught.value.diagnostics[0].span.line == 2


def test_symbols_must_agree() -> None:
    with pytest.raises(DiagnosticError, match="different names"):
        from_source('@R.function\ndef f(x: R.Object):\n    k = T.Var("p", "int64")\n    return x\n')


@pytest.mark.parametrize(
    "annotation", ['R.Tensor((5,), "float32")', 'R.Tensor((4,), "int32")', "R.Tensor(ndim=2)", "R.Shape"]
)
def test_annotations_must_not_contradict_what_is_inferred(annotation: str) -> None:
    with pytest.raises(DiagnosticError, match="annotations must be correct"):
        function(f"y: {annotation} = R.add(x, x)\nreturn y")
    made = function("y: R.Tensor = R.add(x, x)\nreturn y")
    assert made.body.body.struct_info.ndim == -1


def test_macros_end_with_their_value() -> None:
    @R.macro
    def nothing(a: Any) -> Any:
        b = R.add(a, a)

    @R.macro
    def early(a: Any) -> Any:
        return a
        return a

    for macro, message in ((nothing, "must return its value"), (early, "should be the last statement")):
        with pytest.raises(DiagnosticError, match=message):
            from_source("@R.function\ndef f(x: R.Object):\n    y = macro(x)\n    return y\n", {"R": R, "macro": macro})


def test_names_of_numbers_are_no_bindings():
    """``T.FloatImm`` under a name is what it stands for: an attribute, an extent, a result."""

    @R.function
    def named(q: R.Tensor((1, 4, 2, 8), "float32"), v: R.Tensor((1, 4, 2, 8), "float32")):
        scale = T.FloatImm("float32", 0.1)
        rows = T.int64(8)
        attended = R.nn.attention(q, q, v, scale=scale)
        flat = R.reshape(attended, R.shape([rows, 8]))
        return flat, rows

    @R.function
    def written(q: R.Tensor((1, 4, 2, 8), "float32"), v: R.Tensor((1, 4, 2, 8), "float32")):
        attended = R.nn.attention(q, q, v, scale=T.FloatImm("float32", 0.1))
        flat = R.reshape(attended, R.shape([8, 8]))
        return flat, R.prim_value(T.int64(8))

    assert_structural_equal(named, written.with_attr("global_symbol", "named"))


def test_annotated_numbers_are_bindings():
    @R.function
    def main():
        rows: R.Prim("int64") = T.int64(8)
        return rows

    (binding,) = main.body.blocks[0].bindings
    assert isinstance(binding.value, relax.PrimValue) and binding.var.same_as(main.body.body)
