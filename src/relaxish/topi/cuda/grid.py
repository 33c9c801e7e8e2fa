"""Shared parts of GPU programs written by hand: threads, barriers, and lines of a tensor along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import te
from ...ir.op import Op
from ...ir.prim import Call, StringImm
from ...target import Target
from ...tir import ceil, const, floordiv, floormod, IntImm, log2, PrimExpr
from ...tir.ir_builder import IRBuilder

__all__ = ["Lines", "barrier", "ceil_log2", "launch", "max_threads"]


def max_threads(wanted: int) -> int:
    """As many threads a block as wanted, or what the target has. Raises ValueError outside of a target's scope."""
    return min(wanted, int(Target.current(allow_none=False).max_num_threads))


def barrier(ib: IRBuilder) -> None:
    """Wait for the block, and let it see what was written to shared memory."""
    ib.emit(Call("int32", Op.get("tir.tvm_storage_sync"), (StringImm("shared"),)))


@contextmanager
def launch(ib: IRBuilder, blocks: PrimExpr, threads: int) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """The body of a kernel of its own; gives the block's and the thread's number, as int64."""
    with ib.new_scope():
        tx, bx = te.thread_axis("threadIdx.x"), te.thread_axis("blockIdx.x")
        ib.scope_attr(bx, "thread_extent", blocks.astype("int32"))
        ib.scope_attr(tx, "thread_extent", const(threads, "int32"))
        yield ib.let("block", bx.var.astype("int64")), ib.let("thread", tx.var.astype("int64"))


def ceil_log2(n: PrimExpr) -> PrimExpr:
    """The number of times 1 is to be doubled to reach ``n``, as int64."""
    if isinstance(n, IntImm):
        return const(max(int(n) - 1, 0).bit_length(), "int64")
    return ceil(log2(n.astype("float64"))).astype("int64")


class Lines:
    """The lines of a tensor along one axis, numbered in row-major order of the other axes. Indices are int64."""

    def __init__(self, shape: Sequence[Any], axis: int) -> None:
        self.axis = axis
        self.others = [d.astype("int64") for k, d in enumerate(shape) if k != axis]
        self.length = shape[axis].astype("int64")
        self.count: Any = const(1, "int64")
        for dim in self.others:
            self.count = self.count * dim

    def at(self, line: PrimExpr, k: PrimExpr) -> list[PrimExpr]:
        """The index of element ``k`` of a line."""
        outer: list[PrimExpr] = []
        for dim in reversed(self.others[1:]):
            outer.insert(0, floormod(line, dim))
            line = floordiv(line, dim)
        if self.others:
            outer.insert(0, line)
        return [*outer[: self.axis], k, *outer[self.axis :]]
