"""Finding blocks and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ir.expr import GlobalVar, PrimExpr
from ....ir.functor import Visitor
from ...stmt import Block
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Decision, InstructionKind, register_kind
from ..sref import StmtSRef
from ..state import ScheduleState, blocks_in_order

if TYPE_CHECKING:
    from ..protocol import Schedule

__all__: list[str] = []


def blocks_named(state: ScheduleState, name: str, gvar: GlobalVar) -> list[StmtSRef]:
    """All blocks of a function that carry ``name``."""
    for root, owner in state.roots.items():
        if owner is gvar or owner.name_hint == gvar.name_hint:
            return [state.stmt2ref[b] for b in blocks_in_order(root.stmt) if b.name_hint == name]
    return []


@register_kind
class GetBlock(InstructionKind):
    """The block of a given name."""

    name, method, is_pure = "GetBlock", "get_block", True
    takes_pieces = True
    attrs = ("name", "func_name")

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        name, func_name = attrs
        if func_name is not None:
            gvar = sch.mod.get_global_var(func_name)
        elif sch.func_working_on is not None:
            gvar = sch.func_working_on
        else:
            raise ValueError(
                "the module has several functions: name one with get_block(..., func_name=...) or sch.work_on(...)"
            )
        found = blocks_named(sch.state, name, gvar)
        if len(found) == 1:
            return [found[0]], None
        if found:
            raise PrimitiveError(
                f"Found  {len(found)} blocks with the name: {name}",
                found,
                hint="give the blocks different names",
                fast="ScheduleError: Found multiple blocks with the specified name",
            )
        raise PrimitiveError(
            f"Cannot find a block with the name: {name}",
            hint=f'the blocks of "{gvar.name_hint}" are: {_names(sch.state, gvar)}',
            fast="ScheduleError: Cannot find a block with the specified name",
        )


def _names(state: ScheduleState, gvar: GlobalVar) -> str:
    for root, owner in state.roots.items():
        if owner.name_hint == gvar.name_hint:
            return ", ".join(b.name_hint for b in blocks_in_order(root.stmt))
    return "(none)"


@register_kind
class GetLoops(InstructionKind):
    """The loops around a block, outermost first."""

    name, method, is_pure, many_outputs = "GetLoops", "get_loops", True, True
    takes_pieces = True
    inputs = ("block",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        checks.check_block(sref)
        return list(checks.loops_above(sref)), None


@register_kind
class GetChildBlocks(InstructionKind):
    """The nearest blocks below a block or loop."""

    name, method, is_pure, many_outputs = "GetChildBlocks", "get_child_blocks", True, True
    takes_pieces = True
    inputs = ("block_or_loop",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        return list(sch.state.child_blocks(sch.sref(inputs[0]))), None


@register_kind
class GetProducers(InstructionKind):
    """The blocks a block depends on."""

    name, method, is_pure, many_outputs = "GetProducers", "get_producers", True, True
    inputs = ("block",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        return list(checks.producers_of(sch.state, sref, checks.scope_root(sch.state, sref))), None


@register_kind
class GetConsumers(InstructionKind):
    """The blocks that depend on a block."""

    name, method, is_pure, many_outputs = "GetConsumers", "get_consumers", True, True
    inputs = ("block",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        sref = sch.sref(inputs[0])
        return list(checks.consumers_of(sch.state, sref, checks.scope_root(sch.state, sref))), None


@register_kind
class GetOutputBlocks(InstructionKind):
    """The blocks within a scope that write buffers the scope does not allocate."""

    name, method, is_pure, many_outputs = "GetOutputBlocks", "get_output_blocks", True, True
    inputs = ("scope_block",)

    def apply(
        self, sch: Schedule, inputs: Sequence[Any], attrs: Sequence[Any], decision: Decision
    ) -> tuple[list[Any], Any]:
        scope = sch.sref(inputs[0])
        return list(output_blocks(sch.state, scope)), None


def output_blocks(state: ScheduleState, scope: StmtSRef) -> list[StmtSRef]:
    """All blocks strictly inside ``scope`` that write to its outside."""
    found: list[StmtSRef] = []

    class Collect(Visitor):
        def visit_Block(self, node: Block) -> None:
            sref = state.stmt2ref[node]
            if sref is not scope and sref.parent is not None and checks.is_output_block(sref, scope):
                found.append(sref)
            self.visit(node.body)

        def visit_PrimExpr(self, node: PrimExpr) -> None:
            pass

    Collect().visit(scope.stmt)
    return found
