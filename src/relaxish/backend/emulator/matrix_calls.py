"""Operations of a warp on matrices in thread functions: wmma fragments, ``mma.sync``, ``ldmatrix``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import Call, Cast, FloatImm, IntImm
from ...support.errors import RelaxishError
from ...tir.tensor_intrin.mma_fragments import MMA, MMA_SPARSE, PTX_TYPES
from . import layout, matrix_helpers
from .nibbles import is_nibble
from .table import emulates

if TYPE_CHECKING:
    from .thread_function import ThreadFunction

__all__: list[str] = []

_S = TypeVar("_S")


def _wide(dtype: str) -> str:
    """The type in which products into results of a type are computed."""
    if dtype == "float64":
        return "float64"
    return "float32" if "float" in dtype else "int32"


def _suffix(gen: ThreadFunction) -> str:
    return "_checked" if gen.checked else ""


# ---- wmma


def _sizes(gen: ThreadFunction, data: Any) -> tuple[int, int]:
    """Rows and columns of a fragment."""
    m, n, k = gen.fragment_shape(data)
    scope = data.type_annotation.storage_scope
    return {"wmma.matrix_a": (m, k), "wmma.matrix_b": (k, n)}.get(scope, (m, n))


def _element(gen: ThreadFunction, data: Any) -> str:
    """The type in which lanes hold a fragment's elements."""
    dtype = str(data.type_annotation.element_type.dtype)
    return {"int4": "int8", "uint4": "uint8"}.get(dtype, dtype)


def _lane_part(gen: ThreadFunction, data: PrimExpr, index: PrimExpr) -> tuple[Any, int, int]:
    """Where the lane's elements of the ``index``-th fragment begin, their number, and the fragment's columns."""
    rows, columns = _sizes(gen, data)
    count = rows * columns // 32
    return gen.integer(gen.visit(index)) * count, count, columns


@emulates("tvm_fill_fragment")
def _fill(gen: ThreadFunction, call: Call) -> PrimExpr:
    data, _, _, _, index, value = call.args
    at, count, _ = _lane_part(gen, data, index)
    dtype = _element(gen, data)
    wide = "float64" if "float" in dtype else "int64"
    symbol = gen.helper(f"rx_fill_{dtype}_{count}", lambda: matrix_helpers.fragment_fill(dtype, count))
    value = gen.visit(value)
    if isinstance(value, FloatImm):
        value = FloatImm(wide, float(value.value)) if wide == "float64" else IntImm(wide, int(value.value))
    else:
        value = Cast(wide, value)
    return gen.call(symbol, data, at, value, dtype="int32")


def _moved(gen: ThreadFunction, call: Call, stores: bool) -> PrimExpr:
    data, _, _, _, index, pointer, stride, lies = call.args
    at, count, columns = _lane_part(gen, data, index)
    dtype, row_major = _element(gen, data), lies.value == "row_major"
    if is_nibble(str(data.type_annotation.element_type.dtype)):
        return _moved_nibbles(gen, call, stores)
    place = gen.place(pointer, dtype=dtype)
    site = gen.access(place, layout.SITE_STORE if stores else layout.SITE_LOAD)
    symbol = gen.helper(
        f"rx_fragment_{'store' if stores else 'load'}_{dtype}_{columns}_{count}_{lies.value}{_suffix(gen)}",
        lambda: matrix_helpers.fragment_copy(dtype, columns, count, row_major, stores, gen.checked),
    )
    stride = gen.integer(gen.visit(stride))
    return gen.call(symbol, data, at, place.data, place.index, stride, site, dtype="int32")


def _moved_nibbles(gen: ThreadFunction, call: Call, stores: bool) -> PrimExpr:
    """A fragment of elements of 4 bits, from memory where they are two to a byte."""
    data, _, _, _, index, pointer, stride, lies = call.args
    dtype = str(data.type_annotation.element_type.dtype)
    if stores:
        raise RelaxishError(f"fragments of {dtype} are operands, which are not stored (kernel {gen.name})")
    at, count, columns = _lane_part(gen, data, index)
    place, row_major = gen.place(pointer), lies.value == "row_major"
    site = gen.access(place, layout.SITE_LOAD)
    symbol = gen.helper(
        f"rx_fragment_load_{dtype}_{columns}_{count}_{lies.value}{_suffix(gen)}",
        lambda: matrix_helpers.nibble_fragment_load(dtype, columns, count, row_major, gen.checked),
    )
    first = place.index * gen.bytes_of(place.dtype)
    return gen.call(
        symbol, data, at, place.data, first, gen.integer(gen.visit(stride)), gen.integer(site), dtype="int32"
    )


@emulates("tvm_load_matrix_sync")
def _load(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _moved(gen, call, stores=False)


@emulates("tvm_store_matrix_sync")
def _store(gen: ThreadFunction, call: Call) -> PrimExpr:
    return _moved(gen, call, stores=True)


@emulates("tvm_mma_sync")
def _product(gen: ThreadFunction, call: Call) -> PrimExpr:
    d, a, b, c = call.args[0], call.args[2], call.args[4], call.args[6]
    m, n, k = gen.fragment_shape(d)
    types = [_element(gen, x) for x in (a, b, c)]
    symbol = gen.helper(
        f"rx_product_{m}_{n}_{k}_" + "_".join(types),
        lambda: matrix_helpers.fragment_product(m, n, k, types[0], types[1], types[2], _wide(types[2])),
    )
    parts: list[Any] = []
    for data, index in zip(call.args[::2], call.args[1::2], strict=True):
        parts += [data, _lane_part(gen, data, index)[0]]
    return gen.call(symbol, *parts, gen.site(), dtype="int32")


# ---- mma.sync and what goes with it


def _form(instruction: str, table: Mapping[tuple[str, int], _S], call: Call) -> tuple[str, _S, tuple[str, str, str]]:
    """(name of the shape, shape, dtypes of a, b and c) of a product. Raises RelaxishError for a form not in the table."""
    name, *layouts = (a.value for a in call.args[:3])
    written = [t.value for t in call.args[3:6]]
    types = [PTX_TYPES.get(t) for t in written]
    shape = table.get((name, dt.bits(types[0]) if types[0] else 0))
    if shape is None or None in types or layouts != ["row", "col"]:
        raise RelaxishError(f"the emulator does not know {instruction} {name} of {written}, {tuple(layouts)}")
    a_dtype, b_dtype, c_dtype = (str(t) for t in types)
    return name, shape, (a_dtype, b_dtype, c_dtype)


@emulates("ptx_mma")
def _mma(gen: ThreadFunction, call: Call) -> PrimExpr:
    shape_name, shape, (a_dtype, b_dtype, c_dtype) = _form("mma", MMA, call)
    symbol = gen.helper(
        f"rx_mma_{shape_name}_{a_dtype}_{b_dtype}_{c_dtype}",
        lambda: matrix_helpers.mma(shape, a_dtype, b_dtype, c_dtype, _wide(c_dtype)),
    )
    parts: list[Any] = []
    for at, dtype in zip((6, 8, 10), (a_dtype, b_dtype, c_dtype), strict=True):
        parts += _registers(gen, call.args[at], call.args[at + 1], dtype)
    return gen.call(symbol, *parts, gen.site(), dtype="int32")


@emulates("ptx_mma_sp")
def _mma_sparse(gen: ThreadFunction, call: Call) -> PrimExpr:
    """Arguments as of ``ptx_mma``, then metadata, its offset, the selector of the threads that hold it, saturate."""
    shape_name, shape, (a_dtype, b_dtype, c_dtype) = _form("mma.sp", MMA_SPARSE, call)
    selector = int(call.args[14].value)
    if not 0 <= selector < 4 // shape.threads:
        raise RelaxishError(f"mma.sp {shape_name} has no sparsity selector {selector}")
    symbol = gen.helper(
        f"rx_mma_sp{selector}_{shape_name}_{a_dtype}_{b_dtype}_{c_dtype}{_suffix(gen)}",
        lambda: matrix_helpers.mma_sparse(shape, selector, a_dtype, b_dtype, c_dtype, _wide(c_dtype), gen.checked),
    )
    parts: list[Any] = []
    for at, dtype in zip((6, 8, 10, 12), (a_dtype, b_dtype, c_dtype, "uint32"), strict=True):
        parts += _registers(gen, call.args[at], call.args[at + 1], dtype)
    return gen.call(symbol, *parts, gen.site(), dtype="int32")


def _registers(gen: ThreadFunction, pointer: PrimExpr, offset: PrimExpr, dtype: str) -> list[Any]:
    """A thread's part of an operand, and its first element; the first byte for elements of 4 bits."""
    if not is_nibble(dtype):
        place = gen.place(pointer, offset, dtype)
        return [place.data, place.index]
    place = gen.place(pointer, offset)
    return [place.data, place.index * gen.bytes_of(place.dtype)]


@emulates("ptx_ldmatrix")
def _ldmatrix(gen: ThreadFunction, call: Call) -> PrimExpr:
    transposed, count, _, local, local_at, source, source_at = call.args
    is_transposed, number = bool(transposed.value), int(count.value)
    target = gen.place(local, local_at)
    unit = gen.bytes_of(target.dtype)
    if is_transposed and unit == 1:
        place = gen.place(source)
        site = gen.access(place, layout.SITE_LOAD)
        symbol = gen.helper(f"rx_load_bytes{_suffix(gen)}", lambda: matrix_helpers.load_bytes_transposed(gen.checked))
        pitch = gen.integer(gen.visit(source_at))
        return gen.call(symbol, target.data, target.index, place.data, place.index, pitch, site, dtype="int32")
    place = gen.place(source, source_at)
    site = gen.access(place, layout.SITE_LOAD, align=16)
    symbol = gen.helper(
        f"rx_ldmatrix_{number}_{int(is_transposed)}{_suffix(gen)}",
        lambda: matrix_helpers.load_matrices(number, is_transposed, gen.checked),
    )
    at = target.index * unit // 2 if unit != 2 else target.index
    width = gen.integer(gen.bytes_of(place.dtype))
    return gen.call(symbol, target.data, at, place.data, place.index, width, site, dtype="int32")


@emulates("mma_fill")
def _mma_fill(gen: ThreadFunction, call: Call) -> PrimExpr:
    count, local, offset = call.args
    place = gen.place(local, offset)
    dtype, number = place.dtype, int(count.value)
    wide = "float64" if "float" in dtype else "int64"
    symbol = gen.helper(f"rx_fill_{dtype}_{number}", lambda: matrix_helpers.fragment_fill(dtype, number))
    zero = FloatImm(wide, 0.0) if wide == "float64" else IntImm(wide, 0)
    return gen.call(symbol, place.data, place.index, zero, dtype="int32")


@emulates("mma_store")
def _mma_store(gen: ThreadFunction, call: Call) -> PrimExpr:
    _, _, target, source, offset, stride = call.args
    place, local = gen.place(target), gen.place(source, offset)
    dtype = local.dtype
    site = gen.access(place, layout.SITE_STORE)
    symbol = gen.helper(
        f"rx_mma_store_{dtype}{_suffix(gen)}", lambda: matrix_helpers.store_accumulators(dtype, gen.checked)
    )
    stride = gen.integer(gen.visit(stride))
    return gen.call(symbol, local.data, local.index, place.data, place.index, stride, site, dtype="int32")
