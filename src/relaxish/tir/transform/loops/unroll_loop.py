"""UnrollLoop: loops marked unrolled, or small enough under a pragma, are written out.

Before: ``for i in T.unroll(2): A[i] = B[i]``.
After: ``A[0] = B[0]; A[1] = B[1]``.
"""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import free_vars
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.prim import IntImm, const_int
from ...buffer import Buffer
from ...expr import BufferLoad
from ...limits import MAX_UNROLLED, too_many_copies
from ...stmt import AttrStmt, BufferStore, Evaluate, For, ForKind, SeqStmt, Stmt
from ..base import LoweringError, StmtExprVisitor, flatten_seq, options, BodyRewrite
from ..simplify.convert_ssa import convert_body
from ..simplify.tables import substitute_in_tables

DEFAULTS = {
    "auto_max_step": 0, "auto_max_depth": 8, "auto_max_extent": 0, "explicit_unroll": 1, "unroll_local_access": 0,
}  # fmt: skip


class _LocalIndices(StmtExprVisitor):
    """Collects the variables in the indices of local buffers."""

    def __init__(self, found: set[Any]) -> None:
        self.found = found

    def _access(self, access: BufferLoad | BufferStore) -> None:
        if access.buffer.scope() == "local":
            self.found.update(free_vars(access.indices))

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._access(load)
        self.visit(load.indices)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._access(store)
        self.visit(store.value)
        self.visit(store.indices)


class _Unroll(Mutator):
    def __init__(self, settings: dict[str, Any]) -> None:
        self.max_step = int(settings["auto_max_step"])
        self.max_depth = int(settings["auto_max_depth"])
        self.max_extent = int(settings["auto_max_extent"])
        self.explicit = bool(settings["explicit_unroll"])
        self.local = bool(settings["unroll_local_access"])
        self.indexes_local: set[Any] = set()
        self.analyzer = Analyzer()
        self.normal_loops = 0
        self.unroll_depth = 0
        self.steps = 0

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key == "pragma_auto_unroll_max_step":
            saved, self.max_step = self.max_step, int(B.as_int(attr.value) or 0)
            body = self.visit(attr.body)
            self.max_step = saved
            return body
        if attr.attr_key == "pragma_unroll_explicit":
            saved_flag, self.explicit = self.explicit, bool(B.as_int(attr.value))
            body = self.visit(attr.body)
            self.explicit = saved_flag
            return body
        return self.default_visit(attr)

    def visit_For(self, loop: For) -> Stmt:
        body = self.visit(loop.body)
        if body is not loop.body:
            loop = loop.with_fields(body=body)
        extent = self._extent(loop)
        auto = (
            loop.kind == ForKind.SERIAL
            and extent >= 0
            and self.normal_loops == 0
            and self.unroll_depth <= self.max_depth
        )
        auto = auto and (self.steps * extent <= self.max_step or extent <= self.max_extent)
        auto = auto and self.steps * extent <= MAX_UNROLLED
        if loop.kind == ForKind.UNROLLED:
            if extent < 0:
                raise LoweringError(f"Cannot unroll non-constant loop {loop.loop_var.name}")
            auto = True
        elif self.local and loop.kind == ForKind.SERIAL and extent >= 0 and loop.loop_var in self.indexes_local:
            # Registers cannot be indexed at run time.
            auto = True
        if auto:
            self.steps *= extent
            self.unroll_depth += 1
            if extent > 1 and self.steps > MAX_UNROLLED:
                raise LoweringError(too_many_copies(self.steps, loop.loop_var.name))
        else:
            self.normal_loops += 1
        if (auto and self.explicit) or (0 <= extent <= self.max_extent and self.max_extent == 1):
            return unroll(loop)
        if auto and loop.kind != ForKind.UNROLLED:
            loop = loop.with_fields(kind=ForKind.UNROLLED)
        return loop

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        self.steps += 1
        if self.local:
            _LocalIndices(self.indexes_local).visit(stmt)
        return stmt

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        self.steps += 1
        return stmt

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        made = []
        steps = depth = normal = 0
        saved = (self.steps, self.unroll_depth, self.normal_loops)
        for s in stmt.seq:
            self.steps = self.unroll_depth = self.normal_loops = 0
            made.append(self.visit(s))
            steps += self.steps
            depth = max(depth, self.unroll_depth)
            normal = max(normal, self.normal_loops)
        self.steps = saved[0] + steps
        self.unroll_depth = max(depth, saved[1])
        self.normal_loops = max(normal, saved[2])
        return stmt if all(a is b for a, b in zip(made, stmt.seq)) else flatten_seq(made)

    def _extent(self, loop: For) -> int:
        extent = loop.extent
        if not isinstance(extent, IntImm):
            extent = self.analyzer.simplify(extent)
        return const_int(extent, -1)


def unroll(loop: For) -> Stmt:
    """The iterations of a loop of constant extent, one after another."""
    count = B.as_int(loop.extent)
    assert count is not None
    if count <= 0:
        return Evaluate(0)
    bodies = []
    for i in range(count):
        value = B.add(loop.min, B.const(loop.loop_var.dtype, i))
        bodies.append(substitute_in_tables(loop.body, {loop.loop_var: value}))
    return flatten_seq(bodies)


def unroll_loops(stmt: Stmt, settings: dict[str, Any] | None = None) -> Stmt:
    """Unroll as marks, pragmas and ``settings`` (``tir.UnrollLoop``) say."""
    given = dict(DEFAULTS)
    given.update(settings or {})
    return _Unroll(given).visit(stmt)


class UnrollLoop(BodyRewrite):
    """Unroll loops that are marked, or small enough by the options of ``tir.UnrollLoop`` and pragmas.

    Before::

        for i in T.unroll(2):
            A[i] = B[i]

    After::

        A[0] = B[0]
        A[1] = B[1]

    Options: ``auto_max_step``, ``auto_max_depth``, ``auto_max_extent``, ``explicit_unroll`` (else loops are only
    marked) and ``unroll_local_access`` (loops whose variable indexes local memory).
    """

    def rewrite_body(self, body: Stmt) -> Stmt:
        made = unroll_loops(body, options("tir.UnrollLoop", DEFAULTS))
        # Copies of a body must not define the same variables.
        return body if made is body else convert_body(made)
