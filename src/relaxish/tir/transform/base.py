"""Passes over PrimFuncs: the pass class, its decorator, and a few helpers every pass uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from ...ir.declared_pass import DeclaredPass
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, Visitor
from ...ir.module import IRModule, functions_of
from ...ir.op import Op
from ...ir.prim import Call, IntImm, Var, const_int
from ...ir.transform import Pass, PassContext, PassInfo, make_pass_decorator
from ...support.errors import InternalError
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import Evaluate, SeqStmt, Stmt

__all__ = [
    "BodyRewrite", "FunctionRewrite", "LoweringError", "PrimFuncPass", "SeqMutator", "StmtExprMutator", "StmtExprVisitor",
    "StmtMutator", "call", "config", "flatten_seq", "is_call", "is_noop", "merge_nest", "op_name", "pointer_scope", "prim_func_pass", "seq",
]  # fmt: skip


class LoweringError(InternalError, ValueError):
    """A program that a pass cannot take: an internal error for those who catch those, and a bad value."""


FuncTransform = Callable[[PrimFunc, IRModule, PassContext], PrimFunc | None]


class PrimFuncPass(Pass):
    """A pass that transforms each PrimFunc of a module; a result of None removes the function."""

    level = "Function"

    def __init__(self, function: FuncTransform, info: PassInfo) -> None:
        super().__init__(info)
        self.function = function

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        """The transformed function; None removes it."""
        return self.function(func, mod, ctx)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = self._required(mod, ctx)
        changes: dict[Any, Any] = {}
        for var, func in functions_of(mod, PrimFunc):
            new = self.transform_function(func, mod, ctx)
            if new is not func:
                changes[var] = new
        if not changes:
            return mod
        out = mod.clone()
        for var, new in changes.items():
            if new is None:
                del out[var]
            else:
                out.update_func(var, new)
        return out


prim_func_pass = make_pass_decorator(PrimFuncPass, PrimFuncPass, "transform_function")
"""Turn a function ``f(func, mod, ctx)`` or a class with ``transform_function`` into a :class:`PrimFuncPass`."""


class FunctionRewrite(DeclaredPass, PrimFuncPass):
    """A pass over each PrimFunc, which most often needs neither module nor context; its name begins with ``tir.``."""

    prefix = "tir."

    def rewrite(self, func: PrimFunc) -> PrimFunc | None:
        """The transformed function; None removes it."""
        raise NotImplementedError(f"{type(self).__name__} defines no rewrite")

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc | None:
        return self.rewrite(func)


class BodyRewrite(FunctionRewrite):
    """A pass over the body of each PrimFunc."""

    def rewrite_body(self, body: Stmt) -> Stmt:
        """The transformed body."""
        raise NotImplementedError(f"{type(self).__name__} defines no rewrite_body")

    def rewrite(self, func: PrimFunc) -> PrimFunc | None:
        body = self.rewrite_body(func.body)
        return func if body is func.body else func.with_body(body)


def config(key: str, default: int | str | None) -> Any:
    """An option of the current pass context; IR constants come as plain values."""
    value = PassContext.current().config.get(key, default)
    return const_int(value, value)


def options(key: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """A group of options of the current pass context, such as ``tir.UnrollLoop``."""
    given = PassContext.current().config.get(key) or {}
    out = dict(defaults)
    for name, value in given.items() if hasattr(given, "items") else ():
        if name not in defaults:
            raise AttributeError(f"{key} has no option {name!r}; it takes {sorted(defaults)}")
        out[name] = const_int(value, value)
    return out


def flatten_seq(stmts: Iterable[Stmt]) -> Stmt:
    """Statements in order: nested sequences opened, evaluated constants dropped; a single one stands for itself."""
    kept: list[Stmt] = []
    for stmt in stmts:
        inner = flatten_seq(stmt.seq) if isinstance(stmt, SeqStmt) else stmt
        if isinstance(inner, SeqStmt):
            kept.extend(inner.seq)
        elif not (isinstance(inner, Evaluate) and isinstance(inner.value, IntImm)):
            kept.append(inner)
    if not kept:
        return Evaluate(0)
    return kept[0] if len(kept) == 1 else SeqStmt(kept)


class SeqMutator(Mutator):
    """Rebuilds sequences flat and without evaluated constants, as every pass over statements does."""

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        made = flatten_seq(self.visit(s) for s in stmt.seq)
        if isinstance(made, SeqStmt) and len(made.seq) == len(stmt.seq):
            return stmt if all(a is b for a, b in zip(made.seq, stmt.seq)) else made
        return made


class StmtMutator(SeqMutator):
    """Rebuilds statements and leaves every expression and buffer alone."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer


class StmtExprMutator(SeqMutator):
    """Rebuilds statements and expressions; buffers stay as they are unless a subclass says otherwise."""

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e


class StmtExprVisitor(Visitor):
    """Walks statements and expressions without looking inside buffers."""

    def visit_Buffer(self, buffer: Buffer) -> None:
        return

    def visit_IntImm(self, e: IntImm) -> None:
        return


def op_name(e: object) -> str:
    """The intrinsic that an expression calls, without its ``tir.`` prefix; empty if it is no such call."""
    name = getattr(e.op, "name", "") if type(e) is Call else ""
    return name[4:] if name.startswith("tir.") else ""


def is_call(e: object, *names: str) -> TypeGuard[Call]:
    """Whether an expression calls one of the named intrinsics."""
    return op_name(e) in names


def call(dtype: str, name: str, *args: Any) -> Call:
    """A call of the intrinsic ``tir.<name>``."""
    return Call(dtype, Op.register(f"tir.{name}"), args)


def pointer_scope(var: Var) -> str:
    """The memory a pointer variable points into; empty means global."""
    return str(getattr(var.type_annotation, "storage_scope", "") or "")


def merge_nest(nest: list[Stmt], body: Stmt) -> Stmt:
    """Put ``body`` inside statements that each hold the next: their own bodies stand for "here"."""
    for stmt in reversed(nest):
        if isinstance(stmt, SeqStmt):
            body = SeqStmt([*stmt.seq[:-1], body])
        elif hasattr(stmt, "then_case"):
            body = stmt.with_fields(then_case=body)
        elif hasattr(stmt, "body"):
            body = stmt.with_fields(body=body)
        else:
            raise TypeError(f"a {type(stmt).__name__} cannot hold a statement")
    return body


def is_noop(stmt: Stmt | None) -> bool:
    """Whether a statement certainly does nothing."""
    if stmt is None:
        return True
    if isinstance(stmt, Evaluate):
        return isinstance(stmt.value, (IntImm, Var))
    return isinstance(stmt, SeqStmt) and all(is_noop(s) for s in stmt.seq)


def seq(stmts: list[Stmt]) -> Stmt:
    """Statements in order, without those that do nothing."""
    kept = [s for s in stmts if not is_noop(s)]
    if not kept:
        return Evaluate(0)
    return kept[0] if len(kept) == 1 else SeqStmt(kept)
