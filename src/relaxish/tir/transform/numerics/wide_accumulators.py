"""Sums of narrow floats are kept in float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....arith.build import as_int
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import pre_order_visit
from ....ir.module import IRModule
from ....ir.node import Node
from ....ir.op import Op
from ....ir.prim import (
    Call,
    Cast,
    CmpOp,
    FloatImm,
    IterVar,
    Let,
    Max,
    Min,
    Select,
    Var,
    const,
    same_int,
    const_int,
)
from ....ir.types import PointerType, PrimType
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...op import max_value, min_value
from ...stmt import (
    AttrStmt, Block, BlockRealize, BufferRegion, BufferStore, DeclBuffer, For, ForKind, LetStmt, MatchBufferRegion,
    SeqStmt, Stmt, While, stmt_list,
)  # fmt: skip
from ..base import StmtExprMutator, StmtExprVisitor, op_name, FunctionRewrite
from .wide_float import WideFloat, is_narrow_float

__all__ = ["Accumulators", "WidenAccumulators", "wide_twin", "widen_accumulators", "widen_module"]


class WidenAccumulators(FunctionRewrite, name="relaxish.WidenAccumulators"):
    """Keep the sums of 16-bit and 8-bit floats in float32, and compute in float32 what is computed around them.

    Before::

        C = T.match_buffer(c, (n, n), "float16")
        ...
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    After::

        C_wide = T.alloc_buffer((n, n))
        ...
            C_wide[vi, vj] = C_wide[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])
        ...
            C[v0, v1] = T.Cast("float16", C_wide[v0, v1])

    Largest and smallest elements need no more bits and stay as they are in half precision. Buffers that something
    sees as bare memory, those matched by tensor instructions, and functions that carry a schedule stay, too.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return func if (func.attrs or {}).get("tir.is_scheduled") else widen_accumulators(func)


def widen_accumulators(func: PrimFunc) -> PrimFunc:
    """The function with wide sums; the very same one where it has no narrow ones."""
    found = Accumulators(func)
    sums = [b for b, needs in found.updated.items() if needs and b not in found.opaque]
    if not sums:
        return func
    kinds = {dt.element_of(b.dtype) for b in sums}
    params = set(func.buffer_map.values())
    chosen = {b for b in found.updated if b in params or b in found.allocated}
    chosen = {b for b in chosen if dt.element_of(b.dtype) in kinds and b not in found.opaque}
    if not chosen:
        return func
    _add_results(chosen, found, kinds)
    wide = {b: wide_twin(b, is_param=b in params) for b in found.order if b in chosen}
    extremes = {b for b, rounds in found.updated.items() if not rounds}
    body = _WideBufferRewriter(kinds, wide, extremes).visit(func.body)
    outer = [(b, new) for b, new in wide.items() if b in params]
    if outer:
        body = _with_copies(body, outer, found.complete)
    return func.with_body(body)


def _add_results(chosen: set[Buffer], found: Accumulators, kinds: set[str]) -> None:
    """Add the temporary buffers that hold results of arithmetic, and copies of what is chosen."""
    twins = {b: b for b in chosen}
    arithmetic = WideFloat(is_narrow_float, lambda e: e, twins)
    grown = True
    while grown:
        grown = False
        for buffer, value in found.stored:
            wanted = buffer in found.allocated and buffer not in chosen and buffer not in found.opaque
            if wanted and dt.element_of(buffer.dtype) in kinds and arithmetic.computes(value):
                chosen.add(buffer)
                twins[buffer] = buffer
                grown = True


def wide_twin(buffer: Buffer, element: str = "float32", is_param: bool = False) -> Buffer:
    """A buffer like another one, with elements of a wider type; that of a parameter is memory of its own."""
    dtype = dt.with_lanes(element, dt.lanes(buffer.dtype))
    if is_param:
        data = Var(f"{buffer.name}_wide", PointerType(PrimType(element), "global"))
        return Buffer(data, dtype, buffer.shape, (), None, f"{buffer.name}_wide")
    scope = getattr(buffer.data.type_annotation, "storage_scope", "")
    data = Var(buffer.data.name, PointerType(PrimType(element), scope))
    made: Buffer = buffer.with_fields(data=data, dtype=dtype)
    return made


# ---- what to widen


class Accumulators(StmtExprVisitor):
    """Narrow buffers by what is done to them.

    ``updated``: those that an element is read from and put back to again and again, and whether that loses digits;
    ``stored``: what is stored to each; ``opaque``: those seen as bare memory; ``complete``:
    those that the first iteration of one block's reduction gives all their values.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.updated: dict[Buffer, bool] = {}
        self.stored: list[tuple[Buffer, Any]] = []
        self.opaque: set[Buffer] = set()
        self.complete: set[Buffer] = set()
        self.allocated: set[Buffer] = set()
        self.order: list[Buffer] = [b for b in func.buffer_map.values()]
        self.by_data: dict[Var, list[Buffer]] = {}
        self.loops: list[Any] = []
        self.reducing = False
        self.lets: dict[Var, Any] = {}
        self._note(self.order)
        self.visit(func.body)
        for buffers in self.by_data.values():
            if len(buffers) > 1:
                # Views of one memory would have to agree.
                self.opaque.update(buffers)

    def _note(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self.by_data.setdefault(buffer.data, []).append(buffer)

    def visit_For(self, loop: For) -> None:
        self.visit((loop.min, loop.extent))
        self._inside(loop.loop_var, loop.body)

    def visit_While(self, loop: While) -> None:
        self.visit(loop.condition)
        self._inside(None, loop.body)

    def _inside(self, var: Var | None, body: Stmt) -> None:
        self.loops.append(var)
        self.visit(body)
        self.loops.pop()

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self.lets[stmt.var] = stmt.value
        self.default_visit(stmt)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> None:
        self._note([stmt.buffer])
        self.opaque.add(stmt.buffer)
        self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        if isinstance(stmt.node, Buffer):
            self.opaque.add(stmt.node)
        self.default_visit(stmt)

    def visit_Block(self, block: Block) -> None:
        self.allocated.update(block.alloc_buffers)
        self.order += [b for b in block.alloc_buffers if b not in self.order]
        self._note(block.alloc_buffers)
        for match in block.match_buffers:
            self.opaque.update((match.buffer, match.source.buffer))
        loops, reducing = self.loops, self.reducing
        self.loops = []
        self.reducing = reducing or any(_repeats(iv) for iv in block.iter_vars)
        self.visit(block.body)
        if block.init is not None:
            self.complete.update(_filled_by(block))
            self.visit(block.init)
        self.loops, self.reducing = loops, reducing

    def visit_Call(self, call: Call) -> None:
        if op_name(call) in ("address_of", "tvm_access_ptr", "tvm_load_matrix_sync", "tvm_store_matrix_sync"):
            self._bare(call)
        self.visit(call.args)

    def _bare(self, call: Call) -> None:
        def look(item: Node) -> bool:
            match item:
                case BufferLoad():
                    self.opaque.add(item.buffer)
                case Var():
                    self.opaque.update(self.by_data.get(item, ()))
            return True

        pre_order_visit(call, look)

    def visit_Var(self, var: Var) -> None:
        # A pointer by itself may go anywhere.
        self.opaque.update(self.by_data.get(var, ()))

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.visit((store.value, store.indices))
        buffer = store.buffer
        if not is_narrow_float(buffer.dtype):
            return
        value = self._resolved(store.value)
        self.stored.append((buffer, value))
        own = _loads_of(value, buffer, self.lets)
        if own and (self._comes_back(store) or any(not _same(i.indices, store.indices) for i in own)):
            self.updated[buffer] = self.updated.get(buffer, False) or not _only_compares(value, buffer, self.lets)

    def _resolved(self, value: PrimExpr) -> PrimExpr:
        while isinstance(value, Var) and value in self.lets:
            value = self.lets[value]
        return value

    def _comes_back(self, store: BufferStore) -> bool:
        if self.reducing:
            return True
        used: set[Any] = set()

        def look(item: PrimExpr) -> bool:
            used.add(item)
            return True

        for index in store.indices:
            pre_order_visit(index, look)
        return any(var is None or var not in used for var in self.loops)


def _repeats(iter_var: IterVar) -> bool:
    extent = iter_var.dom.extent if iter_var.dom is not None else None
    return iter_var.iter_type == IterVar.CommReduce and const_int(extent, 2) > 1


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return all(x is y or same_int(x, y) for x, y in zip(a, b))


def _loads_of(value: PrimExpr, buffer: Buffer, lets: dict[Var, Any]) -> list[BufferLoad]:
    found: list[BufferLoad] = []
    seen: set[Any] = set()

    def look(item: PrimExpr | Buffer | Op) -> bool:
        match item:
            case BufferLoad() if item.buffer is buffer:
                found.append(item)
            case Var() if item in lets and item not in seen:
                seen.add(item)
                pre_order_visit(lets[item], look)
        return True

    pre_order_visit(value, look)
    return found


def _only_compares(value: PrimExpr, buffer: Buffer, lets: dict[Var, Any]) -> bool:
    """Whether a value is an element chosen among others, so that nothing is rounded on the way."""
    match value:
        case Max() | Min():
            return _only_compares(value.a, buffer, lets) and _only_compares(value.b, buffer, lets)
        case Var() if value in lets:
            return _only_compares(lets[value], buffer, lets)
        case Select():
            return _only_compares(value.true_value, buffer, lets) and _only_compares(value.false_value, buffer, lets)
        case Call() if op_name(value) == "if_then_else":
            return all(_only_compares(a, buffer, lets) for a in value.args[1:])
        case BufferLoad():
            return True
    return not _loads_of(value, buffer, lets)


def _filled_by(block: Block) -> list[Buffer]:
    """Buffers of which a block with a first iteration writes every element."""
    filled: list[Buffer] = []
    if block.init is None:
        return filled
    for store in of_kind(stmt_list(block.init), BufferStore):
        whole = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == IterVar.DataPar}
        used: set[Var] = set()
        for index, extent in zip(store.indices, store.buffer.shape):
            dom = whole.get(index) if isinstance(index, Var) and index not in used else None
            if dom is None and not (_is(index, 0) and _is(extent, 1)):
                break
            if dom is not None and not (_is(dom.min, 0) and (dom.extent is extent or _both(dom.extent, extent))):
                break
            used.add(index)  # type: ignore[arg-type]
        else:
            filled.append(store.buffer)
    return filled


def _is(e: PrimExpr, value: int) -> bool:
    return as_int(e) == value


def _both(a: PrimExpr, b: PrimExpr) -> bool:
    return same_int(a, b)


# ---- widening


class _WideBufferRewriter(StmtExprMutator):
    """Puts wide buffers in the place of narrow ones, and computes in float32 what is rounded to ``kinds``."""

    def __init__(self, kinds: set[str], buffers: dict[Buffer, Buffer], extremes: set[Buffer]) -> None:
        self.kinds = kinds
        self.extremes = extremes
        self.buffers = buffers
        self.variables: dict[Var, Var] = {}
        self.floats = WideFloat(self._matches, self.visit, buffers, self.variables)

    def _matches(self, dtype: str) -> bool:
        return is_narrow_float(dtype) and dt.element_of(dtype) in self.kinds

    def _value(self, e: PrimExpr) -> PrimExpr:
        return self.floats.narrow(e) if self.floats.computes(e) else self.default_visit(e)

    visit_PrimExpr = _value

    def visit_CmpOp(self, e: CmpOp) -> PrimExpr:
        if self.floats.computes(e.a) or self.floats.computes(e.b):
            return self.floats.comparison(e)
        return self.default_visit(e)

    def visit_Cast(self, e: Cast) -> PrimExpr:
        if not self.floats.computes(e.value):
            return self.default_visit(e)
        value = self.floats.wide(e.value)
        return value if value.dtype == e.dtype else Cast(e.dtype, value)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        if not self.floats.computes(stmt.value):
            return self.default_visit(stmt)
        value = self.floats.wide(stmt.value)
        var = self.variables[stmt.var] = Var(stmt.var.name, value.dtype)
        return LetStmt(var, value, self.visit(stmt.body))

    def visit_Let(self, e: Let) -> PrimExpr:
        if self.floats.computes(e.value):
            value = self.floats.wide(e.value)
            self.variables[e.var] = Var(e.var.name, value.dtype)
            return type(e)(self.variables[e.var], value, self.visit(e.body))
        return self.default_visit(e)

    def visit_Var(self, var: Var) -> PrimExpr:
        made = self.variables.get(var)
        return var if made is None else Cast(var.dtype, made)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self.floats.narrow(load) if load.buffer in self.buffers else self.default_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        wide = self.buffers.get(store.buffer)
        if wide is None:
            return self.default_visit(store)
        value = _limit(store.value) if store.buffer in self.extremes else None
        value = self.floats.wide(store.value) if value is None else value
        indices, predicate = self.visit(store.indices), store.predicate and self.visit(store.predicate)
        return BufferStore(wide, value, indices, predicate)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        made: Any = self.default_visit(region)
        wide = self.buffers.get(region.buffer)
        return made if wide is None else made.with_fields(buffer=wide)

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        return match

    def visit_Block(self, block: Block) -> Block:
        made: Any = self.default_visit(block)
        if any(b in self.buffers for b in block.alloc_buffers):
            made = made.with_fields(alloc_buffers=[self.buffers.get(b, b) for b in block.alloc_buffers])
        return made


def _limit(value: PrimExpr) -> PrimExpr | None:
    """Identity of max or min in float32, for the identity of a 16-bit or 8-bit type; None for other values."""
    if not isinstance(value, FloatImm) or not is_narrow_float(value.dtype):
        return None
    for bound in (min_value, max_value):
        narrow: Any = bound(value.dtype)
        if value.value == narrow.value:
            return bound("float32")
    return None


# ---- memory of the caller


def _with_copies(body: Stmt, pairs: list[tuple[Buffer, Buffer]], complete: set[Buffer]) -> Stmt:
    """Wide twins of the caller's buffers: filled before, unless all of them is written anyway, and rounded after."""
    before = [_copy(old, new, f"{old.name}_widened") for old, new in pairs if old not in complete]
    after = [_copy(new, old, f"{old.name}_rounded") for old, new in pairs]
    twins = [new for _, new in pairs]
    if isinstance(body, BlockRealize) and not body.block.iter_vars:
        block = body.block
        whole = SeqStmt([*before, block.body, *after])
        made = block.with_fields(body=whole, alloc_buffers=[*block.alloc_buffers, *twins])
        return body.with_fields(block=made)
    root = Block((), (), (), "root", SeqStmt([*before, body, *after]), None, twins)
    return BlockRealize((), const(True, "bool"), root)


def _copy(source: Buffer, target: Buffer, name: str) -> Stmt:
    """A nest that copies a buffer to one of another type."""
    shape = target.shape or (const(1, "int32"),)
    loops = [Var(f"i{k}", d.dtype) for k, d in enumerate(shape)]
    domains = [Range.from_min_extent(const(0, d.dtype), d) for d in shape]
    axes = [IterVar(dom, Var(f"v{k}", dom.extent.dtype), IterVar.DataPar) for k, dom in enumerate(domains)]
    at = [axis.var for axis in axes] if target.shape else []
    region = [Range.from_min_extent(i, const(1, i.dtype)) for i in at]
    body = BufferStore(target, Cast(target.dtype, BufferLoad(source, at)), at)
    block = Block(axes, [BufferRegion(source, region)], [BufferRegion(target, region)], name, body)
    stmt: Any = BlockRealize(loops, const(True, "bool"), block)
    for var, extent in zip(reversed(loops), reversed(shape)):
        stmt = For(var, const(0, extent.dtype), extent, ForKind.SERIAL, stmt)
    return stmt


def widen_module(mod: IRModule) -> IRModule:
    """A module whose unscheduled functions keep wide sums."""
    made: IRModule = WidenAccumulators()(mod)
    return made
