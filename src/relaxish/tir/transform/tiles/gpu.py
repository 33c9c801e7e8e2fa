"""Tile programs on GPUs: every statement shared out among the threads of a block, barriers where data changes hands.

What a product becomes, and how copies run ahead, is the architecture's: see :mod:`.matrix` and :mod:`.pipelines`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, post_order_visit
from ....ir.prim import Add, Cast, IntImm, Max, Min, StringImm, Var, const
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad, Select
from ...functor import substitute
from ...stmt import (
    While,
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
)
from ..base import call, seq
from ..hopper.statements import launch, typed_view
from .arch import Arch
from .barriers import Steps, barrier
from .infer import infer_layouts, loop_layout, nests_of
from .matrix import Products
from .names import ATOMIC, EVICTIONS, FRAGMENT, L2, REDUCER, SHARED, SWIZZLE, VAR, WIDTH
from .nests import serial_loops
from .pipelines import Pipeline
from .program import Kernel, Nest, TileLoweringError, Walk, accesses, as_int, loads_of, options_of, stores_of
from .shared import Shared
from .sparse import expand
from .spread import Memory, Spread
from .updates import ACQUIRES, RELEASES, InParallel, element_of, joined, update_on
from ....ir.plain import plain_float, plain_int, plain_str

__all__ = ["GpuKernel"]

_ALIGN = 128
_REDUCERS = {"sum": Add, "max": Max, "min": Min}


class GpuKernel(Walk):
    """One kernel on one architecture."""

    def __init__(self, kernel: Kernel, arch: Arch) -> None:
        super().__init__()
        self.arch = arch
        self.threads = math.prod(kernel.threads)
        self.products = Products(arch, self.threads)
        self.kernel = kernel = expand(kernel, self.products.takes_sparse)
        self.thread = Var("tx", "int32")
        self.body = _Views(kernel).visit(kernel.block.body)
        self.nests = nests_of(self.body)
        self.reducers = {n.store.buffer for n in self.nests if n.op == "finalize"}
        self.memory = Memory()
        self.memory.layouts = infer_layouts(kernel, self.nests, self.threads, self.products.layouts)
        self.arena = Var("arena", PointerType(PrimType("uint8"), "shared.dyn"))
        self.arena_bytes = 0
        self.views: list[Buffer] = []
        self.view_of: dict[Buffer, Var] = {}
        self.place_of: dict[Var, Var] = {}
        self.tiles_bytes = 0
        self.rows: dict[Buffer, Buffer] = {}
        self.allocations: list[Buffer] = []
        self.tracked: set[Var] = set()
        self.written = {s.buffer.data for s in stores_of(self.body) if s.buffer.scope() == "global"}
        self.viewed: set[Any] = set()
        post_order_visit(self.body, lambda n: self.viewed.add(n.buffer.data) if isinstance(n, DeclBuffer) else None)
        self.pipelines = Pipeline(self)
        self.orders = kernel.orders

    # -- the kernel ------------------------------------------------------------------------------------------------------

    def lower(self) -> Stmt:
        """The kernel as statements of one thread under its launch."""
        self._plan()
        self.spread = Spread(self.memory, self.thread, self.threads)
        self.steps = Steps(self.tracked, self.view_of, self.place_of)
        body = self.visit(self.body)
        if self.arch.own_barriers:
            body = self.steps.place(body)
        else:
            body = _Unwrap().visit(body)
        body = self.products.wrap(body)
        for buffer in [*self.memory.registers.values(), *self.memory.private.values(), *self.allocations]:
            body = _allocated(buffer, body)
        for view in self.views:
            body = DeclBuffer(view, body)
        if self.arena_bytes:
            body = Allocate(self.arena, "uint8", [IntImm("int32", self.arena_bytes)], const(True, "bool"), body)
        if self.arena_bytes > self.arch.shared_bytes:
            raise TileLoweringError(
                f"{self.arena_bytes} bytes of shared memory are more than the {self.arch.shared_bytes} a block of {self.arch.name} "
                "has: use smaller tiles or fewer stages"
            )
        return self._launch(body)

    def _launch(self, body: Any) -> Stmt:
        body = self._in_panels(self._keeping(body))
        made = launch("threadIdx.x", const(self.threads, "int32"), lambda tx: substitute(body, {self.thread: tx}))
        for (var, extent), axis in reversed(list(zip(self.kernel.grid, "xyz", strict=False))):
            inner = made

            def inside(block: Var, inner: Stmt = inner, var: Var = var) -> Stmt:
                return substitute(inner, {var: block if block.dtype == var.dtype else Cast(var.dtype, block)})

            count = extent if extent.dtype == "int32" else Cast("int32", extent)
            made = launch(f"blockIdx.{axis}", count, inside)
        if self.arch.own_barriers:
            made = AttrStmt(const(0, "int32"), "explicit_sync", const(1, "int32"), made)
        return made

    def _keeping(self, body: Stmt) -> Stmt:
        """Loads that tell the second-level cache how much of what they touch to keep."""
        known = {x.buffer.name: x.buffer for x in loads_of(self.body) if x.buffer.scope() == "global"}
        for name, ratio in self.kernel.annotations.get(L2, ()):
            self._has_policies(f"T.annotate_l2_hit_ratio: {name}")
            buffer = known.get(plain_str(name))
            share = plain_float(ratio)
            if buffer is not None and share > 0:
                body = AttrStmt(buffer.data, "l2_policy", StringImm(f"evict_last:{share}"), body)
        return body

    def _has_policies(self, what: str) -> None:
        if self.arch.level < 80:
            raise TileLoweringError(
                f"{what}: loads of {self.arch.name} say nothing to the second-level cache, those of sm_80 and later do; leave it out"
            )

    def _in_panels(self, body: Stmt) -> Stmt:
        """Blocks visited in panels: the program's places of a block are worked out from the launch's."""
        wish = self.kernel.annotations.get(SWIZZLE)
        if wish is None or len(self.kernel.grid) < 2:
            return body
        panel, by_columns = (plain_int(w) for w in wish)
        (x, columns), (y, rows) = self.kernel.grid[:2]
        (fast, across), (slow, down) = ((y, rows), (x, columns)) if by_columns else ((x, columns), (y, rows))
        fast_place, slow_place = Var(f"{fast.name}_panel", fast.dtype), Var(f"{slow.name}_panel", slow.dtype)
        number = y * columns + x
        which, inside = number // (across * panel), number % (across * panel)
        height = Min(down - which * panel, const(panel, slow.dtype))
        step = inside // height
        step = Select((which % 2).equal(1), across - 1 - step, step)
        body = substitute(body, {fast: fast_place, slow: slow_place})
        return LetStmt(fast_place, step, LetStmt(slow_place, which * panel + inside % height, body))

    # -- memory ------------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        for buffer in self.kernel.block.alloc_buffers:
            scope = buffer.scope()
            if scope == FRAGMENT:
                layout = self.memory.layouts[buffer]
                self.memory.registers[buffer] = _local(buffer.name, buffer.dtype, max(1, layout.registers))
            elif scope in SHARED:
                self._shared(buffer)
            elif scope in ("local", VAR):
                shape = [as_int(e, "a size") for e in buffer.shape]
                self.memory.private[buffer] = decl_buffer(
                    shape, buffer.dtype, buffer.name, scope="local",
                    data=Var(buffer.name, PointerType(PrimType("int8" if buffer.dtype == "bool" else buffer.dtype), "local")),
                )  # fmt: skip
        for nest in self.nests:
            for x in accesses(nest.body) if nest.op == "scan" else ():
                if x.buffer.scope() == FRAGMENT and x.buffer not in self.rows:
                    self.rows[x.buffer] = decl_buffer(
                        x.buffer.shape, x.buffer.dtype, f"{x.buffer.name}_rows", scope="shared.dyn"
                    )
                    self._shared(self.rows[x.buffer])
        self.tracked |= self.written
        self.tiles_bytes = self.arena_bytes

    def tile_in_passing(self, buffer: Buffer) -> None:
        """Shared memory for a tile that is written and read at once, before another such tile is written."""
        self._shared(buffer, True)

    def _shared(self, buffer: Buffer, passing: bool = False) -> None:
        shape = tuple(as_int(e, "a size") for e in buffer.shape)
        item = max(1, dt.bits(buffer.dtype) // 8)
        pitch = shape[-1]
        order = self.orders.get(buffer)
        if (
            order is None
            and len(shape) > 1
            and buffer.data not in self.viewed
            and pitch * item % 64 == 0
            and self.arch.pads
        ):
            pitch += 16 // item
        rows = math.prod(shape[:-1])
        stages = self.pipelines.stages.get(buffer, 1)
        size = rows * pitch if order is None else order.size
        slot = -(-size * item // _ALIGN) * _ALIGN // item
        if self.arch.own_barriers:
            base = self.arena_bytes
            if passing:
                # Tiles in passing all lie in one place, behind those of the program.
                base = self.tiles_bytes
                self.arena_bytes = max(self.arena_bytes, base + slot * item)
            else:
                self.arena_bytes += slot * item * stages
            view = typed_view(
                buffer.name, self.arena, buffer.dtype, (base + slot * item * stages) // item, "shared.dyn"
            )
            self.views.append(view)
            key = self.arena if passing else buffer.data
            self.view_of[view] = key
            self.tracked.add(key)
            self.place_of[buffer.data] = key
            self.memory.shared[buffer] = Shared(view, base // item, shape, pitch, slot, order)
        else:
            data = Var(buffer.name, PointerType(PrimType(buffer.dtype), "shared"))
            made = decl_buffer([slot * stages], buffer.dtype, buffer.name, data=data, scope="shared")
            self.allocations.append(made)
            self.memory.shared[buffer] = Shared(made, 0, shape, pitch, slot, order)

    def scratch(self, name: str, dtype: str, count: int) -> tuple[Buffer, Shared]:
        """Shared memory of the compiler's own."""
        buffer = decl_buffer([count], dtype, name, scope="shared.dyn")
        self._shared(buffer, True)
        return buffer, self.memory.shared[buffer]

    def local(self, name: str, dtype: str, count: int) -> Buffer:
        """Registers of the compiler's own."""
        made = _local(name, dtype, count)
        self.allocations.append(made)
        return made

    # -- statements --------------------------------------------------------------------------------------------------------

    def step(
        self, body: Stmt, reads: Iterable[Buffer], writes: Iterable[Buffer], managed: Sequence[Buffer] = ()
    ) -> Stmt:
        """A step of the block."""
        return self.steps.step(body, reads, writes, [*managed, *self.pipelines.managed])

    def touching(self, body: Stmt, source: Any) -> Stmt:
        """A step that touches what ``source`` (in the program's own buffers) does."""
        return self.step(body, [x.buffer for x in loads_of(source)], [x.buffer for x in stores_of(source)])

    def loop(self, node: For) -> Stmt:
        return self.pipelines.loop(node)

    def plain_loop(self, node: For) -> Stmt:
        """A loop run in order."""
        node = self.products.around(self, node)
        annotations = {k: v for k, v in node.annotations.items() if not k.startswith("tile.")}
        node = node.with_fields(annotations=annotations, extent=self._uniform(node.extent))
        return self.products.leave(self, node.with_fields(body=self.visit(node.body)))

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        other = None if node.else_case is None else self.visit(node.else_case)
        return IfThenElse(self._uniform(node.condition), self.visit(node.then_case), other)

    def visit_While(self, node: While) -> Stmt:
        return node.with_fields(condition=self._uniform(node.condition), body=self.visit(node.body))

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        return node.with_fields(value=self._uniform(node.value), body=self.visit(node.body))

    def _uniform(self, e: Any) -> PrimExpr:
        """An expression that all threads compute alike."""
        for load in loads_of(e):
            if load.buffer.scope() == FRAGMENT and self.memory.layouts[load.buffer].copies != self.threads:
                raise TileLoweringError(
                    f"an element of fragment {load.buffer.name} is read outside of a parallel loop: only some threads hold it. Copy "
                    "the fragment to shared memory first"
                )
        return self.spread.place(e, _ANALYZER())

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        scope = node.buffer.scope()
        placed = self.spread.place(node.with_fields(value=node.value), _ANALYZER())
        self._uniform(node.value)
        if scope in ("local", VAR):
            return self.touching(placed, node)
        if scope == FRAGMENT:
            layout = self.memory.layouts[node.buffer]
            terms = [
                (i // d.stride % d.extent).equal(self.thread // d.out % d.extent)
                for d in layout.digits if d.thread and d.dim >= 0 for i in [node.indices[d.dim]]
            ]  # fmt: skip
            return self.touching(_when(terms, placed), node)
        return self.touching(_when([self.thread.equal(0)], placed), node)

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        return self.step(Evaluate(self._uniform(node.value)), [x.buffer for x in loads_of(node.value)], [])

    def atomic(self, how: str, body: Stmt) -> Stmt:
        made = self.spread.place(self._update(how, body), _ANALYZER())
        first = self.touching(_when([self.thread.equal(0)], made), body)
        # The fence is one thread's: it speaks for those that it has waited for, and others wait for it.
        order = how.partition(":")[2]
        first = seq([*[barrier()] * (order in RELEASES), first, *[barrier()] * (order in ACQUIRES)])
        before = [s.buffer for s in stores_of(body) if s.buffer.scope() == VAR]
        if not before:
            return first
        # One thread has updated; all go on with what it found.
        (found,) = (self.memory.private[b] for b in before)
        room, kept = self.scratch("found", found.dtype, 1)
        zero = const(0, "int32")
        give = BufferStore(kept.view, BufferLoad(found, [zero]), [const(kept.base, "int32")])
        take = BufferStore(found, BufferLoad(kept.view, [const(kept.base, "int32")]), [zero])
        return seq([
            first, self.step(_when([self.thread.equal(0)], give), [], [room]), self.step(take, [room], []),
        ])  # fmt: skip

    def _update(self, how: str, body: Stmt) -> Stmt:
        return update_on(self.arch, how, body)

    def _inner_loops(self, nest: Nest) -> Stmt:
        """A parallel loop inside of one: a thread runs it as it is."""
        return serial_loops(nest.loops, InParallel(self._update, self._inner_loops).visit(nest.body))

    def nest(self, nest: Nest) -> Stmt:
        """An operator, as steps."""
        if nest.op in ("gemm", "gemm_sp"):
            return self.products.lower(self, nest)
        if nest.op == "reduce":
            return self._reduce(nest)
        if nest.op == "scan":
            return self._scan(nest)
        if nest.op == "finalize":
            return self._finalize(nest)
        if nest.op == "print":
            return self._print(nest)
        return self.elementwise(nest)

    def elementwise(self, nest: Nest, managed: Any = ()) -> Stmt:
        """Independent iterations, shared out."""
        source = nest.body
        body = InParallel(self._update, self._inner_loops).visit(source)
        if nest.op == "atomic":
            body = self._update(str(nest.attrs[ATOMIC]), body)
        width = nest.attrs.get(WIDTH)
        self.spread.widest_access = None if width is None else as_int(width, "coalesced_width")
        fragments = [n for n in accesses(source) if n.buffer.scope() == FRAGMENT]
        if fragments:
            layout = loop_layout(nest, self.memory.layouts, self.threads, 1)
            made = self.spread.by_layout(nest.op, nest.loops, body, layout, self.reducers)
        else:
            made = self.spread.in_turn(nest.loops, body)
        self.spread.widest_access = None
        reads = [x.buffer for x in loads_of(source)]
        for policy in options_of(nest) & EVICTIONS:
            self._has_policies(f"T.copy(eviction_policy={policy!r})")
            for buffer in {b for b in reads if b.scope() == "global"}:
                made = AttrStmt(buffer.data, "l2_policy", StringImm(f"{policy}:1"), made)
        return self.step(made, reads, [x.buffer for x in stores_of(source)], managed)

    # -- reductions --------------------------------------------------------------------------------------------------------

    def _reduce(self, nest: Nest) -> Stmt:
        store, dim = nest.store, nest.kinds.index("R")
        if store.buffer.scope() != FRAGMENT:
            return self._reduce_to_shared(nest, dim)
        layout = loop_layout(nest, self.memory.layouts, self.threads, 1)
        held = self.memory.layouts[store.buffer]
        count = max(1, held.registers)
        sums = self.local("partial", store.buffer.dtype, count)
        target = self.memory.registers[store.buffer]
        element = element_of(store)

        def join(a: PrimExpr, b: PrimExpr) -> Any:
            return joined(store, a, b)

        start = _identity(nest)
        body = BufferStore(store.buffer, join(BufferLoad(store.buffer, store.indices), element), store.indices)
        self.memory.registers[store.buffer] = sums
        part = self.spread.by_layout(nest.op, nest.loops, body, layout)
        self.memory.registers[store.buffer] = target
        r = Var("r", "int32")
        reads = [x.buffer for x in loads_of(element)]
        steps = [self.step(
            seq([_registers(r, count, BufferStore(sums, start, [r])), part]), reads, []
        )]  # fmt: skip
        digits = [d for d in layout.digits if d.thread and d.dim == dim]
        steps += self.across(sums, count, digits, join)
        result = BufferLoad(sums, [r])
        if nest.init is None:
            result = join(BufferLoad(target, [r]), result)
        steps.append(self.step(_registers(r, count, BufferStore(target, result, [r])), [], []))
        return seq(steps)

    def across(self, sums: Buffer, count: int, digits: Sequence[Any], join: Any) -> list[Any]:
        """Reduce registers over threads that differ in digits; all of them get the result."""
        steps = []
        r = Var("r", "int32")
        for d in digits:
            inside = d.out * d.extent <= 32 and d.extent & (d.extent - 1) == 0 and d.out & (d.out - 1) == 0
            if inside and self.arch.shuffles and dt.bits(sums.dtype) == 32:
                body = []
                distance = d.out
                while distance < d.out * d.extent:
                    other = call(
                        sums.dtype, "tvm_warp_shuffle_xor", const(0xFFFFFFFF, "uint32"), BufferLoad(sums, [r]),
                        const(distance, "int32"), const(32, "int32"), const(32, "int32"),
                    )  # fmt: skip
                    body.append(_registers(r, count, BufferStore(sums, join(BufferLoad(sums, [r]), other), [r])))
                    distance *= 2
                steps.append(self.step(seq(body), [], []))
                continue
            buffer, kept = self.scratch("exchange", sums.dtype, self.threads * count)
            mine = kept.base + r * self.threads + self.thread
            give = BufferStore(kept.view, BufferLoad(sums, [r]), [mine])
            steps.append(self.step(_registers(r, count, give), [], [buffer]))
            own = self.thread // d.out % d.extent
            first = kept.base + r * self.threads + (self.thread - own * d.out)
            q = Var("q", "int32")
            take = BufferStore(sums, join(BufferLoad(sums, [r]), BufferLoad(kept.view, [first + q * d.out])), [r])
            whole = seq([
                BufferStore(sums, BufferLoad(kept.view, [first]), [r]),
                For(q, const(1, "int32"), const(d.extent - 1, "int32"), ForKind.SERIAL, take),
            ])  # fmt: skip
            steps.append(self.step(_registers(r, count, whole), [buffer], []))
        return steps

    def _reduce_to_shared(self, nest: Nest, dim: int) -> Stmt:
        """Into shared memory: a thread takes a whole row."""
        if any(x.buffer.scope() == FRAGMENT for x in loads_of(nest.body)):
            raise TileLoweringError(
                f"T.reduce: {nest.store.buffer.name} lies in shared memory and what is reduced in a fragment; reduce into a fragment"
            )
        outer = [x for n, x in enumerate(nest.loops) if n != dim]
        inner = serial_loops([nest.loops[dim]], nest.body)
        body = inner if nest.init is None else seq([nest.init, inner])
        if not outer:
            outer = [(Var("one", "int32"), const(1, "int32"))]
        made = self.spread.in_turn(outer, body)
        return self.touching(made, nest.body)

    def _finalize(self, nest: Nest) -> Stmt:
        """Add up what threads with copies of a reducer have each gathered."""
        buffer = nest.store.buffer
        kind = _REDUCERS[str(nest.attrs[REDUCER])]
        layout = self.memory.layouts[buffer]
        digits = [d for d in layout.digits if d.dim < 0]
        return seq(self.across(self.memory.registers[buffer], max(1, layout.registers), digits, kind))

    # -- prints ------------------------------------------------------------------------------------------------------------

    def _print(self, nest: Nest) -> Stmt:
        """The first thread prints, in order; what lies in fragments comes to shared memory for it."""
        rooms: dict[Any, Any] = {}
        steps = []
        for load in loads_of(nest.body):
            buffer = load.buffer
            if buffer.scope() == FRAGMENT and buffer not in rooms:
                rooms[buffer] = decl_buffer(buffer.shape, buffer.dtype, f"{buffer.name}_printed", scope="shared.dyn")
                self._shared(rooms[buffer])
                steps.append(self._between(rooms[buffer], buffer))
        body = _Swap(rooms).visit(nest.body)
        made = self.spread.place(serial_loops(nest.loops, body), _ANALYZER())
        return seq([*steps, self.touching(_when([self.thread.equal(0)], made), body)])

    # -- running sums --------------------------------------------------------------------------------------------------------

    def _scan(self, nest: Nest) -> Stmt:
        """A thread runs along each row; fragments go through shared memory."""
        store = nest.store
        buffers = {x.buffer for x in accesses(store)}
        steps = []
        swapped: dict[Any, Any] = {}
        for buffer in sorted(buffers, key=lambda b: b.name):
            if buffer.scope() != FRAGMENT:
                continue
            other = self.rows[buffer]
            swapped[buffer] = other
            steps.append(self._between(other, buffer))
        body = _Swap(swapped).visit(store)
        rows = list(nest.loops[:-1]) or [(Var("one", "int32"), const(1, "int32"))]
        inner = serial_loops([nest.loops[-1]], body)
        steps.append(self.touching(self.spread.in_turn(rows, inner), body))
        if store.buffer in swapped:
            steps.append(self._between(store.buffer, swapped[store.buffer]))
        return seq(steps)

    def _between(self, target: Buffer, source: Buffer) -> Stmt:
        """A whole copy."""
        loops = tuple((Var(n, "int32"), e) for n, e in zip("ijklmn", source.shape, strict=False))
        at = [v for v, _ in loops]
        return self.elementwise(
            Nest("copy", loops, BufferStore(target, BufferLoad(source, at), at), None, {}, "S" * len(loops))
        )


def _ANALYZER() -> Analyzer:

    return Analyzer()


def _when(terms: Sequence[Any], body: Stmt) -> Stmt:
    from .spread import conjunction

    condition = conjunction(list(terms))
    return body if condition is None else IfThenElse(condition, body)


def _registers(r: Var, count: int, body: Stmt) -> Stmt:
    """``body`` for each register."""
    if count == 1:
        return substitute(body, {r: const(0, "int32")})
    fresh = Var("r", "int32")
    return For(fresh, const(0, "int32"), const(count, "int32"), ForKind.UNROLLED, substitute(body, {r: fresh}))


def _identity(nest: Nest) -> PrimExpr:
    """What a reduction begins with."""
    if nest.init is not None:
        assert isinstance(nest.init, BufferStore)
        return nest.init.value
    kind = str(nest.attrs["tile.reduce"])
    dtype = nest.store.buffer.dtype
    from ...op import max_value, min_value

    infinite = dt.is_float(dtype) and dt.bits(dtype) > 8
    if kind == "max":
        return const(float("-inf"), dtype) if infinite else min_value(dtype)
    if kind == "min":
        return const(float("inf"), dtype) if infinite else max_value(dtype)
    if kind == "bitand":
        return const(-1, dtype) if not dt.is_uint(dtype) else max_value(dtype)
    return const(0, dtype)


def _local(name: str, dtype: str, count: int) -> Buffer:
    data = Var(name, PointerType(PrimType("int8" if dtype == "bool" else dtype), "local"))
    return decl_buffer([count], dtype, name, data=data, scope="local")


def _allocated(buffer: Buffer, body: Stmt) -> Stmt:
    extents = [e for e in buffer.shape]
    return Allocate(buffer.data, buffer.dtype, extents, const(True, "bool"), DeclBuffer(buffer, body))


class _Views(Mutator):
    """Views of fragments as the fragments themselves; those of shared memory stay."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.owners = {b.data: b for b in kernel.block.alloc_buffers}
        self.views: dict[Buffer, Buffer] = {}
        self.analyzer = _ANALYZER()

    def visit_For(self, node: For) -> Stmt:
        self.analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent), True)
        return self.default_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        for var in node.block.iter_vars:
            self.analyzer.bind(var.var, var.dom, True)
        return self.default_visit(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        owner = self.owners.get(node.buffer.data)
        if owner is None:
            return self.default_visit(node)
        if owner.dtype != node.buffer.dtype:
            raise TileLoweringError(
                f"T.view: {owner.name} is read as {node.buffer.dtype} on a GPU; copy it to a buffer of that type instead"
            )
        self.views[node.buffer] = owner
        return self.visit(node.body)

    def _place(self, node: Any) -> list[Any]:
        owner = self.views[node.buffer]
        analyzer = self.analyzer
        flat: Any = const(0, "int32")
        for index, extent in zip(node.indices, node.buffer.shape, strict=True):
            flat = flat * extent + self.visit(index)
        places = []
        for extent in reversed(owner.shape[1:]):
            places.append(analyzer.simplify(flat % extent))
            flat = flat // extent
        return [analyzer.simplify(flat), *reversed(places)]

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        if node.buffer in self.views:
            return BufferLoad(self.views[node.buffer], self._place(node))
        return self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer in self.views:
            return BufferStore(self.views[node.buffer], self.visit(node.value), self._place(node))
        return self.default_visit(node)

    def visit_Block(self, node: Block) -> Block:
        return self.default_visit(node.with_fields(reads=(), writes=()))


class _Swap(Mutator):
    """Accesses to other buffers of the same shape."""

    def __init__(self, buffers: dict[Buffer, Buffer]) -> None:
        super().__init__()
        self.buffers = buffers

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        made = self.default_visit(node)
        return BufferLoad(self.buffers[node.buffer], made.indices) if node.buffer in self.buffers else made

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = self.default_visit(node)
        if node.buffer not in self.buffers:
            return made
        return BufferStore(self.buffers[node.buffer], made.value, made.indices)


class _Unwrap(Mutator):
    """Steps as they are, where another pass places barriers."""

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        made = self.default_visit(node)
        return made.body if node.attr_key == "tile_step" else made
