"""Tile programs on CPUs: the grid is a parallel loop, shared memory packed panels, fragments register tiles in cache.

A block's program runs in order on one core. What the threads of a GPU would share out becomes vector loops; a product
runs over register tiles, whose sums stay in registers for the depth of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....ir import dtype as dt
from ....ir.functor import pre_order_visit
from ....ir.prim import Cast, IntImm, Var, const
from ....ir.types import PointerType, PrimType
from ...analysis.linear import coefficient
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...functor import Mutator, Substitute, substitute
from ...stmt import (
    Allocate,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
)
from ..base import call, seq
from .names import CLEAR, SHARED, VAR
from .nests import interior, plain_selects, serial_loops, vector_loop, vectorizable, widest, without_guards
from .program import (
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

__all__ = ["lower_for_cpu"]

_MAX_ROWS = 16
_MAX_VECTORS = 6


def lower_for_cpu(func: PrimFunc, vector_bits: int) -> PrimFunc:
    """The function with its tile kernels as loops for a CPU with vectors of ``vector_bits``."""
    return rewrite_kernels(func, lambda kernel: _CpuKernel(kernel, vector_bits).lower())


@dataclass(frozen=True)
class _Product:
    """``c[ci] += a[ai] * b[bi]`` over i < m, j < n, k < depth."""

    i: Var
    j: Var
    k: Var
    m: int
    n: int
    depth: int
    store: BufferStore
    a: BufferLoad
    b: BufferLoad


def _uncast(e: Any) -> Any:
    while isinstance(e, Cast):
        e = e.value
    return e


def product_of(nest: Nest) -> _Product:
    """The parts of a product."""
    (i, m), (j, n), (k, depth) = nest.loops
    store = nest.body
    term = store.value.b
    return _Product(
        i, j, k, as_int(m, "a side of T.gemm"), as_int(n, "a side of T.gemm"), as_int(depth, "the depth of T.gemm"),
        store, _uncast(term.a), _uncast(term.b),
    )  # fmt: skip


class _Uses:
    """How the buffers of a block are used."""

    def __init__(self, kernel: Kernel) -> None:
        self.products: list[_Product] = []
        self.viewed: set[Any] = set()
        self.others: set[Any] = set()
        self.stored: dict[Any, list[Nest]] = {}
        uses = self

        class Look(Walk):
            def nest(self, nest: Nest) -> Any:
                uses.note(nest)
                return nest.body

            def atomic(self, how: str, body: Any) -> Any:
                uses.others |= {n.buffer for n in (*loads_of(body), *stores_of(body))}
                return body

            def visit_BufferStore(self, node: Any) -> Any:  # noqa: N802
                uses.others |= {n.buffer for n in (*loads_of(node), node)}
                return node

            def visit_DeclBuffer(self, node: Any) -> Any:  # noqa: N802
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


class _CpuKernel(Walk):
    def __init__(self, kernel: Kernel, vector_bits: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.bits = vector_bits
        self.registers = 32 if vector_bits >= 512 else 16
        self.private = [b for b in kernel.block.alloc_buffers if b.scope() in ("local", VAR)]
        self.extra: list[Buffer] = []
        self.uses = _Uses(kernel)
        self.written = {s.buffer for s in stores_of(kernel.block.body)}
        self.origin: dict[Any, Any] = {}
        self.through: dict[Any, tuple[list[Var], Any]] = {}

    def lower(self) -> Any:
        """The kernel as a loop over blocks."""
        self._check()
        memory, buffers, turned = self._memory()
        self.origin = {new: old for old, new in memory.items()}
        body = self.visit(_Retarget(memory, turned).visit(self.kernel.block.body))
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
        return self._grid(BlockRealize((), True, block))

    def _check(self) -> None:
        if written_for_threads(self.kernel):
            raise TileLoweringError(
                "a kernel written for one thread (T.get_thread_binding) does not run on a CPU: write T.Parallel loops"
            )

    def _grid(self, body: Any) -> Any:
        """All blocks of the grid, x innermost, as one parallel loop."""
        total: Any = IntImm("int32", 1)
        for _, extent in self.kernel.grid:
            total = total * extent
        number = Var("block", total.dtype)
        rest: Any = number
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

    def _memory(self) -> tuple[dict[Any, Any], list[Buffer], dict[Any, Any]]:
        """(buffers as they are here, what the block allocates, buffers whose axes are exchanged)."""
        memory: dict[Any, Any] = {}
        turned: dict[Any, Any] = {}
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

    def loop(self, node: Any) -> Any:
        annotations = {k: v for k, v in node.annotations.items() if not k.startswith("tile.")}
        items = list(node.body.seq) if isinstance(node.body, SeqStmt) else [node.body]
        read = self._read_in_place(items)
        kept = [item for n, item in enumerate(items) if n not in read]
        body = seq([self.visit(item) for item in kept])
        for buffer in read.values():
            self.through.pop(buffer)
        return node.with_fields(body=body, annotations=annotations)

    def _read_in_place(self, items: list[Any]) -> dict[int, Any]:
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
        store = nest.body
        value = store.value
        whole = all(a is b for a, b in zip(store.indices, nest.variables, strict=False))
        return (
            isinstance(value, BufferLoad)
            and len(store.indices) == len(nest.variables)
            and whole
            and value.dtype == store.buffer.dtype
            and value.buffer not in self.written
            and not any(loads_of(i) for i in value.indices)
        )

    def atomic(self, how: str, body: Any) -> Any:
        """An update as one instruction, or said to be impossible."""
        body = self._updates(how, body)
        return body

    def _updates(self, how: str, body: Any) -> Any:
        return _Atomics(how).visit(body)

    def nest(self, nest: Nest) -> Any:
        """An operator as loops."""
        if nest.op == "gemm":
            return self._gemm(nest)
        if nest.op == "reduce":
            return self._reduce(nest)
        if nest.op == "finalize":
            return Evaluate(const(0, "int32"))
        if nest.op == "scan":
            return serial_loops(nest.loops, nest.body)
        body = nest.body
        if nest.op == "atomic":
            body = _Atomics(str(nest.attrs["tile.atomic"])).visit(body)
            return serial_loops(nest.loops, body)
        return self._elementwise(nest.loops, _Inner(self).visit(body))

    def _elementwise(self, loops: Sequence[tuple[Var, Any]], body: Any) -> Any:
        body = _SelectsOfTile(self.kernel).visit(body)
        inside = interior(body, loops)
        plain = self._vectors(loops, body)
        if inside is None or isinstance(inside, IntImm):
            return plain
        return IfThenElse(inside, self._vectors(loops, without_guards(body)), _fresh(plain))

    def _vectors(self, loops: Sequence[tuple[Var, Any]], body: Any) -> Any:
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

    def _turns(self, others: Any, var: Var, body: Any) -> bool:
        if not isinstance(body, BufferStore) or not others:
            return False
        loads = [x for x in loads_of(body.value) if coefficient(x.indices[-1], var) == 0 and len(x.indices) > 1]
        return (
            bool(loads)
            and any(coefficient(x.indices[-1], others[-1][0]) == 1 for x in loads)
            and any(coefficient(i, var) == 1 for x in loads for i in x.indices[:-1])
        )

    def _vector_axis(self, loops: Sequence[tuple[Var, Any]], body: Any) -> int | None:
        stores = stores_of(body)
        for position in reversed(range(len(loops))):
            var, extent = loops[position]
            if not isinstance(extent, IntImm) or extent.value < 4:
                continue
            if all(coefficient(s.indices[-1], var) == 1 for s in stores) and vectorizable(body, var, self._locals()):
                return position
        return None

    def _locals(self) -> list[Any]:
        return [b for b in self.private] + [b for b in self.extra]

    # -- reductions

    def _reduce(self, nest: Nest) -> Any:
        position = nest.kinds.index("R")
        reduced, extent = nest.loops[position]
        outer = [x for k, x in enumerate(nest.loops) if k != position]
        store = nest.body
        start = [] if nest.init is None else [self._vectors(outer, nest.init)]
        lanes = self.bits // max(32, widest(store))
        by_rows = position == len(nest.loops) - 1 and isinstance(extent, IntImm) and extent.value >= 2 * lanes
        if not by_rows:
            return seq([*start, serial_loops([(reduced, extent)], self._vectors(outer, store))])
        row = self._lanes_of_row(store, reduced, extent.value, lanes)
        begin = [] if nest.init is None else [nest.init]
        body = SeqStmt([*begin, *row])
        return serial_loops(outer, body)

    def _lanes_of_row(self, store: Any, reduced: Var, count: int, lanes: int) -> list[Any]:
        """A row reduced in ``lanes`` partial results, which halve until one is left."""
        partial = decl_buffer([lanes], store.buffer.dtype, "partial", scope="local")
        self.extra.append(partial)
        whole = count // lanes

        def joined(left: Any, right: Any) -> Any:
            """The update's operation on other operands."""
            return _Operands(store, left, right).made()

        element = _Operands(store, None, None).element
        lane, turn = Var("lane", reduced.dtype), Var("turn", reduced.dtype)

        def vectors(value: Any, width: int) -> Any:
            return For(
                lane,
                const(0, lane.dtype),
                const(width, lane.dtype),
                ForKind.VECTORIZED,
                BufferStore(partial, value, [lane]),
            )

        def at(step: Any) -> Any:
            return substitute(element, {reduced: step * lanes + lane})

        made: list[Any] = [_fresh(vectors(at(const(0, turn.dtype)), lanes))]
        if whole > 1:
            update = _fresh(vectors(joined(BufferLoad(partial, [lane]), at(turn)), lanes))
            made.append(For(turn, const(1, turn.dtype), const(whole - 1, turn.dtype), ForKind.SERIAL, update))
        width = lanes // 2
        while width >= 1:
            other = BufferLoad(partial, [lane + width])
            made.append(_fresh(_one_or_loop(vectors(joined(BufferLoad(partial, [lane]), other), width))))
            width //= 2
        here = BufferLoad(store.buffer, store.indices)
        made.append(BufferStore(store.buffer, joined(here, BufferLoad(partial, [const(0, lane.dtype)])), store.indices))
        for rest in range(whole * lanes, count):
            made.append(substitute(store, {reduced: const(rest, reduced.dtype)}))
        return made

    # -- products

    def _gemm(self, nest: Nest) -> Any:
        p = self._sources(product_of(nest))
        made: list[Any] = []
        if nest.attrs.get(CLEAR) is not None and nest.init is not None:
            made.append(self._elementwise(nest.loops[:2], nest.init))
        lanes = max(1, self.bits // dt.bits(p.store.buffer.dtype))
        width = lanes
        while width > 1 and p.n % width:
            width //= 2
        if coefficient(p.b.indices[-1], p.j) != 1 or coefficient(p.store.indices[-1], p.j) != 1:
            width = 1
        rows, vectors = register_tile(p.m, p.n // width, self.registers)
        made.extend(self._tiles(p, rows, vectors, width, 0, p.m // rows * rows))
        if p.m % rows:
            made.extend(self._tiles(p, p.m % rows, vectors, width, p.m // rows * rows, p.m))
        return made[0] if len(made) == 1 else SeqStmt(made)

    def _sources(self, p: _Product) -> _Product:
        """The product with a left operand that is read where it is."""
        found = self.through.get(p.a.buffer)
        if found is None:
            return p
        names, value = found
        load = substitute(value, dict(zip(names, p.a.indices, strict=True)))

        class Replace(Mutator):
            def visit_BufferLoad(self, node: Any) -> Any:  # noqa: N802
                return load if node is p.a else self.default_visit(node)

        return replace(p, store=Replace().default_visit(p.store), a=load)

    def _tiles(self, p: _Product, rows: int, vectors: int, width: int, begin: int, end: int) -> list[Any]:
        """Register tiles over the rows ``begin..end``."""
        dtype = p.i.dtype
        jo, io, ii, jj, lane, k = (Var(name, dtype) for name in ("jo", "io", "ii", "jj", "lane", "k"))
        at = {p.i: io * rows + ii + begin, p.j: jo * (vectors * width) + jj * width + lane, p.k: k}
        body: Any = substitute(p.store, at)
        body = (
            For(lane, const(0, dtype), const(width, dtype), ForKind.VECTORIZED, body)
            if width > 1
            else substitute(body, {lane: const(0, dtype)})
        )
        body = serial_loops([(ii, rows), (jj, vectors)], body, ForKind.UNROLLED)
        body = For(k, const(0, dtype), const(p.depth, dtype), ForKind.SERIAL, body)
        count = (end - begin) // rows
        if not count:
            return []
        return [serial_loops([(jo, p.n // (vectors * width)), (io, count)], body)]


def register_tile(height: int, vectors: int, registers: int) -> tuple[int, int]:
    """(rows, vectors) of the tile with the fewest loads for each multiply-add that fits the registers."""
    best, best_cost = (1, 1), float("inf")
    for wide in range(1, min(vectors, _MAX_VECTORS) + 1):
        if vectors % wide:
            continue
        for rows in range(1, min(height, _MAX_ROWS) + 1):
            if rows * wide + wide + 1 > registers:
                continue
            waste = -(-height // rows) * rows / height
            cost = ((rows + wide) / (rows * wide) + max(0.0, 8 / (rows * wide) - 1.0)) * waste
            if cost < best_cost - 1e-9:
                best, best_cost = (rows, wide), cost
    return best


def _one_or_loop(loop: For) -> Any:
    """A vector of one is a statement."""
    if isinstance(loop.extent, IntImm) and loop.extent.value == 1:
        return substitute(loop.body, {loop.loop_var: const(0, loop.loop_var.dtype)})
    return loop


def _fresh(stmt: Any) -> Any:
    """The statement with loop variables of its own: it stands beside one that has the same."""
    names: dict[Any, Any] = {}

    def look(node: Any) -> bool:
        if isinstance(node, (For, LetStmt)):
            var = node.loop_var if isinstance(node, For) else node.var
            names[var] = Var(var.name, var.dtype)
        return True

    pre_order_visit(stmt, look)

    class Rename(Substitute):
        def visit_For(self, node: Any) -> Any:  # noqa: N802
            made = self.default_visit(node)
            return made.with_fields(loop_var=names[node.loop_var])

        def visit_LetStmt(self, node: Any) -> Any:  # noqa: N802
            made = self.default_visit(node)
            return made.with_fields(var=names[node.var])

    return Rename(names).visit(stmt)


class _Operands:
    """``out = f(out, x)`` taken apart: what is reduced, and the same operation on other operands."""

    def __init__(self, store: Any, left: Any, right: Any) -> None:
        self.store, self.left, self.right = store, left, right
        value = store.value
        # max, min, + and the bitwise calls all have two operands, the first of which is the result so far.
        self.element = value.args[1] if hasattr(value, "args") else value.b

    def made(self) -> Any:
        value = self.store.value
        if hasattr(value, "args"):
            return value.with_fields(args=(self.left, self.right))
        return type(value)(self.left, self.right)


class _Inner(Mutator):
    """Statements inside of a parallel loop: operators do not stand there, atomic updates do."""

    def __init__(self, kernel: _CpuKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def visit_PrimExpr(self, node: Any) -> Any:  # noqa: N802
        return node

    def visit_For(self, node: Any) -> Any:  # noqa: N802
        found = nest_of(node)
        if found is not None and found.op != "parallel":
            raise TileLoweringError(
                f"T.{found.op} stands inside of T.Parallel: the whole block runs it, not one iteration"
            )
        return self.kernel.loop(node) if found is None else self.kernel.nest(found)

    def visit_BlockRealize(self, node: Any) -> Any:  # noqa: N802
        return self.kernel.visit_BlockRealize(node)


class _Atomics(Mutator):
    """Stores that update an element as one instruction."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def visit_SeqStmt(self, node: Any) -> Any:  # noqa: N802
        """The value before goes to a variable first: the instruction gives it."""
        if len(node.seq) == 2 and isinstance(node.seq[0], BufferStore) and node.seq[0].buffer.scope() == "local":
            update = self.visit(node.seq[1])
            guarded = update
            while isinstance(guarded, IfThenElse):
                guarded = guarded.then_case
            stored = node.seq[0].with_fields(value=guarded.value)
            return stored if guarded is update else IfThenElse(update.condition, stored)
        return self.default_visit(node)

    def visit_BufferStore(self, node: Any) -> Any:  # noqa: N802
        loads = [x for x in loads_of(node.value) if x.buffer is node.buffer]
        if node.buffer.scope() in ("local",):
            return node
        if self.how == "exch":
            return node
        if self.how != "add" or not loads or dt.bits(node.buffer.dtype) < 32:
            raise TileLoweringError(
                f"T.atomic_{self.how} on {node.buffer.dtype} {node.buffer.name}: CPUs here update float32, float64, int32 and int64 "
                "by atomic_add only; reduce into memory of each block and add up in a second kernel"
            )
        value = _uncast(node.value)
        address = call("handle", "address_of", BufferLoad(node.buffer, node.indices))
        return Evaluate(call(node.buffer.dtype, "atomic_add", address, value.b))


class _SelectsOfTile(Mutator):
    """Choices whose values both lie in the block's own memory need no branch."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def visit_BufferStore(self, node: Any) -> Any:  # noqa: N802
        return plain_selects(node)


class _Retarget(Substitute):
    """The program on other buffers: some with their last two axes exchanged, some with wider elements."""

    def __init__(self, memory: dict[Any, Any], turned: dict[Any, Any]) -> None:
        pointers = {old.data: new.data for old, new in memory.items()}
        super().__init__(pointers, memory)
        self.memory = memory
        self.turned = turned

    def _place(self, buffer: Any, indices: Any) -> list[Any]:
        made = [self.visit(i) for i in indices]
        return [*made[:-2], made[-1], made[-2]] if buffer in self.turned else made

    def visit_BufferLoad(self, node: Any) -> Any:  # noqa: N802
        new = self.memory.get(node.buffer)
        if new is None:
            return self.default_visit(node)
        load = BufferLoad(new, self._place(node.buffer, node.indices))
        return load if new.dtype == node.buffer.dtype else Cast(node.buffer.dtype, load)

    def visit_BufferStore(self, node: Any) -> Any:  # noqa: N802
        new = self.memory.get(node.buffer)
        if new is None:
            return self.default_visit(node)
        value = self.visit(node.value)
        if value.dtype != new.dtype:
            value = Cast(new.dtype, value)
        return BufferStore(new, value, self._place(node.buffer, node.indices))

    def visit_Cast(self, node: Any) -> Any:  # noqa: N802
        made = self.default_visit(node)
        inner = made.value
        # An element kept in the wider type needs no way through the narrow one.
        if isinstance(inner, Cast) and isinstance(inner.value, BufferLoad) and inner.value.dtype == made.dtype:
            if inner.value.buffer in self.memory.values():
                return inner.value
        return made

    def visit_Block(self, node: Any) -> Any:  # noqa: N802
        # What a block reads and writes is worked out anew by whoever asks.
        made = self.default_visit(node.with_fields(reads=(), writes=()))
        return made
