"""Recognising loop nests: whether the first operators of a function are instances of given pattern functions.

A pattern is a function whose root block holds one loop nest.  Parameters after its buffers are free scalars: they stand
for literals, and where they multiply or are added the operation may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..ir import prim as P
from ..ir.expr import PrimExpr, Range
from ..ir.op import Op
from ..ir.structural import same_expression
from ..relax.scalars import const_int
from ..support.errors import RelaxishError
from ..tir import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, ForKind, PrimFunc
from ..tir.stmt import Stmt, stmt_list

__all__ = ["MatchResult", "match_leading_loops"]


@dataclass
class MatchResult:
    """A pattern found at one loop nest: the values of its scalars and the buffers its parameters stand for."""

    pattern: PrimFunc
    symbol_values: list[Any]
    matched_buffers: list[Buffer]


class _Matcher:
    """Compares a loop nest with the nest of a pattern."""

    def __init__(self, pattern: PrimFunc) -> None:
        self.pattern = pattern
        count = len(pattern.buffer_map)
        self.free = set(pattern.params[count:])
        self.values: dict[Any, Any] = {}
        self.vars: dict[Any, Any] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.loops: list[tuple[Any, Any]] = []

    def match(self, nest: For) -> MatchResult | None:
        """The match of the whole nest, or None."""
        body = self.pattern.body.block.body if isinstance(self.pattern.body, BlockRealize) else None
        if not isinstance(body, For):
            raise RelaxishError("Invalid pattern function: its root block must hold one loop nest")
        if not self.loop(nest, body):
            return None
        own = [self.pattern.buffer_map[p] for p in self.pattern.params if p in self.pattern.buffer_map]
        scalars = self.pattern.params[len(own) :]
        return MatchResult(self.pattern, [self.values.get(v) for v in scalars], [self.buffers[b] for b in own])

    def loop(self, one: For, other: For) -> bool:
        """Serial loops from 0 with equal extents and bodies."""
        self.loops.append((one, other))
        self.vars[other.loop_var] = one.loop_var
        for each in (one, other):
            if const_int(each.min) != 0 or each.thread_binding is not None:
                return False
            if each.kind != ForKind.SERIAL or each.annotations:
                return False
        if one.loop_var.dtype != other.loop_var.dtype or not self.expr(one.extent, other.extent):
            return False
        match one.body:
            case For() if isinstance(other.body, For):
                return self.loop(one.body, other.body)
            case BlockRealize() if isinstance(other.body, BlockRealize):
                return self.realize(one.body, other.body)
        return False

    def realize(self, one: BlockRealize, other: BlockRealize) -> bool:
        """Blocks whose variables are the loop variables in order, without predicate."""
        for side, realize in enumerate((one, other)):
            if const_int(realize.predicate) != 1 or len(realize.iter_values) > len(self.loops):
                return False
            if any(value is not loops[side].loop_var for value, loops in zip(realize.iter_values, self.loops)):
                return False
        return self.block(one.block, other.block)

    def block(self, one: Block, other: Block) -> bool:
        """Equal variables, regions, initial value and stored value."""
        if len(one.iter_vars) != len(other.iter_vars) or one.alloc_buffers or other.alloc_buffers:
            return False
        for mine, theirs in zip(one.iter_vars, other.iter_vars):
            if mine.iter_type != theirs.iter_type or mine.var.dtype != theirs.var.dtype:
                return False
            if not self.range(mine.dom, theirs.dom):
                return False
            self.vars[theirs.var] = mine.var
        if not self.regions(one.writes, other.writes) or not self.regions(one.reads, other.reads):
            return False
        if (one.init is None) is not (other.init is None):
            return False
        if one.init is not None and not self.store(one.init, other.init):
            return False
        return self.store(one.body, other.body)

    def store(self, one: Stmt, other: Any) -> bool:
        """Stores of equal values at equal places."""
        if not isinstance(one, BufferStore) or not isinstance(other, BufferStore):
            return False
        return self.access(one, other) and self.expr(one.value, other.value)

    def access(self, one: Any, other: Any) -> bool:
        """The same place of the same buffer."""
        return self.buffer(one.buffer, other.buffer) and self.exprs(one.indices, other.indices)

    def buffer(self, one: Buffer, other: Buffer) -> bool:
        """Whether a pattern's buffer stands for this one; the first use decides."""
        known = self.buffers.get(other)
        if known is not None:
            return known is one
        if one.dtype != other.dtype or one.scope() != other.scope() or not self.exprs(one.shape, other.shape):
            return False
        self.buffers[other] = one
        return True

    def regions(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        """Equal lists of regions."""
        if len(one) != len(other):
            return False
        for mine, theirs in zip(one, other):
            if not self.buffer(mine.buffer, theirs.buffer) or len(mine.region) != len(theirs.region):
                return False
            if not all(map(self.range, mine.region, theirs.region)):
                return False
        return True

    def range(self, one: Range, other: Range) -> bool:
        """Equal ranges."""
        return self.expr(one.min, other.min) and self.expr(one.extent, other.extent)

    def exprs(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        """Equal lists of expressions."""
        return len(one) == len(other) and all(map(self.expr, one, other))

    @contextmanager
    def _trial(self) -> Iterator[list[bool]]:
        """Undo what was learnt about scalars if the attempt fails."""
        saved = dict(self.values)
        outcome = [False]
        yield outcome
        if not outcome[0]:
            self.values = saved

    def attempt(self, *pairs: tuple[Any, Any]) -> bool:
        """Whether all pairs are equal; learns nothing if they are not."""
        with self._trial() as outcome:
            outcome[0] = all(self.expr(a, b) for a, b in pairs)
        return outcome[0]

    def expr(self, one: PrimExpr, other: PrimExpr) -> bool:
        """Whether an expression is an instance of a pattern's."""
        match other:
            case P.Var() if other in self.free and not isinstance(one, P.Var):
                return self._scalar(one, other)
            case P.Mul() | P.Add():
                neutral = 1 if isinstance(other, P.Mul) else 0
                for scalar, rest in ((other.a, other.b), (other.b, other.a)):
                    if isinstance(scalar, P.Var) and scalar in self.free and self.attempt((one, rest)):
                        self.values[scalar] = _literal(rest.dtype, neutral)
                        return True
        return self._same(one, other)

    def _scalar(self, one: PrimExpr, other: PrimExpr) -> bool:
        if not isinstance(one, (P.IntImm, P.FloatImm)):
            return False
        known = self.values.setdefault(other, one)
        return known is one or bool(known.dtype == one.dtype and known.value == one.value)

    def _same(self, one: Any, other: Any) -> bool:
        if type(one) is not type(other) or one.dtype != other.dtype:
            return False
        match one:
            case P.Var():
                return self.vars.get(other, other) is one
            case P.Add() | P.Mul():
                return self.attempt((one.a, other.a), (one.b, other.b)) or self.attempt(
                    (one.a, other.b), (one.b, other.a)
                )
            case BufferLoad():
                return self.access(one, other)
            case P.Call():
                same = isinstance(one.op, Op) and one.op is other.op
                return same and self.exprs(one.args, other.args)
            case P.Cast():
                return self.expr(one.value, other.value)
            case P.Select():
                parts = ("condition", "true_value", "false_value")
                return all(self.expr(getattr(one, p), getattr(other, p)) for p in parts)
            case P.Not():
                return self.expr(one.a, other.a)
            case P.BinaryOp():
                return self.expr(one.a, other.a) and self.expr(one.b, other.b)
        return same_expression(one, other)


def _literal(dtype: str, value: int) -> PrimExpr:
    return P.FloatImm(dtype, float(value)) if "float" in dtype else P.IntImm(dtype, value)


def match_leading_loops(patterns: Sequence[PrimFunc], body: Stmt) -> list[MatchResult]:
    """Matches of the first loop nests of a body, one after the other, up to the first that is no pattern's."""
    nests = stmt_list(body)
    found: list[MatchResult] = []
    for nest in nests:
        result = None
        if isinstance(nest, For):
            result = next((m for m in (_Matcher(p).match(nest) for p in patterns) if m is not None), None)
        if result is None:
            break
        found.append(result)
    return found
