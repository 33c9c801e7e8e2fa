"""A tile program as a kernel for Hopper: one warpgroup brings tiles, the others multiply.

Shared memory holds ``stages`` pairs of operand tiles in a ring. Two barriers belong to each stage: *full* completes
when a pair has arrived, *empty* when every consuming warp has read it. Step ``i`` (counted over all tiles of a block)
uses stage ``i % stages`` for the ``i // stages``-th time, and the parity of that number tells a barrier's phases
apart; a producer's first wait for *empty* is for the phase before the first, which counts as complete.

Consumers keep one group of products in flight: they release the stage before the one they just issued. Every warp
releases for itself, since waiting for products covers the waiting warp alone.
"""

from __future__ import annotations

from collections.abc import Callable
import math
from dataclasses import dataclass
from typing import Any

from ....arith.functor import uses_var
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import And, Cast, IntImm, Min, Or, Var, const
from ...buffer import Buffer
from ...functor import substitute
from ...stmt import AttrStmt, DeclBuffer, Evaluate, IfThenElse, LetStmt, Stmt
from ..base import call, seq
from .statements import address, allocate, as_int32, do, in_role, launch, let, lets, loop, typed_view, when
from .epilogue import DirectEpilogue, Place, bulk_epilogue
from .layout import DEPTH_BYTES
from .operand import Operand, plan_operand
from .split import SplitEpilogue, meet_cluster
from .tiles import CLUSTER, CLUSTER_COLUMNS, EPILOGUE, GROUP, PERSISTENT, SPLIT, HopperError, TileProgram

__all__ = ["AT_LAUNCH", "BESIDE_RESULTS", "EXPLICIT_SYNC", "MAX_SHARED", "MOST_RESULTS", "build_kernel"]

EXPLICIT_SYNC = "explicit_sync"
"""Attribute around a kernel that orders its own accesses to shared memory."""
MAX_SHARED = 227 * 1024
_ALIGN = 1024
_DIRECT = 1
_MAX_TEAM = 8
_MOST_UNDER_WAY = 6
_WARPGROUP = 128
_INPUTS = {
    "float16": ("float16", "float32"), "bfloat16": ("float32",), "int8": ("int32",), "uint8": ("int32",),
    "float8_e4m3fn": ("float32", "float16"), "float8_e5m2": ("float32", "float16"),
}  # fmt: skip
# Consuming warpgroups -> registers of (a producing thread by bulk copies, one that copies itself): consumer's registers.
# A block gets its registers at launch: 65,536 divided by its threads, down to a multiple of 8 (168 each for 384 threads,
# 128 for 512), because the launch bounds say that one block is on a processor. What producers give back is all that
# consumers can get: an increase beyond that waits for ever. So each row sums to no more than the launch gave.
_REGISTERS = {2: ((40, 232), (72, 216)), 3: ((32, 160), (56, 152))}
AT_LAUNCH = {1: 255, 2: 168, 3: 128}
# Most results of a consuming thread; the rest is for addresses and what the write-back needs.
MOST_RESULTS = {1: 200, 2: 200, 3: 128}
# One instruction must fit what a thread is launched with, whatever it gets later: the assembler refuses 256 columns of
# float32 for fewer than 154 registers.
BESIDE_RESULTS = 26


@dataclass(frozen=True)
class _Memory:
    """Byte offsets in shared memory."""

    a: int
    b: int
    stage: int
    epilogue: int
    barriers: int
    total: int


def build_kernel(program: TileProgram) -> Stmt:
    """The host's tensor maps around the kernel. Raises HopperError."""
    return _Kernel(program).build()


class _Kernel:
    def __init__(self, program: TileProgram) -> None:
        self.p = program
        r = program.roles
        self.split = self._wanted_split()
        down, across = self._wanted_cluster()
        self.a: Operand = plan_operand("A", program, program.a, r.row, across)
        self.b: Operand = plan_operand("B", program, program.b, r.column, down)
        # Blocks one below the other share the columns of B, blocks side by side the rows of A.
        self.down, self.across = self.b.shares, self.a.shares
        self.cluster = self.down * self.across
        self._check()
        self.rows = program.shape[0] // program.warpgroups
        self.epilogue: DirectEpilogue = self._choose_epilogue()
        self.memory = self._plan_memory()
        self.bulk = [o for o in (self.a, self.b) if o.map is not None]
        self.threaded = [o for o in (self.a, self.b) if o.map is None]
        # Threads that copy without waiting say that a stage is full as many steps later as copies may be under way. The
        # consumers release a stage when they have issued the products of the next: that one must be full by then.
        self.late = any(o.asynchronous for o in self.threaded)
        self.lag = min(program.stages - 2, _MOST_UNDER_WAY) if self.late else 0
        self.persistent = program.options.get(PERSISTENT, 0)
        if self.persistent < self.cluster or self.split > 1:
            self.persistent = 0
        # Blocks of a cluster: they share operands, or the depth of a tile.
        self.team = max(self.cluster, self.split)

    def _wanted_split(self) -> int:
        """Blocks that share the depth of a tile."""
        wanted, steps = self.p.options.get(SPLIT, 1), self.p.steps
        if wanted > 1 and (not isinstance(steps, IntImm) or wanted > min(_MAX_TEAM, steps.value)):
            raise HopperError(f"a depth of {steps} steps cannot be shared by {wanted} blocks")
        return wanted

    def _before(self, rank: PrimExpr) -> PrimExpr:
        """Steps of the depth that blocks of lower rank take."""
        return rank * as_int32(self.p.steps) // self.split

    def _turns(self, bx: Var) -> PrimExpr:
        """Steps of the depth that this block takes."""
        if self.split == 1:
            return self.p.steps
        if self.p.steps.value % self.split == 0:
            return self.p.steps // self.split
        rank = bx % self.split
        return self._before(rank + 1) - self._before(rank)

    def _wanted_cluster(self) -> tuple[int, int]:
        """Blocks that share columns and blocks that share rows, if there are always so many tiles along that side."""
        if self.split > 1:
            return 1, 1
        wanted = [self.p.options.get(key, 1) for key in (CLUSTER, CLUSTER_COLUMNS)]
        if math.prod(wanted) > _MAX_TEAM:
            raise HopperError(f"a cluster of {wanted[0]} x {wanted[1]} blocks is larger than {_MAX_TEAM}")
        axes = [self._axis(role) for role in (self.p.roles.row, self.p.roles.column)]
        if axes[0] is axes[1]:
            return 1, 1
        for at, axis in enumerate(axes):
            tiles = dict(self.p.grid).get(axis) if axis is not None else None
            if not isinstance(tiles, IntImm) or tiles.value % wanted[at]:
                wanted[at] = 1
        return wanted[0], wanted[1]

    def _rank(self, bx: Var) -> tuple[Any, Any]:
        """Which of the blocks one below the other, and of those side by side, a block is."""
        rank = bx % self.cluster
        down = rank if self.across == 1 else rank % self.down if self.down > 1 else 0
        return down, rank // self.down if self.across > 1 else 0

    def _sharing(self, bx: Var) -> dict[int, tuple[Any, Any]]:
        """For each operand: a block's number among those that fetch its tile together, and the bits of all of them."""
        down, across = self._rank(bx)
        of_a: Any = sum(1 << self.down * i for i in range(self.across))
        of_b: Any = (1 << self.down) - 1
        if self.down > 1 and self.across > 1:
            of_a, of_b = call("int32", "shift_left", of_a, down), call("int32", "shift_left", of_b, across * self.down)
        return {id(self.a): (across, of_a), id(self.b): (down, of_b)}

    def _check(self) -> None:
        m, n, k = self.p.shape
        groups = self.p.warpgroups
        a, b, c = self.p.a.target.dtype, self.p.b.target.dtype, self.p.result.dtype
        if not 1 <= groups <= 3 or m % (64 * groups):
            raise HopperError(f"{m} rows cannot be shared by {groups} warpgroups of 64 rows each")
        if n % 8 or not 8 <= n <= 256 or (dt.is_int(c) and n > 24 and n % 16):
            raise HopperError(f"products have no instruction with {n} columns")
        if dt.bits(a) != dt.bits(b) or (a != b and dt.bits(a) == 16) or dt.is_int(a) is not dt.is_int(b):
            if {a, b} - {"int8", "uint8"}:
                raise HopperError(f"products do not mix {a} and {b}")
        if a not in _INPUTS or c not in _INPUTS[a]:
            raise HopperError(f"products of {a} do not sum to {c}")
        if k * dt.bits(a) // 8 % DEPTH_BYTES:
            raise HopperError("the depth of a tile is no multiple of 32 bytes")
        if self.p.stages < 2:
            raise HopperError("a ring has at least two stages")
        results = n // 2 * dt.bits(c) // 32
        if m // groups // 64 * results > MOST_RESULTS[groups] or results + BESIDE_RESULTS > AT_LAUNCH[groups]:
            raise HopperError("the results of a thread do not fit its registers")

    def _choose_epilogue(self) -> DirectEpilogue:
        if self.split > 1:
            made = SplitEpilogue(self.p, self.rows, self.split)
            if made.sum_bytes > self._ring_bytes():
                raise HopperError("a tile's sums do not fit the ring")
            return made
        direct = DirectEpilogue(self.p, self.rows)
        if self.p.options.get(EPILOGUE, 0) == _DIRECT:
            return direct
        bulk = bulk_epilogue(self.p, self.rows)
        needed = self._ring_bytes() + 16 * self.p.stages
        return bulk if bulk is not None and needed + bulk.shared_bytes <= MAX_SHARED else direct

    def _ring_bytes(self) -> int:
        return self.p.stages * sum(-(-o.layout.bytes // _ALIGN) * _ALIGN for o in (self.a, self.b))

    def _plan_memory(self) -> _Memory:
        a, b = (-(-o.layout.bytes // _ALIGN) * _ALIGN for o in (self.a, self.b))
        epilogue = self._ring_bytes()
        barriers = epilogue + self.epilogue.shared_bytes
        total = barriers + 16 * self.p.stages
        if total > MAX_SHARED:
            raise HopperError(f"{total} bytes of shared memory are more than the {MAX_SHARED} a block can have")
        return _Memory(0, a, a + b, epilogue, barriers, total)

    # -- around --------------------------------------------------------------------------------------------------

    def build(self) -> Stmt:
        counts = [as_int32(extent) for _, extent in self.p.grid]
        tiles: Any = const(1, "int32")
        for count in counts:
            tiles = tiles * count
        if self.cluster > 1:
            tiles = tiles // self.cluster
        most = self.persistent // self.cluster
        teams = Min(tiles, const(most, "int32")) if most else tiles
        if isinstance(tiles, IntImm) and most:
            teams = const(min(int(tiles.value), most), "int32")
        threads = const(_WARPGROUP * (self.p.warpgroups + 1), "int32")

        def kernel(bx: Var) -> Stmt:
            def inside(tx: Var) -> Stmt:
                body = self._with_memory(bx, tx, teams, tiles)
                return AttrStmt(const(0, "int32"), "min_blocks_per_sm", const(1, "int32"), body)

            if self.team == 1:
                return launch("threadIdx.x", threads, inside)
            size = const(self.team, "int32")
            return launch("clusterIdx.x", size, lambda _: launch("threadIdx.x", threads, inside))

        body: Stmt = launch("blockIdx.x", teams * self.team if self.team > 1 else teams, kernel)
        body = AttrStmt(const(0, "int32"), EXPLICIT_SYNC, const(1, "int32"), body)
        for plan in [*(o.map for o in self.bulk), *self.epilogue.maps]:
            assert plan is not None
            body = LetStmt(plan.var, plan.encode(), body)
        return body

    def _with_memory(self, bx: Var, tx: Var, blocks: PrimExpr, tiles: PrimExpr) -> Stmt:
        def inside(shared: Buffer) -> Stmt:
            size = self.memory.total
            self.shared = shared
            self.bars = typed_view("barriers", shared.data, "uint64", size // 8, "shared.dyn")
            self.views = {
                t: typed_view(f"{t}_view", shared.data, t, size * 8 // dt.bits(t), "shared.dyn")
                for t in sorted({o.layout.dtype for o in self.threaded} | self.epilogue.view_types)
            }
            body = let("group", call("int32", "ptx_warp_group_index"), lambda group: seq([
                self._start(tx),
                IfThenElse(
                    group.equal(0), self._producer(bx, tx, blocks, tiles), self._consumer(bx, tx, group - 1, blocks, tiles)
                ),
                # No block may leave while another still sends to its memory or arrives at its barriers: those arrivals
                # have come when one is seen that was released behind them.
                *(meet_cluster() if self.team > 1 else []),
            ]))  # fmt: skip
            for view in (self.bars, *self.views.values()):
                body = DeclBuffer(view, body)
            return body

        return allocate("ring", "uint8", self.memory.total, "shared.dyn", inside)

    def _full(self, slot: PrimExpr | int) -> PrimExpr:
        return address(self.bars, self.memory.barriers // 8 + slot)

    def _empty(self, slot: PrimExpr | int) -> PrimExpr:
        return address(self.bars, self.memory.barriers // 8 + self.p.stages + slot)

    def _start(self, tx: Var) -> Stmt:
        """One thread makes the barriers; all see them before they go on."""
        arrivals = (1 if self.bulk else 0) + (_WARPGROUP if self.threaded else 0)
        made = []
        for slot in range(self.p.stages):
            made.append(do("ptx_mbarrier_init", self._full(slot), arrivals))
            # A tile may be filled anew when the warps of all blocks have read it that a block sends to.
            readers = 4 * self.p.warpgroups * (self.down + self.across - 1)
            made.append(do("ptx_mbarrier_init", self._empty(slot), readers))
        fetched = [do("ptx_tma_prefetch", o.map.var) for o in self.bulk if o.map is not None]
        # What the threads of the cluster must see is published by the fences.
        barrier = (
            meet_cluster(publish=False) if self.cluster > 1 else [Evaluate(call("int32", "tvm_storage_sync", "shared"))]
        )
        # The first fence is for the cluster, the second for copies, which complete bytes by another path to memory.
        fences = [do("ptx_fence_mbarrier_init"), do("ptx_fence_proxy_async")]
        return seq([when(tx.equal(0), *fetched, *made, *fences), *barrier])

    # -- tiles of a block -------------------------------------------------------------------------------------------

    def _for_tiles(
        self, bx: Var, blocks: PrimExpr, tiles: PrimExpr, body: Callable[[dict[Var, PrimExpr], PrimExpr], Stmt]
    ) -> Stmt:
        """``body(bases, steps before)`` for every tile of this block."""
        steps = as_int32(self.p.steps)

        def tile(turn: PrimExpr) -> Stmt:
            fresh = {v: Var(v.name, v.dtype) for v, _ in self.p.grid}
            number = (bx // self.team if self.team > 1 else bx) + turn * blocks
            bases = {r: substitute(e, fresh) for r, e in self.p.bases.items()}
            pairs = [(fresh[v], e if e.dtype == v.dtype else Cast(v.dtype, e)) for v, e in self._place(number, bx)]
            return lets(pairs, body(bases, turn * steps))

        turns = self._tile_count(bx, blocks, tiles)
        return tile(const(0, "int32")) if isinstance(turns, IntImm) else loop("turn", turns, tile)

    def _tile_count(self, bx: Var, blocks: PrimExpr, tiles: PrimExpr) -> PrimExpr:
        """Tiles of this block."""
        if not self.persistent or (isinstance(tiles, IntImm) and tiles.value <= self.persistent // self.cluster):
            return const(1, "int32")
        team = bx // self.cluster if self.cluster > 1 else bx
        return (tiles - team + blocks - 1) // blocks

    def _place(self, number: PrimExpr, bx: Var) -> list[tuple[Var, Any]]:
        """The block variables of a tile; blocks of a cluster have tiles one below the other and side by side."""
        counts = [(v, as_int32(e)) for v, e in self.p.grid]
        if self.cluster == 1:
            return self._walk(number, counts)
        row, column = (self._axis(role) for role in (self.p.roles.row, self.p.roles.column))
        many = {row: self.down, column: self.across}
        ranks = dict(zip((row, column), self._rank(bx), strict=True))
        found = self._walk(number, [(v, e // many.get(v, 1)) for v, e in counts])
        return [(v, e * many[v] + ranks[v] if many.get(v, 1) > 1 else e) for v, e in found]

    def _walk(self, number: PrimExpr, axes: list[tuple[Var, Any]]) -> list[tuple[Var, Any]]:
        """The block variables of a tile's number; tiles that share operands follow each other."""
        row, column = (self._axis(r) for r in (self.p.roles.row, self.p.roles.column))
        group = self.p.options.get(GROUP, 0)
        others = [(v, e) for v, e in axes if v is not row and v is not column]
        if row is None or column is None or row is column or group <= 1:
            return _digits(number, axes)
        counts = dict(axes)
        plane = counts[row] * counts[column]
        within, batch = number % plane, number // plane
        band, inside = within // (group * counts[column]), within % (group * counts[column])
        height = Min(counts[row] - band * group, const(group, "int32"))
        return [*_digits(batch, others), (row, band * group + inside % height), (column, inside // height)]

    def _axis(self, role: Var) -> Var | None:
        found = [v for v, _ in self.p.grid if uses_var(self.p.bases[role], v)]
        return found[0] if len(found) == 1 else None

    # -- producer -----------------------------------------------------------------------------------------------------

    def _producer(self, bx: Var, tx: Var, blocks: PrimExpr, tiles: PrimExpr) -> Stmt:
        def step(bases: dict[Var, Any], before: PrimExpr) -> Stmt:
            return loop("ko", self._turns(bx), lambda ko: let(
                "step", before + as_int32(ko), lambda i: self._bring(bx, tx, bases, self._depth(bx, ko), i)
            ))  # fmt: skip

        work = self._for_tiles(bx, blocks, tiles, step)
        if not self.threaded:
            work = when(tx.equal(0), work)
        return seq(
            [
                *self._registers(0),
                work,
                *self._arrivals_left(bx, blocks, tiles),
                *(meet_cluster() if self.split > 1 else []),
            ]
        )

    def _depth(self, bx: Var, ko: PrimExpr) -> PrimExpr:
        """The step of the whole depth that a step of this block is."""
        return ko if self.split == 1 else in_role(as_int32(ko) + self._before(bx % self.split), self.p.depth_loop)

    def _registers(self, consumer: int) -> list[Stmt]:
        known = _REGISTERS.get(self.p.warpgroups)
        if known is None:
            return []
        return [do("ptx_setmaxnreg", known[bool(self.threaded)][consumer], bool(consumer))]

    def _bring(self, bx: Var, tx: Var, bases: dict[Var, Any], ko: PrimExpr, i: PrimExpr) -> Stmt:
        slot, turn = i % self.p.stages, i // self.p.stages
        first = {r: substitute(e, {self.p.depth_loop: ko}) for r, e in bases.items()}
        begins = {id(o): slot * self.memory.stage + at for o, at in ((self.a, self.memory.a), (self.b, self.memory.b))}
        bulk: list[Stmt] = []
        if self.bulk:
            bulk.append(do("ptx_mbarrier_arrive_expect_tx", self._full(slot), sum(o.layout.bytes for o in self.bulk)))
            sharing = self._sharing(bx)
            for o in self.bulk:
                bulk += o.bulk_loads(self.shared, begins[id(o)], self._full(slot), first, *sharing[id(o)])
        wait = do("ptx_mbarrier_wait_parity", self._empty(slot), (turn + 1) % 2)
        if not self.threaded:
            return seq([wait, *bulk])
        copies = [
            o.thread_copies(self.shared if o.asynchronous else self.views[o.layout.dtype], begins[id(o)], tx, first)
            for o in self.threaded
        ]
        one = [when(tx.equal(0), *bulk)] if bulk else []
        if self.lag:
            copies.append(self._copies("ptx_commit_group"))
            copies.append(when(i >= self.lag, *self._arrive_behind(self.lag, i - self.lag)))
            return seq([wait, *one, *copies])
        if self.late:
            copies.append(self._copies("ptx_commit_group"))
        return seq([wait, *one, *copies, *self._arrive_behind(0, i)])

    def _arrive_behind(self, under_way: int, i: PrimExpr) -> list[Stmt]:
        """All copies but those of the last steps have arrived: step ``i`` is full."""
        waiting = [self._copies("ptx_wait_group", IntImm("int32", under_way))] if self.late else []
        # Products read through another path to shared memory than stores write: each storing thread says so.
        return [*waiting, do("ptx_fence_proxy_async"), do("ptx_mbarrier_arrive", self._full(i % self.p.stages))]

    @staticmethod
    def _copies(name: str, *args: Any) -> Stmt:
        return Evaluate(call("", name, *args))

    def _arrivals_left(self, bx: Var, blocks: PrimExpr, tiles: PrimExpr) -> list[Stmt]:
        """After the last step: those that the arrivals of a block lag behind."""
        if not self.lag:
            return []
        total = self._tile_count(bx, blocks, tiles) * as_int32(self._turns(bx))
        left = range(self.lag - 1, -1, -1)
        return [when(total > under_way, *self._arrive_behind(under_way, total - 1 - under_way)) for under_way in left]

    # -- consumers -----------------------------------------------------------------------------------------------------

    def _consumer(self, bx: Var, tx: Var, group: PrimExpr, blocks: PrimExpr, tiles: PrimExpr) -> Stmt:
        tall, n = self.rows // 64, self.p.shape[1]

        def run(results: Buffer) -> Stmt:
            def tile(bases: dict[Var, Any], before: PrimExpr) -> Stmt:
                steps = as_int32(self._turns(bx))
                multiply = loop("ko", self._turns(bx), lambda ko: let(
                    "step", before + as_int32(ko), lambda i: self._step(bx, tx, group, results, ko, i)
                ))  # fmt: skip
                last = (before + steps - 1) % self.p.stages
                ends = {r: e for r, e in bases.items() if r is not self.p.roles.depth}
                return seq([
                    multiply,
                    do("ptx_wgmma_wait", 0),
                    # The compiler sees no tie between the wait and the registers that it is for.
                    do("ptx_wgmma_fence_operand", results.data, 0, tall * n // 2),
                    self._release(bx, tx, last),
                    self.epilogue.emit(Place(
                        tx, group, results, self.shared, self.views, self.memory.epilogue, ends, bx % self.split
                    )),
                ])  # fmt: skip

            return seq([self._for_tiles(bx, blocks, tiles, tile), *self.epilogue.after(tx)])

        return seq([*self._registers(1), allocate("results", self.p.result.dtype, tall * n // 2, "local", run)])

    def _release(self, bx: Var, tx: Var, slot: PrimExpr) -> Stmt:
        """A warp has read a stage: one lane says so for all, to each block that sends to this one."""
        together = Evaluate(call("int32", "tvm_storage_sync", "warp"))
        if self.cluster == 1:
            return seq([together, when((tx % 32).equal(0), do("ptx_mbarrier_arrive", self._empty(slot)))])
        lane, (down, across) = tx % 32, self._rank(bx)
        senders = lane < self.cluster
        if self.down > 1 and self.across > 1:
            senders = And(senders, Or((lane % self.down).equal(down), (lane // self.down).equal(across)))
        return seq([together, when(senders, do("ptx_mbarrier_arrive", self._empty(slot), lane))])

    def _step(self, bx: Var, tx: Var, group: PrimExpr, results: Buffer, ko: PrimExpr, i: PrimExpr) -> Stmt:
        stages = self.p.stages
        slot = i % stages
        wait = do("ptx_mbarrier_wait_parity", self._full(slot), i // stages % 2)
        products = [do("ptx_wgmma_fence"), *self._products(group, results, ko, slot), do("ptx_wgmma_commit")]
        release = when(ko > 0, self._release(bx, tx, (i + (stages - 1)) % stages))
        return seq([wait, *products, do("ptx_wgmma_wait", 1), release])

    def _products(self, group: PrimExpr, results: Buffer, ko: PrimExpr, slot: PrimExpr) -> list[Stmt]:
        a, b = self.a.layout, self.b.layout
        n, deep = self.p.shape[1], DEPTH_BYTES // a.item
        made = []
        for k in range(0, a.depth, deep):
            add = const(True, "bool") if k else ko > 0
            for tall in range(self.rows // 64):
                begin_a = (
                    slot * self.memory.stage + self.memory.a + group * a.begin(self.rows, 0) + a.begin(64 * tall, k)
                )
                begin_b = slot * self.memory.stage + self.memory.b + b.begin(0, k)
                made.append(do(
                    "ptx_wgmma_ss", n, a.dtype, b.dtype, results.dtype, results.data, tall * n // 2,
                    address(self.shared, begin_a), *a.offsets, a.swizzle, a.by_rows,
                    address(self.shared, begin_b), *b.offsets, b.swizzle, b.by_rows, add,
                ))  # fmt: skip
        return made


def _digits(number: PrimExpr, axes: list[tuple[Var, Any]]) -> list[tuple[Var, Any]]:
    """A number in mixed radix, the last axis fastest."""
    found = []
    for position, (var, count) in enumerate(reversed(axes)):
        found.append((var, number if position == len(axes) - 1 else number % count))
        number = number // count
    return list(reversed(found))
