"""Constants for the names of the CUDA intrinsics, such as ``WMMA_FILL_16x16x16_F32_INTRIN``."""

from __future__ import annotations

import functools

__all__ = ["constants"]

_SCOPES = ("SHARED", "SHARED_DYN", "GLOBAL")


def _wmma() -> dict[str, str]:
    found = {"WMMA_SYNC_8x8x32_s4s4s32_TRANS_INTRIN": "wmma_sync_8x8x32_s4s4s32_trans"}
    for types in ("f16f16f32", "f16f16f16", "s8s8s32"):
        for trans in ("", "_trans"):
            found[f"WMMA_SYNC_16x16x16_{types}{trans.upper()}_INTRIN"] = f"wmma_sync_16x16x16_{types}{trans}"
    fragments = [("16x16x16", kind, side, trans) for kind in ("f16", "s8") for side in "ab" for trans in ("", "_trans")]
    for shape, kind, side, trans in [*fragments, ("8x8x32", "s4", "a", ""), ("8x8x32", "s4", "b", "_trans")]:
        tile = f"{shape}_{kind}_{side}{trans}"
        constant = f"WMMA_LOAD_{shape}_{kind.upper()}_{side.upper()}{trans.upper()}"
        found[f"{constant}_INTRIN"] = f"wmma_load_{tile}_shared"
        found[f"{constant}_DYN_INTRIN"] = f"wmma_load_{tile}_shared_dyn"
    for shape, kind in (("16x16x16", "f32"), ("16x16x16", "f16"), ("16x16x16", "s32"), ("8x8x32", "s32")):
        found[f"WMMA_FILL_{shape}_{kind.upper()}_INTRIN"] = f"wmma_fill_{shape}_{kind}"
        for scope in _SCOPES:
            found[f"WMMA_STORE_{shape}_{kind.upper()}_{scope}_INTRIN"] = f"wmma_store_{shape}_{kind}_{scope.lower()}"
    return found


def _mma() -> dict[str, str]:
    found = {
        "MMA_store_16x16_f32_shared_dyn_INTRIN": "mma_store_16x16_f32_shared_dyn_",
        "MMA_store_16x16_f32_shared_dyn_INTRIN_SIMPLE": "mma_store_16x16_f32_shared_dyn_simple_",
        "MMA_store_16x16_f16_shared_dyn_INTRIN_SIMPLE": "mma_store_16x16_f16_shared_dyn_simple_",
    }
    forms = [("f16", f"{side}{trans}{dyn}") for side in "ab" for trans in ("", "_trans") for dyn in ("", "_dyn")]
    forms += [(kind, form) for kind in ("i8", "e4m3", "e5m2") for form in ("a", "b", "b_trans")]
    for kind, form in forms:
        found[f"LDMATRIX_{kind}_{form.upper()}_INTRIN"] = f"mma_ldmatrix_{kind}_{form}"
    products = [(f"f16f16{out}", a + b) for out in ("f32", "f16") for a in ("", "_trans_a") for b in ("", "_trans_b")]
    products += [(types, b) for types in ("i8i8i32", "e4m3e4m3f32", "e5m2e5m2f32") for b in ("", "_trans_b")]
    for types, trans in products:
        found[f"MMA_{types}{trans.upper()}_INTRIN"] = f"mma_{types}{trans}"
    for kind in ("f32", "f16", "i32"):
        found[f"MMA_fill_16x16_{kind}_INTRIN"] = f"mma_fill_16x16_{kind}"
        found[f"MMA_store_16x16_{kind}_global_INTRIN"] = f"mma_store_16x16_{kind}_global_"
    return found


@functools.cache
def constants() -> dict[str, str]:
    """Constant -> registered name.

    >>> constants()["LDMATRIX_f16_B_TRANS_INTRIN"]
    'mma_ldmatrix_f16_b_trans'
    """
    return _wmma() | _mma()
