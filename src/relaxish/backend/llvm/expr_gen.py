"""TIR expressions to LLVM values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import (
    Add, And, BinaryOp, Broadcast, Call, Cast, CmpOp, Div, EQ, FloatImm, FloorDiv, FloorMod, GE, GT, IntImm, LE, LT,
    Let, LogicalOp, Max, Min, Mod, Mul, NE, Not, Or, Ramp, Select, Shuffle, StringImm, Sub, Var,
)  # fmt: skip
from ...support import config
from ...support.errors import RelaxishError
from ...tir.transform.numerics.wide_float import WideFloat, is_narrow_float, loses_digits
from ..common.divisors import constant_of, is_safe_divisor
from .emit import FunctionWriter
from .guards import is_index_check
from .index_gen import IndexGen, Lin
from .ltypes import float_literal, llvm_type, scalar_type, splat, zero_of
from .mathlib import VectorMath
from .matrix import added_words
from .memory_gen import MemoryGen
from .sizes import Sizes

_INT_OPS = {Add: "add", Sub: "sub", Mul: "mul"}
_FLOAT_OPS = {Add: "fadd", Sub: "fsub", Mul: "fmul", Div: "fdiv"}
_SIGNED = {LT: "slt", LE: "sle", GT: "sgt", GE: "sge", EQ: "eq", NE: "ne"}
_UNSIGNED = {LT: "ult", LE: "ule", GT: "ugt", GE: "uge", EQ: "eq", NE: "ne"}
_ORDERED = {LT: "olt", LE: "ole", GT: "ogt", GE: "oge", EQ: "oeq", NE: "une"}
_INDEX_KINDS = (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)


class ExprGen(IndexGen, MemoryGen):
    """Generates expressions into one function; statements build on it."""

    def __init__(self, writer: FunctionWriter, target_features: frozenset[str]) -> None:
        self.w = writer
        self.features = target_features
        self.has_fma = bool(target_features & {"fma", "avx512f", "neon"})
        # Whether half precision has arithmetic, and whether it at least converts, in instructions.
        self.computes_half = bool(target_features & {"avx512fp16", "fullfp16"})
        self.converts_half = bool(target_features & {"f16c", "avx512f", "neon", "fullfp16"})
        self.wider = WideFloat(is_narrow_float, lambda e: e)
        self.vars: dict[Any, str] = {}
        self.nonneg: set[str] = set()
        self.sizes = Sizes()
        self.lin_cache: dict[Any, Lin] = {}
        self.pointers: dict[Any, str] = {}
        self.ranges: dict[Any, tuple[int, int]] = {}
        self.active: list[tuple[str, int]] = []
        self.checked = writer.module.checked
        self.room: dict[Any, Lin] = {}

    def lacks_arithmetic(self, dtype: str) -> bool:
        """Whether values of a type are computed with in float32."""
        return is_narrow_float(dtype) and not (self.computes_half and dt.code(dtype) == "float")

    def computed_wide(self, expr: PrimExpr) -> bool:
        """Whether an operation is computed in float32: its type has no arithmetic, or its functions need the digits."""
        if self.lacks_arithmetic(expr.dtype):
            return True
        return is_narrow_float(expr.dtype) and loses_digits(expr)

    def visit(self, expr: PrimExpr) -> str:
        """The LLVM operand holding the value of ``expr``."""
        handler = _HANDLERS.get(type(expr))
        if handler is None:
            handler = _find_handler(type(expr))
        return handler(self, expr)

    def typed(self, expr: PrimExpr) -> str:
        """The operand preceded by its type."""
        value = self.visit(expr)
        return f"{llvm_type(expr.dtype)} {value}"

    def math(self, lanes: int) -> VectorMath:
        """Polynomial functions for vectors of ``lanes`` float32."""
        return VectorMath(self.w, lanes, self.has_fma, "avx512f" in self.features)

    # ---- leaves

    def visit_Var(self, expr: Var) -> str:
        value = self.vars.get(expr)
        if value is None:
            lin = self.lin_cache.get(expr)
            if lin is not None:
                return self._narrow(self.materialize(lin), expr.dtype)
            value = self.pointers.get(expr)
        if value is None:
            raise RelaxishError(f"variable {expr.name} is used in the program but never defined")
        return value

    def visit_IntImm(self, expr: IntImm) -> str:
        if expr.dtype == "bool":
            return "true" if expr.value else "false"
        if dt.is_handle(expr.dtype):
            return "null" if expr.value == 0 else self.w.pure(f"inttoptr i64 {expr.value} to ptr")
        return str(expr.value)

    def visit_FloatImm(self, expr: FloatImm) -> str:
        return float_literal(expr.value, expr.dtype)

    def visit_StringImm(self, expr: StringImm) -> str:
        return str(self.w.module.string(expr.value))

    # ---- arithmetic

    def _narrow(self, wide: str, dtype: str) -> str:
        if dtype == "int64" or not wide.startswith("%"):
            return wide
        return self.w.pure(f"trunc i64 {wide} to i32", wide, hint="t")

    def visit_index_kind(self, expr: PrimExpr) -> str:
        if expr.dtype in ("int32", "int64"):
            return self._narrow(self.materialize(self.lin(expr)), expr.dtype)
        return self.visit_plain(expr)

    def visit_plain(self, expr: Any) -> str:
        kind = type(expr)
        if self.computed_wide(expr):
            return self.visit(self.wider.narrow(expr))
        if kind in _INT_OPS:
            return self.arith(expr)
        if kind is FloorDiv or kind is FloorMod:
            return self.floor_op(expr, kind is FloorDiv)
        if kind is Min or kind is Max:
            return self.minmax(expr.dtype, self.visit(expr.a), self.visit(expr.b), kind is Max)
        return self.visit(expr)

    def arith(self, expr: BinaryOp) -> str:
        kind, dtype = type(expr), expr.dtype
        if isinstance(expr, Add):
            dot = added_words(self, expr)
            if dot is not None:
                return dot
        if dt.is_float(dtype):
            if kind is not Mul:
                fused = self.try_fma(expr)
                if fused is not None:
                    return fused
            return self.binary(_FLOAT_OPS[kind], dtype, self.visit(expr.a), self.visit(expr.b))
        if dt.is_bool(dtype):
            op = {Add: "or", Mul: "and", Sub: "xor"}[kind]
            return self.binary(op, dtype, self.visit(expr.a), self.visit(expr.b))
        flags = " nsw" if dt.is_int(dtype) and dt.bits(dtype) >= 32 else ""
        return self.binary(_INT_OPS[kind] + flags, dtype, self.visit(expr.a), self.visit(expr.b))

    def binary(self, op: str, dtype: str, a: str, b: str) -> str:
        """A two-operand instruction on values of one type."""
        return self.w.pure(f"{op} {llvm_type(dtype)} {a}, {b}", a, b)

    def try_fma(self, expr: BinaryOp) -> str | None:
        """``a * b + c`` and ``a * b - c`` and ``c - a * b`` as one fused instruction."""
        code, bits, _ = dt.parse(expr.dtype)
        if not self.has_fma or code != "float" or bits < 32:
            return None
        a, b, subtract = expr.a, expr.b, type(expr) is Sub
        if subtract and type(a) is Mul and type(b) is Mul and self._factors(a) == self._factors(b):
            # One product rounded and the other not: their difference would not be zero.
            return None
        if type(b) is Mul:
            x, y, z = self.visit(b.a), self.visit(b.b), self.visit(a)
            if subtract:
                x = self.negate(expr.dtype, x)
        elif type(a) is Mul:
            x, y, z = self.visit(a.a), self.visit(a.b), self.visit(b)
            if subtract:
                z = self.negate(expr.dtype, z)
        else:
            return None
        return self.intrinsic("llvm.fma", expr.dtype, x, y, z)

    def _factors(self, product: Mul) -> set[str]:
        return {self.visit(product.a), self.visit(product.b)}

    def negate(self, dtype: str, value: str) -> str:
        """The negative of a float."""
        return self.w.pure(f"fneg {llvm_type(dtype)} {value}", value)

    def intrinsic(self, name: str, dtype: str, *args: str) -> str:
        """A call of an LLVM intrinsic overloaded on one type."""
        ty = llvm_type(dtype)
        full = f"{name}.{type_suffix(dtype)}"
        self.w.module.declare(f"declare {ty} @{full}({', '.join([ty] * len(args))})")
        return self.w.pure(f"call {ty} @{full}({', '.join(f'{ty} {a}' for a in args)})", *args)

    def visit_Div(self, expr: Div) -> str:
        if self.computed_wide(expr):
            return self.visit(self.wider.narrow(expr))
        if dt.is_float(expr.dtype):
            b = expr.b
            if isinstance(b, Broadcast) and dt.lanes(b.value.dtype) == 1 and config.FAST_MATH.value:
                # One division for all lanes, and outside the loop when the divisor is fixed there.
                one = float_literal(1.0, b.value.dtype)
                inverse = self.binary("fdiv", b.value.dtype, one, self.visit(b.value))
                wide = self.splat_value(inverse, scalar_type(expr.dtype), dt.lanes(expr.dtype))
                return self.binary("fmul", expr.dtype, self.visit(expr.a), wide)
            return self.binary("fdiv", expr.dtype, self.visit(expr.a), self.visit(b))
        return self.int_division("div", expr)

    def visit_Mod(self, expr: Mod) -> str:
        if self.computed_wide(expr):
            return self.visit(self.wider.narrow(expr))
        if dt.is_float(expr.dtype):
            return self.binary("frem", expr.dtype, self.visit(expr.a), self.visit(expr.b))
        return self.int_division("rem", expr)

    def int_division(self, op: str, expr: BinaryOp) -> str:
        sign = "s" if dt.is_int(expr.dtype) else "u"
        a, b = self.visit(expr.a), self.visit(expr.b)
        b = self.divisor(expr, a, b)
        return self.w.pure(f"{sign}{op} {llvm_type(expr.dtype)} {a}, {b}", a, b)

    def floor_op(self, expr: BinaryOp, is_div: bool) -> str:
        dtype = expr.dtype
        if dt.is_float(dtype):
            a, b = self.visit(expr.a), self.visit(expr.b)
            floor = self.intrinsic("llvm.floor", dtype, self.binary("fdiv", dtype, a, b))
            return floor if is_div else self.binary("fsub", dtype, a, self.binary("fmul", dtype, floor, b))
        if not dt.is_int(dtype):
            return self.int_division("div" if is_div else "rem", expr)
        a, b = self.visit(expr.a), self.visit(expr.b)
        ty = llvm_type(dtype)
        cond = llvm_type(dt.with_lanes("bool", dt.lanes(dtype)))
        pure = self.w.pure
        zero = zero_of(dtype)
        shift = _log2_of(expr.b)
        if shift is not None:
            amount = splat(str(shift), scalar_type(dtype), dt.lanes(dtype))
            mask = splat(str((1 << shift) - 1), scalar_type(dtype), dt.lanes(dtype))
            return pure(f"ashr {ty} {a}, {amount}", a) if is_div else pure(f"and {ty} {a}, {mask}", a)
        b = self.divisor(expr, a, b)
        rem = pure(f"srem {ty} {a}, {b}", a, b)
        mixed = pure(f"xor {ty} {rem}, {b}", rem, b)
        neg = pure(f"icmp slt {ty} {mixed}, {zero}", mixed)
        some = pure(f"icmp ne {ty} {rem}, {zero}", rem)
        both = pure(f"and {cond} {neg}, {some}", neg, some)
        if is_div:
            quo = pure(f"sdiv {ty} {a}, {b}", a, b)
            fix = pure(f"sext {cond} {both} to {ty}", both)
            return pure(f"add {ty} {quo}, {fix}", quo, fix)
        fix = pure(f"select {cond} {both}, {ty} {b}, {ty} {zero}", both, b)
        return pure(f"add {ty} {rem}, {fix}", rem, fix)

    def minmax(self, dtype: str, a: str, b: str, is_max: bool) -> str:
        """The smaller or larger of two values."""
        ty = llvm_type(dtype)
        if dt.is_float(dtype):
            cond = llvm_type(dt.with_lanes("bool", dt.lanes(dtype)))
            # This very shape is one max or min instruction on x86.
            if a.startswith("%"):
                # An accumulator comes first: what is tested for NaN below is better the other one.
                a, b = b, a
            c = self.w.pure(f"fcmp {'ogt' if is_max else 'olt'} {ty} {a}, {b}", a, b)
            best = self.w.pure(f"select {cond} {c}, {ty} {a}, {ty} {b}", c, a, b)
            # That instruction gives b when either is NaN: right unless a is the NaN (folded away if a is a constant).
            lost = self.w.pure(f"fcmp uno {ty} {a}, {a}", a)
            return self.w.pure(f"select {cond} {lost}, {ty} {a}, {ty} {best}", lost, a, best)
        if dt.is_bool(dtype):
            return self.binary("or" if is_max else "and", dtype, a, b)
        sign = "s" if dt.is_int(dtype) else "u"
        return self.intrinsic(f"llvm.{sign}{'max' if is_max else 'min'}", dtype, a, b)

    # ---- comparison and logic

    def visit_compare(self, expr: CmpOp) -> str:
        dtype, kind = expr.a.dtype, type(expr)
        if self.lacks_arithmetic(dtype):
            expr = self.wider.comparison(expr)
            dtype = expr.a.dtype
        if dtype in ("int32", "int64") and expr.b.dtype in ("int32", "int64"):
            a, b = self.index(expr.a), self.index(expr.b)
            if not a.startswith("%") and not b.startswith("%"):
                return "true" if _FOLD[kind](int(a), int(b)) else "false"
            return self.w.pure(f"icmp {_SIGNED[kind]} i64 {a}, {b}", a, b, hint="c")
        a, b = self.visit(expr.a), self.visit(expr.b)
        ty = llvm_type(dtype)
        if dt.is_float(dtype):
            return self.w.pure(f"fcmp {_ORDERED[kind]} {ty} {a}, {b}", a, b, hint="c")
        table = _SIGNED if dt.is_int(dtype) else _UNSIGNED
        return self.w.pure(f"icmp {table[kind]} {ty} {a}, {b}", a, b, hint="c")

    def visit_And(self, expr: And) -> str:
        return self._logic("and", expr)

    def visit_Or(self, expr: Or) -> str:
        return self._logic("or", expr)

    def _logic(self, op: str, expr: LogicalOp) -> str:
        a = self.visit(expr.a)
        if a == ("true" if op == "and" else "false"):
            return self.visit(expr.b)
        if a == ("false" if op == "and" else "true"):
            return a
        if dt.lanes(expr.dtype) == 1 and self.must_guard(expr.b):
            # The second operand reads memory only the first makes safe.
            if op == "and":
                return self.branch_value(a, expr.b, None, "false", "bool")
            return self.branch_value(a, None, expr.b, "true", "bool")
        if self.may_fail(expr.b):
            with self.where(a if op == "and" else self.negation(a, expr.dtype), expr.dtype):
                return self.binary(op, expr.dtype, a, self.visit(expr.b))
        return self.binary(op, expr.dtype, a, self.visit(expr.b))

    def visit_Not(self, expr: Not) -> str:
        return self.negation(self.visit(expr.a), expr.dtype)

    def negation(self, value: str, dtype: str) -> str:
        """The opposite of a truth value."""
        if value in ("true", "false"):
            return "false" if value == "true" else "true"
        ones = splat("true", "i1", dt.lanes(dtype))
        return self.w.pure(f"xor {llvm_type(dtype)} {value}, {ones}", value)

    def visit_Select(self, expr: Select) -> str:
        cond = self.visit(expr.condition)
        if cond == "true":
            return self.visit(expr.true_value)
        if cond == "false":
            return self.visit(expr.false_value)
        return self.select_value(cond, expr.condition.dtype, expr.true_value, expr.false_value)

    def select_value(self, cond: str, kind: str, then: PrimExpr, other: PrimExpr) -> str:
        """Both values computed, one of them taken in each lane; what is not taken raises no error."""
        a = self._counting_where(cond, kind, then)
        b = self._counting_where(self.negation(cond, kind), kind, other) if self.may_fail(other) else self.visit(other)
        ty = llvm_type(then.dtype)
        return self.w.pure(f"select {llvm_type(kind)} {cond}, {ty} {a}, {ty} {b}", cond, a, b)

    def _counting_where(self, cond: str, kind: str, expr: PrimExpr) -> str:
        if not self.may_fail(expr):
            return self.visit(expr)
        with self.where(cond, kind):
            return self.visit(expr)

    def decide(self, cond: PrimExpr) -> bool | None:
        """True or False when the ranges of the loops around settle ``cond``."""
        from .ranges import prove

        return prove(cond, self.ranges)

    def must_guard(self, expr: PrimExpr) -> bool:
        """Whether evaluating ``expr`` early could fault (it loads memory or divides)."""
        from ...ir.functor import all_nodes
        from ...tir import BufferLoad

        return any(
            isinstance(node, (BufferLoad, Call))
            or (isinstance(node, (Div, Mod, FloorDiv, FloorMod)) and (not is_safe_divisor(node)))
            for node in all_nodes(expr)
        )

    def branch_value(self, cond: str, then: PrimExpr | None, other: PrimExpr | None, default: str, dtype: str) -> str:
        """The value of a conditional whose sides are evaluated only when chosen; a None side gives ``default``."""
        w = self.w
        then_label, else_label, join = w.label("then"), w.label("else"), w.label("join")
        pre = w.open()
        w.line(f"br i1 {cond}, label %{then_label}, label %{else_label}")
        w.start_block(then_label)
        a = default if then is None else self.visit(then)
        a_block = w.block
        w.line(f"br label %{join}")
        w.close()
        w.open(share=pre)
        w.start_block(else_label)
        b = default if other is None else self.visit(other)
        b_block = w.block
        w.line(f"br label %{join}")
        w.close()
        w.start_block(join)
        return w.effect(f"phi {llvm_type(dtype)} [ {a}, %{a_block} ], [ {b}, %{b_block} ]")

    # ---- vectors

    def visit_Broadcast(self, expr: Broadcast) -> str:
        lanes = dt.lanes(expr.dtype)
        inner = dt.lanes(expr.value.dtype)
        value = self.visit(expr.value)
        scalar = scalar_type(expr.dtype)
        if inner == 1:
            return self.splat_value(value, scalar, lanes)
        mask = ", ".join(f"i32 {i % inner}" for i in range(lanes))
        ty = llvm_type(expr.value.dtype)
        return self.w.pure(f"shufflevector {ty} {value}, {ty} poison, <{lanes} x i32> <{mask}>", value)

    def splat_value(self, value: str, scalar: str, lanes: int) -> str:
        """A vector with ``value`` in every lane."""
        if not value.startswith("%"):
            return splat(value, scalar, lanes)
        ty = f"<{lanes} x {scalar}>"
        one = self.w.pure(f"insertelement {ty} poison, {scalar} {value}, i64 0", value)
        return self.w.pure(f"shufflevector {ty} {one}, {ty} poison, <{lanes} x i32> zeroinitializer", one, hint="b")

    def visit_Ramp(self, expr: Ramp) -> str:
        form = self.vec_lin(expr)
        lanes = dt.lanes(expr.dtype)
        scalar = scalar_type(expr.dtype)
        ty = f"<{lanes} x {scalar}>"
        if form is not None:
            terms, consts = form
            steps = f"<{', '.join(f'{scalar} {c}' for c in consts)}>"
            if not terms:
                return steps
            base = self._narrow(self.materialize((terms, 0)), dt.element_of(expr.dtype))
            return self.w.pure(f"add {ty} {self.splat_value(base, scalar, lanes)}, {steps}", base)
        base = self.splat_value(self.visit(expr.base), scalar, lanes)
        stride = self.splat_value(self.visit(expr.stride), scalar, lanes)
        steps = f"<{', '.join(f'{scalar} {i}' for i in range(lanes))}>"
        scaled = self.w.pure(f"mul {ty} {stride}, {steps}", stride)
        return self.w.pure(f"add {ty} {base}, {scaled}", base, scaled)

    def visit_Shuffle(self, expr: Shuffle) -> str:
        indices: Any = expr.indices
        picks = [i.value for i in indices]
        dtype = expr.vectors[0].dtype
        total = sum(dt.lanes(v.dtype) for v in expr.vectors)
        values = [self.visit(v) for v in expr.vectors]
        if all(dt.lanes(v.dtype) == 1 for v in expr.vectors):
            if len(picks) == 1:
                return values[picks[0]]
            return self.from_lanes([values[i] for i in picks], scalar_type(dtype))
        merged = (
            values[0] if len(values) == 1 else self.concat(values, [dt.lanes(v.dtype) for v in expr.vectors], dtype)
        )
        scalar = scalar_type(dtype)
        if len(picks) == 1:
            return self.w.pure(f"extractelement <{total} x {scalar}> {merged}, i64 {picks[0]}", merged)
        return self.shuffle(merged, total, scalar, picks)

    def visit_Let(self, expr: Let) -> str:
        self.bind_let(expr)
        return self.visit(expr.body)

    def bind_let(self, expr: Let) -> None:
        self.vars[expr.var] = self.visit(expr.value)

    # ---- conversion

    def visit_Cast(self, expr: Cast) -> str:
        source, target = expr.value.dtype, expr.dtype
        if source in ("int32", "int64") and target in ("int32", "int64"):
            return self._narrow(self.materialize(self.lin(expr.value)), target)
        return self.convert(self.visit(expr.value), source, target)

    def convert(self, value: str, source: str, target: str) -> str:
        """``value`` of dtype ``source`` as dtype ``target``, with C's rules."""
        from .convert import convert_value

        return convert_value(self, value, source, target)

    def tile_product(self, expr: Call) -> str:
        """Multiply matrix tiles; functions, which own the tiles, know how."""
        raise NotImplementedError

    def visit_Call(self, expr: Call) -> str:
        from .intrin import call_value

        if is_index_check(expr) and dt.lanes(expr.dtype) == 1:
            return self._narrow(self.materialize(self.lin(expr)), expr.dtype)

        return call_value(self, expr)


def type_suffix(dtype: str) -> str:
    """Suffix of a type in the name of an LLVM intrinsic."""
    lanes = dt.lanes(dtype)
    scalar = {"half": "f16", "float": "f32", "double": "f64"}.get(scalar_type(dtype), scalar_type(dtype))
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


def _log2_of(expr: PrimExpr) -> int | None:
    value = constant_of(expr)
    return value.bit_length() - 1 if value and value > 0 and value & (value - 1) == 0 else None


_FOLD: dict[type, Callable[[int, int], bool]] = {
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
}
_HANDLERS: dict[type, Callable[[ExprGen, Any], str]] = {
    **{kind: ExprGen.visit_compare for kind in _FOLD},
    **{kind: ExprGen.visit_index_kind for kind in _INDEX_KINDS},
}


def _find_handler(kind: type) -> Callable[[ExprGen, Any], str]:
    for base in kind.__mro__:
        handler = getattr(ExprGen, f"visit_{base.__name__}", None)
        if handler is not None:
            _HANDLERS[kind] = handler
            return handler
    raise RelaxishError(f"the LLVM backend has no code for expressions of kind {kind.__name__}")
