"""Expressions of lowered tensor programs as text of a C-like language."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NoReturn

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Visitor
from ....ir.node import Node
from ....ir.op import op_name_of
from ....ir.prim import (
    And, BinaryOp, Broadcast, Call, Cast, FloatImm, IntImm, Let, Not, Or, Ramp, Select, StringImm, Var,
)  # fmt: skip
from ....support.errors import RelaxishError
from ....tir.buffer import Buffer
from ....tir.expr import BufferLoad
from .access import access_of
from .intrinsics import IntrinsicPrinter
from .names import NameSupply
from .pieces import ADD, AND, CONDITION, MUL, OR, RELATION, UNARY, Piece, infix, quoted, wrapped

__all__ = ["ExpressionPrinter"]

_INFIX = {
    "Add": ("+", ADD), "Sub": ("-", ADD), "Mul": ("*", MUL), "Div": ("/", MUL), "Mod": ("%", MUL),
    "EQ": ("==", RELATION), "NE": ("!=", RELATION), "LT": ("<", RELATION), "LE": ("<=", RELATION),
    "GT": (">", RELATION), "GE": (">=", RELATION), "And": ("&&", AND), "Or": ("||", OR),
}  # fmt: skip


class ExpressionPrinter(IntrinsicPrinter, Visitor[Piece]):
    """Visits expressions and gives :class:`Piece` texts.

    ``names`` maps variables to what stands for them. ``helpers`` collects, by name, the definitions of functions that
    the text calls and the language lacks. ``lines`` are the statements so far: values bound inside expressions
    (``Let``) become statements before the one that is being printed.
    """

    language: ClassVar[str] = "C"
    reserved: ClassVar[frozenset[str]] = frozenset()
    scalars: ClassVar[dict[str, str]] = {}
    memory_scalars: ClassVar[dict[str, str]] = {}
    suffixes: ClassVar[dict[str, str]] = {"int64": "LL", "uint64": "ULL", "uint32": "U"}

    def __init__(self) -> None:
        self.names: dict[Any, Piece] = {}
        self.supply = NameSupply(self.reserved)
        self.helpers: dict[str, str] = {}
        self.features: set[str] = set()
        self.memory_types: dict[Any, str] = {}
        self.spaces: dict[Any, str] = {}
        self.analyzer = Analyzer()
        self.lines: list[str] = []
        self.depth = 1
        self.guards = 0

    # -- what a language says ------------------------------------------------------------------------------

    def type_name(self, dtype: str) -> str:
        """The type of values. Raises RelaxishError for one that the language lacks."""
        name = self.scalars.get(dt.element_of(dtype))
        if name is None or dt.lanes(dtype) != 1 and not self.has_vectors(dtype):
            raise RelaxishError(f"{self.language} has no type for {dtype}")
        return name if dt.lanes(dtype) == 1 else self.vector_name(name, dt.lanes(dtype))

    def memory_type(self, element: str) -> str:
        """The type that an element has in memory."""
        return self.memory_scalars.get(element) or self.type_name(element)

    def has_vectors(self, dtype: str) -> bool:
        """Whether there is a vector type for this dtype; others are computed lane by lane."""
        return False

    def vector_name(self, element: str, lanes: int) -> str:
        """The name of a vector type."""
        return f"{element}{lanes}"

    def pointer(self, data: Var, element: str) -> Piece:
        """A pointer to elements of a type in the memory behind ``data``."""
        name = self.names.get(data)
        if name is None:
            raise RelaxishError(f"the memory {data.name} is used but neither a parameter nor allocated")
        if self.memory_types.get(data) == element:
            return name
        return Piece(f"({self.pointer_type(element, self.spaces.get(data, ''))}){wrapped(name, UNARY)}", UNARY)

    def pointer_type(self, element: str, space: str) -> str:
        """The type of pointers to elements in an address space."""
        return f"{space} {self.memory_type(element)}*".strip()

    def declaration(self, dtype: str, name: str, value: str) -> str:
        """A statement that binds a new name to a value."""
        return f"{self.type_name(dtype)} {name} = {value};"

    # -- leaves --------------------------------------------------------------------------------------------

    def expr(self, node: PrimExpr) -> Piece:
        """The text of an expression."""
        return self.visit(node)

    def default_visit(self, node: Node) -> NoReturn:
        raise RelaxishError(f"{self.language} code generation does not know {type(node).__name__}")

    def visit_Var(self, var: Var) -> Piece:
        name = self.names.get(var)
        if name is None:
            raise RelaxishError(f"the variable {var.name} is used in a function but not defined in it")
        return name

    def visit_IntImm(self, e: IntImm | FloatImm) -> Piece:
        return self.constant(e.value, e.dtype)

    visit_FloatImm = visit_IntImm

    def visit_StringImm(self, e: StringImm) -> Piece:
        return Piece(quoted(e.value))

    def constant(self, value: float | int, dtype: str) -> Piece:
        """A scalar constant."""
        if dtype == "bool":
            return Piece("true" if value else "false")
        if dt.is_float(dtype) or dtype.startswith("bfloat"):
            return self.floating(float(value), dtype)
        return self.integer(int(value), dtype)

    def integer(self, value: int, dtype: str) -> Piece:
        """An integer constant."""
        suffix = self.suffixes.get(dtype, "")
        if dt.is_int(dtype) and value < 0 and value == dt.min_value(dtype) and dt.bits(dtype) >= 32:
            return Piece(f"-{-(value + 1)}{suffix} - 1", ADD)
        text = Piece(f"{value}{suffix}", UNARY if value < 0 else 8)
        return text if dtype in ("int32", "int64", "uint32", "uint64") else self.cast(text, "int32", dtype)

    def floating(self, value: float, dtype: str) -> Piece:
        """A floating-point constant."""
        if math.isnan(value):
            plain = Piece("NAN")
        elif math.isinf(value):
            plain = Piece("-INFINITY" if value < 0 else "INFINITY", UNARY if value < 0 else 8)
        else:
            suffix = "" if dtype == "float64" else "f"
            plain = Piece(f"{value!r}{suffix}", UNARY if value < 0 or repr(value)[0] == "-" else 8)
        return plain if dtype in ("float32", "float64") else self.cast(plain, "float32", dtype)

    # -- operators -----------------------------------------------------------------------------------------

    def visit_BinaryOp(self, e: BinaryOp) -> Piece:
        kind = type(e).__name__
        if kind in ("Min", "Max"):
            return self.extremum(kind, e)
        if kind == "Mod" and dt.is_float(e.dtype):
            return self.call(self.math_name("fmod", e.dtype), self.expr(e.a), self.expr(e.b))
        if kind not in _INFIX:
            raise RelaxishError(f"{self.language} code generation does not know {kind}; run LowerIntrin first")
        operator, level = _INFIX[kind]
        return self.narrowed(self.operation(operator, self.expr(e.a), self.expr(e.b), level), e.dtype)

    def operation(self, operator: str, a: Piece, b: Piece, level: int) -> Piece:
        """``a operator b``, with the parentheses that the language wants."""
        return infix(operator, a, b, level)

    def narrowed(self, value: Piece, dtype: str) -> Piece:
        """C computes with ints where the program computes with narrower integers: back to those."""
        narrow = dt.is_integral(dtype) and dt.bits(dtype) < 32 and dt.lanes(dtype) == 1 and not dt.is_bool(dtype)
        return self.cast(value, "int32", dtype) if narrow else value

    visit_CmpOp = visit_BinaryOp
    visit_LogicalOp = visit_BinaryOp

    def visit_And(self, e: And | Or) -> Piece:
        a = self.expr(e.a)
        self.guards += 1
        b = self.expr(e.b)
        self.guards -= 1
        operator, level = _INFIX[type(e).__name__]
        return self.operation(operator, a, b, level)

    visit_Or = visit_And

    def visit_Not(self, e: Not) -> Piece:
        return Piece(f"!{wrapped(self.expr(e.a), UNARY)}", UNARY)

    def extremum(self, kind: str, e: BinaryOp) -> Piece:
        """The smaller or larger of two values."""
        if dt.is_bool(e.dtype):
            return (
                infix("&&", self.expr(e.a), self.expr(e.b), AND)
                if kind == "Min"
                else infix("||", self.expr(e.a), self.expr(e.b), OR)
            )
        return self.call(self.math_name(kind.lower(), e.dtype), self.expr(e.a), self.expr(e.b))

    def visit_Cast(self, e: Cast) -> Piece:
        inner = self.expr(e.value)
        return inner if e.value.dtype == e.dtype else self.cast(inner, e.value.dtype, e.dtype)

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        """Conversion of a value to another type."""
        return Piece(f"({self.type_name(target)}){wrapped(value, UNARY)}", UNARY)

    def visit_Select(self, e: Select) -> Piece:
        return self.choice(self.expr(e.condition), self.expr(e.true_value), self.expr(e.false_value))

    def choice(self, condition: Piece, yes: Piece, no: Piece) -> Piece:
        """``condition ? yes : no``; only the chosen one is evaluated."""
        level = CONDITION + 1
        return Piece(f"{wrapped(condition, level)} ? {wrapped(yes, level)} : {wrapped(no, level)}", CONDITION)

    def visit_Let(self, e: Let) -> Piece:
        value = self.expr(e.value)
        if self.guards:  # a statement before this one would evaluate it unasked
            self.names[e.var] = value
        else:
            name = self.supply.fresh(e.var.name)
            self.line(self.declaration(e.value.dtype, name, value))
            self.names[e.var] = Piece(name)
        return self.expr(e.body)

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("  " * self.depth + text)

    # -- vectors and memory --------------------------------------------------------------------------------

    def visit_Broadcast(self, e: Broadcast) -> Piece:
        return self.vector(e.dtype, [self.expr(e.value)])

    def visit_Ramp(self, e: Ramp) -> Piece:
        from .lanes import lane

        return self.vector(e.dtype, [self.expr(self.analyzer.simplify(lane(e, i))) for i in range(dt.lanes(e.dtype))])

    def visit_Shuffle(self, e: Any) -> Piece:
        lanes: list[Piece] = []
        for vector in e.vectors:
            text, width = self.expr(vector), dt.lanes(vector.dtype)
            lanes += [text] if width == 1 else [self.lane(text, i) for i in range(width)]
        picked = [lanes[int(i.value)] for i in e.indices]
        return picked[0] if len(picked) == 1 else self.vector(e.dtype, picked)

    def vector(self, dtype: str, elements: list[Piece]) -> Piece:
        """A vector of these elements; one element stands for all of them."""
        raise RelaxishError(f"{self.language} code generation has no vectors ({dtype})")

    def lane(self, vector: Piece, index: int) -> Piece:
        """One element of a vector."""
        return Piece(f"{wrapped(vector, 8)}[{index}]")

    def visit_BufferLoad(self, e: BufferLoad) -> Piece:
        if e.predicate is not None:
            raise RelaxishError(f"{self.language} code generation has no predicated loads")
        access = access_of(e.buffer, e.indices, self.analyzer)
        if access.count == 1:
            return self.element(e.buffer, access.element, self.index(access.base))
        if access.base is not None:
            return self.load_vector(e.buffer, access.element, access.count, self.index(access.base))
        elements = [self.element(e.buffer, access.element, self.index(place)) for place in access.places]
        return self.vector(dt.with_lanes(access.element, access.count), elements)

    def index(self, place: PrimExpr) -> Piece:
        """The text of an index; some languages want it narrow."""
        return self.expr(place)

    def element(self, buffer: Buffer, element: str, index: Piece) -> Piece:
        """The value of one element of a buffer."""
        return Piece(f"{wrapped(self.pointer(buffer.data, element), 8)}[{index}]")

    def load_vector(self, buffer: Buffer, element: str, count: int, index: Piece) -> Piece:
        """Consecutive elements as a vector."""
        raise RelaxishError(f"{self.language} code generation has no vectors ({element}x{count})")

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, e: Call) -> Piece:
        if not op_name_of(e):
            raise RelaxishError(f"a compiled function calls {e.op}, which is no intrinsic")
        name = e.op.name.removeprefix("tir.")
        special = getattr(self, f"call_{name}", None)
        if special is not None:
            made: Piece = special(e)
            return made
        return self.call(self.math_name(name, e.args[0].dtype if e.args else e.dtype), *map(self.expr, e.args))

    def call(self, function: str, *args: str) -> Piece:
        """A call of a function."""
        return Piece(f"{function}({', '.join(args)})")
