"""Tensor intrinsics for fuzzing: small products and copies, whose implementations are plain loops over views."""

from __future__ import annotations

from functools import cache

from ...tir import PrimFunc, TensorIntrin

__all__ = ["COPIES", "PRODUCTS", "register_intrinsics"]

PRODUCTS = {f"fuzz.product_{m}x{n}x{k}": (m, n, k) for m in (1, 2, 4) for n in (2, 4) for k in (2, 3)}
COPIES = {f"fuzz.copy_{n}": n for n in (2, 3, 4)}

_PRODUCT = """
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, ({m}, {k}), "float32"{a})
    B = T.match_buffer(b, ({k}, {n}), "float32"{b})
    C = T.match_buffer(c, ({m}, {n}), "float32"{c})
    with T.block("root"):
        T.reads(C[0:{m}, 0:{n}], A[0:{m}, 0:{k}], B[0:{k}, 0:{n}])
        T.writes(C[0:{m}, 0:{n}])
        for i, j, k in T.grid({m}, {n}, {k}):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

_COPY = """
@T.prim_func
def copy(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, ({n},), "float32"{a})
    B = T.match_buffer(b, ({n},), "float32"{b})
    with T.block("root"):
        T.reads(A[0:{n}])
        T.writes(B[0:{n}])
        for i in range({n}):
            with T.block("copy"):
                v = T.axis.spatial({n}, i)
                B[v] = A[v]
"""


def _strided(name: str, rank: int) -> str:
    """The layout of a view into a larger buffer."""
    strides = ", ".join(f'"s_{name}{axis}"' for axis in range(rank))
    return f", strides=[{strides}], offset_factor=1"


def _function(template: str, views: bool, **sizes: int) -> PrimFunc:
    from ...script import from_source

    rank = 1 if template is _COPY else 2
    layouts = {name: _strided(name, rank) if views else ", offset_factor=1" for name in "abc"}
    made = from_source(template.format(**sizes, **layouts))
    assert isinstance(made, PrimFunc)
    return made


@cache
def register_intrinsics() -> None:
    """Make the intrinsics known; traces that use them name them only."""
    for name, (m, n, k) in PRODUCTS.items():
        sizes = {"m": m, "n": n, "k": k}
        TensorIntrin.register(
            name, _function(_PRODUCT, False, **sizes), _function(_PRODUCT, True, **sizes), override=True
        )
    for name, size in COPIES.items():
        TensorIntrin.register(name, _function(_COPY, False, n=size), _function(_COPY, True, n=size), override=True)
