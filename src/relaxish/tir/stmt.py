"""Statements of loop programs, and the blocks that schedules work on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from ..ir.errors import CheckTypeError, CheckValueError
from ..ir import dtype as dt
from ..ir.expr import ExprLike, PrimExpr, Range, ShapeLike, as_expr, as_exprs, optional_expr
from ..ir.node import Converted, Node, field
from ..ir.prim import IntImm, IterVar, Let, StringImm, Var, const, is_one, is_zero
from ..ir.source import Span
from .buffer import INDEXING, Buffer
from .expr import BufferLoad, _index_lanes, check_predicate

__all__ = [
    "AccessT", "Allocate", "AllocateConst", "AssertStmt", "AttrStmt", "Block", "BlockRealize", "BufferRealize", "BufferRegion",
    "BufferStore", "DeclBuffer", "Evaluate", "For", "ForKind", "IfThenElse", "LetStmt", "LetT", "MatchBufferRegion",
    "Prefetch", "ProducerRealize", "ProducerStore", "SeqStmt", "Stmt", "While", "stmt_list", "stmt_seq",
]  # fmt: skip


class Stmt(Node, checked=True):
    """Base of statements."""

    span: Span | None = field(role="ignore", default=None, kw_only=True)

    if TYPE_CHECKING:

        def _rewritten(self) -> Stmt: ...


class ForKind(IntEnum):
    """Execution of a loop's iterations: in order, in parallel, as vector lanes, unrolled, or bound to threads."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class LetStmt(Stmt):
    """``var = value`` for the duration of ``body``."""

    var: Var = field(role="bind")
    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt
    _equal_order = ("value", "var", "body")

    def __post_init__(self) -> None:
        if self.var.dtype != self.value.dtype:
            raise CheckTypeError(f"LetStmt binds a {self.var.dtype} variable to a {self.value.dtype} value")


class AttrStmt(Stmt):
    """An attribute ``attr_key = value`` of ``node`` that holds inside ``body``."""

    node: Any
    attr_key: str = field(role="attr")
    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt
    _equal_order = ("node", "attr_key", "value", "body")


class AssertStmt(Stmt):
    """Stop with ``message`` unless ``condition`` holds before ``body``."""

    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    message: Converted[PrimExpr, ExprLike] = field(conv=lambda m: StringImm(m) if isinstance(m, str) else as_expr(m))
    body: Stmt

    def __post_init__(self) -> None:
        if not dt.is_bool(self.condition.dtype):
            raise CheckTypeError(f"AssertStmt needs a bool condition, got {self.condition.dtype}")
        if self.message.dtype != "int32" and not isinstance(self.message, StringImm):
            raise CheckTypeError(f"AssertStmt's message is a text or an int32, got {self.message.dtype}")


def _annotations(value: Mapping[str, Any] | None) -> dict[str, Any]:
    return {k: _annotation(v) for k, v in value.items()} if value else {}


def _annotation(value: Any) -> object:
    match value:
        case bool():
            return const(value, "bool")
        case int() | float():
            return as_expr(value)
        case list() | tuple():
            return tuple(_annotation(v) for v in value)
        case dict():
            return {k: _annotation(v) for k, v in value.items()}
    return value


class For(Stmt):
    """A loop of ``extent`` iterations from ``min``."""

    loop_var: Var = field(role="bind")
    min: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    extent: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    kind: Converted[ForKind, int] = field(role="attr", conv=ForKind)
    body: Stmt
    thread_binding: IterVar | None = field(default=None)
    annotations: Converted[dict[str, Any], Mapping[str, Any] | None] = field(default=None, conv=_annotations)
    _equal_order = ("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations")

    def __post_init__(self) -> None:
        dtype = self.loop_var.dtype
        for name in ("loop_var", "min", "extent"):
            value = getattr(self, name)
            if value.dtype == dtype and dtype in ("int32", "int64"):
                continue
            if not dt.is_integral(value.dtype) or not dt.is_scalar(value.dtype):
                raise CheckTypeError(
                    f"TIR For nodes require a scalar integer as the {name}, but received {value} with dtype {value.dtype}"
                )
            if dt.bits(value.dtype) > dt.bits(dtype):
                raise CheckTypeError(f"Loop variable's dtype ({dtype}) is narrower than its {name} ({value.dtype})")
            if isinstance(value, IntImm) and dt.bits(value.dtype) < dt.bits(dtype):
                object.__setattr__(self, name, IntImm(dtype, value.value))
            elif value.dtype != dtype:
                raise CheckTypeError(f"loop variable {self.loop_var.name} is {dtype}, its {name} is {value.dtype}")


class While(Stmt):
    """Repeat ``body`` while ``condition`` holds."""

    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt

    def __post_init__(self) -> None:
        if not dt.is_scalar(self.condition.dtype):
            raise CheckTypeError(f"While needs a scalar condition, got {self.condition.dtype}")
        if isinstance(self.condition, IntImm):
            raise CheckValueError("The condition should not be trivial.")


class BufferStore(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    indices: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    predicate: Converted[PrimExpr | None, ExprLike | None] = field(default=None, conv=optional_expr)
    _equal_order = ("buffer", "value", "indices", "predicate")

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise CheckValueError(
                f"Buffer {self.buffer.name} is {len(self.buffer.shape)}-dimensional, "
                f"cannot be indexed with the {len(self.indices)}-dimensional indices provided."
            )
        expected = _index_lanes(self.indices, self.buffer.dtype)
        check_predicate(self.predicate, expected, "store")
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
    bounds: Converted[tuple[Range, ...], Iterable[Range]] = field(conv=tuple)
    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt


class ProducerStore(Stmt):
    """Store to a tensor that has no buffer yet."""

    producer: Any = field(role="attr")
    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    indices: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)


class ProducerRealize(Stmt):
    """Bounds within which a tensor is computed."""

    producer: Any = field(role="attr")
    bounds: Converted[tuple[Range, ...], Iterable[Range]] = field(conv=tuple)
    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt
    storage_scope: str = field(role="attr", default="")


class Allocate(Stmt):
    """Memory behind the pointer ``buffer_var`` during ``body``."""

    buffer_var: Var = field(role="bind")
    dtype: str = field(role="attr")
    extents: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Stmt
    annotations: Converted[dict[str, Any], Mapping[str, Any] | None] = field(default=None, conv=_annotations)

    def __post_init__(self) -> None:
        kind = self.buffer_var.type_annotation
        element = getattr(getattr(kind, "element_type", None), "dtype", None)
        # Truth values are kept as bytes, whichever of the two says so.
        bytes_ = (dt.is_bool(self.dtype) and element == "int8") or (element == "bool" and self.dtype == "int8")
        if element != self.dtype and not bytes_:
            raise CheckTypeError(
                f"The allocated data type ({self.dtype}) does not match the type annotation of the buffer "
                f"{self.buffer_var.name} ({kind}). The data type should be an element of the pointer type."
            )
        for extent in self.extents:
            if not dt.is_scalar(extent.dtype):
                raise CheckTypeError(f"extents of an allocation are scalars, got {extent.dtype}")
        if not dt.is_bool(self.condition.dtype):
            raise CheckTypeError(f"the condition of an allocation is bool, got {self.condition.dtype}")


class AllocateConst(Stmt):
    """Constant data behind the pointer ``buffer_var`` during ``body``."""

    buffer_var: Var = field(role="bind")
    dtype: str = field(role="attr")
    extents: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    data_or_idx: Any = field(role="attr")
    body: Stmt
    annotations: Converted[dict[str, Any], Mapping[str, Any] | None] = field(default=None, conv=_annotations)

    @property
    def data(self) -> Any:
        """The array."""
        return self.data_or_idx


class DeclBuffer(Stmt):
    """Name a view of existing memory during ``body``."""

    buffer: Buffer = field(role="bind")
    body: Stmt


def _is_no_op(stmt: Stmt) -> bool:
    return isinstance(stmt, Evaluate) and is_zero(stmt.value)


def _parts(stmts: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements as they are, unless one is a sequence: then its parts, without no-ops."""
    items = tuple(stmts)
    if not any(isinstance(s, SeqStmt) for s in items):
        return items
    return tuple([part for s in items for part in stmt_list(s) if not _is_no_op(part)])


class SeqStmt(Stmt):
    """Two or more statements one after another; nested sequences are flattened, no-ops among them dropped."""

    seq: Converted[tuple[Stmt, ...], Iterable[Stmt]] = field(conv=_parts)

    @staticmethod
    def flatten(*stmts: Any) -> Stmt:
        """The statements as one: sequences opened, no-ops and None dropped; ``Evaluate(0)`` if nothing is left.

        >>> from relaxish import tir
        >>> tir.SeqStmt.flatten(tir.Evaluate(1), [None, tir.Evaluate(0)])
        T.evaluate(1)
        """
        kept: list[Stmt] = []
        for item in stmts:
            if isinstance(item, (list, tuple)):
                item = SeqStmt.flatten(*item)
            if item is not None:
                kept += [part for part in stmt_list(item) if not _is_no_op(part)]
        if not kept:
            return Evaluate(0)
        return kept[0] if len(kept) == 1 else SeqStmt(kept)

    def with_fields(self, **changes: Any) -> Any:
        return SeqStmt.flatten(*changes["seq"]) if "seq" in changes else super().with_fields(**changes)

    def __post_init__(self) -> None:
        if not self.seq:
            raise CheckValueError("An empty SeqStmt is prohibited; a no-op is Evaluate(0)")
        if len(self.seq) == 1:
            raise CheckValueError(f"A SeqStmt of length 1 is prohibited; use the statement itself:\n{self.seq[0]}")

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[Stmt]:
        return iter(self.seq)


class IfThenElse(Stmt):
    """A statement under a condition, with an optional alternative."""

    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    then_case: Stmt
    else_case: Stmt | None = field(default=None)


class Evaluate(Stmt):
    """Evaluate an expression for its effect."""

    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)


class Prefetch(Stmt):
    """Hint that a region is about to be read."""

    buffer: Buffer
    bounds: Converted[tuple[Range, ...], Iterable[Range]] = field(conv=tuple)


def _region(items: Iterable[Range | ExprLike]) -> tuple[Range, ...]:
    return tuple(
        item if isinstance(item, Range) else Range.from_min_extent(as_expr(item), const(1, as_expr(item).dtype))
        for item in items
    )


class BufferRegion(Node, checked=True):
    """A box of a buffer's elements."""

    buffer: Buffer
    region: Converted[tuple[Range, ...], Iterable[Range | ExprLike]] = field(conv=_region)

    def __post_init__(self) -> None:
        if len(self.region) != len(self.buffer.shape):
            raise CheckValueError(
                f"The dimension between {self.buffer.name} and its region mismatched: the buffer has "
                f"{len(self.buffer.shape)} dimensions, the region {len(self.region)}"
            )

    def __prim_expr__(self) -> PrimExpr:
        """A region of single elements or one vector, read as a value."""
        from ..ir.prim import Ramp

        indices: list[PrimExpr] = []
        for item in self.region:
            if is_one(item.extent):
                indices.append(item.min)
            else:
                indices.append(Ramp(item.min, const(1, item.min.dtype), item.extent))
        return BufferLoad(self.buffer, indices)


class MatchBufferRegion(Node, checked=True):
    """A buffer declared as a view of a region of another."""

    buffer: Buffer = field(role="bind")
    source: BufferRegion
    _equal_order = ("buffer", "source")

    def __post_init__(self) -> None:
        view, viewed = self.buffer, self.source.buffer
        if view.scope() != viewed.scope():
            raise CheckValueError(f"MatchBuffer {view.name} scope mismatch: {view.scope()} vs. {viewed.scope()}")
        if view.dtype != viewed.dtype:
            raise CheckValueError(f"MatchBuffer {view.name} data type mismatch: {view.dtype} vs. {viewed.dtype}")
        if viewed.data_alignment % view.data_alignment:
            raise CheckValueError(
                "Trying to match buffer to another one with lower alignment requirement: "
                f"required_alignment={view.data_alignment}, provided_alignment={viewed.data_alignment}"
            )
        if view.buffer_type != 1 or viewed.buffer_type != 1:
            raise CheckValueError("AutoBroadcast is not allowed in MatchBuffer")
        self._check_shape()

    def _check_shape(self) -> None:
        from ..arith import Analyzer

        shape, extents = self.buffer.shape, [r.extent for r in self.source.region]
        leading = len(extents) - len(shape)
        if leading < 0:
            raise CheckValueError(
                "Dimension of source Region expected to be larger or equal than target buffer shape, "
                f"but got {len(extents)} vs. {len(shape)}"
            )
        analyzer = Analyzer()
        for extent in extents[:leading]:
            if not analyzer.can_prove_equal(extent, const(1, extent.dtype)):
                raise CheckValueError(f"The higher dimension should be 1, but got {extent}.")
        for extent, dim in zip(extents[leading:], shape, strict=True):
            if not isinstance(dim, Var) and extent is not dim and not analyzer.can_prove_equal(extent, dim):
                raise CheckValueError(f"The data range mismatched in MatchBuffer: {extent} vs. {dim}")


class Block(Stmt):
    """A unit of computation: iteration variables, the regions it reads and writes, and a body.

    ``init`` runs at the first iteration of the reduction.  Schedules move and transform blocks as a whole.
    """

    iter_vars: Converted[tuple[IterVar, ...], Iterable[IterVar]] = field(role="bind", conv=tuple)
    reads: Converted[tuple[BufferRegion, ...], Iterable[BufferRegion]] = field(conv=tuple)
    writes: Converted[tuple[BufferRegion, ...], Iterable[BufferRegion]] = field(conv=tuple)
    name_hint: str = field(role="ignore")
    body: Stmt
    init: Stmt | None = field(default=None)
    alloc_buffers: Converted[tuple[Buffer, ...], Iterable[Buffer] | None] = field(
        role="bind", default=(), conv=lambda v: tuple(v or ())
    )
    match_buffers: Converted[tuple[MatchBufferRegion, ...], Iterable[MatchBufferRegion] | None] = field(
        default=(), conv=lambda v: tuple(v or ())
    )
    annotations: Converted[dict[str, Any], Mapping[str, Any] | None] = field(default=None, conv=_annotations)

    if TYPE_CHECKING:

        def _rewritten(self) -> Block: ...

    _equal_order = (
        "iter_vars", "alloc_buffers", "match_buffers", "reads", "writes", "body", "init", "annotations",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name, items, expected in (
            ("iter_vars", self.iter_vars, IterVar), ("reads", self.reads, BufferRegion), ("writes", self.writes, BufferRegion),
        ):  # fmt: skip
            for item in items:
                if not isinstance(item, expected):
                    raise CheckTypeError(
                        f"Block expects {expected.__name__} items in {name}, but got {type(item).__name__}"
                    )


class BlockRealize(Stmt):
    """A block run with given values of its iteration variables, where ``predicate`` holds."""

    iter_values: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    predicate: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
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


def unnest(stmt: Stmt) -> tuple[list[For], Any]:
    """The loops of a nest, outermost first, and what they hold."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt


#: A load or a store, whichever is given.
AccessT = TypeVar("AccessT", BufferLoad, BufferStore)
#: A binding of either kind.
LetT = TypeVar("LetT", Let, LetStmt)


def _store(
    buffer: Buffer, value: PrimExpr, indices: Sequence[PrimExpr], predicate: ExprLike | None = None
) -> BufferStore:
    return BufferStore(buffer, value, indices, predicate)


INDEXING["store"] = _store
INDEXING["region"] = BufferRegion
