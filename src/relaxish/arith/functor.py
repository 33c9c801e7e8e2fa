"""Small walks over expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.functor import Mutator
from ..ir.node import Node
from ..ir.prim import SizeVar
from ._ir import IntImm, Var


def _variables(e: Node | Sequence[Any]) -> Iterator[Var]:
    """The variables an expression mentions, in order and as often as they stand in it (bound ones included)."""
    stack: list[Any] = [e]
    while stack:
        x = stack.pop()
        match x:
            case Var():
                yield x
            case Node():
                for name in reversed(x._child_fields):
                    child = getattr(x, name)
                    if child is not None and type(child) is not IntImm:
                        stack.append(child)
            case tuple() | list():
                stack.extend(reversed(x))


def free_vars(e: Node | Sequence[Any]) -> list[Var]:
    """The variables an expression mentions, in order of first sight (bound ones included)."""
    return list(dict.fromkeys(_variables(e)))


def uses_var(e: Node | Sequence[Any], var: PrimExpr | Callable[[Var], bool]) -> bool:
    """Whether ``e`` mentions ``var`` (or, given a function or container, any variable it accepts)."""
    if callable(var) and not isinstance(var, Var):
        return any(var(v) for v in _variables(e))
    return any(v is var for v in _variables(e))


class Substitution(Mutator):
    """Replaces variables; see ``substitute``."""

    def __init__(self, mapping: Mapping[Any, Any]) -> None:
        self.mapping = mapping

    def visit_Var(self, e: Var | SizeVar) -> PrimExpr:
        return self.mapping.get(e, e)

    visit_SizeVar = visit_Var

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_Buffer(self, e: Node) -> Node:
        return e


def substitute(e: Node, mapping: Mapping[Any, Any]) -> Any:
    """``e`` with variables replaced."""
    return Substitution(mapping).visit(e) if mapping else e
