"""Graph-level nodes, functions and modules as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import ir, relax, tir
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

n, k = tir.Var("n", "int64"), tir.Var("k", "int64")
Tensor = relax.TensorStructInfo
x = relax.Var("x", Tensor([2, n], "float32"))
FREE = 'n = T.int64()\nx: R.Tensor((2, n), dtype="float32")\n'
y = relax.Var("y", Tensor([2, 8], "float32"))
FREE_Y = 'y: R.Tensor((2, 8), dtype="float32")\n'

NODES: list[tuple[Any, str]] = [
    (relax.ObjectStructInfo(), "R.Object"), (relax.PrimStructInfo("int8"), 'R.Prim("int8")'),
    (relax.PrimStructInfo(value=n * 2), "n = T.int64()\nR.Prim(value=n * 2)"), (relax.ShapeStructInfo([1, n + k]), "n = T.int64()\nk = T.int64()\nR.Shape([1, n + k])"),
    (relax.ShapeStructInfo(ndim=-1), "R.Shape(ndim=-1)"), (Tensor([], "int8"), 'R.Tensor((), dtype="int8")'), (Tensor(dtype=""), "R.Tensor"),
    (Tensor(dtype="int8", ndim=3), 'R.Tensor(dtype="int8", ndim=3)'), (Tensor(relax.Var("s", relax.ShapeStructInfo(ndim=2)), ""), "s: R.Shape(ndim=2)\nR.Tensor(s)"),
    (relax.TupleStructInfo([]), "R.Tuple"), (relax.TupleStructInfo([Tensor(ndim=1, dtype=""), relax.ObjectStructInfo()]), "R.Tuple(R.Tensor(ndim=1), R.Object)"),
    (relax.FuncStructInfo([relax.ObjectStructInfo()], relax.ShapeStructInfo(ndim=1), False), "R.Callable((R.Object,), R.Shape(ndim=1), False)"),
    (relax.FuncStructInfo.opaque_func(), "R.Callable"), (relax.FuncStructInfo.opaque_func(ret=relax.PrimStructInfo("bool"), purity=True), 'R.Callable(ret=R.Prim("bool"), purity=True)'),
    (relax.PrimValue(3), "R.prim_value(3)"), (relax.PrimValue(tir.const(0.1, "float32")), "R.prim_value(T.float32(0.10000000000000001))"),
    (relax.StringImm("s"), 'R.str("s")'), (relax.DataTypeImm("int8"), 'R.dtype("int8")'), (relax.ShapeExpr([n, 3]), "n = T.int64()\nR.shape([n, 3])"),
    (relax.Tuple([]), "R.tuple()"), (relax.Tuple([x]), FREE + "(x,)"), (relax.TupleGetItem(relax.Tuple([x, x]), 0), FREE + "(x, x)[0]"),
    (relax.const(2, "int32"), 'R.const(2, "int32")'), (relax.const(0.1, "float32"), 'R.const(0.10000000149011612, "float32")'), (relax.const(False, "bool"), 'R.const(False, "bool")'),
    (x, FREE + "x"), (relax.ExternFunc("lib.f"), 'R.ExternFunc("lib.f")'), (relax.op.add(x, x), FREE + "R.add(x, x)"),
    (relax.Call(relax.ExternFunc("lib.f"), [x], sinfo_args=[Tensor([2], "int8")]), FREE + 'R.call_packed("lib.f", x, sinfo_args=(R.Tensor((2,), dtype="int8"),))'),
    (relax.Call(ir.GlobalVar("g"), [x]), FREE + "g(x)"),
    (relax.op.call_tir(ir.GlobalVar("g"), (x,), [Tensor([2], "int8"), Tensor([n], "int8")], tir_vars=[n]),
     FREE + 'R.call_tir(g, (x,), out_sinfo=[R.Tensor((2,), dtype="int8"), R.Tensor((n,), dtype="int8")], tir_vars=R.shape([n]))'),
    (relax.op.call_tir_inplace(ir.GlobalVar("g"), (y,), [0], Tensor([2, 8], "float32")),
     FREE_Y + 'R.call_tir_inplace(g, (y,), out_sinfo=R.Tensor((2, 8), dtype="float32"), inplace_indices=[0])'),
    (relax.op.call_dps_packed("lib.f", (y,), Tensor([8], "int8")), FREE_Y + 'R.call_dps_packed("lib.f", (y,), out_sinfo=R.Tensor((8,), dtype="int8"))'),
    (relax.op.hint_on_device(y, relaxish.cuda(1)), FREE_Y + "R.hint_on_device(y, R.device(dev_type=2, dev_id=1))"),
    (relax.op.print(y, format="{}!"), FREE_Y + 'R.print(y, format=R.str("{}!"))'),
    (relax.op.assert_op(relax.const(True, "bool"), [y, y], format="{} {}"), FREE_Y + 'R.assert_op(R.const(True, "bool"), y, y, format=R.str("{} {}"))'),
    (relax.op.sum(y, axis=1, keepdims=True), FREE_Y + "R.sum(y, axis=[1], keepdims=True)"), (relax.op.permute_dims(y), FREE_Y + "R.permute_dims(y, axes=None)"),
    (relax.op.matmul(y, y), FREE_Y + 'R.matmul(y, y, out_dtype="void")'), (relax.op.nn.leakyrelu(y, 0.1), FREE_Y + "R.nn.leakyrelu(y, alpha=0.10000000000000001)"),
    (relax.op.reshape(x, (n, 2)), FREE + "R.reshape(x, R.shape([n, 2]))"),
    (relax.VarBinding(relax.Var("z", Tensor([2], "int8")), relax.op.exp(y)), FREE_Y + 'z: R.Tensor((2,), dtype="int8") = R.exp(y)'),
    (relax.MatchCast(relax.Var("z", Tensor([n], "int8")), y, Tensor([n], "int8")),
     'n = T.int64()\n' + FREE_Y + 'z: R.Tensor((n,), dtype="int8") = R.match_cast(y, R.Tensor((n,), dtype="int8"))'),
    (relax.DataflowBlock([relax.VarBinding(relax.DataflowVar("a", Tensor([2], "int8")), y), relax.VarBinding(relax.Var("b", Tensor([2], "int8")), y)]),
     FREE_Y + 'with R.dataflow():\n    a: R.Tensor((2,), dtype="int8") = y\n    b: R.Tensor((2,), dtype="int8") = y\n    R.output(b)'),
    (relax.SeqExpr([], y), FREE_Y + "y"), (relax.ShapeType(2), "R.Shape(ndim=2)"), (relax.ObjectType(), "R.Object"),
]  # fmt: skip


@pytest.mark.parametrize(("node", "text"), NODES, ids=[text.split("\n")[-1][:40] for _, text in NODES])
def test_nodes(node: Any, text: str) -> None:
    assert node.script(verbose_expr=True) == text


def _round_trip(program: Any) -> str:
    text: str = program.script()
    back = from_source(text)
    ir.assert_structural_equal(program, back)
    assert back.script() == text
    return text


def test_functions_inside_functions_bring_their_header() -> None:
    @R.function
    def outer(x: R.Tensor((4,), "float32")):
        @R.function
        def twice(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            z = R.add(y, y)
            return z

        r = twice(x)
        return r

    assert (
        _round_trip(outer)
        == """\
# from relaxish.script import relax as R

@R.function
def outer(x: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
    # from relaxish.script import relax as R
    \n\
    @R.function
    def twice(y: R.Tensor((4,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
        z: R.Tensor((4,), dtype="float32") = R.add(y, y)
        return z

    r: R.Tensor((4,), dtype="float32") = twice(x)
    return r"""
    )


def test_effects_are_bare_expressions() -> None:
    @R.function(pure=False, private=True)
    def effects(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        R.print(x, format="x = {}")
        _ = R.assert_op(c, x, format="{} is bad")
        return x

    assert (
        _round_trip(effects).split("\n", 2)[2]
        == """\
@R.function(pure=False, private=True)
def main(x: R.Tensor((4,), dtype="float32"), c: R.Tensor((), dtype="bool")) -> R.Tensor((4,), dtype="float32"):
    R.print(x, format=R.str("x = {}"))
    R.assert_op(c, x, format=R.str("{} is bad"))
    return x"""
    )
    # Without sugar the unused variable is spelt out, under a free name.
    assert "_: R.Tuple = R.print(" in effects.script(syntax_sugar=False)


@I.ir_module
class Devices:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 1), I.vdevice("cuda", 0, "shared")]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "llvm:0"), y: R.Tensor((4,), "float32", "cuda:1:shared")) -> R.Tensor(
        (4,), "float32", "cuda:0"
    ):
        z = R.to_vdevice(x, "cuda:0")
        return z


def test_virtual_devices_are_counted_by_kind() -> None:
    text = _round_trip(Devices)
    assert 'x: R.Tensor((4,), dtype="float32", vdevice="llvm:0:global")' in text
    assert 'y: R.Tensor((4,), dtype="float32", vdevice="cuda:1:shared")' in text
    assert 'R.to_vdevice(x, dst_vdevice="cuda:0:global")' in text


def test_annotations_may_be_left_out() -> None:
    @R.function
    def plain(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = (a, a)
        c = b[0]
        return c

    assert plain.script(show_all_struct_info=False).endswith(
        "    a = R.add(x, x)\n    b = a, a\n    c = b[0]\n    return c"
    )


def test_symbols_of_a_signature_are_quoted_and_then_defined() -> None:
    @R.function(private=True)
    def symbolic(x: R.Tensor(("m", "m * 2"), "float32"), s: R.Shape(["m"]), p: R.Prim(value="q")):
        m, q = T.int64(), T.int64()
        y = R.reshape(x, R.shape([m * m * 2]))
        return y

    lines = _round_trip(symbolic).splitlines()
    assert lines[4] == (
        'def main(x: R.Tensor(("m", "m * 2"), dtype="float32"), s: R.Shape(["m"]), p: R.Prim(value="q")) -> '
        'R.Tensor(("m * m * 2",), dtype="float32"):'
    )
    assert lines[5:7] == ["    m = T.int64()", "    q = T.int64()"]


def test_arrays_stand_in_the_metadata() -> None:
    value = relax.const(np.arange(3, dtype="int8"))
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(relax.Var("a", value.struct_info), value)])], value)
    func = relax.Function([], body, value.struct_info).with_attr("global_symbol", "f")
    assert 'a: R.Tensor((3,), dtype="int8") = metadata["relax.expr.Constant"][0]\n' in func.script()
    assert func.script().endswith("# Metadata omitted. Use show_meta=True in script() method to show it.")
    ir.assert_structural_equal(func, from_source(func.script(show_meta=True)))


@I.ir_module
class Closures:
    @R.function(private=True)
    def same(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Closures

        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            z = cls.same(y)
            return z

        r = inner(x)
        return r


def test_the_outer_function_names_the_module() -> None:
    lines = _round_trip(Closures).splitlines()
    at = next(i for i, line in enumerate(lines) if "def main" in line)
    assert lines[at + 1] == "        cls = Module" and sum("cls = " in line for line in lines) == 1
    assert "Module.same(y)" in Closures.script(module_alias="")


def test_distributed_tensors() -> None:
    mesh = relax.distributed.DeviceMesh((2, 2), ir.Range(0, 4))
    placement = relax.distributed.Placement.from_text("S[0], R")
    info = relax.distributed.DTensorStructInfo
    assert str(mesh) == "R.device_mesh((2, 2), I.Range(0, 4))"
    assert str(relax.distributed.DeviceMesh((2,), [3, 5])) == "R.device_mesh((2,), [3, 5])"
    shown = "R.device_mesh((2, 2), R.Range(0, 4))"
    assert str(info(Tensor((8, 4), "int8"), mesh, placement)) == f'R.DTensor((8, 4), "int8", {shown}, "S[0], R")'
    assert str(info(Tensor(ndim=2, dtype="int8"), mesh, placement)) == (
        f'R.DTensor(dtype="int8", device_mesh={shown}, placement="S[0], R", ndim=2)'
    )


@I.ir_module
class Sharded:
    I.module_attrs({"device_num": 6})
    I.module_global_infos({"mesh": [R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((2, 2), I.Range(2, 6))]})

    @R.function
    def main(x: R.DTensor((8, 4), "float32", "mesh[1]", "S[0], R")) -> R.DTensor(
        (8, 4), "float32", "mesh[1]", "R, S[1]"
    ):
        c = R.dist.const(2.0, R.DTensor((), "float32", "mesh[0]", "R"))
        y = R.dist.redistribute(x, device_mesh="mesh[1]", placement="R, S[1]")
        return y


def test_meshes_are_named_inside_functions() -> None:
    text = _round_trip(Sharded)
    assert '{"mesh": [R.device_mesh((2,), I.Range(0, 2)), R.device_mesh((2, 2), I.Range(2, 6))]}' in text
    assert text.splitlines()[-3:] == [
        '        c: R.DTensor((), "float32", "mesh[0]", "R") = R.dist.const(2.0, R.DTensor((), "float32", "mesh[0]", "R"))',
        '        y: R.DTensor((8, 4), "float32", "mesh[1]", "R, S[1]") = '
        'R.dist.redistribute(x, device_mesh="mesh[1]", placement="R, S[1]")',
        "        return y",
    ]
