"""Checks and conversions of the arguments of schedule methods to operands of instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...buffer import Buffer
from ...expr import IntImm
from ...index_map import IndexMap
from ..core import ScheduleCore
from ..rv import BlockRV, LoopRV

__all__ = ["Arguments", "BlockArg", "BufferArg", "as_int", "as_loop", "as_str"]

BlockArg = BlockRV | str
BufferArg = tuple[str, int] | int | str | Buffer


def as_loop(value: object) -> LoopRV:
    """A loop variable. Raises TypeError."""
    if not isinstance(value, LoopRV):
        raise TypeError(f"expected a LoopRV, got {type(value).__name__}")
    return value


def as_int(value: object, name: str) -> int:
    """A Python integer. Raises TypeError."""
    if isinstance(value, IntImm):
        return int(value.value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an integer, got {type(value).__name__}")
    return value


def as_str(value: str, name: str) -> str:
    """A string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a string, got {type(value).__name__}")
    return value


class Arguments(ScheduleCore):
    """A schedule that can tell blocks, buffers and index maps from what callers write for them."""

    def _block(self, value: object) -> BlockRV:
        if isinstance(value, str):
            return self.get_block(value)
        if not isinstance(value, BlockRV):
            raise TypeError(f"expected a BlockRV or the name of a block, got {type(value).__name__}")
        return value

    def _block_or_loop(self, value: object) -> BlockRV | LoopRV:
        return value if isinstance(value, LoopRV) else self._block(value)

    def _buffer(self, block: BlockRV, buffer: BufferArg, required: str | None = None) -> tuple[str, int, Buffer]:
        """("read" or "write", index, buffer) for any way of naming a buffer of a block."""
        node = self.get(block)
        regions = [("read", i, r.buffer) for i, r in enumerate(node.reads)]
        regions += [("write", i, r.buffer) for i, r in enumerate(node.writes)]
        if isinstance(buffer, int):
            if required is None:
                raise TypeError("an index alone does not say whether the buffer is read or written")
            buffer = (required, buffer)
        match buffer:
            case tuple() | list():
                kind, index = buffer
                assert kind in ("read", "write"), f'the buffer is given as ("read" or "write", index), got {kind!r}'
                same = [r for r in regions if r[0] == kind]
                assert 0 <= index < len(same), (
                    f"Invalid buffer_index {index}. Block {node.name_hint} has only {len(same)} {kind} buffers."
                )
                found = same[index]
            case str():
                named = [r for r in regions if r[2].name == buffer]
                assert named, f"Could not find buffer '{buffer}' in block '{node.name_hint}'"
                assert all(r[2] is named[0][2] for r in named), (
                    f"Multiple buffers named '{buffer}' in block '{node.name_hint}'"
                )
                found = named[-1] if required is None else next((r for r in named if r[0] == required), named[-1])
            case Buffer():
                named = [r for r in regions if r[2] is buffer]
                assert named, f"Could not find buffer '{buffer.name}' in block '{node.name_hint}'"
                found = named[0] if required is None else next((r for r in named if r[0] == required), named[0])
            case _:
                raise TypeError(f"Invalid type for argument 'buffer': {type(buffer)}")
        assert required is None or found[0] == required, (
            f"Expected buffer to be {required} buffer, but {found[2].name} was a {found[0]} buffer in the specified block"
        )
        return found

    def _index_dtype(self, block: BlockRV) -> str:
        node = self.get(block)
        for iv in node.iter_vars:
            return str(iv.var.dtype)
        for region in (*node.reads, *node.writes):
            for dim in region.region:
                return str(dim.min.dtype)
        return "int32"

    def _iter_map(self, block: BlockRV, index_map: IndexMap | Callable[..., Any]) -> IndexMap:
        if isinstance(index_map, IndexMap):
            return index_map
        return IndexMap.from_func(index_map, ndim=len(self.get(block).iter_vars), index_dtype=self._index_dtype(block))

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block called ``name``; see the queries."""
        raise NotImplementedError
