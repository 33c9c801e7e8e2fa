"""Cost of a program: its arithmetic operations and its allocations in bytes."""

from __future__ import annotations

from typing import Any

from ...arith import ConstIntBound
from ...ir import dtype as dt
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Visitor
from ...ir.module import IRModule, functions_of
from ...ir.node import Node
from ...ir.prim import BinaryOp, CmpOp, LogicalOp, Select
from ...support.sequences import of_kind
from ..expr import BufferLoad, IntImm
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, Stmt
from ..walk import operands

__all__ = ["calculate_allocated_bytes", "estimate_tir_flops"]


Count = dict[str, float]  # operations by the type of their result


def _plus(a: Count, b: Count) -> Count:
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}


def _larger(a: Count, b: Count) -> Count:
    return {key: max(a.get(key, 0.0), b.get(key, 0.0)) for key in {**a, **b}}


class _Flops(Visitor[Count]):
    """Counts arithmetic on values, one for a vector operation; comparisons and index arithmetic are free."""

    def __init__(self) -> None:
        from ...arith import Analyzer

        self.analyzer = Analyzer()

    def count(self, *parts: Any) -> Count:
        """The operations of several parts together; absent ones count nothing."""
        total: Count = {}
        for part in parts:
            if part is not None:
                total = _plus(total, self.visit(part))
        return total

    def default_visit(self, node: Node) -> Count:
        return self.count(*operands(node))

    def visit_For(self, node: For) -> Count:
        self.analyzer.bind(node.loop_var, Range.from_min_extent(node.min, node.extent), True)
        times = self.analyzer.const_int_bound(node.extent).max_value
        body = self.visit(node.body)
        # Where nothing is known of the extent one iteration is counted.
        return {key: value * (1 if times >= ConstIntBound.POS_INF else times) for key, value in body.items()}

    def visit_BlockRealize(self, node: BlockRealize) -> Count:
        return self.count(node.block.body)

    def visit_Block(self, node: Block) -> Count:
        return self.count(node.init, node.body)

    def visit_BufferStore(self, node: BufferStore) -> Count:
        return self.count(node.value)

    def visit_BufferLoad(self, node: BufferLoad | CmpOp) -> Count:
        return {}

    visit_CmpOp = visit_BufferLoad

    def visit_AttrStmt(self, node: AttrStmt) -> Count:
        return self.count(node.body)

    visit_Allocate = visit_AllocateConst = visit_DeclBuffer = visit_BufferRealize = visit_AttrStmt

    def visit_BinaryOp(self, node: BinaryOp) -> Count:
        return _plus(self.count(node.a, node.b), {node.dtype: 1.0})

    def visit_LogicalOp(self, node: LogicalOp) -> Count:
        return self.count(node.a, node.b)

    def visit_IfThenElse(self, node: IfThenElse) -> Count:
        branches = _larger(self.count(node.then_case), self.count(node.else_case))
        return _plus(self.count(node.condition), branches)

    def visit_Select(self, node: Select) -> Count:
        return _plus(self.count(node.condition), _larger(self.count(node.true_value), self.count(node.false_value)))


def estimate_tir_flops(stmt_or_mod: Stmt | PrimFunc | IRModule) -> float:
    """Arithmetic operations of a statement or of all functions of a module.

    A function may state its own count as the attribute ``estimated_flops``. Loops of unknown extent count once.

    >>> from relaxish.script import tir as T
    >>> from relaxish import IRModule
    >>> @T.prim_func
    ... def f(A: T.Buffer((4,), "float32")):
    ...     for i in range(4):
    ...         A[i] = A[i] * A[i] + T.float32(1)
    >>> estimate_tir_flops(IRModule({"f": f}))
    8.0
    """
    if isinstance(stmt_or_mod, Stmt):
        return sum(_Flops().visit(stmt_or_mod).values())
    if not isinstance(stmt_or_mod, (IRModule, PrimFunc)):
        raise TypeError(f"Expect the input to be either IRModule or Stmt, but gets: {type(stmt_or_mod).__name__}")
    functions = [stmt_or_mod] if isinstance(stmt_or_mod, PrimFunc) else stmt_or_mod.functions.values()
    total = 0.0
    for func in of_kind(functions, PrimFunc):
        stated = func.get_attr("estimated_flops")
        total += sum(_Flops().visit(func.body).values()) if stated is None else float(int(stated))
    return total


class _Bytes(Visitor):
    def __init__(self) -> None:
        self.current: dict[str, int] = {}
        self.peak: dict[str, int] = {}

    def _enter(self, scope: str, size: int) -> None:
        self.current[scope] = self.current.get(scope, 0) + size
        self.peak[scope] = max(self.peak.get(scope, 0), self.current[scope])

    def visit_Allocate(self, node: Allocate) -> None:
        size = dt.nbytes(node.dtype)
        for extent in node.extents:
            if not isinstance(extent, IntImm):
                size = 0
                break
            size *= int(extent.value)
        scope = getattr(node.buffer_var.type_annotation, "storage_scope", "") or "global"
        self._enter(scope, size)
        self.visit(node.body)
        self.current[scope] -= size

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        pass


def calculate_allocated_bytes(func_or_mod: PrimFunc | IRModule) -> dict[str, Any]:
    """Bytes allocated per memory scope, at most at one time, for every function."""
    match func_or_mod:
        case PrimFunc():
            functions = {"main": func_or_mod}
        case IRModule():
            functions = {gv.name_hint: f for gv, f in functions_of(func_or_mod, PrimFunc)}
        case _:
            raise TypeError(f"expected an IRModule or a PrimFunc, got {type(func_or_mod).__name__}")
    out = {}
    for name, func in functions.items():
        worker = _Bytes()
        worker.visit(func.body)
        out[name] = dict(worker.peak)
    return out
