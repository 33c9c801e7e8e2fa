"""From a lowered kernel to the function that one thread runs.

Before and after, in check mode (shortened)::

    def kernel(A: handle, B: handle):              def kernel(thread: handle, arguments: handle):
        bx = launch_thread("blockIdx.x", 4)            A = pointer(arguments[0]); B = pointer(arguments[1])
        tx = launch_thread("threadIdx.x", 64)          bx = thread.block_idx[0]; tx = thread.thread_idx[0]
        S = allocate([64], "shared")                   S = pointer(rx_shared(thread, 0))
        S[tx] = A[bx * 64 + tx]                        S[rx_check(thread, tx, 1, 1)] = A[rx_check(thread, ..., 1, 2)]
        tvm_storage_sync("shared")                     rx_barrier(thread, 0, 0, 1, 3)

Threads switch only inside of the runtime's functions, all of which take ``thread``, so that code between two of them
may be compiled like any other. What intrinsics become is in :mod:`.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import itertools
from typing import Any

from ...ir.node import Node
from ...arith import Analyzer
from ...ir import dtype as dt
from ...ir.functor import Mutator, post_order_visit
from ...ir.op import Op, op_name_of
from ...ir.expr import PrimExpr, Range, ExprLike
from ...ir.prim import (
    Call,
    Cast,
    IntImm,
    Ramp,
    Shuffle,
    StringImm,
    Var,
    const_int,
    is_call_of,
    is_zero,
    is_consecutive,
)
from ...ir.types import PointerType, PrimType
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...tir import (
    Allocate, AttrStmt, Buffer, BufferLoad, DeclBuffer, Evaluate, For, ForKind, LetStmt, PrimFunc, SeqStmt, While,
)  # fmt: skip
from ...tir.buffer import decl_buffer
from ...tir.stmt import AssertStmt, BufferStore, IfThenElse, Stmt
from . import layout, table
from .nibbles import is_nibble, load_nibbles, nibble_bytes, store_nibbles
from .program import Memory, Site, ThreadProgram

__all__ = ["Place", "ThreadFunction", "make_thread_program"]

_INDICES = {
    "blockIdx": layout.FIBER_BLOCK_IDX, "threadIdx": layout.FIBER_THREAD_IDX, "clusterIdx": layout.FIBER_RANK_IDX,
    "clusterCtaIdx": layout.FIBER_RANK_IDX,
}  # fmt: skip
# Loops that run more often than this, nested ones together, are charged to the launch's budget of steps.
_UNCHARGED = 256
_FRAGMENTS = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")


class Place:
    """Target of a pointer: the buffer whose memory it points into, the element's index and type."""

    def __init__(self, data: Var, dtype: str, index: PrimExpr) -> None:
        self.data = data
        self.dtype = dtype
        self.index = index

    @property
    def address(self) -> PrimExpr:
        """The pointer as an expression; to a whole byte where elements have 4 bits."""
        if is_nibble(self.dtype):
            return Place(self.data, "uint8", self.index // 2).address
        kind = Call(self.dtype, Op.get("tir.type_annotation"), [])
        args = [kind, self.data, self.index, IntImm("int32", 1), IntImm("int32", 3)]
        return Call("handle", Op.get("tir.tvm_access_ptr"), args)


def registers_of_products(body: Stmt) -> list[Var]:
    """Memory of threads in which products of warpgroups keep results or operands."""
    found: list[Var] = []

    def look(node: Any) -> None:
        name = op_name_of(node) if isinstance(node, Call) else ""
        if name == "tir.ptx_wgmma_ss":
            found.append(node.args[4])
        elif name == "tir.ptx_wgmma_rs":
            found.extend((node.args[4], node.args[6]))

    post_order_visit(body, look)
    return list(of_kind(found, Var))


def meetings_of_clusters(body: Stmt) -> set[int]:
    """Arrivals at the cluster's barrier with the wait right behind them, by identity."""
    found: set[int] = set()

    def name(stmt: Stmt) -> str:
        return getattr(getattr(getattr(stmt, "value", None), "op", None), "name", "")

    def look(node: Node) -> None:
        if isinstance(node, SeqStmt):
            for one, following in itertools.pairwise(node.seq):
                if name(one) == "tir.ptx_cluster_arrive" and name(following) == "tir.ptx_cluster_wait":
                    found.add(id(one))

    post_order_visit(body, look)
    return found


def make_thread_program(name: str, func: PrimFunc, checked: bool) -> ThreadProgram:
    """The thread function of a lowered kernel. Raises RelaxishError for what the emulator does not know."""
    return ThreadFunction(name, func, checked).build()


class ThreadFunction(Mutator):
    """Builds one thread function; entries of the table of intrinsics call its methods."""

    def __init__(self, name: str, func: PrimFunc, checked: bool) -> None:
        self.name = name
        self.source = func
        self.checked = checked
        self.thread = Var("thread", "handle")
        self.arguments = Var("arguments", "handle")
        self.words = decl_buffer((layout.FIBER_BYTES // 8,), "int64", name="words", data=self._pointer("words"))
        self.slots = decl_buffer((max(1, len(func.params)),), "int64", name="slots", data=self._pointer("slots"))
        self.memories: list[Memory] = []
        self.memory_of: dict[Any, Memory] = {}
        self.local_size: dict[Any, int] = {}
        self.aliases: dict[Any, Place] = {}
        self.fragments: dict[Any, dict[str, str]] = {}
        self.sites: list[Site] = [Site(None)]
        self.statement: Any = None
        self.static_bytes = 0
        self.local_bytes = 0
        self.dynamic: Memory | None = None
        self.clocks = False
        self.proxies = False
        self.blocks_each: int | None = None
        self.registers: dict[Any, int | None] = dict.fromkeys(registers_of_products(func.body)) if checked else {}
        self.register_cells = 0
        self.meetings = meetings_of_clusters(func.body)
        self.grid_barrier = False
        self.atomics = False
        self.loops = False
        self.helpers: dict[str, Any] = {}
        self.turns = 1
        self.analyzer = Analyzer()
        self.barriers_at: int | None = None

    @staticmethod
    def _pointer(name: str) -> Var:
        return Var(name, PointerType(PrimType("int64"), "local"))

    # ---- the whole

    def build(self) -> ThreadProgram:
        """Build the thread function and collect what launches must know."""
        kinds = tuple(self._parameter(p) for p in self.source.params)
        body = self.visit(self.source.body)
        for number, (param, kind) in reversed(list(enumerate(zip(self.source.params, kinds, strict=True)))):
            body = LetStmt(param, self._argument(number, kind), body)
        body = DeclBuffer(self.words, DeclBuffer(self.slots, body))
        body = LetStmt(self.words.data, self.thread, LetStmt(self.slots.data, self.arguments, body))
        func = PrimFunc([self.thread, self.arguments], body, attrs={"relaxish.plain_code": self.checked})
        waits = self.atomics and self.loops
        return ThreadProgram(
            self.name, func, kinds, self.memories, self.sites, self.static_bytes, self.local_bytes, self.dynamic,
            self.clocks or self.proxies or waits, self.helpers, self.proxies, self.blocks_each, self.register_cells,
            self.grid_barrier, waits,
        )  # fmt: skip

    def _parameter(self, param: Var) -> str:
        kind = param.type_annotation
        if not isinstance(kind, PointerType):
            return param.dtype
        is_map = kind.storage_scope == "tensor_map"
        self._memory(
            param, shared=False, name=param.name.removesuffix("_map") if is_map else param.name
        ).mapped = is_map
        return "tensor_map" if is_map else "pointer"

    def _argument(self, number: int, kind: str) -> PrimExpr:
        word = BufferLoad(self.slots, [IntImm("int32", number)])
        if kind in ("pointer", "tensor_map"):
            return self.as_pointer(word)
        if not dt.is_float(kind):
            return word if kind == "int64" else Cast(kind, word)
        wide = Call("float64", Op.get("tir.reinterpret"), [word])
        return wide if kind == "float64" else Cast(kind, Cast("float32", wide))

    def _memory(self, var: Var, shared: bool, size: int | None = None, start: int = 0, name: str = "") -> Memory:
        made = Memory(len(self.memories), name or var.name, shared, size, start)
        self.memories.append(made)
        self.memory_of[var] = made
        return made

    # ---- what entries of the table use

    def call(self, name: str, *args: Any, dtype: str = "int64") -> Call:
        """A call of a function of the runtime, or of a helper, with the thread as first argument."""
        made = [self.integer(a) if isinstance(a, int) else a for a in args]
        return Call(dtype, Op.get("tir.call_extern"), [StringImm(name), self.thread, *made])

    @staticmethod
    def integer(value: Any) -> PrimExpr:
        """A number or integer expression as int64."""
        match value:
            case int():
                return IntImm("int64", value)
            case IntImm():
                return IntImm("int64", value.value)
        return value if value.dtype == "int64" else Cast("int64", value)

    @staticmethod
    def as_pointer(value: PrimExpr) -> PrimExpr:
        """An integer reinterpreted as a pointer."""
        return Call("handle", Op.get("tir.reinterpret"), [value])

    @staticmethod
    def as_number(value: PrimExpr) -> PrimExpr:
        """A pointer reinterpreted as an integer."""
        return Call("int64", Op.get("tir.reinterpret"), [value])

    def word(self, offset: int) -> PrimExpr:
        """A word of the thread's own record."""
        return BufferLoad(self.words, [IntImm("int32", offset // 8)])

    def site(self, **facts: Any) -> int:
        """The number of a new place in the program, at the present statement."""
        self.sites.append(Site(self.statement, **facts))
        return len(self.sites) - 1

    def access(self, place: Place, kind: int, align: int = 0) -> int:
        """A new site that accesses the memory a place is in; ``align`` is the number of bytes it must be aligned to."""
        unit = self.bytes_of(place.dtype)
        memory = self.memory_of.get(place.data)
        if memory is not None:
            memory.note(unit, kind != layout.SITE_LOAD)
        size = self.local_size.get(place.data, 1 << 62)
        return self.site(
            buffer=place.data.name if memory is None else memory.name, memory=-1 if memory is None else memory.number, unit=unit,
            align=max(0, align - 1), kind=kind, size=size, dtype=place.dtype,
        )  # fmt: skip

    @staticmethod
    def bytes_of(dtype: str) -> int:
        """Bytes that an element takes in memory."""
        return max(1, dt.nbytes(dt.element_of(dtype))) * dt.lanes(dtype)

    def place(self, pointer: PrimExpr, offset: PrimExpr | None = None, dtype: str | None = None) -> Place:
        """Target of a pointer expression, plus an offset in elements. Raises RelaxishError for other forms.

        Pointers to elements of 4 bits point to bytes.
        """
        found = self._raw_place(pointer, offset, dtype)
        if is_nibble(found.dtype):
            return Place(found.data, "uint8", found.index * dt.lanes(found.dtype) // 2)
        return found

    def _raw_place(self, pointer: PrimExpr, offset: PrimExpr | None = None, dtype: str | None = None) -> Place:
        found = self._place(pointer, dtype)
        if offset is not None and not is_zero(offset):
            found = Place(found.data, found.dtype, found.index + self.integer(self.visit(offset)))
        return found

    def _place(self, pointer: Any, dtype: str | None) -> Place:
        if isinstance(pointer, Var):
            if pointer in self.aliases:
                return self.aliases[pointer]
            return Place(pointer, dtype or self._element(pointer), IntImm("int64", 0))
        name = op_name_of(pointer)
        if name == "tir.tvm_access_ptr":
            kind, data, offset = pointer.args[:3]
            inner = self._place(data, dtype)
            return Place(inner.data, kind.dtype, self._shifted(inner, kind.dtype, self.visit(offset)))
        if name == "tir.address_of":
            load = pointer.args[0]
            index = self.flat(load.buffer, load.indices)
            base = index.base if isinstance(index, Ramp) else index
            return Place(load.buffer.data, load.buffer.dtype, self.integer(self.visit(base)))
        if name == "tir.reinterpret":
            return self._place(pointer.args[0], dtype)
        raise RelaxishError(f"the emulator cannot tell where {pointer} points (kernel {self.name})")

    def _shifted(self, inner: Place, dtype: str, offset: PrimExpr) -> PrimExpr:
        start = inner.index
        if is_zero(start):
            return self.integer(offset)
        if is_nibble(inner.dtype) or is_nibble(dtype):
            return start * dt.bits(inner.dtype) * dt.lanes(inner.dtype) // (
                dt.bits(dtype) * dt.lanes(dtype)
            ) + self.integer(offset)
        scale = self.bytes_of(inner.dtype) // self.bytes_of(dtype)
        return start * scale + self.integer(offset)

    @staticmethod
    def _element(var: Var) -> str:
        kind = var.type_annotation
        return (
            kind.element_type.dtype
            if isinstance(kind, PointerType) and isinstance(kind.element_type, PrimType)
            else "uint8"
        )

    def helper(self, symbol: str, make: Callable[..., Any]) -> str:
        """The symbol of a helper, which ``make()`` builds when it is needed for the first time in this process."""
        self.helpers.setdefault(symbol, make)
        return symbol

    # ---- accesses

    def flat(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
        """The one index of an access. Raises RelaxishError where the buffer has several dimensions."""
        if len(indices) != 1:
            raise RelaxishError(f"the emulator takes flat buffers; {buffer.name} has {len(indices)} dimensions")
        return indices[0]

    def checked_index(self, buffer: Buffer, index: PrimExpr, kind: int, lanes: int) -> PrimExpr:
        """The index of an access, computed by way of its check."""
        if not self.checked or buffer.data in (self.words.data, self.slots.data):
            return index
        inner = dt.lanes(buffer.dtype)
        local = self.local_size.get(buffer.data)
        unit = self.bytes_of(buffer.dtype)
        held = self.registers.get(buffer.data)
        if local is not None and held is None and self._within(index, local // unit):
            return index
        scalar = dt.lanes(index.dtype) == 1
        contiguous = is_consecutive(index)
        span = self.bytes_of(buffer.dtype) * (1 if scalar else dt.lanes(index.dtype))
        wide = (inner > 1 or contiguous) and span & (span - 1) == 0
        site = self.access(Place(buffer.data, buffer.dtype, index), kind, min(16, span) if wide else 0)
        offset = buffer.elem_offset
        shift = 0 if offset is None or is_zero(offset) else self.integer(offset)
        if held is not None:
            return self._check_registers(index, site, held)
        if scalar:
            return self._check(index, shift, 1, site)
        if isinstance(index, Ramp):
            base, stride = index.base, index.stride
            if contiguous:
                return Ramp(self._check(base, shift, dt.lanes(index.dtype), site), self.integer(stride), index.lanes)
            first = self.integer(base) if isinstance(shift, int) else self.integer(base) + shift
            made = self.call("rx_check_strided", first, dt.lanes(index.dtype), self.integer(stride), site)
            return Ramp(made if isinstance(shift, int) else made - shift, self.integer(stride), index.lanes)
        parts = [
            self._check(Shuffle([index], [IntImm("int32", i)]), shift, 1, site) for i in range(dt.lanes(index.dtype))
        ]
        return Shuffle(parts, [IntImm("int32", i) for i in range(len(parts))])

    def _check_registers(self, index: PrimExpr, site: int, first: int) -> PrimExpr:
        """An access to registers that products use, too."""
        if isinstance(index, Ramp):
            base = self.call("rx_check_register", self.integer(index.base), dt.lanes(index.dtype), site, first)
            return Ramp(base, self.integer(index.stride), index.lanes)
        if dt.lanes(index.dtype) > 1:
            raise RelaxishError(f"kernel {self.name} gathers from registers that products use")
        return self.call("rx_check_register", self.integer(index), 1, site, first)

    def _within(self, index: PrimExpr, count: int) -> bool:
        """Whether an index is certain to be below ``count``."""
        if isinstance(index, IntImm):
            return 0 <= index.value < count
        if dt.lanes(index.dtype) > 1:
            return False
        low, high = self.analyzer.const_int_bound.bound(index)
        return 0 <= low and high < count

    def _check(self, index: PrimExpr, shift: ExprLike, count: int, site: int) -> PrimExpr:
        if isinstance(shift, int):
            return self.call("rx_check", self.integer(index), count, site)
        return self.call("rx_check", self.integer(index) + shift, count, site) - shift

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        if is_nibble(e.buffer.dtype):
            return load_nibbles(self, e)
        index = self.visit(self.flat(e.buffer, e.indices))
        return e.with_fields(indices=(self.checked_index(e.buffer, index, layout.SITE_LOAD, dt.lanes(e.dtype)),))

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        self.statement = stmt
        if is_nibble(stmt.buffer.dtype):
            return store_nibbles(self, stmt)
        value = self.visit(stmt.value)
        index = self.visit(self.flat(stmt.buffer, stmt.indices))
        index = self.checked_index(stmt.buffer, index, layout.SITE_STORE, dt.lanes(value.dtype))
        return stmt.with_fields(value=value, indices=(index,))

    def visit_Call(self, e: Call) -> PrimExpr:
        entry = table.lookup(e)
        if entry is not None:
            return entry(self, e)
        if is_call_of(e, "tir.address_of"):
            return self.place(e).address
        return self.default_visit(e)

    # ---- statements

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        self.statement = stmt
        value = self.visit(stmt.value)
        return stmt if value is stmt.value else Evaluate(value)

    def visit_AssertStmt(self, stmt: AssertStmt) -> Stmt:
        # Device code has nobody to tell; the host checked what could be checked.
        return self.visit(stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        self.statement = stmt
        return self.default_visit(stmt)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        self.statement = stmt
        if dt.is_handle(stmt.var.dtype) and isinstance(stmt.value, (Call, Var)):
            self.aliases[stmt.var] = self._raw_place(stmt.value)
            return LetStmt(stmt.var, self.aliases[stmt.var].address, self.visit(stmt.body))
        return self.default_visit(stmt)

    def visit_AttrStmt(self, stmt: Any) -> Stmt:
        key = stmt.attr_key
        if key == "thread_extent":
            return self._thread_index(stmt)
        if key in ("fragment_shape", "fragment_layout"):
            self.fragments.setdefault(stmt.node, {})[key] = stmt.value.value
            return self.visit(stmt.body)
        if key == "min_blocks_per_sm":
            self.blocks_each = int(stmt.value.value)
        if key == "async_commit_queue_scope":
            return SeqStmt([self.visit(stmt.body), Evaluate(self.call("rx_commit_copies"))])
        if key == "async_wait_queue_scope":
            waiting = self.integer(self.visit(stmt.body.value))
            return SeqStmt([Evaluate(self.call("rx_finish_copies", waiting)), self.visit(stmt.body.body)])
        return self.visit(stmt.body)

    def _thread_index(self, stmt: AttrStmt) -> Stmt:
        var, tag = stmt.node.var, stmt.node.thread_tag
        kind, axis = tag.split(".")
        if kind not in _INDICES:
            raise RelaxishError(f"the emulator has no thread index {tag}")
        value = self.word(_INDICES[kind] + 8 * "xyz".index(axis))
        return LetStmt(var, value if var.dtype == "int64" else Cast(var.dtype, value), self.visit(stmt.body))

    def visit_For(self, loop: For) -> Stmt:
        before = self.turns
        extent = const_int(loop.extent)
        self.turns = before * extent if extent is not None else _UNCHARGED + 1
        self.statement = loop
        charge = None
        if self.turns > _UNCHARGED:
            number = self.integer(self.visit(loop.extent))
            charge = Evaluate(self.call("rx_charge", number, self.site()))
            self.turns = 1
        if extent is not None and isinstance(loop.min, IntImm):
            self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        made = For(loop.loop_var, self.visit(loop.min), self.visit(loop.extent), ForKind.SERIAL, self.visit(loop.body))
        self.turns = before
        return made if charge is None else SeqStmt([charge, made])

    def visit_While(self, loop: While) -> Stmt:
        self.statement = loop
        self.loops = True
        turn = Evaluate(self.call("rx_spin", self.site()))
        before, self.turns = self.turns, 1
        made = While(self.visit(loop.condition), SeqStmt([turn, self.visit(loop.body)]))
        self.turns = before
        return made

    # ---- allocations

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        scope = getattr(stmt.buffer_var.type_annotation, "storage_scope", "") or "global"
        if scope == "shared.dyn":
            return self._dynamic(stmt)
        count, dtype = self._elements(stmt), stmt.dtype
        if scope in _FRAGMENTS:
            # A fragment's elements are spread over the 32 lanes of a warp, each of 4 bits in a byte of its own.
            count, dtype = max(1, count // 32), "int8" if is_nibble(dtype) else dtype
        elif is_nibble(dtype):
            count, dtype = nibble_bytes(count * dt.lanes(dtype)), "uint8"
        if scope == "shared":
            return self._static(stmt, count * self.bytes_of(dtype))
        self.local_size[stmt.buffer_var] = count * self.bytes_of(dtype)
        self.local_bytes += count * self.bytes_of(dtype)
        if stmt.buffer_var in self.registers:
            self.registers[stmt.buffer_var] = self.register_cells
            self.register_cells += (count * self.bytes_of(dtype) + 3) // 4
        if scope in _FRAGMENTS:
            self._find_fragment_facts(stmt)
        body = self.visit(stmt.body)
        if dtype == stmt.dtype:
            return Allocate(stmt.buffer_var, dtype, [count], IntImm("bool", 1), body)
        room = Var(stmt.buffer_var.name, PointerType(PrimType(dtype), scope))
        return Allocate(room, dtype, [count], IntImm("bool", 1), LetStmt(stmt.buffer_var, room, body))

    def _elements(self, stmt: Allocate) -> int:
        """How many elements an allocation has; at most, where that depends on a shape: ``min(n, 16)``."""
        count = 1
        for extent in stmt.extents:
            most: Any = extent.value if isinstance(extent, IntImm) else Analyzer().const_int_bound.bound(extent)[1]
            if most >= 1 << 31:
                raise RelaxishError(f"the size of {stmt.buffer_var.name} must be constant in a kernel")
            count *= most
        return count

    def _dynamic(self, stmt: Allocate) -> Stmt:
        if self.dynamic is None:
            self.dynamic = self._memory(stmt.buffer_var, shared=True)
        self.memory_of[stmt.buffer_var] = self.dynamic
        return LetStmt(stmt.buffer_var, self.as_pointer(self.call("rx_shared", -1)), self.visit(stmt.body))

    def static_room(self, size: int) -> int:
        """Reserve ``size`` bytes of static shared memory; returns their offset, a multiple of 128."""
        start = (self.static_bytes + 127) // 128 * 128
        self.static_bytes = start + size
        return start

    def _static(self, stmt: Allocate, size: int) -> Stmt:
        start = self.static_room(size)
        self._memory(stmt.buffer_var, True, size, start)
        return LetStmt(stmt.buffer_var, self.as_pointer(self.call("rx_shared", start)), self.visit(stmt.body))

    def _find_fragment_facts(self, stmt: Allocate) -> None:
        facts = self.fragments.setdefault(stmt.buffer_var, {})
        inner: Any = stmt.body
        while isinstance(inner, (AttrStmt, Allocate, DeclBuffer)):
            if isinstance(inner, AttrStmt) and inner.node is stmt.buffer_var:
                value: Any = inner.value
                facts[inner.attr_key] = value.value
            inner = inner.body

    def fragment_shape(self, data: Var) -> tuple[int, int, int]:
        """(m, n, k) of a fragment buffer. Raises RelaxishError where nothing says it."""
        shape: Any = self.fragments.get(data, {}).get("fragment_shape")
        if shape is None:
            raise RelaxishError(f"the fragment buffer {data.name} has no fragment_shape; run InferFragment")
        m, n, k = (int(v) for v in shape.split(","))
        return m, n, k
