"""CommonSubexprElimTIR: expressions computed more than once are computed once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...arith import Analyzer
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import free_vars
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import Mutator
from ...ir.node import Node
from ...ir.prim import Broadcast, Call, IntImm, Ramp, Var
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import For, IfThenElse, LetStmt, SeqStmt, Stmt, While
from .base import PrimFuncPass, config, func_pass

Key = Any


class _Keys:
    """Hashable forms of expressions: equal for the same tree over the same variables."""

    def __init__(self, equivalent: bool) -> None:
        self.equivalent = equivalent
        self.memo: dict[int, tuple[Any, Key]] = {}

    def of(self, e: Any) -> Key:
        """The key of an expression; with ``equivalent`` that of its simplified form."""
        known = self.memo.get(id(e))
        if known is None:
            simple = Analyzer().simplify(e) if self.equivalent and isinstance(e, PrimExpr) else e
            known = self.memo[id(e)] = (e, self._key(simple))
        return known[1]

    def _key(self, e: Any) -> Key:
        if isinstance(e, Var):
            return id(e)
        if isinstance(e, (tuple, list)):
            return tuple(self._key(x) for x in e)
        if isinstance(e, Node):
            fields = tuple(self._key(getattr(e, n)) for n, _ in type(e)._equal_plan)
            return (type(e).__name__, getattr(e, "dtype", ""), fields) if fields else id(e)
        return e if isinstance(e, (str, int, float, bool, type(None))) else id(e)


def _size(e: Any) -> int:
    """How many nodes an expression has."""
    if isinstance(e, (tuple, list)):
        return sum(_size(x) for x in e)
    if not isinstance(e, PrimExpr):
        return 0
    return 1 + sum(_size(c) for c in e.iter_children())


def _forbidden(e: Any) -> bool:
    """Whether neither an expression nor its parts may be moved: what it does depends on when it runs."""
    return isinstance(e, (Call, BufferLoad))


def _eligible(e: Any) -> bool:
    if isinstance(e, (Ramp, Broadcast, IntImm, Var)) or _forbidden(e) or dt.lanes(e.dtype) != 1:
        # Vectors of indices stay where code generation sees that they are consecutive.
        return False
    return _size(e) > 1 and side_effect(e) <= CallEffectKind.Pure and not _has_forbidden(e)


def _has_forbidden(e: Any) -> bool:
    return _forbidden(e) or any(_has_forbidden(c) for c in _parts(e))


def _parts(e: Any) -> list[PrimExpr]:
    out: list[PrimExpr] = []
    for child in e.iter_children():
        items: Iterable[Any] = child if isinstance(child, (tuple, list)) else (child,)
        out += [c for c in items if isinstance(c, PrimExpr)]
    return out


class _Table:
    """Expressions in order of first sight, with how often each is computed."""

    def __init__(self, keys: _Keys) -> None:
        self.keys = keys
        self.entries: dict[Key, list[Any]] = {}

    def add(self, e: PrimExpr, count: int = 1) -> None:
        """Note further computations of an expression."""
        entry = self.entries.setdefault(self.keys.of(e), [e, 0])
        entry[1] += count

    def merge(self, other: _Table) -> None:
        """Add what another table counts."""
        for e, count in other.entries.values():
            self.add(e, count)

    def visit(self, node: Any) -> None:
        """Count the largest eligible expressions below a node."""
        if isinstance(node, (tuple, list)):
            for item in node:
                self.visit(item)
        elif isinstance(node, PrimExpr):
            if _eligible(node):
                self.add(node)
            elif isinstance(node, BufferLoad):
                self.visit(node.indices)
            elif not (isinstance(node, Call) and getattr(node.op, "name", "") == "tir.if_then_else"):
                self.visit(_parts(node))
            else:
                self.visit(node.args[0])
        elif isinstance(node, IfThenElse):
            self._branches(node)
        elif isinstance(node, While):
            self.visit(node.condition)
        elif isinstance(node, Stmt):
            for child in node.iter_children():
                self.visit(child)

    def _branches(self, node: IfThenElse) -> None:
        """What a condition always computes: itself, and what both sides have in common."""
        self.visit(node.condition)
        if node.else_case is None:
            return
        sides = (_Table(self.keys), _Table(self.keys))
        sides[0].visit(node.then_case)
        sides[1].visit(node.else_case)
        for key, (e, count) in sides[0].entries.items():
            if key in sides[1].entries:
                self.add(e, count + sides[1].entries[key][1])


class _Replace(Mutator):
    def __init__(self, key: Key, var: Var, keys: _Keys) -> None:
        self.key = key
        self.var = var
        self.keys = keys

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit(self, x: Any) -> Any:
        if isinstance(x, PrimExpr) and _eligible(x) and self.keys.of(x) == self.key:
            return self.var
        return super().visit(x)


class _Eliminate(Mutator):
    """Introduces each repeated expression at the outermost statement where all it mentions is known."""

    def __init__(self, known: list[Var], equivalent: bool) -> None:
        self.keys = _Keys(equivalent)
        self.context: list[tuple[Var, Any]] = [(v, None) for v in known]
        self.count = 0

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit(self, x: Any) -> Any:
        if not isinstance(x, Stmt):
            return super().visit(x)
        return super().visit(self._introduce(x))

    def _introduce(self, stmt: Stmt) -> Stmt:
        table = _Table(self.keys)
        table.visit(stmt)
        work = [(_size(e), e, n) for e, n in table.entries.values()]
        work.sort(key=lambda item: -item[0])
        defined = {v for v, _ in self.context}
        position = 0
        while position < len(work):
            _, e, count = work[position]
            position += 1
            key = self.keys.of(e)
            holder = next((v for v, value in self.context if value is not None and self.keys.of(value) == key), None)
            if holder is not None:
                stmt = _Replace(key, holder, self.keys).visit(stmt)
            elif count >= 2 and all(v in defined for v in free_vars(e)):
                self.count += 1
                var = Var(f"cse_var_{self.count}", e.dtype)
                stmt = LetStmt(var, e, _Replace(key, var, self.keys).visit(stmt))
            else:
                self._split(work, position, e, count)
        return stmt

    def _split(self, work: list[Any], position: int, e: Any, count: int) -> None:
        """Consider the parts of an expression that cannot be shared as a whole."""
        for part in _parts(e):
            if not _eligible(part):
                continue
            key = self.keys.of(part)
            for i in range(position, len(work)):
                if self.keys.of(work[i][1]) == key:
                    work[i] = (work[i][0], work[i][1], work[i][2] + count)
                    break
            else:
                size = _size(part)
                at = position
                while at < len(work) and work[at][0] >= size:
                    at += 1
                work.insert(at, (size, part, count))

    def visit_For(self, loop: For) -> Any:
        self.context.append((loop.loop_var, None))
        body = self.visit(loop.body)
        self.context.pop()
        return loop if body is loop.body else loop.with_fields(body=body)

    def visit_LetStmt(self, stmt: LetStmt) -> Any:
        self.context.append((stmt.var, stmt.value))
        body = self.visit(stmt.body)
        self.context.pop()
        return stmt if body is stmt.body else stmt.with_fields(body=body)

    def visit_AttrStmt(self, stmt: Any) -> Any:
        var = getattr(stmt.node, "var", None)
        if var is not None:
            self.context.append((var, None))
        body = self.visit(stmt.body)
        if var is not None:
            self.context.pop()
        return stmt if body is stmt.body else stmt.with_fields(body=body)

    def visit_SeqStmt(self, stmt: SeqStmt) -> Any:
        made = [self.visit(s) for s in stmt.seq]
        return stmt if all(a is b for a, b in zip(made, stmt.seq)) else SeqStmt(made)


def eliminate(func: PrimFunc, equivalent: bool = False) -> PrimFunc:
    """Share the repeated expressions of a function."""
    known = [v for v in func.params]
    for buffer in func.buffer_map.values():
        known += [v for v in free_vars((buffer.shape, buffer.strides, buffer.elem_offset)) if v not in known]
    body = _Eliminate(known, equivalent).visit(func.body)
    return func if body is func.body else func.with_body(body)


def CommonSubexprElimTIR(enable_cse_tir: bool = True, identify_equiv_terms: bool = False) -> PrimFuncPass:  # noqa: N802
    """Share repeated expressions; with ``identify_equiv_terms`` also those that are equal once simplified.

    Before::

        A[i * 8 + j] = B[i * 8 + j] * 2.0

    After::

        cse_var_1: T.int32 = i * 8 + j
        A[cse_var_1] = B[cse_var_1] * 2.0

    Loads and calls are never shared. Off with ``tir.disable_cse_tir``.
    """

    def run(func: PrimFunc) -> PrimFunc:
        enabled = enable_cse_tir and not config("tir.disable_cse_tir", False)
        return eliminate(func, identify_equiv_terms) if enabled else func

    return func_pass(run, "tir.CommonSubexprElimTIR")


__all__ = ["CommonSubexprElimTIR", "eliminate"]
