"""``dp4a``: four 8-bit products summed into a 32-bit integer, on several GPUs."""

from __future__ import annotations

from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..function import PrimFunc, TensorIntrin
from ..op import call_pure_extern
from ..stmt import BufferStore
from .build import dot_description, root_func

__all__ = [
    "DP4A_S8S8S32_INTRIN", "DP4A_S8U8S32_INTRIN", "DP4A_U8S8S32_INTRIN", "DP4A_U8U8U32_INTRIN", "define",
]  # fmt: skip

DP4A_S8S8S32_INTRIN = "dp4a_s8s8s32"
DP4A_U8S8S32_INTRIN = "dp4a_u8s8s32"
DP4A_S8U8S32_INTRIN = "dp4a_s8u8s32"
DP4A_U8U8U32_INTRIN = "dp4a_u8u8u32"

_KINDS = {
    DP4A_S8S8S32_INTRIN: ("int8", "int8", "int32"),
    DP4A_U8S8S32_INTRIN: ("uint8", "int8", "int32"),
    DP4A_S8U8S32_INTRIN: ("int8", "uint8", "int32"),
    DP4A_U8U8U32_INTRIN: ("uint8", "uint8", "uint32"),
}


def _buffers(left: str, right: str, out: str) -> tuple[Buffer, Buffer, Buffer]:
    def make(name: str, length: int, dtype: str, scope: str) -> Buffer:
        return decl_buffer([length], dtype, name, scope=scope, data_alignment=4, offset_factor=1)

    return make("A", 4, left, "shared"), make("B", 4, right, "shared"), make("C", 1, out, "local")


def _pair(left: str, right: str, out: str) -> tuple[PrimFunc, PrimFunc]:
    a, b, c = _buffers(left, right, out)
    desc = dot_description(
        a, b, c, [("i", 4, "R")], lambda i: [0],
        lambda i: (a[i].astype(out) * b[i].astype(out), [(a, [i]), (b, [i])]),
    )  # fmt: skip
    a, b, c = _buffers(left, right, out)
    words = a.vload([0], f"{left}x4"), b.vload([0], f"{right}x4")
    value = c[0] + call_pure_extern(out, "__dp4a", *words, const(0, out))
    return desc, root_func([a, b, c], [c, a, b], [c], BufferStore(c, value, [0]))


def define() -> None:
    """Register the four sign combinations."""
    for name, dtypes in _KINDS.items():
        TensorIntrin.register(name, *_pair(*dtypes))
