"""Tile programs on CPUs: the grid is a parallel loop, shared memory packed panels, fragments register tiles in cache.

A block's program runs in order on one core. What the threads of a GPU would share out becomes vector loops; a product
runs over register tiles, whose sums stay in registers for the depth of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....ir.node import Node
from ....ir.expr import PrimExpr
from ....arith.affine import coefficient
from ....ir import dtype as dt
from ....ir.prim import Cast, IntImm, Var, const, const_int, is_one
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import Mutator, Substitute, renew_defs, substitute
from ...stmt import (
    stmt_list,
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
)
from ..base import seq
from .names import ATOMIC, SHARED, VAR
from .nests import interior, plain_selects, serial_loops, vector_loop, vectorizable, widest, without_guards
from .panels import Panels, Replace
from .product import Product, product_of
from .program import (
    accesses,
    Kernel,
    Nest,
    TileLoweringError,
    Walk,
    as_int,
    loads_of,
    nest_of,
    rewrite_kernels,
    stores_of,
    written_for_threads,
)
from .register_tiles import product_loops, tile_of
from .sparse import expand
from .updates import InParallel, atomic_update, element_of, joined

__all__ = ["CpuKernel", "lower_for_cpu"]


def lower_for_cpu(func: PrimFunc, vector_bits: int) -> PrimFunc:
    """The function with its tile kernels as loops for a CPU with vectors of ``vector_bits``."""
    return rewrite_kernels(func, lambda kernel: CpuKernel(expand(kernel, lambda p: False), vector_bits).lower())


class _Uses:
    """How the buffers of a block are used."""

    def __init__(self, kernel: Kernel) -> None:
        self.products: list[Product] = []
        self.viewed: set[Var] = set()
        self.others: set[Buffer] = set()
        self.stored: dict[Any, list[Nest]] = {}
        uses = self

        class Look(Walk):
            def nest(self, nest: Nest) -> Stmt:
                uses.note(nest)
                return nest.body

            def atomic(self, how: str, body: Stmt) -> Stmt:
                uses.others |= {n.buffer for n in accesses(body)}
                return body

            def visit_BufferStore(self, node: BufferStore) -> Stmt:
                uses.others |= {n.buffer for n in accesses(node)}
                return node

            def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
                uses.viewed.add(node.buffer.data)
                return self.default_visit(node)

        Look().visit(kernel.block.body)

    def note(self, nest: Nest) -> None:
        if nest.op == "gemm":
            self.products.append(product_of(nest))
            return
        for store in stores_of(nest.body):
            self.stored.setdefault(store.buffer, []).append(nest)
        self.others |= {load.buffer for load in loads_of(nest.body)}

    def operand_only(self, buffer: Buffer) -> bool:
        """Whether products alone read a buffer of shared memory."""
        return (
            buffer.scope() in SHARED
            and buffer not in self.others
            and buffer.data not in self.viewed
            and not any(p.store.buffer is buffer for p in self.products)
        )


class CpuKernel(Walk):
    def __init__(self, kernel: Kernel, vector_bits: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.bits = vector_bits
        self.registers = 32 if vector_bits >= 512 else 16
        self.private = [b for b in kernel.block.alloc_buffers if b.scope() in ("local", VAR)]
        self.extra: list[Buffer] = []
        self.uses = _Uses(kernel)
        self.written = {s.buffer.data for s in stores_of(kernel.block.body)}
        self.origin: dict[Buffer, Buffer] = {}
        self.through: dict[Buffer, tuple[list[Var], PrimExpr]] = {}
        self.around: list[For] | None = []

    def lower(self) -> Stmt:
        """The kernel as a loop over blocks."""
        self._check()
        memory, buffers, turned = self._memory()
        self.origin = {new: old for old, new in memory.items()}
        program = _Retarget(memory, turned).visit(self.kernel.block.body)
        self.panels = Panels(self, program)
        body = self._statements(program, None)
        annotations = {k: v for k, v in self.kernel.annotations.items() if not k.startswith("tile.")}
        viewed = [new for old, new in memory.items() if old.data in self.uses.viewed]
        for buffer in viewed:
            # Who plans memory sees no ties between a buffer and views of it: it stays where it is.
            data, extents = buffer.data, list(buffer.shape)
            body = Allocate(data, buffer.dtype, extents, const(True, "bool"), DeclBuffer(buffer, body))
        block = self.kernel.block.with_fields(
            body=body,
            alloc_buffers=(*(b for b in buffers if b not in viewed), *self.extra),
            annotations=annotations,
            reads=(),
            writes=(),
        )
        grid = self._grid(BlockRealize((), True, block))
        if not self.panels.fills:
            return grid
        whole = Block((), (), (), "panels", seq([*self.panels.fills, grid]), None, self.panels.buffers)
        return BlockRealize((), True, whole)

    def _check(self) -> None:
        if written_for_threads(self.kernel):
            raise TileLoweringError(
                "a kernel written for one thread (T.get_thread_binding) does not run on a CPU: write T.Parallel loops"
            )

    def _grid(self, body: Stmt) -> Stmt:
        """All blocks of the grid, x innermost, as one parallel loop."""
        total: PrimExpr = IntImm("int32", 1)
        for _, extent in self.kernel.grid:
            total = total * extent
        number = Var("block", total.dtype)
        rest: PrimExpr = number
        places = []
        for position, (var, extent) in enumerate(self.kernel.grid):
            last = position == len(self.kernel.grid) - 1
            value = rest if last else rest % extent
            places.append((var, value if value.dtype == var.dtype else Cast(var.dtype, value)))
            rest = rest // extent
        for var, value in reversed(places):
            body = substitute(body, {var: value})
        return For(number, const(0, number.dtype), total, ForKind.PARALLEL, body)

    # -- memory

    def _memory(self) -> tuple[dict[Buffer, Buffer], list[Buffer], dict[Buffer, bool]]:
        """(buffers as they are here, what the block allocates, buffers whose axes are exchanged)."""
        memory: dict[Buffer, Buffer] = {}
        turned: dict[Buffer, bool] = {}
        buffers = []
        for buffer in self.kernel.block.alloc_buffers:
            scope = "local" if buffer.scope() in ("local", VAR) else "global"
            dtype, shape = buffer.dtype, list(buffer.shape)
            if self.uses.operand_only(buffer):
                if dtype in ("float16", "bfloat16") and self._wide(buffer):
                    dtype = "float32"
                if self._turned(buffer):
                    shape = [*shape[:-2], shape[-1], shape[-2]]
                    turned[buffer] = True
            data = Var(buffer.name, PointerType(PrimType("int8" if dtype == "bool" else dtype), scope))
            made = decl_buffer(shape, dtype, buffer.name, data=data, scope=scope)
            memory[buffer] = made
            buffers.append(made)
        return memory, buffers, turned

    def _wide(self, buffer: Buffer) -> bool:
        """Whether all products that read a buffer make float32 of it."""
        users = [p for p in self.uses.products if buffer in (p.a.buffer, p.b.buffer)]
        return bool(users) and all(p.store.buffer.dtype == "float32" for p in users)

    def _turned(self, buffer: Buffer) -> bool:
        """Whether a buffer is the right side of transposed products only: columns must lie side by side."""
        users = [p for p in self.uses.products if buffer in (p.a.buffer, p.b.buffer)]
        return bool(users) and all(
            p.b.buffer is buffer and p.a.buffer is not buffer and coefficient(p.b.indices[-1], p.k) == 1 for p in users
        )

    # -- statements

    def loop(self, node: For) -> Stmt:
        annotations = {k: v for k, v in node.annotations.items() if not k.startswith("tile.")}
        around, self.around = self.around, None if self.around is None else [*self.around, node]
        made = self._statements(node.body, node)
        self.around = around
        if isinstance(made, _Fused):
            return made.stmt
        return node.with_fields(body=made, annotations=annotations)

    def visit_IfThenElse(self, node: Node) -> Stmt:
        return self._perhaps(node)

    def visit_While(self, node: Node) -> Stmt:
        return self._perhaps(node)

    def visit_LetStmt(self, node: Node) -> Stmt:
        return self._perhaps(node)

    def _perhaps(self, node: Any) -> Stmt:
        """Statements that are not run by all blocks, or know names that others do not."""
        around, self.around = self.around, None
        made = self.default_visit(node)
        self.around = around
        return made

    def _statements(self, stmt: Any, loop: For | None) -> Any:
        """What stands in a loop's body, or in the kernel's, together: copies become panels, or are not made at all."""
        items = stmt_list(stmt)
        nests = [nest_of(item) for item in items]
        read = self._read_in_place(items)
        for n in range(len(items)):
            panel = None if n in read else self.panels.of(nests, n, self.around, loop)
            if panel is not None:
                self.panels.once(panel, loop)
                read[n] = panel.nest.store.buffer
                self.through[read[n]] = self.panels.load(panel)
        kept = [n for n in range(len(items)) if n not in read]
        fused = None
        left = {n: nest for n in kept if (nest := nests[n]) is not None}
        if loop is not None and len(left) == len(kept):
            fused = self.panels.fused(left, nests, loop)
        made = seq([self.visit(items[n]) for n in kept]) if fused is None else _Fused(fused)
        for buffer in read.values():
            self.through.pop(buffer)
        return made

    def _read_in_place(self, items: list[Stmt]) -> dict[int, Any]:
        """Copies of left operands that need not be made, their elements are read one by one anyway: (place, buffer)."""
        nests = [nest_of(item) for item in items]
        found: dict[int, Any] = {}
        for n, nest in enumerate(nests):
            if nest is None or nest.op != "copy" or not isinstance(nest.body, BufferStore):
                continue
            store, old = nest.body, self.origin.get(nest.body.buffer)
            if old is None or not self.uses.operand_only(old) or len(self.uses.stored.get(old, ())) != 1:
                continue
            users = [p for p in self.uses.products if old in (p.a.buffer, p.b.buffer)]
            here = [
                m for m in nests[n + 1 :] if m is not None and m.op == "gemm" and product_of(m).a.buffer is store.buffer
            ]
            left = all(p.a.buffer is old and p.b.buffer is not old for p in users)
            if left and users and len(here) == len(users) and self._plain_source(nest):
                self.through[store.buffer] = (nest.variables, store.value)
                found[n] = store.buffer
        return found

    def _plain_source(self, nest: Nest) -> bool:
        """Whether a copy is of elements as they are in memory that the kernel only reads."""
        store = nest.store
        value = store.value
        whole = all(a is b for a, b in zip(store.indices, nest.variables, strict=False))
        return (
            isinstance(value, BufferLoad)
            and len(store.indices) == len(nest.variables)
            and whole
            and value.dtype == store.buffer.dtype
            and value.buffer.data not in self.written
            and not any(loads_of(i) for i in value.indices)
        )

    def atomic(self, how: str, body: Stmt) -> Stmt:
        """An update as one instruction, or said to be impossible."""
        return atomic_update(how, body, _refused)

    def nest(self, nest: Nest) -> Stmt:
        """An operator as loops."""
        if nest.op == "gemm":
            return self._gemm(nest)
        if nest.op == "reduce":
            return self._reduce(nest)
        if nest.op == "finalize":
            return Evaluate(const(0, "int32"))
        if nest.op in ("scan", "print"):
            return serial_loops(nest.loops, nest.body)
        body = nest.body
        if nest.op == "atomic":
            return serial_loops(nest.loops, self.atomic(str(nest.attrs[ATOMIC]), body))
        return self.elementwise(nest.loops, InParallel(self.atomic, self.nest).visit(body))

    def elementwise(self, loops: Sequence[tuple[Var, Any]], body: Any) -> Stmt:
        body = _SelectsOfTile(self.kernel).visit(body)
        inside = interior(body, loops)
        plain = self._vectors(loops, body)
        if inside is None or isinstance(inside, IntImm):
            return plain
        return IfThenElse(inside, self._vectors(loops, without_guards(body)), renew_defs(plain))

    def _vectors(self, loops: Sequence[tuple[Var, Any]], body: Stmt) -> Stmt:
        if not loops:
            return body
        order = list(loops)
        best = self._vector_axis(order, body)
        if best is None:
            return serial_loops(order, body)
        var, extent = order.pop(best)
        if self._turns(order, var, body):
            # Loads jump where stores do not: loops as they are, for the code generator's square tiles.
            return serial_loops([*order, (var, extent)], body)
        return serial_loops(order, vector_loop(var, extent, body, max(1, self.bits // widest(body))))

    def _turns(self, others: Any, var: Var, body: Stmt) -> bool:
        if not isinstance(body, BufferStore) or not others:
            return False
        loads = [x for x in loads_of(body.value) if coefficient(x.indices[-1], var) == 0 and len(x.indices) > 1]
        return (
            bool(loads)
            and any(coefficient(x.indices[-1], others[-1][0]) == 1 for x in loads)
            and any(coefficient(i, var) == 1 for x in loads for i in x.indices[:-1])
        )

    def _vector_axis(self, loops: Sequence[tuple[Var, Any]], body: Stmt) -> int | None:
        stores = stores_of(body)
        for position in reversed(range(len(loops))):
            var, extent = loops[position]
            if const_int(extent, 0) < 4:
                continue
            if all(coefficient(s.indices[-1], var) == 1 for s in stores) and vectorizable(body, var, self._locals()):
                return position
        return None

    def _locals(self) -> list[Buffer]:
        return [b for b in self.private] + [b for b in self.extra]

    # -- reductions

    def _reduce(self, nest: Nest) -> Stmt:
        position = nest.kinds.index("R")
        reduced, extent = nest.loops[position]
        outer = [x for k, x in enumerate(nest.loops) if k != position]
        store = nest.body
        start = [] if nest.init is None else [self._vectors(outer, nest.init)]
        lanes = self.bits // max(32, widest(store))
        by_rows = position == len(nest.loops) - 1 and const_int(extent, 0) >= 2 * lanes
        if not by_rows:
            return seq([*start, serial_loops([(reduced, extent)], self._vectors(outer, store))])
        row = self._lanes_of_row(store, reduced, as_int(extent, "an extent"), lanes)
        begin = [] if nest.init is None else [nest.init]
        body = SeqStmt([*begin, *row])
        return serial_loops(outer, body)

    def _lanes_of_row(self, store: Any, reduced: Var, count: int, lanes: int) -> list[Stmt]:
        """A row reduced in ``lanes`` partial results, which halve until one is left."""
        partial = decl_buffer([lanes], store.buffer.dtype, "partial", scope="local")
        self.extra.append(partial)
        whole = count // lanes

        element = element_of(store)
        lane, turn = Var("lane", reduced.dtype), Var("turn", reduced.dtype)

        def vectors(value: Any, width: int) -> For:
            return For(
                lane,
                const(0, lane.dtype),
                const(width, lane.dtype),
                ForKind.VECTORIZED,
                BufferStore(partial, value, [lane]),
            )

        def at(step: PrimExpr) -> PrimExpr:
            return substitute(element, {reduced: step * lanes + lane})

        made: list[Any] = [renew_defs(vectors(at(const(0, turn.dtype)), lanes))]
        if whole > 1:
            update = renew_defs(vectors(joined(store, BufferLoad(partial, [lane]), at(turn)), lanes))
            made.append(For(turn, const(1, turn.dtype), const(whole - 1, turn.dtype), ForKind.SERIAL, update))
        width = lanes // 2
        while width >= 1:
            other = BufferLoad(partial, [lane + width])
            made.append(renew_defs(_one_or_loop(vectors(joined(store, BufferLoad(partial, [lane]), other), width))))
            width //= 2
        here = BufferLoad(store.buffer, store.indices)
        made.append(
            BufferStore(store.buffer, joined(store, here, BufferLoad(partial, [const(0, lane.dtype)])), store.indices)
        )
        for rest in range(whole * lanes, count):
            made.append(substitute(store, {reduced: const(rest, reduced.dtype)}))
        return made

    # -- products

    def _gemm(self, nest: Nest) -> Stmt:
        plain = product_of(nest)
        start = [self.elementwise(nest.loops[:2], nest.init)] if plain.clear else []
        return seq([*start, *product_loops(self.sources(plain), tile_of(plain, self.bits, self.registers))])

    def sources(self, p: Product, more: dict[Buffer, tuple[list[Var], PrimExpr]] | None = None) -> Product:
        """The product with operands that are read where they are, or in panels."""
        known = {**self.through, **(more or {})}
        # Elements where they are: most are loads, some are converted.
        found: dict[BufferLoad, Any] = {
            load: substitute(value, dict(zip(names, load.indices, strict=True)))
            for load in (p.a, p.b) if load.buffer in known for names, value in [known[load.buffer]]
        }  # fmt: skip
        store: Any = Replace(found).visit(p.store)
        return replace(p, store=store, a=found.get(p.a, p.a), b=found.get(p.b, p.b))


class _Fused:
    """A statement that stands for a whole loop."""

    def __init__(self, stmt: Stmt) -> None:
        self.stmt = stmt


def _one_or_loop(loop: For) -> Stmt:
    """A vector of one is a statement."""
    if is_one(loop.extent):
        return substitute(loop.body, {loop.loop_var: const(0, loop.loop_var.dtype)})
    return loop


def _refused(how: str, dtype: str) -> str:
    """Why processors have no such atomic update."""
    floating = dt.is_float(dtype) or dt.code(dtype) == "bfloat"
    if dt.bits(dtype) < (16 if floating else 8) or (floating and how in ("and", "or", "xor")):
        return "CPUs here have no such update"
    return ""


class _SelectsOfTile(Mutator):
    """Choices whose values both lie in the block's own memory need no branch."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        return plain_selects(node)


class _Retarget(Substitute):
    """The program on other buffers: some with their last two axes exchanged, some with wider elements."""

    def __init__(self, memory: dict[Buffer, Buffer], turned: dict[Buffer, bool]) -> None:
        pointers = {old.data: new.data for old, new in memory.items()}
        super().__init__(pointers, memory)
        self.memory = memory
        self.turned = turned

    def _place(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> list[Any]:
        made = [self.visit(i) for i in indices]
        return [*made[:-2], made[-1], made[-2]] if buffer in self.turned else made

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        new = self.memory.get(node.buffer)
        if new is None:
            return self.default_visit(node)
        load = BufferLoad(new, self._place(node.buffer, node.indices))
        return load if new.dtype == node.buffer.dtype else Cast(node.buffer.dtype, load)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        new = self.memory.get(node.buffer)
        if new is None:
            return self.default_visit(node)
        value = self.visit(node.value)
        if value.dtype != new.dtype:
            value = Cast(new.dtype, value)
        return BufferStore(new, value, self._place(node.buffer, node.indices))

    def visit_Cast(self, node: Cast) -> PrimExpr:
        made = self.default_visit(node)
        inner = made.value
        # An element kept in the wider type needs no way through the narrow one.
        if isinstance(inner, Cast) and isinstance(inner.value, BufferLoad) and inner.value.dtype == made.dtype:
            if inner.value.buffer in self.memory.values():
                return inner.value
        return made

    def visit_Block(self, node: Block) -> Block:
        # What a block reads and writes is worked out anew by whoever asks.
        made = self.default_visit(node.with_fields(reads=(), writes=()))
        return made
