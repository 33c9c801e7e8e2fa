"""Matrix cores of AMD GPUs: 16 x 16 products by the 64 lanes of a wave, operands and results in registers.

A matrix in scope "warp" has shape (64, elements a lane). Source: AMD CDNA3 Instruction Set Architecture, "Matrix
Arithmetic Instructions", register layouts of the 16 x 16 instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.prim import Cast, const
from ..buffer import Buffer, decl_buffer
from ..expr import BufferLoad, Ramp, Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..stmt import BufferStore, For, ForKind
from .build import on_lanes, pointwise, root_func

__all__ = ["define"]

LANES = 64
_SIDE = 16
Place = Callable[[Any, Any], tuple[Any, Any]]


def place_a(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any]:
    """Lane and element of the left operand; each lane has four neighbours of a row."""
    return i + 16 * (j // 4), j % 4


def place_b(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any]:
    """Lane and element of the right operand and of the result; each lane has four neighbours of a column."""
    return j + i // 4 * 16, i % 4


def place_thin_a(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any]:
    """Lane and element of a left operand of four columns: one element a lane."""
    return j * 16 + i, 0


def place_thin_b(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any]:
    """Lane and element of a right operand of four rows."""
    return i * 16 + j, 0


def _at_a(lane: PrimExpr, local: PrimExpr) -> tuple[Any, Any]:
    return lane % 16, lane // 16 * 4 + local


def _at_b(lane: PrimExpr, local: PrimExpr) -> tuple[Any, Any]:
    return lane // 16 * 4 + local, lane % 16


def _at_thin_a(lane: PrimExpr, _local: PrimExpr) -> tuple[Any, Any]:
    return lane % 16, lane // 16


def _at_thin_b(lane: PrimExpr, _local: PrimExpr) -> tuple[Any, Any]:
    return lane // 16, lane % 16


@dataclass(frozen=True)
class _Kind:
    """One instruction: its depth, element types, name, and how lanes hold the operands."""

    k: int
    dtype: str
    out: str
    instruction: str
    place: tuple[Place, Place]
    back: tuple[Place, Place]

    @property
    def elements(self) -> int:
        """Number of elements of an operand in a lane's registers."""
        return _SIDE * self.k // LANES


_WIDE, _WIDE_BACK = (place_a, place_b), (_at_a, _at_b)
_KINDS = {
    "f32": _Kind(4, "float32", "float32", "f32.16x16x4f32", (place_thin_a, place_thin_b), (_at_thin_a, _at_thin_b)),
    "f16": _Kind(16, "float16", "float32", "f32.16x16x16f16", _WIDE, _WIDE_BACK),
    "s8": _Kind(16, "int8", "int32", "i32.16x16x16i8", _WIDE, _WIDE_BACK),
}


def _warp(name: str, elements: int, dtype: str) -> Buffer:
    return decl_buffer([LANES, elements], dtype, name, scope="warp", data_alignment=64, offset_factor=1)


def _tile(rows: int, columns: int, dtype: str, scope: str, strided: bool) -> Buffer:
    strides = [Var("s0", "int32"), Var("s1", "int32")] if strided else []
    return decl_buffer([rows, columns], dtype, "tile", strides=strides, scope=scope, data_alignment=64, offset_factor=1)


def _load(kind: _Kind, right: bool) -> tuple[PrimFunc, PrimFunc]:
    rows, columns = (kind.k, _SIDE) if right else (_SIDE, kind.k)
    place, back = kind.place[right], kind.back[right]
    warp, tile = _warp("reg", kind.elements, kind.dtype), _tile(rows, columns, kind.dtype, "shared", False)

    def load(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        return (warp, tile[i, j]), list(place(i, j)), [(tile, [i, j])]

    desc = root_func([warp, tile], [tile], [warp], pointwise("shared_warp", "SS", (rows, columns), load))
    warp, tile = _warp("reg", kind.elements, kind.dtype), _tile(rows, columns, kind.dtype, "shared", True)

    def fetch(lane: Var) -> For:
        local = Var("local_id", "int32")
        store = BufferStore(warp, tile[back(lane, local)], [lane, local])
        return For(local, 0, kind.elements, ForKind.SERIAL, store)

    return desc, root_func([warp, tile], [tile], [warp], on_lanes(fetch, LANES))


def _lane_of(buffer: Buffer, lane: Var, elements: int) -> PrimExpr:
    """All elements of a lane as one value; a single one is a scalar."""
    if elements == 1:
        return buffer[lane, 0]
    return BufferLoad(buffer, [lane, Ramp(const(0, "int32"), const(1, "int32"), const(elements, "int32"))])


def _multiply(kind: _Kind) -> tuple[PrimFunc, PrimFunc]:
    results = _SIDE * _SIDE // LANES

    def buffers() -> tuple[Buffer, Buffer, Buffer]:
        return (
            _warp("A", kind.elements, kind.dtype),
            _warp("B", kind.elements, kind.dtype),
            _warp("C", results, kind.out),
        )

    def wide(value: PrimExpr) -> PrimExpr:
        return value if kind.dtype == kind.out else Cast(kind.out, value)

    a, b, c = buffers()

    def update(i: PrimExpr, j: PrimExpr, r: PrimExpr) -> tuple[Any, Any, Any]:
        at_a, at_b, at_c = list(kind.place[0](i, r)), list(kind.place[1](r, j)), list(place_b(i, j))
        value = c[tuple(at_c)] + wide(a[tuple(at_a)]) * wide(b[tuple(at_b)])
        return (c, value), at_c, [(c, at_c), (a, at_a), (b, at_b)]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("C", "SSR", (_SIDE, _SIDE, kind.k), update))
    a, b, c = buffers()

    def step(lane: Var) -> BufferStore:
        operands = [_lane_of(x, lane, kind.elements) for x in (a, b)]
        if kind.dtype == "int8":
            operands = [reinterpret("int32", x) for x in operands]
        zeros = [const(0, "int32")] * 3  # no broadcast or permutation of the operands
        value = call_llvm_pure_intrin(
            f"{kind.out}x{results}",
            f"llvm.amdgcn.mfma.{kind.instruction}",
            *operands,
            _lane_of(c, lane, results),
            *zeros,
        )
        return BufferStore(c, value, [lane, Ramp(const(0, "int32"), const(1, "int32"), const(results, "int32"))])

    return desc, root_func([a, b, c], [c, a, b], [c], on_lanes(step, LANES))


def _fill(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    results = _SIDE * _SIDE // LANES
    c = _warp("C", results, dtype)
    zero = const(0, dtype)
    desc = root_func(
        [c], [], [c], pointwise("init", "SS", (_SIDE, _SIDE), lambda i, j: ((c, zero), list(place_b(i, j)), []))
    )
    c = _warp("C", results, dtype)

    def clear(lane: Var) -> For:
        local = Var("local_id", "int32")
        return For(local, 0, results, ForKind.SERIAL, BufferStore(c, zero, [lane, local]))

    return desc, root_func([c], [], [c], on_lanes(clear, LANES))


def _store(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    results = _SIDE * _SIDE // LANES
    warp, c = _warp("C_warp", results, dtype), _tile(_SIDE, _SIDE, dtype, "global", False)

    def copy(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        source = list(place_b(i, j))
        return (c, warp[tuple(source)]), [i, j], [(warp, source)]

    desc = root_func([warp, c], [warp], [c], pointwise("C_warp", "SS", (_SIDE, _SIDE), copy))
    warp, c = _warp("C_warp", results, dtype), _tile(_SIDE, _SIDE, dtype, "global", True)

    def write(lane: Var) -> For:
        local = Var("local_id", "int32")
        return For(local, 0, results, ForKind.SERIAL, BufferStore(c, warp[lane, local], list(_at_b(lane, local))))

    return desc, root_func([warp, c], [warp], [c], on_lanes(write, LANES))


def define() -> None:
    """Register every intrinsic of the family."""
    for short, kind in _KINDS.items():
        TensorIntrin.register(f"rocm_mfma_load_16x{kind.k}_a_shared_{short}", *_load(kind, False))
        TensorIntrin.register(f"rocm_mfma_load_b_16x{kind.k}_shared_{short}", *_load(kind, True))
        out = {"float32": "f32", "int32": "s32"}[kind.out]
        TensorIntrin.register(f"rocm_mfma_{short}{short}{out}", *_multiply(kind))
    for dtype, fill, store in (("float32", "f32", "f32"), ("int32", "i32", "s32")):
        TensorIntrin.register(f"ROCM_mfma_fill_16x16_{fill}", *_fill(dtype))
        TensorIntrin.register(f"rocm_mfma_store_16x16_{store}", *_store(dtype))
