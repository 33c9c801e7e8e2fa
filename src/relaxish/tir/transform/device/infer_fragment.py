"""InferFragment: memory of matrix fragments is annotated with the shape and layout its instructions imply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....ir.prim import Call, StringImm, const_ints
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, Stmt
from ..base import (
    LoweringError,
    StmtExprVisitor,
    StmtMutator,
    is_call,
    pointer_scope,
    FunctionRewrite,
)


@dataclass(frozen=True)
class _Fragment:
    shape: tuple[int, int, int]
    layout: str
    scope: str


class _Collect(StmtExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Any, _Fragment] = {}
        self.products: list[Any] = []

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "tvm_load_matrix_sync", "tvm_store_matrix_sync"):
            scope = pointer_scope(e.args[0])
            layout = str(e.args[7].value) if scope in ("wmma.matrix_a", "wmma.matrix_b") else ""
            self._note(e, layout, scope)
        elif is_call(e, "tvm_fill_fragment"):
            self._note(e, "", pointer_scope(e.args[0]))
        elif is_call(e, "tvm_mma_sync", "tvm_bmma_sync"):
            self.products.append(e)
        for arg in e.args:
            self.visit(arg)

    def _note(self, e: Call, layout: str, scope: str) -> None:
        if const_ints(e.args[1:4]) is None:
            raise LoweringError("the shape of a fragment must be constant")
        made = _Fragment(tuple(int(a) for a in e.args[1:4]), layout, scope)  # type: ignore[arg-type]
        known = self.found.setdefault(e.args[0], made)
        if known.shape != made.shape or (layout and known.layout and known.layout != layout):
            raise LoweringError(f"fragment {e.args[0].name} is used as {known} and as {made}")

    def check(self) -> None:
        """All operands of one product must have the same shape."""
        for e in self.products:
            shapes = {self.found[p].shape for p in (e.args[0], e.args[2], e.args[4], e.args[6]) if p in self.found}
            if len(shapes) > 1:
                raise LoweringError(f"the fragments of one matrix product have different shapes: {sorted(shapes)}")


class _Annotate(StmtMutator):
    def __init__(self, found: dict[Any, _Fragment]) -> None:
        self.found = found

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        made: Any = self.default_visit(stmt)
        fragment = self.found.get(stmt.buffer_var)
        if fragment is None:
            return made
        shape = StringImm(", ".join(map(str, fragment.shape)))
        made = AttrStmt(stmt.buffer_var, "fragment_shape", shape, made)
        if fragment.layout:
            made = AttrStmt(stmt.buffer_var, "fragment_layout", StringImm(fragment.layout), made)
        return made


def infer(func: PrimFunc) -> PrimFunc:
    """Annotate the fragments of a function. Raises ValueError where their uses disagree."""
    collect = _Collect()
    collect.visit(func.body)
    collect.check()
    if not collect.found:
        return func
    body = _Annotate(collect.found).visit(func.body)
    return func if body is func.body else func.with_body(body)


class InferFragment(FunctionRewrite):
    """Annotate fragment allocations for code generation.

    Before::

        A = T.allocate([256], "float16", "wmma.matrix_a")
        T.tvm_load_matrix_sync(A, 16, 16, 16, 0, ..., 16, "row_major")

    After::

        T.attr(A, "fragment_layout", "row_major")
        T.attr(A, "fragment_shape", "16, 16, 16")
        A = T.allocate([256], "float16", "wmma.matrix_a")
        ...
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return infer(func)
