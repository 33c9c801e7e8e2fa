"""Buffers: typed views of memory with a shape and, where it matters, strides, scope and alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from ..ir.errors import CheckTypeError, CheckValueError
from ..ir import dtype as dt
from ..ir.expr import ExprLike, PrimExpr, Range, ShapeLike, as_expr, as_exprs
from ..ir.node import Node, field
from ..ir.op import Op
from ..ir.prim import Call, IntImm, Ramp, Var, const, is_one, is_zero
from ..ir.primops import div
from ..ir.source import Span
from ..ir.types import PointerType, PrimType

if TYPE_CHECKING:
    from .expr import BufferLoad
    from .stmt import BufferRegion, BufferStore

__all__ = ["Buffer", "DataProducer", "decl_buffer"]

#: One index of an access: a position, or a slice of a dimension.
Index: TypeAlias = ExprLike | slice

# ``tir.stmt`` and ``tir.expr`` install the node constructors that indexing needs.
INDEXING: dict[str, Callable[..., Any]] = {}
_READ, _WRITE = 1, 2


class Buffer(Node):
    """An n-dimensional array in memory; ``buf[i, j]`` reads an element, ``buf[0:4, j]`` names a region."""

    # No binders: what declares a buffer (a function, a block, DeclBuffer) says so; in an access it is a name in use.
    data: Var
    dtype: str = field(role="attr")
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...]
    elem_offset: PrimExpr
    name: str = field(role="ignore")
    data_alignment: int = field(role="attr")
    offset_factor: int = field(role="attr")
    buffer_type: int = field(role="attr")
    axis_separators: tuple[PrimExpr, ...]
    span: Span | None = field(role="ignore", default=None, kw_only=True)

    READ = _READ
    WRITE = _WRITE
    DEFAULT = 1
    AUTO_BROADCAST = 2

    def __init__(
        self,
        data: Var,
        dtype: str,
        shape: ShapeLike,
        strides: ShapeLike | None = (),
        elem_offset: ExprLike | None = None,
        name: str = "buffer",
        data_alignment: int = -1,
        offset_factor: int = 0,
        buffer_type: int | str = 1,
        axis_separators: ShapeLike | None = (),
        span: Span | None = None,
    ) -> None:
        self.data = data
        self.dtype = dt.canonical(str(dtype))
        self.shape = as_exprs(shape)
        self.buffer_type = (
            (2 if buffer_type == "auto_broadcast" else 1) if isinstance(buffer_type, str) else buffer_type
        )
        steps = as_exprs(strides)
        if not steps and self.buffer_type == Buffer.AUTO_BROADCAST:
            steps = tuple([Var("stride", dim.dtype) for dim in self.shape])
        self.strides = steps
        if not isinstance(getattr(data.type_annotation, "element_type", None), PrimType):
            raise CheckTypeError(f"Variable {data.name} is missing a type annotation: it must point to scalars.")
        self.elem_offset = const(0, self._index_dtype()) if elem_offset is None else as_expr(elem_offset)
        self.name = name
        self.data_alignment = 64 if int(data_alignment) <= 0 else int(data_alignment)
        self.offset_factor = 1 if int(offset_factor) == 0 else int(offset_factor)
        self.axis_separators = as_exprs(axis_separators)
        self._check_separators()
        self.span = span

    def _check_separators(self) -> None:
        before = 0
        for separator in self.axis_separators:
            place = int(separator)  # type: ignore[call-overload]
            if not 0 <= place <= len(self.shape):
                raise CheckValueError(
                    f"All axis separators must be within the range 0 <= sep <= {len(self.shape)}, got {place}"
                )
            if place < before:
                raise CheckValueError(f"Axis separators must be in increasing order, got {place} after {before}")
            before = place

    def _index_dtype(self) -> str:
        return self.shape[0].dtype if self.shape else "int32"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def scope(self) -> str:
        """The memory scope; plain memory is ``"global"``."""
        annotation = self.data.type_annotation
        if not isinstance(annotation, PointerType):
            raise CheckTypeError(f"the data of buffer {self.name} is no pointer")
        return annotation.storage_scope or "global"

    # An index is never too large for a load to be made, so Python's iteration by index would not end.
    __iter__ = None

    @overload
    def __getitem__(self, indices: ExprLike | Sequence[ExprLike]) -> BufferLoad: ...
    @overload
    def __getitem__(self, indices: Index | Sequence[Index]) -> BufferLoad | BufferRegion: ...
    def __getitem__(self, indices: Index | Sequence[Index]) -> BufferLoad | BufferRegion:
        given: Sequence[Index] = indices if isinstance(indices, (tuple, list)) else (indices,)
        if not any(isinstance(i, slice) for i in given):
            return INDEXING["load"](self, [as_expr(i) for i in given])
        return self._slice(tuple(given))

    def _slice(self, indices: tuple[Index, ...]) -> BufferLoad | BufferRegion:
        if any(isinstance(i, slice) and i.step not in (None, 1) for i in indices) or all(
            not isinstance(i, slice) or (i.stop is not None and i.step is not None) for i in indices
        ):
            return INDEXING["load"](self, [self._ramp(i, d) for d, i in enumerate(indices)])
        region = []
        for index, item in enumerate(indices):
            if isinstance(item, slice):
                start = 0 if item.start is None else item.start
                stop = self.shape[index] if item.stop is None else item.stop
                begin = as_expr(start)
                extent = as_expr(stop) - begin
                if not isinstance(extent, IntImm):
                    from .. import arith

                    extent = arith.Analyzer().simplify(extent)
                region.append(Range.from_min_extent(begin, extent))
            else:
                begin = as_expr(item)
                region.append(Range.from_min_extent(begin, const(1, begin.dtype)))
        return INDEXING["region"](self, region)

    def _ramp(self, item: Index, dim: int) -> PrimExpr:
        if not isinstance(item, slice):
            return as_expr(item)
        step = 1 if item.step is None else item.step
        start = as_expr(0 if item.start is None else item.start)
        stop = as_expr(self.shape[dim] if item.stop is None else item.stop)
        from ..ir.primops import floordiv

        from .. import arith

        lanes = arith.Analyzer().simplify(floordiv(stop - start + step - 1, step))
        if is_one(lanes):
            return start
        return Ramp(start, const(int(step), start.dtype), lanes)

    def vload(self, begin: ShapeLike, dtype: str | None = None, predicate: ExprLike | None = None) -> PrimExpr:
        """Load one value, or a vector of ``dtype``'s lanes, starting at ``begin``."""
        indices = self._vector_indices(begin, dtype or self.dtype)
        made: PrimExpr = INDEXING["load"](self, indices, predicate)
        return made

    def vstore(self, begin: ShapeLike, value: ExprLike, predicate: ExprLike | None = None) -> BufferStore:
        """Store a value (or vector) starting at ``begin``."""
        value = as_expr(value)
        return INDEXING["store"](self, value, self._vector_indices(begin, value.dtype), predicate)

    def _vector_indices(self, begin: ShapeLike, dtype: str) -> list[PrimExpr]:
        indices = list(as_exprs(begin))
        if dt.element_of(dtype) != dt.element_of(self.dtype) or dt.lanes(dtype) % dt.lanes(self.dtype):
            raise CheckTypeError(f"Cannot access {dtype} in a buffer of {self.dtype}")
        lanes = dt.lanes(dtype) // dt.lanes(self.dtype)
        if lanes > 1 and indices and dt.lanes(indices[-1].dtype) == 1:
            indices[-1] = Ramp(indices[-1], const(1, indices[-1].dtype), lanes)
        return indices

    def access_ptr(
        self,
        access_mask: ExprLike,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> PrimExpr:
        """A pointer expression for intrinsics: ``access_mask`` is ``"r"``, ``"w"``, ``"rw"`` or the bit mask."""
        if isinstance(access_mask, str):
            bits = 0
            for letter in access_mask:
                if letter not in "rw":
                    raise CheckValueError(f"Unknown access_mask {letter}")
                bits |= _READ if letter == "r" else _WRITE
            access_mask = bits
        offset = as_expr(offset)
        dtype, start, rest = self.dtype, self.elem_offset + offset, self._elements_after(offset)
        if content_lanes > 1:
            dtype = dt.with_lanes(dtype, content_lanes)
            count = const(content_lanes, self.elem_offset.dtype)
            # The start of the vectors leaves ``offset`` out, as callers of this old interface expect.
            start, rest = div(self.elem_offset, count), div(rest, count)
        extent = rest if extent is None else as_expr(extent)
        annotation = Call(dtype, Op.register("tir.type_annotation"), [])
        return Call(
            ptr_type, Op.register("tir.tvm_access_ptr"), [annotation, self.data, start, extent, as_expr(access_mask)]
        )

    def _elements_after(self, offset: PrimExpr) -> PrimExpr:
        """How many elements there are from ``offset`` on; of a strided buffer, its whole span."""
        if not self.shape:
            return const(1, self._index_dtype())
        if self.layout_strides:
            return self.strides[0] * self.shape[0] - offset
        total: PrimExpr = const(1, "int32")
        for dim in self.shape:
            total = total * dim
        return total - offset

    @property
    def layout_strides(self) -> tuple[PrimExpr, ...]:
        """The strides if there is one for each dimension; without, elements lie in row-major order."""
        return self.strides if len(self.strides) == len(self.shape) else ()

    def offset_of(self, indices: ShapeLike) -> list[PrimExpr]:
        """Flat element offsets of ``indices``, simplified, one for each group of dimensions between axis separators."""
        from .. import arith

        analyzer = arith.Analyzer()
        return [analyzer.simplify(offset) for offset in flat_offsets(self, as_exprs(indices))]

    def get_flattened_buffer(self) -> Buffer:
        """The same memory as a buffer of one dimension (one for each group, with axis separators)."""
        groups = _groups(self)
        shape = []
        for group in groups:
            if self.layout_strides and group:
                # With strides the extent is that of the whole strided span.
                shape.append(self.strides[group[0]] * self.shape[group[0]])
                continue
            total: PrimExpr = const(1, self._index_dtype())
            for dim in group:
                total = total * self.shape[dim]
            shape.append(total)
        if len(self.shape) == len(shape) and not self.layout_strides:
            return self
        separators = [const(i + 1, "int32") for i in range(len(groups) - 1)]
        return self.with_fields(shape=tuple(shape), strides=(), axis_separators=tuple(separators))


def _groups(buffer: Buffer) -> list[list[int]]:
    cuts = [int(s) for s in buffer.axis_separators]  # type: ignore[call-overload]
    edges = [0, *cuts, len(buffer.shape)]
    return [list(range(a, b)) for a, b in zip(edges, edges[1:])]


def flat_offsets(buffer: Buffer, indices: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Row-major (or strided) offsets of an element; see :meth:`Buffer.offset_of`."""
    if len(indices) != len(buffer.shape):
        raise CheckValueError(f"buffer {buffer.name} has {len(buffer.shape)} dimensions, indexed with {len(indices)}")
    out = []
    for group in _groups(buffer):
        offset: PrimExpr | None = None
        for dim in group:
            if buffer.layout_strides:
                term = indices[dim] * buffer.strides[dim]
                offset = term if offset is None else offset + term
            else:
                offset = indices[dim] if offset is None else offset * buffer.shape[dim] + indices[dim]
        out.append(const(0, buffer._index_dtype()) if offset is None else offset)
    elem = buffer.elem_offset
    if out and not is_zero(elem):
        out[-1] = out[-1] + elem
    return out


def decl_buffer(
    shape: ShapeLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: ShapeLike | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: ShapeLike | None = None,
    span: Span | None = None,
) -> Buffer:
    """Declare a buffer, making its data pointer unless one is given.

    >>> from relaxish import tir
    >>> tir.decl_buffer((16, 4), "float32", "A").scope()
    'global'
    """
    shape = as_exprs(shape)
    dtype = dtype or "float32"
    if offset_factor != 0 and elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", shape[0].dtype if shape else "int32")
    if data is None:
        element = "int8" if dt.is_bool(dtype) else dtype
        data = Var(name, PointerType(PrimType(element), scope), span)
    return Buffer(
        data, dtype, shape, strides or (), elem_offset, name, data_alignment, offset_factor, buffer_type,
        axis_separators or (), span,
    )  # fmt: skip


class DataProducer(Node):
    """Something whose elements can be read before it has memory (a compute definition's tensor)."""
