"""AMX tiles: a 16 x 16 result tile updated by one tile multiplication.

Operand B is packed: ``B[k // pack, n, k % pack]`` with two bf16 or four 8-bit values to a 32-bit word.
The implementation is one call with the addresses and row strides (in elements) of the three tiles::

    call_llvm_intrin("int32", "amx.tdpbf16ps", c, c_stride, a, a_stride, b, b_stride)

which a backend may expand into tile loads, the multiplication and a tile store, keeping tiles in registers
across consecutive calls, or into vector code where the machine has no tiles.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ..buffer import Buffer
from ..function import PrimFunc, TensorIntrin
from ..op import call_llvm_intrin
from ..stmt import Evaluate
from .build import dot_description, intrin_buffer, root_func

__all__ = ["AMX_DOT_16x16x32_BF16_INTRIN", "AMX_DOT_16x16x64_INTRINS", "define"]

AMX_DOT_16x16x32_BF16_INTRIN = "amx_dot_16x16x32_bf16bf16f32"
# Name of the intrinsic -> (type of A, type of B, instruction).
AMX_DOT_16x16x64_INTRINS = {
    "amx_dot_16x16x64_u8s8s32": ("uint8", "int8", "amx.tdpbusd"),
    "amx_dot_16x16x64_s8s8s32": ("int8", "int8", "amx.tdpbssd"),
    "amx_dot_16x16x64_u8u8s32": ("uint8", "uint8", "amx.tdpbuud"),
    "amx_dot_16x16x64_s8u8s32": ("int8", "uint8", "amx.tdpbsud"),
}


def _buffers(a_type: str, b_type: str, c_type: str, depth: int, pack: int, strided: bool) -> tuple[Any, Any, Any]:
    return (
        intrin_buffer([16, depth], a_type, "A", strided=strided),
        intrin_buffer([depth // pack, 16, pack], b_type, "B", strided=strided),
        intrin_buffer([16, 16], c_type, "C", strided=strided),
    )


def _description(a_type: str, b_type: str, c_type: str, depth: int, pack: int) -> PrimFunc:
    a, b, c = _buffers(a_type, b_type, c_type, depth, pack, False)

    def value(i: PrimExpr, j: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, list[tuple[Buffer, list[PrimExpr]]]]:
        packed = [k // pack, j, k % pack]
        product = a[i, k].astype(c_type) * b[tuple(packed)].astype(c_type)
        return product, [(a, [i, k]), (b, packed)]

    return dot_description(a, b, c, [("i", 16, "S"), ("j", 16, "S"), ("k", depth, "R")], lambda i, j, k: [i, j], value)


def _implementation(a_type: str, b_type: str, c_type: str, depth: int, pack: int, name: str) -> PrimFunc:
    a, b, c = _buffers(a_type, b_type, c_type, depth, pack, True)
    call = call_llvm_intrin(
        "int32",
        name,
        c.access_ptr("rw"),
        c.strides[0],
        a.access_ptr("r"),
        a.strides[0],
        b.access_ptr("r"),
        b.strides[0],
    )
    return root_func([a, b, c], [c, a, b], [c], Evaluate(call))


def define() -> None:
    """Register all."""
    shape = ("bfloat16", "bfloat16", "float32", 32, 2)
    TensorIntrin.register(
        AMX_DOT_16x16x32_BF16_INTRIN, _description(*shape), _implementation(*shape, "amx.tdpbf16ps"), override=True
    )
    for intrin, (a_type, b_type, name) in AMX_DOT_16x16x64_INTRINS.items():
        TensorIntrin.register(
            intrin,
            _description(a_type, b_type, "int32", 64, 4),
            _implementation(a_type, b_type, "int32", 64, 4, name),
            override=True,
        )
