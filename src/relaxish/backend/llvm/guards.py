"""Run-time checks of compiled code: indices that come from data, divisors, and, to find bugs, every memory access.

Before (``value`` is an index read from an array, ``n`` the size it must stay below)::

    %p = getelementptr float, ptr %table, i64 %value

After::

    %f = freeze i64 %value
    %c = icmp uge i64 %f, %n
    br i1 %c, label %bad, label %ok
  ok:
    %k = add i64 %f, 0
    %p = getelementptr float, ptr %table, i64 %k
    ...
  bad:
    %code = call i32 @rx_kernel_failed(ptr @site, i64 %f, i64 %n)
    ret i32 %code

A check leaves the loops its value does not depend on (``FunctionWriter.guard``), so a table is asked once a row. What
a select throws away, lane by lane, raises nothing. The index a check lets through is frozen: LLVM may not conclude
anything from an overflow on the way to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.node import Node
from ...ir import dtype as dt
from ...ir.functor import all_nodes
from ...ir.op import Op
from ...ir.prim import Add, BinaryOp, Call, Cast, Div, FloorDiv, FloorMod, IntImm, Mod, Mul, Sub
from ...runtime.kernels.failures import FAIL, site_text
from ..common.divisors import constant_of, is_safe_divisor
from .emit import FunctionWriter, Lines
from .ltypes import llvm_type, scalar_type, splat, zero_of
from .sizes import Sizes

__all__ = ["GuardGen", "is_index_check"]

_CHECK = Op.register("tir.check_index")
_NAMES = {Div: "division", FloorDiv: "floor division", Mod: "remainder", FloorMod: "floor remainder"}
_OVERFLOW = {Add: "sadd", Sub: "ssub", Mul: "smul"}


def is_index_check(expr: Node) -> bool:
    """Whether an expression is an index with the check it must pass."""
    return isinstance(expr, Call) and expr.op is _CHECK


def _can_fail(node: Node) -> bool:
    if isinstance(node, (Div, Mod, FloorDiv, FloorMod)):
        return not dt.is_float(node.dtype) and not is_safe_divisor(node)
    return is_index_check(node)


class GuardGen:
    """Mixin of the expression generator: conditions on which the function goes on."""

    w: FunctionWriter
    nonneg: set[str]
    sizes: Sizes
    # Conditions, each with its lanes, of the selects around: where one is false, a value is thrown away.
    active: list[tuple[str, int]]

    # ---- supplied by the other mixins

    def visit(self, expr: PrimExpr) -> str:
        raise NotImplementedError

    def index(self, expr: PrimExpr) -> str:
        raise NotImplementedError

    def splat_value(self, value: str, scalar: str, lanes: int) -> str:
        raise NotImplementedError

    def leaving(self, code: str, depth: int) -> Lines:
        """The lines that leave the function with ``code``."""
        raise NotImplementedError

    # ---- where values count

    def may_fail(self, expr: PrimExpr) -> bool:
        """Whether computing ``expr`` may raise an error."""
        return any(_can_fail(node) for node in all_nodes(expr))

    @contextmanager
    def where(self, condition: str, dtype: str) -> Iterator[None]:
        """Within it values count only where ``condition`` holds."""
        self.active.append((condition, dt.lanes(dtype)))
        try:
            yield
        finally:
            self.active.pop()

    def _counting(self, bad: str, lanes: int) -> str:
        """``bad`` where the value counts."""
        w = self.w
        ty = llvm_type(dt.with_lanes("bool", lanes))
        for mask, count in self.active:
            if count > 1 and lanes == 1:
                mask, count = self._any(mask, count), 1
            if count == 1 and lanes > 1:
                mask = self.splat_value(mask, "i1", lanes)
            bad = w.pure(f"and {ty} {bad}, {mask}", bad, mask, hint="c")
        return bad

    def _any(self, flags: str, lanes: int) -> str:
        """Whether a flag is set in any lane."""
        if lanes == 1:
            return flags
        w = self.w
        bits = w.pure(f"bitcast <{lanes} x i1> {flags} to i{lanes}", flags)
        return w.pure(f"icmp ne i{lanes} {bits}, 0", bits, hint="c")

    # ---- failing

    def failed(self, kind: str, fields: tuple[str, ...], value: str, bound: str, lines: Lines) -> str:
        """Add to ``lines`` the recording of a failure with two ``i64``; gives the code to return."""
        module = self.w.module
        module.declare(f"declare i32 @{FAIL}(ptr, i64, i64) cold")
        site = module.string(site_text(kind, module.current, *fields))
        code = self.w.name("code")
        lines.append(f"  {code} = call i32 @{FAIL}(ptr {site}, i64 {value}, i64 {bound})")
        return code

    def guarded(
        self, bad: str, dtype: str, site: tuple[str, tuple[str, ...]], numbers: tuple[str, str], kept: tuple[str, str]
    ) -> str:
        """``kept[0]`` where no lane that counts is ``bad``; in those that do not count, ``kept[1]`` stands for it.

        ``numbers`` of type ``dtype`` go into the record, those of the first bad lane.
        """
        lanes = dt.lanes(dtype)
        operand, harmless = kept
        ty = llvm_type(dtype)
        result = f"add {ty} {operand}, {zero_of(dtype)}"
        if self.active:
            result = f"select {llvm_type(dt.with_lanes('bool', lanes))} {bad}, {ty} {harmless}, {ty} {operand}"
            bad = self._counting(bad, lanes)
        flag = self._any(bad, lanes)

        def failed(depth: int) -> Lines:
            lines: Lines = []
            value, bound = self._of_first(bad, dtype, numbers, lines)
            code = self.failed(*site, value, bound, lines)
            return [*lines, *self.leaving(code, depth)]

        return self.w.guard(flag, result, failed, operand)

    def _of_first(self, bad: str, dtype: str, numbers: tuple[str, str], lines: Lines) -> tuple[str, str]:
        """The numbers of the first bad lane in 64 bits."""
        lanes, ty, scalar = dt.lanes(dtype), llvm_type(dtype), scalar_type(dtype)
        out = []
        lane = ""
        if lanes > 1:
            self.w.module.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
            bits, lane = self.w.name("m"), self.w.name("m")
            lines.append(f"  {bits} = bitcast <{lanes} x i1> {bad} to i{lanes}")
            lines.append(f"  {lane} = call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 true)")
        for number in numbers:
            if lanes > 1:
                item = self.w.name("e")
                lines.append(f"  {item} = extractelement {ty} {number}, i{lanes} {lane}")
                number = item
            if scalar != "i64" and number.startswith("%"):
                wide = self.w.name("x")
                lines.append(f"  {wide} = {'sext' if dt.is_int(dtype) else 'zext'} {scalar} {number} to i64")
                number = wide
            out.append(number)
        return out[0], out[1]

    # ---- division

    def divisor(self, expr: BinaryOp, a: str, b: str, dtype: str = "") -> str:
        """The divisor ``b`` of ``a``, both of ``dtype``, where the division ``expr`` is legal."""
        if is_safe_divisor(expr):
            return b
        dtype = dtype or expr.dtype
        if dtype == "int64" and self.sizes.is_positive(expr.b):
            # The same number; but the division may be moved to where it is not positive yet.
            made = self.w.pure(f"call i64 @llvm.smax.i64(i64 {b}, i64 1)", b, hint="m")
            self.nonneg.add(made)
            return made
        lanes, ty, scalar = dt.lanes(dtype), llvm_type(dtype), scalar_type(dtype)
        w = self.w
        flags = llvm_type(dt.with_lanes("bool", lanes))
        # The dividend is told only where it matters: else the check need not stay where that is computed.
        bad, shown = "", zero_of(dtype)
        if not constant_of(expr.b):
            bad = w.pure(f"icmp eq {ty} {b}, {zero_of(dtype)}", b, hint="c")
        if dt.is_int(expr.dtype) and a not in self.nonneg and b not in self.nonneg:
            shown = a
            low = splat(str(dt.min_value(dt.element_of(expr.dtype))), scalar, lanes)
            lowest = w.pure(f"icmp eq {ty} {a}, {low}", a, hint="c")
            minus = w.pure(f"icmp eq {ty} {b}, {splat('-1', scalar, lanes)}", b, hint="c")
            over = w.pure(f"and {flags} {lowest}, {minus}", lowest, minus, hint="c")
            bad = w.pure(f"or {flags} {bad}, {over}", bad, over, hint="c") if bad else over
        if not w.module.raises:
            return w.pure(f"select {flags} {bad}, {ty} {splat('1', scalar, lanes)}, {ty} {b}", bad, b)
        site = ("division", (_NAMES[type(expr)], dt.element_of(expr.dtype)))
        return self.guarded(bad, dtype, site, (shown, b), (b, splat("1", scalar, lanes)))

    # ---- indices

    def checked_index(self, expr: Any) -> str:
        """The 64-bit value of ``check_index(value, offset, span, extent, site)``.

        It lets ``value`` through where ``value + offset`` and ``value + offset + span`` are indices below ``extent``.
        """
        value, offset, span, extent, site = expr.args
        w = self.w
        raw, over = self._exact(value)
        index = w.pure(f"freeze i64 {raw}", raw, hint="f") if raw.startswith("%") else raw
        shift, width, size = self.index(offset), self.index(span), self.index(extent)
        low = index if shift == "0" else w.pure(f"add i64 {index}, {shift}", index, shift)
        bad = self._outside(low, width, size)
        if over:
            bad = w.pure(f"or i1 {bad}, {over}", bad, over, hint="c")
        shown = low
        if width != "0":
            alone = w.pure(f"icmp uge i64 {low}, {size}", low, size, hint="c")
            last = w.pure(f"add i64 {low}, {width}", low, width)
            shown = w.pure(f"select i1 {alone}, i64 {low}, i64 {last}", alone, low, last)
        if not index.startswith("%"):
            index = w.pure(f"add i64 {index}, 0", bad)
        made = self.guarded(bad, "int64", ("index", tuple(site.value.split("\n"))), (shown, size), (index, "0"))
        if shift == "0":
            self.nonneg.add(made)
        return made

    def _outside(self, low: str, width: str, size: str) -> str:
        """Whether not all of ``low`` to ``low + width`` are indices below ``size``."""
        w = self.w
        limit = size if width == "0" else w.pure(f"sub i64 {size}, {width}", size, width)
        if not limit.startswith("%") or width == "0":
            # Sizes are never negative: one comparison of numbers without sign is enough.
            return w.pure(f"icmp uge i64 {low}, {limit}", low, limit, hint="c")
        if size.lstrip("-").isdigit() and width.lstrip("-").isdigit():
            return w.pure(f"icmp uge i64 {low}, {max(0, int(size) - int(width))}", low, hint="c")
        below = w.pure(f"icmp slt i64 {low}, 0", low, hint="c")
        above = w.pure(f"icmp sge i64 {low}, {limit}", low, limit, hint="c")
        return w.pure(f"or i1 {below}, {above}", below, above, hint="c")

    def checked_lanes(self, expr: Call) -> str:
        """A vector of indices, each checked; offset and span are those of single elements, 0."""
        value, _, _, extent, site = expr.args
        lanes = dt.lanes(expr.dtype)
        wide = dt.with_lanes("int64", lanes)
        w = self.w
        ty, given = llvm_type(wide), llvm_type(expr.dtype)
        raw = self.visit(value)
        if ty != given:
            raw = w.pure(f"{'sext' if dt.is_int(expr.dtype) else 'zext'} {given} {raw} to {ty}", raw)
        index = w.pure(f"freeze {ty} {raw}", raw, hint="f")
        size = self.splat_value(self.index(extent), "i64", lanes)
        bad = w.pure(f"icmp uge {ty} {index}, {size}", index, size, hint="c")
        site_fields = ("index", tuple(site.value.split("\n")))
        made = self.guarded(bad, wide, site_fields, (index, size), (index, zero_of(wide)))
        return made if ty == given else w.pure(f"trunc {ty} {made} to {given}", made)

    # ---- all of memory

    def require_access(self, fields: tuple[str, ...], offset: str, lanes: int, room: str) -> None:
        """Go on only where ``offset`` to ``offset + lanes`` lie in ``room``; what a select drops is read all the same."""
        w = self.w
        end = w.pure(f"add i64 {offset}, {lanes}", offset)
        below = w.pure(f"icmp slt i64 {offset}, 0", offset, hint="c")
        above = w.pure(f"icmp sgt i64 {end}, {room}", end, room, hint="c")
        bad = w.pure(f"or i1 {below}, {above}", below, above, hint="c")
        active, self.active = self.active, []
        self.guarded(bad, "int64", ("memory", (*fields, str(lanes))), (offset, room), (offset, "0"))
        self.active = active

    def _exact(self, expr: Any) -> tuple[str, str]:
        """A scalar index in 64 bits, and the flag that says it does not fit; no flag where it always does."""
        if _bits(expr) <= 63:
            return self.index(expr), ""
        if isinstance(expr, Cast) and dt.is_integral(expr.value.dtype):
            return self._exact(expr.value)
        a, over_a = self._exact(expr.a)
        b, over_b = self._exact(expr.b)
        w = self.w
        name = f"llvm.{_OVERFLOW[type(expr)]}.with.overflow.i64"
        w.module.declare(f"declare {{ i64, i1 }} @{name}(i64, i64)")
        both = w.pure(f"call {{ i64, i1 }} @{name}(i64 {a}, i64 {b})", a, b)
        flag = w.pure(f"extractvalue {{ i64, i1 }} {both}, 1", both, hint="c")
        for other in (over_a, over_b):
            if other:
                flag = w.pure(f"or i1 {flag}, {other}", flag, other, hint="c")
        return w.pure(f"extractvalue {{ i64, i1 }} {both}, 0", both), flag


def _bits(expr: Any) -> int:
    """Bits, the sign apart, that hold any value of an index expression; more than 63 where it may overflow."""
    match expr:
        case IntImm():
            return expr.value.bit_length()
        case Cast() if dt.is_integral(expr.value.dtype):
            return _bits(expr.value)
    if type(expr) in _OVERFLOW:
        a, b = _bits(expr.a), _bits(expr.b)
        return a + b if type(expr) is Mul else max(a, b) + 1
    return min(dt.bits(expr.dtype), 63)
