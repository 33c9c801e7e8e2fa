"""Text of everything that the script languages have no form for: ``arith.IterMark(source=x, extent=8)``."""

from __future__ import annotations

from typing import Any

from ...ir.node import Node
from ...relax.ty import DynTensorType, ObjectType, PackedFuncType, ShapeType
from .doc import CallDoc, DictDoc, Doc, ExprDoc, IdDoc, ListDoc, LiteralDoc, TupleDoc
from .docsifier import FALLBACK, Docsifier, printer_of
from .path import ObjectPath

__all__: list[str] = []


def _node(obj: Any, path: ObjectPath, d: Docsifier) -> Doc:
    """The constructor's call with every field by name."""
    layer = type(obj).__module__.split(".")[1]
    names = [n for n in type(obj)._fields if n != "span"]
    values = [_value(getattr(obj, n), path.attr(n), d) for n in names]
    return CallDoc(IdDoc(f"{layer}.{type(obj).__name__}"), [], names, values)


def _value(value: Any, path: ObjectPath, d: Docsifier) -> ExprDoc:
    if isinstance(value, Node):
        made: ExprDoc = d.doc(value, path)
        return made
    if isinstance(value, tuple | list):
        items = [_value(v, path.array_index(i), d) for i, v in enumerate(value)]
        return TupleDoc(items) if isinstance(value, tuple) else ListDoc(items)
    if isinstance(value, dict):
        return DictDoc([(_value(k, path, d), _value(v, path, d)) for k, v in value.items()])
    if value is None or isinstance(value, bool | int | float | str):
        return LiteralDoc(value, path)
    return IdDoc(repr(value))


FALLBACK[0] = _node


@printer_of(ObjectType)
def _object(obj: Any, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "Object")


@printer_of(PackedFuncType)
def _packed(obj: Any, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "PackedFunc")


@printer_of(ShapeType)
def _shape(obj: Any, path: ObjectPath, d: Docsifier) -> Doc:
    return d.prefix("relax", "Shape").call(ndim=LiteralDoc(obj.ndim, path.attr("ndim")))


@printer_of(DynTensorType)
def _tensor(obj: Any, path: ObjectPath, d: Docsifier) -> Doc:
    facts: dict[str, ExprDoc] = {}
    if obj.ndim >= 0:
        facts["ndim"] = LiteralDoc(obj.ndim, path.attr("ndim"))
    if obj.dtype:
        facts["dtype"] = LiteralDoc(obj.dtype, path.attr("dtype"))
    return d.prefix("relax", "Tensor").call(**facts)
