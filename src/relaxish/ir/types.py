"""Static types below struct info: primitive, pointer, tuple and function types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .dtype import canonical
from .node import Converted, Node, field

__all__ = ["FuncType", "PointerType", "PrimType", "TensorType", "TupleType", "Type", "VoidType", "dtype_of_type"]


class Type(Node):
    """Base of all types."""

    def __eq__(self, other: object) -> bool:
        """Structural equality; :meth:`same_as` is identity."""
        from .structural import structural_equal

        return self is other or (isinstance(other, Type) and structural_equal(self, other))

    def __hash__(self) -> int:
        from .structural import structural_hash

        return structural_hash(self)


class PrimType(Type):
    """A scalar or vector value of a dtype."""

    dtype: str = field(role="attr", conv=lambda dtype: canonical(str(dtype)))


class PointerType(Type):
    """A pointer to elements of ``element_type`` in the memory ``storage_scope`` (empty: global)."""

    element_type: Type
    storage_scope: str = field(role="attr", default="")


class TupleType(Type):
    """A product of types; the empty one is the type of functions that return nothing."""

    fields: Converted[tuple[Type, ...], Iterable[Type]] = field(conv=tuple)


class TensorType(Type):
    """A tensor of known shape."""

    shape: Converted[tuple[Any, ...], Iterable[Any]] = field(conv=tuple)
    dtype: str = field(role="attr", default="float32", conv=str)


class FuncType(Type):
    """Argument types and a result type."""

    arg_types: Converted[tuple[Type, ...], Iterable[Type]] = field(conv=tuple)
    ret_type: Type


def VoidType() -> TupleType:
    """The type of no value."""
    return TupleType(())


def dtype_of_type(kind: Type) -> str:
    """The dtype a variable of this type has."""
    match kind:
        case PrimType():
            return kind.dtype
        case PointerType():
            return "handle"
        case TupleType() if not kind.fields:
            return "void"
    return "handle"
