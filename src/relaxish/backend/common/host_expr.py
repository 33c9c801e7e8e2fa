"""Scalar expressions of host functions as Python text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.functor import Visitor
from ...ir.node import Node
from ...ir.op import op_name_of
from ...ir.prim import BinaryOp, Call, Cast, FloatImm, IntImm, Let, Not, Select, StringImm, Var, is_zero
from ...support.errors import RelaxishError
from ...tir.expr import BufferLoad

__all__ = ["HostExpr"]

_INFIX = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "EQ": "==", "NE": "!=", "LT": "<",
    "LE": "<=", "GT": ">", "GE": ">=", "And": "and", "Or": "or",
}  # fmt: skip
_OPERATORS = {
    "shift_left": "<<", "shift_right": ">>", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
_MATH = {
    "exp": "exp", "log": "log", "log2": "log2", "log10": "log10", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
    "tan": "tan", "tanh": "tanh", "atan": "atan", "ceil": "ceil", "floor": "floor", "trunc": "trunc", "fabs": "fabs",
    "pow": "pow",
}  # fmt: skip


class HostExpr(Visitor[str]):
    """Visits expressions and gives text; ``names`` says what variables stand for."""

    def __init__(self, function: str, names: dict[Any, str], fresh: Callable[[str], str]) -> None:
        self.function = function
        self.names = names
        self.fresh = fresh

    def text(self, expr: PrimExpr) -> str:
        """The text of an expression."""
        return self.visit(expr)

    def _refuse(self, what: str) -> RelaxishError:
        return RelaxishError(f"{self.function}: {what} cannot run on the host of a device program")

    def default_visit(self, node: Node) -> str:
        raise self._refuse(f"a {type(node).__name__}")

    # -- leaves and operators ------------------------------------------------------------------------------

    def visit_Var(self, var: Var) -> str:
        found = self.names.get(var)
        if found is None:
            raise RelaxishError(f"{self.function}: the variable {var.name} is used but not defined")
        return found

    def visit_IntImm(self, e: IntImm) -> str:
        value = bool(e.value) if e.dtype == "bool" else int(e.value)
        return f"({value})" if e.value < 0 else str(value)

    def visit_FloatImm(self, e: FloatImm) -> str:
        return f"float({str(e.value)!r})" if "n" in repr(float(e.value)) else f"({float(e.value)!r})"

    def visit_StringImm(self, e: StringImm) -> str:
        return repr(e.value)

    def visit_BinaryOp(self, e: BinaryOp) -> str:
        kind = type(e).__name__
        a, b = self.text(e.a), self.text(e.b)
        if kind in ("Min", "Max"):
            return f"{kind.lower()}({a}, {b})"
        if kind == "Div":
            return f"trunc_div({a}, {b})" if dt.is_int(e.dtype) or dt.is_uint(e.dtype) else f"({a} / {b})"
        if kind == "Mod":
            return f"trunc_mod({a}, {b})"
        return f"({a} {_INFIX[kind]} {b})"

    visit_CmpOp = visit_BinaryOp
    visit_LogicalOp = visit_BinaryOp
    visit_And = visit_BinaryOp
    visit_Or = visit_BinaryOp

    def visit_Not(self, e: Not) -> str:
        return f"(not {self.text(e.a)})"

    def visit_Select(self, e: Select) -> str:
        return f"({self.text(e.true_value)} if {self.text(e.condition)} else {self.text(e.false_value)})"

    def visit_Cast(self, e: Cast) -> str:
        value, source, target = self.text(e.value), e.value.dtype, e.dtype
        if target == "bool":
            return f"bool({value})"
        if dt.is_float(target) or target.startswith("bfloat"):
            return f"float({value})"
        if dt.is_float(source) or source == "bool":
            return f"int({value})"
        if dt.is_uint(target) and dt.is_int(source):
            return f"({value} & {(1 << dt.bits(target)) - 1})"
        return value

    def visit_Let(self, e: Let) -> str:
        name = self.names[e.var] = self.fresh(e.var.name)
        return f"(lambda {name}: {self.text(e.body)})({self.text(e.value)})"

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, call: Call) -> str:
        if isinstance(call.op, GlobalVar):
            return f"rt.call({', '.join([repr(call.op.name_hint), *map(self.text, call.args)])})"
        name = op_name_of(call).removeprefix("tir.") or str(call.op)
        form = _CALLS.get(name)
        if form is not None:
            return form(self, call)
        args = [self.text(a) for a in call.args]
        if name in _OPERATORS:
            return f"({args[0]} {_OPERATORS[name]} {args[1]})"
        if name in _MATH:
            return f"math.{_MATH[name]}({', '.join(args)})"
        raise self._refuse(f"a call of {name}")

    def _address_of(self, call: Call) -> str:
        load = call.args[0]
        if not isinstance(load, BufferLoad) or len(load.indices) != 1:
            raise self._refuse("the address of what is no element")
        return self._offset(load.buffer.data, load.indices[0], load.buffer.dtype)

    def _access_pointer(self, call: Call) -> str:
        kind, data, offset = call.args[:3]
        return self._offset(data, offset, kind.dtype)

    def _offset(self, data: Var, index: PrimExpr, dtype: str) -> str:
        pointer = self.text(data)
        if is_zero(index):
            return pointer
        return f"({pointer} + {self.text(index)} * {dt.nbytes(dtype)})"

    def _packed(self, call: Call) -> str:
        name, *args = call.args
        if not isinstance(name, StringImm):
            raise self._refuse("a packed call without a name")
        return f"rt.packed({', '.join([repr(name.value), *map(self.text, args)])})"

    def _array(self, call: Call) -> str:
        data, shape, _, _, element, offset = call.args
        pointer = self._offset(data, offset, element.dtype)
        return f"rt.array({pointer}, {self.text(shape)}, {element.dtype!r})"

    def _shape(self, call: Call) -> str:
        dims = [self.text(a) for a in call.args]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"

    def _tensor_map(self, call: Call) -> str:
        data, dtype, rank, *rest = call.args
        count = int(rank.value)
        parts = [rest[:count], rest[count : 2 * count - 1], rest[2 * count - 1 : 3 * count - 1]]
        shown = [self._tuple(part) for part in parts]
        tail = [self.text(a) for a in rest[3 * count - 1 :]]
        return f"rt.tensor_map({', '.join([self.text(data), repr(dtype.value), *shown, *tail])})"

    def _tuple(self, exprs: Sequence[PrimExpr]) -> str:
        return f"({''.join(self.text(e) + ', ' for e in exprs).rstrip(' ')})"


_CALLS: dict[str, Callable[[HostExpr, Any], str]] = {
    "address_of": HostExpr._address_of,
    "tvm_access_ptr": HostExpr._access_pointer,
    "tvm_call_packed": HostExpr._packed,
    "call_packed": HostExpr._packed,
    "tvm_stack_make_array": HostExpr._array,
    "tvm_stack_make_shape": HostExpr._shape,
    "tensor_map_encode": HostExpr._tensor_map,
    "likely": lambda self, call: self.text(call.args[0]),
    "bitwise_not": lambda self, call: f"(~{self.text(call.args[0])})",
    "if_then_else": lambda self, call: (
        f"({self.text(call.args[1])} if {self.text(call.args[0])} else {self.text(call.args[2])})"
    ),
    "isnullptr": lambda self, call: f"({self.text(call.args[0])} in (0, None))",
}
