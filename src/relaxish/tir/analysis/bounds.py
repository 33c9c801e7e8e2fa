"""Accesses that certainly leave their buffer."""

from __future__ import annotations


from ...arith.build import as_int
from ...ir.op import op_name_of
from ...ir.expr import Range
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.prim import Call
from ...ir.transform import Pass, PassContext, PassInfo
from ...support.errors import ScheduleError
from ...support.sequences import of_kind
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Block, BufferStore, For, IfThenElse

__all__ = ["OOBChecker"]

_UNBOUNDED = 1 << 30


class _Accesses(Visitor):
    def __init__(self) -> None:
        from ...arith import Analyzer

        self.analyzer = Analyzer()
        self.found: list[str] = []

    def visit_For(self, node: For) -> None:
        self.visit(node.extent)
        self.analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent), True)
        self.visit(node.body)

    def visit_Block(self, node: Block) -> None:
        for iv in node.iter_vars:
            self.analyzer.bind(iv.var, iv.dom, True)
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)
        with self.analyzer.constraint_scope(node.condition):
            self.visit(node.then_case)
        if node.else_case is not None:
            self.visit(node.else_case)

    def visit_Call(self, node: Call) -> None:
        if op_name_of(node) != "tir.if_then_else":
            self.default_visit(node)
            return
        condition, inside, outside = node.args
        self.visit(condition)
        with self.analyzer.constraint_scope(condition):
            self.visit(inside)
        self.visit(outside)

    def visit_Buffer(self, node: Buffer) -> None:
        pass

    def visit_BufferLoad(self, node: BufferLoad | BufferStore) -> None:
        self._check(node)
        self.default_visit(node)

    visit_BufferStore = visit_BufferLoad

    def _check(self, node: BufferLoad | BufferStore) -> None:
        bounds = self.analyzer.const_int_bound
        for axis, (index, extent) in enumerate(zip(node.indices, node.buffer.shape, strict=True)):
            low, high = bounds.bound(index)
            size = as_int(extent)
            too_far = size is not None and size <= high < _UNBOUNDED and not self.analyzer.can_prove(index < extent)
            if too_far or -_UNBOUNDED < low < 0 and not self.analyzer.can_prove(index >= 0):
                self.found.append(
                    f"Out of bounds memory access on buffer: {node.buffer.name}, dimension {axis}: the index {index} "
                    f"lies in [{low}, {high}], the extent is {extent}"
                )


class _OOBChecker(Pass):
    info = PassInfo(0, "tir.analysis.OOBChecker")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for func in of_kind(mod.functions.values(), PrimFunc):
            visitor = _Accesses()
            visitor.visit(func.body)
            if visitor.found:
                raise ScheduleError("ScheduleError: Out of bound memory access\n" + "\n".join(visitor.found))
        return mod


def OOBChecker() -> Pass:
    """A pass that changes nothing and raises ScheduleError when an index is known to leave its buffer.

    An index of unknown range is left alone.

    >>> from relaxish.script import tir as T
    >>> from relaxish import IRModule
    >>> @T.prim_func
    ... def f(A: T.Buffer((4,), "float32")):
    ...     for i in range(5):
    ...         A[i] = 0.0
    >>> OOBChecker()(IRModule({"f": f}))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    relaxish.support.errors.ScheduleError: ...
    """
    return _OOBChecker()
