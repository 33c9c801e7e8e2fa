"""Padding that a change of layout introduces: where it must be written, and how.

A buffer nobody writes (an input) gets a prologue that states what its padding holds.  A writer that runs over all of
the old buffer, index by index, runs over all of the new one instead and stores the pad value outside the old shape.
Any other writer is followed by a nest that fills the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from ....arith import Analyzer
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, Visitor
from ....ir.prim import const
from ....ir.structural import same_expression
from ...buffer import Buffer
from ...expr import BufferLoad, Call, CallEffectKind, IterVar, Var
from ...functor import substitute
from ...index_map import IndexMap
from ...op import assume, effect_of, if_then_else, logical_not_
from ...op import any as tir_any
from ...stmt import (
    Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, ForKind, LetStmt, SeqStmt, Stmt, stmt_list,
)  # fmt: skip
from ..errors import PrimitiveError
from ..walk import vars_in

if TYPE_CHECKING:
    from ..sref import StmtSRef

__all__ = ["Padding", "PaddingPlan", "check_pad_value", "plan_padding"]


class Padding:
    """Elements outside of the old buffer: the inverse map, the condition on new indices, and their value as a map of
    new indices."""

    def __init__(self, inverse: IndexMap, condition: PrimExpr, value: IndexMap) -> None:
        self.inverse, self.condition, self.value = inverse, condition, value

    def renewed(self) -> Padding:
        """The same with new variables, which can become loops."""
        fresh = {v: Var(v.name, v.dtype) for v in self.inverse.initial_indices}
        final = [substitute(e, fresh) for e in self.inverse.final_indices]
        return Padding(IndexMap(list(fresh.values()), final), substitute(self.condition, fresh), self.value)

    def at(self, indices: Sequence[Any]) -> PrimExpr:
        """The pad value at new ``indices``."""
        names = self.value.initial_indices
        fitted = [i if i.dtype == n.dtype else i.astype(n.dtype) for i, n in zip(indices, names, strict=True)]
        return Analyzer().simplify(substitute(self.value.final_indices[0], dict(zip(names, fitted, strict=True))))

    def outside(self, indices: Sequence[Any]) -> PrimExpr:
        """The condition at new ``indices``."""
        return substitute(self.condition, dict(zip(self.inverse.initial_indices, indices, strict=True)))


class PaddingPlan:
    """Edits that fill the padding: a statement before all others, loops to exchange, or one to be followed by a fill."""

    def __init__(self) -> None:
        self.prologue: Any = None
        self.replacements: dict[Any, Any] = {}  # loop -> statement
        self.new_to_old: dict[Any, Any] = {}  # blocks within replacements
        self.insert_after: Any = None
        self.epilogue: Any = None


# -- the pad value -----------------------------------------------------------------------------------------


class _PadExpr(Visitor):
    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.illegal: str | None = None

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        if node.buffer is not self.buffer:
            self.illegal = f"it reads {node.buffer.name}, another buffer than the one transformed"
        self.default_visit(node)

    def visit_Call(self, node: Call) -> None:
        if effect_of(node) > CallEffectKind.ReadState:
            self.illegal = f"{node} has side effects"
        self.default_visit(node)

    def visit_Buffer(self, node: Buffer) -> None:
        pass


def check_pad_value(pad_value: IndexMap, buffer: Buffer, location: StmtSRef) -> None:
    """Demand one value of the buffer's type that depends on nothing but the indices and the buffer itself."""
    if len(pad_value.final_indices) != 1:
        raise PrimitiveError(
            f"The IndexMap specifying pad_value has {len(pad_value.final_indices)} outputs, should only have one "
            "output.",
            [location],
        )
    value = pad_value.final_indices[0]
    if value.dtype != buffer.dtype:
        raise PrimitiveError(
            f"The padding value {value} has type {value.dtype}, while the buffer {buffer.name} of block {{0}} has type "
            f"{buffer.dtype}.",
            [location],
        )
    visitor = _PadExpr(buffer)
    visitor.visit(value)
    if visitor.illegal:
        raise PrimitiveError(f"The pad value {value} is not allowed for block {{0}}: {visitor.illegal}.", [location])


# -- who writes the buffer ---------------------------------------------------------------------------------


class _Write:
    """One store to the old buffer: the loops its indices depend on and the block around it."""

    def __init__(self, store: BufferStore, loops: Sequence[For], realize: BlockRealize | None, row_major: bool) -> None:
        self.store, self.loops, self.realize, self.row_major = store, list(loops), realize, row_major


class _Writers(Visitor):
    def __init__(self, old: Buffer) -> None:
        self.old = old
        self.found: list[_Write] = []
        self.loops: list[For] = []
        self.bindings: dict[Any, Any] = {}
        self.realize: Any = None

    def visit_PrimExpr(self, node: PrimExpr) -> None:
        pass

    def visit_For(self, node: For) -> None:
        self.loops.append(node)
        self.visit(node.body)
        self.loops.pop()

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.bindings[node.var] = substitute(node.value, self.bindings)
        self.visit(node.body)

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        before, self.realize = self.realize, node
        for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self.bindings[iv.var] = substitute(value, self.bindings)
        if node.block.init is not None:
            self.visit(node.block.init)
        self.visit(node.block.body)
        self.realize = before

    def visit_BufferStore(self, node: BufferStore) -> None:
        if node.buffer is not self.old:
            return
        indices = [substitute(i, self.bindings) for i in node.indices]
        used = vars_in(tuple(indices))
        places = [i for i, loop in enumerate(self.loops) if loop.loop_var in used]
        loops = self.loops[places[0] : places[-1] + 1] if places else []
        row_major = len(loops) == len(self.old.shape) == len(indices) and all(
            index is loop.loop_var
            and loop.kind == ForKind.SERIAL
            and same_expression(loop.min, const(0, loop.min.dtype))
            and same_expression(loop.extent, dim)
            for index, loop, dim in zip(indices, loops, self.old.shape, strict=False)
        )
        alone = all(outer.body is inner for outer, inner in zip(loops, loops[1:], strict=False))
        self.found.append(_Write(node, loops, self.realize, bool(loops) and row_major and alone))


# -- what to do --------------------------------------------------------------------------------------------


def plan_padding(scope: Block, old: Buffer, new: Buffer, padding: Padding) -> PaddingPlan:
    """Plan of filling the padding that the layout ``new`` has over ``old`` in the program in ``scope``."""
    plan = PaddingPlan()
    writers = _Writers(old)
    writers.visit(scope.body)
    if not writers.found:
        plan.prologue = _prologue(new, padding)
        return plan
    for write in writers.found:
        if write.row_major and write.loops[0] not in plan.replacements:
            own = padding.renewed()
            worker = _Traverse(write, new, own, plan.new_to_old)
            body = worker.visit(write.loops[-1].body)
            if worker.complete:
                for var, dim in reversed(list(zip(own.inverse.initial_indices, new.shape, strict=True))):
                    body = For(var, const(0, var.dtype), dim, ForKind.SERIAL, body)
                plan.replacements[write.loops[0]] = body
    if not plan.replacements:
        last = writers.found[-1]
        plan.insert_after = last.loops[0] if last.loops else last.realize
        plan.epilogue = _nest(new, padding, f"buffer_{new.name}_padding", True)
    return plan


def _prologue(new: Buffer, padding: Padding) -> For:
    return _nest(new, padding, f"buffer_{new.name}_assumptions", False)


def _nest(new: Buffer, padding: Padding, name: str, fill: bool) -> For:
    """Loops over all of the new buffer that fill its padding, or state what it holds."""
    loop_vars = padding.inverse.initial_indices
    iters = [
        IterVar(Range.from_min_extent(const(0, dim.dtype), dim), Var(f"v_{v.name}", v.dtype), IterVar.DataPar)
        for v, dim in zip(loop_vars, new.shape, strict=True)
    ]
    indices = [iv.var for iv in iters]
    region = BufferRegion(new, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices))
    predicate: Any = const(True, "bool")
    if fill:
        predicate = padding.condition
        block = Block(iters, (), (region,), name, BufferStore(new, padding.at(indices), indices))
    else:
        inside = logical_not_(padding.outside(indices))
        holds = BufferLoad(new, indices).equal(padding.at(indices))
        block = Block(iters, (region,), (), name, Evaluate(assume(tir_any(inside, holds))))
    body: Any = BlockRealize(tuple(loop_vars), predicate, block)
    renamed = {v: Var(v.name, v.dtype) for v in loop_vars}
    body = substitute(body, renamed)
    for var, dim in reversed(list(zip(loop_vars, new.shape, strict=True))):
        body = For(renamed[var], const(0, var.dtype), dim, ForKind.SERIAL, body)
    return body


class _Traverse(Mutator):
    """Turns the body of a row-major traversal of the old buffer into that of one of the new buffer."""

    def __init__(self, write: _Write, new: Buffer, padding: Padding, new_to_old: dict[Any, Any]) -> None:
        self.write, self.new, self.padding, self.new_to_old = write, new, padding, new_to_old
        self.complete = True
        inverse = padding.inverse
        self.values: dict[Any, Any] = {
            loop.loop_var: expr for loop, expr in zip(write.loops, inverse.final_indices, strict=True)
        }
        self.indices: list[Any] = list(inverse.initial_indices)
        self.iters: list[IterVar] = []
        own = write.realize
        self.block = self._redefine(own) if own is not None and own.block.iter_vars else None
        self.condition = padding.outside(self.indices)

    def _redefine(self, realize: BlockRealize) -> tuple[list[IterVar], list[Any]] | None:
        """New variables of the block in the place of those that run over the old buffer."""
        inverse = self.padding.inverse
        loop_vars = [loop.loop_var for loop in self.write.loops]
        places = [i for i, v in enumerate(realize.iter_values) if any(v is x for x in loop_vars)]
        if len(places) != len(loop_vars) or places != list(range(places[0], places[0] + len(places))):
            self.complete = False
            return None
        fresh = [
            IterVar(Range.from_min_extent(const(0, d.dtype), d), Var(f"v_{v.name}", v.dtype), IterVar.DataPar)
            for v, d in zip(inverse.initial_indices, self.new.shape, strict=True)
        ]
        self.indices = [iv.var for iv in fresh]
        renamed = dict(zip(inverse.initial_indices, self.indices, strict=True))
        old_of: dict[PrimExpr, PrimExpr] = {
            loop: expr for loop, expr in zip(loop_vars, inverse.final_indices, strict=True)
        }
        for place in places:
            loop_var = realize.iter_values[place]
            self.values[realize.block.iter_vars[place].var] = substitute(old_of[loop_var], renamed)
        first, last = places[0], places[-1] + 1
        iters = [*realize.block.iter_vars[:first], *fresh, *realize.block.iter_vars[last:]]
        values = [*realize.iter_values[:first], *inverse.initial_indices, *realize.iter_values[last:]]
        return iters, values

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.values.get(node, node)

    def visit_IterVar(self, node: IterVar) -> IterVar:
        return node

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        mine = self.write.store
        same = node.buffer is mine.buffer and same_expression(tuple(node.indices), tuple(mine.indices))
        if not same:
            self.complete = False
            return node
        value = if_then_else(self.condition, self.padding.at(self.indices), self.visit(node.value))
        return BufferStore(self.new, value, self.indices)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if node is not self.write.realize and node.block.iter_vars:
            self.complete = False  # its variables are in terms of loops that go away
        if node is not self.write.realize or self.block is None:
            return self._enter(node, node.block.iter_vars, self.visit(node.iter_values))
        iters, values = self.block
        return self._enter(node, iters, self.visit(tuple(values)))

    def _enter(self, node: BlockRealize, iters: Sequence[IterVar], values: Sequence[Any]) -> BlockRealize:
        block = node.block
        made = block.with_fields(
            iter_vars=tuple(iters),
            reads=self.visit(block.reads),
            writes=self.visit(block.writes),
            body=self.visit(block.body),
            init=None if block.init is None else self.visit(block.init),
        )
        self.new_to_old[made] = block
        return BlockRealize(tuple(values), self.visit(node.predicate), made)


def following(body: Stmt, extra: Stmt) -> SeqStmt:
    """``body`` and then ``extra``."""
    parts = stmt_list(body)
    return SeqStmt((*parts, extra))
