"""From accumulators to the result: each thread's elements, through any element-wise function, stored under a predicate.

Of 64 rows and ``8 * n`` columns a thread holds four elements for each j below n, placed as ``tensor_intrin/mma_fragments.py``
says. They go to global memory straight away, or, where bulk copies can reach the result, through swizzled tiles of 64
rows in shared memory that one thread sends off while the warpgroup fills the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....arith.build import as_int
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import post_order_visit
from ....ir.node import Node
from ....ir.prim import IntImm, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import BufferStore, For, ForKind, Stmt
from ...tensor_intrin.mma_fragments import first_result
from ..base import StmtExprMutator, call, seq
from .statements import address, do, in_role, let, loop, when
from .operand import TensorMapPlan, plan_map
from .tiles import TileProgram, linear_access

__all__ = ["BulkEpilogue", "DirectEpilogue", "Place", "bulk_epilogue"]

_ROWS = 64
_WARPGROUP = 128
_UNIT = 16
_WIDTHS = (128, 64, 32)
_FIRST_BARRIER = 1


@dataclass(frozen=True)
class Place:
    """Context of an epilogue: the thread, its warpgroup among the consumers, memory, the tile's coordinates, and the
    block's rank where several share a tile."""

    thread: Var
    group: Any
    results: Any
    shared: Any
    views: dict[str, Any]
    begin: int
    bases: dict[Var, Any]
    rank: Any = 0


class _TakeResult(StmtExprMutator):
    """Reads of the product's result become reads of a thread's registers."""

    def __init__(self, result: Buffer, held: PrimExpr) -> None:
        self.result = result
        self.held = held

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self.held if load.buffer is self.result else self.default_visit(load)


def _other_loads(program: TileProgram) -> list[BufferLoad]:
    found: list[BufferLoad] = []

    def look(node: Node) -> None:
        if isinstance(node, BufferLoad) and node.buffer is not program.result:
            found.append(node)

    post_order_visit(program.epilogue.value, look)
    return found


def _even(program: TileProgram, load: BufferLoad, predicate: PrimExpr | None) -> bool:
    """Whether two neighbours in a row from an even column on lie side by side, aligned; or are the same element."""
    access = linear_access(program, load, predicate)
    if access is None:
        return False
    strides, analyzer = dict(access.strides), Analyzer()
    own = strides.pop(program.roles.column, None)
    if own is None:
        return True
    if as_int(own) != 1:
        return False
    extent = access.extents[program.roles.column]
    return all(analyzer.can_prove_equal(e % 2, IntImm(e.dtype, 0)) for e in (*strides.values(), access.base, extent))


class DirectEpilogue:
    """Registers straight to global memory, two neighbours in a row together where nothing comes between them."""

    maps: tuple[TensorMapPlan, ...] = ()
    shared_bytes = 0
    view_types: frozenset[str] = frozenset()

    def __init__(self, program: TileProgram, rows: int) -> None:
        self.p = program
        self.rows = rows
        e = program.epilogue
        together = [linear_access(program, BufferLoad(e.target, e.indices), e.predicate) is not None]
        together += [_even(program, BufferLoad(e.target, e.indices), e.predicate)]
        together += [_even(program, load, None) for load in _other_loads(program)]
        self.pairs = all(together)

    def after(self, place_thread: Var) -> list[Stmt]:
        """Statements of a consumer after its last tile."""
        return []

    def emit(self, at: Place) -> Stmt:
        """The stores of one tile."""
        n = self.p.shape[1]

        def stores(row: Var, column: Var) -> Stmt:
            # Serial here; the code generator unrolls loops that index registers.
            return loop("tall", self.rows // _ROWS, lambda tall: loop("j", n // 8, lambda j: loop("h", 2, lambda h: (
                self._pair(at, row + (tall * _ROWS + h * 8), column + j * 8, tall * (n // 2) + j * 4 + h * 2)
            ))))  # fmt: skip

        return self._with_coordinates(at, stores)

    def _with_coordinates(self, at: Place, body: Callable[[Var, Var], Stmt]) -> Stmt:
        """The first row and column of a thread in the result."""
        r = self.p.roles
        of_warp, of_lane, column = first_result(at.thread)
        row = at.group * self.rows + of_warp + of_lane
        return let("row", at.bases[r.row] + in_role(row, r.row), lambda row0: let(
            "column", at.bases[r.column] + in_role(column, r.column), lambda column0: body(row0, column0)
        ))  # fmt: skip

    def _element(self, at: Place, row: PrimExpr, column: PrimExpr, held: PrimExpr) -> tuple[Any, tuple[Any, ...], Any]:
        """(value, indices, predicate) of one element of the output."""
        e, r = self.p.epilogue, self.p.roles
        roles = {**at.bases, r.row: row, r.column: column}
        value = substitute(_TakeResult(self.p.result, held).visit(e.value), roles)
        predicate = None if e.predicate is None else substitute(e.predicate, roles)
        return value, tuple(substitute(i, roles) for i in e.indices), predicate

    def _pair(self, at: Place, row: PrimExpr, column: PrimExpr, index: PrimExpr) -> Stmt:
        def store(v: PrimExpr) -> tuple[Stmt, Any]:
            value, indices, predicate = self._element(at, row, column + v, BufferLoad(at.results, [index + v]))
            return BufferStore(self.p.epilogue.target, value, indices), predicate

        if self.pairs:
            made = _vectorized(lambda v: store(v)[0])
            predicate = store(IntImm(self.p.roles.column.dtype, 0))[1]
            return made if predicate is None else when(predicate, made)
        both = [store(IntImm("int32", v)) for v in (0, 1)]
        return seq([made if predicate is None else when(predicate, made) for made, predicate in both])


class BulkEpilogue(DirectEpilogue):
    """Through shared memory, 64 rows by up to 128 bytes at a time; two such tiles for each warpgroup."""

    def __init__(self, program: TileProgram, rows: int, plan: TensorMapPlan, width: int) -> None:
        super().__init__(program, rows)
        self.plan = plan
        self.width = width
        self.dtype = program.epilogue.target.dtype
        self.item = dt.bits(self.dtype) // 8
        self.maps = (plan,)
        self.view_types = frozenset({self.dtype})
        self.tile_bytes = _ROWS * plan.swizzle
        self.shared_bytes = 2 * program.warpgroups * self.tile_bytes
        self.pairs = all(_even(program, load, None) for load in _other_loads(program))

    def after(self, place_thread: Var) -> list[Stmt]:
        """The last tiles must have left shared memory before the block ends."""
        return [when((place_thread % _WARPGROUP).equal(0), do("ptx_tma_store_wait", 0, False))]

    def emit(self, at: Place) -> Stmt:
        chunks = self.p.shape[1] // self.width

        def stores(row: Var, column: Var) -> Stmt:
            return loop("tall", self.rows // _ROWS, lambda tall: loop("chunk", chunks, lambda chunk: (
                self._chunk(at, row, column, tall, chunk, tall * chunks + chunk)
            )))  # fmt: skip

        made = self._with_coordinates(at, stores)
        if self.rows // _ROWS * chunks % 2 == 0:
            return made
        # An odd number of tiles in shared memory ends with the one that the next result begins with: waiting for all
        # but the last to have been read would not be enough there.
        return seq([when((at.thread % _WARPGROUP).equal(0), do("ptx_tma_store_wait", 0, True)), made])

    def _chunk(
        self, at: Place, row: PrimExpr, column: PrimExpr, tall: PrimExpr, chunk: PrimExpr, number: PrimExpr
    ) -> Stmt:
        n, r = self.p.shape[1], self.p.roles
        first = (at.thread % _WARPGROUP).equal(0)
        barrier = do("ptx_named_barrier_sync", at.group + _FIRST_BARRIER, _WARPGROUP)
        begin = at.begin + (at.group * 2 + number % 2) * self.tile_bytes
        fill = loop("j", self.width // 8, lambda j: loop("h", 2, lambda h: self._stage(
            at, row + (tall * _ROWS + h * 8), column + (chunk * self.width + j * 8),
            tall * (n // 2) + chunk * (self.width // 2) + j * 4 + h * 2, begin, j, h,
        )))  # fmt: skip
        corner = {
            **at.bases, r.row: at.bases[r.row] + in_role(at.group * self.rows + tall * _ROWS, r.row),
            r.column: at.bases[r.column] + chunk * self.width,
        }  # fmt: skip
        send = do("ptx_tma_store", self.plan.var, address(at.shared, begin), *self.plan.coordinates(corner))
        return seq([
            # The tile filled two turns ago has been read when at most one group is unfinished.
            when(first, do("ptx_tma_store_wait", 1, True)),
            barrier,
            fill,
            do("ptx_fence_proxy_async"),
            barrier,
            when(first, send, do("ptx_tma_store_commit")),
        ])  # fmt: skip

    def _stage(
        self, at: Place, row: PrimExpr, column: PrimExpr, index: PrimExpr, begin: PrimExpr, j: PrimExpr, h: PrimExpr
    ) -> Stmt:
        """Two elements into the tile, at the place that its swizzle gives them."""
        view = at.views[self.dtype]
        of_warp, of_lane, column_of_lane = first_result(at.thread)
        line, inside = of_warp + of_lane + h * 8, column_of_lane + j * 8
        units = self.plan.swizzle // _UNIT
        unit = call("int32", "bitwise_xor", inside * self.item // _UNIT, line // (128 // self.plan.swizzle) % units)
        where = (begin + line * self.plan.swizzle + unit * _UNIT + inside * self.item % _UNIT) // self.item

        def store(v: PrimExpr) -> Stmt:
            value, _, predicate = self._element(at, row, column + v, BufferLoad(at.results, [index + v]))
            made: Stmt = BufferStore(view, value, [where + v])
            # What lies beyond the result is not sent, but its other inputs must not be read either.
            guarded = predicate is not None and not self.pairs and bool(_other_loads(self.p))
            return when(predicate, made) if guarded else made

        if not self.pairs:
            return seq([store(IntImm("int32", v)) for v in (0, 1)])
        made = _vectorized(store)
        predicate = self._element(at, row, column, at.results[0])[2]
        return when(predicate, made) if predicate is not None and _other_loads(self.p) else made


def _vectorized(body: Callable[[Any], Stmt]) -> Stmt:
    v = Var("v", "int32")
    return For(v, 0, 2, ForKind.VECTORIZED, body(v))


def bulk_epilogue(program: TileProgram, rows: int) -> BulkEpilogue | None:
    """The epilogue by bulk copies, where they can reach the result."""
    e, r = program.epilogue, program.roles
    access = linear_access(program, BufferLoad(e.target, e.indices), e.predicate)
    if access is None:
        return None
    item = dt.bits(e.target.dtype) // 8
    for swizzle in _WIDTHS:
        width = swizzle // item
        if program.shape[1] % width == 0 and width % 8 == 0:
            plan = plan_map(f"{e.target.name}_map", program, access, r.column, r.row, (width, _ROWS), swizzle)
            return None if plan is None else BulkEpilogue(program, rows, plan, width)
    return None
