"""``mma.sp``: products whose left operand has half of its elements, and threads the words that say which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....ir.expr import PrimExpr
from ....ir.prim import Cast, Select, const
from ...expr import BufferLoad
from ...op import bitwise_and, bitwise_or, shift_left, shift_right
from ...stmt import BufferStore, Evaluate, Stmt
from ...tensor_intrin.mma_fragments import MMA_SPARSE
from ..base import call
from .mma import Mma, MmaForm, ptx_type, unrolled
from .sparse import SparseProduct

if TYPE_CHECKING:
    from .gpu import GpuKernel

__all__ = ["SparseForm", "SparseMma", "sparse_form_of"]


@dataclass(frozen=True)
class SparseForm(MmaForm):
    """A shape of the instruction; ``depth`` counts the elements that are not stored, too."""

    @property
    def depth(self) -> int:
        return 2 * self.shape.k


_FIRST_TWO = 0x44444444
_HALF = SparseForm("m16n8k32", MMA_SPARSE["m16n8k32", 16].held, 80)
_BYTE = SparseForm("m16n8k64", MMA_SPARSE["m16n8k64", 8].held, 80)
_FLOAT8 = SparseForm("m16n8k64", MMA_SPARSE["m16n8k64", 8].held, 89)
_BYTES, _FLOATS8 = ("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2")
_FORMS = {
    ("float16", "float16", "float32"): _HALF, ("float16", "float16", "float16"): _HALF,
    ("bfloat16", "bfloat16", "float32"): _HALF,
    **{(a, b, "int32"): _BYTE for a in _BYTES for b in _BYTES},
    **{(a, b, "float32"): _FLOAT8 for a in _FLOATS8 for b in _FLOATS8},
}  # fmt: skip


def sparse_form_of(p: SparseProduct) -> SparseForm | None:
    """The form for a product's types; None where there is none."""
    return _FORMS.get((p.a.buffer.dtype, p.b.buffer.dtype, p.c.dtype))


class SparseMma(Mma):
    """A sparse product in one kernel. Of each four threads the first ones give the words (selector 0)."""

    def __init__(self, kernel: GpuKernel, p: SparseProduct, form: SparseForm, rows: int, across: int) -> None:
        super().__init__(kernel, p, form, rows, across)
        self.meta = kernel.local("kept", "uint32", self.tall)
        self.sparse = p

    def right(self, k: PrimExpr) -> list[Stmt]:
        p, piece, lane = self.p, 4 * self.form.shape.run, self.lane
        words = unrolled("mi", self.tall, lambda t: BufferStore(self.meta, self._word(t, k), [t]))
        if not self.matrices_fit(p.b, not p.turned_b):
            return [words, *super().right(k)]

        def columns(w: PrimExpr) -> Stmt:
            column, deep = (lane % 8, lane // 8 * piece) if p.turned_b else (const(0, "int32"), lane)
            at = {p.j: self.column * (self.wide * 8) + w * 8 + column, p.k: k * self.form.depth + deep}
            view, place = self.address(p.b, at)
            return self.matrices(not p.turned_b, 4, self.b, w * self.form.right, view, place)

        return [words, unrolled("nj", self.wide, columns)]

    def _word(self, t: PrimExpr, k: PrimExpr) -> PrimExpr:
        """What a thread knows: of elements of 16 bits a half of two rows, of smaller ones more of one row."""
        lane, first = self.lane, self.row * (self.tall * 16) + t * 16
        if self.form.shape.run == 2:
            half, row = k * 2 + lane % 2, first + lane // 4
            return _joined(self._half(row, half), self._half(row + 8, half))
        half, row = k * 4 + lane % 4 // 2 * 2, first + lane // 4 + lane % 2 * 8
        return _joined(self._half(row, half), self._half(row, half + 1))

    def _half(self, row: PrimExpr, number: PrimExpr) -> PrimExpr:
        """The sixteen bits of that number in a row's metadata."""
        bits = self.sparse.sparsity.word_bits
        if bits == 8:
            low, high = (self._bits(row, number * 2 + n, 0xFF) for n in range(2))
            return bitwise_or(low, shift_left(high, const(8, "uint32")))
        if bits == 16:
            return self._bits(row, number, 0xFFFF)
        word = self._bits(row, number // 2, 0xFFFFFFFF)
        return bitwise_and(shift_right(word, Cast("uint32", number % 2 * 16)), const(0xFFFF, "uint32"))

    def _bits(self, row: PrimExpr, word: PrimExpr, mask: int) -> PrimExpr:
        view, place = self.address(self.sparse.e, {self.p.i: row, self.p.k: word})
        bits = bitwise_and(Cast("uint32", BufferLoad(view, [place])), const(mask, "uint32"))
        # Beyond the ends of a matrix words are zero, which the instruction has no meaning for: any two places, of zeros.
        return Select(bits.equal(const(0, "uint32")), const(_FIRST_TWO & mask, "uint32"), bits)

    def multiply(self, t: PrimExpr, w: PrimExpr, k: PrimExpr) -> Stmt:
        p, form = self.p, self.form
        kinds = (ptx_type(x.dtype) for x in (p.a.buffer, p.b.buffer, p.c))
        return Evaluate(call(
            p.c.dtype, "ptx_mma_sp", form.name, "row", "col", *kinds, self.a.data, t * form.shape.a_count, self.b.data, w * form.right,
            self.result.data, (t * self.wide + w) * form.shape.c_count, self.meta.data, t, const(0, "int32"), const(False, "bool"),
        ))  # fmt: skip


def _joined(low: PrimExpr, high: PrimExpr) -> PrimExpr:
    return bitwise_or(low, shift_left(high, const(16, "uint32")))
