"""Dot product of AMD GPUs: four 8-bit products summed into a 32-bit integer.

Source: AMD CDNA3 Instruction Set Architecture, "V_DOT4_I32_I8".
"""

from __future__ import annotations

from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_pure_intrin, reinterpret
from ..stmt import BufferStore
from .build import dot_description, root_func

__all__ = ["AMDGPU_SDOT4_INTRIN", "define"]

AMDGPU_SDOT4_INTRIN = "sdot4"


def _buffers() -> tuple[Buffer, Buffer, Buffer]:
    def make(name: str, length: int, dtype: str, scope: str) -> Buffer:
        return decl_buffer([length], dtype, name, scope=scope, data_alignment=4, offset_factor=1)

    return make("A", 4, "int8", "shared"), make("B", 4, "int8", "shared"), make("C", 1, "int32", "local")


def _sdot4() -> tuple[PrimFunc, PrimFunc]:
    a, b, c = _buffers()
    desc = dot_description(
        a, b, c, [("i", 4, "R")], lambda i: [0],
        lambda i: (a[i].astype("int32") * b[i].astype("int32"), [(a, [i]), (b, [i])]),
    )  # fmt: skip
    a, b, c = _buffers()
    words = [reinterpret("int32", x.vload([0], "int8x4")) for x in (a, b)]
    value = call_llvm_pure_intrin("int32", "llvm.amdgcn.sdot4", *words, const(0, "int32"), const(True))
    return desc, root_func([a, b, c], [c, a, b], [c], BufferStore(c, c[0] + value, [0]))


def define() -> None:
    """Register it, and those of the matrix cores."""
    from . import rocm_mfma

    TensorIntrin.register(AMDGPU_SDOT4_INTRIN, *_sdot4())
    rocm_mfma.define()
