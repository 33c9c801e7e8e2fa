"""Nests of loops that copy: coalescing them over threads, inverting them, and putting a stage in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....arith import Analyzer, IterMapLevel, detect_iter_map, inverse_affine_iter_map
from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, post_order_visit
from ....ir.prim import IntImm, IterVar, Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import BufferRegion, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, unnest
from ..base import LoweringError
from .rank_promotion import promoted_shape

_THREADS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")


@dataclass
class Copy:
    """One copy to be lowered, and the requirements of its rewriting on the statements around it."""

    threads: dict[str, int]
    outer_loops: list[For]
    read: BufferRegion
    write: BufferRegion
    data_bits: int
    local_stage: bool
    vector_bytes: int
    allocated: list[Buffer] = field(default_factory=list)
    padding: dict[Buffer, int] = field(default_factory=dict)


def nest(loops: Sequence[For], body: Stmt) -> Stmt:
    """The body under copies of the loops."""
    for loop in reversed(loops):
        body = loop.with_fields(body=body)
    return body


def the_store(body: Stmt) -> BufferStore:
    """The store of a copy."""
    if not isinstance(body, BufferStore):
        raise LoweringError(f"a copy marked auto_copy must be loops around one store, not around {type(body).__name__}")
    return body


def fuse(stmt: Stmt) -> For:
    """One loop in place of a nest."""
    loops, body = unnest(stmt)
    if not loops:
        raise LoweringError("a copy marked auto_copy must have loops")
    name = "_".join(loop.loop_var.name for loop in loops) + "_fused"
    fused = Var(name, loops[0].loop_var.dtype)
    rest: Any = fused
    values: dict[Any, Any] = {}
    extent: Any = IntImm("int32", 1)
    for loop in reversed(loops):
        size = B.cast(fused.dtype, loop.extent)
        values[loop.loop_var] = B.floormod(rest, size)
        rest = B.floordiv(rest, size)
    for loop in loops:
        extent = extent * loop.extent
    return For(fused, B.const(fused.dtype, 0), extent, ForKind.SERIAL, substitute(body, values))


def coalesce(stmt: Stmt, copy: Copy) -> Stmt:
    """Spread a nest over the threads of the kernel, each access a vector of ``vector_bytes``."""
    loop = fuse(stmt)
    total = B.as_int(loop.extent)
    if total is None:
        raise LoweringError(f"a copy marked auto_copy must have a constant size, not {loop.extent}")
    vector = max(1, copy.vector_bytes * 8 // copy.data_bits)
    tags = [tag for tag in _THREADS if tag in copy.threads]
    factors = [0, *(copy.threads[tag] for tag in tags), vector]
    at_once = 1
    for factor in factors[1:]:
        at_once *= factor
    factors[0] = -(-total // at_once)
    dtype = loop.loop_var.dtype
    variables = [Var(f"{loop.loop_var.name}_{i}", dtype) for i in range(len(factors))]
    analyzer = Analyzer()
    index: Any = IntImm(dtype, 0)
    for var, factor in zip(variables, factors):
        analyzer.bind(var, Range.from_min_extent(B.const(dtype, 0), B.const(dtype, factor)))
        index = B.add(B.mul(index, B.const(dtype, factor)), var)
    body = substitute(loop.body, {loop.loop_var: index})
    inside = B.lt(index, loop.extent)
    if not analyzer.can_prove(inside):
        body = IfThenElse(inside, body)
    kinds = [ForKind.SERIAL, *(ForKind.THREAD_BINDING for _ in tags), ForKind.VECTORIZED]
    for var, factor, kind, tag in reversed(list(zip(variables, factors, kinds, ["", *tags, ""]))):
        binding = IterVar(None, Var(tag, "int32"), IterVar.ThreadIndex, tag) if tag else None
        body = For(var, B.const(dtype, 0), B.const(dtype, factor), kind, body, binding)
    return body


def invert(stmt: Stmt, copy: Copy) -> Stmt:
    """``A[f(i, j)] = B[i, j]`` as ``A[i, j] = B[g(i, j)]``, where ``g`` undoes ``f``."""
    loops, body = unnest(stmt)
    store = the_store(body)
    analyzer = Analyzer()
    pattern = [analyzer.simplify(i - r.min) for i, r in zip(store.indices, copy.write.region)]
    pattern = [p for p in pattern if not B.is_zero(p)]
    variables = [loop.loop_var for loop in loops]
    ranges = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    found = detect_iter_map(pattern, ranges, True, IterMapLevel.Bijective, analyzer=analyzer)
    if len(found.indices) != len(variables):
        raise LoweringError("a copy marked auto_copy from shared to global memory must map its elements one to one")
    inverse = inverse_affine_iter_map(found.indices, variables)
    fresh = {var: Var(f"{var.name}_inverse", var.dtype) for var in variables}
    wide = [r for r in copy.write.region if not B.is_one(r.extent)]
    order = iter(variables)
    write = [r.min if B.is_one(r.extent) else r.min + fresh[next(order)] for r in copy.write.region]
    order = iter(variables)
    read = [r.min if B.is_one(r.extent) else r.min + substitute(inverse[next(order)], fresh) for r in copy.read.region]
    made: Any = BufferStore(copy.write.buffer, BufferLoad(copy.read.buffer, read), write)
    for var, r in reversed(list(zip(variables, wide))):
        made = For(fresh[var], B.const(var.dtype, 0), r.extent, ForKind.SERIAL, made)
    return made


def with_scope(buffer: Buffer, scope: str, shape: Sequence[Any]) -> Buffer:
    """A buffer like another, of another shape and in other memory."""
    pointer = Var(buffer.data.name, PointerType(PrimType(buffer.dtype), scope))
    return buffer.with_fields(data=pointer, shape=tuple(shape))


def relaxed(loops: Sequence[For], scope: str) -> list[For]:
    """The thread loops whose threads share memory of ``scope``."""
    tags: tuple[str, ...] = {"shared": ("threadIdx",), "local": (), "global": ("blockIdx", "threadIdx")}[
        scope.split(".")[0]
    ]
    return [
        loop for loop in loops
        if loop.thread_binding is not None and loop.thread_binding.thread_tag.startswith(tags) and tags
    ]  # fmt: skip


class _ReplaceLoads(Mutator):
    def __init__(self, buffer: Buffer, load: BufferLoad) -> None:
        self.buffer = buffer
        self.load = load

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return self.load if load.buffer is self.buffer else self.default_visit(load)


class Stage:
    """A nest with a buffer in between: ``stmt``, whose sequence of the two copies is ``parts``."""

    def __init__(self, stmt: Stmt, copy: Copy, at: For | None, scope: str, write: bool) -> None:
        loops, body = unnest(stmt)
        place = -1 if at is None else next(i for i, loop in enumerate(loops) if loop is at)
        self.over, self.under = loops[: place + 1], loops[place + 1 :]
        self.condition: Any = None
        if isinstance(body, IfThenElse):
            self.condition, body = body.condition, body.then_case
        self.store = the_store(body)
        self.threads = relaxed(copy.outer_loops, scope)
        if write:
            # The lanes of a warp hold one fragment together: they are no dimension of what it is stored to.
            self.threads = [x for x in self.threads if x.thread_binding.thread_tag != "threadIdx.x"]  # type: ignore[union-attr]
        self.inner = [*self.threads, *self.under]
        self.fresh = {x.loop_var: Var(f"{x.loop_var.name}_cache", x.loop_var.dtype) for x in self.inner}
        indices, shape = self._shape(write)
        source = fragment_load(stmt) if write else None
        self.buffer = with_scope(self.store.buffer if source is None else source.buffer, scope, shape)
        copy.allocated.append(self.buffer)
        self.parts = SeqStmt(self._written(source, indices) if source is not None else self._read(indices))
        self.stmt = nest(self.over, self.parts)

    def _shape(self, write: bool) -> tuple[list[Any], list[Any]]:
        if not write and isinstance(self.store.value, BufferLoad):
            ranges = {x.loop_var: B.as_int(x.extent) for x in self.inner}
            promoted = promoted_shape(self.store.value.indices, ranges)
            if promoted is not None:
                return promoted
        return [x.loop_var for x in self.inner], [x.extent for x in self.inner]

    def _guarded(self, body: Stmt, fresh: bool) -> Stmt:
        if self.condition is None:
            return body
        return IfThenElse(substitute(self.condition, self.fresh) if fresh else self.condition, body)

    def _own(self, body: Stmt) -> Stmt:
        """The body under loops of its own; threads that share the memory become serial."""
        for loop in reversed(self.inner):
            var = self.fresh[loop.loop_var]
            if loop in self.threads:
                body = For(var, loop.min, loop.extent, ForKind.SERIAL, body)
            else:
                body = loop.with_fields(loop_var=var, body=body)
        return body

    def _read(self, indices: list[Any]) -> list[Any]:
        value = substitute(self.store.value, self.fresh)
        fill = BufferStore(self.buffer, value, [substitute(i, self.fresh) for i in indices])
        use = BufferStore(self.store.buffer, BufferLoad(self.buffer, indices), self.store.indices)
        return [self._own(self._guarded(fill, True)), nest(self.under, self._guarded(use, False))]

    def _written(self, source: BufferLoad, indices: list[Any]) -> list[Any]:
        use = _ReplaceLoads(source.buffer, BufferLoad(self.buffer, indices)).visit(self.store)
        fill = BufferStore(self.buffer, source, indices)
        own = self._own(self._guarded(substitute(use, self.fresh), True))
        return [nest(self.under, self._guarded(fill, False)), own]


FRAGMENTS = ("wmma.accumulator", "m16n8k8.matrixC")


def fragment_load(stmt: Stmt) -> BufferLoad:
    """The access of an accumulator fragment that a copy reads."""
    found: list[BufferLoad] = []

    def look(node: PrimExpr | Buffer | Stmt) -> None:
        if isinstance(node, BufferLoad) and node.buffer.scope() in FRAGMENTS:
            found.append(node)

    post_order_visit(stmt, look)
    if not found or any(load.buffer is not found[0].buffer for load in found):
        raise LoweringError("a copy out of matrix fragments must read one of them")
    return found[0]


def local_stage(stmt: Stmt, copy: Copy) -> Stmt:
    """Load into registers first, then store to shared memory: the loads of all elements are under way together."""
    loops, body = unnest(stmt)
    threads = [x for x in loops if x.kind == ForKind.THREAD_BINDING]
    others = [x for x in loops if x.kind != ForKind.THREAD_BINDING]
    lifted = nest(threads, nest(others, body))
    made, _ = unnest(lifted)
    at = made[len(threads) - 1] if threads else None
    return Stage(lifted, copy, at, "local", False).stmt
