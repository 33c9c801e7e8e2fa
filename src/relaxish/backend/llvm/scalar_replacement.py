"""Accumulators in registers: what a loop updates again and again at one place leaves memory while the loop runs.

In ``for k: C[i, j] = C[i, j] + A[i, k] * B[k, j]`` the element does not depend on ``k``. Its value is loaded once
before the loop into a stack slot, updated there, and stored once after it; since each slot is only ever accessed
whole, LLVM keeps it in a register. It works for whole register tiles: unrolled and vectorised inner loops give each
vector of the tile a slot of its own.

Source: Callahan, Carr and Kennedy, "Improving register allocation for subscripted variables" (PLDI 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...ir.expr import PrimExpr
from ...ir.node import Node
from .index_gen import Offset
from ...arith.functor import free_vars
from ...ir import dtype as dt
from ...ir.functor import all_nodes, pre_order_visit
from ...ir.prim import (
    Add, Broadcast, Call, Cast, FloorDiv, FloorMod, IntImm, is_call_of, Mul, Ramp, StringImm, Sub, Var,
)  # fmt: skip
from ...ir.structural import same_expression
from ...tir import Allocate, BufferLoad, BufferStore, For, ForKind, LetStmt, While
from ...tir.stmt import Stmt
from .ltypes import llvm_type

if TYPE_CHECKING:
    from .stmt_gen import StmtGen

# More slots than this cannot all be registers (AVX-512 has 32 of them).
_MAX_SLOTS = 64


class PromotionConflict(Exception):
    """Accesses turned out to overlap in part: generate the function again without promoting this buffer."""

    def __init__(self, buffer_var: PrimExpr) -> None:
        super().__init__(buffer_var)
        self.buffer_var = buffer_var


@dataclass
class Promotion:
    """One promoted buffer in one loop: its slots by access."""

    buffer: Any
    scope: int
    branches: int
    uniform: bool
    slots: dict[Any, tuple[str, Any, str]] = field(default_factory=dict)


def find_accumulators(gen: StmtGen, loop: For) -> list[tuple[Any, bool]]:
    """Buffers that ``loop`` reads and writes only at places fixed over its iterations.

    The flag says that all accesses have the very same index expression, as one statement under unrolled loops has, and
    one that gives the iterations of these loops places of their own.
    """
    accesses: dict[Any, list[Any]] = {}
    stored: set[Any] = set()
    blocked: set[Any] = set()
    moving: set[Any] = {loop.loop_var}
    unrolled: set[Any] = set()
    certain = isinstance(loop.extent, IntImm)

    def look(item: Node) -> bool:
        match item:
            case BufferLoad() | BufferStore():
                accesses.setdefault(item.buffer.data, []).append(item)
                if isinstance(item, BufferStore):
                    stored.add(item.buffer.data)
                if item.predicate is not None:
                    blocked.add(item.buffer.data)
            case For():
                if item.kind == ForKind.PARALLEL:
                    blocked.add(None)
                elif _unrolls(item):
                    unrolled.add(item.loop_var)
                else:
                    moving.add(item.loop_var)
                if not certain and not isinstance(item.extent, IntImm):
                    # This loop runs, the one inside perhaps never: then there need not be an element.
                    _block_all(item, blocked)
            case While():
                _block_all(item, blocked)
            case Allocate():
                blocked.add(item.buffer_var)
            case LetStmt():
                moving.add(item.var)
            case Call() if passes_pointer(item):
                blocked.add(None)
            case _ if is_call_of(item, "tir.call_extern", "tir.ret"):
                blocked.add(None)
        return True

    pre_order_visit(loop.body, look)
    if None in blocked:
        return []
    found: list[tuple[Any, bool]] = []
    shared: dict[Any, int] = {}
    for var in accesses:
        key = gen.alias_key(var)
        shared[key] = shared.get(key, 0) + 1
    for var in stored - blocked - gen.never_promote:
        items = accesses[var]
        in_registers = var in gen.register_buffers - gen.moved_through
        if in_registers or var in gen.promoted or shared[gen.alias_key(var)] > 1:
            continue
        if all(isinstance(i, BufferStore) for i in items):
            continue
        if len(items) > 2 * _MAX_SLOTS or any(_uses(i, moving) for item in items for i in item.indices):
            continue
        first = items[0].indices
        uniform = all(_same(first, item.indices) for item in items[1:])
        found.append((items[0].buffer, uniform and all(_spreads(index, unrolled) for index in first)))
    return found


def passes_pointer(call: Call) -> bool:
    """Whether a call takes or gives an address, through which it may touch memory; its name is none."""
    return dt.is_handle(call.dtype) or any(
        dt.is_handle(getattr(a, "dtype", "")) and not isinstance(a, StringImm) for a in call.args
    )


def _unrolls(loop: For) -> bool:
    if not isinstance(loop.extent, IntImm):
        return False
    return loop.kind == ForKind.UNROLLED or loop.extent.value == 1


def _block_all(branch: Stmt, blocked: set[Any]) -> None:
    blocked.update(item.buffer.data for item in all_nodes(branch) if isinstance(item, (BufferLoad, BufferStore)))


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return len(a) == len(b) and all(x is y or same_expression(x, y) for x, y in zip(a, b, strict=True))


def _spreads(index: PrimExpr, unrolled: set[Any]) -> bool:
    """Whether unrolled variables enter an index by sums, products and constant quotients only.

    Where they meet run-time values in a minimum, say, two iterations may share a place without it showing.
    """
    match index:
        case Add() | Sub() | Mul():
            return _spreads(index.a, unrolled) and _spreads(index.b, unrolled)
        case Cast():
            return _spreads(index.value, unrolled)
        case Ramp():
            return _spreads(index.base, unrolled)
        case Broadcast():
            return _spreads(index.value, unrolled)
    if isinstance(index, (Var, IntImm)) or not _uses(index, unrolled):
        return True
    if isinstance(index, (FloorDiv, FloorMod)):
        constant = isinstance(index.b, IntImm) and unrolled.issuperset(free_vars(index))
        return constant and _spreads(index.a, unrolled)
    return False


def _uses(expr: PrimExpr, variables: set[Any]) -> bool:
    return any(isinstance(item, Var) and item in variables or isinstance(item, BufferLoad) for item in all_nodes(expr))


def slot_of(gen: StmtGen, promotion: Promotion, offset: Offset, dtype: str) -> str:
    """The stack slot standing for an access; filled from memory before the loop when it is new."""
    if isinstance(offset, list) or gen.branches != promotion.branches:
        # Under a condition that is not decided here, the element may not even exist.
        raise PromotionConflict(promotion.buffer.data)
    terms, consts = offset
    key = (tuple(sorted(terms.items())), consts, dtype)
    known = promotion.slots.get(key)
    if known is not None:
        return known[0]
    w = gen.w
    outside = promotion.scope - 1
    if any(w.depth_of.get(name, 0) > outside for name in terms) or len(promotion.slots) >= _MAX_SLOTS:
        raise PromotionConflict(promotion.buffer.data)
    for (other_terms, other_consts, _), _slot in promotion.slots.items():
        if other_terms != key[0]:
            # Two places whose distance is not a constant: distinct only when one tile statement made both.
            if not promotion.uniform:
                raise PromotionConflict(promotion.buffer.data)
        elif set(other_consts) & set(consts):
            raise PromotionConflict(promotion.buffer.data)
    slot = w.alloca(f"{llvm_type(dtype)}, align 64", "acc")
    lines, scopes, block = w.lines, w.scopes, w.block
    # Write as if we still stood before the loop.
    w.lines, w.scopes = scopes[promotion.scope].pre, scopes[: promotion.scope]
    active = gen.promoted.pop(promotion.buffer.data)
    value = gen.load_elements(promotion.buffer, offset, dtype)
    w.line(f"store {llvm_type(dtype)} {value}, ptr {slot}, align 64")
    gen.promoted[promotion.buffer.data] = active
    if w.block != block:
        scopes[promotion.scope].entry = w.block
    w.lines, w.scopes, w.block = lines, scopes, block
    promotion.slots[key] = (slot, offset, dtype)
    return slot


def write_back(gen: StmtGen, promotion: Promotion) -> None:
    """After the loop: slots to memory."""
    for slot, offset, dtype in promotion.slots.values():
        value = gen.w.effect(f"load {llvm_type(dtype)}, ptr {slot}, align 64")
        gen.store_elements(promotion.buffer, offset, value, dtype)
