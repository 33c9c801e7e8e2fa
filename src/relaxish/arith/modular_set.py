"""Modular sets: integer expressions as ``coeff * x + base`` for some integer x."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from ..ir.prim import BinaryOp
from ..support.errors import InternalError
from . import build as B
from ._ir import (
    EQ, Add, Call, Cast, Div, FloorDiv, FloorMod, IntImm, Let, Max, Min, Mod, Mul, PrimExpr, Select, SizeVar, Sub, Var,
)  # fmt: skip
from .constraints import split_conjunction
from .memo import KnowsVariables

if TYPE_CHECKING:
    from .analyzer import Analyzer

Entry = tuple[int, int]
ANY: Entry = (1, 0)


class ModularSet:
    """All integers ``coeff * k + base``; ``coeff == 0`` means the one value ``base``."""

    __slots__ = ("base", "coeff")

    def __init__(self, coeff: int, base: int) -> None:
        self.coeff = coeff
        self.base = base

    def __repr__(self) -> str:
        return f"ModularSet({self.coeff}, {self.base})"

    __str__ = __repr__


def _norm(coeff: int, base: int) -> Entry:
    coeff = abs(coeff)
    return coeff, base % coeff if coeff else base


def _union(a: Entry, b: Entry) -> Entry:
    coeff = gcd(a[0], b[0])
    if coeff == 0:
        if a[1] == b[1]:
            return a
        return _norm(abs(a[1] - b[1]), a[1])
    base0, base1 = a[1] % coeff, b[1] % coeff
    if base0 == base1:
        return coeff, base0
    return _norm(gcd(coeff, base0 - base1), base0)


def _intersect(a: Entry, b: Entry) -> Entry:
    """The common values of two sets (Chinese remainders); unchanged ``a`` if that is empty."""
    if a[0] == 0:
        return a
    if b[0] == 0:
        return b
    divisor = gcd(a[0], b[0])
    if (b[1] - a[1]) % divisor:
        return a
    m = b[0] // divisor
    inverse = pow(a[0] // divisor, -1, m) if m > 1 else 0
    k = (b[1] - a[1]) // divisor * inverse % m if m > 1 else 0
    return _norm(a[0] * m, a[1] + a[0] * k)


class ModularSetAnalyzer(KnowsVariables[Entry]):
    """Computes :class:`ModularSet`; calling it on an expression gives the set."""

    def __init__(self, parent: Analyzer) -> None:
        self.parent = parent
        self.vars: dict[Any, Entry] = {}
        self._memo: dict[int, tuple[Any, Entry]] = {}

    def __call__(self, expr: PrimExpr) -> ModularSet:
        return ModularSet(*self.entry(expr))

    def update(self, var: Var, entry: Entry, allow_override: bool = False) -> None:
        """Set what is known of a variable. Raises InternalError where it contradicts an earlier fact."""
        old = self.vars.get(var)
        if not allow_override and old is not None and old != entry:
            raise InternalError(
                f"Trying to update var '{var.name}' with a different modular set: original={old}, new={entry}"
            )
        self.vars[var] = _norm(*entry)
        self._memo.clear()
        self.parent.version += 1

    def bind(self, var: Var, low: PrimExpr, extent: PrimExpr, allow_override: bool = False) -> None:
        """Bind to a range; only a one-element range says anything here."""
        if B.is_one(extent):
            self.update(var, self.entry(low), allow_override)
        elif var in self.vars:
            del self.vars[var]
            self._memo.clear()
            self.parent.version += 1

    def enter_constraint(self, cond: PrimExpr) -> Callable[[], None] | None:
        """Take facts such as ``x % 4 == 1`` from a condition; returns the undo."""
        undos: list[tuple[Any, Entry | None]] = []
        for part in split_conjunction(cond):
            if type(part) is not EQ or type(part.b) is not IntImm:
                continue
            left: Any = part.a
            fact: Entry
            if isinstance(left, Var):
                var, fact = left, (0, part.b.value)
            elif type(left) in (FloorMod, Mod) and isinstance(left.a, Var):
                if type(left.b) is not IntImm or abs(part.b.value) >= abs(left.b.value):
                    continue
                var, fact = left.a, _norm(left.b.value, part.b.value)
            else:
                continue
            undos.append((var, self.vars.get(var)))
            self.vars[var] = _intersect(self.vars.get(var, ANY), fact)
        if not undos:
            return None
        self._memo.clear()

        def undo() -> None:
            for var, old in reversed(undos):
                self.restore(var, old)

        return undo

    def entry(self, e: PrimExpr) -> Entry:
        """``(coeff, base)`` of ``e``."""
        if type(e) is IntImm:
            return 0, e.value
        hit = self._memo.get(id(e))
        if hit is not None:
            return hit[1]
        handler = _HANDLERS.get(type(e))
        result = handler(self, e) if handler is not None else ANY
        self._memo[id(e)] = (e, result)
        return result

    def _var(self, e: PrimExpr) -> Entry:
        return self.vars.get(e, ANY)

    def _add(self, e: Add) -> Entry:
        a, b = self.entry(e.a), self.entry(e.b)
        return _norm(gcd(a[0], b[0]), a[1] + b[1])

    def _sub(self, e: Sub) -> Entry:
        a, b = self.entry(e.a), self.entry(e.b)
        return _norm(gcd(a[0], b[0]), a[1] - b[1])

    def _mul(self, e: Mul) -> Entry:
        a, b = self.entry(e.a), self.entry(e.b)
        coeff = gcd(a[0] * b[0], gcd(a[0] * b[1], b[0] * a[1]))
        return _norm(coeff, a[1] * b[1])

    def _div_const(self, e: PrimExpr, value: int, floor: bool) -> Entry:
        a = self.entry(e)
        if a[0] % value == 0:
            if a[1] == 0:
                return _norm(a[0] // value, 0)
            if value > 0 and (floor or (a[1] > 0 and self.parent.can_prove_greater_equal(e, 0))):
                return _norm(a[0] // value, a[1] // value)
        return ANY

    def _mod_const(self, e: PrimExpr, value: int, floor: bool) -> Entry:
        a = self.entry(e)
        coeff = gcd(a[0], value)
        if coeff and (a[1] % coeff == 0 or floor or (a[1] > 0 and self.parent.can_prove_greater_equal(e, 0))):
            return _norm(coeff, a[1] % coeff)
        return ANY

    def _divide(self, e: BinaryOp) -> Entry:
        b = self.entry(e.b)
        return self._div_const(e.a, b[1], type(e) is FloorDiv) if b[0] == 0 and b[1] else ANY

    def _modulo(self, e: BinaryOp) -> Entry:
        b = self.entry(e.b)
        return self._mod_const(e.a, b[1], type(e) is FloorMod) if b[0] == 0 and b[1] > 0 else ANY

    def _either(self, e: BinaryOp) -> Entry:
        return _union(self.entry(e.a), self.entry(e.b))

    def _select(self, e: Select) -> Entry:
        return _union(self.entry(e.true_value), self.entry(e.false_value))

    def _cast(self, e: Cast) -> Entry:
        return self.entry(e.value) if e.dtype in ("int32", "int64") and e.value.dtype in ("int32", "int64") else ANY

    def _let(self, e: Let) -> Entry:
        return self.of_let(e, self.entry)

    def _call(self, e: Call) -> Entry:
        name = getattr(e.op, "name", "")
        if name in ("tir.shift_right", "tir.bitwise_and", "tir.shift_left"):
            b = self.entry(e.args[1])
            if b[0] == 0 and 0 <= b[1]:
                if name == "tir.shift_right" and b[1] < 63:
                    return self._div_const(e.args[0], 1 << b[1], True)
                if name == "tir.shift_left" and b[1] < 63:
                    a = self.entry(e.args[0])
                    return _norm(a[0] << b[1], a[1] << b[1])
                if name == "tir.bitwise_and" and b[1] & (b[1] + 1) == 0:
                    return self._mod_const(e.args[0], b[1] + 1, True)
        elif name == "tir.if_then_else":
            return _union(self.entry(e.args[1]), self.entry(e.args[2]))
        return ANY


_HANDLERS: dict[type, Callable[[ModularSetAnalyzer, Any], Entry]] = {
    Var: ModularSetAnalyzer._var,
    SizeVar: ModularSetAnalyzer._var,
    Add: ModularSetAnalyzer._add,
    Sub: ModularSetAnalyzer._sub,
    Mul: ModularSetAnalyzer._mul,
    Div: ModularSetAnalyzer._divide,
    FloorDiv: ModularSetAnalyzer._divide,
    Mod: ModularSetAnalyzer._modulo,
    FloorMod: ModularSetAnalyzer._modulo,
    Min: ModularSetAnalyzer._either,
    Max: ModularSetAnalyzer._either,
    Select: ModularSetAnalyzer._select,
    Cast: ModularSetAnalyzer._cast,
    Let: ModularSetAnalyzer._let,
    Call: ModularSetAnalyzer._call,
}
