"""Operators shared out among the threads of a block: loops over a thread's registers, or over vectors in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, post_order_visit
from ....ir.prim import And, IntImm, Var, const, is_zero
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt
from ..base import op_name
from .layout import Layout
from .names import FRAGMENT
from .nests import interior, plain_selects, vectorizable, widest, without_guards
from .program import TileLoweringError, accesses
from .shared import Shared, index_values

__all__ = ["Memory", "Spread", "alternatives", "conjunction"]

_VECTOR_BITS = 128


@dataclass
class Memory:
    """Placement of the buffers of a block: registers of a thread (with the fragment's layout), or shared memory."""

    layouts: dict[Buffer, Layout] = field(default_factory=dict)
    registers: dict[Buffer, Buffer] = field(default_factory=dict)
    shared: dict[Buffer, Shared] = field(default_factory=dict)
    private: dict[Buffer, Buffer] = field(default_factory=dict)
    turns: dict[Buffer, PrimExpr] = field(default_factory=dict)


def conjunction(terms: Sequence[PrimExpr]) -> PrimExpr | None:
    """All conditions together; None where there are none."""
    made: PrimExpr | None = None
    for term in terms:
        made = term if made is None else And(made, term)
    return made


def alternatives(inside: PrimExpr | None, body: Stmt, plain: Callable[[Stmt], Stmt]) -> Stmt:
    """The fast case where all guards hold, and the general one."""
    if inside is None or isinstance(inside, IntImm):
        return plain(body)
    return IfThenElse(inside, plain(without_guards(body)), plain(body))


class _Digits:
    """The digits of a layout as variables, and the loops' coordinates in them."""

    def __init__(self, layout: Layout, loops: Sequence[tuple[Var, PrimExpr]], thread: PrimExpr) -> None:
        self.analyzer = Analyzer()
        self.of_thread: dict[Var, Any] = {}
        self.loops: list[tuple[Var, int, Any]] = []
        self.copies: list[Any] = []
        terms: dict[int, list[Any]] = {n: [] for n in range(len(loops))}
        for n, digit in enumerate(layout.digits):
            value = thread // digit.out % digit.extent
            if digit.dim < 0:
                self.copies.append(value.equal(0))
                continue
            var = Var(f"{'t' if digit.thread else 'r'}{n}", "int32")
            self.analyzer.bind(var, Range(0, digit.extent))
            if digit.thread:
                self.of_thread[var] = value
            else:
                self.loops.append((var, digit.extent, digit))
            terms[digit.dim].append(var * digit.stride if digit.stride != 1 else var)
        self.coordinates: dict[Var, Any] = {}
        for n, (loop, _) in enumerate(loops):
            total: PrimExpr = const(0, loop.dtype)
            for term in terms[n]:
                total = total + (term if loop.dtype == "int32" else term.astype(loop.dtype))
            self.coordinates[loop] = self.analyzer.simplify(total)
        # The digit that moves along neighbours comes last.
        self.loops.sort(key=lambda item: -item[2].out)


class _Seen(Mutator):
    """What an iteration does that others see: stores to memory and ``reducers``, updates, prints.

    ``others``: whether there is such; ``held``: whether it also stores to fragments, of which every copy must be the same.
    """

    def __init__(self, memory: Memory, reducers: Container[Buffer], op: str) -> None:
        super().__init__()
        self.memory = memory
        self.reducers = reducers
        self.op = op
        self.others = self.held = False
        self.condition: PrimExpr | None = None

    def only(self, condition: PrimExpr, body: Stmt) -> Stmt:
        """The body that does so where a condition holds. Raises TileLoweringError where copies need what an update gave."""
        self.condition = condition
        made: Stmt = self.visit(body)
        return made

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def _seen(self, node: Stmt) -> Stmt:
        self.others = True
        return node if self.condition is None else IfThenElse(self.condition, node)

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        return self._seen(node)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        buffer = node.buffer
        if buffer in self.memory.private:
            if not _calls(node.value):
                return node
            if self.condition is not None:
                raise TileLoweringError(
                    f"T.{self.op}: an atomic update's return_prev and stores to a fragment stand in one loop, and several threads hold "
                    "the fragment's elements; write two loops, with the value before in shared memory between them"
                )
            return self._seen(node)
        if buffer.scope() == FRAGMENT and buffer not in self.reducers:
            self.held = True
            return node
        return self._seen(node)


def _calls(e: PrimExpr) -> bool:
    """Whether an expression calls a function, as atomic updates do."""
    found = False

    def look(node: PrimExpr) -> None:
        nonlocal found
        found = found or op_name(node) == "call_extern"

    post_order_visit(e, look)
    return found


class Spread:
    """Makes a thread's part of an operator."""

    def __init__(self, memory: Memory, thread: Var, threads: int) -> None:
        self.memory = memory
        self.thread = thread
        self.threads = threads
        self.widest_access: int | None = None
        """Elements that a thread accesses at once, at most, where the program says so."""

    # -- by a layout ---------------------------------------------------------------------------------------------------

    def by_layout(
        self,
        op: str,
        loops: Sequence[tuple[Var, PrimExpr]],
        body: Stmt,
        layout: Layout,
        reducers: Container[Buffer] = (),
    ) -> Stmt:
        """Each thread runs the iterations that its registers are for.

        Where threads hold copies of elements, what others see (memory, ``reducers``, prints) is done by one of them.
        """
        digits = _Digits(layout, loops, self.thread)
        self.check(op, loops, body, layout)
        conditions = [self.thread < layout.threads] if layout.threads < self.threads else []
        seen = _Seen(self.memory, reducers, op)
        seen.visit(body)
        if seen.others and not seen.held:
            conditions += digits.copies
        inside = interior(plain_selects(body), loops)

        def threads_part(part: Stmt) -> Stmt:
            once = conjunction(digits.copies)
            if seen.others and seen.held and once is not None:
                part = seen.only(once, part)
            return self._registers(digits, substitute(part, digits.coordinates))

        made = alternatives(inside, plain_selects(body), threads_part)
        if inside is not None and not isinstance(inside, IntImm):
            made = made.with_fields(condition=inside)
        condition = conjunction(conditions)
        return made if condition is None else IfThenElse(condition, made)

    def _registers(self, digits: _Digits, body: Stmt) -> Stmt:
        loops = list(digits.loops)
        vector: tuple[Var, int] | None = None
        for n, (var, extent, digit) in enumerate(loops):
            if digit.stride == 1 and digit.out == 1:
                width = self.vector_width(body, var, extent, digits.analyzer)
                if width > 1:
                    del loops[n]
                    lane, outer = Var("v", "int32"), Var(f"{var.name}_o", "int32")
                    digits.analyzer.bind(lane, Range(0, width))
                    digits.analyzer.bind(outer, Range(0, extent // width))
                    body = substitute(body, {var: outer * width + lane if extent > width else lane})
                    if extent > width:
                        loops.append((outer, extent // width, digit))
                    vector = (lane, width)
                break
        body = self.place(body, digits.analyzer)
        if vector is not None:
            body = For(vector[0], const(0, "int32"), const(vector[1], "int32"), ForKind.VECTORIZED, body)
        for var, extent, _ in reversed(loops):
            body = For(var, const(0, "int32"), const(extent, "int32"), ForKind.UNROLLED, body)
        return substitute(body, digits.of_thread)

    def check(self, op: str, loops: Sequence[tuple[Var, Any]], body: Stmt, layout: Layout) -> None:
        """Raise TileLoweringError where a thread would need an element that it does not hold."""
        threads = np.arange(min(layout.threads, self.threads), dtype=np.int64)[:, None]
        registers = np.arange(layout.registers, dtype=np.int64)[None, :]
        places = {}
        for n, (loop, _) in enumerate(loops):
            total = np.zeros((len(threads), registers.shape[1]), dtype=np.int64)
            for d in layout.of_dim(n):
                total = total + (threads if d.thread else registers) // d.out % d.extent * d.stride
            places[loop] = total
        for node in accesses(body):
            if node.buffer.scope() != FRAGMENT:
                continue
            held = self.memory.layouts[node.buffer]
            try:
                coordinates = [index_values(i, places) for i in node.indices]
            except KeyError:
                raise TileLoweringError(
                    f"T.{op}: which element of fragment {node.buffer.name} is meant by {[str(i) for i in node.indices]} depends on "
                    "more than the loops: registers have no addresses. Use shared memory for it"
                ) from None
            if not bool(np.all(held.holds(coordinates, threads))):
                raise TileLoweringError(
                    f"T.{op}: fragment {node.buffer.name} is used across threads: an iteration needs an element that another "
                    "thread holds. Copy it to shared memory first, or give the products that lay it out the same "
                    "policy (GemmWarpPolicy.FullRow where one product takes the other's result)"
                )

    # -- without fragments ---------------------------------------------------------------------------------------------

    def in_turn(self, loops: Sequence[tuple[Var, PrimExpr]], body: Stmt) -> Stmt:
        """Threads take vectors of the innermost loop in turn."""
        inside = interior(plain_selects(body), loops)

        def part(one: Stmt) -> Stmt:
            return self._turns(loops, one)

        return alternatives(inside, plain_selects(body), part)

    def _turns(self, loops: Sequence[tuple[Var, PrimExpr]], body: Stmt) -> Stmt:
        analyzer = Analyzer()
        for var, extent in loops:
            analyzer.bind(var, Range.from_min_extent(const(0, var.dtype), extent))
        width = 1
        last, extent = loops[-1]
        if isinstance(extent, IntImm):
            wanted = math.gcd(extent.value, max(1, _VECTOR_BITS // self.narrowest(body)))
            width = self.vector_width(body, last, wanted, analyzer)
        lane = Var("v", last.dtype)
        counts = [e for _, e in loops[:-1]] + [extent // width if width > 1 else extent]
        total: PrimExpr = const(1, "int32")
        for count in counts:
            total = total * count
        total = Analyzer().simplify(total)
        turn = Var("turn", "int32")
        number = turn * self.threads + self.thread
        # Places as digits of fresh variables, so that indices come out plain.
        names = [Var(f"d{n}", "int32") for n in range(len(loops))]
        inner = Analyzer()
        for name, count in zip(names, counts, strict=True):
            inner.bind(name, Range.from_min_extent(const(0, "int32"), count))
        inner.bind(lane, Range(0, width))
        values: dict[Var, Any] = {}
        for n, (var, _) in enumerate(loops):
            at: Any = names[n]
            if n == len(loops) - 1 and width > 1:
                at = at * width + lane
            values[var] = at if var.dtype == at.dtype else at.astype(var.dtype)
        body = self.place(substitute(body, values), inner)
        if width > 1:
            body = For(lane, const(0, lane.dtype), const(width, lane.dtype), ForKind.VECTORIZED, body)
        places: dict[Var, Any] = {}
        rest: Any = number
        for n in reversed(range(len(loops))):
            places[names[n]] = rest if n == 0 else rest % counts[n]
            rest = rest // counts[n]
        body = substitute(body, places)
        if isinstance(total, IntImm):
            if total.value % self.threads:
                body = IfThenElse(number < total, body)
            turns = -(-total.value // self.threads)
            if turns == 1:
                return substitute(body, {turn: const(0, "int32")})
            return For(
                turn,
                const(0, "int32"),
                const(turns, "int32"),
                ForKind.UNROLLED if turns <= 32 else ForKind.SERIAL,
                body,
            )
        body = IfThenElse(number < total, body)
        return For(turn, const(0, "int32"), (total + (self.threads - 1)) // self.threads, ForKind.SERIAL, body)

    # -- vectors ---------------------------------------------------------------------------------------------------------

    def narrowest(self, body: Stmt) -> int:
        """Bits of the narrowest element in memory that the body touches."""
        sizes = [dt.bits(n.buffer.dtype) for n in accesses(body) if n.buffer not in self.memory.private]
        return max(8, min(sizes, default=32))

    def vector_width(self, body: Stmt, var: Var, limit: int, analyzer: Analyzer) -> int:
        """Largest number of iterations of ``var`` that make one aligned vector access of at most 16 bytes."""
        if not vectorizable(body, var, list(self.memory.private)) or widest(body) > 64:
            return 1
        width = limit if self.widest_access is None else min(limit, self.widest_access)
        while width > 1 and not self._fits(body, var, width, analyzer):
            width //= 2 if width % 2 == 0 else width
        return max(1, width)

    def _fits(self, body: Stmt, var: Var, width: int, analyzer: Analyzer) -> bool:
        for node in accesses(body):
            if width * dt.bits(node.buffer.dtype) > _VECTOR_BITS or width & (width - 1):
                return False
            if node.buffer.scope() == FRAGMENT:
                continue
            if not _mentions_any(node.indices, var):
                continue
            if any(_mentions_any([i], var) for i in node.indices[:-1]):
                return False
            last = node.indices[-1]
            here = analyzer.simplify(substitute(last, {var: const(0, var.dtype)}))
            there = analyzer.simplify(substitute(last, {var: const(1, var.dtype)}))
            if not analyzer.can_prove_equal(there - here, const(1, here.dtype)):
                return False
            # The first of a vector stands at a multiple of the width, whatever the outer part of the variable is.
            if not _divides(here, width, analyzer):
                return False
            if not self._rows_fit(node.buffer, width, analyzer):
                return False
        return True

    def _rows_fit(self, buffer: Buffer, width: int, analyzer: Analyzer) -> bool:
        kept = self.memory.shared.get(buffer)
        if kept is not None:
            return kept.aligned(width)
        if buffer.strides or not _is_zero(buffer.elem_offset):
            return False
        return len(buffer.shape) == 1 or _divides(buffer.shape[-1], width, analyzer)

    # -- places ----------------------------------------------------------------------------------------------------------

    def place(self, body: Any, analyzer: Analyzer) -> Any:
        """The body on the memory that there is."""
        return _Place(self.memory, analyzer).visit(body)


def _is_zero(e: PrimExpr) -> bool:
    return e is None or is_zero(e)


def _divides(e: PrimExpr, width: int, analyzer: Analyzer) -> bool:
    if isinstance(e, IntImm):
        return int(e.value) % width == 0
    facts = analyzer.modular_set(e)
    return facts.coeff % width == 0 and facts.base % width == 0


def _mentions_any(nodes: Sequence[PrimExpr], var: Var) -> bool:
    from ....arith.functor import uses_var

    return any(uses_var(n, var) for n in nodes)


class _Place(Mutator):
    """Accesses to tiles as accesses to registers and shared memory."""

    def __init__(self, memory: Memory, analyzer: Analyzer) -> None:
        super().__init__()
        self.memory = memory
        self.analyzer = analyzer

    def _where(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[Any, list[Any]] | None:
        m = self.memory
        indices = [self.visit(i) for i in indices]
        if buffer in m.registers:
            return m.registers[buffer], [self._register(m.layouts[buffer], indices)]
        if buffer in m.shared:
            kept = m.shared[buffer]
            return kept.view, [self.analyzer.simplify(kept.offset(indices, m.turns.get(buffer)))]
        if buffer in m.private:
            return m.private[buffer], [self.analyzer.simplify(i) for i in indices]
        return None

    def _register(self, layout: Layout, indices: Sequence[PrimExpr]) -> PrimExpr:
        total: PrimExpr = const(0, "int32")
        for d in layout.digits:
            if d.dim < 0 or d.thread:
                continue
            index = indices[d.dim]
            part = index // d.stride if d.stride > 1 else index
            above = [o for o in layout.of_dim(d.dim) if o.stride > d.stride]
            if above:
                part = part % d.extent
            total = total + (part * d.out if d.out > 1 else part)
        return self.analyzer.simplify(total)

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        found = self._where(node.buffer, node.indices)
        return self.default_visit(node) if found is None else BufferLoad(*found)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        found = self._where(node.buffer, node.indices)
        value = self.visit(node.value)
        if found is None:
            return BufferStore(node.buffer, value, [self.visit(i) for i in node.indices])
        return BufferStore(found[0], value, found[1])

    def visit_Block(self, node: Block) -> Stmt:
        return self.visit(node.body)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        return self.visit(node.block.body)
