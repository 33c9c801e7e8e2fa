"""SIMD-group matrices of Apple GPUs: 8 x 8 fragments that the threads of a SIMD group hold together.

Source: Metal Shading Language Specification, "SIMD-group Matrix Functions".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..expr import Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin
from ..stmt import Evaluate
from .build import copy_nest, pointwise, root_func

__all__ = ["define", "get_simdgroup_intrin_group"]

_SIDE = 8
_SCOPE = "metal.simdgroup"
_SHORT = {"float16": "f16"}


def _tile(name: str, dtype: str, scope: str, strided: bool) -> Buffer:
    strides = [Var(f"{name}_s1", "int32"), Var(f"{name}_s0", "int32")] if strided else []
    return decl_buffer([_SIDE, _SIDE], dtype, name, strides=strides, scope=scope, offset_factor=1)


def _index(buffer: Buffer) -> PrimExpr:
    """Which fragment of its fragment buffer a tile is."""
    stride = buffer.strides[0]
    return buffer.elem_offset // stride // _SIDE * (stride // _SIDE) + buffer.elem_offset % stride // _SIDE


def _fill(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    a = _tile("A", dtype, _SCOPE, False)
    zero = const(0, dtype)
    desc = root_func([a], [], [a], pointwise("init", "SS", (_SIDE, _SIDE), lambda i, j: ((a, zero), [i, j], [])))
    d = _tile("D", dtype, _SCOPE, True)
    call = call_builtin("handle", "make_filled_simdgroup_matrix", d.data, _index(d), zero, _SIDE, _SIDE)
    return desc, root_func([d], [], [d], Evaluate(call))


def _load(dtype: str, scope: str, transposed: bool) -> tuple[PrimFunc, PrimFunc]:
    a, c = _tile("A", dtype, scope, False), _tile("C", dtype, _SCOPE, False)

    def at(i: PrimExpr, j: PrimExpr) -> tuple[Any, Sequence[Any], list[Any]]:
        target = [j, i] if transposed else [i, j]
        return (c, a[i, j]), target, [(a, [i, j])]

    desc = root_func([a, c], [a], [c], pointwise("load", "SS", (_SIDE, _SIDE), at))
    a, c = _tile("A", dtype, scope, True), _tile("C", dtype, _SCOPE, True)
    call = call_builtin(
        "handle", "simdgroup_load", c.data, _index(c), a.access_ptr("r"), a.strides[0], _SIDE, _SIDE, transposed
    )
    return desc, root_func([a, c], [a], [c], Evaluate(call))


def _store(dtype: str, scope: str) -> tuple[PrimFunc, PrimFunc]:
    a, c = _tile("A", dtype, _SCOPE, False), _tile("C", dtype, scope, False)
    desc = root_func([a, c], [a], [c], copy_nest("store", a, c))
    a, c = _tile("A", dtype, _SCOPE, True), _tile("C", dtype, scope, True)
    call = call_builtin(
        "handle", "simdgroup_store", a.data, _index(a), c.access_ptr("w"), c.strides[0], _SIDE, _SIDE, False
    )
    return desc, root_func([a, c], [a], [c], Evaluate(call))


def _multiply(dtype: str) -> tuple[PrimFunc, PrimFunc]:
    def tiles(strided: bool) -> tuple[Buffer, ...]:
        return tuple(_tile(name, dtype, _SCOPE, strided) for name in "ABC")

    a, b, c = tiles(False)

    def update(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> tuple[Any, Sequence[Any], list[Any]]:
        return (c, c[i, j] + a[i, k] * b[k, j]), [i, j], [(c, [i, j]), (a, [i, k]), (b, [k, j])]

    desc = root_func([a, b, c], [c, a, b], [c], pointwise("update", "SSR", (_SIDE,) * 3, update))
    a, b, c = tiles(True)
    held = (c.data, _index(c))
    call = call_builtin("handle", "simdgroup_multiply_accumulate", *held, a.data, _index(a), b.data, _index(b), *held)
    return desc, root_func([a, b, c], [c, a, b], [c], Evaluate(call))


def define() -> None:
    """Register every SIMD-group intrinsic."""
    TensorIntrin.register("simdgroup_make_filled_8x8x8_f16", *_fill("float16"))
    TensorIntrin.register("simdgroup_fill_8x8x8_f32", *_fill("float32"))
    TensorIntrin.register("simdgroup_fill_8x8x8_bf16", *_fill("bfloat16"))
    TensorIntrin.register("simdgroup_load_8x8x8_f16_shared", *_load("float16", "shared", False))
    TensorIntrin.register("simdgroup_load_8x8x8_f16_shared_trans", *_load("float16", "shared", True))
    for scope in ("global", "shared"):
        TensorIntrin.register(f"simdgroup_store_8x8x8_f16_{scope}", *_store("float16", scope))
    TensorIntrin.register("simdgroup_multiply_accumulate_8x8x8_f16", *_multiply("float16"))


def get_simdgroup_intrin_group(
    load_scope: str, store_scope: str, dtype: str, trans_a: bool = False, trans_b: bool = False
) -> dict[str, str]:
    """Names of the intrinsics for one product: init, load_a, load_b, compute and store.

    Raises ValueError for scopes or dtypes that the instructions do not have.

    >>> from relaxish.tir.tensor_intrin.metal import get_simdgroup_intrin_group
    >>> get_simdgroup_intrin_group("shared", "global", "float16", trans_b=True)["load_b"]
    'simdgroup_load_8x8x8_f16_shared_trans'
    """
    for what, value, known in (
        ("load_scope", load_scope, ("shared",)),
        ("store_scope", store_scope, ("global", "shared")),
        ("dtype", dtype, tuple(_SHORT)),
    ):
        if value not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, not {value}")
    kind = f"8x8x8_{_SHORT[dtype]}"
    return {
        "init": f"simdgroup_make_filled_{kind}",
        "load_a": f"simdgroup_load_{kind}_{load_scope}{'_trans' if trans_a else ''}",
        "load_b": f"simdgroup_load_{kind}_{load_scope}{'_trans' if trans_b else ''}",
        "compute": f"simdgroup_multiply_accumulate_{kind}",
        "store": f"simdgroup_store_{kind}_{store_scope}",
    }
