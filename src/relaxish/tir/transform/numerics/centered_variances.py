"""Variances that are written ``E[x * x] - E[x] * E[x]`` are computed from deviations.

In float32 the difference of two large numbers that are almost equal leaves nothing of a variance that is small beside
the squared mean: normalised rows of mean 1,000 are wrong by half a standard deviation, and from 10,000 on they are NaN.
Layer, group and instance normalisation are legalised to that form, and programs keep it until they are scheduled.

Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (The American Statistician, 1983).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import pre_order_visit
from ....ir.module import IRModule
from ....ir.node import Node
from ....ir.prim import Add, Cast, Div, FloatImm, IntImm, IterVar, Max, Mul, Sub, Var, const, is_one
from ....ir.structural import same_expression
from ....ir.types import PointerType, PrimType
from ...analysis.block_access import get_block_access_region
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import substitute, without_lets
from ...stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    MatchBufferRegion,
    Stmt,
    stmt_list,
    unnest,
)
from ..base import StmtExprMutator, StmtExprVisitor, flatten_seq, FunctionRewrite
from .wide_accumulators import widen_module

__all__ = ["CenterVariances", "center_variances", "exact_sums"]

# Rows of more elements are summed in float64: the error of a float32 sum of numbers of one sign, times the largest
# deviation that one element of such a row can have (the root of the row's length), would be felt.
_LONG = 16384
_MOST_EXACT = 2**24


class _Form(Enum):
    """How deviations are made."""

    FROM_FIRST = "from the row's first element, and from the mean of these"
    FROM_WIDE_MEAN = "from a mean summed in float64, in two parts"
    TWICE = "from a mean summed in the row's type, and what that leaves is corrected for"


class CenterVariances(FunctionRewrite, name="relaxish.CenterVariances"):
    """Compute variances of unscheduled functions from deviations.

    Before (rows ``x[i]`` of 768 elements)::

        for i, k in T.grid(n, 768):  s[i], q[i] = s[i] + x[i, k], q[i] + x[i, k] * x[i, k]
        for i, k in T.grid(n, 768):  y[i, k] = (x[i, k] - s[i] * c) * T.rsqrt(q[i] * c - s[i] * c * (s[i] * c) + eps)

    After::

        for i, k in T.grid(n, 768):  s[i] = s[i] + (x[i, k] - x[i, 0])
        for i, k in T.grid(n, 768):  q[i] = q[i] + (x[i, k] - x[i, 0] - s[i] * c) * (x[i, k] - x[i, 0] - s[i] * c)
        for i, k in T.grid(n, 768):  y[i, k] = (x[i, k] - x[i, 0] - s[i] * c) * T.rsqrt(q[i] * c + eps)

    No digit is lost whatever the mean, and rows of equal elements have no variance at all. Rows that are longer than
    16,384 elements, or of unknown length, are summed in float64 and need no first element. With ``for_device``, rows
    are read element by element only, as threads hold them, and nothing is in float64: the mean is summed first, both
    sums are those of the deviations from it, and what is left of the mean is subtracted as before.

    Functions that carry a schedule stay: see :func:`exact_variances`.
    """

    for_device: bool = False

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if (func.attrs or {}).get("tir.is_scheduled") else center_variances(func, self.for_device)


def exact_sums(mod: IRModule, for_device: bool = False) -> IRModule:
    """A module whose unscheduled functions keep wide sums, and variances without cancellation."""
    made: IRModule = CenterVariances(for_device)(widen_module(mod))
    return made


def center_variances(func: PrimFunc, for_device: bool = False) -> PrimFunc:
    """The function with centred variances; the very same one where there are none."""
    found = _Finder(func)
    chosen = [m for m in found.moments if m.sums in found.allocated and m.squares in found.allocated and m.used]
    if not chosen:
        return func
    noalias = bool((func.attrs or {}).get("tir.noalias"))
    for moments in chosen:
        still = noalias and not moments.source_written
        if for_device:
            moments.form = _Form.TWICE
        elif still and isinstance(moments.count, IntImm) and 0 < moments.count.value <= _LONG:
            moments.form = _Form.FROM_FIRST
        moments.make_buffers()
    return func.with_body(_MomentRewriter(chosen, func).visit(func.body))


# ---- what to rewrite


@dataclass(eq=False)
class _Moments:
    """The block that sums elements and their squares, and what is done with the two sums."""

    nest: For
    realize: BlockRealize
    sums: Buffer
    squares: Buffer
    at: Sequence[PrimExpr]
    element: PrimExpr
    count: PrimExpr
    form: _Form = _Form.FROM_WIDE_MEAN
    variances: list[Sub] = field(default_factory=list)
    spoiled: bool = False
    source_written: bool = False
    #: The sum of what the mean is made from, in place of ``sums`` or beside it.
    mean_sums: Any = None

    @property
    def used(self) -> bool:
        return bool(self.variances) and not self.spoiled

    @property
    def block(self) -> Block:
        block: Block = self.realize.block
        return block

    def make_buffers(self) -> None:
        old, wide = self.sums, self.form is _Form.FROM_WIDE_MEAN
        if self.form is _Form.FROM_FIRST:
            self.mean_sums = old
            return
        element = "float64" if wide else old.dtype
        name = old.name if wide else f"{old.name}_first"
        scope = getattr(old.data.type_annotation, "storage_scope", "")
        data = Var(name, PointerType(PrimType(element), scope))
        self.mean_sums = old.with_fields(data=data, dtype=element, name=name)

    def first(self, at: Sequence[PrimExpr]) -> PrimExpr:
        """The first element of the row whose sums are at these indices."""
        values: dict[Var, Any] = {
            iv.var: iv.dom.min for iv in self.block.iter_vars if iv.iter_type == IterVar.CommReduce
        }
        values |= {old: new for old, new in zip(self.at, at, strict=True) if isinstance(old, Var)}
        made: PrimExpr = substitute(self.element, values)
        return made

    def mean(self, at: Sequence[PrimExpr]) -> PrimExpr:
        """The mean of what ``mean_sums`` has at these indices."""
        total = BufferLoad(self.mean_sums, at)
        wide = total.dtype
        if isinstance(self.count, IntImm):
            return Mul(total, FloatImm(wide, 1.0 / self.count.value))
        return Div(total, Cast(wide, self.count))

    def deviation(self, value: PrimExpr, at: Sequence[PrimExpr]) -> PrimExpr:
        """Difference of a value from the estimate of its row's mean."""
        if self.form is _Form.FROM_FIRST:
            return Sub(Sub(value, self.first(at)), self.mean(at))
        mean, dtype = self.mean(at), value.dtype
        if mean.dtype == dtype:
            return Sub(value, mean)
        # What rounding takes from the mean is not small where deviations are not.
        rounded = Cast(dtype, mean)
        return Sub(Sub(value, rounded), Cast(dtype, Sub(mean, Cast(mean.dtype, rounded))))


class _Finder(StmtExprVisitor):
    """All pairs of sums of a function, and the differences they are used in."""

    def __init__(self, func: PrimFunc) -> None:
        self.moments: list[_Moments] = []
        self.of: dict[Buffer, _Moments] = {}
        self.allocated: set[Buffer] = set()
        self.analyzer = Analyzer()
        self.visit(func.body)

    def visit_For(self, loop: For) -> None:
        made = _moments_of(loop)
        if made is None or made.sums in self.of or made.squares in self.of:
            self.default_visit(loop)
            return
        self.visit(made.element)
        self._spoil(made.element)
        self.moments.append(made)
        self.of[made.sums] = self.of[made.squares] = made

    def _spoil(self, e: Node) -> None:
        def look(item: Node) -> bool:
            if isinstance(item, BufferLoad) and item.buffer in self.of:
                self.of[item.buffer].spoiled = True
            return True

        pre_order_visit(e, look)

    def visit_Block(self, block: Block) -> None:
        self.allocated.update(block.alloc_buffers)
        self.default_visit(block)

    def visit_BufferRegion(self, region: BufferRegion) -> None:
        return

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> None:
        for moments in self.moments:
            moments.spoiled |= match.source.buffer in (moments.sums, moments.squares)
            moments.source_written |= match.source.buffer in _loaded(moments.element)

    def visit_Var(self, var: Var) -> None:
        # A pointer by itself may go anywhere.
        for moments in self.moments:
            moments.spoiled |= var in (moments.sums.data, moments.squares.data)
            moments.source_written |= any(var is b.data for b in _loaded(moments.element))

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._spoil(load)
        self.visit(load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit((store.value, store.indices))
        if store.buffer in self.of:
            self.of[store.buffer].spoiled = True
        for moments in self.moments:
            moments.source_written |= store.buffer in _loaded(moments.element)

    def visit_Sub(self, e: Sub) -> None:
        variance = _variance(e, self.of)
        if variance is not None and self._is_mean(variance):
            variance.moments.variances.append(e)
            self.visit(variance.at)
            return
        mean = _scaled(e.b, self.of)
        if mean is not None and self._is_mean(mean):
            self.visit((e.a, mean.at))
            return
        self.default_visit(e)

    def _is_mean(self, scaled: _Scaled) -> bool:
        """Whether a sum is divided by the number of elements it has."""
        total: PrimExpr = const(1, "int64")
        for factor in scaled.divisors:
            total = Mul(total, _as_int64(factor))
        return bool(self.analyzer.can_prove_equal(total, _as_int64(scaled.moments.count)))


def _as_int64(e: PrimExpr) -> PrimExpr:
    if isinstance(e, IntImm):
        return const(e.value, "int64")
    return e if e.dtype == "int64" else Cast("int64", e)


def _loaded(e: Node) -> set[Buffer]:
    found: set[Buffer] = set()

    def look(item: Node) -> bool:
        if isinstance(item, BufferLoad):
            found.add(item.buffer)
        return True

    pre_order_visit(e, look)
    return found


def _moments_of(nest: For) -> _Moments | None:
    """The pair of sums that a nest of loops around one block makes, if it does nothing else."""
    _, inner = unnest(nest)
    if not isinstance(inner, BlockRealize) or inner.block.init is None or inner.block.match_buffers:
        return None
    block = inner.block
    stores = _stores_of(block.body)
    if stores is None or len(stores) != 2 or stores[0].buffer is stores[1].buffer:
        return None
    terms = [_term_of(store) for store in stores]
    for (plain, e), (squared, square) in (zip(stores, terms), zip(reversed(stores), reversed(terms))):
        if e is None or square is None or e.dtype not in ("float32", "float64"):
            continue
        is_square = isinstance(square, Mul) and same_expression(square.a, e) and same_expression(square.b, e)
        if is_square and same_expression(plain.indices, squared.indices):
            return _checked(nest, inner, plain, squared.buffer, e)
    return None


def _checked(nest: For, realize: BlockRealize, sums: BufferStore, squares: Buffer, e: PrimExpr) -> _Moments | None:
    """None unless every row has sums of its own, and reduces axes that count its elements."""
    axes = realize.block.iter_vars
    spatial = {iv.var for iv in axes if iv.iter_type == IterVar.DataPar}
    named = [i for i in sums.indices if not isinstance(i, IntImm)]
    if len(set(named)) != len(named) or set(named) != spatial:
        return None
    if any(iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce) or iv.dom is None for iv in axes):
        return None
    if not is_one(realize.predicate):
        return None
    reduced = [iv.dom.extent for iv in axes if iv.iter_type == IterVar.CommReduce]
    if not reduced or _loaded(e) & {sums.buffer, squares}:
        return None
    known = 1
    count: PrimExpr | None = None
    for extent in reduced:
        if isinstance(extent, IntImm):
            known *= extent.value
        else:
            count = extent if count is None else Mul(count, extent)
    if count is None:
        count = const(known, "int64")
    elif known != 1:
        count = Mul(const(known, count.dtype), count)
    return _Moments(nest, realize, sums.buffer, squares, sums.indices, e, count)


def _stores_of(body: Stmt) -> list[BufferStore] | None:
    """The stores of a body that does nothing else, with what was bound to names in its place."""
    values, body = without_lets(body)
    stores: list[BufferStore] = []
    for part in stmt_list(body):
        stored = substitute(part, values)
        if not isinstance(stored, BufferStore) or stored.predicate is not None:
            return None
        stores.append(stored)
    return stores


def _term_of(store: BufferStore) -> PrimExpr | None:
    """What is added to an element again and again."""
    value = store.value
    if not isinstance(value, Add):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, BufferLoad) and own.buffer is store.buffer and same_expression(own.indices, store.indices):
            return term
    return None


@dataclass
class _Scaled:
    """A sum divided by numbers."""

    moments: _Moments
    buffer: Buffer
    at: Sequence[PrimExpr]
    divisors: list[PrimExpr]


def _scaled(e: PrimExpr, of: Mapping[Buffer, _Moments], square: bool = False) -> _Scaled | None:
    """A sum of elements (or of their squares) divided by integers."""
    match e:
        case BufferLoad():
            moments = of.get(e.buffer)
            wanted = None if moments is None else moments.squares if square else moments.sums
            return None if moments is None or e.buffer is not wanted else _Scaled(moments, e.buffer, e.indices, [])
        case Div():
            divisors, inner = _factors(e.b), e.a
        case Mul() if isinstance(e.b, FloatImm):
            whole = round(1.0 / e.b.value) if e.b.value else 0
            exact = 0 < whole < _MOST_EXACT and abs(e.b.value * whole - 1.0) <= 2.0**-24
            divisors, inner = [const(whole, "int64")] if exact else None, e.a
        case _:
            return None
    made = None if divisors is None else _scaled(inner, of, square)
    if made is not None:
        made.divisors += divisors or ()
    return made


def _factors(e: PrimExpr) -> list[PrimExpr] | None:
    """The integers of which a float is the product."""
    match e:
        case FloatImm():
            return [const(int(e.value), "int64")] if e.value == int(e.value) else None
        case Cast() if dt.is_int(e.value.dtype):
            return [e.value]
        case Mul():
            a, b = _factors(e.a), _factors(e.b)
            return None if a is None or b is None else a + b
    return None


def _variance(e: Sub, of: Mapping[Buffer, _Moments]) -> _Scaled | None:
    """The mean of the squares in a difference of that and the squared mean."""
    if not isinstance(e.b, Mul) or not same_expression(e.b.a, e.b.b):
        return None
    squares, sums = _scaled(e.a, of, square=True), _scaled(e.b.a, of)
    if squares is None or sums is None or squares.moments is not sums.moments:
        return None
    same = same_expression(squares.at, sums.at) and same_expression(squares.divisors, sums.divisors)
    return squares if same else None


# ---- rewriting


class _MomentRewriter(StmtExprMutator):
    def __init__(self, chosen: list[_Moments], func: PrimFunc) -> None:
        self.of = {b: m for m in chosen for b in (m.sums, m.squares)}
        self.nests = {id(m.nest): m for m in chosen}
        self.buffers = {b.data: b for b in func.buffer_map.values()}
        self.changed = False

    def visit_For(self, loop: For) -> Stmt:
        moments = self.nests.get(id(loop))
        return self.default_visit(loop) if moments is None else flatten_seq(self._nests(moments))

    def visit_Block(self, block: Block) -> Block:
        sums = [b for b in block.alloc_buffers if b in self.of]
        if sums:
            block = block.with_fields(alloc_buffers=self._allocated(block.alloc_buffers))
        self.buffers |= {b.data: b for b in block.alloc_buffers}
        outer, self.changed = self.changed, False
        made: Block = self.default_visit(block)
        if self.changed and block.iter_vars:
            made = self._with_regions(made)
        self.changed |= outer
        return made

    def _allocated(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        made: list[Buffer] = []
        for buffer in buffers:
            moments = self.of.get(buffer)
            if moments is None or buffer is moments.squares:
                made.append(buffer)
                continue
            made.append(moments.mean_sums)
            if moments.form is _Form.TWICE:
                made.append(buffer)
        return made

    def visit_Sub(self, e: Sub) -> PrimExpr:
        variance = _variance(e, self.of)
        if variance is not None and any(e is v for v in variance.moments.variances):
            self.changed = True
            if variance.moments.form is not _Form.TWICE:
                return e.a
            # Rounding may leave less than nothing of rows whose elements are all but equal.
            return Max(e, FloatImm(e.dtype, 0.0))
        mean = _scaled(e.b, self.of)
        if mean is None:
            return self.default_visit(e)
        self.changed = True
        left = mean.moments.deviation(self.visit(e.a), mean.at)
        return Sub(left, e.b) if mean.moments.form is _Form.TWICE else left

    def _nests(self, m: _Moments) -> list[Stmt]:
        """The sum that the mean is made from, then what is summed of deviations from it."""
        name, e = m.block.name_hint, m.element
        if m.form is _Form.FROM_FIRST:
            term: PrimExpr = Sub(e, m.first(m.at))
        else:
            term = e if m.mean_sums.dtype == e.dtype else Cast(m.mean_sums.dtype, e)
        deviation = m.deviation(e, m.at)
        second: list[tuple[Buffer, PrimExpr]] = [(m.squares, Mul(deviation, deviation))]
        if m.form is _Form.TWICE:
            second.insert(0, (m.sums, deviation))
        return [self._nest(m, f"{name}_mean", [(m.mean_sums, term)]), self._nest(m, name, second)]

    def _nest(self, m: _Moments, name: str, terms: list[tuple[Buffer, PrimExpr]]) -> Stmt:
        """A nest like the one that is replaced, with variables of its own, that sums the terms."""
        block = m.block
        axes = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars}
        values = [Add(BufferLoad(buffer, m.at), term) for buffer, term in terms]
        names = [Var(f"v_{buffer.name}", buffer.dtype) for buffer, _ in terms]
        bound = values if len(terms) == 1 else names
        body = flatten_seq(BufferStore(b, v, m.at) for (b, _), v in zip(terms, bound))
        for var, value in reversed(list(zip(names, values)) if len(terms) > 1 else []):
            body = LetStmt(var, value, body)
        init = flatten_seq(BufferStore(b, FloatImm(b.dtype, 0.0), m.at) for b, _ in terms)
        made = block.with_fields(
            iter_vars=[iv.with_fields(var=axes[iv.var]) for iv in block.iter_vars],
            body=substitute(body, axes),
            init=substitute(init, axes),
            name_hint=name,
            reads=[],
            writes=[],
        )
        self.buffers |= {b.data: b for b, _ in terms}
        return _in_loops(m.nest, m.realize.with_fields(block=self._with_regions(made)))

    def _with_regions(self, block: Block) -> Block:
        """The block with what it reads and writes; of rows of which it reads the first element, too, all of that."""
        reads, writes, _ = get_block_access_region(block, self.buffers)
        whole = [
            BufferRegion(
                read.buffer,
                [
                    r if isinstance(r.extent, IntImm) else Range.from_min_extent(const(0, size.dtype), size)
                    for r, size in zip(read.region, read.buffer.shape, strict=True)
                ],
            )
            for read in reads
        ]
        made: Block = block.with_fields(reads=whole, writes=writes)
        return made


def _in_loops(nest: For, realize: BlockRealize) -> Stmt:
    """A block inside loops like those of a nest, which are others."""
    loops, _ = unnest(nest)
    fresh = {loop.loop_var: Var(loop.loop_var.name, loop.loop_var.dtype) for loop in loops}
    made: Any = realize.with_fields(iter_values=substitute(realize.iter_values, fresh))
    for loop in reversed(loops):
        made = loop.with_fields(loop_var=fresh[loop.loop_var], body=made)
    return made
