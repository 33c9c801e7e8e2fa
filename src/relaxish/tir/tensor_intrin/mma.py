"""``ldmatrix`` and ``mma.sync`` on 16 x 16 results: fragments in registers, indexed by lane and element of a warp.

A matrix in scope "warp" has shape (32, elements a lane); which element of the tile that is follows from
:mod:`.mma_layouts`. Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import Cast, const
from ..buffer import Buffer, decl_buffer
from ..expr import Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin
from ..stmt import BufferStore, Evaluate, For, ForKind, SeqStmt, Stmt
from . import mma_layouts as layouts
from .build import on_lanes, pointwise, root_func

__all__ = ["define", "get_mma_intrin_group"]

LANES = 32
_SIDE = 16
_PTX = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "int8": "int8", "int32": "int32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_SHORT = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "i8", "int32": "i32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
_LONG = {short: long for long, short in _SHORT.items()}


@dataclass(frozen=True)
class _Operand:
    """How ``ldmatrix`` loads one operand: its tile in memory, which lane holds which element, addresses of the lanes.

    The instruction transposes 16-bit elements only; transposed 8-bit operands have no ``address``, and the code
    generator loads their elements one by one.
    """

    rows: int
    columns: int
    place: Callable[[Any, Any], Any]
    address: Callable[[Any, Any], Any] | None
    transposed: bool


def _operand(matrix: str, dtype: str, transposed: bool) -> _Operand:
    """The left ("a") or right ("b") operand; ``transposed``: stored with its axes exchanged."""
    if dt.bits(dtype) == 16:
        address = layouts.ldmatrix_32x8_to_shared_16x16_layout
        if transposed:
            address = layouts.ldmatrix_trans_32x8_to_shared_16x16_layout
        # Lanes hold columns of the right operand: the load transposes unless memory has it transposed already.
        crossed = transposed is not (matrix == "b")
        return _Operand(_SIDE, _SIDE, layouts.shared_16x16_to_ldmatrix_32x8_layout, address, crossed)
    if dt.bits(dtype) == 32:
        if matrix == "a":
            return _Operand(_SIDE, 8, _tf32_a, _tf32_a_row, False)
        return _Operand(_SIDE, 8, _tf32_b, _tf32_b_row, False)
    if matrix == "b" and not transposed:
        return _Operand(32, 16, layouts.shared_32x16_to_ldmatrix_32x16_layout, None, True)
    address = layouts.ldmatrix_32x16_to_shared_16x32_layout_a
    if matrix == "b":
        address = layouts.ldmatrix_32x16_to_shared_16x32_layout_b
    return _Operand(16, 32, layouts.shared_16x32_to_ldmatrix_32x16_layout, address, False)


def _tf32_a(i: PrimExpr, k: PrimExpr) -> tuple[Any, Any]:
    return i % 8 * 4 + k % 4, i // 8 + k // 4 * 2


def _tf32_b(j: PrimExpr, k: PrimExpr) -> tuple[Any, Any]:
    return j % 8 * 4 + k % 4, j // 8 * 2 + k // 4


def _tf32_a_row(lane: PrimExpr, _element: int) -> tuple[Any, Any]:
    return lane % 16, lane // 16 * 4


def _tf32_b_row(lane: PrimExpr, _element: int) -> tuple[Any, Any]:
    return lane % 8 + lane // 16 * 8, lane // 8 % 2 * 4


def _shared(rows: int, columns: int, dtype: str, scope: str, strided: bool) -> Buffer:
    strides = [Var("s0", "int32"), Var("s1", "int32")] if strided else []
    return decl_buffer(
        [rows, columns], dtype, "shared", strides=strides, scope=scope, data_alignment=64, offset_factor=16
    )


def _warp(name: str, elements: int, dtype: str) -> Buffer:
    return decl_buffer([LANES, elements], dtype, name, scope="warp", data_alignment=64, offset_factor=16)


def _ldmatrix(matrix: str, dtype: str, transposed: bool, scope: str) -> tuple[PrimFunc, PrimFunc]:
    o = _operand(matrix, dtype, transposed)
    elements = o.rows * o.columns // LANES
    shared, warp = _shared(o.rows, o.columns, dtype, scope, False), _warp("warp", elements, dtype)

    def load(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        return (warp, shared[i, j]), list(o.place(i, j)), [(shared, [i, j])]

    desc = root_func([warp, shared], [shared], [warp], pointwise("shared_warp", "SS", (o.rows, o.columns), load))
    shared, warp = _shared(o.rows, o.columns, dtype, scope, True), _warp("warp", elements, dtype)

    def fetch(lane: Var) -> Evaluate:
        stride = shared.strides[0]
        where: Any = stride
        if o.address is not None:
            row, column = o.address(lane, 0)
            where = stride * row + column
        return Evaluate(call_builtin(
            dtype, "ptx_ldmatrix", o.transposed, 4, ".b16", warp.data, warp.elem_offset + elements * lane,
            shared.access_ptr("r"), where,
        ))  # fmt: skip

    return desc, root_func([warp, shared], [shared], [warp], on_lanes(fetch))


def _mma(in_dtype: str, out_dtype: str, trans_a: bool, trans_b: bool) -> tuple[PrimFunc, PrimFunc]:
    k = 256 // dt.bits(in_dtype)
    elements, results = _SIDE * k // LANES, _SIDE * _SIDE // LANES
    place_a = _operand("a", in_dtype, trans_a).place
    place_b = _operand("b", in_dtype, trans_b).place
    place_c = layouts.shared_16x16_to_ldmatrix_32x8_layout

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return _warp("A", elements, in_dtype), _warp("B", elements, in_dtype), _warp("C", results, out_dtype)

    def wide(value: PrimExpr) -> PrimExpr:
        return value if in_dtype == out_dtype else Cast(out_dtype, value)

    a, b, c = buffers()

    def update(i: PrimExpr, j: PrimExpr, r: PrimExpr) -> tuple[Any, Any, Any]:
        at_a = list(place_a(*((r, i) if trans_a else (i, r))))
        at_b = list(place_b(*((j, r) if trans_b else (r, j))))
        at_c = list(place_c(i, j))
        value = c[tuple(at_c)] + wide(a[tuple(at_a)]) * wide(b[tuple(at_b)])
        return (c, value), at_c, [(c, at_c), (a, at_a), (b, at_b)]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("C", "SSR", (_SIDE, _SIDE, k), update))
    a, b, c = buffers()

    operand = "tf32" if in_dtype == "float32" else _PTX[in_dtype]

    def multiply(lane: Var) -> Stmt:
        def half(columns: int) -> Evaluate:
            return Evaluate(call_builtin(
                out_dtype, "ptx_mma", f"m16n8k{k}", "row", "col", operand, operand, _PTX[out_dtype],
                a.data, a.elem_offset + lane * elements,
                b.data, b.elem_offset + lane * elements + columns * (elements // 2),
                c.data, c.elem_offset + lane * results + columns * (results // 2), False,
            ))  # fmt: skip

        return SeqStmt([half(0), half(1)])

    return desc, root_func([a, b, c], [c, a, b], [c], on_lanes(multiply))


def _fill(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    results = _SIDE * _SIDE // LANES
    c = _warp("C_warp", results, dtype)

    def clear(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        return (c, const(0, dtype)), list(layouts.shared_16x16_to_ldmatrix_32x8_layout(i, j)), []

    desc = root_func([c], [], [c], pointwise("C_warp", "SS", (_SIDE, _SIDE), clear))
    c = _warp("C_warp", results, dtype)
    call = on_lanes(lambda lane: Evaluate(call_builtin(dtype, "mma_fill", results, c.data, c.elem_offset)))
    return desc, root_func([c], [], [c], call)


def _store(dtype: str, scope: str, by_intrinsic: bool) -> tuple[PrimFunc, PrimFunc]:
    results = _SIDE * _SIDE // LANES

    def buffers(strided: bool) -> tuple[Buffer, Buffer]:
        return _warp("C_warp", results, dtype), _shared(_SIDE, _SIDE, dtype, scope, strided)

    warp, c = buffers(False)

    def copy(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        source = list(layouts.shared_16x16_to_ldmatrix_32x8_layout(i, j))
        return (c, warp[tuple(source)]), [i, j], [(warp, source)]

    desc = root_func([warp, c], [warp], [c], pointwise("C_warp", "SS", (_SIDE, _SIDE), copy))
    warp, c = buffers(True)
    body = on_lanes(lambda lane: _store_lane(warp, c, lane, dtype, results, by_intrinsic))
    return desc, root_func([warp, c], [warp], [c], body)


def _store_lane(warp: Buffer, c: Buffer, lane: Var, dtype: str, results: int, by_intrinsic: bool) -> Stmt:
    if by_intrinsic:
        return Evaluate(call_builtin(
            dtype, "mma_store", _SIDE, _SIDE, c.access_ptr("w"), warp.data, warp.elem_offset, c.strides[0]
        ))  # fmt: skip
    element = Var("local_id", "int32")
    row, column = layouts.mma_32x8_to_shared_16x16_layout(lane, element)
    return For(element, 0, results, ForKind.SERIAL, BufferStore(c, warp[lane, element], [row, column]))


def define() -> None:
    """Register every intrinsic of the family."""
    for matrix in "ab":
        for transposed, trans in ((False, ""), (True, "_trans")):
            for scope, suffix in (("shared", ""), ("shared.dyn", "_dyn")):
                for short in ("f16", "bf16"):
                    name = f"mma_ldmatrix_{short}_{matrix}{trans}{suffix}"
                    TensorIntrin.declare(name, partial(_ldmatrix, matrix, _LONG[short], transposed, scope))
    for scope, suffix in (("shared", ""), ("shared.dyn", "_dyn")):
        TensorIntrin.declare(f"mma_ldmatrix_tf32_a{suffix}", partial(_ldmatrix, "a", "float32", False, scope))
        TensorIntrin.declare(f"mma_ldmatrix_tf32_b_trans{suffix}", partial(_ldmatrix, "b", "float32", True, scope))
    TensorIntrin.declare(_sync_name("tf32", "f32", False, True), partial(_mma, "float32", "float32", False, True))
    for short in ("i8", "e4m3", "e5m2"):
        for matrix, transposed, trans in (("a", False, ""), ("b", False, ""), ("b", True, "_trans")):
            name = f"mma_ldmatrix_{short}_{matrix}{trans}"
            TensorIntrin.declare(name, partial(_ldmatrix, matrix, _LONG[short], transposed, "shared"))
    for inputs, out in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32")):
        for trans_a in (False, True):
            for trans_b in (False, True):
                name = _sync_name(inputs, out, trans_a, trans_b)
                TensorIntrin.declare(name, partial(_mma, _LONG[inputs], _LONG[out], trans_a, trans_b))
    for short, out in (("i8", "i32"), ("e5m2", "f32"), ("e4m3", "f32")):
        for trans_b in (False, True):
            TensorIntrin.declare(
                _sync_name(short, out, False, trans_b), partial(_mma, _LONG[short], _LONG[out], False, trans_b)
            )
    for short in ("f32", "f16", "i32"):
        TensorIntrin.declare(f"mma_fill_16x16_{short}", partial(_fill, _LONG[short]))
        TensorIntrin.declare(f"mma_store_16x16_{short}_global_", partial(_store, _LONG[short], "global", True))
    TensorIntrin.declare("mma_store_16x16_f32_shared_dyn_", partial(_store, "float32", "shared.dyn", True))
    for short in ("f32", "f16"):
        name = f"mma_store_16x16_{short}_shared_dyn_simple_"
        TensorIntrin.declare(name, partial(_store, _LONG[short], "shared.dyn", False))


def _sync_name(inputs: str, output: str, trans_a: bool, trans_b: bool) -> str:
    return f"mma_{inputs}{inputs}{output}{'_trans_a' if trans_a else ''}{'_trans_b' if trans_b else ''}"


def get_mma_intrin_group(
    load_scope: str,
    store_scope: str,
    in_dtype: str,
    out_dtype: str,
    trans_a: bool,
    trans_b: bool,
    not_use_mma_store_intrinic: bool = True,
    store_to_smem_dtype: str | None = None,
) -> dict[str, str]:
    """Names of the intrinsics for one product: init, load_a, load_b, compute and store.

    ``store_to_smem_dtype`` is the dtype in which results reach shared memory (default: ``out_dtype``).
    Raises ValueError for scopes or dtypes that the instructions do not have.

    >>> from relaxish.tir.tensor_intrin.cuda import get_mma_intrin_group
    >>> get_mma_intrin_group("shared", "global", "float16", "float32", False, True)["load_b"]
    'mma_ldmatrix_f16_b_trans'
    """
    for what, value, known in (
        ("load_scope", load_scope, ("shared", "shared.dyn")),
        ("store_scope", store_scope, ("global", "shared", "shared.dyn")),
        ("in_dtype", in_dtype, ("float16", "bfloat16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")),
        ("out_dtype", out_dtype, ("float16", "float32", "int32")),
    ):
        if value not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, not {value}")
    dyn = "_dyn" if load_scope == "shared.dyn" and dt.bits(in_dtype) >= 16 else ""
    short_in, short_out = "tf32" if in_dtype == "float32" else _SHORT[in_dtype], _SHORT[out_dtype]
    stored = _SHORT[store_to_smem_dtype or out_dtype]
    simple = "simple_" if not_use_mma_store_intrinic and store_scope != "global" else ""
    return {
        "init": f"mma_fill_16x16_{short_out}",
        "load_a": f"mma_ldmatrix_{short_in}_a{'_trans' if trans_a else ''}{dyn}",
        "load_b": f"mma_ldmatrix_{short_in}_b{'_trans' if trans_b else ''}{dyn}",
        "compute": _sync_name(short_in, short_out, trans_a, trans_b),
        "store": f"mma_store_16x16_{stored}_{store_scope.replace('.', '_')}_{simple}",
    }
