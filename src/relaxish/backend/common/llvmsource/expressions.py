"""Expressions of device functions as LLVM values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ....ir.expr import PrimExpr
from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.functor import Visitor, all_nodes
from ....ir.node import Node
from ....ir.op import Op, op_name_of
from ....ir.prim import And, Broadcast, Call, Cast, CmpOp, FloatImm, IntImm, Let, Not, Or, Ramp, Var, is_zero
from ....ir.prim import (
    BinaryOp,
    Select,
)
from ....support.errors import RelaxishError
from ....tir.expr import BufferLoad
from ..csource.access import access_of
from .dialect import Dialect
from .intrinsics import IntrinsicWriter
from .types import constant, llvm_type, memory_type

__all__ = ["ExpressionWriter"]

_SIGNED = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "sdiv", "Mod": "srem"}
_COMPARE = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


class ExpressionWriter(IntrinsicWriter, Visitor):
    """Appends instructions; a visit gives the text of the value: a constant or a register."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.values: dict[Any, str] = {}
        self.spaces: dict[Any, int] = {}
        self.analyzer = Analyzer()
        self.current = "entry"
        self._count = 0

    # -- writing -------------------------------------------------------------------------------------------

    def register(self, stem: str = "v") -> str:
        """A new register."""
        self._count += 1
        return f"%{stem}{self._count}"

    def line(self, text: str) -> None:
        """One instruction."""
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        """An instruction with a result."""
        made = self.register()
        self.line(f"{made} = {text}")
        return made

    def label(self, stem: str) -> str:
        """A new label."""
        self._count += 1
        return f"{stem}{self._count}"

    def start_block(self, label: str) -> None:
        """Instructions that follow belong to this block."""
        self.lines.append(f"{label}:")
        self.current = label

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A call of a function that is declared on the way; ``args`` are (type, value). Gives the result's register."""
        kinds = ", ".join(kind for kind, _ in args)
        self.declared.setdefault(name, f"declare {result} @{name}({kinds})")
        text = f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in args)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    def intrinsic(self, name: str, kind: str, *args: str) -> str:
        """An overloaded LLVM intrinsic on values of one type."""
        return self.call(f"{name}.{_mangled(kind)}", kind, *((kind, a) for a in args))

    def constant_of(self, kind: str, number: float) -> str:
        """A floating-point constant of an LLVM type, vectors included."""
        lanes, element = _shape(kind)
        dtype = {"half": "float16", "float": "float32", "double": "float64"}[element]
        one = constant(number, dtype)
        return one if lanes == 1 else "<" + ", ".join([f"{element} {one}"] * lanes) + ">"

    # -- leaves --------------------------------------------------------------------------------------------

    def default_visit(self, node: Node) -> NoReturn:
        raise RelaxishError(f"{self.dialect.name} code generation does not know {type(node).__name__}")

    def visit_Var(self, var: Var) -> str:
        found = self.values.get(var)
        if found is None:
            raise RelaxishError(f"the variable {var.name} is used in a kernel but not defined in it")
        return found

    def visit_IntImm(self, e: IntImm | FloatImm) -> str:
        return constant(e.value, e.dtype)

    visit_FloatImm = visit_IntImm

    # -- operators -----------------------------------------------------------------------------------------

    def visit_BinaryOp(self, e: BinaryOp) -> str:
        a, b, kind, name = self.visit(e.a), self.visit(e.b), llvm_type(e.dtype), type(e).__name__
        if name in ("Min", "Max"):
            return self._extremum(name, a, b, e.dtype)
        operation = _SIGNED.get(name)
        if operation is None:
            raise RelaxishError(f"{self.dialect.name} code generation does not know {name}; run LowerIntrin first")
        if dt.is_float(e.dtype):
            operation = {"sdiv": "fdiv", "srem": "frem"}.get(operation, f"f{operation}")
            return self.value(f"{operation} contract {kind} {a}, {b}")
        if not dt.is_int(e.dtype):
            operation = {"sdiv": "udiv", "srem": "urem"}.get(operation, operation)
        return self.value(f"{operation} {kind} {a}, {b}")

    def _extremum(self, name: str, a: str, b: str, dtype: str) -> str:
        less = self._compare("LT" if name == "Min" else "GT", a, b, dtype)
        lanes, kind = dt.lanes(dtype), llvm_type(dtype)
        best = self.select(less, lanes, kind, a, b)
        if not dt.is_float(dtype):
            return best
        # The comparison gives b when either is NaN.
        return self.select(self.value(f"fcmp uno {kind} {a}, {a}"), lanes, kind, a, best)

    def visit_CmpOp(self, e: CmpOp) -> str:
        return self._compare(type(e).__name__, self.visit(e.a), self.visit(e.b), e.a.dtype)

    def _compare(self, name: str, a: str, b: str, dtype: str) -> str:
        test = _COMPARE[name]
        if dt.is_float(dtype):
            return self.value(f"fcmp {'une' if test == 'ne' else 'o' + test} {llvm_type(dtype)} {a}, {b}")
        sign = "" if test in ("eq", "ne") else "s" if dt.is_int(dtype) else "u"
        return self.value(f"icmp {sign}{test} {llvm_type(dtype)} {a}, {b}")

    def visit_And(self, e: And) -> str:
        if dt.lanes(e.dtype) == 1 and _reads_memory(e.b):
            return self.branches(self.visit(e.a), lambda: self.visit(e.b), lambda: "false", "i1")
        return self.value(f"and {llvm_type(e.dtype)} {self.visit(e.a)}, {self.visit(e.b)}")

    def visit_Or(self, e: Or) -> str:
        if dt.lanes(e.dtype) == 1 and _reads_memory(e.b):
            return self.branches(self.visit(e.a), lambda: "true", lambda: self.visit(e.b), "i1")
        return self.value(f"or {llvm_type(e.dtype)} {self.visit(e.a)}, {self.visit(e.b)}")

    def visit_Not(self, e: Not) -> str:
        kind = llvm_type(e.dtype)
        lanes = dt.lanes(e.dtype)
        ones = "true" if lanes == 1 else "<" + ", ".join(["i1 true"] * lanes) + ">"
        return self.value(f"xor {kind} {self.visit(e.a)}, {ones}")

    def select(self, condition: str, lanes: int, kind: str, yes: str, no: str) -> str:
        """One of two values; both were computed."""
        test = "i1" if lanes == 1 else f"<{lanes} x i1>"
        return self.value(f"select {test} {condition}, {kind} {yes}, {kind} {no}")

    def visit_Select(self, e: Select) -> str:
        condition, yes, no = (self.visit(x) for x in (e.condition, e.true_value, e.false_value))
        return self.select(condition, dt.lanes(e.condition.dtype), llvm_type(e.dtype), yes, no)

    def branches(self, condition: str, yes: Callable[[], str], no: Callable[[], str], kind: str) -> str:
        """One of two values, of which only the chosen one is computed."""
        then, other, end = self.label("then"), self.label("else"), self.label("end")
        self.line(f"br i1 {condition}, label %{then}, label %{other}")
        self.start_block(then)
        a = yes()
        after_then = self.current
        self.line(f"br label %{end}")
        self.start_block(other)
        b = no()
        after_other = self.current
        self.line(f"br label %{end}")
        self.start_block(end)
        return self.value(f"phi {kind} [ {a}, %{after_then} ], [ {b}, %{after_other} ]")

    def visit_Cast(self, e: Cast) -> str:
        return self.convert(self.visit(e.value), e.value.dtype, e.dtype)

    def convert(self, value: str, source: str, target: str) -> str:
        """A value as another type."""
        a, b = llvm_type(source), llvm_type(target)
        if a == b:
            return value
        if dt.is_bool(target):
            zero = "zeroinitializer" if dt.lanes(source) > 1 else "0.0" if dt.is_float(source) else "0"
            return self.value(f"{'fcmp une' if dt.is_float(source) else 'icmp ne'} {a} {value}, {zero}")
        unsigned = not dt.is_int(source)
        if dt.is_float(source) and dt.is_float(target):
            operation = "fpext" if dt.bits(target) > dt.bits(source) else "fptrunc"
        elif dt.is_float(source):
            operation = "fptosi" if dt.is_int(target) else "fptoui"
        elif dt.is_float(target):
            operation = "uitofp" if unsigned else "sitofp"
        else:
            wider = dt.bits(target) > (1 if dt.is_bool(source) else dt.bits(source))
            operation = ("zext" if unsigned else "sext") if wider else "trunc"
        return self.value(f"{operation} {a} {value} to {b}")

    def visit_Let(self, e: Let) -> str:
        self.values[e.var] = self.visit(e.value)
        made: str = self.visit(e.body)
        return made

    # -- vectors -------------------------------------------------------------------------------------------

    def visit_Broadcast(self, e: Broadcast) -> str:
        return self.vector([self.visit(e.value)] * dt.lanes(e.dtype), e.dtype)

    def visit_Ramp(self, e: Ramp) -> str:
        from ..csource.lanes import lane

        return self.vector([self.visit(self.analyzer.simplify(lane(e, i))) for i in range(dt.lanes(e.dtype))], e.dtype)

    def visit_Shuffle(self, e: Any) -> str:
        lanes: list[str] = []
        for vector in e.vectors:
            text, width = self.visit(vector), dt.lanes(vector.dtype)
            lanes += [text] if width == 1 else [self.lane(text, vector.dtype, i) for i in range(width)]
        picked = [lanes[int(i.value)] for i in e.indices]
        return picked[0] if len(picked) == 1 else self.vector(picked, e.dtype)

    def vector(self, elements: list[str], dtype: str) -> str:
        """A vector of these elements."""
        made, element, kind = "poison", llvm_type(dt.element_of(dtype)), llvm_type(dtype)
        for i, value in enumerate(elements):
            made = self.value(f"insertelement {kind} {made}, {element} {value}, i32 {i}")
        return made

    def lane(self, vector: str, dtype: str, index: int) -> str:
        """One element of a vector."""
        return self.value(f"extractelement {llvm_type(dtype)} {vector}, i32 {index}")

    # -- memory --------------------------------------------------------------------------------------------

    def pointer(self, data: Var, element: str, index: PrimExpr) -> tuple[str, str]:
        """(pointer type, pointer) to an element of the memory behind ``data``."""
        if data not in self.values:
            raise RelaxishError(f"the memory {data.name} is used but neither a parameter nor allocated")
        space = self.spaces[data]
        kind = f"ptr addrspace({space})" if space else "ptr"
        if is_zero(index):
            return kind, self.values[data]
        at = self.visit(index)
        step = (
            f"getelementptr inbounds {memory_type(element)}, {kind} {self.values[data]}, {llvm_type(index.dtype)} {at}"
        )
        return kind, self.value(step)

    def alignment(self, element: str, count: int, index: PrimExpr) -> int:
        """Bytes that an access surely is aligned to; memory begins at multiples of 64."""
        size = dt.nbytes(element)
        modular = self.analyzer.modular_set(index)
        step, rest = int(modular.coeff), int(modular.base)
        known = 64
        while known > 1 and (step * size % known or rest * size % known):
            known //= 2
        return max(size, min(known, count * size))

    def load(self, data: Var, element: str, count: int, index: PrimExpr) -> str:
        """Elements from ``index`` on."""
        dtype = dt.with_lanes(element, count)
        kind, place = self.pointer(data, element, index)
        made = self.value(f"load {memory_type(dtype)}, {kind} {place}, align {self.alignment(element, count, index)}")
        return self.convert(made, dt.with_lanes("uint8", count), dtype) if dt.is_bool(element) else made

    def store(self, data: Var, element: str, count: int, index: PrimExpr, value: str) -> None:
        """Elements to ``index`` and on."""
        dtype = dt.with_lanes(element, count)
        if dt.is_bool(element):
            value = self.convert(value, dtype, dt.with_lanes("uint8", count))
        kind, place = self.pointer(data, element, index)
        alignment = self.alignment(element, count, index)
        self.line(f"store {memory_type(dtype)} {value}, {kind} {place}, align {alignment}")

    def visit_BufferLoad(self, e: BufferLoad) -> str:
        if e.predicate is not None:
            raise RelaxishError(f"{self.dialect.name} code generation has no predicated loads")
        access = access_of(e.buffer, e.indices, self.analyzer)
        if access.base is not None:
            return self.load(e.buffer.data, access.element, access.count, access.base)
        elements = [self.load(e.buffer.data, access.element, 1, place) for place in access.places]
        return self.vector(elements, dt.with_lanes(access.element, access.count))

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, e: Call) -> str:
        if not op_name_of(e):
            raise RelaxishError(f"a kernel calls {e.op}, which is no intrinsic")
        name = e.op.name.removeprefix("tir.")
        special = getattr(self, f"call_{name}", None)
        made: str = special(e) if special is not None else self.mathematics(name, e)
        return made

    def call_if_then_else(self, e: Call) -> str:
        condition, yes, no = e.args
        if not _reads_memory(yes) and not _reads_memory(no):
            return self.select(self.visit(condition), 1, llvm_type(e.dtype), self.visit(yes), self.visit(no))
        return self.branches(self.visit(condition), lambda: self.visit(yes), lambda: self.visit(no), llvm_type(e.dtype))


def _shape(kind: str) -> tuple[int, str]:
    if not kind.startswith("<"):
        return 1, kind
    lanes, _, element = kind[1:-1].partition(" x ")
    return int(lanes), element


def _mangled(kind: str) -> str:
    lanes, element = _shape(kind)
    short = {"half": "f16", "float": "f32", "double": "f64"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def _reads_memory(expr: PrimExpr) -> bool:
    return any(
        isinstance(node, BufferLoad) or isinstance(node, Call) and (not _is_plain(node)) for node in all_nodes(expr)
    )


def _is_plain(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.name not in (
        "tir.if_then_else",
        "tir.call_extern",
        "tir.call_llvm_intrin",
    )
