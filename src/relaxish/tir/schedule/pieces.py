"""Declaring what the blocks around the pieces of a partitioned loop read and write.

``loop_partition`` leaves these blocks, as users of the field know them, without variables and without accesses.  No
other primitive could tell from that what they depend on, so before the next one runs they become proper blocks::

    with T.block("B_i_common"):                      with T.block("B_i_common"):
        T.reads()                                        vn = T.axis.spatial(4, n)
        T.writes()                        becomes        T.reads(A[vn, 0:24])
        with T.block("B_i0_partition"):                  T.writes(B[vn, 0:24])
            ...                                          with T.block("B_i0_partition"):
                                                             ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Visitor
from ..expr import IterVar, Var
from ..stmt import Block, BlockRealize, For, SeqStmt, Stmt
from .checks import is_zero
from .rewrite import signature_of
from .sref import StmtSRef
from .state import ScheduleState, blocks_in_order
from .subst import chain_reuse, free_vars, substitute_loops
from .walk import stmt_children, vars_in

__all__ = ["declare_pieces"]


def declare_pieces(state: ScheduleState) -> Callable[[], None]:
    """Give all blocks around pieces the variables and regions they were left without; returns the undo."""
    before = {root: root.stmt for root in state.roots}
    restore_flags = state.forget_flags()
    state.undeclared = False
    for root in before:
        # Each once: what a block hides of its accesses, or one without any, has nothing to declare.
        for sref in [state.stmt2ref[block] for block in _outermost(root.stmt)]:
            _declare_outermost(state, sref)
    # Asked for later they would be those of a later program, and depend on who asks first.
    state.remember_origins()

    def undo() -> None:
        for root, old in before.items():
            if root.stmt is not old:
                pairs = zip(blocks_in_order(root.stmt), blocks_in_order(old), strict=True)
                state.replace(root, old, dict(pairs))
        state.undeclared = True
        restore_flags()

    return undo


def _outermost(root: Block) -> list[Block]:
    """The undeclared blocks that are in no other one, in program order."""
    found: list[Block] = []
    todo = list(reversed(stmt_children(root.body)))
    while todo:
        node = todo.pop()
        if ScheduleState.is_undeclared(node):
            found.append(node)
        else:
            todo += reversed(stmt_children(node.body))
    return found


def _declare_outermost(state: ScheduleState, sref: StmtSRef) -> None:
    parent = sref.parent
    assert parent is not None
    domains: dict[Any, Range] = {}
    at = parent
    while at.is_loop:
        domains[at.stmt.loop_var] = Range.from_min_extent(at.stmt.min, at.stmt.extent)
        assert at.parent is not None
        at = at.parent
    domains.update({iv.var: iv.dom for iv in at.stmt.iter_vars})
    reuse: dict[Any, Any] = {}
    old = parent.stmt
    new = old.with_fields(body=_declared_in(old.body, sref.stmt, domains, reuse))
    state.replace(parent, new, reuse if isinstance(old, For) else {**reuse, old: new})


def _declared_in(body: Stmt, only: Block | None, domains: Mapping[Any, Range], reuse: dict[Any, Any]) -> Stmt:
    """A statement with its blocks (or only one of them) declared."""
    match body:
        case SeqStmt():
            return SeqStmt([_declared_in(part, only, domains, reuse) for part in body.seq])
        case For():
            if only is None:
                domains = {**domains, body.loop_var: Range.from_min_extent(body.min, body.extent)}
            return body.with_fields(body=_declared_in(body.body, only, domains, reuse))
        case BlockRealize() if only is None or body.block is only:
            return _declared(body, domains, reuse)
    return body


def _declared(realize: BlockRealize, domains: Mapping[Any, Range], reuse: dict[Any, Any]) -> BlockRealize:
    block = realize.block
    if not ScheduleState.is_undeclared(block):
        made, values = _from_zero(block, realize.iter_values, reuse)
        made = signature_of(made)
        chain_reuse(reuse, {block: made})
        return realize.with_fields(iter_values=values, block=made)
    used = free_vars(block)
    outer = [var for var in domains if var in used]
    kinds = _Kinds()
    kinds.visit(block.body)
    own = [IterVar(domains[v], Var(f"v{v.name}", v.dtype), kinds.of(v)) for v in outer]
    body = substitute_loops(block.body, {v: iv.var for v, iv in zip(outer, own, strict=True)}, reuse)
    body = _declared_in(body, None, {iv.var: iv.dom for iv in own}, reuse)
    made = signature_of(block.with_fields(iter_vars=tuple(own), body=body))
    chain_reuse(reuse, {block: made})
    return realize.with_fields(iter_values=tuple(outer), block=made)


def _from_zero(block: Block, values: Sequence[Any], reuse: dict[Any, Any]) -> tuple[Block, tuple[Any, ...]]:
    """A block whose variables begin at zero, and their values: most primitives know of no others.

    The blocks inside of it that change are entered in ``reuse``.
    """
    shifted = {iv.var: iv.var + iv.dom.min for iv in block.iter_vars if not is_zero(iv.dom.min)}
    if not shifted:
        return block, tuple(values)
    simplify = Analyzer().simplify
    iters = tuple(IterVar(Range(0, iv.dom.extent), iv.var, iv.iter_type, iv.thread_tag) for iv in block.iter_vars)
    fields: dict[str, Any] = {
        name: getattr(block, name) for name in ("body", "init", "match_buffers", "reads", "writes")
    }
    fields = {name: substitute_loops(part, shifted, reuse) for name, part in fields.items() if part is not None}
    made = block.with_fields(iter_vars=iters, **fields)
    return made, tuple(simplify(v - iv.dom.min) for v, iv in zip(values, block.iter_vars, strict=True))


class _Kinds(Visitor):
    """What kinds of block variables are driven by which variables."""

    def __init__(self) -> None:
        self.found: dict[Any, set[int]] = {}

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            for var in vars_in(value):
                self.found.setdefault(var, set()).add(iv.iter_type)
        self.visit(node.block.body)

    def of(self, var: PrimExpr) -> int:
        """The kind of a block variable that stands for ``var``."""
        kinds = self.found.get(var, {IterVar.DataPar})
        return kinds.copy().pop() if len(kinds) == 1 else IterVar.Opaque
