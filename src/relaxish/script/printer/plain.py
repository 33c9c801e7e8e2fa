"""Text of everything that the script languages have no form for: ``arith.IterMark(source=x, extent=8)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arith.iter_map_nodes import IterSplitExpr
from ...ir.node import Node
from ...ir.types import FuncType, TupleType
from ...relax.ty import DynTensorType, ObjectType, PackedFuncType, ShapeType
from ...support.object_path import ObjectPath
from .doc import DictDoc, Doc, ExprDoc, IdDoc, ListDoc, LiteralDoc, TupleDoc
from .docsifier import FALLBACK, Docsifier, printer_of

__all__: list[str] = []


def _list(items: Sequence[IterSplitExpr]) -> str:
    return "[" + ", ".join(str(item) for item in items) + "]"


# Analysis results that have a notation of their own, by type key.
_NOTATIONS: dict[str, Callable[[Any], str]] = {
    "arith.IterMark": lambda m: f"IterMark({m.source}, extent={m.extent})",
    "arith.IterSplitExpr": lambda e: (
        f"IterSplit({e.source}, lower_factor={e.lower_factor}, extent={e.extent}, scale={e.scale})"
    ),
    "arith.IterSumExpr": lambda e: f"IterSum({_list(e.args)}, {e.base})",
    "arith.IntGroupBounds": lambda b: (
        f"IntGroupBounds(coef={b.coef}, lower={_list(b.lower)}, equal={_list(b.equal)}, upper={_list(b.upper)})"
    ),
}


def _node(obj: Node, path: ObjectPath, d: Docsifier) -> Doc:
    """The constructor's call with every field by name; what is no node, such as a runtime module, as Python shows it."""
    if not isinstance(obj, Node):
        return IdDoc(repr(obj))
    notation = _NOTATIONS.get(type(obj)._type_key)
    if notation is not None:
        return IdDoc(notation(obj))
    layer = type(obj).__module__.split(".")[1]
    names = [n for n in type(obj)._fields if n != "span"]
    fields = {n: _value(getattr(obj, n), path.attr(n), d) for n in names}
    return IdDoc(f"{layer}.{type(obj).__name__}").call(**fields)


def _value(value: object, path: ObjectPath, d: Docsifier) -> ExprDoc:
    match value:
        case Node():
            made: ExprDoc = d.doc(value, path)
            return made
        case tuple() | list():
            items = [_value(v, path.array_index(i), d) for i, v in enumerate(value)]
            return TupleDoc(items) if isinstance(value, tuple) else ListDoc(items)
        case dict():
            return DictDoc([(_value(k, path, d), _value(v, path, d)) for k, v in value.items()])
        case None | bool() | int() | float() | str():
            return LiteralDoc(value, path)
    return IdDoc(repr(value))


FALLBACK[0] = _node


@printer_of(ObjectType)
def _object(obj: ObjectType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "Object")


@printer_of(PackedFuncType)
def _packed(obj: PackedFuncType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "PackedFunc")


@printer_of(ShapeType)
def _shape(obj: ShapeType, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "Shape").call(ndim=LiteralDoc(obj.ndim, path.attr("ndim")))


@printer_of(DynTensorType)
def _tensor(obj: DynTensorType, path: ObjectPath, d: Docsifier) -> Doc:
    facts: dict[str, ExprDoc] = {"ndim": LiteralDoc(obj.ndim, path.attr("ndim"))}
    if obj.dtype:
        facts["dtype"] = LiteralDoc(obj.dtype, path.attr("dtype"))
    return d.prefix("relax", "Tensor").call(**facts)


@printer_of(TupleType, token="relax")
def _tuple(obj: TupleType, path: ObjectPath, d: Docsifier) -> Doc:
    where = path.attr("fields")
    fields = [d.doc(f, where.array_index(i)) for i, f in enumerate(obj.fields)]
    return d.prefix("relax", "Tuple").call(*fields) if fields else d.prefix("relax", "Tuple")


@printer_of(FuncType, token="relax")
def _callable(obj: FuncType, path: ObjectPath, d: Docsifier) -> Doc:
    where = path.attr("arg_types")
    args: list[ExprDoc] = [d.doc(a, where.array_index(i)) for i, a in enumerate(obj.arg_types)]
    return d.prefix("relax", "Callable").call(TupleDoc(args), d.doc(obj.ret_type, path.attr("ret_type")))
