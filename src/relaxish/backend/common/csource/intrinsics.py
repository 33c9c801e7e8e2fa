"""Intrinsics that read alike in every language of the family; a method ``call_<name>`` prints the intrinsic ``name``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import Call, is_zero
from ....ir.prim import Var
from ....support.errors import RelaxishError
from ....tir.intrinsics import INTRINSICS, named
from .pieces import ADD, BITS, MUL, RELATION, UNARY, Piece, infix, wrapped

__all__ = ["C_FUNCTIONS", "IntrinsicPrinter"]

C_FUNCTIONS = {name: INTRINSICS[name].libm for name in named(lambda record: record.libm)}
"""Functions of the C library by intrinsic, which every language of the family has under the same names."""


class IntrinsicPrinter:
    """The part of an expression printer that knows intrinsics."""

    # Functions of the language by intrinsic.
    functions: ClassVar[dict[str, str]] = {}
    # Functions that the language lacks: texts in which ``T`` stands for the element type and ``NAME`` for the name.
    templates: ClassVar[Mapping[str, str]] = {}

    if TYPE_CHECKING:
        language: ClassVar[str]
        guards: int
        helpers: dict[str, str]

        def expr(self, node: PrimExpr) -> Piece: ...
        def call(self, function: str, *args: str) -> Piece: ...
        def cast(self, value: Piece, source: str, target: str) -> Piece: ...
        def choice(self, condition: Piece, yes: Piece, no: Piece) -> Piece: ...
        def narrowed(self, value: Piece, dtype: str) -> Piece: ...
        def constant(self, value: float | int, dtype: str) -> Piece: ...
        def pointer(self, data: Var, element: str) -> Piece: ...
        def type_name(self, dtype: str) -> str: ...

    def math_name(self, name: str, dtype: str) -> str:
        """The function for an intrinsic on values of a type. Raises RelaxishError where there is none."""
        found = self.function(name, dtype)
        if found is None:
            raise RelaxishError(f"{self.language} code generation does not know the intrinsic {name} of {dtype}")
        return found

    def function(self, name: str, dtype: str) -> str | None:
        """The function for an intrinsic, from the tables; None where there is none."""
        if name not in self.templates:
            return self.functions.get(name)
        kind = self.type_name(dt.element_of(dtype))
        made = f"{name}_{kind}"
        return self.helper(made, re.sub(r"\bT\b", kind, self.templates[name]).replace("NAME", made))

    def helper(self, name: str, text: str) -> str:
        """Have a function defined before the kernels; gives its name."""
        self.helpers.setdefault(name, text)
        return name

    # -- choices -------------------------------------------------------------------------------------------

    def call_if_then_else(self, e: Call) -> Piece:
        condition = self.expr(e.args[0])
        self.guards += 1
        yes, no = self.expr(e.args[1]), self.expr(e.args[2])
        self.guards -= 1
        return self.choice(condition, yes, no)

    def call_likely(self, e: Call) -> Piece:
        return self.expr(e.args[0])

    call_tvm_thread_invariant = call_likely

    def call_assume(self, e: Call) -> Piece:
        return Piece("0")

    def call_undef(self, e: Call) -> Piece:
        return self.constant(0, e.dtype)

    # -- bits ----------------------------------------------------------------------------------------------

    def _bits(self, operator: str, e: Call) -> Piece:
        return self.narrowed(infix(operator, self.expr(e.args[0]), self.expr(e.args[1]), BITS), e.dtype)

    def call_bitwise_and(self, e: Call) -> Piece:
        return self._bits("&", e)

    def call_bitwise_or(self, e: Call) -> Piece:
        return self._bits("|", e)

    def call_bitwise_xor(self, e: Call) -> Piece:
        return self._bits("^", e)

    def call_shift_left(self, e: Call) -> Piece:
        return self._bits("<<", e)

    def call_shift_right(self, e: Call) -> Piece:
        return self._bits(">>", e)

    def call_bitwise_not(self, e: Call) -> Piece:
        return self.narrowed(Piece(f"~{wrapped(self.expr(e.args[0]), UNARY)}", UNARY), e.dtype)

    def call_clz(self, e: Call) -> Piece:
        made = self.call(self.math_name("clz", e.args[0].dtype), self.expr(e.args[0]))
        return made if e.args[0].dtype == e.dtype else self.cast(made, e.args[0].dtype, e.dtype)

    def call_large_uint_imm(self, e: Call) -> Piece:
        low, high = (int(a.value) for a in e.args)
        return self.constant(low | high << 32, e.dtype)

    # -- mathematics ---------------------------------------------------------------------------------------

    def call_sigmoid(self, e: Call) -> Piece:
        one = self.constant(1, e.dtype)
        negative = Piece(f"-{wrapped(self.expr(e.args[0]), UNARY)}", UNARY)
        return infix("/", one, infix("+", one, self.call(self.math_name("exp", e.dtype), negative), ADD), MUL)

    def call_isnan(self, e: Call) -> Piece:
        value = self.expr(e.args[0])
        return infix("!=", value, value, RELATION)

    def call_fma(self, e: Call) -> Piece:
        a, b, c = map(self.expr, e.args)
        found = self.function("fma", e.dtype)
        return self.call(found, a, b, c) if found else infix("+", infix("*", a, b, MUL), c, ADD)

    # -- memory --------------------------------------------------------------------------------------------

    def call_tvm_access_ptr(self, e: Call) -> Piece:
        return self.moved(self.pointer(e.args[1], dt.element_of(e.args[0].dtype)), e.args[2])

    def call_address_of(self, e: Call) -> Piece:
        load = e.args[0]
        index = load.indices[0] * dt.lanes(load.buffer.dtype) if dt.lanes(load.buffer.dtype) > 1 else load.indices[0]
        return self.moved(self.pointer(load.buffer.data, dt.element_of(load.buffer.dtype)), index)

    def moved(self, pointer: Piece, offset: PrimExpr) -> Piece:
        """A pointer some elements on."""
        if is_zero(offset):
            return pointer
        return infix("+", pointer, self.expr(offset), ADD)

    # -- threads -------------------------------------------------------------------------------------------

    def shuffled_lane(self, kind: str, own: Piece, e: Call) -> Piece:
        """The lane that a shuffle reads, among groups of ``width`` lanes; outside of its group a lane reads itself.

        ``own`` is the thread's lane as an unsigned number; ``kind`` is "", "_up" or "_down".
        """
        offset = self.cast(self.expr(e.args[2]), e.args[2].dtype, "uint32")
        width = self.constant(int(e.args[3].value), "uint32")
        place = infix("%", own, width, MUL)
        if kind == "":
            return infix("+", infix("-", own, place, ADD), infix("%", offset, width, MUL), ADD)
        if kind == "_up":
            return self.choice(infix(">=", place, offset, RELATION), infix("-", own, offset, ADD), own)
        inside = infix("<", infix("+", place, offset, ADD), width, RELATION)
        return self.choice(inside, infix("+", own, offset, ADD), own)

    # -- others --------------------------------------------------------------------------------------------

    def call_call_extern(self, e: Call) -> Piece:
        return self.call(e.args[0].value, *map(self.expr, e.args[1:]))

    call_call_pure_extern = call_call_extern
