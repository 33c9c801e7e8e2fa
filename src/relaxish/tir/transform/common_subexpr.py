"""CommonSubexprElimTIR: expressions computed more than once are computed once."""

from __future__ import annotations

from typing import Any

from ...arith.functor import free_vars
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator, post_order_visit
from ...ir.prim import Let, Var
from ..function import PrimFunc
from ..stmt import For, LetStmt, Stmt
from .base import PrimFuncPass, StmtExprMutator, config, func_pass
from .cse_table import Counter, Key, Table, Terms, plain_text


class _Replace(StmtExprMutator):
    """Puts a variable in the place of all expressions with one key."""

    def __init__(self, key: Key, var: Var, terms: Terms) -> None:
        self.key = key
        self.var = var
        self.terms = terms

    def visit(self, x: Any) -> Any:
        if isinstance(x, PrimExpr) and self.terms.eligible(x) and self.terms.key(x) == self.key:
            return self.var
        return super().visit(x)


class _Eliminate(Mutator):
    """Introduces each repeated expression at the outermost place where all it mentions is known."""

    def __init__(self, func: PrimFunc, equivalent: bool) -> None:
        self.terms = Terms(equivalent)
        self.counter = Counter(self.terms)
        self.context: list[tuple[Var, Any]] = [(v, None) for v in func.params]
        self.names: set[str] = set()
        self.count = 0
        post_order_visit(func.body, self._note_name)

    def _note_name(self, node: Any) -> None:
        if isinstance(node, Var):
            self.names.add(node.name)

    def _fresh(self, dtype: str) -> Var:
        while True:
            self.count += 1
            name = f"cse_var_{self.count}"
            if name not in self.names:
                return Var(name, dtype)

    # -- one statement or expression -----------------------------------------------------------------------

    def _introduce(self, node: Any) -> Any:
        """The node inside definitions of what it computes more than once."""
        if not isinstance(node, Stmt):
            return self._round(node, Let)
        while True:
            # A definition may compute what the rest computes too.
            made = self.count
            node = self._round(node, LetStmt)
            if made == self.count:
                return node

    def _round(self, node: Any, make: Any) -> Any:
        work = self._candidates(self.counter.of(node))
        position = 0
        while position < len(work):
            e, count = work[position]
            position += 1
            key = self.terms.key(e)
            holder = next((v for v, value in self.context if value is not None and self.terms.key(value) == key), None)
            if holder is not None:
                node = _Replace(key, holder, self.terms).visit(node)
            elif count > 1 and self._is_defined(e):
                var = self._fresh(e.dtype)
                node = make(var, e, _Replace(key, var, self.terms).visit(node))
            else:
                self._consider_parts(work, position, e)
        return node

    def _candidates(self, table: Table) -> list[tuple[PrimExpr, int]]:
        """Larger expressions first, those of one size in the order of their text."""
        items = list(table.counts.values())
        return sorted(items, key=lambda item: (-self.terms.size(item[0]), plain_text(item[0])))

    def _is_defined(self, e: PrimExpr) -> bool:
        return all(any(v is known for known, _ in self.context) for v in free_vars(e))

    def _consider_parts(self, work: list[tuple[PrimExpr, int]], position: int, e: PrimExpr) -> None:
        """Queue the parts of an expression that is not shared as a whole."""
        for part in self.terms.direct(e):
            key, size = self.terms.key(part), self.terms.size(part)
            same = next((i for i in range(position, len(work)) if self.terms.key(work[i][0]) == key), None)
            if same is not None:
                work[same] = (work[same][0], work[same][1] + 1)
                continue
            at = next((i for i in range(position, len(work)) if self.terms.size(work[i][0]) < size), len(work))
            work.insert(at, (part, 1))

    # -- the walk ------------------------------------------------------------------------------------------

    def visit(self, x: Any) -> Any:
        return super().visit(self._introduce(x) if isinstance(x, (Stmt, PrimExpr)) else x)

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_Var(self, var: Any) -> Any:
        return var

    def _let(self, node: Any) -> Any:
        value = self.visit(node.value)
        self.context.append((node.var, node.value))
        body = self.visit(node.body)
        self.context.pop()
        return node if value is node.value and body is node.body else node.with_fields(value=value, body=body)

    def visit_LetStmt(self, stmt: LetStmt) -> Any:
        return self._let(stmt)

    def visit_Let(self, e: Let) -> Any:
        return self._let(e)

    def visit_For(self, loop: For) -> Any:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        self.context.append((loop.loop_var, None))
        body = self.visit(loop.body)
        self.context.pop()
        same = low is loop.min and extent is loop.extent and body is loop.body
        return loop if same else loop.with_fields(min=low, extent=extent, body=body)


def eliminate(func: PrimFunc, equivalent: bool = False) -> PrimFunc:
    """Share the repeated expressions of a function."""
    body = _Eliminate(func, equivalent).visit(func.body)
    return func if body is func.body else func.with_body(body)


def CommonSubexprElimTIR(enable_cse_tir: bool = True, identify_equiv_terms: bool = False) -> PrimFuncPass:  # noqa: N802
    """Share repeated expressions; with ``identify_equiv_terms`` also those that are equal once simplified.

    Before::

        A[i * 8 + j] = B[i * 8 + j] * 2.0

    After::

        cse_var_1: T.int32 = i * 8 + j
        A[cse_var_1] = B[cse_var_1] * 2.0

    Loads and calls are never shared. A variable is introduced where all it mentions is known (parameters, loops and
    bindings), and outside a loop or branch only if another part of it computes the same. Off with
    ``tir.disable_cse_tir``.
    """

    def run(func: PrimFunc) -> PrimFunc:
        enabled = enable_cse_tir and not config("tir.disable_cse_tir", False)
        return eliminate(func, identify_equiv_terms) if enabled else func

    return func_pass(run, "tir.CommonSubexprElimTIR")


__all__ = ["CommonSubexprElimTIR", "eliminate"]
