"""InstrumentProfileIntrinsics: functions and loops are framed by profiling calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.module import IRModule, functions_of
from ....ir.prim import IntImm
from ....support.sequences import of_kind
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, Stmt
from ..base import StmtExprVisitor, StmtMutator, call, config
from ....ir.declared_pass import ModuleRewrite


class _Numbers:
    """The next number of a function or loop; it goes on from module to module."""

    next = 0

    @classmethod
    def take(cls) -> int:
        """A number nobody has."""
        cls.next += 1
        return cls.next - 1


@dataclass
class _Info:
    """A loop's number, its depth from the function's top, its height over the innermost loop, its company."""

    number: int
    depth: int
    inside_parallel: bool
    height: int = 0
    siblings: bool = False


class _Analyze(StmtExprVisitor):
    """Numbers the loops of a function, outer before inner."""

    def __init__(self) -> None:
        self.loops: dict[Any, _Info] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_For(self, loop: For) -> None:
        info = self.loops[loop] = _Info(_Numbers.take(), 0, False)
        info.height = self._height(loop.body, 0, False)

    def _height(self, stmt: Stmt, depth: int, parallel: bool) -> int:
        """How many loops are nested below a statement, at most; only plain nests are looked into."""
        match stmt:
            case SeqStmt():
                return self._siblings(list(of_kind(stmt.seq, For)), depth, parallel)
            case For():
                return self._siblings([stmt], depth, parallel)
            case IfThenElse():
                branches = [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
                return max(self._height(s, depth, parallel) for s in branches)
            case LetStmt() | AttrStmt() | Allocate():
                return self._height(stmt.body, depth, parallel)
        return 0

    def _siblings(self, loops: list[For], depth: int, parallel: bool) -> int:
        height = 0
        for loop in loops:
            info = self.loops[loop] = _Info(_Numbers.take(), depth + 1, parallel, siblings=len(loops) > 1)
            below = parallel or loop.kind == ForKind.PARALLEL
            height = info.height = max(height, self._height(loop.body, depth + 1, below))
        return height + 1 if loops else 0


def _frame(body: Stmt, number: int) -> Stmt:
    start = Evaluate(call("handle", "start_profile_intrinsic", IntImm("int32", number)))
    end = Evaluate(call("handle", "end_profile_intrinsic", IntImm("int32", number)))
    return SeqStmt([start, body, end])


class _Frame(StmtMutator):
    def __init__(self, loops: dict[Any, _Info], max_depth: int, min_height: int, siblings: bool) -> None:
        self.loops = loops
        self.max_depth = max_depth
        self.min_height = min_height
        self.siblings = siblings

    def visit_For(self, loop: For) -> Stmt:
        made = self.default_visit(loop)
        info = self.loops.get(loop)
        if info is None or info.inside_parallel or info.height < self.min_height:
            return made
        wanted = info.siblings if self.siblings else info.depth <= self.max_depth
        return _frame(made, info.number) if wanted else made


class InstrumentProfileIntrinsics(ModuleRewrite, name="tir.InstrumentProfileIntrinsics"):
    """Frame functions, and loops beside others in a loop, by ``T.start_profile_intrinsic(n)`` and its end.

    Before::

        for i in range(8):
            for j, k in T.grid(8, 8): A[j] = A[j] + B[k]
            for j, k in T.grid(8, 8): C[j] = C[j] + B[k]

    After::

        T.start_profile_intrinsic(0)
        for i in range(8):
            T.start_profile_intrinsic(2)
            for j, k in T.grid(8, 8): A[j] = A[j] + B[k]
            T.end_profile_intrinsic(2)
            T.start_profile_intrinsic(4)
            for j, k in T.grid(8, 8): C[j] = C[j] + B[k]
            T.end_profile_intrinsic(4)
        T.end_profile_intrinsic(0)

    Every function and loop has a number; numbers go on from run to run. Nothing within a parallel loop is framed.
    Options:

    * ``tir.instr_siblings`` False: loops up to the depth ``tir.lwp_max_depth`` (0: outermost) instead of siblings;
    * ``tir.lwp_min_height`` (1): how many loops a framed loop must at least have below it;
    * ``tir.lwp_disable_func_prof``: functions are not framed;
    * ``tir.reset_start_id``: count from zero again.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        out = mod.clone()
        siblings = bool(config("tir.instr_siblings", True))
        depth, height = int(config("tir.lwp_max_depth", 0)), int(config("tir.lwp_min_height", 1))
        if config("tir.reset_start_id", False):
            _Numbers.next = 0
        for var, func in functions_of(mod, PrimFunc):
            own = _Numbers.take()
            analyze = _Analyze()
            analyze.visit(func.body)
            body = _Frame(analyze.loops, depth, height, siblings).visit(func.body)
            if not config("tir.lwp_disable_func_prof", False):
                body = _frame(body, own)
            out.update_func(var, func.with_body(body))
        return out
