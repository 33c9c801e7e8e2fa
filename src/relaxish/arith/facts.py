"""Conditions in force, found among hundreds without comparing all of them."""

from __future__ import annotations

from collections.abc import Hashable

from . import build as B
from ._ir import IntImm, Not, PrimExpr, SizeVar, Var, binary_classes

__all__ = ["Facts", "look"]


def look(condition: PrimExpr) -> Hashable:
    """What a condition shares with every equal one: its kind and that of its operands, two levels deep.

    Equal (``deep_equal``) conditions look the same; of those that look the same most are equal.
    """
    kind = type(condition)
    if kind in binary_classes:
        return kind, operand_look(condition.a), operand_look(condition.b)  # type: ignore[attr-defined]
    if kind is Not:
        return kind, operand_look(condition.a)  # type: ignore[attr-defined]
    return kind, _tip(condition)


def operand_look(operand: PrimExpr) -> Hashable:
    """The part of :func:`look` that an operand is."""
    kind = type(operand)
    if kind in binary_classes:
        return kind, _tip(operand.a), _tip(operand.b)  # type: ignore[attr-defined]
    return _tip(operand)


def _tip(x: PrimExpr) -> Hashable:
    kind = type(x)
    if kind is IntImm:
        return x.value  # type: ignore[attr-defined]
    return id(x) if kind is Var or kind is SizeVar else kind


class Facts:
    """A stack of conditions that hold, the first one learnt first."""

    def __init__(self) -> None:
        self._all: list[PrimExpr] = []
        self._places: dict[Hashable, list[int]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def since(self, size: int) -> list[PrimExpr]:
        """Those learnt when there were ``size`` already."""
        return self._all[size:]

    def learn(self, fact: PrimExpr) -> None:
        """One more."""
        self._places.setdefault(look(fact), []).append(len(self._all))
        self._all.append(fact)

    def forget(self, size: int) -> None:
        """Keep the first ``size``."""
        while len(self._all) > size:
            key = look(self._all.pop())
            places = self._places[key]
            places.pop()
            if not places:
                del self._places[key]

    def may_hold(self, look_of_it: Hashable) -> bool:
        """Whether some fact looks so."""
        return look_of_it in self._places

    def place(self, condition: PrimExpr) -> int | None:
        """The number of the first fact that is this condition, if there is one."""
        for place in self._places.get(look(condition), ()):
            if B.deep_equal(self._all[place], condition):
                return place
        return None
