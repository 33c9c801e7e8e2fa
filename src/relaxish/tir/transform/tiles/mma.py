"""``mma.sync``: its forms by type, and products by them. Operands come by ``ldmatrix`` where rows lie along the depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....ir.expr import PrimExpr
from ....ir import dtype as dt
from ....ir.prim import Var, const
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import BufferStore, Evaluate, For, ForKind, Stmt
from ...tensor_intrin.mma_fragments import MMA, Shape
from ..base import call, seq
from .layout import Layout, accumulator, operand_a
from .names import FRAGMENT
from .product import Product

if TYPE_CHECKING:
    from .gpu import GpuKernel

__all__ = ["Mma", "MmaForm", "form_of", "is_unbuilt", "ptx_type", "unrolled"]


@dataclass(frozen=True)
class MmaForm:
    """A shape of the instruction: where threads hold the elements that there are (``shape``), and the compute capability
    that has it (``level``)."""

    name: str
    shape: Shape
    level: int

    @property
    def depth(self) -> int:
        """Elements of a row of the left operand."""
        return self.shape.k

    @property
    def right(self) -> int:
        """Elements of the right operand in a thread."""
        return 8 * self.depth // 32

    def result(self, p: Product, rows: int, across: int) -> Layout:
        """Layout of the result in the registers of warps."""
        return accumulator(p.m, p.n, rows, across, self.shape.m)

    def operand(self, p: Product, rows: int, across: int) -> Layout:
        """Layout of a left operand in the registers of warps."""
        return operand_a(p.m, p.depth, rows, across, self.shape.m, self.shape.run)


_HALF = MmaForm("m16n8k16", MMA["m16n8k16", 16], 80)
_BYTE = MmaForm("m16n8k32", MMA["m16n8k32", 8], 80)
_FLOAT8 = MmaForm("m16n8k32", MMA["m16n8k32", 8], 89)
_DOUBLE = MmaForm("m8n8k4", MMA["m8n8k4", 64], 80)
# Types of operands, and of what they sum to -> the form.
_BYTES, _FLOATS8 = ("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2")
_FORMS: dict[tuple[str, str, str], MmaForm] = {
    ("float16", "float16", "float32"): _HALF, ("float16", "float16", "float16"): _HALF,
    ("bfloat16", "bfloat16", "float32"): _HALF, ("float64", "float64", "float64"): _DOUBLE,
    **{(a, b, "int32"): _BYTE for a in _BYTES for b in _BYTES},
    **{(a, b, "float32"): _FLOAT8 for a in _FLOATS8 for b in _FLOATS8},
}  # fmt: skip
_TYPES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip


def ptx_type(dtype: str) -> str:
    """Name of a type in the instruction."""
    return _TYPES.get(dtype, dtype)


def form_of(p: Product) -> MmaForm | None:
    """The form for a product's types; None where there is none."""
    return _FORMS.get((p.a.buffer.dtype, p.b.buffer.dtype, p.c.dtype))


def is_unbuilt(p: Product) -> bool:
    """Whether matrix units know a product's types (4-bit integers, float8 with sums of float16) that have no form here."""
    kinds = {p.a.buffer.dtype, p.b.buffer.dtype}
    return kinds <= {"int4", "uint4"} or (kinds <= set(_FLOATS8) and p.c.dtype == "float16")


class Mma:
    """A product in one kernel."""

    def __init__(self, kernel: GpuKernel, p: Product, form: MmaForm, rows: int, across: int) -> None:
        self.kernel = kernel
        self.p = p
        self.form = form
        self.tall, self.wide = p.m // rows // form.shape.m, p.n // across // 8
        self.lane = kernel.thread % 32
        warp = kernel.thread // 32
        self.row, self.column = warp % rows, warp // rows
        self.result = kernel.memory.registers[p.c]
        self.b = kernel.local("right", p.b.buffer.dtype, self.wide * form.right)
        self.a_registers = p.a.buffer.scope() == FRAGMENT
        if self.a_registers:
            self.a = kernel.memory.registers[p.a.buffer]
        else:
            self.a = kernel.local("left", p.a.buffer.dtype, self.tall * form.shape.a_count)

    def build(self) -> Stmt:
        """The loop over the depth."""
        p = self.p
        k = Var("k16", "int32")
        body: list[Any] = []
        if not self.a_registers:
            body.append(unrolled("mi", self.tall, lambda t: self.left(t, k)))
        body += self.right(k)
        body.append(unrolled("mi", self.tall, lambda t: unrolled("nj", self.wide, lambda w: self.multiply(t, w, k))))
        steps = const(p.depth // self.form.depth, "int32")
        return For(k, const(0, "int32"), steps, ForKind.UNROLLED, seq(body))

    def matrices_fit(self, load: BufferLoad, turned: bool) -> bool:
        """Whether ``ldmatrix`` brings an operand: it moves 16 bits, so that smaller elements must lie along the depth, in
        rows of whole pieces of 16 bytes."""
        bits = dt.bits(load.buffer.dtype)
        kept = self.kernel.memory.shared[load.buffer]
        if kept.order is not None and kept.order.unit * bits < 128:
            return False
        return bits == 16 or (bits == 8 and not turned and kept.aligned(16))

    def address(self, load: BufferLoad, at: dict[Var, PrimExpr]) -> tuple[Buffer, Any]:
        kept = self.kernel.memory.shared[load.buffer]
        indices = [substitute(i, at) for i in load.indices]
        return kept.view, kept.offset(indices, self.kernel.memory.turns.get(load.buffer))

    def left(self, t: PrimExpr, k: PrimExpr) -> Stmt:
        lane, p, form = self.lane, self.p, self.form
        first = self.row * (self.tall * form.shape.m) + t * form.shape.m
        if not self.matrices_fit(p.a, p.turned_a):

            def element(e: PrimExpr) -> Stmt:
                row, deep = form.shape.a(lane, e)
                return self.element(
                    p.a, {p.i: first + row, p.k: k * form.shape.k + deep}, self.a, t * form.shape.a_count + e
                )

            return unrolled("e", form.shape.a_count, element)
        piece = 4 * form.shape.run
        if p.turned_a:
            row, deep = lane // 8 % 2 * 8, lane % 8 + lane // 16 * 8
        else:
            row, deep = lane % 16, lane // 16 * piece
        view, place = self.address(p.a, {p.i: first + row, p.k: k * form.shape.k + deep})
        return self.matrices(p.turned_a, 4, self.a, t * form.shape.a_count, view, place)

    def right(self, k: PrimExpr) -> list[Stmt]:
        if not self.matrices_fit(self.p.b, not self.p.turned_b):
            p, form = self.p, self.form

            def element(w: PrimExpr, e: PrimExpr) -> Stmt:
                deep, column = form.shape.b(self.lane, e)
                at = {p.j: self.column * (self.wide * 8) + w * 8 + column, p.k: k * form.depth + deep}
                return self.element(p.b, at, self.b, w * form.right + e)

            return [unrolled("nj", self.wide, lambda w: unrolled("e", form.right, lambda e: element(w, e)))]
        pairs = self.wide // 2
        made = [unrolled("nj", pairs, lambda w: self._columns(w * 2, k, 4))] if pairs else []
        return [*made, self._columns(const(self.wide - 1, "int32"), k, 2)] if self.wide % 2 else made

    def _columns(self, w: PrimExpr, k: PrimExpr, count: int) -> Stmt:
        lane, p, piece = self.lane, self.p, 4 * self.form.shape.run
        if p.turned_b:
            column, deep = lane % 8 + lane // 16 * 8, lane // 8 % 2 * piece
        else:
            column, deep = lane // 16 * 8, lane % 8 + lane // 8 % 2 * 8
        if count == 2:
            # Addresses of the other sixteen lanes are not read; they stay inside of the tile.
            column = lane % 8 if p.turned_b else const(0, "int32")
        at = {p.j: self.column * (self.wide * 8) + w * 8 + column, p.k: k * self.form.depth + deep}
        view, place = self.address(p.b, at)
        return self.matrices(not p.turned_b, count, self.b, w * self.form.right, view, place)

    def element(self, load: BufferLoad, at: dict[Var, PrimExpr], to: Buffer, index: PrimExpr) -> Stmt:
        view, place = self.address(load, at)
        return BufferStore(to, BufferLoad(view, [place]), [index])

    def matrices(self, turn: bool, count: int, to: Buffer, at: Any, view: Buffer, place: Any) -> Stmt:
        # The offset counts elements of the pointer's own type: bytes of the arena.
        place = place * (dt.bits(to.dtype) // 8)
        return Evaluate(call(
            to.dtype, "ptx_ldmatrix", const(turn, "bool"), const(count, "int32"), ".b16", to.data, at, view.data, place
        ))  # fmt: skip

    def multiply(self, t: PrimExpr, w: PrimExpr, k: PrimExpr) -> Stmt:
        p, form = self.p, self.form
        left = t * form.shape.a_count
        if self.a_registers:
            left = t * (form.shape.a_count * (p.depth // form.depth)) + k * form.shape.a_count
        a, b, c = (ptx_type(x.dtype) for x in (p.a.buffer, p.b.buffer, p.c))
        return Evaluate(call(
            p.c.dtype, "ptx_mma", form.name, "row", "col", a, b, c, self.a.data, left, self.b.data, w * form.right,
            self.result.data, (t * self.wide + w) * form.shape.c_count, const(False, "bool"),
        ))  # fmt: skip


def unrolled(name: str, count: int, body: Callable[[Any], Stmt]) -> Stmt:
    if count == 1:
        return body(const(0, "int32"))
    var = Var(name, "int32")
    return For(var, const(0, "int32"), const(count, "int32"), ForKind.UNROLLED, body(var))
