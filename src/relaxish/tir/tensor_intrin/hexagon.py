"""Dot products of the Hexagon vector unit, and copies to its tightly coupled memory by DMA.

Source: Qualcomm Hexagon V66 HVX Programmer's Reference Manual (VRMPY, VDMPY).
"""

from __future__ import annotations

from ...ir.expr import Range
from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..expr import Broadcast, Call, IterVar, Ramp, Var
from ..function import PrimFunc, TensorIntrin
from ..op import call_builtin, call_llvm_pure_intrin, reinterpret
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, ForKind
from .build import dot_description, root_func

__all__ = [
    "DMA_READ_128_i8", "DMA_READ_128_u8", "VDMPY_i16i16i32_INTRIN", "VRMPY_u8i8i32_INTRIN", "VRMPY_u8i8i32_VTCM_INTRIN",
    "VRMPY_u8u8i32_INTRIN", "VRMPY_u8u8i32_VTCM_INTRIN", "define",
]  # fmt: skip

VRMPY_u8u8i32_INTRIN = "dot_32x4_u8u8i32_vrmpy"
VRMPY_u8i8i32_INTRIN = "dot_32x4_u8i8i32_vrmpy"
VDMPY_i16i16i32_INTRIN = "dot_product_32x2_i16i16i32_vdmpy"
VRMPY_u8u8i32_VTCM_INTRIN = "dot_32x4_u8u8i32_vtcm_vrmpy"
VRMPY_u8i8i32_VTCM_INTRIN = "dot_32x4_u8i8i32_vtcm_vrmpy"
DMA_READ_128_u8 = "dma_read_128_u8"
DMA_READ_128_i8 = "dma_read_128_i8"

_LANES = 32
_VTCM = "global.vtcm"


def _buffers(left: str, right: str, depth: int, scope: str) -> tuple[Buffer, Buffer, Buffer]:
    """A row of ``depth`` values, a matrix of 32 such rows, 32 sums."""

    def make(name: str, shape: list[int], dtype: str) -> Buffer:
        return decl_buffer(shape, dtype, name, scope=scope, offset_factor=1)

    return make("A", [depth], left), make("B", [_LANES, depth], right), make("C", [_LANES], "int32")


def _dot(
    left: str, right: str, depth: int, instruction: str, scope: str = "global", *, by_word: bool = False
) -> tuple[PrimFunc, PrimFunc]:
    """``by_word``: the instruction takes A as one word, not repeated in all lanes."""
    a, b, c = _buffers(left, right, depth, scope)
    desc = dot_description(
        a, b, c, [("i", _LANES, "S"), ("k", depth, "R")], lambda i, k: [i],
        lambda i, k: (a[k].astype("int32") * b[i, k].astype("int32"), [(a, [k]), (b, [i, k])]),
    )  # fmt: skip
    a, b, c = _buffers(left, right, depth, scope)
    word = reinterpret("int32", a.vload([0], f"{left}x{depth}"))
    rows = reinterpret(f"int32x{_LANES}", b.vload([0, 0], f"{right}x{_LANES * depth}"))
    operands = (rows, word) if by_word else (Broadcast(word, _LANES), rows)
    total = c.vload([0], f"int32x{_LANES}")
    value = call_llvm_pure_intrin(f"int32x{_LANES}", instruction, total, *operands)
    lanes = Ramp(const(0, "int32"), const(1, "int32"), const(_LANES, "int32"))
    return desc, root_func([a, b, c], [c, a, b], [c], BufferStore(c, value, [lanes]))


def _dma_read(size: int, dtype: str) -> tuple[PrimFunc, PrimFunc]:
    """A row of ``size`` values, copied from main memory."""

    def rows() -> tuple[Buffer, Buffer]:
        def make(name: str, scope: str) -> Buffer:
            return decl_buffer([size], dtype, name, scope=scope, offset_factor=1, data_alignment=size)

        return make("A", "global"), make("C", _VTCM)

    def array(buffer: Buffer) -> Call:
        shape = call_builtin("handle", "tvm_stack_make_shape", size)
        return call_builtin("handle", "tvm_stack_make_array", buffer.data, shape, 0, 1, const(0, dtype), 0)

    a, c = rows()
    loop, axis = Var("i", "int32"), IterVar(Range(0, size), Var("vi", "int32"), IterVar.DataPar)

    def point(buffer: Buffer) -> BufferRegion:
        return BufferRegion(buffer, [Range.from_min_extent(axis.var, const(1, "int32"))])

    block = Block([axis], [point(a)], [point(c)], "load", BufferStore(c, a[axis.var], [axis.var]))
    body = For(loop, 0, size, ForKind.SERIAL, BlockRealize([loop], const(True), block))
    desc = root_func([c, a], [a], [c], body)
    a, c = rows()
    copy = call_builtin(
        "int32", "tvm_call_packed", "device_api.hexagon.dma_copy_dltensor", array(c), array(a),
        const(size, "int32"), const(False),
    )  # fmt: skip
    return desc, root_func([c, a], [a], [c], Evaluate(copy))


def define() -> None:
    """Register all of them."""
    ub, bus = (f"llvm.hexagon.V6.vrmpy{kind}.acc.128B" for kind in ("ub", "busv"))
    TensorIntrin.register(VRMPY_u8u8i32_INTRIN, *_dot("uint8", "uint8", 4, ub, by_word=True))
    TensorIntrin.register(VRMPY_u8i8i32_INTRIN, *_dot("uint8", "int8", 4, bus))
    TensorIntrin.register(VDMPY_i16i16i32_INTRIN, *_dot("int16", "int16", 2, "llvm.hexagon.V6.vdmpyhvsat.acc.128B"))
    TensorIntrin.register(VRMPY_u8u8i32_VTCM_INTRIN, *_dot("uint8", "uint8", 4, ub, _VTCM, by_word=True))
    TensorIntrin.register(VRMPY_u8i8i32_VTCM_INTRIN, *_dot("uint8", "int8", 4, bus, _VTCM))
    TensorIntrin.register(DMA_READ_128_u8, *_dma_read(128, "uint8"))
    TensorIntrin.register(DMA_READ_128_i8, *_dma_read(128, "int8"))
