"""HoistExpression and HoistIfThenElse: conditions and bindings move out of loops they do not depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

from ....arith.effects import is_pure
from ....arith.functor import free_vars
from ....ir.expr import PrimExpr
from ....ir.prim import And, Call, Let, Or, Var
from ....ir.transform import Pass, PassInfo
from ...function import PrimFunc
from ...stmt import AttrStmt, For, IfThenElse, LetStmt, SeqStmt, Stmt
from ..base import PrimFuncPass, StmtExprMutator, StmtExprVisitor, is_call, options
from ..simplify.convert_ssa import convert_body
from ..simplify.remove_no_op import RemoveNoOp
from ..simplify.simplify import Simplify
from ....ir.declared_pass import StepsPass


class HoistedConditionals(IntFlag):
    """Kinds of conditionals that are hoisted, as a bit set."""

    Never = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    All = IfElseStmt | IfElseExpr | BooleanExpression | UsingBlockVar


class HoistedLetBindings(IntFlag):
    """Kinds of bindings that are hoisted, as a bit set."""

    Never = 0
    RequiredByConditional = 1
    LetStmt = 2
    LetExpr = 4
    All = RequiredByConditional | LetStmt | LetExpr


DEFAULTS = {
    "hoisted_conditionals": int(
        HoistedConditionals.IfElseStmt | HoistedConditionals.IfElseExpr | HoistedConditionals.BooleanExpression
    ),
    "hoisted_let_bindings": int(HoistedLetBindings.All),
}


@dataclass
class _Condition:
    condition: Any
    source: HoistedConditionals
    bindings: set[Any]
    has_else: bool
    uses_threads: bool


@dataclass
class _Loop:
    """A loop (or thread axis), and what may be hoisted out of it."""

    var: Any
    stmt: Any
    lets: list[tuple[Any, Any, HoistedLetBindings]] = field(default_factory=list)
    conditions: list[_Condition] = field(default_factory=list)
    sequential: bool = False

    @property
    def is_block_var(self) -> bool:
        return isinstance(self.stmt, AttrStmt)


class _Collect(StmtExprVisitor):
    def __init__(self, conditionals: HoistedConditionals) -> None:
        self.across_blocks = bool(conditionals & HoistedConditionals.UsingBlockVar)
        self.active: list[_Loop] = []
        self.done: dict[Any, _Loop] = {}
        self.let_loops: dict[Any, set[Any]] = {}
        self.let_lets: dict[Any, set[Any]] = {}

    def _destination(self, e: PrimExpr) -> _Loop | None:
        """The outermost loop that an expression can leave."""
        used: set[Any] = set()
        for var in free_vars(e):
            used.add(var)
            used |= self.let_loops.get(var, set())
        found = None
        for loop in reversed(self.active):
            blocked = loop.is_block_var and not self.across_blocks
            if loop.sequential or loop.var in used or blocked:
                return found
            found = loop
        return found

    def _attempt(self, condition: PrimExpr, source: HoistedConditionals, has_else: bool = True) -> None:
        if not is_pure(condition):
            return
        loop = self._destination(condition)
        if loop is None or loop.sequential:
            return
        lets: set[Any] = set()
        for var in free_vars(condition):
            if var in self.let_loops:
                lets |= {var, *self.let_lets[var]}
        threads = {item.var for item in self.active if item.is_block_var}
        loop.conditions.append(
            _Condition(condition, source, lets, has_else, not threads.isdisjoint(free_vars(condition)))
        )

    def _binding(self, var: PrimExpr, value: PrimExpr, source: HoistedLetBindings) -> None:
        loop = self._destination(value)
        if loop is not None and not loop.sequential and is_pure(value):
            loop.lets.append((var, value, source))
        loops: set[Any] = set()
        lets: set[Any] = set()
        active = {item.var for item in self.active}
        for used in free_vars(value):
            if used in active:
                loops.add(used)
            if used in self.let_loops:
                loops |= self.let_loops[used]
                lets |= {used, *self.let_lets[used]}
        self.let_loops[var], self.let_lets[var] = loops, lets

    def _loop(self, var: Var, stmt: For | AttrStmt) -> None:
        self.active.append(_Loop(var, stmt))
        self.visit(stmt.body)
        self.done[stmt] = self.active.pop()

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self._loop(loop.loop_var, loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        var = getattr(attr.node, "var", None)
        self.visit(attr.value)
        if var is None:
            self.visit(attr.body)
            return
        self._loop(var, attr)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self._attempt(stmt.condition, HoistedConditionals.IfElseStmt, stmt.else_case is not None)
        self.default_visit(stmt)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "if_then_else"):
            self._attempt(e.args[0], HoistedConditionals.IfElseExpr)
        for arg in e.args:
            self.visit(arg)

    def _boolean(self, e: And | Or) -> None:
        self._attempt(e.a, HoistedConditionals.BooleanExpression)
        self._attempt(e.b, HoistedConditionals.BooleanExpression)
        self.default_visit(e)

    def visit_And(self, e: And) -> None:
        self._boolean(e)

    def visit_Or(self, e: Or) -> None:
        self._boolean(e)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._binding(stmt.var, stmt.value, HoistedLetBindings.LetStmt)
        self.visit(stmt.value)
        self.visit(stmt.body)

    def visit_Let(self, e: Let) -> None:
        self._binding(e.var, e.value, HoistedLetBindings.LetExpr)
        self.visit(e.value)
        self.visit(e.body)

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        if self.active:
            self.active[-1].sequential = True
        self.default_visit(stmt)


class _Hoist(StmtExprMutator):
    def __init__(self, info: dict[Any, _Loop], conditionals: int, bindings: int, of_threads: bool) -> None:
        self.info = info
        self.of_threads = of_threads
        self.conditionals = HoistedConditionals(conditionals)
        self.lets: set[Any] = set()
        for loop in info.values():
            loop.conditions = [item for item in loop.conditions if self._is_wanted(item)]
        wanted = HoistedLetBindings(bindings)
        movable = {var for loop in info.values() for var, _, _ in loop.lets}
        for loop in info.values():
            self.lets.update(var for var, _, source in loop.lets if wanted & source)
            if wanted & HoistedLetBindings.RequiredByConditional:
                for item in loop.conditions:
                    self.lets |= item.bindings & movable

    def _is_wanted(self, item: _Condition) -> bool:
        """Conditions on thread axes are hoisted by their own flag only, even out of loops that threads run alone."""
        return bool(self.conditionals & item.source) and (self.of_threads or not item.uses_threads)

    def _wrap(self, made: Stmt, key: Stmt) -> Stmt:
        loop = self.info.get(key)
        if loop is None:
            return made
        for item in reversed(loop.conditions):
            if item.bindings <= self.lets:
                made = IfThenElse(item.condition, made, made if item.has_else else None)
        for var, value, _ in reversed(loop.lets):
            if var in self.lets:
                made = LetStmt(var, value, made)
        return made

    def visit_For(self, loop: For) -> Stmt:
        return self._wrap(self.default_visit(loop), loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self._wrap(self.default_visit(attr), attr)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        return self.visit(stmt.body) if stmt.var in self.lets else self.default_visit(stmt)

    def visit_Let(self, e: Let) -> PrimExpr:
        return self.visit(e.body) if e.var in self.lets else self.default_visit(e)


def hoist(func: PrimFunc, conditionals: int, bindings: int, of_threads: bool = False) -> PrimFunc:
    """Put hoisted conditions and bindings around the loops of a function; what they decide inside stays for now.

    ``of_threads`` hoists conditions on thread axes also without the flag that lets conditions leave such axes.
    """
    collect = _Collect(HoistedConditionals(conditionals))
    collect.visit(func.body)
    of_threads = of_threads or bool(conditionals & HoistedConditionals.UsingBlockVar)
    body = _Hoist(collect.done, conditionals, bindings, of_threads).visit(func.body)
    return func if body is func.body else func.with_body(convert_body(body))


class _HoistPass(StepsPass):
    """Something that hoists, and what tidies up after it."""

    def hoisted(self, func: PrimFunc) -> PrimFunc:
        """The function with what can be hoisted before its loops."""
        raise NotImplementedError(f"{type(self).__name__} defines no hoisted")

    def steps(self) -> list[Pass]:
        info = PassInfo(0, self.info.name.replace("Hoist", "InsertHoist", 1))
        return [PrimFuncPass(lambda func, _mod, _ctx: self.hoisted(func), info), Simplify(), RemoveNoOp()]


class HoistExpression(_HoistPass, name="tir.HoistExpression"):
    """Hoist conditions and bindings that do not change in a loop.

    Before::

        for i in range(16):
            if n != 0:
                A[i] = 0.0

    After::

        if n != 0:
            for i in range(16):
                A[i] = 0.0

    The option ``tir.HoistExpression = {"hoisted_conditionals": ..., "hoisted_let_bindings": ...}`` takes flags of
    :class:`HoistedConditionals` and :class:`HoistedLetBindings`.
    """

    def hoisted(self, func: PrimFunc) -> PrimFunc:
        chosen = options("tir.HoistExpression", DEFAULTS)
        return hoist(func, int(chosen["hoisted_conditionals"]), int(chosen["hoisted_let_bindings"]))


class HoistIfThenElse(_HoistPass, name="tir.HoistIfThenElse"):
    """Hoist the conditions of statements only.

    Before::

        for i in range(16):
            if n != 0:
                A[i] = 0.0

    After::

        if n != 0:
            for i in range(16):
                A[i] = 0.0

    With ``tir.HoistIfThenElse = {"support_block_scope_hosting": True}`` also out of thread axes, and conditions on
    thread axes, unless ``variant`` is ``"basic"``; ``"inside threads"`` also hoists the latter, out of loops alone.
    """

    variant: str | None = None

    def hoisted(self, func: PrimFunc) -> PrimFunc:
        flags = HoistedConditionals.IfElseStmt
        chosen = options("tir.HoistIfThenElse", {"support_block_scope_hosting": False})
        if self.variant is None and chosen["support_block_scope_hosting"]:
            flags |= HoistedConditionals.UsingBlockVar
        return hoist(func, int(flags), 0, self.variant == "inside threads")
