"""``mma.sync`` of shape m16n8k8 on matrices in the register scopes ``m16n8k8.matrixA``, ``matrixB`` and ``matrixC``.

Buffers in these scopes keep their matrix shape; TransformMmaBufferLayout gives each thread its elements.
Source: PTX ISA, "Matrix fragments for mma.m16n8k8".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import ExprLike, PrimExpr
from ...ir.prim import Cast, const
from ..buffer import Buffer, decl_buffer
from ..expr import Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin
from ..stmt import BufferStore, Evaluate, For, ForKind
from .build import copy_nest, on_lanes, pointwise, root_func
from .mma_fragments import pair

__all__ = ["define", "get_mma_intrin_group"]

_M, _N, _K = 16, 8, 8
_DTYPES = {"f16": "float16", "f32": "float32"}
_PTX = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
_SCOPE = "m16n8k8.matrix"


def _tile(name: str, shape: tuple[int, int], dtype: str, scope: str, strided: bool = False) -> Buffer:
    strides = [Var(f"{name}_s1", "int32"), Var(f"{name}_s0", "int32")] if strided else []
    return decl_buffer(list(shape), dtype, name, strides=strides, scope=scope, data_alignment=64, offset_factor=1)


def _register(buffer: Buffer, matrix: str) -> PrimExpr:
    """The first register of a tile: registers go by blocks of the whole matrix, 8 x 8 matrices within a block."""
    stride = buffer.strides[0]
    i, j = buffer.elem_offset // stride, buffer.elem_offset % stride
    if matrix == "A":
        return i // 32 * (stride // 8) * 8 + j // 8 * 8 + i % 32 // 16 * 4
    if matrix == "B":
        return i // 8 * (stride // 32) * 8 + j // 32 * 8 + j % 32 // 8 * 2
    return i // 16 * (stride // 8) * 4 + j // 8 * 4 + i % 16 // 8 * 2


def _pair(lane: Var, body: Callable[..., Any], rows: ExprLike = 0) -> For:
    """``body`` of the two neighbouring elements that a lane has in an 8 x 8 matrix."""
    element = Var("v", "int32")
    row, column = pair(lane, element)
    return For(element, 0, 2, ForKind.VECTORIZED, body([rows + row, column]))


def _init(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    c = _tile("C", (_M, _N), dtype, _SCOPE + "C")
    zero = const(0, dtype)
    desc = root_func([c], [], [c], pointwise("init", "SS", (_M, _N), lambda i, j: ((c, zero), [i, j], [])))
    c = _tile("C", (_M, _N), dtype, _SCOPE + "C", True)

    def clear(lane: Var) -> For:
        half = Var("b", "int32")
        return For(half, 0, 2, ForKind.SERIAL, _pair(lane, lambda at: BufferStore(c, zero, at), half * 8))

    return desc, root_func([c], [], [c], on_lanes(clear))


def _load(matrix: str, dtype: str, scope: str) -> tuple[PrimFunc, PrimFunc]:
    """Four 8 x 8 matrices, one below the other (A) or side by side (B, transposed on its way)."""
    shape = (32, 8) if matrix == "A" else (8, 32)

    def buffers(strided: bool) -> tuple[Buffer, Buffer]:
        return _tile("A", shape, dtype, scope, strided), _tile("C", shape, dtype, _SCOPE + matrix, strided)

    source, target = buffers(False)
    desc = root_func([source, target], [source], [target], copy_nest("load", source, target))
    source, target = buffers(True)

    def fetch(lane: Var) -> Evaluate:
        stride = source.strides[0]
        where = lane * stride if matrix == "A" else lane % 8 * stride + lane // 8 * 8
        return Evaluate(call_builtin(
            dtype, "ptx_ldmatrix", matrix == "B", 4, ".b16", target.data, _register(target, matrix),
            source.access_ptr("r"), where,
        ))  # fmt: skip

    return desc, root_func([source, target], [source], [target], on_lanes(fetch))


def _sync(in_dtype: str, out_dtype: str) -> tuple[PrimFunc, PrimFunc]:
    def buffers(strided: bool) -> tuple[Buffer, Buffer, Buffer]:
        return (
            _tile("A", (_M, _K), in_dtype, _SCOPE + "A", strided),
            _tile("B", (_K, _N), in_dtype, _SCOPE + "B", strided),
            _tile("C", (_M, _N), out_dtype, _SCOPE + "C", strided),
        )

    def wide(value: PrimExpr) -> PrimExpr:
        return value if in_dtype == out_dtype else Cast(out_dtype, value)

    a, b, c = buffers(False)

    def update(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> tuple[Any, Any, Any]:
        value = c[i, j] + wide(a[i, k]) * wide(b[k, j])
        return (c, value), [i, j], [(c, [i, j]), (a, [i, k]), (b, [k, j])]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("C", "SSR", (_M, _N, _K), update))
    a, b, c = buffers(True)
    call = call_builtin(
        out_dtype, "ptx_mma", "m16n8k8", "row", "col", _PTX[in_dtype], _PTX[in_dtype], _PTX[out_dtype],
        a.data, _register(a, "A"), b.data, _register(b, "B"), c.data, _register(c, "C"), False,
    )  # fmt: skip
    return desc, root_func([a, b, c], [c, a, b], [c], on_lanes(lambda lane: Evaluate(call)))


def _store(dtype: str, scope: str) -> tuple[PrimFunc, PrimFunc]:
    """One 8 x 8 matrix of the results."""

    def buffers(strided: bool) -> tuple[Buffer, Buffer]:
        return _tile("A", (8, 8), dtype, _SCOPE + "C", strided), _tile("C", (8, 8), dtype, scope, strided)

    source, target = buffers(False)
    desc = root_func([source, target], [source], [target], copy_nest("store", source, target))
    source, target = buffers(True)
    body = on_lanes(lambda lane: _pair(lane, lambda at: BufferStore(target, source[tuple(at)], at)))
    return desc, root_func([source, target], [source], [target], body)


def define() -> None:
    """Register every intrinsic of the shape."""
    for short, dtype in _DTYPES.items():
        TensorIntrin.register(f"mma_init_m16n8k8_{short}", *_init(dtype))
        TensorIntrin.register(f"mma_store_m16n8k8_{short}_global", *_store(dtype, "global"))
        TensorIntrin.register(f"mma_sync_m16n8k8_f16f16{short}", *_sync("float16", dtype))
    for matrix in "AB":
        for short, dtype in (("f16", "float16"), ("bf16", "bfloat16")):
            TensorIntrin.register(f"mma_load_m16n8k8_{short}_{matrix}_shared_dyn", *_load(matrix, dtype, "shared.dyn"))
    TensorIntrin.register("mma_sync_m16n8k8_bf16bf16f32", *_sync("bfloat16", "float32"))


def get_mma_intrin_group(store_scope: str = "global", out_dtype: str = "float16") -> dict[str, str]:
    """Names of the intrinsics for one product: init, load_a, load_b, compute and store.

    >>> get_mma_intrin_group(out_dtype="float32")["compute"]
    'mma_sync_m16n8k8_f16f16f32'
    """
    short = {long: name for name, long in _DTYPES.items()}[out_dtype]
    return {
        "init": f"mma_init_m16n8k8_{short}",
        "load_a": "mma_load_m16n8k8_f16_A_shared_dyn",
        "load_b": "mma_load_m16n8k8_f16_B_shared_dyn",
        "compute": f"mma_sync_m16n8k8_f16f16{short}",
        "store": f"mma_store_m16n8k8_{short}_{store_scope}",
    }
