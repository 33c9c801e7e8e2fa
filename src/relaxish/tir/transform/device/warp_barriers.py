"""MaskWarpBarriers: lanes that a branch leaves out are not waited for."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.functor import all_nodes, mentions
from ....ir.node import Node
from ....ir.op import Op
from ....ir.prim import Call, IntImm, IterVar, StringImm, Var
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import AttrStmt, Evaluate, IfThenElse, LetStmt, Stmt
from ..base import StmtMutator, call, is_call, FunctionRewrite

__all__ = ["MaskWarpBarriers"]

_WARP = 32
_ALL_LANES = (1 << _WARP) - 1


def _is_barrier(node: Node) -> bool:
    return is_call(node, "tvm_storage_sync") and node.args[0].value == "warp"


def _has_barrier(stmt: Stmt) -> bool:
    return any(_is_barrier(node) for node in all_nodes(stmt))


def _by_name(dtype: str, name: str, *args: Any) -> Call:
    return Call(dtype, Op.get("tir.call_extern"), [StringImm(name), *args])


class _Mask(StmtMutator):
    def __init__(self) -> None:
        self.lane = Var("lane", "int32")
        # What variables stand for: the number of a thread in terms of its lane, and what lets bind.
        self.values: dict[Var, Any] = {}
        self.rows_of_warps = False
        self.mask: Any = None

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "thread_extent" and isinstance(attr.node, IterVar):
            var, extent = attr.node.var, B.as_int(attr.value)
            if attr.node.thread_tag == "threadIdx.x" and extent is not None and extent % _WARP == 0:
                # The other numbers of a thread are the same for all lanes then.
                self.rows_of_warps = True
                self.values[var] = Var("warp", "int32") * _WARP + self.lane
        return self.default_visit(attr)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        self.values[stmt.var] = substitute(stmt.value, self.values)
        return self.default_visit(stmt)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        if not _has_barrier(stmt) or self._same_for_all_lanes(stmt.condition):
            return self.default_visit(stmt)
        outer = self.mask
        around = IntImm("uint32", _ALL_LANES) if outer is None else outer
        taken = Var("lanes", "uint32")
        self.mask = taken
        then = self.visit(stmt.then_case)
        self.mask = call("uint32", "bitwise_xor", taken, around)
        otherwise = None if stmt.else_case is None else self.visit(stmt.else_case)
        self.mask = outer
        voted = _by_name("uint32", "__ballot_sync", around, stmt.condition)
        return LetStmt(taken, voted, stmt.with_fields(then_case=then, else_case=otherwise))

    def _same_for_all_lanes(self, condition: PrimExpr) -> bool:
        """Whether the condition is known to depend on the warp only."""
        if not self.rows_of_warps:
            return False
        analyzer = Analyzer()
        analyzer.bind(self.lane, Range(0, _WARP))
        return not mentions(analyzer.simplify(substitute(condition, self.values)), self.lane)

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        if self.mask is None or not _is_barrier(stmt.value):
            return stmt
        return Evaluate(_by_name("int32", "__syncwarp", self.mask))


class MaskWarpBarriers(FunctionRewrite):
    """Name the lanes that meet at a warp barrier within a branch; the others of the warp never come there.

    For kernels of CUDA devices, whose warp barrier waits for exactly the lanes that it names. Before::

        if threadIdx_x < 16:
            T.tvm_storage_sync("warp")

    After::

        lanes = T.call_extern("uint32", "__ballot_sync", T.uint32(0xFFFFFFFF), threadIdx_x < 16)
        if threadIdx_x < 16:
            T.call_extern("int32", "__syncwarp", lanes)

    Branches that whole warps take are left as they are.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        target = func.get_attr("target")
        if target is None or target.kind.name != "cuda" or not _has_barrier(func.body):
            return func
        return func.with_body(_Mask().visit(func.body))
