"""Operator kind of a loop-level function, read from its index patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from ...arith.analyzer import Analyzer
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Visitor
from ...ir.prim import Add, Cast, IntImm, Mul, is_one, is_zero, same_int
from ...ir.prim import Var as TirVar
from ...tir import BufferLoad, BufferStore, IterVar, PrimFunc
from ...tir.buffer import Buffer
from ...tir.stmt import Block, BlockRealize, Stmt
from ..scalars import prim_vars

__all__ = ["OpPatternKind", "detect_op_pattern", "has_reshape_pattern"]


class OpPatternKind(IntEnum):
    """Fusion classes, from most to least fusable."""

    ELEM_WISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


def _same(lhs: Sequence[Any], rhs: Sequence[Any]) -> bool:
    return len(lhs) == len(rhs) and all(_same_index(a, b) for a, b in zip(lhs, rhs))


def _same_index(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or same_int(a, b)


def _is_broadcast(store: BufferStore, load: BufferLoad) -> bool:
    position = 0
    for size, index in zip(load.buffer.shape, load.indices):
        if is_one(size) and is_zero(index):
            continue
        while position < len(store.indices) and not _same_index(store.indices[position], index):
            position += 1
        if position == len(store.indices):
            return False
    return True


def _is_injective(store: BufferStore, load: BufferLoad) -> bool:
    """Whether every index read is computed from the written position alone, not from what other tensors hold."""
    if not all(isinstance(i, TirVar) for i in store.indices):
        return False
    axes = set(store.indices)
    return not any(_reads_memory(i) or any(v not in axes for v in prim_vars(i)) for i in load.indices)


class _Loads(Visitor):
    found = False

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.found = True


def _reads_memory(index: PrimExpr) -> bool:
    loads = _Loads()
    loads.visit(index)
    return loads.found


def _strip_cast(value: PrimExpr) -> PrimExpr:
    return value.value if isinstance(value, Cast) else value


def _is_fma(body: Stmt) -> bool:
    """``c[i] = c[i] + a[..] * b[..]``."""
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return False
    old, product = body.value.a, body.value.b
    if not isinstance(old, BufferLoad) or not isinstance(product, Mul):
        return False
    if old.buffer is not body.buffer or not _same(old.indices, body.indices):
        return False
    return isinstance(_strip_cast(product.a), BufferLoad) and isinstance(_strip_cast(product.b), BufferLoad)


def _is_pure_reduce(reduce_vars: set[Any], indices: Sequence[Any]) -> bool:
    for index in indices:
        if any(v in reduce_vars for v in prim_vars(index)) and index not in reduce_vars:
            return False
    return True


class _Detector(Visitor):
    def __init__(self, params: set[Any]) -> None:
        self.params = params
        self.kind = OpPatternKind.ELEM_WISE
        self.loads: list[Any] = []
        self.store: Any = None

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.loads.append(node)
        self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        if self.store is not None:
            self.kind = OpPatternKind.OPAQUE
            return
        self.store = node
        self.visit(node.value)
        self.visit(node.indices)

    def visit_Block(self, node: Block) -> None:
        if node.name_hint == "root":
            self.visit(node.body)
            return
        self.loads, self.store = [], None
        self.visit(node.body)
        if self.store is None or self.kind == OpPatternKind.OPAQUE:
            self.kind = OpPatternKind.OPAQUE
            return
        kind = self._index_pattern()
        if kind is None:
            self._reduction(node)
        elif self.kind == OpPatternKind.COMM_REDUCE and any(r.buffer in self.params for r in node.writes):
            # A reduction followed by elementwise work on the input, as in softmax.
            self.kind = OpPatternKind.OUT_EWISE_FUSABLE
        else:
            self.kind = max(self.kind, kind)

    def _index_pattern(self) -> OpPatternKind | None:
        """How the indices read follow those written; None if they do not."""
        worst, elementwise = OpPatternKind.ELEM_WISE, False
        for load in self.loads:
            if _same(self.store.indices, load.indices):
                elementwise = True
            elif _is_broadcast(self.store, load):
                worst = max(worst, OpPatternKind.BROADCAST)
            elif _is_injective(self.store, load):
                worst = max(worst, OpPatternKind.INJECTIVE)
            else:
                return None
        return OpPatternKind.ELEM_WISE if worst == OpPatternKind.BROADCAST and elementwise else worst

    def _reduction(self, block: Block) -> None:
        reduce_vars = {v.var for v in block.iter_vars if v.iter_type == IterVar.CommReduce}
        if not reduce_vars:
            self.kind = OpPatternKind.OPAQUE
        elif _is_fma(block.body) or not all(_is_pure_reduce(reduce_vars, load.indices) for load in self.loads):
            self.kind = max(self.kind, OpPatternKind.OUT_EWISE_FUSABLE)
        else:
            self.kind = max(self.kind, OpPatternKind.COMM_REDUCE)


def detect_op_pattern(func: PrimFunc) -> OpPatternKind:
    """The fusion class of a loop-level function."""
    detector = _Detector(set(func.buffer_map.values()))
    detector.visit(func.body)
    return detector.kind


class _Blocks(Visitor):
    def __init__(self) -> None:
        self.blocks: list[Any] = []

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        if node.block.name_hint == "root" or not node.block.iter_vars:
            self.visit(node.block.body)
        else:
            self.blocks.append(node)


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether the function only moves its first buffer to its last one in row-major order."""
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    if len(buffers) < 2:
        return False
    source, target = buffers[0], buffers[-1]
    finder = _Blocks()
    finder.visit(func.body)
    if len(finder.blocks) != 1:
        return False
    block = finder.blocks[0].block
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad) or block.init is not None:
        return False
    load = store.value
    if store.buffer is not target or load.buffer is not source or source.dtype != target.dtype:
        return False
    return _same_linear_index(block, load, store)


def _flat(buffer: Buffer, indices: Sequence[Any]) -> PrimExpr:
    total: Any = IntImm(indices[0].dtype if indices else "int64", 0)
    for size, index in zip(buffer.shape, indices):
        total = total * size + index
    return total


def _same_linear_index(block: Block, load: BufferLoad, store: BufferStore) -> bool:
    """Whether what is read and what is written lie at the same place of their buffers."""
    from ...arith import Analyzer
    from ..scalars import prove_equal_shapes

    if prove_equal_shapes(load.buffer.shape, store.buffer.shape) and _same(load.indices, store.indices):
        return True
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    ranges = {axis.var: axis.dom for axis in block.iter_vars}
    if _is_running_index(block, load, store, ranges, analyzer):
        return True
    lhs, rhs = (_as_iterators(_flat(at.buffer, at.indices), ranges, analyzer) for at in (load, store))
    return bool(analyzer.can_prove_equal(lhs, rhs))


def _as_iterators(index: PrimExpr, ranges: Mapping[TirVar, Range], analyzer: Analyzer) -> PrimExpr:
    """The index simplified as a combination of loop variables, which knows quotients and remainders of them."""
    from ...arith import iter_map_simplify

    return iter_map_simplify([analyzer.simplify(index)], ranges, True, "surjective", True, analyzer)[0]


def _is_running_index(
    block: Block, load: BufferLoad, store: BufferStore, ranges: Mapping[TirVar, Range], analyzer: Analyzer
) -> bool:
    """One side is accessed by the block's axes themselves; the other side counts up as they run."""
    from ...ir.expr import Range
    from ...tir.functor import substitute

    if not block.iter_vars or any(analyzer.can_prove_equal(axis.dom.extent, 0) for axis in block.iter_vars):
        return False
    if _is_trivial(block, store, analyzer):
        other: Any = load
    elif _is_trivial(block, load, analyzer):
        other = store
    else:
        return False
    dtype = block.iter_vars[0].var.dtype
    running = TirVar("fused", dtype)
    stride: Any = IntImm(dtype, 1)
    mapping: dict[Any, Any] = {}
    for axis in reversed(block.iter_vars):
        mapping[axis.var] = running // stride % axis.dom.extent
        stride = stride * axis.dom.extent
    index = substitute(_as_iterators(_flat(other.buffer, other.indices), ranges, analyzer), mapping)
    return _as_iterators(index, {running: Range(IntImm(dtype, 0), stride)}, analyzer) is running


def _is_trivial(block: Block, access: BufferLoad | BufferStore, analyzer: Analyzer) -> bool:
    """Whether a buffer is accessed by the block's axes in order, from end to end."""
    return len(access.indices) == len(block.iter_vars) and all(
        index is axis.var
        and analyzer.can_prove_equal(axis.dom.min, 0)
        and analyzer.can_prove_equal(size, axis.dom.extent)
        for index, axis, size in zip(access.indices, block.iter_vars, access.buffer.shape)
    )
