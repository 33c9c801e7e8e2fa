"""Scalar and vector expressions as CUDA C++ text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ...ir import dtype as dt
from ...ir.functor import Visitor
from ...ir.op import Op
from ...ir.prim import IntImm, Ramp
from ...support.errors import RelaxishError
from .intrinsics import BITWISE, call_name
from .types import constant, type_name

__all__ = ["ExprText"]

_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
          "And": "&&", "Or": "||"}  # fmt: skip
_FUNCTIONS = {"Min": "least", "Max": "greatest", "FloorDiv": "floordiv", "FloorMod": "floormod"}


class ExprText(Visitor):
    """Visits expressions and gives text; ``names`` maps variables to what stands for them."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.memory_types: dict[Any, str] = {}
        self.dtypes: set[str] = set()
        self.uses_wmma = False

    def expr(self, node: Any) -> str:
        """The text of an expression."""
        self.dtypes.add(node.dtype)
        made: str = self.visit(node)
        return made

    def default_visit(self, node: Any) -> str:
        raise RelaxishError(f"CUDA code generation does not know the expression {type(node).__name__}")

    # -- leaves --------------------------------------------------------------------------------------------

    def visit_Var(self, var: Any) -> str:
        name = self.names.get(var)
        if name is None:
            raise RelaxishError(f"the variable {var.name} is used in a kernel but not defined in it")
        return name

    def visit_IntImm(self, e: Any) -> str:
        return constant(e.value, e.dtype)

    def visit_FloatImm(self, e: Any) -> str:
        return constant(e.value, e.dtype)

    def visit_StringImm(self, e: Any) -> str:
        escaped = e.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    # -- operators -----------------------------------------------------------------------------------------

    def _zip(self, a: str, b: str, dtype: str, body: str) -> str:
        element = type_name(dt.element_of(dtype))
        return f"vzip({a}, {b}, [&]({element} a, {element} b) {{ return {body}; }})"

    def visit_BinaryOp(self, e: Any) -> str:
        a, b = self.expr(e.a), self.expr(e.b)
        kind = type(e).__name__
        form = self._binary_form(kind, dt.element_of(e.a.dtype))
        if dt.lanes(e.a.dtype) != 1:
            return self._zip(a, b, e.a.dtype, form("a", "b"))
        return form(a, b)

    def visit_CmpOp(self, e: Any) -> str:
        return self.visit_BinaryOp(e)

    visit_LogicalOp = visit_CmpOp
    visit_And = visit_CmpOp
    visit_Or = visit_CmpOp

    def _binary_form(self, kind: str, element: str) -> Callable[[str, str], str]:
        if kind in _INFIX:
            return lambda a, b: f"({a} {_INFIX[kind]} {b})"
        if kind in _FUNCTIONS:
            return lambda a, b: f"{_FUNCTIONS[kind]}({a}, {b})"
        if kind == "Div":
            return lambda a, b: f"({a} / {b})"
        if kind == "Mod":
            return (lambda a, b: f"fmod({a}, {b})") if dt.is_float(element) else (lambda a, b: f"({a} % {b})")
        raise RelaxishError(f"CUDA code generation does not know the operator {kind}")

    def visit_Not(self, e: Any) -> str:
        inner = self.expr(e.a)
        return f"(!{inner})" if dt.lanes(e.dtype) == 1 else f"vmap({inner}, [](bool a) {{ return !a; }})"

    def visit_Cast(self, e: Any) -> str:
        inner, target = self.expr(e.value), type_name(dt.element_of(e.dtype))
        if dt.lanes(e.dtype) != 1:
            return f"vcast<{target}>({inner})"
        return f"(({target}){inner})"

    def visit_Select(self, e: Any) -> str:
        c, a, b = self.expr(e.condition), self.expr(e.true_value), self.expr(e.false_value)
        if dt.lanes(e.condition.dtype) != 1:
            return f"vselect({c}, {a}, {b})"
        return f"({c} ? {a} : {b})"

    def visit_Let(self, e: Any) -> str:
        value = self.expr(e.value)
        self.names[e.var] = name = self.fresh(e.var.name)
        return f"([&]({type_name(e.value.dtype)} {name}) {{ return {self.expr(e.body)}; }}({value}))"

    def fresh(self, name: str) -> str:
        """A C++ name that nothing else has."""
        raise NotImplementedError

    # -- vectors and memory --------------------------------------------------------------------------------

    def visit_Broadcast(self, e: Any) -> str:
        return f"{type_name(e.dtype)}::all({self.expr(e.value)})"

    def visit_Ramp(self, e: Any) -> str:
        return f"{type_name(e.dtype)}::ramp({self.expr(e.base)}, {self.expr(e.stride)})"

    def visit_Shuffle(self, e: Any) -> str:
        lanes = [f"{self.expr(v)}[{i}]" if dt.lanes(v.dtype) != 1 else self.expr(v)
                 for v in e.vectors for i in range(dt.lanes(v.dtype))]  # fmt: skip
        picked = [lanes[int(i.value)] for i in e.indices]
        return picked[0] if len(picked) == 1 else f"{type_name(e.dtype)}{{{{{', '.join(picked)}}}}}"

    def memory(self, buffer: Any, element: str) -> str:
        """A pointer to elements of a type in a buffer's memory."""
        name = self.names[buffer.data]
        return name if self.memory_types.get(buffer.data) == element else f"(({type_name(element)}*){name})"

    def place(self, buffer: Any, indices: Any, lanes: int) -> tuple[str, str, str]:
        """(how, pointer, index): "element" and "vector" are lvalues ``pointer[index]``, "lanes" wants gather."""
        (index,) = indices
        self.dtypes.add(buffer.dtype)
        if lanes == dt.lanes(buffer.dtype) and dt.lanes(index.dtype) == 1:
            return "element", self.memory(buffer, buffer.dtype), self.expr(index)
        pointer = self.memory(buffer, buffer.dtype)
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1:
            total = dt.with_lanes(dt.element_of(buffer.dtype), lanes)
            return "vector", f"(({type_name(total)}*)({pointer} + {self.expr(index.base)}))", "0"
        return "lanes", pointer, self.expr(index)

    def visit_BufferLoad(self, e: Any) -> str:
        how, pointer, index = self.place(e.buffer, e.indices, dt.lanes(e.dtype))
        return f"gather({pointer}, {index})" if how == "lanes" else f"{pointer}[{index}]"

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, e: Any) -> str:
        if not isinstance(e.op, Op):
            raise RelaxishError(f"a kernel calls {e.op}, which is no intrinsic")
        name = e.op.name.removeprefix("tir.")
        special = self.SPECIAL.get(name)
        if special is not None:
            return special(self, e)
        if name in BITWISE:
            return self._apply(e, lambda *a: f"({a[0]} {BITWISE[name]} {a[1]})")
        args_dtype = e.args[0].dtype if e.args else e.dtype
        function = call_name(name, args_dtype)
        if function is not None:
            return self._apply(e, lambda *a: f"{function}({', '.join(a)})")
        wide = call_name(name, "float32")
        if wide is None:
            raise RelaxishError(f"CUDA code generation does not know the intrinsic {name}")
        element = type_name(dt.element_of(e.dtype))
        return self._apply(e, lambda *a: f"({element}){wide}({', '.join(f'(float){x}' for x in a)})")

    def _apply(self, e: Any, form: Callable[..., str]) -> str:
        args = [self.expr(a) for a in e.args]
        if dt.lanes(e.dtype) == 1:
            return form(*args)
        if len(args) == 1:
            return f"vmap({args[0]}, [&]({type_name(dt.element_of(e.args[0].dtype))} a) {{ return {form('a')}; }})"
        return self._zip(args[0], args[1], e.args[0].dtype, form("a", "b"))

    def _extern(self, e: Any) -> str:
        name = e.args[0].value
        args = e.args[1:]
        if dt.lanes(e.dtype) != 1 and args and dt.lanes(args[0].dtype) == dt.lanes(e.dtype):
            inner = type("Args", (), {"args": args, "dtype": e.dtype})()
            return self._apply(inner, lambda *a: f"{name}({', '.join(a)})")
        return f"{name}({', '.join(self.expr(a) for a in args)})"

    def _access_ptr(self, e: Any) -> str:
        element = type_name(e.args[0].dtype)
        return f"(({element}*){self.expr(e.args[1])} + {self.expr(e.args[2])})"

    def _address_of(self, e: Any) -> str:
        load = e.args[0]
        _, pointer, index = self.place(load.buffer, load.indices, dt.lanes(load.dtype))
        return f"(&{pointer}[{index}])"

    def _shuffle(self, e: Any) -> str:
        name = {"tvm_warp_shuffle": "__shfl_sync", "tvm_warp_shuffle_up": "__shfl_up_sync",
                "tvm_warp_shuffle_down": "__shfl_down_sync"}[e.op.name.removeprefix("tir.")]  # fmt: skip
        mask, value, lane, width = (self.expr(a) for a in e.args[:4])
        return f"{name}({mask}, {value}, {lane}, {width})"

    def _if_then_else(self, e: Any) -> str:
        c, a, b = (self.expr(x) for x in e.args)
        return f"({c} ? {a} : {b})"

    def _reinterpret(self, e: Any) -> str:
        return f"bits_as<{type_name(e.dtype)}>({self.expr(e.args[0])})"

    def _dp4a(self, e: Any) -> str:
        words = ", ".join(f"bits_as<int>({self.expr(a)})" for a in e.args[:2])
        return f"__dp4a({words}, {self.expr(e.args[2]) if len(e.args) > 2 else '0'})"

    SPECIAL: ClassVar[dict[str, Callable[[Any, Any], str]]] = {
        "call_extern": _extern,
        "call_pure_extern": _extern,
        "tvm_access_ptr": _access_ptr,
        "address_of": _address_of,
        "tvm_warp_shuffle": _shuffle,
        "tvm_warp_shuffle_up": _shuffle,
        "tvm_warp_shuffle_down": _shuffle,
        "tvm_warp_activemask": lambda self, e: "__activemask()",
        "if_then_else": _if_then_else,
        "reinterpret": _reinterpret,
        "likely": lambda self, e: self.expr(e.args[0]),
        "bitwise_not": lambda self, e: f"(~{self.expr(e.args[0])})",
        "abs": lambda self, e: self._apply(e, lambda a: f"({a} < 0 ? -{a} : {a})"),
        "popcount": lambda self, e: self._apply(e, lambda a: f"__popc({a})"),
        "isnan": lambda self, e: self._apply(e, lambda a: f"({a} != {a})"),
        "isinf": lambda self, e: self._apply(e, lambda a: f"isinf((float){a})"),
        "dp4a": _dp4a,
    }
