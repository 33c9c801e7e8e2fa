"""Tensor cores: ``mma.sync`` with ``ldmatrix``, and the whole-fragment functions of ``nvcuda::wmma``.

Each ``mma.sync`` that a file uses becomes one device function of its own, named by shape, layouts and types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....ir.op import op_name_of
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call
from ....support.errors import RelaxishError
from .table import constant_argument, prints
from .types import type_name

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__ = ["FRAGMENT_SCOPES", "fragment_element"]

FRAGMENT_SCOPES = {"wmma.matrix_a": "matrix_a", "wmma.matrix_b": "matrix_b", "wmma.accumulator": "accumulator"}

# Names that programs use for operand types -> (PTX type, bits).
_TYPES = {
    "f16": ("f16", 16), "fp16": ("f16", 16), "float16": ("f16", 16), "bf16": ("bf16", 16), "bfloat16": ("bf16", 16),
    "tf32": ("tf32", 32), "f32": ("f32", 32), "fp32": ("f32", 32), "float32": ("f32", 32), "f64": ("f64", 64),
    "fp64": ("f64", 64), "float64": ("f64", 64), "s8": ("s8", 8), "int8": ("s8", 8), "u8": ("u8", 8), "uint8": ("u8", 8),
    "s4": ("s4", 4), "int4": ("s4", 4), "u4": ("u4", 4), "uint4": ("u4", 4), "b1": ("b1", 1), "int1": ("b1", 1),
    "uint1": ("b1", 1), "bit": ("b1", 1), "s32": ("s32", 32), "int32": ("s32", 32), "e4m3": ("e4m3", 8),
    "float8_e4m3fn": ("e4m3", 8), "e4m3_float8": ("e4m3", 8), "e5m2": ("e5m2", 8), "float8_e5m2": ("e5m2", 8),
    "e5m2_float8": ("e5m2", 8),
}  # fmt: skip
_REGISTERS = {"f32": ("f", "float"), "s32": ("r", "unsigned int"), "f64": ("d", "double")}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def _ptx_type(name: str) -> tuple[str, int]:
    found = _TYPES.get(str(name).lstrip("."))
    if found is None:
        raise RelaxishError(f"mma.sync has no operands of type {name}")
    return found


@dataclass(frozen=True)
class _Multiply:
    """One form of ``mma.sync``."""

    shape: str
    layouts: tuple[str, str]
    types: tuple[str, str, str]
    sparse: int | None = None
    saturate: bool = False
    bit_op: str = ""

    @property
    def name(self) -> str:
        """Name of the device function."""
        sparse = "" if self.sparse is None else f"_sp{self.sparse}"
        a, b, c = (_ptx_type(t)[0] for t in self.types)
        bit_op = f"_{self.bit_op}" if self.bit_op else ""
        return f"mma{sparse}_{self.shape}_{'_'.join(self.layouts)}_{c}_{a}_{b}{bit_op}{'_sat' if self.saturate else ''}"

    def counts(self) -> tuple[int, int, int]:
        """Registers of A, B and C in one thread. Raises RelaxishError for a shape that there is not."""
        match = _SHAPE.fullmatch(self.shape)
        if match is None:
            raise RelaxishError(f"mma.sync has no shape {self.shape}")
        m, n, k = (int(v) for v in match.groups())
        a, b, c = (_ptx_type(t) for t in self.types)
        if self.shape == "m8n8k4" and a[0] == "f16":
            # Four products at a time, one for each quarter of the warp.
            return 2, 2, 8 * c[1] // 32
        halves = 1 if self.sparse is None else 2
        return _words(m * k // halves, a[1]), _words(k * n, b[1]), _words(m * n, c[1])

    def text(self) -> str:
        """The device function."""
        (a, _), (b, _), (c, _) = (_ptx_type(t) for t in self.types)
        count_a, count_b, count_c = self.counts()
        wide_c = [f"%{i}" for i in range(count_c)]
        regs_a = [f"%{count_c + i}" for i in range(count_a)]
        regs_b = [f"%{count_c + count_a + i}" for i in range(count_b)]
        kinds = [_REGISTERS.get(t, ("r", "unsigned int")) for t in (a, b, c)]
        instruction = ".".join(
            ["mma", *(["sp"] if self.sparse is not None else []), "sync.aligned", self.shape, *self.layouts,
             *(["satfinite"] if self.saturate else []), c, a, b, c,
             *([f"{self.bit_op}.popc"] if self.bit_op else [])]
        )  # fmt: skip
        operands = [f"{{{', '.join(r)}}}" for r in (wide_c, regs_a, regs_b, wide_c)]
        inputs = [f'"{kinds[0][0]}"(a[{i}])' for i in range(count_a)] + [
            f'"{kinds[1][0]}"(b[{i}])' for i in range(count_b)
        ]
        params = f"void* c_, const void* a_, const void* b_{', unsigned int e' if self.sparse is not None else ''}"
        if self.sparse is not None:
            operands.append(f"%{count_c + count_a + count_b}, {hex(self.sparse)}")
            inputs.append('"r"(e)')
        outputs = ", ".join(f'"+{kinds[2][0]}"(c[{i}])' for i in range(count_c))
        return (
            f"RX_DEVICE void {self.name}({params}) {{\n"
            f"  auto c = ({kinds[2][1]}*)c_;\n"
            f"  auto a = (const {kinds[0][1]}*)a_;\n"
            f"  auto b = (const {kinds[1][1]}*)b_;\n"
            f'  asm volatile("{instruction} {", ".join(operands)};"\n'
            f"               : {outputs}\n               : {', '.join(inputs)}); }}\n"
        )


def _words(elements: int, bits: int) -> int:
    """Registers that a thread of a warp has for this many elements."""
    return max(1, elements * bits // 32 // max(32, bits))


@prints("tir.ptx_mma")
def _mma(gen: CudaExpressions, e: Call) -> str:
    shape, la, lb, ta, tb, tc = (str(a.value) for a in e.args[:6])
    a, a_at, b, b_at, c, c_at = e.args[6:12]
    saturate = len(e.args) > 12 and bool(e.args[12].value)
    bit_op = str(e.args[13].value) if len(e.args) > 13 else ("xor" if _ptx_type(ta)[0] == "b1" else "")
    made = _Multiply(shape, (la, lb), (ta, tb, tc), None, saturate and _ptx_type(tc)[0] == "s32", bit_op)
    gen.helper(made.name, made.text())
    return f"{made.name}({gen.address(c, c_at)}, {gen.address(a, a_at)}, {gen.address(b, b_at)})"


@prints("tir.ptx_mma_sp")
def _mma_sparse(gen: CudaExpressions, e: Call) -> str:
    shape, la, lb, ta, tb, tc = (str(a.value) for a in e.args[:6])
    a, a_at, b, b_at, c, c_at, metadata, m_at, selector = e.args[6:15]
    chosen = constant_argument(selector, "the sparsity selector of ptx_mma_sp")
    saturate = len(e.args) > 15 and bool(e.args[15].value)
    made = _Multiply(shape, (la, lb), (ta, tb, tc), chosen, saturate and _ptx_type(tc)[0] == "s32")
    gen.helper(made.name, made.text())
    word = f"*(const unsigned int*){gen.address(metadata, m_at)}"
    return f"{made.name}({gen.address(c, c_at)}, {gen.address(a, a_at)}, {gen.address(b, b_at)}, {word})"


@prints("tir.ptx_ldmatrix")
def _ldmatrix(gen: CudaExpressions, e: Call) -> str:
    """``(transposed, count, ".b16", registers, offset, shared, offset)``."""
    transposed, count, _, registers, at, shared, where = e.args
    gen.need("mma")
    target = gen.address(registers, at)
    if bool(transposed.value) and dt.bits(e.dtype) == 8:
        # The instruction transposes 16 bits at a time, so bytes go one by one; the last argument is the row pitch.
        return f"load_bytes_transposed({target}, {gen.expr(shared)}, {gen.index(where)})"
    trans = "_trans" if bool(transposed.value) else ""
    return f"ldmatrix_x{int(count.value)}{trans}({target}, {gen.address(shared, where)})"


@prints("tir.mma_fill")
def _mma_fill(gen: CudaExpressions, e: Call) -> str:
    count, registers, at = e.args
    gen.need("mma")
    return f"fill_zero<{int(count.value)}>({gen.address(registers, at)})"


@prints("tir.mma_store")
def _mma_store(gen: CudaExpressions, e: Call) -> str:
    """``(16, 16, target, registers, offset, stride)``: elements of one row are stored in pairs where this is allowed."""
    _, _, target, registers, at, stride = e.args
    gen.need("mma")
    offset = target.args[2] if op_name_of(target) == "tir.tvm_access_ptr" else None
    even = offset is not None and all(_is_even(gen, x) for x in (offset, stride))
    pairs = "<true>" if even else ""
    return f"store_tile_16x16{pairs}({gen.expr(target)}, {gen.address(registers, at)}, {gen.index(stride)})"


def _is_even(gen: CudaExpressions, e: PrimExpr) -> bool:
    known = gen.analyzer.modular_set(e)
    return known.coeff % 2 == 0 and known.base % 2 == 0


# -- wmma ------------------------------------------------------------------------------------------------------------


def fragment_element(dtype: str, scope: str) -> str:
    """The element type of a fragment: operands have precisions of their own."""
    if scope != "wmma.accumulator":
        special = {"float32": "tf32", "int4": "experimental::precision::s4", "uint4": "experimental::precision::u4",
                   "int1": "experimental::precision::b1", "bool": "experimental::precision::b1"}.get(dtype)  # fmt: skip
        if special is not None:
            return f"nvcuda::wmma::{'precision::' if special == 'tf32' else ''}{special}"
    return type_name(dtype)


def _fragment(gen: CudaExpressions, buffer: PrimExpr, index: PrimExpr) -> str:
    gen.need("wmma")
    return f"{gen.expr(buffer)}[{gen.index(index)}]"


@prints("tir.tvm_fill_fragment")
def _fill(gen: CudaExpressions, e: Call) -> str:
    buffer, _, _, _, index, value = e.args
    return f"nvcuda::wmma::fill_fragment({_fragment(gen, buffer, index)}, {gen.expr(value)})"


@prints("tir.tvm_load_matrix_sync")
def _load(gen: CudaExpressions, e: Call) -> str:
    buffer, _, _, _, index, source, stride, layout = e.args
    fragment = _fragment(gen, buffer, index)
    function = "nvcuda::wmma::load_matrix_sync"
    scope = buffer.type_annotation.storage_scope
    if scope == "wmma.accumulator":
        return f"{function}({fragment}, {gen.expr(source)}, {gen.index(stride)}, nvcuda::wmma::mem_{layout.value})"
    if gen.memory_types.get(buffer) == "float32":
        function = "load_tf32"
    return f"{function}({fragment}, {gen.expr(source)}, {gen.index(stride)})"


@prints("tir.tvm_store_matrix_sync")
def _store(gen: CudaExpressions, e: Call) -> str:
    buffer, _, _, _, index, target, stride, layout = e.args
    fragment = _fragment(gen, buffer, index)
    return f"nvcuda::wmma::store_matrix_sync({gen.expr(target)}, {fragment}, {gen.index(stride)}, nvcuda::wmma::mem_{layout.value})"


@prints("tir.tvm_mma_sync", "tir.tvm_bmma_sync")
def _multiply(gen: CudaExpressions, e: Call) -> str:
    parts = [_fragment(gen, b, i) for b, i in zip(e.args[::2], e.args[1::2], strict=True)]
    return f"nvcuda::wmma::{e.op.name.removeprefix('tir.tvm_')}({', '.join(parts)})"
