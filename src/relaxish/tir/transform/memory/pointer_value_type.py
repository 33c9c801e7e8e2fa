"""PointerValueTypeRewrite: memory that is accessed by vectors of one size only is declared as such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Call, IntImm, Ramp, Shuffle, Var, is_consecutive
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AccessT, Allocate, AllocateConst, BufferStore, DeclBuffer, For, LetStmt, Stmt
from ..base import StmtExprMutator, StmtExprVisitor, is_call, FunctionRewrite


@dataclass
class _Info:
    """How one pointer is declared and accessed."""

    element: str
    extent: Any
    origin: str
    accesses: set[str] = field(default_factory=set)
    scalar_reads: list[tuple[int, int]] = field(default_factory=list)
    scalar_types: set[str] = field(default_factory=set)
    blocked: bool = False

    def preferred(self) -> str:
        """The element type to declare."""
        kinds = {dt.element_of(a) for a in self.accesses} | {dt.element_of(a) for a in self.scalar_types}
        if self.blocked or len(kinds) != 1 or self.element == "handle":
            return self.element
        base = next(iter(kinds))
        if dt.bits(base) != dt.bits(dt.element_of(self.element)):
            # Memory counted in other units, such as bytes: elements of another size would make it another size.
            return self.element
        lanes = dt.lanes(self.element)
        if lanes == 1 and len(self.accesses) == 1:
            wanted = dt.lanes(next(iter(self.accesses)))
            coeff, rest = Analyzer().modular_set.entry(self.extent)
            if wanted > 0 and coeff % wanted == 0 and rest % wanted == 0:
                if all(c == 0 or c % wanted == 0 for c, _ in self.scalar_reads):
                    lanes = wanted
        return dt.with_lanes(base, lanes)


def _pointee(var: Var) -> str:
    element = getattr(var.type_annotation, "element_type", None)
    return getattr(element, "dtype", "handle") or "handle"


class _Accesses(StmtExprVisitor):
    def __init__(self, func: PrimFunc, shuffle: bool) -> None:
        self.info: dict[Any, _Info] = {}
        self.shuffle = shuffle
        self.analyzer = Analyzer()
        for param in func.params:
            if isinstance(param.type_annotation, PointerType):
                self.info[param] = _Info(_pointee(param), IntImm("int32", 0), "param")
        for buffer in func.buffer_map.values():
            extent = buffer.shape[-1] if buffer.shape else IntImm("int32", 1)
            self.info[buffer.data] = _Info(buffer.dtype, extent, "buffer_map")

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.info[stmt.buffer_var] = _Info(stmt.dtype, stmt.extents[-1], "allocate")
        self.visit(stmt.body)

    def visit_AllocateConst(self, stmt: AllocateConst) -> None:
        extent = stmt.extents[-1] if stmt.extents else IntImm("int32", 0)
        self.info[stmt.buffer_var] = _Info(stmt.dtype, extent, "constant")
        self.visit(stmt.body)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        if isinstance(stmt.var.type_annotation, PointerType):
            self.info[stmt.var] = _Info(_pointee(stmt.var), IntImm("int32", 0), "let")
        self.visit(stmt.value)
        self.visit(stmt.body)

    def visit_For(self, loop: For) -> None:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        self.default_visit(loop)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._access(load.dtype, load.buffer.data, load.indices, True)
        self.visit(load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._access(store.value.dtype, store.buffer.data, store.indices, False)
        self.visit(store.value)
        self.visit(store.indices)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "tvm_access_ptr"):
            self._access(e.args[0].dtype, e.args[1], (e.args[2],), False)
        elif is_call(e, "address_of") and isinstance(e.args[0], BufferLoad):
            load = e.args[0]
            self._access(load.dtype, load.buffer.data, load.indices, False)
        else:
            self._handed_on(e)
        self.default_visit(e)

    def _handed_on(self, e: Call) -> None:
        """Intrinsics that take registers by pointer and offset count offsets in the elements that were declared."""
        for arg in e.args:
            info = self.info.get(arg) if isinstance(arg, Var) else None
            if info is not None and info.origin == "allocate":
                info.blocked = True

    def _access(self, dtype: str, pointer: PrimExpr, indices: Sequence[PrimExpr], load: bool) -> None:
        info = self.info.get(pointer)
        if info is None:
            return
        if dt.is_bool(dtype):
            dtype = dt.with_lanes("int8", dt.lanes(dtype))
        last = indices[-1] if indices else None
        index_lanes = dt.lanes(last.dtype) if last is not None else 1
        if index_lanes < 0:
            info.blocked = True
            return
        used = dt.lanes(info.element)
        if index_lanes * used != dt.lanes(dtype):
            used = 1
        if is_consecutive(last) and isinstance(last.lanes, IntImm):
            lanes = last.lanes.value
            coeff, base = self.analyzer.modular_set.entry(last.base)
            if coeff % lanes == 0 and base % lanes == 0:
                used = lanes
        if self.shuffle and load and last is not None and index_lanes == 1 and used == 1:
            info.scalar_reads.append(self.analyzer.modular_set.entry(last))
            info.scalar_types.add(dtype)
            return
        info.accesses.add(dt.with_lanes(dt.element_of(dtype), used))


class _VectorTypeRewriter(StmtExprMutator):
    def __init__(self, chosen: dict[Any, tuple[Var, str, int]]) -> None:
        self.chosen = chosen
        self.buffers: dict[Buffer, Buffer] = {}
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        return self.default_visit(loop)

    def visit_Var(self, var: Var) -> PrimExpr:
        found = self.chosen.get(var)
        return var if found is None else found[0]

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer over the rewritten pointer."""
        found = self.chosen.get(buffer.data)
        if found is None:
            return buffer
        if buffer not in self.buffers:
            var, dtype, factor = found
            shape = buffer.shape
            if factor > 1 and shape:
                last = shape[-1]
                shape = (*shape[:-1], B.truncdiv(last, B.const(last.dtype, factor)))
            changes = {"data": var, "shape": shape}
            if factor > 1:
                changes["dtype"] = dtype
            self.buffers[buffer] = buffer.with_fields(**changes)
        return self.buffers[buffer]

    def _access(self, made: AccessT) -> tuple[AccessT, int | None]:
        found = self.chosen.get(made.buffer.data)
        if found is None:
            return made, None
        factor = found[2]
        buffer = self.buffer(made.buffer)
        indices, lane = list(made.indices), None
        if factor > 1 and indices:
            last = indices[-1]
            if is_consecutive(last):
                lanes = B.as_int(last.lanes) or factor
                new: Any = B.truncdiv(last.base, B.const(last.base.dtype, lanes))
                if lanes != factor:
                    count = lanes // factor
                    new = Ramp(new * count, last.stride, count)
                indices[-1] = new
            elif dt.lanes(last.dtype) == 1:
                lane = self.analyzer.modular_set.entry(last)[1] % factor
                indices[-1] = B.truncdiv(last, B.const(last.dtype, factor))
        return made.with_fields(buffer=buffer, indices=tuple(indices)), lane

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made, lane = self._access(self.default_visit(load))
        return made if lane is None else Shuffle([made], [IntImm("int32", lane)])

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return self._access(self.default_visit(store))[0]

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        buffer, body = self.buffer(stmt.buffer), self.visit(stmt.body)
        return stmt if buffer is stmt.buffer and body is stmt.body else DeclBuffer(buffer, body)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        found = self.chosen.get(stmt.buffer_var)
        if found is None:
            return self.default_visit(stmt)
        var, dtype, factor = found
        extents = self.visit(stmt.extents)
        shrunk = (*extents[:-1], B.truncdiv(extents[-1], B.const(extents[-1].dtype, factor)))
        condition, body = self.visit(stmt.condition), self.visit(stmt.body)
        return stmt.with_fields(buffer_var=var, dtype=dtype, extents=shrunk, condition=condition, body=body)


def rewrite_pointer_types(
    func: PrimFunc, *, params: bool = True, buffer_map: bool = True, allocate: bool = True,
    lets: bool = True, constants: bool = True, shuffle: bool = True,
) -> PrimFunc:  # fmt: skip
    """Rewrite the pointers of the chosen origins."""
    access = _Accesses(func, shuffle)
    access.visit(func.body)
    origins = {
        "param": params, "buffer_map": buffer_map, "allocate": allocate, "constant": constants, "let": lets,
    }  # fmt: skip
    chosen: dict[Any, tuple[Var, str, int]] = {}
    for var, info in access.info.items():
        if not info.accesses or not origins[info.origin]:
            continue
        goal = info.preferred()
        if goal != info.element:
            factor = dt.lanes(goal) // dt.lanes(info.element)
            scope = str(getattr(var.type_annotation, "storage_scope", "") or "")
            chosen[var] = (Var(var.name, PointerType(PrimType(goal), scope)), goal, factor)
    if not chosen:
        return func
    rewriting = _VectorTypeRewriter(chosen)
    body = rewriting.visit(func.body)
    new_params = tuple(chosen[p][0] if p in chosen else p for p in func.params)
    new_map = {p: rewriting.buffer(b) for p, b in func.buffer_map.items()}
    return func.with_fields(params=new_params, body=body, buffer_map=new_map)


class PointerValueTypeRewrite(FunctionRewrite):
    """Declare pointers with the vector type they are accessed by.

    Before::

        X = T.allocate([16], "float32", "local")
        X[i * 4 : i * 4 + 4] = A[i * 4 : i * 4 + 4]

    After::

        X = T.allocate([4], "float32x4", "local")
        X[T.Div(i * 4, 4)] = A[i * 4 : i * 4 + 4]
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return rewrite_pointer_types(func)
