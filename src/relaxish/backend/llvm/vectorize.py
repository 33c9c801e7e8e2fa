"""Innermost serial loops as vectors: elementwise stores and sums, whatever the trip count.

Schedules vectorise what has a fitting constant extent. This module takes the rest: dynamic extents, extents that no
vector length divides, and reductions along the contiguous axis. A loop becomes a vector loop plus a tail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...support.sequences import of_kind
from ...tir.stmt import Stmt, stmt_list
from ...ir.expr import PrimExpr
from ...ir.node import Node
from .index_gen import Lin
from ...ir.op import op_name_of
from ...arith.affine import coefficient
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.functor import all_nodes, pre_order_visit
from ...ir.prim import (
    Add, BinaryOp, Broadcast, Call, Cast, CmpOp, FloatImm, IntImm, LogicalOp, Max, Min, Mul, Not, Ramp, Select, Var,
)  # fmt: skip
from ...ir.structural import same_expression
from ...support import config
from ...tir import BufferLoad, BufferStore, For
from ...tir.functor import substitute, without_lets
from ...tir.intrinsics import named
from .guards import is_index_check
from .ltypes import llvm_type

if TYPE_CHECKING:
    from .stmt_gen import StmtGen

_ELEMENTWISE = frozenset(("if_then_else", *named(lambda record: record.lanewise)))


class NotVectorisable(Exception):
    """The loop has a form this module does not handle."""


class _Widen:
    """Rewrites an expression for ``lanes`` consecutive values of one loop variable."""

    def __init__(self, var: PrimExpr, lanes: int) -> None:
        self.var = var
        self.lanes = lanes

    def visit(self, expr: PrimExpr) -> PrimExpr:
        """The vector form; scalar when the expression does not depend on the variable."""
        if expr is self.var:
            return Ramp(self.var, IntImm(self.var.dtype, 1), IntImm("int32", self.lanes))
        match expr:
            case Var() | IntImm() | FloatImm():
                return expr
            case CmpOp() | LogicalOp() | BinaryOp():
                a, b = self.visit(expr.a), self.visit(expr.b)
                if a is expr.a and b is expr.b:
                    return expr
                return type(expr)(*self.level(a, b))
            case Cast():
                value = self.visit(expr.value)
                return expr if value is expr.value else Cast(dt.with_lanes(expr.dtype, self.lanes), value)
            case Not():
                value = self.visit(expr.a)
                return expr if value is expr.a else Not(value)
            case Select():
                parts = [self.visit(p) for p in (expr.condition, expr.true_value, expr.false_value)]
                if all(p is q for p, q in zip(parts, (expr.condition, expr.true_value, expr.false_value), strict=True)):
                    return expr
                return Select(*self.level(*parts))
            case BufferLoad():
                return self.load(expr)
            case Call():
                return self.call(expr)
        raise NotVectorisable

    def level(self, *parts: Any) -> list[Any]:
        """All parts with the same number of lanes."""
        return [p if dt.lanes(p.dtype) > 1 else Broadcast(p, IntImm("int32", self.lanes)) for p in parts]

    def load(self, expr: BufferLoad) -> PrimExpr:
        indices = [self.visit(i) for i in expr.indices]
        if all(a is b for a, b in zip(indices, expr.indices, strict=True)):
            return expr
        if dt.lanes(expr.buffer.dtype) != 1:
            raise NotVectorisable
        steps = [coefficient(i, self.var) for i in expr.indices]
        if any(s is None for s in steps) or any(steps[:-1]) or steps[-1] is None or abs(steps[-1]) > 4:
            raise NotVectorisable
        return BufferLoad(expr.buffer, indices)

    def call(self, expr: Any) -> PrimExpr:
        name = op_name_of(expr).removeprefix("tir.")
        if is_index_check(expr):
            if uses_var(expr, self.var):
                raise NotVectorisable
            return expr
        args: list[Any] = [self.visit(a) if not isinstance(a, str) else a for a in expr.args]
        if all(a is b for a, b in zip(args, expr.args, strict=True)):
            if name not in _ELEMENTWISE:
                raise NotVectorisable
            return expr
        if name not in _ELEMENTWISE:
            raise NotVectorisable
        if name == "if_then_else":
            if dt.lanes(args[0].dtype) > 1 and _loads(expr.args[1:]):
                # Lanes whose condition is false would read what they must not.
                raise NotVectorisable
            if dt.lanes(args[0].dtype) == 1:
                args = [args[0], *self.level(*args[1:])]
                return Call(dt.with_lanes(expr.dtype, self.lanes), expr.op, args)
        return Call(dt.with_lanes(expr.dtype, self.lanes), expr.op, self.level(*args))


def _loads(exprs: Sequence[PrimExpr]) -> bool:
    return any(isinstance(item, BufferLoad) for expr in exprs for item in all_nodes(expr))


def _stores(body: Stmt) -> list[Any] | None:
    """The stores that make up ``body``, values bound by ``let`` put in place; None when there is more to it."""
    bound, body = without_lets(body)
    stores: list[Any] = stmt_list(body)
    if not all(isinstance(s, BufferStore) for s in stores):
        return None
    if any(isinstance(i, (BufferLoad, BufferStore)) and i.predicate is not None for s in stores for i in all_nodes(s)):
        return None
    if bound:
        stores = [substitute(s, bound) for s in stores]
        if any(_reads(late.value, early.buffer.data) for i, early in enumerate(stores) for late in stores[i + 1 :]):
            # Bound before the first store, it must not be computed after it.
            return None
    return stores


def _identity(kind: type, dtype: str) -> PrimExpr:
    if kind is Add:
        return FloatImm(dtype, 0.0) if dt.is_float(dtype) else IntImm(dtype, 0)
    if dt.is_float(dtype):
        return FloatImm(dtype, float("-inf") if kind is Max else float("inf"))
    return IntImm(dtype, dt.min_value(dtype) if kind is Max else dt.max_value(dtype))


def vector_loop(gen: StmtGen, node: For, low: Lin, extent: Lin) -> bool:
    """Emit ``node`` as vectors when its form allows; False leaves it to the scalar path."""
    stores = _stores(node.body)
    if not stores:
        return False
    if not extent[0] and extent[1] < 4:
        return False
    widest = max((dt.bits(s.value.dtype) for s in stores), default=32)
    lanes = max(2, gen.vector_bits // max(8, min(64, widest)))
    lanes = min(lanes, 32)
    try:
        reductions = [_as_reduction(s, node.loop_var) for s in stores]
        if all(r is not None for r in reductions):
            return config.FAST_MATH.value and _reduce_all(gen, node, reductions, low, extent, lanes)
        if any(r is not None for r in reductions) or any(s.buffer.data in gen.promoted for s in stores):
            return False
        return _map(gen, node, stores, low, extent, lanes)
    except NotVectorisable:
        return False


# ---- elementwise


def _map(gen: StmtGen, node: For, stores: list[Any], low: Lin, extent: Lin, lanes: int) -> bool:
    var = node.loop_var
    for store in stores:
        steps = [coefficient(i, var) for i in store.indices]
        if steps[-1:] != [1] or any(s is None or s for s in steps[:-1]) or dt.lanes(store.value.dtype) != 1:
            raise NotVectorisable
        _check_no_carry(gen, store, stores)

    def emit(count: int) -> None:
        widen = _Widen(var, count)
        for store in stores:
            value = widen.level(widen.visit(store.value))[0]
            gen.stmt_BufferStore(BufferStore(store.buffer, value, [widen.visit(i) for i in store.indices]))

    # Rewriting once before emitting anything finds out whether it is possible at all.
    for store in stores:
        _Widen(var, lanes).visit(store.value)
    if not extent[0]:
        total = extent[1]
        done = total // lanes * lanes
        if done:
            _strip(gen, node, low, done // lanes, lanes, emit)
        while done < total:
            count = 1 << ((total - done).bit_length() - 1)
            gen._bind(var, (low[0], low[1] + done))
            if count > 1:
                emit(count)
            else:
                for store in stores:
                    gen.stmt(store)
            done += count
        return True
    _dynamic(gen, node, low, extent, lanes, lambda: emit(lanes))
    return True


def _check_no_carry(gen: StmtGen, store: BufferStore, stores: list[Any]) -> None:
    """What is stored to, or read and stored to, in one iteration must be one and the same element."""
    targets: dict[Any, list[Any]] = {}
    for each in stores:
        targets.setdefault(_root(gen, each), []).append(each)

    def check(item: Node) -> bool:
        if isinstance(item, (BufferLoad, BufferStore)):
            here = (item.buffer, item.indices)
            others = targets.get(_root(gen, item), ())
            if not all(same_expression(here, (other.buffer, other.indices)) for other in others):
                raise NotVectorisable
        return True

    check(store)
    pre_order_visit(store.value, check)


def _root(gen: StmtGen, access: BufferLoad | BufferStore) -> object:
    """The memory behind an access, whatever it is called there."""
    return gen.roots.get(access.buffer.data, access.buffer.data)


def _strip(gen: StmtGen, node: For, low: Lin, count: int, lanes: int, emit: Callable[..., Any]) -> None:
    var = node.loop_var
    if count == 1:
        gen._bind(var, low)
        emit(lanes)
        return

    def body(index: str) -> None:
        _bind_strip(gen, var, low, index, lanes)
        emit(lanes)

    gen.counted_loop("0", str(count), gen.writes_of(node), True, body)


def _bind_strip(gen: StmtGen, var: PrimExpr, low: Lin, index: str, lanes: int) -> None:
    gen.nonneg.add(index)
    terms = dict(low[0])
    terms[index] = lanes
    gen.lin_cache[var] = (terms, low[1])
    gen.ranges.pop(var, None)


def _dynamic(gen: StmtGen, node: For, low: Lin, extent: Lin, lanes: int, emit: Callable[..., Any]) -> None:
    """Vectors while they last, then single elements."""
    w = gen.w
    var = node.loop_var
    total = gen.materialize(extent)
    shift = lanes.bit_length() - 1
    full = w.pure(f"ashr i64 {total}, {shift}", total)

    def vector(index: str) -> None:
        _bind_strip(gen, var, low, index, lanes)
        emit()

    writes = gen.writes_of(node)
    gen.counted_loop("0", full, writes, False, vector)
    done = w.pure(f"shl i64 {full}, {shift}", full)
    _tail(gen, node, low, done, total, writes)


def _tail(gen: StmtGen, node: For, low: Lin, done: str, total: str, writes: frozenset[Any]) -> None:
    def scalar(index: str) -> None:
        _bind_strip(gen, node.loop_var, low, index, 1)
        gen.stmt(node.body)

    gen.counted_loop(done, total, writes, False, scalar)


# ---- reductions


def _as_reduction(store: Any, var: PrimExpr) -> tuple[Any, type, Any] | None:
    """(store, combiner, summand) when the store accumulates into a place fixed over the loop."""
    if any(uses_var(i, var) for i in store.indices) or type(store.value) not in (Add, Max, Min):
        return None
    for own, other in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if (
            isinstance(own, BufferLoad)
            and own.buffer.data is store.buffer.data
            and all(same_expression(a, b) for a, b in zip(own.indices, store.indices, strict=True))
            and not _reads(other, store.buffer.data)
        ):
            return store, type(store.value), other
    return None


def _reads(expr: PrimExpr, data: Var) -> bool:
    return any(isinstance(item, BufferLoad) and item.buffer.data is data for item in all_nodes(expr))


def _reduce_all(gen: StmtGen, node: For, found: list[Any], low: Lin, extent: Lin, lanes: int) -> bool:
    """Independent reductions of one loop, each in a loop of its own."""
    written = {gen.alias_key(store.buffer.data) for store, _, _ in found}
    if len({store.buffer.data for store, _, _ in found}) != len(found):
        raise NotVectorisable
    widened = []
    for store, _, summand in found:
        dtype = store.value.dtype
        if dt.lanes(dtype) != 1 or dt.is_bool(dtype):
            raise NotVectorisable
        widened.append(_in_precision_of(_Widen(node.loop_var, lanes).visit(summand), _sum_type(dtype)))
        if dt.lanes(widened[-1].dtype) == 1 or written & _read_keys(gen, summand):
            raise NotVectorisable
    for (store, kind, _), value in zip(found, widened, strict=True):
        _reduce(gen, node.with_fields(body=store), (store, kind, value), low, extent, lanes)
    return True


def _sum_type(dtype: str) -> str:
    """What accumulators are kept in: half precision loses too much, and has no fast arithmetic on most CPUs."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _in_precision_of(expr: PrimExpr, dtype: str) -> PrimExpr:
    lanes = dt.lanes(expr.dtype)
    if dt.element_of(expr.dtype) == dtype or lanes == 1:
        return expr
    wide = dt.with_lanes(dtype, lanes)
    if type(expr) is Mul:
        return Mul(Cast(wide, expr.a), Cast(wide, expr.b))
    return Cast(wide, expr)


def _reduce(gen: StmtGen, node: For, found: Any, low: Lin, extent: Lin, lanes: int) -> None:
    store, kind, widened = found
    var, dtype = node.loop_var, _sum_type(store.value.dtype)
    w = gen.w
    wide = dt.with_lanes(dtype, lanes)
    ty = llvm_type(wide)
    unroll = 4 if extent[0] or extent[1] >= 4 * lanes else 1
    start = gen.visit(Broadcast(_identity(kind, dtype), IntImm("int32", lanes)))
    slots = [w.alloca(f"{ty}, align 64", "acc") for _ in range(unroll)]
    for slot in slots:
        w.line(f"store {ty} {start}, ptr {slot}, align 64")

    def step(slot: str) -> None:
        value = gen.visit(widened) if kind is not Add else _fused_add(gen, widened, slot, wide)
        if kind is not Add:
            old = w.effect(f"load {ty}, ptr {slot}, align 64")
            value = gen.minmax(wide, old, value, kind is Max)
        w.line(f"store {ty} {value}, ptr {slot}, align 64")

    total = gen.materialize(extent)
    reads: frozenset[Any] = frozenset()
    known = None if extent[0] else extent[1]
    chunk = lanes * unroll
    groups = str(known // chunk) if known is not None else w.pure(f"udiv i64 {total}, {chunk}", total)

    def group(index: str) -> None:
        for u, slot in enumerate(slots):
            _bind_strip(gen, var, (low[0], low[1] + u * lanes), index, chunk)
            step(slot)

    if known is None or known // chunk:
        gen.counted_loop("0", groups, reads, known is not None, group)
    if known is None:
        done = w.pure(f"mul i64 {groups}, {chunk}", groups)
    else:
        first, end = known // chunk * chunk, known // lanes * lanes
        for slot, at in zip(slots, range(first, end, lanes), strict=False):
            gen._bind(var, (low[0], low[1] + at))
            step(slot)
        done = str(end)
    merged = _merge_slots(gen, slots, kind, wide)
    _rest(gen, node, store, (low, done, total, known), (kind, merged, dtype, lanes))


def _fused_add(gen: StmtGen, summand: PrimExpr, slot: str, wide: str) -> str:
    ty = llvm_type(wide)
    if type(summand) is Mul and gen.has_fma and dt.is_float(wide):
        a, b = gen.visit(summand.a), gen.visit(summand.b)
        old = gen.w.effect(f"load {ty}, ptr {slot}, align 64")
        return gen.intrinsic("llvm.fma", wide, a, b, old)
    value = gen.visit(summand)
    old = gen.w.effect(f"load {ty}, ptr {slot}, align 64")
    return gen.binary("fadd" if dt.is_float(wide) else "add", wide, old, value)


def _merge_slots(gen: StmtGen, slots: list[str], kind: type, wide: str) -> str:
    ty = llvm_type(wide)
    values = [gen.w.effect(f"load {ty}, ptr {slot}, align 64") for slot in slots]
    while len(values) > 1:
        values = [_combine(gen, kind, wide, a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _combine(gen: StmtGen, kind: type, dtype: str, a: str, b: str) -> str:
    if kind is Add:
        return gen.binary("fadd" if dt.is_float(dtype) else "add", dtype, a, b)
    return gen.minmax(dtype, a, b, kind is Max)


def _rest(gen: StmtGen, node: For, store: BufferStore, span: Any, acc: Any) -> None:
    """Fold the lanes, add what memory held, and finish the last elements one by one."""
    low, done, count, known = span
    kind, merged, dtype, lanes = acc
    while lanes > 1:
        lanes //= 2
        whole = llvm_type(dt.with_lanes(dtype, lanes * 2))
        parts = []
        for start in (0, lanes):
            if lanes == 1:
                parts.append(gen.w.pure(f"extractelement {whole} {merged}, i64 {start}", merged))
            else:
                mask = ", ".join(f"i32 {i}" for i in range(start, start + lanes))
                parts.append(
                    gen.w.pure(f"shufflevector {whole} {merged}, {whole} poison, <{lanes} x i32> <{mask}>", merged)
                )
        merged = _combine(gen, kind, dt.with_lanes(dtype, lanes), *parts)
    offset = gen.offset_of(store.buffer, store.indices)
    stored = store.value.dtype
    old = gen.convert(gen.visit(BufferLoad(store.buffer, store.indices)), stored, dtype)
    total = gen.convert(_combine(gen, kind, dtype, old, merged), dtype, stored)
    gen.store_elements(store.buffer, offset, total, stored)
    if known is None:
        _tail(gen, node, low, done, count, gen.writes_of(node))
    elif int(done) < known:
        gen._loop_plain(node, (low[0], low[1] + int(done)), ({}, known - int(done)))


def _read_keys(gen: StmtGen, expr: PrimExpr) -> set[Any]:
    return {gen.alias_key(item.buffer.data) for item in of_kind(all_nodes(expr), BufferLoad)}
