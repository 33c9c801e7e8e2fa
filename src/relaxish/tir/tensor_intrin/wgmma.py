"""``wgmma``: products of 64 x n results by the four warps of a warpgroup, operands straight from shared memory.

Operands are laid out as the instruction reads them without swizzling, in *core matrices* of 8 rows by 16 bytes: element
(i, k) of a 64 x k operand is ``A[i // 8, k // w, i % 8, k % w]`` with ``w`` elements in 16 bytes. Results are registers:
thread ``t`` of 128 has ``C[t, 0 : n / 2]``. Source: PTX ISA, "Register fragments and shared memory matrix layouts" of
``wgmma.mma_async``. (Default and tuned schedules do not tensorise by these: they lower whole tiles, swizzled and
fetched by bulk copies, see ``tir.transform.lower_hopper``.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import Cast, const
from .mma_layouts import Index
from ..buffer import Buffer, decl_buffer
from ..expr import Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin
from ..stmt import BufferStore, Evaluate, For, ForKind, SeqStmt
from .build import on_lanes, pointwise, root_func
from .mma_fragments import warpgroup_result

__all__ = ["COLUMNS", "define", "get_wgmma_intrin_group", "result_place"]

ROWS, THREADS = 64, 128
COLUMNS = (8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256)
"""The widths for which intrinsics are registered; the instruction itself has all multiples of 8."""
_SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8",
    "float32": "f32", "int32": "s32",
}  # fmt: skip
_PRODUCTS = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("float8_e4m3fn", "float32"),
    ("float8_e5m2", "float32"), ("float8_e4m3fn", "float16"), ("float8_e5m2", "float16"), ("int8", "int32"),
    ("uint8", "int32"),
)  # fmt: skip


def result_place(i: Index, j: Index) -> tuple[Index, Index]:
    """(thread, register) of element (i, j) of the results.

    >>> result_place(9, 3)
    (5, 3)
    """
    return i // 16 * 32 + i % 8 * 4 + j % 8 // 2, j // 8 * 4 + i % 16 // 8 * 2 + j % 2


def _operand_place(i: PrimExpr, k: PrimExpr, depth: int) -> tuple[Any, Any]:
    """(thread, element) of a left operand in registers."""
    pack = depth // 8
    return i // 16 * 32 + i % 8 * 4 + k // pack % 4, k // (4 * pack) * 2 * pack + i % 16 // 8 * pack + k % pack


def _core(name: str, rows: int, depth: int, dtype: str, scope: str, strided: bool) -> Buffer:
    width = 128 // dt.bits(dtype)
    strides: list[Any] = [Var(f"{name}_s0", "int32"), Var(f"{name}_s1", "int32"), width, 1] if strided else []
    return decl_buffer(
        [rows // 8, depth // width, 8, width], dtype, name, scope=scope, strides=strides, data_alignment=64, offset_factor=8,
    )  # fmt: skip


def _registers(name: str, count: int, dtype: str) -> Buffer:
    return decl_buffer([THREADS, count], dtype, name, scope="local", data_alignment=64, offset_factor=1)


def _at_core(row: PrimExpr, k: PrimExpr, dtype: str) -> list[Any]:
    width = 128 // dt.bits(dtype)
    return [row // 8, k // width, row % 8, k % width]


def _sync(n: int, in_dtype: str, out_dtype: str, scope: str, held: bool) -> tuple[PrimFunc, PrimFunc]:
    """``held``: the left operand is in registers."""
    depth = 256 // dt.bits(in_dtype)
    item = dt.bits(in_dtype) // 8

    def buffers(strided: bool) -> tuple[Buffer, Buffer, Buffer]:
        left = _registers("A", depth // 2, in_dtype) if held else _core("A", ROWS, depth, in_dtype, scope, strided)
        return left, _core("B", n, depth, in_dtype, scope, strided), _registers("C", n // 2, out_dtype)

    a, b, c = buffers(False)

    def update(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> tuple[Any, Any, Any]:
        at_a: list[Any] = list(_operand_place(i, k, depth)) if held else _at_core(i, k, in_dtype)
        at_b, at_c = _at_core(j, k, in_dtype), list(result_place(i, j))
        left, right = a[tuple(at_a)], b[tuple(at_b)]
        if in_dtype != out_dtype:
            left, right = Cast(out_dtype, left), Cast(out_dtype, right)
        return (c, c[tuple(at_c)] + left * right), at_c, [(c, at_c), (a, at_a), (b, at_b)]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("C", "SSR", (ROWS, n, depth), update))
    a, b, c = buffers(True)

    def shared(buffer: Buffer) -> list[Any]:
        far, near = buffer.strides[0] * item, buffer.strides[1] * item
        return [buffer.access_ptr("r"), near, far, 0, False]

    def multiply(thread: Var) -> SeqStmt:
        left = [a.data, a.elem_offset + thread * (depth // 2)] if held else shared(a)
        call = call_builtin(
            "", f"ptx_wgmma_{'rs' if held else 'ss'}", n, in_dtype, in_dtype, out_dtype, c.data,
            c.elem_offset + thread * (n // 2), *left, *shared(b), True,
        )  # fmt: skip
        steps = [
            call_builtin("", "ptx_wgmma_fence"),
            call,
            call_builtin("", "ptx_wgmma_commit"),
            call_builtin("", "ptx_wgmma_wait", 0),
        ]
        return SeqStmt([Evaluate(step) for step in steps])

    return desc, root_func([a, b, c], [c, a, b], [c], on_lanes(multiply, THREADS))


def _fill(n: int, dtype: str) -> tuple[PrimFunc, PrimFunc]:
    c = _registers("C", n // 2, dtype)

    def clear(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        return (c, const(0, dtype)), list(result_place(i, j)), []

    desc = root_func([c], [], [c], pointwise("C", "SS", (ROWS, n), clear))
    c = _registers("C", n // 2, dtype)

    def zeros(thread: Var) -> For:
        i = Var("i", "int32")
        return For(i, 0, n // 2, ForKind.SERIAL, BufferStore(c, const(0, dtype), [thread, i]))

    return desc, root_func([c], [], [c], on_lanes(zeros, THREADS))


def _store(n: int, dtype: str, scope: str) -> tuple[PrimFunc, PrimFunc]:
    def buffers(strided: bool) -> tuple[Buffer, Buffer]:
        strides: list[Any] = [Var("D_s0", "int32"), 1] if strided else []
        target = decl_buffer([ROWS, n], dtype, "D", scope=scope, strides=strides, data_alignment=64, offset_factor=1)
        return _registers("C", n // 2, dtype), target

    c, d = buffers(False)

    def copy(i: PrimExpr, j: PrimExpr) -> tuple[Any, Any, Any]:
        source = list(result_place(i, j))
        return (d, c[tuple(source)]), [i, j], [(c, source)]

    desc = root_func([c, d], [c], [d], pointwise("C", "SS", (ROWS, n), copy))
    c, d = buffers(True)

    def elements(thread: Var) -> For:
        i = Var("i", "int32")
        return For(i, 0, n // 2, ForKind.SERIAL, BufferStore(d, c[thread, i], list(warpgroup_result(thread, i))))

    return desc, root_func([c, d], [c], [d], on_lanes(elements, THREADS))


def _name(n: int, in_dtype: str, out_dtype: str, held: bool = False) -> str:
    short = _SHORT[in_dtype]
    return f"wgmma_{'rs_' if held else ''}m64n{n}k{256 // dt.bits(in_dtype)}_{short}{short}{_SHORT[out_dtype]}"


def _has(n: int, in_dtype: str) -> bool:
    return "int" not in in_dtype or n <= 24 or n % 16 == 0


def define() -> None:
    """Register every intrinsic of the family."""
    for n in COLUMNS:
        for in_dtype, out_dtype in _PRODUCTS:
            if not _has(n, in_dtype):
                continue
            for held in (False, True):
                name = _name(n, in_dtype, out_dtype, held)
                for scope, suffix in (("shared", ""), ("shared.dyn", "_dyn")):
                    TensorIntrin.declare(name + suffix, partial(_sync, n, in_dtype, out_dtype, scope, held))
        for dtype in ("float32", "float16", "int32"):
            TensorIntrin.declare(f"wgmma_fill_m64n{n}_{_SHORT[dtype]}", partial(_fill, n, dtype))
            for scope in ("global", "shared", "shared.dyn"):
                name = f"wgmma_store_m64n{n}_{_SHORT[dtype]}_{scope.replace('.', '_')}"
                TensorIntrin.declare(name, partial(_store, n, dtype, scope))


def get_wgmma_intrin_group(
    n: int,
    in_dtype: str,
    out_dtype: str,
    load_scope: str = "shared.dyn",
    store_scope: str = "global",
    a_in_registers: bool = False,
) -> dict[str, str]:
    """Names of the intrinsics for products of 64 x n: init, compute and store.

    Raises ValueError for a width or dtypes that there is no intrinsic for.

    >>> get_wgmma_intrin_group(128, "float16", "float32")["compute"]
    'wgmma_m64n128k16_f16f16f32_dyn'
    """
    if n not in COLUMNS or (in_dtype, out_dtype) not in _PRODUCTS or not _has(n, in_dtype):
        raise ValueError(f"there is no wgmma of {n} columns from {in_dtype} to {out_dtype}")
    if load_scope not in ("shared", "shared.dyn") or store_scope not in ("global", "shared", "shared.dyn"):
        raise ValueError(f"wgmma does not go from {load_scope} to {store_scope}")
    short = _SHORT[out_dtype]
    return {
        "init": f"wgmma_fill_m64n{n}_{short}",
        "compute": _name(n, in_dtype, out_dtype, a_in_registers) + ("_dyn" if load_scope == "shared.dyn" else ""),
        "store": f"wgmma_store_m64n{n}_{short}_{store_scope.replace('.', '_')}",
    }
