"""GuardIndices: an index that comes from data must lie inside its buffer, or the program says so and stops.

Before: ``Y[i, j] = W[ids[i], j]``, with ``ids`` an argument.
After: ``Y[i, j] = W[check_index(ids[i], 0, 0, 1000, ...), j]``.

``check_index(value, offset, span, extent, site)`` is ``value``, where ``value + offset`` and ``value + offset + span``
are indices of a dimension of ``extent`` elements; elsewhere code generation leaves the function with an error that
names the text ``site`` (block, buffer, axis, rank). What loops add to an index is left outside, with their whole range
as ``offset`` and ``span``, so that the check leaves these loops and they can still be made of vectors::

    for j in range(16): Y[j] = X[begin[0] + j]
    for j in range(16): Y[j] = X[check_index(begin[0], 0, 15, 64, ...) + j]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import free_vars
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import all_nodes, pre_order_visit
from ....ir.node import Node
from ....ir.op import Op, op_name_of
from ....ir.pass_config import register_config
from ....ir.prim import (
    uncast,
    is_one,
    LT,
    Add,
    Call,
    CallEffectKind,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Select,
    StringImm,
    Sub,
    Var,
    const_int,
)
from ....support.config import INDEX_BOUNDS, INDEX_POLICIES
from ....support.errors import RelaxishError
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While
from ..base import SeqMutator, config, is_call, FunctionRewrite
from ..simplify.simplify import ExprAnalyzerMutator

__all__ = ["ClampIndices", "GuardIndices", "guard", "index_policy"]

CHECK = Op.register("tir.check_index")
CHECK.set_attr("TCallEffectKind", CallEffectKind.ReadState)
register_config("relaxish.index_bounds", "runtime.String")

# Calls whose values depend on nothing but their arguments.
_OF_ARGUMENTS = frozenset(
    "likely if_then_else shift_left shift_right bitwise_and bitwise_or bitwise_xor bitwise_not min_value max_value"
    " large_uint_imm vscale".split()
)


# Blocks that put coordinates together to flat positions: those of whole tuples, and those along one axis.
_FLAT_BLOCKS = ("scatter_nd_generic", "scatter_elements_generic")


def index_policy() -> str:
    """Policy for indices that come from data: "check", "clamp" or "trust".

    ``PassContext(config={"relaxish.index_bounds": ...})`` says it, else the knob. Raises RelaxishError for other words.
    """
    policy = str(config("relaxish.index_bounds", INDEX_BOUNDS.value))
    if policy not in INDEX_POLICIES:
        raise RelaxishError(f"relaxish.index_bounds is {policy!r}; use one of {', '.join(INDEX_POLICIES)}")
    return policy


@dataclass(frozen=True)
class _Bound:
    """A variable bound around an access: how many others and how many conditions are around it."""

    order: int
    conditions: int
    loop: For | None = None


def _terms(e: PrimExpr, sign: int, out: list[tuple[int, PrimExpr]]) -> None:
    """``e`` as summands with signs."""
    if type(e) is Add or type(e) is Sub:
        _terms(e.a, sign, out)
        _terms(e.b, sign if type(e) is Add else -sign, out)
    else:
        out.append((sign, e))


def _total(terms: list[tuple[int, PrimExpr]], dtype: str) -> PrimExpr:
    total: Any = B.const(dtype, 0)
    for sign, e in terms:
        total = B.add(total, e) if sign > 0 else B.sub(total, e)
    return total


_R = TypeVar("_R")


class _Guard(ExprAnalyzerMutator):
    """Rewrites the accesses of one function; ``all_accesses`` takes those whose indices are no data as well."""

    def __init__(self, params: set[Any], policy: str, all_accesses: bool, silent: bool = False) -> None:
        super().__init__(Analyzer())
        self.data = params
        self.policy = policy
        self.silent = silent
        self.all = all_accesses  # where the policy is "trust", those of data are meant as well
        self.bound: dict[Any, _Bound] = {}
        self.conditions = 0
        self.block = ""
        self.stored: dict[int, set[Any]] = {}

    # -- what is around an access --------------------------------------------------------------------------

    def visit_For(self, loop: For) -> Stmt:
        if self._from_data(loop.min) or self._from_data(loop.extent):
            self.data.add(loop.loop_var)
        return self._within(loop.loop_var, loop, lambda: super(_Guard, self).visit_For(loop))

    def _within(self, var: Var, loop: For | None, visit: Callable[[], _R]) -> _R:
        self.bound[var] = _Bound(len(self.bound), self.conditions, loop)
        made = visit()
        del self.bound[var]
        return made

    def _conditional(self, visit: Callable[[], _R]) -> _R:
        self.conditions += 1
        made = visit()
        self.conditions -= 1
        return made

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        return self._conditional(lambda: super(_Guard, self).visit_IfThenElse(node))

    def visit_While(self, node: While) -> Stmt:
        return self._conditional(lambda: self.default_visit(node))

    def _branches(self, cond: PrimExpr, then: PrimExpr, other: PrimExpr) -> tuple[Any, Any]:
        made: tuple[Any, Any] = self._conditional(lambda: super(_Guard, self)._branches(cond, then, other))
        return made

    def visit_Select(self, e: Select) -> PrimExpr:
        made = super().visit_Select(e)
        if isinstance(made, Select) and made is not e and dt.lanes(made.condition.dtype) == 1:
            # The value that is not taken may well have no legal index.
            return Call(made.dtype, "tir.if_then_else", (made.condition, made.true_value, made.false_value))
        return made

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        if self._from_data(node.value):
            self.data.add(node.var)
        return self._within(node.var, None, lambda: self.default_visit(node))

    def visit_Let(self, e: Let) -> PrimExpr:
        if self._from_data(e.value):
            self.data.add(e.var)
        return self._within(e.var, None, lambda: super(_Guard, self).visit_Let(e))

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        predicate = realize.predicate
        if is_one(predicate):
            return self.default_visit(realize)
        predicate = self.visit(predicate)
        fact = predicate.args[0] if is_call(predicate, "likely") else predicate
        with self._given(fact):
            block = self._conditional(lambda: self.visit(realize.block))
        if predicate is realize.predicate and block is realize.block:
            return realize
        return realize.with_fields(predicate=predicate, block=block)

    def visit_Block(self, block: Block) -> Block:
        before, self.block = self.block, block.name_hint
        body = self.visit(block.body)
        self.block = before
        return block if body is block.body else block.with_fields(body=body)

    # -- accesses ------------------------------------------------------------------------------------------

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        indices = self._indices(load.buffer, load.indices)
        return load if indices is None else load.with_fields(indices=indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = self._indices(store.buffer, store.indices)
        value = self.visit(store.value)
        if indices is None and value is store.value:
            return store
        return store.with_fields(value=value, indices=store.indices if indices is None else indices)

    def _indices(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[Any, ...] | None:
        made = []
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
            new = self.visit(index)
            from_data = self._from_data(index)
            if from_data and self.policy != "trust" and (self.block.startswith(_FLAT_BLOCKS) or _divides(new)):
                index, new = self._coordinates(buffer, new)
            if (self.all or from_data) and not self._proven(index, extent):
                fields = (self.block, buffer.name, str(axis), str(len(buffer.shape)))
                new = self._guarded(index, new, extent, StringImm("\n".join(fields)))
            made.append(new)
        return None if all(a is b for a, b in zip(made, indices)) else tuple(made)

    def _coordinates(self, buffer: Buffer, index: PrimExpr) -> tuple[Any, Any]:
        """A coordinate of a flat position, for proofs and guarded, whose parts from data are inside their own axes.

        A position past the end of its axis would be a position of the next row.
        """
        marks = _Coordinates(self, buffer, self.block.startswith(_FLAT_BLOCKS[0]))
        return marks.known(index), marks.visit(index)

    def coordinate(self, buffer: Buffer, value: PrimExpr, extent: PrimExpr, axis: str) -> PrimExpr:
        """``value``, a coordinate along an axis of ``extent`` elements, guarded."""
        zero = IntImm("int64", 0)
        if self.policy == "clamp":
            value = _clamped(value, extent, zero, zero)
            if self.silent:
                return value
        fields = (self.block, buffer.name, axis, str(len(buffer.shape)))
        return Call(value.dtype, CHECK, (value, zero, zero, extent, StringImm("\n".join(fields))))

    def known_coordinate(self, value: PrimExpr, extent: PrimExpr) -> PrimExpr:
        """A variable that stands for a coordinate known to be guarded."""
        var = Var("at", value.dtype)
        self.analyzer.bind(var, Range.from_min_extent(B.const(value.dtype, 0), B.cast(value.dtype, extent)), True)
        return var

    def _from_data(self, e: PrimExpr) -> bool:
        """Whether ``e`` depends on what memory or scalar arguments hold."""
        return any(
            isinstance(node, BufferLoad)
            or (isinstance(node, Var) and node in self.data)
            or (isinstance(node, Call) and op_name_of(node).removeprefix("tir.") not in _OF_ARGUMENTS)
            for node in all_nodes(e)
        )

    def _proven(self, index: PrimExpr, extent: PrimExpr) -> bool:
        known = self.analyzer
        if not known.can_prove_greater_equal(index, 0):
            return False
        if isinstance(extent, IntImm):
            return known.can_prove_less(index, extent.value)
        if dt.lanes(index.dtype) != 1:
            return False
        a, b = B.widened(index, extent)
        return known.can_prove(a < b)

    # -- checks --------------------------------------------------------------------------------------------

    def _guarded(self, index: PrimExpr, new: PrimExpr, extent: PrimExpr, site: StringImm) -> PrimExpr:
        """``new``, the rewritten form of ``index``, as the policy says."""
        zero = IntImm("int64", 0)
        parts = self._split(index, new) if dt.lanes(index.dtype) == 1 else None
        if parts is None:
            parts = new, B.const(dt.element_of(new.dtype), 0), zero, zero
        value, rest, offset, span = parts
        if self.policy == "clamp" and self._from_data(index):
            value = _clamped(value, extent, offset, span)
            fits = isinstance(extent, IntImm) and isinstance(span, IntImm) and span.value < extent.value
            if self.silent or fits:
                return _plus(value, rest)
        return _plus(Call(value.dtype, CHECK, (value, offset, span, extent, site)), rest)

    def _split(self, index: PrimExpr, new: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr] | None:
        """(what the loops around do not change, what they add, the smallest they add, the largest less that).

        None where the rest does not take every value between, or not every iteration makes the access.
        """
        before: list[tuple[int, PrimExpr]] = []
        after: list[tuple[int, PrimExpr]] = []
        _terms(index, 1, before)
        _terms(new, 1, after)
        if len(before) != len(after):
            return None
        fixed: list[tuple[int, PrimExpr]] = []
        moving: list[tuple[int, PrimExpr]] = []
        low: Any = IntImm("int64", 0)
        span: Any = IntImm("int64", 0)
        loops: set[Any] = set()
        for (sign, term), kept in zip(before, after):
            reach = self._reach(term)
            if reach is None:
                fixed.append((kept[0], kept[1]))
                continue
            loop, least, width = reach
            if loop in loops:
                return None
            loops.add(loop)
            moving.append((sign, term))
            width = B.cast("int64", width)
            least = B.cast("int64", least)
            low = B.add(low, least) if sign > 0 else B.sub(low, B.add(least, width))
            span = B.add(span, width)
        own = [self.bound[v].loop for v in loops]
        # Of loops whose bounds move with each other, not every pair of largest values comes together.
        if not loops or not self._steady([*(e for _, e in fixed), *(e for f in own for e in (f.min, f.extent))], loops):  # type: ignore[union-attr]
            return None
        dtype = index.dtype
        return _total(fixed, dtype), _total(moving, dtype), low, span

    def _reach(self, term: PrimExpr) -> tuple[Var, PrimExpr, PrimExpr] | None:
        """(loop variable, smallest value, largest less smallest) of a term that steps through its whole range."""
        factor = 1
        match term:
            case Mul(a=inner, b=IntImm(value=known)) if known > 0:
                term, factor = inner, known
        divide = modulo = None
        match term:
            case FloorDiv(a=inner, b=IntImm(value=known)) if known > 0:
                term, divide = inner, known
            case FloorMod(a=inner, b=IntImm(value=known)) if known > 0:
                term, modulo = inner, known
        match term:
            case Cast(value=Var() as inner) if dt.is_int(term.dtype):
                term = inner
        if not isinstance(term, Var):
            return None
        bound = self.bound.get(term)
        if bound is None or bound.loop is None or bound.conditions != self.conditions:
            return None
        least, last = bound.loop.min, B.sub(bound.loop.extent, B.const(bound.loop.extent.dtype, 1))
        if divide is not None or modulo is not None:
            if not B.is_zero(least):
                return None
            if divide is not None:
                last = B.floordiv(last, B.const(last.dtype, divide))
            else:
                assert modulo is not None
                last = _smaller(last, modulo - 1)
        if factor != 1:
            least, last = B.mul(least, B.const(least.dtype, factor)), B.mul(last, B.const(last.dtype, factor))
        return term, least, last

    def _steady(self, fixed: list[Any], loops: set[Any]) -> bool:
        """Whether expressions have the same value in all iterations of ``loops``."""
        first = min(self.bound[v].order for v in loops)
        written: set[Any] = set()
        for var in loops:
            loop = self.bound[var].loop
            written |= set() if loop is None else self._stores_of(loop)
        for e in fixed:
            for var in free_vars(e):
                around = self.bound.get(var)
                if var in loops or (around is not None and around.order > first and around.loop is None):
                    return False
            if _reads(e, written):
                return False
        return True

    def _stores_of(self, loop: For) -> set[Any]:
        """Pointers of the buffers a loop writes; None among them means any."""
        found = self.stored.get(id(loop))
        if found is None:
            found = self.stored[id(loop)] = set()
            stores = found

            def look(node: Node) -> bool:
                match node:
                    case BufferStore():
                        stores.add(node.buffer.data)
                    case Call() if op_name_of(node).removeprefix("tir.").startswith("call_"):
                        stores.add(None)
                return True

            pre_order_visit(loop.body, look)
        return found


class _Coordinates(SeqMutator):
    """Finds, in a flat position, the coordinates that come from data, and guards each.

    They are known by the form ``v + (v < 0) * n``, a position on an axis of ``n`` that may be told from its end, and
    where whole coordinates are scattered (``in_rows``) by the row of the array they are read from: one for each axis.
    """

    def __init__(self, owner: _Guard, buffer: Buffer, in_rows: bool) -> None:
        self.owner = owner
        self.buffer = buffer
        self.in_rows = in_rows
        self.proving = False
        self.memo: dict[Any, Any] = {}

    def known(self, index: PrimExpr) -> PrimExpr:
        """The index with variables for its guarded parts, which the analyzer knows the ranges of."""
        self.proving = True
        made = self.visit(index)
        self.proving = False
        return made

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        axis = self._row_of(e) if self.in_rows else None
        if axis is None or not 0 <= axis < len(self.buffer.shape):
            return e
        return self._coordinate(e, self.buffer.shape[axis], str(axis))

    def _row_of(self, e: BufferLoad) -> int | None:
        """Which coordinate a load reads: its constant index, first or last, in an array of one row for each."""
        found = None
        most = 0
        for index, extent in zip(e.indices, e.buffer.shape):
            place = self.owner.analyzer.simplify(index)
            size = const_int(extent, most)
            if isinstance(place, IntImm) and size > most:
                found, most = place.value, size
        return found

    def _coordinate(self, value: PrimExpr, extent: PrimExpr, axis: str) -> PrimExpr:
        if not self.proving:
            return self.owner.coordinate(self.buffer, value, extent, axis)
        for seen, var in self.memo.items():
            if B.deep_equal(seen, value):
                return var
        self.memo[value] = made = self.owner.known_coordinate(value, extent)
        return made

    def visit_Add(self, e: Add) -> PrimExpr:
        size = _counted_from_end(e)
        if size is not None and self.owner._from_data(e):
            return self._coordinate(e, size, "")
        return self.default_visit(e)


def _counted_from_end(e: Add) -> PrimExpr | None:
    """``n`` of ``v + (v < 0) * n``, or None."""
    for value, shift in ((e.a, e.b), (e.b, e.a)):
        one = B.const(e.dtype, 1)
        for flag, size in ((shift.a, shift.b), (shift.b, shift.a)) if type(shift) is Mul else ((shift, one),):
            match uncast(flag):
                case LT(a=counted, b=IntImm(value=0)) if B.deep_equal(uncast(counted), uncast(value)):
                    return size
    return None


def _divides(e: PrimExpr) -> bool:
    found = False

    def look(node: Node) -> bool:
        nonlocal found
        found = found or isinstance(node, (FloorDiv, FloorMod))
        return not found and not isinstance(node, BufferLoad)

    pre_order_visit(e, look)
    return found


def _smaller(e: PrimExpr, limit: int) -> PrimExpr:
    return IntImm(e.dtype, min(e.value, limit)) if isinstance(e, IntImm) else B.minimum(e, B.const(e.dtype, limit))


def _reads(e: PrimExpr, pointers: set[Any]) -> bool:
    return any(
        isinstance(node, BufferLoad) and (node.buffer.data in pointers or None in pointers) for node in all_nodes(e)
    )


def _plus(value: PrimExpr, rest: PrimExpr) -> PrimExpr:
    return value if B.is_zero(rest) else Add(value, rest)


def _clamped(value: PrimExpr, extent: PrimExpr, offset: PrimExpr, span: PrimExpr) -> PrimExpr:
    """The nearest to ``value`` that, with what loops add, is inside."""
    dtype = value.dtype
    element, lanes = dt.element_of(dtype), dt.lanes(dtype)
    least = B.cast(element, B.sub(IntImm("int64", 0), offset))
    last = B.sub(B.sub(B.cast("int64", extent), IntImm("int64", 1)), B.add(offset, span))
    last = B.cast(element, last)
    if lanes > 1:
        from ..loops.vectorize_loop import spread

        least, last = spread(least, lanes), spread(last, lanes)
    return B.maximum(B.minimum(value, last), least)


def guard(func: PrimFunc, policy: str | None = None, all_accesses: bool = False, silent: bool = False) -> PrimFunc:
    """Guard the accesses of a function as ``policy`` says, by default that in force.

    ``silent`` is for code that can raise no error: clamped indices are not checked as well where a size may be 0.
    """
    policy = policy or index_policy()
    if policy == "trust" and not all_accesses:
        return func
    params = {p for p in func.params if p not in func.buffer_map and dt.is_integral(p.dtype)}
    body = _Guard(params, policy, all_accesses, silent).visit(func.body)
    return func if body is func.body else func.with_body(body)


class GuardIndices(FunctionRewrite, name="relaxish.GuardIndices"):
    """Check or clamp the indices that come from data; block variables must have been put in their place.

    Before::

        Y[i, j] = W[ids[i], j]

    After::

        Y[i, j] = W[T.check_index(ids[i], 0, 0, 1000, "..."), j]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return guard(func)


class ClampIndices(FunctionRewrite, name="relaxish.ClampIndices"):
    """Bring indices that come from data to the nearest that are inside: for code of devices, which raises no errors.

    Before::

        Y[i, j] = W[ids[i], j]

    After::

        Y[i, j] = W[T.max(T.min(ids[i], 999), 0), j]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return guard(func, "clamp", silent=True)
