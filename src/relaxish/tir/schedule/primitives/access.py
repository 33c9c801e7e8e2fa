"""Changing what a block declares to access: unsafe_hide_buffer_access, annotate_buffer_access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....arith import Analyzer
from ....ir.expr import Range
from ....ir.prim import const
from ...expr import Var
from ...functor import substitute
from ...index_map import IndexMap
from ...stmt import Block, BufferRegion
from .. import checks
from ..errors import PrimitiveError
from ..instruction import Decision, plain, Output, Step, operand
from ..rv import BlockRV

if TYPE_CHECKING:
    from ..protocol import Schedule

__all__ = ["range_map"]


class UnsafeHideBufferAccess(Step):
    """Regions taken out of a block's signature."""

    block: BlockRV = operand()
    buf_type: str = operand()
    buf_index_array: Sequence[int] = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref = sch.sref(self.block)
        block = checks.check_block(sref)
        field = {"read": "reads", "write": "writes"}.get(self.buf_type)
        if field is None:
            raise PrimitiveError(f'The buffer type must be "read" or "write", got "{self.buf_type}".', [sref])
        regions = getattr(block, field)
        hidden = {int(plain(i)) for i in self.buf_index_array}
        if any(not 0 <= i < len(regions) for i in hidden):
            raise PrimitiveError(
                f"The block {{0}} has {len(regions)} {self.buf_type} regions; an index is out of range.", [sref]
            )
        new = block.with_fields(**{field: tuple(r for i, r in enumerate(regions) if i not in hidden)})
        sch.state.replace(sref, new, {block: new})
        return []


def range_map(block: Block, function: Callable[..., Any]) -> IndexMap:
    """An index map from block variables to the begin and end of each dimension, alternating."""
    axes = [Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars]
    spec = function(*axes)
    flat: list[Any] = []
    for item in spec:
        if isinstance(item, (tuple, list)):
            if len(item) != 2:
                raise ValueError("Tuple must have exactly 2 elements to represent a range: (begin, end)")
            flat += [item[0], item[1]]
        else:
            flat += [item, item + 1]
    return IndexMap(axes, flat)


class AnnotateBufferAccess(Step):
    """A region of a block stated by hand."""

    takes_pieces = True
    # The ranges given are of the block's variables as its user sees them, whose domains begin where their piece does.

    block: BlockRV = operand()
    buffer_index: int = operand()
    buf_type: int = operand()
    gen_new_ranges: IndexMap = operand()

    def run(self, sch: Schedule) -> Sequence[Output]:
        sref, index, write, index_map = (
            sch.sref(self.block),
            self.buffer_index,
            bool(self.buf_type),
            self.gen_new_ranges,
        )
        block = checks.check_block(sref)
        buffer = checks.nth_buffer(sref, index, write)
        values = dict(zip(index_map.initial_indices, [iv.var for iv in block.iter_vars], strict=True))
        ends = [substitute(e, values) for e in index_map.final_indices]
        if len(ends) != 2 * len(buffer.shape):
            raise PrimitiveError(
                f"{len(ends) // 2} ranges are given for the {len(buffer.shape)}-d buffer of block {{0}}.", [sref]
            )
        analyzer = Analyzer()
        for iv in block.iter_vars:
            analyzer.bind(iv.var, iv.dom)
        region = tuple(
            Range.from_min_extent(low, analyzer.simplify(high - low))
            for low, high in zip(ends[::2], ends[1::2], strict=True)
        )
        field = "writes" if write else "reads"
        regions = list(getattr(block, field))
        regions[index] = BufferRegion(buffer, region)
        key = "explicit_write_region" if write else "explicit_read_region"
        # The buffer index is kept with the block, so that passes which recompute regions leave this one alone.
        listed = [int(x) for x in plain(block.annotations.get(key, ()))] if key in block.annotations else []
        if index not in listed:
            listed.append(index)
        notes = {**block.annotations, key: [const(i, "int32") for i in listed]}
        new = block.with_fields(**{field: tuple(regions)}, annotations=notes)
        sch.state.replace(sref, new, {block: new})
        return []

    @classmethod
    def as_python(cls, inputs: Sequence[str], attrs: Sequence[Any], decision: Decision, outputs: Sequence[str]) -> str:
        kind = '"write"' if inputs[2] == "1" else '"read"'
        body = inputs[3]
        head, _, tail = body.partition("(")
        items = _split_items(tail[:-2])
        pairs = ", ".join(f"({a}, {b})" for a, b in zip(items[::2], items[1::2], strict=True))
        return (
            f"sch.annotate_buffer_access(block={inputs[0]}, buffer_index={inputs[1]}, buf_type={kind}, "
            f"gen_new_ranges={head}[{pairs}])"
        )


def _split_items(text: str) -> list[str]:
    """The comma-separated items of a list's text, parentheses respected."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*out, rest] if rest else out
