"""Results remembered by a part of the analyzer, valid until something else is learnt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ._ir import Let, PrimExpr

__all__ = ["KnowsVariables", "Remembers"]

Fact = TypeVar("Fact")


class Remembers:
    """A part with results in ``_memo``, by the identity of what was asked."""

    _memo: dict[int, Any]

    def clear_memo(self) -> None:
        """Forget results; bindings changed."""
        self._memo.clear()

    def swap_memos(self, memos: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Work with these results, or none, from now on; returns those known so far."""
        old = (self._memo,)
        (self._memo,) = ({},) if memos is None else memos
        return old


class KnowsVariables(Remembers, Generic[Fact]):
    """A part with facts about variables."""

    vars: dict[Any, Fact]

    def restore(self, var: Any, old: Fact | None) -> None:
        """Know of a variable what was known before; None: nothing."""
        if old is None:
            self.vars.pop(var, None)
        else:
            self.vars[var] = old
        self._memo.clear()

    def of_let(self, e: Let, fact: Callable[[PrimExpr], Fact]) -> Fact:
        """The fact of a ``Let``: of its body, with the variable known by its value."""
        old = self.vars.get(e.var)
        self.vars[e.var] = fact(e.value)
        self._memo.clear()
        result = fact(e.body)
        self.restore(e.var, old)
        return result
