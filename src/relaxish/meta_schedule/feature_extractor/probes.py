"""Indices of GPU programs, looked at through two probes of every loop.

Threads share the copying of a tile, so that indices are digits of sums of loops: ``(l0 * 512 + l1 * 4 + l2) // 64 % 16``.
How such an expression is written depends on which extents divide each other, what it does not. So an index counts as
what it does when one loop makes its first step, and when it makes all of its steps, the other loops standing at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...arith.affine import Affine
from ...tir import Var
from .forms import Column, ColumnForm, ColumnTerm

__all__ = ["Move", "ProbeForm", "base_value", "gains", "probe"]


@dataclass
class Move:
    """Increase of an index by the first step and by all steps of a loop; ``bent``: whether steps may be uneven, and at
    which places, ``signed``: whether an increase may be negative."""

    first: Column
    last: Column
    bent: Column = False
    signed: bool = False

    @property
    def span(self) -> Column:
        """The larger of the gains."""
        if self.bent is False:
            return self.last
        if not self.signed:
            return np.maximum(self.first, self.last)
        return np.where(np.abs(self.first) > np.abs(self.last), self.first, self.last)


class ProbeForm(ColumnForm):
    """An index known by its moves: ``moves[position]`` belongs to the loop at ``position``."""

    def __init__(self, const: Column, moves: Mapping[int, Move]) -> None:
        self._steps = {at: np.abs(m.first) if m.signed else m.first for at, m in moves.items()}
        super().__init__(const, [ColumnTerm(m.span, at, 1, 2.0, not m.signed) for at, m in moves.items()], [])
        self._moved = {term.var: term.coef != 0 for term in self.terms}
        for move in moves.values():
            if move.bent is not False:
                self.bent = np.maximum(self.bent, move.bent)

    def coefficient(self, position: int) -> Column:
        return self._steps.get(position, 0.0)

    affine_step = coefficient
    step = coefficient

    def moved_by(self, position: int) -> Column:
        return self._moved.get(position, False)


def gains(form: Affine[int], var: Var, extent: int) -> tuple[int, int]:
    """Increases of one concrete index: by the first step and by all steps of a loop."""
    base = form.value({})
    if extent <= 1:
        return 0, 0
    return form.value({var: 1}) - base, form.value({var: extent - 1}) - base


def base_value(form: Affine[int]) -> int:
    """The index with all loops at 0."""
    return form.value({})


def probe(form: Affine[int], position: Mapping[Var, int], extents: Mapping[int, float]) -> ProbeForm:
    """The index of one concrete program."""
    moves: dict[int, Move] = {}
    for var in form.variables():
        at = position.get(var)
        if at is not None and extents[at] > 1:
            first, last = gains(form, var, int(extents[at]))
            moves[at] = Move(float(first), float(last), float(last != first * (extents[at] - 1)), True)
    return ProbeForm(float(base_value(form)), moves)
