"""Expressions of ``vscale``, the unknown number of 128-bit parts in a scalable vector."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.functor import Mutator, Visitor
from ..ir.node import Node
from ..target import Target
from . import build as B
from ._ir import Call

_LEAVES = frozenset(("Var", "SizeVar", "IntImm", "FloatImm"))


def is_vscale(e: PrimExpr) -> bool:
    """Whether ``e`` is the call ``vscale()``."""
    return type(e) is Call and getattr(e.op, "name", "") == "tir.vscale"


class _Finder(Visitor):
    def __init__(self) -> None:
        self.found = False

    def visit_Call(self, node: Call) -> None:
        self.found = self.found or is_vscale(node)
        super().default_visit(node)


def contains_vscale(e: PrimExpr) -> bool:
    """Whether ``vscale()`` occurs in ``e``."""
    if type(e).__name__ in _LEAVES or not isinstance(e, Node):
        return False
    finder = _Finder()
    finder.visit(e)
    return finder.found


def known_vscale_values() -> tuple[int, ...]:
    """The values ``vscale()`` can have on the target in scope; none where that has no scalable vectors."""
    target = Target.current()
    if target is None or target.kind.name != "llvm":
        return ()
    features = {str(f).lstrip("+") for f in target.attrs.get("mattr") or ()}
    triple = str(target.attrs.get("mtriple") or "")
    scalable = ("aarch64" in triple and "sve" in features) or ("riscv" in triple and "v" in features)
    return (1, 2, 4, 8, 16) if scalable else ()


class _SetVscale(Mutator):
    def __init__(self, value: int) -> None:
        self.value = value

    def visit_Call(self, node: Call) -> PrimExpr:
        return B.const(node.dtype, self.value) if is_vscale(node) else self.default_visit(node)


def holds_for_known_values(e: PrimExpr, prove: Callable[[Any], bool]) -> bool:
    """Whether ``prove`` succeeds on a condition for each vector length of the target in scope.

    Where the target has none, or there is no target, standard error says that this was not tried: what a script meant
    for a scalable machine would otherwise be refused without a word of the missing target.
    """
    if not contains_vscale(e):
        return False
    values = known_vscale_values()
    if not values:
        print(
            "Warning: The expression contains scalable values. An attempt to prove by substituting with known values of "
            "vscale was not performed. This proof currently only supports AArch64 SVE targets, but the target was "
            f"{Target.current()}",
            file=sys.stderr,
        )
        return False
    return all(prove(_SetVscale(value).visit(e)) for value in values)
