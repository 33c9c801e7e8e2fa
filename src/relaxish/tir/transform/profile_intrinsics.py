"""InstrumentProfileIntrinsics: functions and loops are framed by profiling calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir.module import IRModule
from ...ir.prim import IntImm
from ...ir.transform import Pass, PassContext, module_pass
from ..function import PrimFunc
from ..stmt import Evaluate, For, ForKind, SeqStmt, Stmt
from .base import StmtExprVisitor, StmtMutator, call, config


@dataclass
class _Info:
    """A loop's number, its depth from the function's top, its height over the innermost loop, its company."""

    number: int
    depth: int
    height: int
    siblings: bool
    parallel: bool


class _Analyze(StmtExprVisitor):
    """Numbers the loops of a function outermost first."""

    def __init__(self, first: int) -> None:
        self.next = first
        self.loops: dict[Any, _Info] = {}
        self.stack: list[_Info] = []

    def visit_PrimExpr(self, e: Any) -> None:
        return

    def visit_For(self, loop: For) -> None:
        self._loop(loop, False)

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        several = sum(isinstance(s, For) for s in stmt.seq) > 1
        for child in stmt.seq:
            if isinstance(child, For):
                self._loop(child, several)
            else:
                self.visit(child)

    def _loop(self, loop: For, siblings: bool) -> None:
        inside = loop.kind == ForKind.PARALLEL or any(i.parallel for i in self.stack)
        info = _Info(self.next, len(self.stack), 0, siblings, inside)
        self.next += 1
        self.loops[loop] = info
        self.stack.append(info)
        self.visit(loop.body)
        self.stack.pop()
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, info.height + 1)


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

    def visit_For(self, loop: For) -> Any:
        made = self.default_visit(loop)
        info = self.loops[loop]
        wanted = not info.parallel or loop.kind == ForKind.PARALLEL
        wanted = wanted and info.height >= self.min_height and info.depth < self.max_depth
        if self.siblings and not info.siblings:
            wanted = False
        return _frame(made, info.number) if wanted else made


def InstrumentProfileIntrinsics() -> Pass:  # noqa: N802
    """Frame functions, and loops that have siblings, by ``T.start_profile_intrinsic(n)`` and its end.

    Before::

        for i in range(8): A[i] = 0.0
        for i in range(8): B[i] = 0.0

    After (with ``tir.lwp_min_height`` 0)::

        T.start_profile_intrinsic(1)
        T.start_profile_intrinsic(2)
        for i in range(8): A[i] = 0.0
        T.end_profile_intrinsic(2)
        ...

    Options: ``tir.lwp_disable_func_prof``, ``tir.lwp_max_depth``, ``tir.lwp_min_height``, ``tir.instr_siblings``.
    """

    @module_pass(opt_level=0, name="tir.InstrumentProfileIntrinsics")  # type: ignore[untyped-decorator]
    def run(mod: IRModule, _ctx: PassContext) -> IRModule:
        number = 1
        out = mod.clone()
        siblings = bool(config("tir.instr_siblings", True))
        depth, height = int(config("tir.lwp_max_depth", 0)), int(config("tir.lwp_min_height", 1))
        for var, func in mod.functions.items():
            if not isinstance(func, PrimFunc):
                continue
            own, number = number, number + 1
            analyze = _Analyze(number)
            analyze.visit(func.body)
            number = analyze.next
            body = _Frame(analyze.loops, depth or 1 << 30, height, siblings).visit(func.body)
            if not config("tir.lwp_disable_func_prof", False):
                body = _frame(body, own)
            out.update_func(var, func.with_body(body))
        return out

    return run  # type: ignore[no-any-return]
