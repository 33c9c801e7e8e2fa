"""Conditions as conjunctions of disjunctions, simplified pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..ir.prim import LogicalOp
from . import build as B
from ._ir import And, Or, PrimExpr

Chunk = list[Any]


class Simplifier(Protocol):
    """Interface of the analyzer that these rules need."""

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """The simplest form found."""
        ...

    def constraint_scope(self, constraint: PrimExpr) -> AbstractContextManager[Any]:
        """Within it ``constraint`` holds."""
        ...


def _clauses(e: PrimExpr) -> Iterator[PrimExpr]:
    """The parts of a conjunction; ``and`` inside ``or`` is multiplied out."""
    if type(e) is And:
        yield from _clauses(e.a)
        yield from _clauses(e.b)
    elif type(e) is Or:
        for left in _clauses(e.a):
            for right in _clauses(e.b):
                yield B.or_(left, right)
    else:
        yield e


def _terms(e: PrimExpr) -> Iterator[PrimExpr]:
    if type(e) is Or:
        yield from _terms(e.a)
        yield from _terms(e.b)
    else:
        yield e


def _contains(chunk: Chunk, e: PrimExpr) -> bool:
    return any(B.deep_equal(e, other) for other in chunk)


def _is(e: PrimExpr, value: bool) -> bool:
    return B.as_int(e) == int(value)


class AndOfOrs:
    """``(a or b or ...) and (c or ...) and ...``, one list of terms for each clause."""

    def __init__(self, expr: PrimExpr) -> None:
        self.chunks: list[Chunk] = []
        for clause in _clauses(expr):
            chunk: Chunk = []
            for term in _terms(clause):
                if not _contains(chunk, term):
                    chunk.append(term)
            if not any(len(c) == len(chunk) and all(_contains(c, t) for t in chunk) for c in self.chunks):
                self.chunks.append(chunk)

    def expr(self) -> PrimExpr:
        """The condition."""
        out: PrimExpr = B.true()
        for chunk in self.chunks:
            clause: PrimExpr = B.false()
            for term in chunk:
                clause = B.or_(clause, term)
            out = B.and_(out, clause)
        return out

    def simplify(self, analyzer: Simplifier) -> None:
        """Simplify within clauses, then between them."""
        self._within(analyzer)
        self._clean()
        self._across(analyzer)
        self._clean()

    @staticmethod
    def _pair(left: Chunk, i: int, right: Chunk, j: int, analyzer: Simplifier, kind: type[LogicalOp]) -> None:
        """Replace two terms by the simplified form of their combination, if it is simpler."""
        build = B.or_ if kind is Or else B.and_
        joint = build(left[i], right[j])
        simple: Any = analyzer.simplify(joint)
        if B.deep_equal(simple, joint):
            return
        if type(simple) is kind:
            left[i], right[j] = simple.a, simple.b
        else:
            left[i], right[j] = (B.false() if kind is Or else B.true()), simple

    def _within(self, analyzer: Simplifier) -> None:
        for chunk in self.chunks:
            for i in range(len(chunk)):
                for j in range(len(chunk)):
                    if i != j:
                        self._pair(chunk, i, chunk, j, analyzer, Or)

    def _across(self, analyzer: Simplifier) -> None:
        for i, first in enumerate(self.chunks):
            for second in self.chunks[i + 1 :]:
                if len(first) == 1 and len(second) == 1:
                    self._pair(first, 0, second, 0, analyzer, And)
                    continue
                only_first = [k for k, t in enumerate(first) if not _contains(second, t)]
                only_second = [k for k, t in enumerate(second) if not _contains(first, t)]
                if not only_first:
                    second[:] = [B.true()]
                elif not only_second:
                    first[:] = [B.true()]
                elif len(first) == len(second) and len(only_first) == 1 == len(only_second):
                    # (a or b) and (a or c): what a or (b and c) becomes where a does not hold.
                    known: PrimExpr = B.true()
                    for k, term in enumerate(first):
                        if k != only_first[0]:
                            known = B.and_(known, analyzer.simplify(B.not_(term)))
                    with analyzer.constraint_scope(known):
                        self._pair(first, only_first[0], second, only_second[0], analyzer, And)

    def _clean(self) -> None:
        kept: list[Chunk] = []
        for chunk in self.chunks:
            if any(_is(t, True) for t in chunk):
                continue
            chunk[:] = [t for t in chunk if not _is(t, False)]
            if not chunk:
                self.chunks = [[B.false()]]
                return
            kept.append(chunk)
        self.chunks = kept


def simplify_as_and_of_ors(expr: PrimExpr, analyzer: Simplifier) -> PrimExpr:
    """The condition in conjunctive normal form, simplified."""
    form = AndOfOrs(expr)
    form.simplify(analyzer)
    return form.expr()
