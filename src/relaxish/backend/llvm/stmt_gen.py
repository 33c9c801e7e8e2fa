"""TIR statements to LLVM control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .index_gen import Lin, Offset
from ...ir.op import op_name_of
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import all_nodes, pre_order_visit
from ...ir.node import Node
from ...ir.prim import Call, IntImm, SizeVar, Var, const_int
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...tir import BufferLoad, BufferStore, For, ForKind
from .amx import TileFile, amx_call, chain_products, keep_result_tiles
from .emit import FunctionWriter, Lines
from .expr_gen import ExprGen
from .ltypes import element_bytes, llvm_type, memory_type
from .scalar_replacement import Promotion, find_accumulators, passes_pointer, slot_of, write_back
from .ranges import peel_count, prove
from .dynamic_tiles import split_ragged
from .index_set_splitting import split_loop
from .transpose import transpose_loops
from .vectorize import vector_loop
from ...ir.plain import plain_str
from ...tir.stmt import (
    Allocate, AllocateConst, AssertStmt, AttrStmt, DeclBuffer, Evaluate, IfThenElse, LetStmt, SeqStmt, Stmt, While,
)  # fmt: skip

# Stack space for one buffer and for all buffers of a function; more comes from the heap.
_STACK_BYTES = 128 * 1024
_STACK_TOTAL = 512 * 1024
# A buffer up to this size (32 vectors of 64 bytes) whose indices are constant after unrolling lives in registers.
_REGISTER_BYTES = 2048
_UNROLL_LIMIT = 1024


class StmtGen(ExprGen):
    """Generates the statements of one function."""

    def __init__(self, writer: FunctionWriter, features: frozenset[str], noalias: bool) -> None:
        super().__init__(writer, features)
        self.vector_bits: int = writer.module.vector_bits
        self.private: set[Any] = set()
        self.volatile: set[Any] = set()
        self.roots: dict[Any, Any] = {}
        self.merged_params = not noalias
        self.noalias = noalias
        self.stack_bytes = 0
        self.register_buffers: set[Any] = set()
        # Those of them that LLVM leaves in memory all the same, because a loop that stays one moves through them.
        self.moved_through: set[Any] = set()
        self.writes_cache: dict[int, tuple[Any, frozenset[Any]]] = {}
        self.terminated = False
        self.promoted: dict[Any, Promotion] = {}
        self.never_promote: set[Any] = set()
        # Loops as they stand, quick to compile: for code that runs a few times.
        self.plain = False
        self.branches = 0
        self.result: str | None = None
        self.heap: list[str] = []
        self.tiles: TileFile | None = None
        self.tile_chain: tuple[Any, Any, str] | None = None

    def tile_file(self) -> TileFile:
        """The function's matrix tiles, configured on first use."""
        if self.tiles is None:
            self.tiles = TileFile(self)
        return self.tiles

    def tile_product(self, expr: Call) -> str:
        """Multiply matrix tiles."""
        return amx_call(self, expr)

    def promoted_slot(self, promotion: Promotion, offset: Offset, dtype: str) -> str:
        """The stack slot that stands for an access of a promoted buffer."""
        return slot_of(self, promotion, offset, dtype)

    def finish(self) -> None:
        """End the function."""
        self.leave("0")

    def leave(self, code: str) -> None:
        """Return ``code``."""
        self.w.lines += self.leaving(code, self.w.depth)

    def leaving(self, code: str, depth: int) -> Lines:
        """The lines that return ``code`` from a scope of that depth: what the function took is given back."""
        lines: Lines = [f"  call void @free(ptr {raw})" for raw in self.heap if self.w.depth_of[raw] <= depth]
        if self.tiles is not None:
            lines.append("  call void @llvm.x86.tilerelease()")
        return [*lines, f"  ret i32 {code}"]

    def stmt(self, node: Stmt) -> None:
        """Generate one statement."""
        getattr(self, f"stmt_{type(node).__name__}", self._unknown)(node)

    def _unknown(self, node: Stmt) -> None:
        hint = "; lower it first" if "Block" in type(node).__name__ else ""
        raise RelaxishError(f"the LLVM backend has no code for statements of kind {type(node).__name__}{hint}")

    # ---- plain statements

    def stmt_SeqStmt(self, node: SeqStmt) -> None:
        for part in node.seq:
            self.stmt(part)

    def stmt_Evaluate(self, node: Evaluate) -> None:
        if not isinstance(node.value, IntImm):
            self.visit(node.value)

    def stmt_BufferStore(self, node: BufferStore) -> None:
        value = self.visit(node.value)
        if node.predicate is not None:
            offset = self.offset_of(node.buffer, node.indices)
            self.store_masked(node.buffer, offset, value, node.value.dtype, node.predicate)
            return
        self.store_elements(node.buffer, self.offset_of(node.buffer, node.indices), value, node.value.dtype)

    def stmt_LetStmt(self, node: LetStmt) -> None:
        var = node.var
        if dt.is_handle(var.dtype):
            self.pointers[var] = self.visit(node.value)
            source = _pointer_source(node.value)
            if source is not None:
                self.roots[var] = self.roots.get(source, source)
        elif var.dtype in ("int32", "int64"):
            self.lin_cache[var] = self.lin(node.value)
            if isinstance(var, SizeVar) and self.lin_cache[var][0]:
                # The size of an array is not negative, whatever it is computed from.
                self.sizes.known.add(var)
                name = self.materialize(self.lin_cache[var])
                self.nonneg.add(name)
                self.lin_cache[var] = {name: 1}, 0
        else:
            self.vars[var] = self.visit(node.value)
        self.stmt(node.body)

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key in ("thread_extent", "virtual_thread"):
            raise RelaxishError("the program binds GPU threads and cannot be compiled for a CPU target")
        if node.attr_key == "coproc_uop_scope":
            self._once(node)
            return
        if node.attr_key == "volatile_scope":
            self.volatile.add(node.node)
        self.stmt(node.body)

    def _once(self, node: AttrStmt) -> None:
        """The body, for the first caller only that comes by here after the code was loaded."""
        from .packed_calls import static_word

        if plain_str(node.value) != "TVMBackendRunOnce":
            raise RelaxishError(f"a coproc_uop_scope is run by TVMBackendRunOnce, not by {node.value}")
        w = self.w
        then, join = w.label("once"), w.label("join")
        before = w.effect(f"atomicrmw xchg ptr {static_word(self)}, i64 1 seq_cst")
        first = w.effect(f"icmp eq i64 {before}, 0")
        self.branches += 1
        w.open()
        w.line(f"br i1 {first}, label %{then}, label %{join}")
        w.start_block(then)
        self.stmt(node.body)
        w.line(f"br label %{join}")
        w.close()
        w.start_block(join)
        self.branches -= 1

    def stmt_DeclBuffer(self, node: DeclBuffer) -> None:
        self.stmt(node.body)

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        cond = self.visit(node.condition)
        if cond != "true":
            self._require(cond, plain_str(node.message))
        self.stmt(node.body)

    def _require(self, cond: str, message: str) -> None:
        """Go on only where the ``i1`` ``cond`` holds, here and nowhere further out."""
        w = self.w
        good, bad = w.label("ok"), w.label("fail")
        w.line(f"br i1 {cond}, label %{good}, label %{bad}")
        w.start_block(bad)
        self.leave(self.failed("assert", (message,), "0", "0", w.lines))
        w.start_block(good)

    def return_value(self, value: PrimExpr) -> None:
        """``T.ret``: leave the function with the value, as int64 or double, where ``result`` points."""
        if self.result is not None:
            wide = "float64" if dt.is_float(value.dtype) else "uint64" if dt.is_uint(value.dtype) else "int64"
            text = self.convert(self.visit(value), value.dtype, wide)
            self.w.line(f"store {llvm_type(wide)} {text}, ptr {self.result}, align 8")
        self.leave("0")
        # What comes after may not be reached, whatever loops say.
        self.w.pinned = True
        self.w.start_block(self.w.label("dead"))

    # ---- memory

    def stmt_Allocate(self, node: Allocate) -> None:
        size: int | None = 1
        for extent in node.extents:
            size = size * extent.value if size is not None and isinstance(extent, IntImm) else None
        self.private.add(node.buffer_var)
        count = dt.lanes(node.dtype)
        element = dt.element_of(node.dtype)
        w = self.w
        if size is not None:
            total = size * count * element_bytes(element)
            if total <= _STACK_BYTES and self.stack_bytes + total <= _STACK_TOTAL:
                self.stack_bytes += total
                if total <= _REGISTER_BYTES:
                    self.register_buffers.add(node.buffer_var)
                    if self._moves(node):
                        self.moved_through.add(node.buffer_var)
                ty = memory_type(element)
                self.room[node.buffer_var] = {}, size * count
                self.pointers[node.buffer_var] = w.alloca(f"[{max(1, size * count)} x {ty}], align 64")
                self.stmt(node.body)
                return
        self._heap(node, count * element_bytes(element))

    def _heap(self, node: Allocate, unit: int) -> None:
        w = self.w
        w.module.declare("declare noalias ptr @malloc(i64)")
        w.module.declare("declare void @free(ptr)")
        bytes_ = str(unit + 64)
        lin: Any = ({}, unit)
        for extent in node.extents:
            lin = self._product(lin, self.lin(extent))
        bytes_ = self.materialize((lin[0], lin[1] + 64))
        raw = w.effect(f"call noalias ptr @malloc(i64 {bytes_})", "heap")
        self._require(w.effect(f"icmp ne ptr {raw}, null"), "out of memory for a temporary buffer")
        self.heap.append(raw)
        address = w.effect(f"ptrtoint ptr {raw} to i64")
        # Up to the next multiple of 64, so vectors stay within cache lines.
        pad = w.effect(f"sub i64 0, {address}")
        pad = w.effect(f"and i64 {pad}, 63")
        self.pointers[node.buffer_var] = w.effect(f"getelementptr i8, ptr {raw}, i64 {pad}", "buf")
        self.stmt(node.body)
        self.heap.remove(raw)
        w.line(f"call void @free(ptr {raw})")

    def stmt_AllocateConst(self, node: AllocateConst) -> None:
        import numpy as np

        data = node.data
        array = data.numpy() if hasattr(data, "numpy") else np.asarray(data)
        self.pointers[node.buffer_var] = self.w.module.constant(np.ascontiguousarray(array).tobytes())
        self.private.add(node.buffer_var)
        self.stmt(node.body)

    # ---- branches

    def stmt_IfThenElse(self, node: IfThenElse) -> None:
        decided = prove(node.condition, self.ranges)
        cond = self.visit(node.condition) if decided is None else str(decided).lower()
        if cond in ("true", "false"):
            chosen = node.then_case if cond == "true" else node.else_case
            if chosen is not None:
                self.stmt(chosen)
            return
        w = self.w
        then, other, join = w.label("then"), w.label("else"), w.label("join")
        self.branches += 1
        pre = w.open()
        w.line(f"br i1 {cond}, label %{then}, label %{other if node.else_case is not None else join}")
        w.start_block(then)
        self.stmt(node.then_case)
        w.line(f"br label %{join}")
        w.close()
        if node.else_case is not None:
            w.open(share=pre)
            w.start_block(other)
            self.stmt(node.else_case)
            w.line(f"br label %{join}")
            w.close()
        w.start_block(join)
        self.branches -= 1

    # ---- loops

    def stmt_For(self, node: For) -> None:
        low, extent = self.lin(node.min), self.lin(node.extent)
        if not extent[0]:
            count = extent[1]
            if count <= 0:
                return
            if count == 1 and node.kind != ForKind.THREAD_BINDING:
                self._bind(node.loop_var, low)
                self.stmt(node.body)
                return
            if not self.plain and (node.kind == ForKind.UNROLLED or self._wants_unroll(node, count)):
                self._unrolled(node, low, count)
                return
        if node.kind == ForKind.PARALLEL:
            from .parallel import parallel_loop

            parallel_loop(self, node, low, extent)
            return
        if node.kind == ForKind.THREAD_BINDING:
            raise RelaxishError("the program binds GPU threads and cannot be compiled for a CPU target")
        if self.plain:
            self._loop_plain(node, low, extent)
        else:
            self._serial(node, low, extent)

    def _unrolled(self, node: For, low: Lin, count: int) -> None:
        for i in range(count):
            self._bind(node.loop_var, (low[0], low[1] + i))
            self.stmt(node.body)

    def _bind(self, var: Var, value: Any) -> None:
        """Give a loop variable a linear value; a constant also becomes its range."""
        self.lin_cache[var] = value
        if value[0]:
            self.ranges.pop(var, None)
        else:
            self.ranges[var] = (value[1], value[1])

    def _serial(self, node: For, low: Lin, extent: Lin) -> None:
        pieces = split_loop(node, self.ranges, self.writes_of(node), self.alias_key, self.sizes) or (
            split_ragged(node) if extent[0] or self.sizes.known else None
        )
        if pieces is not None:
            for piece in pieces:
                self.stmt(piece)
            return
        if transpose_loops(self, node):
            return
        if not low[0] and not extent[0] and extent[1] > 2:
            first, last = peel_count(node, low[1], extent[1], self.ranges)
            if first or last:
                begin, count = low[1], extent[1]
                for i in range(first):
                    self._bind(node.loop_var, ({}, begin + i))
                    self.stmt(node.body)
                self._loop(node, ({}, begin + first), ({}, count - first - last))
                for i in range(count - last, count):
                    self._bind(node.loop_var, ({}, begin + i))
                    self.stmt(node.body)
                return
        self._loop(node, low, extent)

    def _loop(self, node: For, low: Lin, extent: Lin) -> None:
        if not extent[0] and chain_products(self, node, low, extent[1]):
            return
        if not vector_loop(self, node, low, extent):
            self._loop_plain(node, low, extent)

    def one_by_one(self, node: For) -> None:
        """A loop as it stands; what it encloses may be made of vectors."""
        low, extent = self.lin(node.min), self.lin(node.extent)
        if extent[0] or extent[1] > 0:
            self._loop_plain(node, low, extent)

    def _loop_plain(self, node: For, low: Lin, extent: Lin) -> None:
        begin = self.materialize(low)
        end = self.materialize(_sum(low, extent))
        certain = not extent[0]
        promotions: list[Promotion] = []
        accumulators = [] if self.plain else find_accumulators(self, node)
        tiles = self.tile_file() if certain and not self.plain and keep_result_tiles(self, node) else None

        def body(index: str) -> None:
            if tiles is not None:
                tiles.scope = self.w.depth
            if self.tiles is not None:
                self.tiles.forget_operands()
            for buffer, uniform in accumulators:
                promotion = Promotion(buffer, self.w.depth, self.branches, uniform)
                promotions.append(promotion)
                self.promoted[buffer.data] = promotion
            if self._is_nonneg(low):
                self.nonneg.add(index)
            self.lin_cache[node.loop_var] = ({index: 1}, 0)
            self.ranges.pop(node.loop_var, None)
            if not low[0] and not extent[0]:
                self.ranges[node.loop_var] = (low[1], low[1] + extent[1] - 1)
            with self.sizes.inside(node.extent):
                self.stmt(node.body)

        def leave() -> None:
            if self.tiles is not None:
                self.tiles.forget_operands()
            if tiles is not None:
                tiles.store_results()
            for promotion in promotions:
                del self.promoted[promotion.buffer.data]
                write_back(self, promotion)

        self.counted_loop(begin, end, self.writes_of(node), certain, body, leave if accumulators or certain else None)
        if not (accumulators or certain) and self.tiles is not None:
            self.tiles.forget_operands()

    def _is_nonneg(self, lin: Lin) -> bool:
        return lin[1] >= 0 and all(f > 0 and n in self.nonneg for n, f in lin[0].items())

    def counted_loop(
        self, begin: str, end: str, writes: frozenset[Any], certain: bool, body: Callable[[str], None],
        leave: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """A loop over i64 from ``begin`` below ``end``; without ``certain`` it may run zero times. ``leave`` writes what
        follows it if it ran."""
        w = self.w
        loop, done = w.label("loop"), w.label("done")
        if not certain:
            # The guard is a scope of its own: what is hoisted out of the loop still runs only when the loop does.
            guard = w.label("guard")
            go = w.pure(f"icmp slt i64 {begin}, {end}", begin, end, hint="c")
            w.open()
            w.line(f"br i1 {go}, label %{guard}, label %{done}")
            w.start_block(guard)
        self._touch(writes)
        w.open(writes, True)
        scope, entry = w.scopes[-1], w.block
        w.line(f"br label %{loop}")
        w.start_block(loop)
        index = w.name("i")
        w.define(index)
        following = w.name("n")
        slot = len(w.lines)
        w.lines.append("")
        body(index)
        latch = w.block
        w.lines[slot] = f"  {index} = phi i64 [ {begin}, %{scope.entry or entry} ], [ {following}, %{latch} ]"
        w.line(f"{following} = add nsw i64 {index}, 1")
        again = w.name("c")
        w.line(f"{again} = icmp slt i64 {following}, {end}")
        left = w.label("left") if leave is not None and not certain else done
        w.line(f"br i1 {again}, label %{loop}, label %{left}")
        w.close()
        if not certain:
            if leave is not None:
                w.start_block(left)
                self._touch(writes)
                leave()
                w.line(f"br label %{done}")
            w.close()
        w.start_block(done)
        self._touch(writes)
        if leave is not None and certain:
            leave()

    def _touch(self, writes: frozenset[Any]) -> None:
        if None in writes:
            self.w.touch_all()
            return
        for key in writes:
            self.w.touch(key)

    def stmt_While(self, node: While) -> None:
        w = self.w
        head, body, done = w.label("while"), w.label("body"), w.label("done")
        writes = self.writes_of(node)
        self._touch(writes)
        w.open(writes)
        w.line(f"br label %{head}")
        w.start_block(head)
        cond = self.visit(node.condition)
        w.line(f"br i1 {cond}, label %{body}, label %{done}")
        w.start_block(body)
        self.stmt(node.body)
        w.line(f"br label %{head}")
        w.close()
        w.start_block(done)
        self._touch(writes)

    # ---- analysis

    def writes_of(self, node: Stmt) -> frozenset[Any]:
        """Alias keys of the buffers written inside ``node``; None among them means anything may be written."""
        known = self.writes_cache.get(id(node))
        if known is not None:
            return known[1]
        found: set[Any] = set()

        def look(item: Node) -> bool:
            match item:
                case BufferStore():
                    found.add(self.alias_key(item.buffer.data))
                    # Memory allocated inside ``node`` becomes private, and gets another key, only once that is reached.
                    found.add(self.roots.get(item.buffer.data, item.buffer.data))
                case Call():
                    if passes_pointer(item):
                        found.add(None)
            return True

        pre_order_visit(node, look)
        result = frozenset(found)
        # The node is kept as well: its id must not come back as another's.
        self.writes_cache[id(node)] = node, result
        return result

    def _moves(self, node: Allocate) -> bool:
        """Whether a loop that stays one moves through a buffer."""
        for loop in of_kind(all_nodes(node.body), For):
            count = const_int(loop.extent, 0)
            if loop.kind == ForKind.UNROLLED or count == 1 or self._wants_unroll(loop, count or _UNROLL_LIMIT):
                continue
            for item in all_nodes(loop.body):
                own = isinstance(item, (BufferLoad, BufferStore)) and item.buffer.data is node.buffer_var
                if own and any(uses_var(i, loop.loop_var) for i in item.indices):
                    return True
        return False

    def _wants_unroll(self, node: For, count: int) -> bool:
        """Whether unrolling makes the indices of a register-sized buffer constant."""
        if node.kind != ForKind.SERIAL or not self.register_buffers or count > 64:
            return False
        uses = 0
        size = 0
        wide = False
        var = node.loop_var
        loops = 1

        def look(item: Node) -> bool:
            nonlocal uses, size, loops, wide
            if isinstance(item, For):
                if not isinstance(item.extent, IntImm):
                    loops = _UNROLL_LIMIT
                else:
                    loops *= max(1, item.extent.value)
            if isinstance(item, (BufferLoad, BufferStore)):
                size += 1
                wide = wide or any(dt.lanes(i.dtype) > 1 for i in item.indices)
                if item.buffer.data in self.register_buffers and any(uses_var(i, var) for i in item.indices):
                    uses += 1
            return True

        pre_order_visit(node.body, look)
        # Scalar rows are better left to be made vectors of.
        return uses > 0 and (wide or count <= 8) and size * loops * count <= _UNROLL_LIMIT


def _sum(a: Any, b: Any) -> Any:
    from ...arith.polynomial import add as add_terms

    return add_terms(a[0], b[0]), a[1] + b[1]


def _pointer_source(value: PrimExpr) -> PrimExpr | None:
    """The buffer variable a pointer expression points into, if it says so."""
    match value:
        case Var():
            return value
        case Call():
            name = op_name_of(value)
            if name == "tir.address_of":
                return value.args[0].buffer.data
            if name == "tir.tvm_access_ptr":
                return value.args[1]
    return None


__all__ = ["StmtGen", "llvm_type"]
