"""Equal parts of expressions as one object, so that what is remembered of one holds for all of them."""

from __future__ import annotations

from typing import Any, TypeVar
from collections.abc import Hashable

from ..ir.node import Node
from ..ir.prim import BinaryOp, StringImm
from ._ir import Call, Cast, FloatImm, IntImm, Not, PrimExpr, Select, SizeVar, Var, binary_classes

_N = TypeVar("_N", bound=Node)
_ATOMS = frozenset((Var, SizeVar, FloatImm, StringImm))


class Sharing:
    """Gives equal expressions over the same variables as the object that was met first.

    >>> from relaxish import tir
    >>> x, share = tir.Var("x", "int32"), Sharing()
    >>> both = share((x + 1) * (x + 1))
    >>> both.a is both.b
    True
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._atoms: dict[int, Any] = {}

    def __call__(self, e: PrimExpr) -> PrimExpr:
        """``e``, or what is equal to it and was met before."""
        kind = type(e)
        if kind in binary_classes:
            return self._binary(e, kind)
        if kind in _ATOMS:
            self._atoms[id(e)] = e
            return e
        if kind is IntImm:
            node: Any = e
            return self._known.setdefault((kind, node.dtype, node.value), e)
        return self._other(e, kind)

    def _binary(self, e: Any, kind: type) -> BinaryOp:
        a, b = self(e.a), self(e.b)
        key = (kind, id(a), id(b))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = e if a is e.a and b is e.b else kind(a, b, e.span)
        return found

    def _other(self, e: Any, kind: type) -> PrimExpr:
        if kind is Cast:
            parts: tuple[Any, ...] = (e.value,)
            names: tuple[str, ...] = ("value",)
        elif kind is Not:
            parts, names = (e.a,), ("a",)
        elif kind is Select:
            parts, names = (e.condition, e.true_value, e.false_value), ("condition", "true_value", "false_value")
        elif kind is Call and not e.annotations:
            made = tuple([self(arg) if isinstance(arg, PrimExpr) else self._opaque(arg) for arg in e.args])
            return self._made((kind, e.dtype, id(self._opaque(e.op)), *map(id, made)), e, e.args, made, "args")
        elif kind.__name__ == "BufferLoad" and e.predicate is None:
            made = tuple([self(index) for index in e.indices])
            return self._made((kind, id(self._opaque(e.buffer)), *map(id, made)), e, e.indices, made, "indices")
        else:
            return self._opaque(e)
        new = tuple([self(part) for part in parts])
        found = self._known.get(key := (kind, e.dtype, *map(id, new)))
        if found is None:
            same = all(a is b for a, b in zip(new, parts, strict=True))
            found = self._known[key] = e if same else e.with_fields(**dict(zip(names, new, strict=True)))
        return found

    def _made(self, key: Hashable, e: PrimExpr, old: tuple[Any, ...], new: tuple[Any, ...], name: str) -> PrimExpr:
        found = self._known.get(key)
        if found is None:
            same = all(a is b for a, b in zip(new, old, strict=True))
            found = self._known[key] = e if same else e.with_fields(**{name: new})
        return found

    def _opaque(self, e: _N) -> _N:
        """Something that is equal to nothing but itself; it is kept so that its identity stays its own."""
        self._atoms[id(e)] = e
        return e
