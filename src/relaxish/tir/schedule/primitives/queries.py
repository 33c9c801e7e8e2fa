"""Finding blocks and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....ir.expr import GlobalVar, PrimExpr
from ....ir.functor import Visitor
from ...stmt import Block
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Output, Step, operand
from ..sref import StmtSRef
from ..state import ScheduleState, blocks_in_order
from ..rv import BlockRV, LoopRV

if TYPE_CHECKING:
    from ..protocol import Schedule

__all__: list[str] = []


def blocks_named(state: ScheduleState, name: str, gvar: GlobalVar) -> list[StmtSRef]:
    """All blocks of a function that carry ``name``."""
    for root, owner in state.roots.items():
        if owner is gvar or owner.name_hint == gvar.name_hint:
            return [state.stmt2ref[b] for b in blocks_in_order(root.stmt) if b.name_hint == name]
    return []


class GetBlock(Step):
    """The block of a given name."""

    is_pure = takes_pieces = True

    name: str
    func_name: str | None

    def run(self, sch: Schedule) -> Sequence[Output]:
        name, func_name = self.name, self.func_name
        if func_name is not None:
            gvar = sch.mod.get_global_var(func_name)
        elif sch.func_working_on is not None:
            gvar = sch.func_working_on
        else:
            raise ValueError(
                "`get_block` does not know which function to be working on, as the module has several: name one with "
                "get_block(..., func_name=...) or call sch.work_on(...) first"
            )
        found = blocks_named(sch.state, name, gvar)
        if len(found) == 1:
            return [found[0]]
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


class GetLoops(Step):
    """The loops around a block, outermost first."""

    is_pure = many_outputs = takes_pieces = True

    block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        checks.check_block(sref)
        return list(checks.loops_above(sref))


class GetChildBlocks(Step):
    """The nearest blocks below a block or loop."""

    is_pure = many_outputs = takes_pieces = True

    block_or_loop: BlockRV | LoopRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        return list(sch.state.child_blocks(sch.sref(self.block_or_loop)))


class GetProducers(Step):
    """The blocks a block depends on."""

    is_pure = many_outputs = True

    block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        return list(checks.producers_of(sch.state, sref, checks.scope_root(sch.state, sref)))


class GetConsumers(Step):
    """The blocks that depend on a block."""

    is_pure = many_outputs = True

    block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        return list(checks.consumers_of(sch.state, sref, checks.scope_root(sch.state, sref)))


class GetOutputBlocks(Step):
    """The blocks within a scope that write buffers the scope does not allocate."""

    is_pure = many_outputs = True

    scope_block: BlockRV = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        scope = sch.sref(self.scope_block)
        return list(output_blocks(sch.state, scope))


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
