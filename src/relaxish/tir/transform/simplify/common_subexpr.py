"""CommonSubexprElimTIR: expressions computed more than once are computed once."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from typing import Any, TypeVar

from ....ir.expr import PrimExpr
from ....ir.functor import Mutator, post_order_visit
from ....ir.node import Node
from ....ir.prim import Let, Var
from ...buffer import Buffer
from ...function import PrimFunc
from ...stmt import For, IfThenElse, LetStmt, LetT, Stmt, While
from ..base import StmtExprMutator, config, FunctionRewrite
from .cse_table import Counter, Key, Queue, Terms

# A key, the variable to put in its place, and the expression that the variable is to hold if it is new.
_Step = tuple[Key, Var, PrimExpr | None]
_Scope = TypeVar("_Scope", Stmt, PrimExpr)


class _Replace(StmtExprMutator):
    """Puts variables in the places of all expressions with their keys, the largest expressions first."""

    def __init__(self, variables: dict[Key, Var], terms: Terms) -> None:
        self.variables = variables
        self.terms = terms

    def visit(self, x: Any) -> Any:
        if isinstance(x, PrimExpr):
            if not self.terms.matters(x):
                return x
            if self.terms.eligible(x):
                var = self.variables.get(self.terms.key(x))
                if var is not None:
                    return var
        return super().visit(x)

    def below(self, e: PrimExpr) -> PrimExpr:
        """``e`` with its parts replaced, but not as a whole."""
        return super().visit(e)


class _Settled:
    """What is known of a statement in which nothing is left to share: the expressions in it, and how often they occur.

    Below it something can be shared again only inside a loop or branch, or where one more variable is known.
    """

    def __init__(self, queue: Queue, terms: Terms) -> None:
        self.terms = terms
        self.counts = queue.counts
        self.waiting: dict[Var, list[PrimExpr]] = {}
        for e, count, _ in queue.counts.values():
            if count > 1:
                for var in terms.variables(e):
                    self.waiting.setdefault(var, []).append(e)

    def holds_below(self, var: Var, value: PrimExpr | None, is_defined: Callable[[PrimExpr], bool]) -> bool:
        """Whether a binding lets nothing be shared that could not be before."""
        if any(is_defined(e) for e in self.waiting.get(var, ())):
            return False
        found = None if value is None else self.counts.get(self.terms.key(value))
        return found is None or found[1] < 2


class _Eliminate(Mutator):
    """Introduces each repeated expression at the outermost place where all it mentions is known."""

    def __init__(self, func: PrimFunc, equivalent: bool) -> None:
        self.known: Counts[Var] = Counts(func.params)
        self.holders: dict[Key, list[Var]] = {}
        self.names: set[str] = set()
        self.count = 0
        self.settled: _Settled | None = None
        bindable: set[Any] = set(func.params)
        values: list[PrimExpr] = []

        def note(node: Node) -> None:
            match node:
                case Var():
                    self.names.add(node.name)
                case For():
                    bindable.add(node.loop_var)
                case LetStmt() | Let():
                    bindable.add(node.var)
                    values.append(node.value)

        post_order_visit(func.body, note)
        self.terms = Terms(equivalent, bindable)
        self.counter = Counter(self.terms)
        # A variable may hold what mentions others that are never known, such as indices of threads.
        if any(self.terms.eligible(e) and not self.terms.variables(e) <= bindable for e in values):
            self.terms.every = True

    def _fresh(self, dtype: str) -> Var:
        while True:
            self.count += 1
            name = f"cse_var_{self.count}"
            if name not in self.names:
                made = Var(name, dtype)
                self.terms.bindable.add(made)
                return made

    # -- one statement or expression -----------------------------------------------------------------------

    def _introduce(self, node: PrimExpr | Stmt) -> PrimExpr | Stmt:
        """The node inside definitions of what it computes more than once."""
        if not isinstance(node, Stmt):
            return self._round(node, Let)
        while True:
            # A definition may compute what the rest computes too.
            made = self.count
            node = self._round(node, LetStmt)
            if made == self.count:
                return node

    def _round(self, node: _Scope, make: Callable[[Var, PrimExpr, _Scope], _Scope]) -> _Scope:
        queue = Queue(self.terms, self.counter.of(node))
        steps: list[_Step] = []
        for e, count in queue:
            key = self.terms.key(e)
            holders = self.holders.get(key)
            if holders:
                steps.append((key, holders[0], None))
            elif count > 1 and self._is_defined(e):
                steps.append((key, self._fresh(e.dtype), e))
            else:
                queue.add_parts(e)
        if not steps:
            self.settled = None if self.terms.equivalent else _Settled(queue, self.terms)
            return node
        self.settled = None
        if not self.terms.equivalent:
            return self._apply(steps, node, make)
        # Keys of simplified forms change with what is replaced below: one step after the other then.
        for key, var, value in steps:
            node = _Replace({key: var}, self.terms).visit(node)
            node = node if value is None else make(var, value, node)
        return node

    def _apply(self, steps: list[_Step], node: _Scope, make: Callable[[Var, PrimExpr, _Scope], _Scope]) -> _Scope:
        """All steps at once: what is replaced by one of them holds nothing that another replaces by itself."""
        replace = _Replace({key: var for key, var, _ in steps}, self.terms)
        node = replace.visit(node)
        for _, var, value in steps:
            if value is not None:
                node = make(var, replace.below(value), node)
        return node

    def _is_defined(self, e: PrimExpr) -> bool:
        return all(self.known[var] for var in self.terms.variables(e))

    # -- the walk ------------------------------------------------------------------------------------------

    def visit(self, x: Any) -> Any:
        settled = self.settled
        if not isinstance(x, (Stmt, PrimExpr)):
            # What other nodes hold was not looked at with the statement they belong to.
            if not isinstance(x, (tuple, list)):
                self.settled = None
        elif settled is None:
            x = self._introduce(x)
        elif isinstance(x, PrimExpr) and self.terms.simple(x):
            return x
        made = super().visit(x)
        self.settled = settled
        return made

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_Var(self, var: Var) -> PrimExpr:
        return var

    def _within(self, var: Var, value: PrimExpr | None, body: Stmt | PrimExpr) -> Stmt | PrimExpr:
        """The body of a binding."""
        key = None if value is None else self.terms.key(value)
        self.known[var] += 1
        if self.settled is not None and not self.settled.holds_below(var, value, self._is_defined):
            self.settled = None
        if key is not None:
            self.holders.setdefault(key, []).append(var)
        made = self.visit(body)
        if key is not None:
            self.holders[key].pop()
        self.known[var] -= 1
        return made

    def _let(self, node: LetT) -> LetT:
        value = self.visit(node.value)
        body = self._within(node.var, node.value, node.body)
        return node if value is node.value and body is node.body else node.with_fields(value=value, body=body)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        return self._let(stmt)

    def visit_Let(self, e: Let) -> PrimExpr:
        return self._let(e)

    def visit_For(self, loop: For) -> Stmt:
        self.settled = None
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        body = self._within(loop.loop_var, None, loop.body)
        same = low is loop.min and extent is loop.extent and body is loop.body
        return loop if same else loop.with_fields(min=low, extent=extent, body=body)

    def _branches(self, stmt: IfThenElse | While) -> Stmt:
        self.settled = None
        return self.default_visit(stmt)

    visit_IfThenElse = _branches
    visit_While = _branches


def eliminate(func: PrimFunc, equivalent: bool = False) -> PrimFunc:
    """Share the repeated expressions of a function."""
    body = _Eliminate(func, equivalent).visit(func.body)
    return func if body is func.body else func.with_body(body)


class CommonSubexprElimTIR(FunctionRewrite):
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

    enable_cse_tir: bool = True
    identify_equiv_terms: bool = False

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        enabled = self.enable_cse_tir and not config("tir.disable_cse_tir", False)
        return eliminate(func, self.identify_equiv_terms) if enabled else func


__all__ = ["CommonSubexprElimTIR", "eliminate"]
