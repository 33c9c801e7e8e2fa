"""InlinePrivateFunctions: calls of private functions are replaced by their bodies."""

from __future__ import annotations

from typing import Any

from ....ir.expr import GlobalVar
from ....ir.functor import all_nodes
from ....ir.module import IRModule, functions_of
from ....ir.prim import Call, Var
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...function import PrimFunc
from ...functor import Substitute, renew_defs
from ...stmt import BlockRealize, DeclBuffer, Evaluate, LetStmt, Stmt
from ..base import LoweringError, StmtMutator
from ..simplify.convert_ssa import ConvertSSA
from ....ir.declared_pass import ModuleRewrite


def _callees(func: PrimFunc) -> set[GlobalVar]:
    return {node.op for node in of_kind(all_nodes(func.body), Call) if isinstance(node.op, GlobalVar)}


def _recursive(funcs: dict[GlobalVar, PrimFunc]) -> set[GlobalVar]:
    edges = {v: _callees(f) for v, f in funcs.items()}

    def reaches(start: GlobalVar) -> bool:
        stack, seen = list(edges[start]), set()
        while stack:
            var = stack.pop()
            if var is start:
                return True
            if var not in seen:
                seen.add(var)
                stack += edges.get(var, ())
        return False

    return {v for v in funcs if reaches(v)}


def _inlinable(func: PrimFunc) -> bool:
    """Whether a function is private, takes no buffers, and holds no blocks (whose names would repeat)."""
    return func.get_attr("global_symbol") is None and not func.buffer_map and not isinstance(func.body, BlockRealize)


class _Bind(Substitute):
    """Substitutes arguments; a buffer over a pointer expression gets a variable to stand on."""

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(buffer)
        if known is None:
            target = self.values.get(buffer.data)
            if target is not None and not isinstance(target, Var):
                saved = self.values.pop(buffer.data)
                known = super().visit_Buffer(buffer)
                self.values[buffer.data] = saved
            else:
                known = super().visit_Buffer(buffer)
        return known

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        old = stmt.buffer.data
        made: Any = self.default_visit(stmt)
        value = self.values.get(old)
        return LetStmt(old, value, made) if value is not None and not isinstance(value, Var) else made


class _Inline(StmtMutator):
    def __init__(self, bodies: dict[GlobalVar, PrimFunc]) -> None:
        self.bodies = bodies

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        value: Any = stmt.value
        callee = self.bodies.get(value.op) if isinstance(value, Call) and isinstance(value.op, GlobalVar) else None
        return stmt if callee is None else self.visit(_body(callee, value))


def _body(callee: PrimFunc, e: Call) -> Stmt:
    if len(callee.params) != len(e.args):
        raise LoweringError(
            f"Callee expects {len(callee.params)} arguments, but was called with {len(e.args)} arguments"
        )
    fresh = renew_defs(callee)
    return _Bind(dict(zip(fresh.params, e.args))).visit(fresh.body)


def inline(mod: IRModule) -> IRModule:
    """Inline what can be inlined, and drop functions that nothing calls any more."""
    funcs: dict[GlobalVar, PrimFunc] = dict(functions_of(mod, PrimFunc))
    loops = _recursive(funcs)
    chosen = {v: f for v, f in funcs.items() if v not in loops and _inlinable(f)}
    if not chosen:
        return mod
    out = mod.clone()
    for var, func in funcs.items():
        body = _Inline(chosen).visit(func.body)
        if body is not func.body:
            out.update_func(var, func.with_body(body))
    for var in chosen:
        used = any(var in _callees(f) for v, f in functions_of(out, PrimFunc) if v not in chosen)
        if not used:
            del out[var]
    return out


class InlinePrivateFunctions(ModuleRewrite, name="tir.InlinePrivateFunctions"):
    """Inline private functions at statements that call them.

    Before::

        def main(A: T.Buffer((4,), "float32")):
            for i in range(4):
                Module.set(T.address_of(A[i]))

        @T.prim_func(private=True)
        def set(p: T.handle("float32")):
            X = T.decl_buffer((1,), data=p)
            X[0] = 1.0

    After::

        def main(A: T.Buffer((4,), "float32")):
            for i in range(4):
                p: T.handle("float32") = T.address_of(A[i])
                X = T.decl_buffer((1,), data=p)
                X[0] = 1.0

    Functions with buffer parameters, with blocks, or that call themselves are left alone.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        return ConvertSSA()(inline(mod))
