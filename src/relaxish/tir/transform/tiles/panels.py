"""Panels: what products on CPUs read, packed where it is read side by side.

A copy into shared memory that products alone read packs an operand. Where blocks along an axis of the grid would all pack the
same, all cores do it once before any block begins; other copies fill the panel of several turns of their loop. Either way
the sums of a register tile stay in registers for the turns of a panel together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ....ir.node import Node
from ....ir.expr import PrimExpr
from ....arith.affine import coefficient
from ....arith.functor import free_vars
from ....ir import dtype as dt
from ....ir.functor import Mutator, post_order_visit
from ....ir.prim import IntImm, IterVar, Var, const, const_ints, const_int
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...functor import renew_defs, substitute
from ...stmt import BufferStore, For, ForKind, LetStmt, Stmt
from ..base import seq
from .nests import serial_loops
from .product import Product, product_of
from .program import Nest, as_int, loads_of
from .register_tiles import RegisterTile, product_loops, tile_of

if TYPE_CHECKING:
    from .cpu import CpuKernel

__all__ = ["Panel", "Panels"]

_DEPTH = 256
"""Terms that a register tile sums before the next one does: its strip of the right operand then stays in the cache."""
_MOST_BYTES = 64 << 20
_LEAST_SAVED = 1 << 15
"""Elements not packed again that are worth starting all cores for."""


@dataclass(frozen=True)
class Panel:
    """The panel that a copy fills. ``outer``: variables (with minimum and extent) that it has a part for each value of.

    ``deep`` says which of the two places in the tile is the depth; ``strip`` how many columns lie side by side (0: all rows
    as they are); ``turn`` is the loop whose turns follow each other along the depth.
    """

    nest: Nest
    buffer: Buffer
    outer: tuple[tuple[Var, PrimExpr, int], ...]
    turn: tuple[Var, Any] | None
    depth: int
    deep: int
    strip: int

    def place(self, indices: Sequence[Any], column: PrimExpr | None = None) -> list[Any]:
        """Offset of an element of the tile; ``column`` is its place in the strip if known."""
        k, other = indices[self.deep], indices[1 - self.deep]
        if self.turn is not None:
            var, start = self.turn
            k = (var - start) * self.depth + k
        parts = [v - start for v, start, _ in self.outer]
        if self.strip:
            strip, column = (other // self.strip, other % self.strip) if column is None else (other, column)
            return [*parts, strip, k, column]
        return [*parts, k, other] if self.deep == 0 else [*parts, other, k]


class Panels:
    """The panels of a kernel."""

    def __init__(self, kernel: CpuKernel, body: Stmt) -> None:
        self.kernel = kernel
        self.fills: list[Any] = []
        self.buffers: list[Buffer] = []
        self.bound: set[Var] = set()
        post_order_visit(body, self._note)

    def _note(self, node: Node) -> None:
        match node:
            case For():
                self.bound.add(node.loop_var)
            case LetStmt():
                self.bound.add(node.var)
            case IterVar():
                self.bound.add(node.var)

    # -- which copies are panels

    def of(
        self, nests: Sequence[Nest | None], position: int, around: Sequence[For] | None, loop: For | None
    ) -> Panel | None:
        """The panel of a copy for all blocks; None where each block needs its own. ``around``: loops around the statements,
        None where they may not be run at all."""
        nest = nests[position]
        users = self._users(nests, position)
        if nest is None or users is None or around is None:
            return None
        axes = [(v, e) for v, e in self.kernel.kernel.grid]
        used = set(free_vars(nest.store.value))
        own = {v for v in nest.variables} | {f.loop_var for f in around} | {v for v, _ in axes}
        if any(v in self.bound and v not in own for v in used):
            return None
        bounds = [e for _, e in axes] + [e for f in around for e in (f.min, f.extent)]
        if const_ints(bounds) is None:
            return None
        outer: list[tuple[Var, PrimExpr, int]] = [
            (v, const(0, v.dtype), as_int(e, "an extent")) for v, e in axes if v in used
        ]
        outer += [
            (f.loop_var, f.min, as_int(f.extent, "an extent")) for f in around if f is not loop and f.loop_var in used
        ]
        saved = math.prod(as_int(e, "an extent") for v, e in axes if v not in used) - 1
        turns = as_int(loop.extent, "an extent") if loop is not None and loop.loop_var in used else 1
        count = math.prod(nest.extents) * math.prod(e for _, _, e in outer) * turns
        if saved < 1 or saved * count < _LEAST_SAVED or count * dt.bits(nest.store.buffer.dtype) > 8 * _MOST_BYTES:
            return None
        return self._panel(
            nest, users, outer, loop if loop is not None and loop.loop_var in used else None, turns, "all"
        )

    def _users(self, nests: Sequence[Nest | None], position: int) -> list[Product] | None:
        """The products that read what a copy writes, all of them behind it; None for other copies."""
        nest = nests[position]
        if nest is None or nest.op != "copy" or not isinstance(nest.body, BufferStore):
            return None
        store, k = nest.body, self.kernel
        old = k.origin.get(store.buffer)
        plain = len(nest.loops) == 2 and all(a is b for a, b in zip(store.indices, nest.variables, strict=False))
        turned = len(nest.loops) == 2 and all(a is b for a, b in zip(store.indices, nest.variables[::-1], strict=False))
        if old is None or not (plain or turned) or len(store.indices) != 2:
            return None
        if not k.uses.operand_only(old) or len(k.uses.stored.get(old, ())) != 1:
            return None
        sources = loads_of(store.value)
        if not sources or any(x.buffer.scope() != "global" or x.buffer.data in k.written for x in sources):
            return None
        users = [
            p for n in nests[position + 1 :] if n is not None and n.op == "gemm"
            and store.buffer in ((p := product_of(n)).a.buffer, p.b.buffer)
        ]  # fmt: skip
        everywhere = [p for p in k.uses.products if old in (p.a.buffer, p.b.buffer)]
        return users if users and len(users) == len(everywhere) and self._alike(store, users) else None

    def _alike(self, store: BufferStore, users: Sequence[Product]) -> bool:
        """Whether products read all of a tile in the same way."""
        shape = [const_int(e) for e in store.buffer.shape]
        ways = set()
        for p in users:
            if p.a.buffer is p.b.buffer:
                return False
            left = p.a.buffer is store.buffer
            load, side, size = (p.a, p.i, p.m) if left else (p.b, p.j, p.n)
            order = [p.k, side] if load.indices[0] is p.k else [side, p.k]
            if not all(a is b for a, b in zip(load.indices, order, strict=True)):
                return False
            deep = 0 if load.indices[0] is p.k else 1
            if shape[deep] != p.depth or shape[1 - deep] != size or (not left and deep == 1):
                return False
            ways.add((left, deep, 0 if left else self._tile(p).columns))
        return len(ways) == 1

    def _tile(self, p: Product) -> RegisterTile:
        return tile_of(p, self.kernel.bits, self.kernel.registers)

    def _panel(
        self, nest: Nest, users: Sequence[Product], outer: Any, loop: For | None, turns: int, what: str
    ) -> Panel:
        p, store = users[0], nest.store
        left = p.a.buffer is store.buffer
        deep = 0 if (p.a if left else p.b).indices[0] is p.k else 1
        strip = 0 if left else self._tile(p).columns
        side, depth = (p.m if left else p.n), p.depth * turns
        parts = [e for _, _, e in outer]
        shape = (
            [*parts, side // strip, depth, strip]
            if strip
            else [*parts, *((depth, side) if deep == 0 else (side, depth))]
        )
        dtype = store.buffer.dtype
        data = Var(f"{store.buffer.name}_{what}", PointerType(PrimType(dtype), "global"))
        buffer = decl_buffer(shape, dtype, data.name, data=data)
        turn = None if loop is None else (loop.loop_var, loop.min)
        return Panel(nest, buffer, tuple(outer), turn, p.depth, deep, strip)

    # -- filling and reading

    def fill(self, panel: Panel) -> Stmt:
        """Statements that fill a panel's part for the values that its variables have."""
        nest, store = panel.nest, panel.nest.store
        loops = list(nest.loops)
        value, indices, column = store.value, list(store.indices), None
        if panel.strip:
            side = indices[1 - panel.deep]
            assert isinstance(side, Var)
            strips, column = Var(f"{side.name}_o", side.dtype), Var(side.name, side.dtype)
            at = next(n for n, (v, _) in enumerate(loops) if v is side)
            count = as_int(loops[at][1], "an extent") // panel.strip
            loops[at : at + 1] = [(strips, const(count, side.dtype)), (column, const(panel.strip, side.dtype))]
            if at == 1:
                # Strip after strip, so that what is written lies side by side.
                loops = [loops[1], loops[0], loops[2]]
            value = substitute(value, {side: strips * panel.strip + column})
            indices[1 - panel.deep] = strips
        body = BufferStore(panel.buffer, value, panel.place(indices, column))
        return self.kernel.elementwise(loops, body)

    def once(self, panel: Panel, loop: For | None) -> None:
        """Fill a panel before any block begins, by all cores."""
        self.buffers.append(panel.buffer)
        turns = (
            [] if loop is None or panel.turn is None else [(loop.loop_var, loop.min, as_int(loop.extent, "an extent"))]
        )
        body = self.fill(panel)
        every = [*panel.outer, *turns]
        number = Var("part", "int32")
        rest: Any = number
        for position, (var, start, extent) in enumerate(reversed(every)):
            digit = rest if position == len(every) - 1 else rest % extent
            body = substitute(body, {var: start + digit.astype(var.dtype)})
            rest = rest // extent
        total = const(math.prod(e for _, _, e in every), "int32")
        self.fills.append(For(number, const(0, "int32"), total, ForKind.PARALLEL, body))

    def load(self, panel: Panel) -> tuple[list[Var], Any]:
        """(names, element): what stands for the tile's element at two places."""
        names = [Var(n, v.dtype) for n, v in zip("xy", panel.nest.variables, strict=True)]
        return names, BufferLoad(panel.buffer, panel.place(names))

    # -- several turns as one

    def fused(self, nests: dict[int, Nest], every: Sequence[Nest | None], loop: For) -> Stmt | None:
        """The loop over what is left of it, several turns together; None where it does more than products.

        ``nests`` are the operators left, ``every`` all that there were.
        """
        if not isinstance(loop.extent, IntImm):
            return None
        products = [n for n in nests.values() if n.op == "gemm"]
        results = [product_of(n).c for n in products]
        if not products or len(set(results)) < len(results) or any(product_of(n).clear for n in products):
            return None
        count, depth = as_int(loop.extent, "an extent"), max(product_of(n).depth for n in products)
        chunks = max(1, round(count * depth / _DEPTH))
        turns = -(-count // chunks)
        copies: dict[Buffer, Panel] = {}
        for position, nest in nests.items():
            if nest.op == "gemm":
                continue
            users = self._users(every, position)
            if users is None:
                return None
            copies[nest.store.buffer] = self._panel(nest, users, (), loop, turns, "turns")
        terms = []
        for n in products:
            p = product_of(n)
            whole = self._linear(p, loop.loop_var, copies)
            if whole is None:
                return None
            terms.append((whole, self._tile(p)))
        self.kernel.extra.extend(p.buffer for p in copies.values())
        made = []
        full, rest = count // turns, count % turns
        first, step = loop.min, Var(loop.loop_var.name, loop.loop_var.dtype)
        if full:
            body = self._chunk(first + step * turns, turns, terms, copies, loop)
            made.append(serial_loops([(step, full)], body))
        if rest:
            made.append(renew_defs(self._chunk(first + full * turns, rest, terms, copies, loop)))
        return seq(made)

    def _linear(self, p: Product, var: Var, copies: dict[Buffer, Panel]) -> Product | None:
        """The product on panels, if its operands lie in one line over the turns of a loop."""
        made = self.kernel.sources(p, {b: self.load(replace(c, turn=None)) for b, c in copies.items()})
        panels = {c.buffer for c in copies.values()}
        for load in (made.a, made.b):
            for index in load.indices if load.buffer not in panels else ():
                along, within = coefficient(index, var), coefficient(index, p.k)
                if along is None or within is None or along != within * p.depth:
                    return None
        return None if any(coefficient(i, var) != 0 for i in made.store.indices) else made

    def _chunk(self, base: PrimExpr, turns: int, products: Any, copies: dict[Buffer, Panel], loop: For) -> Stmt:
        made = []
        for panel in copies.values():
            slot = Var("turn", loop.loop_var.dtype)
            filled = self.fill(replace(panel, turn=(slot, const(0, slot.dtype))))
            filled = substitute(filled, {loop.loop_var: base + slot})
            made.append(serial_loops([(slot, turns)], filled))
        for p, tile in products:
            whole = replace(p, depth=p.depth * turns, store=substitute(p.store, {loop.loop_var: base}))
            made.extend(product_loops(whole, tile))
        return seq(made)


class Replace(Mutator):
    """Single loads replaced by other ones."""

    def __init__(self, loads: Mapping[BufferLoad, PrimExpr]) -> None:
        super().__init__()
        self.loads = loads

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return self.loads[node] if node in self.loads else self.default_visit(node)
