"""WMMA: whole-fragment loads, products and stores of tensor cores, as the CUDA C++ ``nvcuda::wmma`` API has them.

A fragment buffer is an array of fragments; which one a tile is follows from its offset in the fragment buffer.
Source: CUDA C++ Programming Guide, "Warp matrix functions".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.expr import PrimExpr
from ...ir.prim import Cast, const
from ..buffer import Buffer, decl_buffer
from ..expr import Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin
from ..stmt import Evaluate
from .build import copy_nest, pointwise, root_func

__all__ = ["define", "get_wmma_intrin_group"]

_DTYPES = {
    "f16": "float16", "f32": "float32", "s8": "int8", "s32": "int32", "s4": "int4", "bf16": "bfloat16", "u8": "uint8",
    "tf32": "float32",
}  # fmt: skip
_SHORT = {long: short for short, long in _DTYPES.items() if short != "tf32"}
_CUBE = (16, 16, 16)
_S4 = (8, 8, 32)
_TF32 = (16, 16, 8)
# Shapes that the field's list does not have, with their operand types; the cube has f16 and s8 there.
_FURTHER = {
    _CUBE: ("bf16", "u8"), (8, 32, 16): ("f16", "bf16", "s8", "u8"), (32, 8, 16): ("f16", "bf16", "s8", "u8"),
    _TF32: ("tf32",),
}  # fmt: skip
_RESULTS = {"f16": ("f32", "f16"), "bf16": ("f32",), "s8": ("s32",), "u8": ("s32",), "tf32": ("f32",)}


def _tile(name: str, shape: Sequence[int], dtype: str, scope: str, strided: bool) -> Buffer:
    """A tile of a larger buffer in ``scope``; ``strided`` (in implementations): its strides are variables."""
    strides = [Var(f"{name}_s1", "int32"), Var(f"{name}_s0", "int32")] if strided else []
    return decl_buffer(
        list(shape), dtype, name, strides=strides, scope=scope, data_alignment=64, offset_factor=shape[1],
        elem_offset=Var(f"{name}_elem_offset", "int32"),
    )  # fmt: skip


def fragment_index(buffer: Buffer, rows: int, columns: int) -> PrimExpr:
    """The number of the fragment that a tile is, from its offset in the buffer of all fragments (row-major)."""
    stride = buffer.strides[0]
    return buffer.elem_offset // stride // rows * (stride // columns) + buffer.elem_offset % stride // columns


def _load(shape: Sequence[int], dtype: str, scope: str, operand: str, transposed: bool) -> tuple[PrimFunc, PrimFunc]:
    m, n, k = shape
    rows, columns = (k, n) if operand == "b" else (m, k)
    if transposed:
        rows, columns = columns, rows

    def tiles(strided: bool) -> tuple[Buffer, Buffer]:
        return (
            _tile("A", (rows, columns), dtype, scope, strided),
            _tile("C", (rows, columns), dtype, f"wmma.matrix_{operand}", strided),
        )

    a, c = tiles(False)
    desc = root_func([a, c], [a], [c], copy_nest("load", a, c))
    a, c = tiles(True)
    call = call_builtin(
        "handle", "tvm_load_matrix_sync", c.data, m, n, k, fragment_index(c, rows, columns), a.access_ptr("r"), a.strides[0],
        "col_major" if transposed else "row_major",
    )  # fmt: skip
    return desc, root_func([a, c], [a], [c], Evaluate(call))


def _fill(shape: Sequence[int], dtype: str) -> tuple[PrimFunc, PrimFunc]:
    m, n, k = shape
    c = _tile("C", (m, n), dtype, "wmma.accumulator", False)
    zero = const(0, "int32").astype(dtype)
    desc = root_func([c], [], [c], pointwise("init", "SS", (m, n), lambda i, j: ((c, zero), [i, j], [])))
    c = _tile("C", (m, n), dtype, "wmma.accumulator", True)
    call = call_builtin("handle", "tvm_fill_fragment", c.data, m, n, k, fragment_index(c, m, n), const(0, "float32"))
    return desc, root_func([c], [], [c], Evaluate(call))


def _store(shape: Sequence[int], dtype: str, scope: str) -> tuple[PrimFunc, PrimFunc]:
    m, n, k = shape

    def tiles(strided: bool) -> tuple[Buffer, Buffer]:
        return _tile("A", (m, n), dtype, "wmma.accumulator", strided), _tile("C", (m, n), dtype, scope, strided)

    a, c = tiles(False)
    desc = root_func([a, c], [a], [c], copy_nest("store", a, c))
    a, c = tiles(True)
    fragment = (a.data, m, n, k, fragment_index(a, m, n))
    call = call_builtin("handle", "tvm_store_matrix_sync", *fragment, c.access_ptr("w"), c.strides[0], "row_major")
    return desc, root_func([a, c], [a], [c], Evaluate(call))


def _sync(shape: Sequence[int], in_dtype: str, out_dtype: str, transposed: bool) -> tuple[PrimFunc, PrimFunc]:
    m, n, k = shape
    b_shape = (n, k) if transposed else (k, n)

    def tiles(strided: bool) -> tuple[Buffer, Buffer, Buffer]:
        return (
            _tile("A", (m, k), in_dtype, "wmma.matrix_a", strided),
            _tile("B", b_shape, in_dtype, "wmma.matrix_b", strided),
            _tile("C", (m, n), out_dtype, "wmma.accumulator", strided),
        )

    def wide(value: PrimExpr) -> PrimExpr:
        return value if in_dtype == out_dtype else Cast(out_dtype, value)

    a, b, c = tiles(False)

    def update(
        i: PrimExpr, j: PrimExpr, r: PrimExpr
    ) -> tuple[tuple[Buffer, PrimExpr], list[PrimExpr], list[tuple[Buffer, list[PrimExpr]]]]:
        at_b = [j, r] if transposed else [r, j]
        value = c[i, j] + wide(a[i, r]) * wide(b[tuple(at_b)])
        return (c, value), [i, j], [(c, [i, j]), (a, [i, r]), (b, at_b)]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("", "SSR", (m, n, k), update))
    a, b, c = tiles(True)
    result = (c.data, fragment_index(c, m, n))
    call = call_builtin(
        "handle", "tvm_mma_sync", *result, a.data, fragment_index(a, m, k), b.data, fragment_index(b, *b_shape), *result
    )
    return desc, root_func([a, b, c], [c, a, b], [c], Evaluate(call))


def define() -> None:
    """Register every WMMA intrinsic."""
    for short in ("f16", "s8"):
        _define_loads(_CUBE, short)
    for scope, suffix in (("shared", "shared"), ("shared.dyn", "shared_dyn")):
        TensorIntrin.declare(f"wmma_load_8x8x32_s4_a_{suffix}", partial(_load, _S4, "int4", scope, "a", False))
        TensorIntrin.declare(f"wmma_load_8x8x32_s4_b_trans_{suffix}", partial(_load, _S4, "int4", scope, "b", True))
    for short in ("f32", "f16", "s32"):
        _define_results(_CUBE, short)
    _define_results(_S4, "s32")
    for inputs, output in (("f16", "f32"), ("f16", "f16"), ("s8", "s32")):
        _define_products(_CUBE, inputs, output)
    TensorIntrin.declare("wmma_sync_8x8x32_s4s4s32_trans", partial(_sync, _S4, "int4", "int32", True))
    for shape, kinds in _FURTHER.items():
        for short in kinds:
            _define_loads(shape, short)
            for output in _RESULTS[short]:
                _define_products(shape, short, output)
        if shape != _CUBE:
            for output in sorted({o for short in kinds for o in _RESULTS[short]}):
                _define_results(shape, output)


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _define_loads(shape: Sequence[int], short: str) -> None:
    for scope, suffix in (("shared", "shared"), ("shared.dyn", "shared_dyn")):
        for operand in "ab":
            for trans in ("", "_trans"):
                name = f"wmma_load_{_text(shape)}_{short}_{operand}{trans}_{suffix}"
                TensorIntrin.declare(name, partial(_load, shape, _DTYPES[short], scope, operand, bool(trans)))


def _define_results(shape: Sequence[int], short: str) -> None:
    TensorIntrin.declare(f"wmma_fill_{_text(shape)}_{short}", partial(_fill, shape, _DTYPES[short]))
    for scope in ("shared", "shared.dyn", "global"):
        name = f"wmma_store_{_text(shape)}_{short}_{scope.replace('.', '_')}"
        TensorIntrin.declare(name, partial(_store, shape, _DTYPES[short], scope))


def _define_products(shape: Sequence[int], inputs: str, output: str) -> None:
    for trans in ("", "_trans"):
        name = f"wmma_sync_{_text(shape)}_{inputs}{inputs}{output}{trans}"
        TensorIntrin.declare(name, partial(_sync, shape, _DTYPES[inputs], _DTYPES[output], bool(trans)))


def get_wmma_intrin_group(
    load_scope: str, store_scope: str, in_dtype: str, out_dtype: str, trans_b: bool
) -> dict[str, str]:
    """Names of the intrinsics for one product: init, load_a, load_b, compute and store.

    Raises ValueError for scopes or dtypes that the instructions do not have.

    >>> from relaxish.tir.tensor_intrin.cuda import get_wmma_intrin_group
    >>> get_wmma_intrin_group("shared", "global", "float16", "float32", trans_b=True)["compute"]
    'wmma_sync_16x16x16_f16f16f32_trans'
    """
    for what, value, known in (
        ("load_scope", load_scope, ("shared", "shared.dyn")),
        ("store_scope", store_scope, ("global", "shared", "shared.dyn")),
        ("in_dtype", in_dtype, ("float16", "int8")),
        ("out_dtype", out_dtype, ("float16", "float32", "int32")),
    ):
        if value not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, not {value}")
    short_in, short_out, trans = _SHORT[in_dtype], _SHORT[out_dtype], "_trans" if trans_b else ""
    load, store = load_scope.replace(".", "_"), store_scope.replace(".", "_")
    return {
        "init": f"wmma_fill_16x16x16_{short_out}",
        "load_a": f"wmma_load_16x16x16_{short_in}_a_{load}",
        "load_b": f"wmma_load_16x16x16_{short_in}_b{trans}_{load}",
        "compute": f"wmma_sync_16x16x16_{short_in}{short_in}{short_out}{trans}",
        "store": f"wmma_store_16x16x16_{short_out}_{store}",
    }
