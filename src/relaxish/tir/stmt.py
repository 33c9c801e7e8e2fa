"""Statements of loop programs, and the blocks that schedules work on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

from ..ir.errors import CheckTypeError, CheckValueError
from ..ir import dtype as dt
from ..ir.expr import PrimExpr, Range, as_expr, as_exprs, optional_expr
from ..ir.node import Node, field
from ..ir.prim import IntImm, IterVar, StringImm, Var, const
from ..ir.source import Span
from .buffer import INDEXING, Buffer
from .expr import BufferLoad, _index_lanes

__all__ = [
    "Allocate", "AllocateConst", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "BufferRealize", "BufferRegion",
    "BufferStore", "DeclBuffer", "Evaluate", "For", "ForKind", "IfThenElse", "LetStmt", "MatchBufferRegion",
    "Prefetch", "ProducerRealize", "ProducerStore", "SeqStmt", "Stmt", "While", "stmt_list", "stmt_seq",
]  # fmt: skip


class Stmt(Node):
    """Base of statements."""

    span: Span | None = field(role="ignore", default=None)


class ForKind(IntEnum):
    """How a loop runs."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class LetStmt(Stmt):
    """``var = value`` for the duration of ``body``."""

    var: Var = field(role="bind")
    value: PrimExpr = field(conv=as_expr)
    body: Stmt
    _equal_order = ("value", "var", "body")

    def __post_init__(self) -> None:
        if self.var.dtype != self.value.dtype and not dt.is_handle(self.var.dtype):
            raise CheckTypeError(f"LetStmt binds a {self.var.dtype} variable to a {self.value.dtype} value")


class AttrStmt(Stmt):
    """An attribute ``attr_key = value`` of ``node`` that holds inside ``body``."""

    node: Any
    attr_key: str = field(role="attr")
    value: PrimExpr = field(conv=as_expr)
    body: Stmt
    _equal_order = ("node", "attr_key", "value", "body")


class AssertStmt(Stmt):
    """Stop with ``message`` unless ``condition`` holds before ``body``."""

    condition: PrimExpr = field(conv=as_expr)
    message: PrimExpr = field(conv=lambda m: StringImm(m) if isinstance(m, str) else as_expr(m))
    body: Stmt


def _annotations(value: Any) -> dict[str, Any]:
    return {k: _annotation(v) for k, v in value.items()} if value else {}


def _annotation(value: Any) -> Any:
    if isinstance(value, bool):
        return const(value, "bool")
    if isinstance(value, (int, float)):
        return as_expr(value)
    if isinstance(value, (list, tuple)):
        return tuple(_annotation(v) for v in value)
    if isinstance(value, dict):
        return {k: _annotation(v) for k, v in value.items()}
    return value


class For(Stmt):
    """A loop of ``extent`` iterations from ``min``."""

    loop_var: Var = field(role="bind")
    min: PrimExpr = field(conv=as_expr)
    extent: PrimExpr = field(conv=as_expr)
    kind: ForKind = field(role="attr", conv=ForKind)
    body: Stmt
    thread_binding: IterVar | None = field(default=None)
    annotations: dict[str, Any] = field(default=None, conv=_annotations)
    _equal_order = ("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations")

    def __post_init__(self) -> None:
        dtype = self.loop_var.dtype
        for name in ("min", "extent"):
            value = getattr(self, name)
            if value.dtype != dtype:
                if not isinstance(value, IntImm):
                    # The narrower side widens; a loop variable cannot, so an int32 variable rejects int64 bounds.
                    if dt.bits(dtype) < dt.bits(value.dtype):
                        raise CheckTypeError(f"loop variable {self.loop_var.name} is {dtype}, its {name} is {value.dtype}")
                    object.__setattr__(self, name, value.astype(dtype))
                else:
                    object.__setattr__(self, name, IntImm(dtype, value.value))


class While(Stmt):
    """Repeat ``body`` while ``condition`` holds."""

    condition: PrimExpr = field(conv=as_expr)
    body: Stmt


class BufferStore(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    value: PrimExpr = field(conv=as_expr)
    indices: tuple[PrimExpr, ...] = field(conv=as_exprs)
    predicate: PrimExpr | None = field(default=None, conv=optional_expr)
    _equal_order = ("buffer", "value", "indices", "predicate")

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise CheckValueError(
                f"Buffer {self.buffer.name} is {len(self.buffer.shape)}-dimensional, "
                f"cannot be indexed with the {len(self.indices)}-dimensional indices provided."
            )
        expected = _index_lanes(self.indices, self.buffer.dtype)
        if self.value.dtype != expected:
            same_bits = dt.is_bool(expected) and dt.is_bool(self.value.dtype)
            if not same_bits:
                raise CheckTypeError(
                    f"dtype mismatch on BufferStore: buffer {self.buffer.name} takes {expected} at these indices, "
                    f"the value has {self.value.dtype}"
                )


class BufferRealize(Stmt):
    """Memory for ``bounds`` of a buffer during ``body``."""

    buffer: Buffer
    bounds: tuple[Range, ...] = field(conv=tuple)
    condition: PrimExpr = field(conv=as_expr)
    body: Stmt


class ProducerStore(Stmt):
    """Store to a tensor that has no buffer yet."""

    producer: Any = field(role="attr")
    value: PrimExpr = field(conv=as_expr)
    indices: tuple[PrimExpr, ...] = field(conv=as_exprs)


class ProducerRealize(Stmt):
    """Bounds within which a tensor is computed."""

    producer: Any = field(role="attr")
    bounds: tuple[Range, ...] = field(conv=tuple)
    condition: PrimExpr = field(conv=as_expr)
    body: Stmt
    storage_scope: str = field(role="attr", default="")


class Allocate(Stmt):
    """Memory behind the pointer ``buffer_var`` during ``body``."""

    buffer_var: Var = field(role="bind")
    dtype: str = field(role="attr")
    extents: tuple[PrimExpr, ...] = field(conv=as_exprs)
    condition: PrimExpr = field(conv=as_expr)
    body: Stmt
    annotations: dict[str, Any] = field(default=None, conv=_annotations)


class AllocateConst(Stmt):
    """Constant data behind the pointer ``buffer_var`` during ``body``."""

    buffer_var: Var = field(role="bind")
    dtype: str = field(role="attr")
    extents: tuple[PrimExpr, ...] = field(conv=as_exprs)
    data_or_idx: Any = field(role="attr")
    body: Stmt
    annotations: dict[str, Any] = field(default=None, conv=_annotations)

    @property
    def data(self) -> Any:
        """The array."""
        return self.data_or_idx


class DeclBuffer(Stmt):
    """Name a view of existing memory during ``body``."""

    buffer: Buffer = field(role="bind")
    body: Stmt


def _flatten(stmts: Any) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in stmts:
        out.extend(stmt.seq) if isinstance(stmt, SeqStmt) else out.append(stmt)
    return tuple(out)


class SeqStmt(Stmt):
    """Statements one after another; nested sequences are flattened."""

    seq: tuple[Stmt, ...] = field(conv=_flatten)

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[Stmt]:
        return iter(self.seq)


class IfThenElse(Stmt):
    """A statement under a condition, with an optional alternative."""

    condition: PrimExpr = field(conv=as_expr)
    then_case: Stmt
    else_case: Stmt | None = field(default=None)


class Evaluate(Stmt):
    """Evaluate an expression for its effect."""

    value: PrimExpr = field(conv=as_expr)


class Prefetch(Stmt):
    """Hint that a region is about to be read."""

    buffer: Buffer
    bounds: tuple[Range, ...] = field(conv=tuple)


def _region(items: Any) -> tuple[Range, ...]:
    return tuple(
        item if isinstance(item, Range) else Range.from_min_extent(as_expr(item), const(1, as_expr(item).dtype))
        for item in items
    )


class BufferRegion(Node):
    """A box of a buffer's elements."""

    buffer: Buffer
    region: tuple[Range, ...] = field(conv=_region)

    def __prim_expr__(self) -> PrimExpr:
        """A region of single elements or one vector, read as a value."""
        from ..ir.prim import Ramp

        indices: list[PrimExpr] = []
        for item in self.region:
            if isinstance(item.extent, IntImm) and item.extent.value == 1:
                indices.append(item.min)
            else:
                indices.append(Ramp(item.min, const(1, item.min.dtype), item.extent))
        return BufferLoad(self.buffer, indices)


class MatchBufferRegion(Node):
    """A buffer declared as a view of a region of another."""

    buffer: Buffer = field(role="bind")
    source: BufferRegion
    _equal_order = ("buffer", "source")


class Block(Stmt):
    """A unit of computation: iteration variables, the regions it reads and writes, and a body.

    ``init`` runs at the first iteration of the reduction.  Schedules move and transform blocks as a whole.
    """

    iter_vars: tuple[IterVar, ...] = field(role="bind", conv=tuple)
    reads: tuple[BufferRegion, ...] = field(conv=tuple)
    writes: tuple[BufferRegion, ...] = field(conv=tuple)
    name_hint: str = field(role="ignore")
    body: Stmt
    init: Stmt | None = field(default=None)
    alloc_buffers: tuple[Buffer, ...] = field(role="bind", default=(), conv=lambda v: tuple(v or ()))
    match_buffers: tuple[MatchBufferRegion, ...] = field(default=(), conv=lambda v: tuple(v or ()))
    annotations: dict[str, Any] = field(default=None, conv=_annotations)
    _equal_order = (
        "iter_vars", "alloc_buffers", "match_buffers", "reads", "writes", "body", "init", "annotations",
    )  # fmt: skip


class BlockRealize(Stmt):
    """A block run with given values of its iteration variables, where ``predicate`` holds."""

    iter_values: tuple[PrimExpr, ...] = field(conv=as_exprs)
    predicate: PrimExpr = field(conv=as_expr)
    block: Block

    def __post_init__(self) -> None:
        if isinstance(self.predicate, IntImm) and self.predicate.dtype != "bool":
            object.__setattr__(self, "predicate", const(bool(self.predicate.value), "bool"))
        if len(self.iter_values) != len(self.block.iter_vars):
            raise CheckValueError(
                f"block {self.block.name_hint} has {len(self.block.iter_vars)} iteration variables "
                f"but is given {len(self.iter_values)} values"
            )


def stmt_seq(*args: Any) -> Stmt:
    """A sequence of statements; expressions are evaluated, one statement stands for itself."""
    items = [a if isinstance(a, Stmt) else Evaluate(a) for a in args]
    return items[0] if len(items) == 1 else SeqStmt(items)


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements of a sequence, or the one statement."""
    return list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]


def _store(buffer: Buffer, value: PrimExpr, indices: Sequence[PrimExpr], predicate: Any = None) -> BufferStore:
    return BufferStore(buffer, value, indices, predicate)


INDEXING["store"] = _store
INDEXING["region"] = BufferRegion
