"""Variances that are written ``E[x * x] - E[x] * E[x]`` in scheduled programs are computed in float64.

In float32 the difference of two large numbers that are almost equal leaves nothing of a variance that is small beside
the squared mean, and what is left may be negative, so that ``rsqrt`` of it is NaN. Default schedules and the tuner are
given deviations from the mean instead (``centered_variances.py``); programs that were scheduled as they are legalised,
by users or from a database, keep the two sums, and these are kept in float64 whatever the schedule made of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import pre_order_visit
from ....ir.node import Node
from ....ir.prim import Add, And, Broadcast, Cast, Div, FloatImm, IntImm, Mul, Select, Sub, Var
from ....ir.structural import same_expression
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Block, BufferRegion, BufferStore, LetStmt, Stmt
from ..base import StmtExprMutator, is_call, FunctionRewrite
from .wide_accumulators import Accumulators, wide_twin

__all__ = ["ExactVariances", "exact_variances"]

# Differences of float32 numbers that are smaller than this, relative to the numbers, are rounding.
_NOISE = 2.0**-24
_ARITHMETIC = (Add, Sub, Mul, Div)


class ExactVariances(FunctionRewrite, name="relaxish.ExactVariances"):
    """Keep the sums behind variances in float64; see :func:`exact_variances`."""

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return exact_variances(func)


def exact_variances(func: PrimFunc) -> PrimFunc:
    """``func`` with the sums behind a variance in float64; the very same one where there is none.

    Before (``s`` and ``q`` in float32)::

        s[i] = s[i] + x[i, k]
        q[i] = q[i] + x[i, k] * x[i, k]
        ...
        y[i, k] = x[i, k] - s[i] / n * T.rsqrt(q[i] / n - s[i] / n * (s[i] / n) + eps)

    After: ``s`` and ``q`` are float64, each element is converted before it is multiplied, and the quotients and the
    difference are rounded to float32 when all of them are there. A difference that is negative by rounding is zero.
    """
    if not _has_difference(func.body):
        return func
    sums = _Sums(func)
    chosen = sums.chosen()
    if not chosen:
        return func
    twins = {b: wide_twin(b, "float64") for b in sums.order if b in chosen}
    return func.with_body(_VarianceRewriter(twins, sums).visit(func.body))


def _has_difference(body: Stmt) -> bool:
    found = False

    def look(item: Node) -> bool:
        nonlocal found
        found = found or _may_be_variance(item)
        return not found

    pre_order_visit(body, look)
    return found


def _may_be_variance(e: object) -> bool:
    return isinstance(e, Sub) and dt.element_of(e.dtype) == "float32" and not isinstance(e.b, FloatImm)


class _Sums(Accumulators):
    """What is stored to float32 buffers, and the differences in which two of them may be a variance's sums."""

    def __init__(self, func: PrimFunc) -> None:
        self.values: dict[Buffer, list[PrimExpr]] = defaultdict(list)
        self.bound: dict[Buffer, set[Var]] = defaultdict(set)
        self.differences: list[Sub] = []
        super().__init__(func)

    def visit_Sub(self, e: Sub) -> None:
        if _may_be_variance(e):
            self.differences.append(e)
        self.default_visit(e)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit((store.value, store.indices))
        if dt.element_of(store.buffer.dtype) == "float32":
            value = store.value
            while isinstance(value, Var) and value in self.lets:
                self.bound[store.buffer].add(value)
                value = self.lets[value]
            self.values[store.buffer].append(value)

    def chosen(self) -> set[Buffer]:
        """The buffers to keep in float64."""
        found: set[Buffer] = set()
        for difference in self.differences:
            pair = self.pair(difference)
            if pair is None:
                continue
            squares, square_ends = self._behind(pair[0], frozenset())
            plain, plain_ends = self._behind(pair[1], self._sources(square_ends))
            if plain_ends and all(self._is_deviation(e) for e in plain_ends):
                continue
            if all(b in self.allocated and b not in self.opaque for b in (*squares, *plain)):
                found |= squares | plain | {b for e in square_ends for b in self._products(e)}
        return found

    def _is_deviation(self, e: PrimExpr) -> bool:
        """Whether a term is what is left of an element without a sum's mean (``centered_variances.py``)."""
        return isinstance(e, Sub) and any(self._accumulates(b) for b in self._loaded(e.b))

    def pair(self, difference: Sub) -> tuple[Buffer, Buffer] | None:
        """(sum of squares, sum) where a difference is that of the one and the squared other, each of them scaled."""
        first, second = self._factors(difference.a), self._factors(difference.b)
        if len(first) != 1 or len(second) != 2 or not same_expression(second[0], second[1]):
            return None
        square, plain = first[0], second[0]
        if not isinstance(square, BufferLoad) or not isinstance(plain, BufferLoad) or square.buffer is plain.buffer:
            return None
        if not self._accumulates(square.buffer) or not self._accumulates(plain.buffer):
            return None
        return square.buffer, plain.buffer

    def _factors(self, e: PrimExpr) -> list[PrimExpr]:
        """What a product consists of, numbers that are read nowhere left out."""
        match e:
            case Var() if e in self.lets:
                return self._factors(self.lets[e])
            case Broadcast():
                return self._factors(e.value)
            case Mul():
                return [*self._factors(e.a), *self._factors(e.b)]
            case Div() if self.is_free(e.b):
                return self._factors(e.a)
        return [] if self.is_free(e) else [e]

    def is_free(self, e: PrimExpr) -> bool:
        """Whether an expression reads no memory."""
        return not self._loaded(e)

    def _loaded(self, e: Node) -> set[Buffer]:
        found: set[Buffer] = set()

        def look(item: Node) -> bool:
            match item:
                case BufferLoad():
                    found.add(item.buffer)
                case Var() if item in self.lets:
                    found.update(self._loaded(self.lets[item]))
            return True

        pre_order_visit(e, look)
        return found

    def _terms(self, buffer: Buffer) -> list[PrimExpr]:
        """What is added to the elements of a buffer, or copied to them."""
        terms = []
        for value in self.values.get(buffer, ()):
            if isinstance(value, Add):
                own = [isinstance(e, BufferLoad) and e.buffer is buffer for e in (value.a, value.b)]
                if any(own):
                    terms.append(value.b if own[0] else value.a)
                    continue
            if not isinstance(value, FloatImm):
                terms.append(value)
        return terms

    def _accumulates(self, buffer: Buffer, seen: frozenset[Buffer] = frozenset()) -> bool:
        """Whether a buffer is a sum, or the copy of one."""
        values = self.values.get(buffer, ())
        if any(isinstance(v, Add) and buffer in self._loaded(v) for v in values):
            return True
        copied = [v.buffer for v in of_kind(values, BufferLoad)]
        return any(b not in seen and self._accumulates(b, seen | {buffer}) for b in copied)

    def _behind(self, buffer: Buffer, kept: frozenset[Buffer]) -> tuple[set[Buffer], list[PrimExpr]]:
        """A sum with the partial sums and copies it is made of, and the terms that are none of these."""
        found, ends, todo = {buffer}, [], [buffer]
        while todo:
            for term in self._terms(todo.pop()):
                partial = term.buffer if isinstance(term, BufferLoad) and self._accumulates(term.buffer) else None
                if partial is None or partial in kept:
                    ends.append(term)
                elif partial not in found:
                    found.add(partial)
                    todo.append(partial)
        return found, ends

    def _sources(self, terms: list[PrimExpr]) -> frozenset[Buffer]:
        """The buffers that squares are computed from, by way of temporary ones, too."""
        found: set[Buffer] = set()
        todo: list[Any] = list(terms)
        while todo:
            for buffer in self._loaded(todo.pop()) - found:
                found.add(buffer)
                if not self._accumulates(buffer):
                    todo += self.values.get(buffer, ())
        return frozenset(found)

    def _products(self, term: PrimExpr) -> list[Buffer]:
        """The temporary buffer, if any, that holds the squares."""
        if not isinstance(term, BufferLoad) or term.buffer in self.opaque or term.buffer not in self.allocated:
            return []
        return [term.buffer] if all(isinstance(v, Mul) for v in self.values.get(term.buffer, ())) else []


class _VarianceRewriter(StmtExprMutator):
    """Puts float64 buffers in the place of the sums, and computes in float64 what consists of them and of numbers."""

    def __init__(self, twins: dict[Buffer, Buffer], sums: _Sums) -> None:
        self.twins = twins
        self.sums = sums
        self.bound = {v for b in twins for v in sums.bound[b]}
        self.variables: dict[Var, Var] = {}

    def _computes(self, e: PrimExpr) -> bool:
        """Whether an expression of float32 is a number computed from the sums alone."""
        if dt.element_of(e.dtype) != "float32":
            return False
        match e:
            case BufferLoad():
                return e.buffer in self.twins
            case Var():
                return e in self.variables
            case Broadcast():
                return self._computes(e.value)
        if not isinstance(e, _ARITHMETIC):
            return False
        parts = [self._computes(p) for p in (e.a, e.b)]
        return any(parts) and all(is_sum or self.sums.is_free(p) for is_sum, p in zip(parts, (e.a, e.b)))

    def _wide(self, e: PrimExpr) -> PrimExpr:
        """The float64 value of an expression: arithmetic on the sums in float64, everything else converted."""
        match e:
            case FloatImm():
                return FloatImm("float64", _exact(e.value))
            case Broadcast():
                return Broadcast(self._wide(e.value), e.lanes)
            case Select():
                return Select(self.visit(e.condition), self._wide(e.true_value), self._wide(e.false_value))
        if is_call(e, "if_then_else"):
            chosen = [self.visit(e.args[0]), *(self._wide(a) for a in e.args[1:])]
            return type(e)(dt.with_lanes("float64", dt.lanes(e.dtype)), e.op, chosen)
        match e:
            case BufferLoad() if e.buffer in self.twins:
                return BufferLoad(self.twins[e.buffer], self.visit(e.indices), e.predicate and self.visit(e.predicate))
            case Var() if e in self.variables:
                return self.variables[e]
            case Mul() if not self._computes(e):
                return Mul(self._converted(e.a), self._converted(e.b))
        if self._computes(e) or isinstance(e, Add) and (self._computes(e.a) or self._computes(e.b)):
            return self._arithmetic(e)
        return self._converted(e)

    def _arithmetic(self, e: Any) -> PrimExpr:
        a, b = self._wide(e.a), self._wide(e.b)
        pair = self.sums.pair(e) if isinstance(e, Sub) else None
        made: PrimExpr = type(e)(a, b)
        if pair is None or not all(buffer in self.twins for buffer in pair):
            return made
        zero, noise = (_like(made, value) for value in (0.0, -_NOISE))
        return Select(And(made < zero, made >= a * noise), zero, made)

    def _converted(self, e: PrimExpr) -> PrimExpr:
        wide = dt.with_lanes("float64", dt.lanes(e.dtype))
        if isinstance(e, Cast) and dt.is_int(e.value.dtype):
            return Cast(wide, self.visit(e.value))
        if isinstance(e, FloatImm) or self._computes(e):
            return self._wide(e)
        return Cast(wide, self.visit(e))

    def _value(self, e: PrimExpr) -> PrimExpr:
        return Cast(e.dtype, self._wide(e)) if self._computes(e) else self.default_visit(e)

    visit_PrimExpr = _value

    def visit_Var(self, var: Var) -> PrimExpr:
        made = self.variables.get(var)
        return var if made is None else Cast(var.dtype, made)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        if stmt.var not in self.bound and not self._computes(stmt.value):
            return self.default_visit(stmt)
        value = self._wide(stmt.value)
        var = self.variables[stmt.var] = Var(stmt.var.name, value.dtype)
        return LetStmt(var, value, self.visit(stmt.body))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        twin = self.twins.get(store.buffer)
        if twin is None:
            return self.default_visit(store)
        predicate = store.predicate and self.visit(store.predicate)
        return BufferStore(twin, self._wide(store.value), self.visit(store.indices), predicate)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        made: BufferRegion = self.default_visit(region)
        twin = self.twins.get(region.buffer)
        return made if twin is None else made.with_fields(buffer=twin)

    def visit_Block(self, block: Block) -> Block:
        made: Block = self.default_visit(block)
        if any(b in self.twins for b in block.alloc_buffers):
            made = made.with_fields(alloc_buffers=[self.twins.get(b, b) for b in block.alloc_buffers])
        return made


def _like(e: PrimExpr, value: float) -> PrimExpr:
    number: PrimExpr = FloatImm("float64", value)
    lanes = dt.lanes(e.dtype)
    return number if lanes == 1 else Broadcast(number, IntImm("int32", lanes))


def _exact(value: float) -> float:
    """The number behind a float32 constant: one over a count, in float64, where that is what was rounded."""
    if 0.0 < abs(value) < 1.0:
        count = round(1.0 / value)
        if abs(count) < 2**24 and abs(value * count - 1.0) <= _NOISE:
            return 1.0 / count
    return value
