"""Every tensor-level node printed by itself, free names declared first."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import (
    DictAttrs,
    FuncType,
    GlobalVar,
    IRModule,
    Op,
    PointerType,
    PrimType,
    Range,
    TensorType,
    TupleType,
)

FLOAT_PTR = PointerType(PrimType("float32"), "shared")
i, n = tir.Var("i", "int32"), tir.SizeVar("n", "int64")
x, y = tir.Var("x", "float32"), tir.Var("y", "float32")
X = tir.decl_buffer((32, 8), "float16", "X")
NOTHING = tir.Evaluate(0)
TRUE = tir.const(True, "bool")


def region(low: int, extent: Any) -> tir.BufferRegion:
    return tir.BufferRegion(X, [Range.from_min_extent(low, extent), Range.from_min_extent(i, 1)])


SUM = tir.CommReducer([x], [y], [x + y], [tir.const(0, "float32")])
RED = tir.IterVar((0, 8), "r", 2)

EXPRESSIONS: list[tuple[Any, str]] = [
    (i, "i = T.int32()\ni"), (n, "n = T.int64(is_size_var=True)\nn"), (tir.Var("p", FLOAT_PTR), 'p = T.handle("float32", "shared")\np'),
    (tir.Var("h", "handle"), "h = T.handle()\nh"), (tir.Var("T", "int32"), "T_1 = T.int32()\nT_1"),
    (tir.Var("a.b-c", "int8"), "a_b_c = T.int8()\na_b_c"), (tir.Var("", "int8"), "v = T.int8()\nv"),
    (tir.Add(i, tir.Var("i", "int32")), "i = T.int32()\ni_1 = T.int32()\ni + i_1"),
    (tir.IntImm("int16", 4), "T.int16(4)"), (tir.IntImm("bool", 0), "T.bool(False)"), (tir.IntImm("int32", -4), "-4"),
    (tir.FloatImm("float32", 0.3), "T.float32(0.29999999999999999)"), (tir.FloatImm("bfloat16", 2), "T.bfloat16(2.0)"),
    (tir.StringImm('a"b'), '"a\\"b"'), (tir.Cast("float64", i), 'i = T.int32()\nT.Cast("float64", i)'),
    (tir.Not(i < 3), "i = T.int32()\nnot i < 3"), (tir.Not(TRUE), "not T.bool(True)"),
    (tir.Div(i, i), "i = T.int32()\nT.Div(i, i)"), (tir.Div(x, x), "x = T.float32()\nx / x"),
    (tir.Mod(i, 3), "i = T.int32()\nT.truncmod(i, 3)"), (tir.FloorMod(i, 3), "i = T.int32()\ni % 3"),
    (tir.Mul(i, 1), "i = T.int32()\nT.Mul(i, 1)"), (tir.EQ(i, i), "i = T.int32()\ni == i"), (tir.LT(tir.const(1), tir.const(2)), "T.LT(1, 2)"),
    (tir.Max(i, tir.Min(i, 4)), "i = T.int32()\nT.max(i, T.min(i, 4))"),
    (tir.Select(TRUE, 1, i), "i = T.int32()\nT.Select(T.bool(True), 1, i)"),
    (tir.Ramp(i, 2, 8), "i = T.int32()\nT.Ramp(i, 2, 8)"), (tir.Broadcast(x, 4), "x = T.float32()\nT.Broadcast(x, 4)"),
    (tir.Broadcast(0, 4 * tir.vscale()), "T.Broadcast(0, T.vscale() * 4)"),
    (tir.Shuffle([i, 3], [1]), "i = T.int32()\nT.Shuffle([i, 3], [1])"),
    (tir.Let(i, 1, i + i), "i = T.int32()\nT.Let(i + i, where={i: 1})"),
    (X[3, i], 'X = T.Buffer((32, 8), "float16")\ni = T.int32()\nX[3, i]'),
    (tir.BufferLoad(X, [i, tir.Ramp(0, 1, 8)]), 'X = T.Buffer((32, 8), "float16")\ni = T.int32()\nX[i, 0:8]'),
    (tir.BufferLoad(X, [0, tir.Ramp(i, 3, 2)]), 'X = T.Buffer((32, 8), "float16")\ni = T.int32()\nX[0, i:i + 6:3]'),
    (tir.BufferLoad(X, [0, tir.Ramp(0, i, 2)]), 'X = T.Buffer((32, 8), "float16")\ni = T.int32()\nX[0, T.Ramp(0, i, 2)]'),
    (region(8, 16), 'X = T.Buffer((32, 8), "float16")\ni = T.int32()\nX[8:24, i]'),
    (tir.exp(x), "x = T.float32()\nT.exp(x)"), (tir.call_extern("int8", "g", i), 'i = T.int32()\nT.call_extern("int8", "g", i)'),
    (tir.tvm_struct_get(tir.Var("h", "handle"), 0, 1, "int64"), 'h = T.handle()\nT.tvm_struct_get(h, 0, 1, "int64")'),
    (tir.if_then_else(i < 1, x, y), "i = T.int32()\nx = T.float32()\ny = T.float32()\nT.if_then_else(i < 1, x, y)"),
    (tir.Call("void", GlobalVar("kernel"), [i]), "i = T.int32()\nkernel(i)"),
    (RED, 'r = T.int32()\nT.iter_var(r, T.Range(0, 8), "CommReduce", "")'),
    (tir.IterVar(None, "t", 1, "threadIdx.x"), 't = T.int32()\nT.iter_var(t, None, "ThreadIndex", "threadIdx.x")'),
    (SUM, "T.comm_reducer(lambda x, y: x + y, [T.float32(0.0)])"),
    (tir.Reduce(SUM, [x], [RED], i < 2, 0),
     'x = T.float32()\nr = T.int32()\ni = T.int32()\nT.reduce(T.comm_reducer(lambda x, y: x + y, [T.float32(0.0)]), source=[x], '
     'init=[], axis=[T.iter_var(r, T.Range(0, 8), "CommReduce", "")], condition=i < 2, value_index=0)'),
    (tir.IndexMap.from_func(lambda a, b: [b, a // 4], index_dtype="int32"), "T.index_map(lambda a, b: (b, a // 4))"),
    (PrimType("float16"), "T.float16"), (PointerType(PrimType("int8")), 'T.handle("int8")'), (FLOAT_PTR, 'T.handle("float32", "shared")'),
    (TupleType([]), "None"), (TupleType([PrimType("int8"), FLOAT_PTR]), 'T.Tuple(T.int8, T.handle("float32", "shared"))'),
    (FuncType([PrimType("int8")], PrimType("bool")), "I.FuncType([T.int8], T.bool)"), (TensorType((1, 2), "int8"), 'I.TensorType([1, 2], "int8")'),
    (Range(2, 9), "I.Range(2, 9)"), (Range(0, n), "n = T.int64(is_size_var=True)\nT.Range(0, n)"), (GlobalVar("f"), 'I.GlobalVar("f")'), (Op.get("tir.exp"), "Op(tir.exp)"),
    (DictAttrs({"b": True, "a": [1, 2], "d": 2.5, "c": {"k": "v"}}), '{"a": [1, 2], "b": T.bool(True), "c": {"k": "v"}, "d": 2.5}'),
]  # fmt: skip


@pytest.mark.parametrize(("node", "text"), EXPRESSIONS, ids=[text.split("\n")[-1][:40] for _, text in EXPRESSIONS])
def test_expressions(node: Any, text: str) -> None:
    assert node.script(verbose_expr=True) == text
    assert str(node) == repr(node) == text.split("\n")[-1]


@pytest.mark.parametrize(
    ("buffer", "text"),
    [
        (tir.decl_buffer((4,), name="B"), "B = T.Buffer((4,))"),
        (tir.decl_buffer((4,), "int8", "B", scope="local", data_alignment=8), 'B = T.Buffer((4,), "int8", scope="local", align=8)'),
        (tir.decl_buffer((n, n), name="B"), "n = T.int64(is_size_var=True)\nB = T.Buffer((n, n))"),
        (tir.decl_buffer((i, n), name="B"), "i, n = T.int32(), T.int64(is_size_var=True)\nB = T.Buffer((i, n))"),
        (tir.decl_buffer((4, 4), name="B", strides=[tir.Var("s", "int32"), 1]), 'B = T.Buffer((4, 4), strides=("s", 1))'),
        (tir.decl_buffer((i, 4), name="B", strides=[i, 1]), "i = T.int32()\nB = T.Buffer((i, 4), strides=(i, 1))"),
        (tir.decl_buffer((4,), name="B", elem_offset=tir.Var("o", "int32")), "B = T.Buffer((4,), offset_factor=1)"),
        (tir.decl_buffer((4,), name="B", elem_offset=16, offset_factor=8), "B = T.Buffer((4,), elem_offset=16, offset_factor=8)"),
        (tir.decl_buffer((4,), name="B", buffer_type="auto_broadcast"), 'B = T.Buffer((4,), strides=("stride",), buffer_type="auto")'),
        (tir.decl_buffer((4, 4), name="B", axis_separators=[1]), "B = T.Buffer((4, 4), axis_separators=[1])"),
    ],
)  # fmt: skip
def test_buffers(buffer: tir.Buffer, text: str) -> None:
    assert buffer.script(verbose_expr=True) == f"{text}\nB"


D = tir.Var("d", PointerType(PrimType("float32"), "global"))
DATA = tir.decl_buffer((4, 4), "float32", "D", data=D)
SMALL = tir.decl_buffer((2,), "float32", "S", data=D)
HEAD = 'X = T.Buffer((32, 8), "float16")\n'

STATEMENTS: list[tuple[Any, str]] = [
    (tir.BufferStore(X, tir.const(1, "float16"), [0, i]), HEAD + "i = T.int32()\nX[0, i] = T.float16(1.0)"),
    (tir.For(i, 0, 4, tir.ForKind.SERIAL, NOTHING), "for i in range(4):\n    T.evaluate(0)"),
    (tir.For(i, 2, 4, tir.ForKind.UNROLLED, NOTHING, annotations={"k": 1}), 'for i in T.unroll(2, 6, annotations={"k": 1}):\n    T.evaluate(0)'),
    (tir.For(i, 0, 4, tir.ForKind.THREAD_BINDING, NOTHING, tir.IterVar(None, "t", 1, "threadIdx.y")),
     'for i in T.thread_binding(4, thread="threadIdx.y"):\n    T.evaluate(0)'),
    (tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.For(tir.Var("j", "int32"), 0, 3, tir.ForKind.SERIAL, NOTHING)),
     "for i, j in T.grid(4, 3):\n    T.evaluate(0)"),
    (tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.For(tir.Var("j", "int32"), 0, i, tir.ForKind.SERIAL, NOTHING)),
     "for i in range(4):\n    for j in range(i):\n        T.evaluate(0)"),
    (tir.LetStmt(x, tir.const(2, "float32"), NOTHING), "with T.LetStmt(T.float32(2.0)) as x:\n    T.evaluate(0)"),
    (tir.LetStmt(D, tir.Var("q", D.type_annotation), NOTHING),
     'q = T.handle("float32", "global")\nwith T.LetStmt(q, T.handle("float32", "global")) as d:\n    T.evaluate(0)'),
    (tir.AttrStmt("scope", "key", i, NOTHING), 'i = T.int32()\nwith T.attr("scope", "key", i):\n    T.evaluate(0)'),
    (tir.AttrStmt(tir.IterVar((0, 4), "t", 1, "threadIdx.x"), "thread_extent", 4, NOTHING),
     'with T.launch_thread("threadIdx.x", 4) as t:\n    T.evaluate(0)'),
    (tir.AttrStmt(X, "realize_scope", tir.StringImm("local"), tir.BufferRealize(X, [Range(0, 4), Range.from_min_extent(i, 1)], TRUE, NOTHING)),
     HEAD + 'i = T.int32()\nwith T.realize(X[0:4, i:i + 1], "local"):\n    T.evaluate(0)'),
    (tir.BufferRealize(X, [Range(0, 4), Range(0, 8)], i < 3, NOTHING),
     HEAD + "i = T.int32()\nwith T.realize(X[0:4, 0:8], condition=i < 3):\n    T.evaluate(0)"),
    (tir.AssertStmt(i < 3, tir.StringImm("no"), NOTHING), 'i = T.int32()\nwith T.Assert(i < 3, "no"):\n    T.evaluate(0)'),
    (tir.While(i < 3, NOTHING), "i = T.int32()\nwhile i < 3:\n    T.evaluate(0)"),
    (tir.IfThenElse(i < 3, NOTHING, tir.Evaluate(1)), "i = T.int32()\nif i < 3:\n    T.evaluate(0)\nelse:\n    T.evaluate(1)"),
    (tir.SeqStmt([NOTHING, tir.Evaluate(1)]), "T.evaluate(0)\nT.evaluate(1)"),
    (tir.Evaluate(tir.ret(i)), "i = T.int32()\nreturn i"), (tir.Evaluate(tir.exp(x)), "x = T.float32()\nT.exp(x)"),
    (tir.Prefetch(X, [Range(0, 4), Range(0, 8)]), HEAD + "T.prefetch(X, [T.Range(0, 4), T.Range(0, 8)])"),
    (tir.Allocate(D, "float32", [4], TRUE, NOTHING), 'with T.allocate([4], "float32", "global") as d:\n    T.evaluate(0)'),
    (tir.Allocate(D, "float32", [4], i < 1, NOTHING, annotations={"k": 1}),
     'i = T.int32()\nwith T.allocate([4], "float32", "global", i < 1, annotations={"k": 1}) as d:\n    T.evaluate(0)'),
    (tir.Allocate(D, "float32", [4, 4], TRUE, tir.DeclBuffer(DATA, tir.Evaluate(D))), "with T.decl_buffer((4, 4)) as D:\n    T.evaluate(D.data)"),
    (tir.Allocate(D, "float32", [4, 4], TRUE, tir.DeclBuffer(SMALL, NOTHING)),
     'with T.allocate([4, 4], "float32", "global") as d:\n    S = T.decl_buffer((2,), data=d)\n    T.evaluate(0)'),
    (tir.DeclBuffer(SMALL, NOTHING), 'd = T.handle("float32", "global")\nwith T.decl_buffer((2,), data=d) as S:\n    T.evaluate(0)'),
    (tir.MatchBufferRegion(tir.decl_buffer((8,), "float16", "M"), tir.BufferRegion(X, [Range.from_min_extent(i, 1), Range(0, 8)])),
     HEAD + 'i = T.int32()\nM = T.match_buffer(X[i, 0:8], (8,), "float16")'),
    (tir.Block([tir.IterVar((0, 4), "v", 0), tir.IterVar((1, 4), "w", 2), tir.IterVar((0, 4), "o", 4)], [region(0, 2)], [], "b",
               NOTHING, init=NOTHING, alloc_buffers=[tir.decl_buffer((2,), name="L", scope="local")], annotations={"k": "v"}),
     # Names used in one scope only are declared there.
     'with T.block("b", no_realize=True):\n    v = T.axis.spatial(4)\n    w = T.axis.reduce((1, 4))\n    o = T.axis.opaque(4)\n'
     '    X = T.Buffer((32, 8), "float16")\n    i = T.int32()\n    T.reads(X[0:2, i])\n    T.writes()\n    T.block_attr({"k": "v"})\n'
     '    L = T.alloc_buffer((2,), scope="local")\n    with T.init():\n        T.evaluate(0)\n    T.evaluate(0)'),
    (tir.BlockRealize([i], i < 2, tir.Block([tir.IterVar((0, 4), "v", 3)], [], [], "b", NOTHING)),
     'i = T.int32()\nwith T.block("b"):\n    v = T.axis.scan(4, i)\n    T.where(i < 2)\n    T.reads()\n    T.writes()\n    T.evaluate(0)'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "text"), STATEMENTS, ids=[type(node).__name__ + str(k) for k, (node, _) in enumerate(STATEMENTS)]
)
def test_statements(node: Any, text: str) -> None:
    assert node.script() == str(node) == text


def test_without_sugar() -> None:
    assert tir.Evaluate(tir.ret(i)).script(syntax_sugar=False) == "i = T.int32()\nT.ret(i)"
    both = tir.Allocate(D, "float32", [4, 4], TRUE, tir.DeclBuffer(DATA, NOTHING))
    assert both.script(syntax_sugar=False) == (
        'with T.allocate([4, 4], "float32", "global") as d:\n    D = T.decl_buffer((4, 4), data=d)\n    T.evaluate(0)'
    )


def test_long_strings_go_to_the_metadata() -> None:
    note = "# Metadata omitted. Use show_meta=True in script() method to show it."
    assert tir.StringImm("two\nlines").script() == f'metadata["tir.StringImm"][0]\n{note}'
    text = DictAttrs({"a": "two\nlines", "b": "two\nlines"}).script(show_meta=True)
    head, _, body = text.partition('""")\n')
    assert head.startswith('metadata = relaxish.ir.load_json("""') and "two" in head
    assert body == '{"a": metadata["runtime.String"][0], "b": metadata["runtime.String"][0]}'


def test_object_addresses() -> None:
    text = (i + 1).script(show_object_address=True)
    assert text == f"i_{id(i):#x} + 1"


def test_options_change_prefixes_and_types() -> None:
    value = tir.Cast("int32", n) + 1
    assert value.script(tir_prefix="Q") == 'Q.Cast("int32", n) + 1'
    assert value.script(int_dtype="int64") == 'T.Cast("int32", n) + T.int32(1)'
    assert tir.FloatImm("float16", 1).script(float_dtype="float16") == "1.0"
    assert X.script(verbose_expr=True, buffer_dtype="float16") == "X = T.Buffer((32, 8))\nX"
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, NOTHING)
    assert loop.script(indent_spaces=1) == "for i in range(4):\n T.evaluate(0)"


@pytest.mark.parametrize("option", ["ir_prefix", "tir_prefix", "relax_prefix", "module_alias"])
def test_prefixes_are_names(option):
    with pytest.raises(ValueError, match=option):
        IRModule({}).script(**{option: "2bad"})
