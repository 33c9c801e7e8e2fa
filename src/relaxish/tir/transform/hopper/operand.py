"""Copies of an operand's tiles to shared memory: bulk tensor copies, or copies by the producer's threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....arith.build import as_int
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Call, IntImm, Var, const
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Allocate, BufferStore, DeclBuffer, Evaluate, For, ForKind, SeqStmt, Stmt
from ..base import call, is_call
from .statements import address, as_int32, do, in_role, loop, pointer, typed_view
from .layout import TileLayout, tile_layout
from .tiles import Elementwise, HopperError, LinearAccess, TileProgram, flat_offset, linear_access

__all__ = ["Operand", "TensorMapPlan", "plan_map", "plan_operand"]

_PRODUCERS = 128
_UNIT = 16
_MAX_RANK = 5
_PROMOTION = 256
"""Bytes that a copy has the second-level cache fetch at least."""


@dataclass(frozen=True)
class TensorMapPlan:
    """A tensor map that the host encodes: the roles that its dimensions stand for, innermost first."""

    var: Var
    access: LinearAccess
    roles: tuple[Var, ...]
    box: tuple[int, ...]
    swizzle: int

    def encode(self) -> Call:
        """The host's call."""
        strides = dict(self.access.strides)
        item = dt.bits(self.access.buffer.dtype) // 8
        sizes = [self.access.extents[r] for r in self.roles]
        sizes[0] = sizes[0] + self.access.base
        return call(
            "handle", "tensor_map_encode", self.access.buffer.data, self.access.buffer.dtype, len(self.roles), *sizes,
            *[strides[r] * item for r in self.roles[1:]], *self.box, *[1] * (len(self.roles) - len(self.box)),
            self.swizzle, 0, _PROMOTION,
        )  # fmt: skip

    def coordinates(self, first: dict[Var, Any]) -> list[Any]:
        """The first element of a box, from the coordinates of the product."""
        found = [as_int32(first[r]) for r in self.roles]
        found[0] = found[0] + as_int32(self.access.base)
        return found


def plan_map(
    name: str, program: TileProgram, access: LinearAccess, inner: Var, second: Var, box: tuple[int, int], swizzle: int
) -> TensorMapPlan | None:
    """The map whose box spans ``inner`` (contiguous) and ``second``; None where bulk copies cannot go there.

    They need strides of multiples of 16 bytes and a start that is aligned so, too: a constant offset goes into the
    innermost coordinate instead.
    """
    strides = dict(access.strides)
    batch = [r for r in program.roles.batch if r in strides]
    if second not in strides or set(strides) != {inner, second, *batch} or len(strides) > _MAX_RANK:
        return None
    if not isinstance(access.base, IntImm) or access.base.value < 0 or access.buffer.scope() != "global":
        return None
    item, analyzer = dt.bits(access.buffer.dtype) // 8, Analyzer()
    for role, stride in strides.items():
        one = as_int(stride) == 1
        if one is not (role is inner):
            return None
        if role is not inner and not analyzer.can_prove_equal(stride * item % _UNIT, IntImm(stride.dtype, 0)):
            return None
    if not same_expression(access.buffer.elem_offset, IntImm(access.buffer.elem_offset.dtype, 0)):
        return None
    return TensorMapPlan(pointer(name, "uint8", "tensor_map"), access, (inner, second, *batch), box, swizzle)


@dataclass(frozen=True)
class Operand:
    """One operand: its layout in shared memory and, where bulk copies can bring it, its tensor map."""

    program: TileProgram
    row: Var
    layout: TileLayout
    value: Any
    map: TensorMapPlan | None
    shares: int = 1
    """How many blocks of a cluster fetch a part of the tile each, for all of them."""

    def bulk_loads(
        self,
        shared: Buffer,
        begin: PrimExpr,
        barrier: PrimExpr,
        first: dict[Var, Any],
        rank: PrimExpr | int = 0,
        mask: PrimExpr | int = 0,
    ) -> list[Stmt]:
        """Copies of a tile, by one thread; ``begin`` is the tile's first byte.

        Of several blocks that share the tile this one is number ``rank``; ``mask`` has the bits of all of them.
        """
        assert self.map is not None
        lay, made = self.layout, []
        along, across = self._along, self._across
        lines = lay.lines // self.shares
        skipped: Any = rank * lines if self.shares > 1 else 0
        for piece in range(lay.pieces):
            place = {**first, along: first[along] + piece * lay.width}
            if self.shares > 1:
                place[across] = place[across] + in_role(skipped, across)
            target = address(shared, begin + piece * lay.piece_bytes + skipped * lay.swizzle)
            to = mask if self.shares > 1 else 0
            made.append(do("ptx_tma_load", target, self.map.var, barrier, to, *self.map.coordinates(place)))
        return made

    def thread_copies(self, shared: Buffer, begin: PrimExpr, thread: PrimExpr, first: dict[Var, Any]) -> Stmt:
        """Copies of a tile by 128 threads, 16 bytes at a time; ``shared`` is a view in the operand's type."""
        lay = self.layout
        vector = _UNIT // lay.item
        line_units = (lay.rows if lay.by_rows else lay.depth) // vector
        units = lay.bytes // _UNIT
        mask = lay.swizzle // _UNIT - 1
        # Address bits 7.. in terms of the line: a line of 128 bytes counts every one, of 64 every other.
        per_line = 128 // lay.swizzle
        whole = self.asynchronous

        def unit(turn: PrimExpr) -> Stmt:
            number = turn * _PRODUCERS + thread
            line, along = number // line_units, number % line_units
            piece, column = along // (lay.swizzle // _UNIT), along % (lay.swizzle // _UNIT)
            permuted = call("int32", "bitwise_xor", column, line // per_line % (mask + 1))
            target = (begin + piece * lay.piece_bytes + line * lay.swizzle + permuted * _UNIT) // lay.item
            row, depth = (along * vector, line) if lay.by_rows else (line, along * vector)
            roles = {
                **first, self.row: first[self.row] + row,
                self.program.roles.depth: first[self.program.roles.depth] + depth,
            }  # fmt: skip
            return self._vector(shared, target, vector, roles) if whole else self._gather(shared, target, vector, roles)

        turns = -(-units // _PRODUCERS)
        if units % _PRODUCERS:
            raise HopperError("a tile is no whole number of 16-byte units for each producing thread")
        return loop("turn", turns, unit)

    @property
    def asynchronous(self) -> bool:
        """Whether threads need not wait for what they copy: 16 bytes that lie together in global memory, too."""
        return self.map is None and self._contiguous(_UNIT // self.layout.item)

    @property
    def _along(self) -> Var:
        """The role along which a unit of 16 bytes lies."""
        return self.row if self.layout.by_rows else self.program.roles.depth

    @property
    def _across(self) -> Var:
        """The role along which rows of a piece follow each other."""
        return self.program.roles.depth if self.layout.by_rows else self.row

    def _contiguous(self, vector: int) -> bool:
        """Whether the elements of a unit lie side by side in global memory, aligned, under one condition."""
        condition, load = _guarded(self.value)
        if load is None:
            return False
        along, program = self._along, self.program
        q, v = Var("q", along.dtype), Var("v", along.dtype)
        analyzer = Analyzer()
        analyzer.bind(v, Range(0, vector))
        analyzer.bind(q, Range(0, -(-program.extents[along] // vector)))
        for role, extent in program.extents.items():
            if role is not along:
                analyzer.bind(role, Range(0, extent))
        offset = flat_offset(load)
        if offset is None:
            return False
        here, next_to = (analyzer.simplify(substitute(offset, {along: q * vector + step})) for step in (0, v))
        side_by_side = analyzer.can_prove_equal(next_to - here, v)
        aligned = analyzer.can_prove_equal(here % vector, IntImm(here.dtype, 0))
        if condition is None:
            return side_by_side and aligned
        first, other = (analyzer.simplify(substitute(condition, {along: q * vector + step})) for step in (0, v))
        return side_by_side and aligned and same_expression(first, other)

    def _vector(self, shared: Buffer, target: PrimExpr, vector: int, roles: dict[Var, Any]) -> Stmt:
        """Start a copy of 16 bytes; zeros where the condition does not hold. ``shared`` is memory in bytes."""
        condition, load = _guarded(self.value)
        assert load is not None
        source = flat_offset(substitute(load, roles))
        args = [
            shared.data,
            target * self.layout.item,
            load.buffer.data,
            source,
            IntImm("int32", vector * self.layout.item),
        ]
        if condition is not None:
            args.append(substitute(condition, roles))
        return Evaluate(call(self.layout.dtype, "ptx_cp_async", *args))

    def _gather(self, shared: Buffer, target: PrimExpr, vector: int, roles: dict[Var, Any]) -> Stmt:
        along = self._along

        def element(v: PrimExpr) -> Stmt:
            at = {**roles, along: roles[along] + in_role(v, along)}
            return BufferStore(staged, substitute(self.value, at), [v])

        staged = typed_view("staged", pointer("staged", self.layout.dtype, "local"), self.layout.dtype, vector, "local")
        lane = Var("lane", "int32")
        store = For(lane, 0, vector, ForKind.VECTORIZED, BufferStore(shared, staged[lane], [target + lane]))
        # Serial here; the code generator unrolls loops that index registers.
        body = SeqStmt([loop("v", vector, element), store])
        return Allocate(
            staged.data, staged.dtype, [IntImm("int32", vector)], const(True, "bool"), DeclBuffer(staged, body)
        )


def _guarded(value: PrimExpr) -> tuple[Any, BufferLoad | None]:
    """(condition, load) of an element that is zero where the condition does not hold; None for other values."""
    if is_call(value, "if_then_else"):
        condition, load, other = value.args
        if getattr(other, "value", None) == 0 and isinstance(load, BufferLoad):
            return condition, load
        return None, None
    return None, value if isinstance(value, BufferLoad) else None


def plan_operand(name: str, program: TileProgram, source: Elementwise, row: Var, shares: int = 1) -> Operand:
    """Plan of one operand's way to shared memory; ``shares`` blocks of a cluster fetch its tiles together if they can
    be divided so.

    Raises HopperError where its tile has no layout.
    """
    rows, depth = program.sizes[row], program.sizes[program.roles.depth]
    dtype = source.target.dtype
    access = linear_access(program, source.value)
    strides = dict(access.strides) if access is not None else {}
    by_rows = as_int(strides.get(row)) == 1 and as_int(strides.get(program.roles.depth)) != 1
    if by_rows and dt.bits(dtype) != 16:
        by_rows = False
    layout = tile_layout(rows, depth, dtype, by_rows)
    plan = None
    if access is not None and access.buffer.dtype == dtype:
        inner, second = (row, program.roles.depth) if by_rows else (program.roles.depth, row)
        if layout.lines % (8 * shares):
            shares = 1  # parts must begin where the swizzle does
        box = (layout.width, layout.lines // shares)
        plan = plan_map(f"{name}_map", program, access, inner, second, box, layout.swizzle)
    return Operand(program, row, layout, source.value, plan, shares if plan is not None else 1)
