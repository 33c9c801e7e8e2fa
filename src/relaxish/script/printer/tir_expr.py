"""Printing of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import tir
from ...ir import dtype as dt
from ...ir import primops
from ...ir.expr import GlobalVar, PrimExpr, Range
from ...ir.op import Op
from ...ir.prim import BinaryOp, CommReducer, IterVar, Let, Reduce, Var as TirVar, is_one
from ...ir.types import FuncType, PointerType, PrimType, TensorType, TupleType
from ...support.object_path import ObjectPath
from ...tir.index_map import IndexMap
from .doc import (
    DictDoc, Doc, ExprDoc, IdDoc, LambdaDoc, ListDoc, LiteralDoc, OperationDoc, OperationKind, SliceDoc,
    TupleDoc,
)  # fmt: skip
from .docsifier import Docsifier, Frame, Printer, assign, printer_of
from .op_names import DTYPE_FIRST, DTYPE_LAST, script_name

__all__ = ["buffer_indices", "buffer_slices", "define_var", "var_creation"]


def define_var(var: TirVar, frame: Frame, d: Docsifier) -> IdDoc:
    """Name a variable in a frame."""
    known = d.var_doc(var)
    if isinstance(known, IdDoc):
        return known
    return d.define(var, frame, var.name or "v")


def var_creation(var: TirVar, path: ObjectPath, d: Docsifier) -> ExprDoc:
    """The expression that makes a free variable: ``T.int32()``."""
    kind = var.type_annotation
    size = {"is_size_var": LiteralDoc(True)} if isinstance(var, tir.SizeVar) else {}
    made: ExprDoc
    if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType):
        args: list[ExprDoc] = [LiteralDoc(kind.element_type.dtype, path.attr("type_annotation"))]
        if kind.storage_scope:
            args.append(LiteralDoc(kind.storage_scope))
        made = d.prefix("tir", "handle").call(*args, **size)
    else:
        made = d.prefix("tir", var.dtype).call(**size)
    return made


@printer_of(tir.Var, tir.SizeVar)
def _var(var: TirVar, path: ObjectPath, d: Docsifier) -> Doc:
    if not d.is_defined(var):
        frame = d.lowest_frame(var)
        if frame is None:
            raise IndexError(f"Variable is not defined in the environment: {var.name}")
        lhs = define_var(var, frame, d)
        frame.stmts.append(assign(lhs, var_creation(var, path, d)))
    found = d.var_doc(var)
    assert found is not None
    return found


@printer_of(IterVar)
def _iter_var(node: IterVar, path: ObjectPath, d: Docsifier) -> Doc:
    kinds = ("DataPar", "ThreadIndex", "CommReduce", "Ordered", "Opaque", "Unrolled", "Vectorized", "Parallelized",
             "Tensorized")  # fmt: skip
    return d.prefix("tir", "iter_var").call(
        d.doc(node.var, path.attr("var")),
        d.doc(node.dom, path.attr("dom")),
        LiteralDoc(kinds[node.iter_type], path.attr("iter_type")),
        LiteralDoc(node.thread_tag, path.attr("thread_tag")),
    )


@printer_of(tir.IntImm)
def _int_imm(node: tir.IntImm, path: ObjectPath, d: Docsifier) -> Doc:
    if node.dtype == d.cfg.int_dtype:
        return LiteralDoc(node.value, path.attr("value"))
    value = bool(node.value) if node.dtype == "bool" else node.value
    return d.prefix("tir", node.dtype).call(LiteralDoc(value, path.attr("value")))


@printer_of(tir.FloatImm)
def _float_imm(node: tir.FloatImm, path: ObjectPath, d: Docsifier) -> Doc:
    if node.dtype == d.cfg.float_dtype:
        return LiteralDoc(float(node.value), path.attr("value"))
    return d.prefix("tir", node.dtype).call(LiteralDoc(float(node.value), path.attr("value")))


@printer_of(tir.StringImm)
def _string_imm(node: tir.StringImm, path: ObjectPath, d: Docsifier) -> Doc:
    if "\n" in node.value:
        return d.add_metadata(node)
    return LiteralDoc(node.value, path.attr("value"))


@printer_of(tir.Cast)
def _cast(node: tir.Cast, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "Cast").call(
        LiteralDoc(node.dtype, path.attr("dtype")), d.doc(node.value, path.attr("value"))
    )


def _rebuilds(function: Callable[..., Any], node: BinaryOp) -> bool:
    """Whether applying the function to the operands makes this very node, rather than folding it."""
    try:
        built = function(node.a, node.b)
    except (ValueError, ZeroDivisionError):
        return False
    return type(built) is type(node) and built.a is node.a and built.b is node.b


def _called(name: str, function: Callable[..., Any]) -> Printer:
    """A binary node as a call, of the folding function where that builds this very node."""

    def show(node: BinaryOp, path: ObjectPath, d: Docsifier) -> Doc:
        a, b = d.doc(node.a, path.attr("a")), d.doc(node.b, path.attr("b"))
        same = _rebuilds(function, node)
        return d.prefix("tir", name if same else type(node).__name__).call(a, b)

    return show


printer_of(tir.Min)(_called("min", primops.min_))
printer_of(tir.Max)(_called("max", primops.max_))
printer_of(tir.Mod)(_called("truncmod", primops.truncmod))


def _sugared(function: Callable[..., Any], kind: OperationKind) -> Printer:
    """A binary node as its Python operator, if applying that operator would build this very node."""

    def show(node: BinaryOp, path: ObjectPath, d: Docsifier) -> Doc:
        a, b = d.doc(node.a, path.attr("a")), d.doc(node.b, path.attr("b"))
        if _rebuilds(function, node):
            return OperationDoc(kind, [a, b])
        return d.prefix("tir", type(node).__name__).call(a, b)

    return show


printer_of(tir.Add)(_sugared(primops.add, OperationKind.Add))
printer_of(tir.Sub)(_sugared(primops.subtract, OperationKind.Sub))
printer_of(tir.Mul)(_sugared(primops.multiply, OperationKind.Mult))
printer_of(tir.FloorDiv)(_sugared(primops.floordiv, OperationKind.FloorDiv))
printer_of(tir.FloorMod)(_sugared(primops.floormod, OperationKind.Mod))
printer_of(tir.LT)(_sugared(primops.less, OperationKind.Lt))
printer_of(tir.LE)(_sugared(primops.less_equal, OperationKind.LtE))
printer_of(tir.EQ)(_sugared(primops.equal, OperationKind.Eq))
printer_of(tir.NE)(_sugared(primops.not_equal, OperationKind.NotEq))
printer_of(tir.GT)(_sugared(primops.greater, OperationKind.Gt))
printer_of(tir.GE)(_sugared(primops.greater_equal, OperationKind.GtE))
printer_of(tir.And)(_sugared(primops.logical_and, OperationKind.And))
printer_of(tir.Or)(_sugared(primops.logical_or, OperationKind.Or))


@printer_of(tir.Div)
def _div(node: tir.Div, path: ObjectPath, d: Docsifier) -> Doc:
    a, b = d.doc(node.a, path.attr("a")), d.doc(node.b, path.attr("b"))
    # ``/`` on integers means something else to the parser.
    if dt.is_int(node.a.dtype) or dt.is_uint(node.a.dtype):
        return d.prefix("tir", "Div").call(a, b)
    built = primops.divide(node.a, node.b)
    if not isinstance(built, tir.Div):
        return d.prefix("tir", "Div").call(a, b)
    return OperationDoc(OperationKind.Div, [a, b])


@printer_of(tir.Not)
def _not(node: tir.Not, path: ObjectPath, d: Docsifier) -> Doc:
    a = d.doc(node.a, path.attr("a"))
    if isinstance(a, LiteralDoc):
        # ``not True`` would be folded by Python.
        return d.prefix("tir", "Not").call(a)
    return OperationDoc(OperationKind.Not, [a])


@printer_of(tir.Select)
def _select(node: tir.Select, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "Select").call(
        d.doc(node.condition, path.attr("condition")),
        d.doc(node.true_value, path.attr("true_value")),
        d.doc(node.false_value, path.attr("false_value")),
    )


@printer_of(Let)
def _let(node: Let, path: ObjectPath, d: Docsifier) -> Doc:
    where = DictDoc([(d.doc(node.var, path.attr("var")), d.doc(node.value, path.attr("value")))])
    return d.prefix("tir", "Let").call(d.doc(node.body, path.attr("body")), where=where)


@printer_of(tir.Ramp)
def _ramp(node: tir.Ramp, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "Ramp").call(
        d.doc(node.base, path.attr("base")),
        d.doc(node.stride, path.attr("stride")),
        d.doc(node.lanes, path.attr("lanes")),
    )


@printer_of(tir.Broadcast)
def _broadcast(node: tir.Broadcast, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "Broadcast").call(
        d.doc(node.value, path.attr("value")), d.doc(node.lanes, path.attr("lanes"))
    )


@printer_of(tir.Shuffle)
def _shuffle(node: tir.Shuffle, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", "Shuffle").call(
        d.doc(node.vectors, path.attr("vectors")), d.doc(node.indices, path.attr("indices"))
    )


def buffer_indices(indices: Sequence[PrimExpr], path: ObjectPath, d: Docsifier) -> list[Doc]:
    """Index docs; ramps with constant stride become slices."""
    out: list[Doc] = []
    for i, index in enumerate(indices):
        here = path.array_index(i)
        if isinstance(index, tir.Ramp) and isinstance(index.stride, tir.IntImm):
            start = d.doc(index.base, here.attr("base"))
            stop = d.doc(index.base + index.lanes * index.stride, here.attr("lanes"))
            step = None if index.stride.value == 1 else d.doc(index.stride, here.attr("stride"))
            out.append(SliceDoc(start, stop, step))
        else:
            out.append(d.doc(index, here))
    return out


def buffer_slices(region: Sequence[Range], path: ObjectPath, d: Docsifier) -> list[Doc]:
    """Region docs: points and ``min:max`` slices."""
    out: list[Doc] = []
    for i, item in enumerate(region):
        here = path.array_index(i)
        low = d.doc(item.min, here.attr("min"))
        if is_one(item.extent):
            out.append(low)
        else:
            out.append(SliceDoc(low, d.doc(item.min + item.extent, here.attr("extent"))))
    return out


@printer_of(tir.BufferLoad)
def _buffer_load(node: tir.BufferLoad, path: ObjectPath, d: Docsifier) -> Doc:
    buffer = d.doc(node.buffer, path.attr("buffer"))
    if node.predicate is not None:
        indices = d.doc(node.indices, path.attr("indices"))
        masked: Doc = buffer.attr("vload").call(indices, predicate=d.doc(node.predicate, path.attr("predicate")))
        return masked
    made: Doc = buffer[buffer_indices(node.indices, path.attr("indices"), d)]
    return made


@printer_of(tir.ProducerLoad)
def _producer_load(node: tir.ProducerLoad, path: ObjectPath, d: Docsifier) -> Doc:
    name = getattr(node.producer, "name", None) or str(node.producer.op.name)
    return IdDoc(name)[buffer_indices(node.indices, path.attr("indices"), d)]


@printer_of(tir.Call)
def _call(node: tir.Call, path: ObjectPath, d: Docsifier) -> Doc:
    args_path = path.attr("args")
    if isinstance(node.op, Op):
        name = script_name(node.op)
        prefix = d.prefix("tir", name)
        args: list[ExprDoc] = [d.doc(a, args_path.array_index(i)) for i, a in enumerate(node.args)]
        if name in DTYPE_FIRST:
            args.insert(0, LiteralDoc(node.dtype, path.attr("dtype")))
        elif name in DTYPE_LAST:
            args.append(LiteralDoc(node.dtype, path.attr("dtype")))
        return prefix.call(*args)
    prefix = d.doc(node.op, path.attr("op"))
    made: Doc = prefix.call(*[d.doc(a, args_path.array_index(i)) for i, a in enumerate(node.args)])
    return made


@printer_of(CommReducer)
def _comm_reducer(node: CommReducer, path: ObjectPath, d: Docsifier) -> Doc:
    with Frame(d, "tir", node) as frame:
        args = [define_var(v, frame, d) for v in (*node.lhs, *node.rhs)]
        results: list[ExprDoc] = [d.doc(r, path.attr("result").array_index(i)) for i, r in enumerate(node.result)]
        body = results[0] if len(results) == 1 else TupleDoc(results)
        identity = d.doc(node.identity_element, path.attr("identity_element"))
        return d.prefix("tir", "comm_reducer").call(LambdaDoc(args, body), identity)


@printer_of(Reduce)
def _reduce(node: Reduce, path: ObjectPath, d: Docsifier) -> Doc:
    combiner = d.doc(node.combiner, path.attr("combiner"))
    return d.prefix("tir", "reduce").call(
        combiner,
        source=d.doc(node.source, path.attr("source")),
        init=d.doc(node.init, path.attr("init")),
        axis=d.doc(node.axis, path.attr("axis")),
        condition=d.doc(node.condition, path.attr("condition")),
        value_index=LiteralDoc(node.value_index, path.attr("value_index")),
    )


def _range(dialect: str) -> Callable[..., Any]:
    """``T.Range(begin, end)``"""

    def show(node: Range, path: ObjectPath, d: Docsifier) -> Doc:
        begin, end = d.doc(node.min, path.attr("min")), d.doc(node.extent + node.min, path.attr("extent"))
        return d.prefix(dialect, "Range").call(begin, end)

    return show


for _dialect in ("ir", "tir", "relax"):
    printer_of(Range, token=_dialect)(_range(_dialect))


@printer_of(GlobalVar)
def _global_var(node: GlobalVar, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "GlobalVar").call(LiteralDoc(node.name_hint, path.attr("name_hint")))


def _function_reference(node: GlobalVar, path: ObjectPath, d: Docsifier) -> Doc:
    return d.var_doc(node) or IdDoc(node.name_hint)


printer_of(GlobalVar, token="tir")(_function_reference)
printer_of(GlobalVar, token="relax")(_function_reference)


@printer_of(Op)
def _op(node: Op, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "Op").call(LiteralDoc(node.name, path.attr("name")))


@printer_of(PrimType)
def _prim_type(node: PrimType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("tir", node.dtype)


@printer_of(PointerType)
def _pointer_type(node: PointerType, path: ObjectPath, d: Docsifier) -> Doc:
    inner = node.element_type
    element: ExprDoc = LiteralDoc(inner.dtype) if isinstance(inner, PrimType) else d.doc(inner, path)
    prefix = d.prefix("tir", "handle")
    return prefix.call(element, LiteralDoc(node.storage_scope)) if node.storage_scope else prefix.call(element)


@printer_of(FuncType)
def _func_type(node: FuncType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "FuncType").call(
        d.doc(node.arg_types, path.attr("arg_types")), d.doc(node.ret_type, path.attr("ret_type"))
    )


@printer_of(TensorType)
def _tensor_type(node: TensorType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("ir", "TensorType").call(
        d.doc(node.shape, path.attr("shape")), LiteralDoc(node.dtype, path.attr("dtype"))
    )


@printer_of(TupleType)
def _tuple_type(node: TupleType, path: ObjectPath, d: Docsifier) -> Doc:
    if not node.fields:
        return LiteralDoc(None, path)
    return d.prefix("tir", "Tuple").call(*[d.doc(f, path.attr("fields")) for f in node.fields])


@printer_of(tir.IndexMap)
def _index_map(node: IndexMap, path: ObjectPath, d: Docsifier) -> Doc:
    def mapping(item: IndexMap, where: ObjectPath) -> LambdaDoc:
        with Frame(d, "tir", item) as frame:
            args = [define_var(v, frame, d) for v in item.initial_indices]
            finals = [d.doc(e, where.array_index(i)) for i, e in enumerate(item.final_indices)]
            return LambdaDoc(args, TupleDoc(finals))

    prefix = d.prefix("tir", "index_map")
    inverse = getattr(node, "inverse_index_map", None)
    if inverse is None:
        return prefix.call(mapping(node, path.attr("final_indices")))
    return prefix.call(
        mapping(node, path.attr("final_indices")),
        inverse_index_map=mapping(inverse, path.attr("inverse_index_map").attr("final_indices")),
    )


def _sequence(node: Sequence[object], path: ObjectPath, d: Docsifier) -> Doc:
    return ListDoc([d.doc(x, path.array_index(i)) for i, x in enumerate(node)])


def _mapping(node: Mapping[str, Any], path: ObjectPath, d: Docsifier) -> Doc:
    items = list(node.items())
    if all(isinstance(k, str) for k, _ in items):
        items.sort(key=lambda kv: kv[0])
    return DictDoc([(d.doc(k, path), d.doc(v, path.map_value(k))) for k, v in items])


def _text(node: str, path: ObjectPath, d: Docsifier) -> Doc:
    return d.add_metadata(node) if "\n" in node else LiteralDoc(node, path)


printer_of(tuple, list)(_sequence)
printer_of(dict)(_mapping)
printer_of(str)(_text)
printer_of(int, bool, float)(lambda node, path, d: LiteralDoc(node, path))
