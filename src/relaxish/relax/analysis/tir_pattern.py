"""What kind of operator a loop-level function computes, read from its index patterns."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...ir.functor import Visitor
from ...ir.prim import Add, Cast, IntImm, Mul
from ...ir.prim import Var as TirVar
from ...tir import BufferLoad, BufferStore, IterVar, PrimFunc
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


def _same_index(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value)


def _is_broadcast(store: BufferStore, load: BufferLoad) -> bool:
    position = 0
    for size, index in zip(load.buffer.shape, load.indices):
        if isinstance(size, IntImm) and size.value == 1 and isinstance(index, IntImm) and index.value == 0:
            continue
        while position < len(store.indices) and not _same_index(store.indices[position], index):
            position += 1
        if position == len(store.indices):
            return False
    return True


def _is_injective(store: BufferStore, load: BufferLoad) -> bool:
    if not all(isinstance(i, TirVar) for i in store.indices):
        return False
    axes = set(store.indices)
    return all(v in axes for index in load.indices for v in prim_vars(index))


def _strip_cast(value: Any) -> Any:
    return value.value if isinstance(value, Cast) else value


def _is_fma(body: Any) -> bool:
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

    def visit_BufferLoad(self, node: Any) -> None:
        self.loads.append(node)
        self.default_visit(node)

    def visit_BufferStore(self, node: Any) -> None:
        if self.store is not None:
            self.kind = OpPatternKind.OPAQUE
            return
        self.store = node
        self.visit(node.value)
        self.visit(node.indices)

    def visit_Block(self, node: Any) -> None:
        if node.name_hint == "root":
            self.visit(node.body)
            return
        self.loads, self.store = [], None
        self.visit(node.body)
        if self.store is None or self.kind == OpPatternKind.OPAQUE:
            self.kind = OpPatternKind.OPAQUE
            return
        self._index_pattern(node)
        self._reduction(node)

    def _index_pattern(self, block: Any) -> None:
        worst, elementwise = OpPatternKind.ELEM_WISE, False
        for load in self.loads:
            if _same(self.store.indices, load.indices):
                elementwise = True
            elif _is_broadcast(self.store, load):
                worst = max(worst, OpPatternKind.BROADCAST)
            elif _is_injective(self.store, load):
                worst = max(worst, OpPatternKind.INJECTIVE)
            else:
                return
        if worst == OpPatternKind.BROADCAST and elementwise:
            worst = OpPatternKind.ELEM_WISE
        writes_output = any(region.buffer in self.params for region in block.writes)
        if writes_output and self.kind == OpPatternKind.COMM_REDUCE:
            # A reduction followed by elementwise work on the input, as in softmax.
            self.kind = OpPatternKind.OUT_EWISE_FUSABLE
        else:
            self.kind = max(self.kind, worst)

    def _reduction(self, block: Any) -> None:
        reduce_vars = {v.var for v in block.iter_vars if v.iter_type == IterVar.CommReduce}
        if not reduce_vars:
            return
        if _is_fma(block.body) or not all(_is_pure_reduce(reduce_vars, load.indices) for load in self.loads):
            self.kind = max(self.kind, OpPatternKind.OUT_EWISE_FUSABLE)
        self.kind = max(self.kind, OpPatternKind.COMM_REDUCE)


def detect_op_pattern(func: PrimFunc) -> OpPatternKind:
    """The fusion class of a loop-level function."""
    detector = _Detector(set(func.buffer_map.values()))
    detector.visit(func.body)
    return detector.kind


class _Blocks(Visitor):
    def __init__(self) -> None:
        self.blocks: list[Any] = []

    def visit_BlockRealize(self, node: Any) -> None:
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


def _flat(buffer: Any, indices: Sequence[Any]) -> Any:
    total: Any = IntImm(indices[0].dtype if indices else "int64", 0)
    for size, index in zip(buffer.shape, indices):
        total = total * size + index
    return total


def _same_linear_index(block: Any, load: BufferLoad, store: BufferStore) -> bool:
    from ...arith import Analyzer
    from ..scalars import prove_equal_shapes

    if prove_equal_shapes(load.buffer.shape, store.buffer.shape) and _same(load.indices, store.indices):
        return True
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    lhs, rhs = _flat(load.buffer, load.indices), _flat(store.buffer, store.indices)
    if analyzer.can_prove_equal(lhs, rhs):
        return True
    return _fused_equal(block, load, store)


def _fused_equal(block: Any, load: BufferLoad, store: BufferStore) -> bool:
    """Write the block's axes in terms of one running index and compare what both sides make of it."""
    from ...arith import Analyzer
    from ...ir.expr import Range
    from ...tir.functor import substitute

    analyzer = Analyzer()
    dtype = block.iter_vars[0].var.dtype
    total: Any = IntImm(dtype, 1)
    for axis in block.iter_vars:
        total = total * axis.dom.extent
    running = TirVar("i", dtype)
    analyzer.bind(running, Range.from_min_extent(IntImm(dtype, 0), total))
    mapping: dict[Any, Any] = {}
    rest: Any = running
    for axis in reversed(block.iter_vars):
        mapping[axis.var] = rest % axis.dom.extent
        rest = rest // axis.dom.extent
    lhs = substitute(_flat(load.buffer, load.indices), mapping)
    rhs = substitute(_flat(store.buffer, store.indices), mapping)
    lhs, rhs = analyzer.simplify(lhs), analyzer.simplify(rhs)
    if analyzer.can_prove_equal(lhs, rhs):
        return True
    difference = analyzer.simplify(lhs - rhs)
    return isinstance(difference, IntImm) and difference.value == 0
