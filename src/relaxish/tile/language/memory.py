"""Arguments and memory of tile programs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from ... import tir
from ...ir.expr import ExprLike, PrimExpr, as_expr
from ...script.ir_builder import tir as B
from ...script.ir_builder.base import IRBuilder
from ...script.ir_builder.tir.frame import DeclBufferFrame, PrimFuncFrame
from ...tir.transform.tiles.names import FRAGMENT, VAR
from .blocks import inside_kernel
from .regions import TileError, as_dtype
from ...ir.prim import const_int

__all__ = [
    "Buffer", "StridedTensor", "Tensor", "alloc_fragment", "alloc_global", "alloc_local", "alloc_reducer",
    "alloc_shared", "alloc_tmem", "alloc_var", "dyn", "dynamic", "empty", "ptr", "reshape", "symbolic", "view",
]  # fmt: skip


Shape: TypeAlias = Sequence[PrimExpr | int] | PrimExpr | int
"""Sizes of a buffer; one alone stands for one dimension."""


def _shape(shape: Shape) -> tuple[PrimExpr | int, ...]:
    if isinstance(shape, (list, tuple)):
        return tuple(shape)
    alone: Any = shape
    return (alone,)


class _Tensor:
    """``T.Tensor((M, K), "float16")`` as annotation and, with ``data``, as a buffer over memory that exists."""

    def __call__(
        self, shape: Shape | None = None, dtype: object = "float32", data: Any = None, strides: Any = None, elem_offset: Any = None,
        scope: str = "global", align: int = 0, offset_factor: int = 0, buffer_type: str = "", axis_separators: Any = None,
    ) -> tir.Buffer:  # fmt: skip
        if shape is None:
            raise TileError("T.Tensor needs a shape: T.Tensor((M, N), dtype)")
        return B.buffer(
            _shape(shape), as_dtype(dtype), data, strides, elem_offset, scope, align, offset_factor, buffer_type,
            axis_separators,
        )  # fmt: skip

    __iter__ = None  # by index it would not end

    def __getitem__(self, keys: Any) -> tir.Buffer:
        keys = keys if isinstance(keys, tuple) else (keys,)
        return self(*keys) if isinstance(keys[0], (tuple, list)) else self(keys)


Tensor = _Tensor()
Buffer = Tensor


def StridedTensor(shape: Shape, strides: Shape, dtype: object = "float32", scope: str = "global") -> tir.Buffer:
    """An argument whose rows are not packed: ``strides`` in elements, one for each dimension."""
    return Tensor(shape, dtype, strides=_shape(strides), scope=scope)


def ptr(dtype: object = "float32", storage_scope: str = "global") -> tir.Var:
    """A pointer argument."""
    return B.ptr(as_dtype(dtype), storage_scope)


def dynamic(name: str, dtype: str = "int32") -> tir.Var | tuple[tir.Var, ...]:
    """A size that is known when the kernel is called; several names (``"m, n"``) give several."""
    names = [n.strip() for n in name.split(",") if n.strip()]
    made = [tir.Var(n, dtype) for n in names]
    return made[0] if len(made) == 1 else tuple(made)


symbolic = dynamic


class _Dyn:
    """``T.dyn["K"]``: the size of that name, the same one within a function."""

    def __init__(self) -> None:
        self.known: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.outside: dict[str, Any] = {}

    def __getitem__(self, name: str) -> tir.Var:
        names = self.outside
        if IRBuilder.is_in_scope():
            function = IRBuilder.current().find(PrimFuncFrame)
            if function is not None:
                names = self.known.setdefault(function, {})
        if name not in names:
            names[name] = tir.Var(name, "int32")
        return names[name]


dyn = _Dyn()


def _allocate(what: str, shape: Shape, dtype: object, scope: str) -> tir.Buffer:
    inside_kernel(what)
    extents = [as_expr(e) for e in _shape(shape)]
    if not all(const_int(e, 0) > 0 for e in extents):
        raise TileError(f"{what}: memory of a block has constant sizes, not {shape}")
    return B.alloc_buffer(extents, as_dtype(dtype), scope=scope)


def alloc_shared(shape: Shape, dtype: object, scope: str = "shared.dyn") -> tir.Buffer:
    """Memory that all threads of a block see."""
    if scope not in ("shared", "shared.dyn"):
        raise TileError(f"T.alloc_shared(scope=...) is 'shared' or 'shared.dyn', not {scope!r}")
    return _allocate("T.alloc_shared", shape, dtype, "shared" if as_dtype(dtype) == "bool" else scope)


def alloc_fragment(shape: Shape, dtype: object, scope: str = FRAGMENT) -> tir.Buffer:
    """A tile in the registers of a block's threads together, indexed as a whole; who holds what is the compiler's."""
    return _allocate("T.alloc_fragment", shape, dtype, scope)


def alloc_local(shape: Shape, dtype: object, scope: str = "local") -> tir.Buffer:
    """Registers of one thread: each iteration of a parallel loop, or each thread, has its own."""
    return _allocate("T.alloc_local", shape, dtype, scope)


def alloc_var(dtype: object, init: ExprLike | None = None, scope: str = VAR) -> tir.Buffer:
    """A variable, read by its name and written by assignment; ``init`` is its first value."""
    made = _allocate("T.alloc_var", (1,), dtype, scope)
    if init is not None:
        B.buffer_store(made, init, [0])
    return made


def alloc_global(shape: Shape, dtype: object, scope: str = "global") -> tir.Buffer:
    """Memory of the device for the run of one function: all blocks of its kernels see it."""
    function = IRBuilder.current().find(PrimFuncFrame)
    if function is None:
        raise TileError("T.alloc_global stands outside of a function")
    made = B.buffer(_shape(shape), as_dtype(dtype), scope=scope)
    function.root_alloc_buffers.append(made)
    return made


empty = alloc_global


def alloc_reducer(shape: Shape, dtype: object, op: str = "sum", replication: str | None = None) -> tir.Buffer:
    """A fragment into which iterations of parallel loops reduce (``+=`` for sum, ``T.max``, ``T.min``); clear or fill it
    first, and read it after ``T.finalize_reducer``."""
    if op not in ("sum", "max", "min"):
        raise TileError(f"T.alloc_reducer(op=...) is 'sum', 'max' or 'min', not {op!r}")
    if replication not in (None, "all", "none"):
        raise TileError(f"T.alloc_reducer(replication=...) is 'all' or 'none', not {replication!r}")
    made = alloc_fragment(shape, dtype)
    inside_kernel("T.alloc_reducer").reducers.append((made, op))
    return made


def alloc_tmem(shape: Shape, dtype: object) -> NoReturn:
    """Tensor memory is Blackwell's (sm_100), which this compiler does not write for."""
    raise TileError(
        f"T.alloc_tmem({shape}, {dtype!r}) needs the tensor memory of sm_100; programs here are for sm_53 to sm_90a and run there as "
        "those of earlier architectures: use T.alloc_fragment"
    )


def view(source: tir.Buffer, shape: Shape | None = None, dtype: object = None) -> DeclBufferFrame:
    """The memory of a buffer in another shape, or as elements of another type. Assign it to a name."""
    kind = source.dtype if dtype is None else as_dtype(dtype)
    extents = [as_expr(e) for e in (source.shape if shape is None else _shape(shape))]
    bits = [_bits(source.shape, source.dtype), _bits(extents, kind)]
    if shape is None and kind != source.dtype:
        factor = _element_bits(source.dtype), _element_bits(kind)
        last = extents[-1]
        if not isinstance(last, tir.IntImm) or last.value * factor[0] % factor[1]:
            raise TileError(f"T.view: rows of {source.name} do not divide into elements of {kind}; give the shape")
        extents[-1] = as_expr(last.value * factor[0] // factor[1])
        bits[1] = _bits(extents, kind)
    if None not in bits and bits[0] != bits[1]:
        raise TileError(f"T.view: {source.name} has {bits[0]} bits, the view {bits[1]}")
    if source.scope() == FRAGMENT and kind != source.dtype:
        raise TileError(
            f"T.view: {source.name} is a fragment, whose elements have no place in memory; copy it to shared memory"
        )
    return B.decl_buffer(extents, kind, data=source.data, scope=source.scope())


def _element_bits(dtype: str) -> int:
    from ...ir import dtype as dt

    return int(dt.bits(dtype))


def _bits(shape: Sequence[PrimExpr], dtype: str) -> int | None:
    total = _element_bits(dtype)
    for e in shape:
        if not isinstance(e, tir.IntImm):
            return None
        total *= e.value
    return total


def reshape(source: tir.Buffer, shape: Shape) -> DeclBufferFrame:
    """The memory of a buffer in another shape. Assign it to a name."""
    return view(source, shape)
