"""Variables, calls and bindings of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.module import IRModule
from ...ir.op import op_name_of
from ...ir.prim import Var as TirVar
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..expr_functor import PyExprVisitor
from ..op_table import op_record_of
from ..struct_info import StructInfo, is_pure_function
from .struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info

__all__ = [
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "contains_impure_call",
    "defined_symbolic_vars",
    "direct_uses",
    "find_impure_call",
    "free_symbolic_vars",
    "free_vars",
    "get_var2val",
    "name_to_binding",
    "post_order_visit",
    "udchain",
]


def direct_uses(value: Expr) -> list[Var]:
    """Variables used by one binding's value (in A-normal form), branches and nested functions included."""
    out: list[Var] = []
    _uses(value, out)
    return out


def _uses(value: Expr, out: list[Var]) -> None:
    match value:
        case Var():
            out.append(value)
        case Call():
            if not op_name_of(value):
                _uses(value.op, out)
            for arg in value.args:
                match arg:
                    case Var():
                        out.append(arg)
                    case Tuple():
                        _uses(arg, out)
        case Tuple():
            for item in value.fields:
                _uses(item, out)
        case TupleGetItem():
            _uses(value.tuple_value, out)
        case If() | SeqExpr() | Function():
            out.extend(free_vars(value))


class _Vars(PyExprVisitor):
    """Collects uses and definitions in order."""

    def __init__(self) -> None:
        self.used: dict[Var, None] = {}
        self.bound: dict[Var, None] = {}
        self.globals: dict[GlobalVar, None] = {}
        self.order: dict[Var, None] = {}

    def visit_var_(self, op: Var) -> None:
        self.used[op] = None
        self.order[op] = None

    def visit_var_def_(self, var: Var) -> None:
        self.bound[var] = None
        self.order[var] = None

    def visit_global_var_(self, op: GlobalVar) -> None:
        self.globals[op] = None

    def visit_binding(self, binding: Binding) -> None:
        # The variable counts before its value, in which a local function may name it.
        self.visit_var_def_(binding.var)
        super().visit_binding(binding)


def _collect(expr: Expr) -> _Vars:
    found = _Vars()
    match expr:
        case BindingBlock():
            found.visit_binding_block(expr)
        case IRModule():
            for func in expr.functions.values():
                found.visit_expr(func)
        case _:
            found.visit_expr(expr)
    return found


def bound_vars(expr: Expr) -> list[Var]:
    """Variables that the expression binds: parameters and bindings."""
    return list(_collect(expr).bound)


def free_vars(expr: Expr) -> list[Var]:
    """Variables used but not bound in the expression."""
    found = _collect(expr)
    return [v for v in found.used if v not in found.bound]


def all_vars(expr: Expr) -> list[Var]:
    """Every variable, bound or used."""
    return list(_collect(expr).order)


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """Every module function named in the expression."""
    return list(_collect(expr).globals)


class _PostOrder(PyExprVisitor):
    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback

    def visit_expr(self, expr: Expr) -> None:
        super().visit_expr(expr)
        self.callback(expr)


def post_order_visit(expr: Expr, fvisit: Callable[[Any], None]) -> None:
    """Call ``fvisit`` on every expression, children first."""
    visitor = _PostOrder(fvisit)
    if isinstance(expr, BindingBlock):
        visitor.visit_binding_block(expr)
    else:
        visitor.visit_expr(expr)


class _Symbols(PyExprVisitor):
    """Symbolic variables: where they are defined and which are used."""

    def __init__(self) -> None:
        self.defined: dict[TirVar, None] = {}
        self.used: dict[TirVar, None] = {}

    def define(self, info: StructInfo) -> None:
        self.defined.update(dict.fromkeys(definable_tir_vars_in_struct_info(info)))
        self.use(info)

    def use(self, info: StructInfo) -> None:
        if info is not None:
            self.used.update(dict.fromkeys(tir_vars_in_struct_info(info)))

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            if param.struct_info_ is not None:
                self.define(param.struct_info_)
        if op.body is not None:
            self.visit_expr(op.body)
        self.use(op.ret_struct_info)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)
        self.define(binding.struct_info)

    def visit_var_def_(self, var: Var) -> None:
        self.use(var.struct_info_)

    def visit_var_(self, op: Var) -> None:
        self.use(op.struct_info_)

    def visit_prim_expr(self, value: PrimExpr) -> None:
        from ..scalars import prim_vars

        self.used.update(dict.fromkeys(prim_vars(value)))

    def visit_struct_info_node(self, info: StructInfo) -> None:
        self.use(info)


def _symbols(func: Function) -> _Symbols:
    found = _Symbols()
    found.visit_expr(func)
    return found


def defined_symbolic_vars(func: Function) -> list[TirVar]:
    """Symbolic variables that parameters and match_casts define."""
    return list(_symbols(func).defined)


def free_symbolic_vars(func: Function) -> list[TirVar]:
    """Symbolic variables used but defined nowhere in the function."""
    found = _symbols(func)
    return [v for v in found.used if v not in found.defined]


def _call_is_impure(call: Call) -> bool:
    if op_name_of(call):
        record = op_record_of(call.op)
        if record is not None and not record.pure:
            return True
        if call.op.name == "relax.invoke_pure_closure":
            return False
        return record is None
    info = call.op.struct_info_
    return not (is_pure_function(info))


def is_impure_call(call: Call, own_name: str | None = None) -> bool:
    """Whether a call may have side effects; calls of ``own_name`` (recursion) do not count."""
    if own_name is not None and isinstance(call.op, (Var, GlobalVar)) and call.op.name_hint == own_name:
        return False
    return _call_is_impure(call)


class _Impure(PyExprVisitor):
    def __init__(self, own_name: Var | GlobalVar | str | None) -> None:
        self.own_name = own_name.name_hint if isinstance(own_name, (Var, GlobalVar)) else own_name
        self.found: Call | None = None

    def visit_function_(self, op: Function) -> None:
        """The body of a local function runs only where it is called."""

    def visit_call_(self, op: Call) -> None:
        if self.found is None and is_impure_call(op, self.own_name):
            self.found = op
        for arg in op.args:
            self.visit_expr(arg)


def find_impure_call(expr: Expr, own_name: Var | GlobalVar | str | None = None) -> Call | None:
    """The first impure call, or None."""
    finder = _Impure(own_name)
    finder.visit_expr(expr.body if isinstance(expr, Function) else expr)
    return finder.found


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | str | None = None) -> bool:
    """Whether any call in the expression may have side effects (recursive calls of ``own_name`` aside)."""
    return find_impure_call(expr, own_name) is not None


class _Bindings(PyExprVisitor):
    def __init__(self) -> None:
        self.values: dict[Var, Any] = {}
        self.by_name: dict[str, list[Any]] = {}

    def visit_binding(self, binding: Binding) -> None:
        self.values[binding.var] = binding.value
        self.by_name.setdefault(binding.var.name_hint, []).append(binding)
        super().visit_binding(binding)


def get_var2val(func: Function) -> dict[Var, Any]:
    """From each variable to the value bound to it."""
    found = _Bindings()
    found.visit_expr(func)
    return found.values


def name_to_binding(func: Function) -> dict[str, list[Any]]:
    """From each name to the bindings that use it."""
    found = _Bindings()
    found.visit_expr(func)
    return found.by_name


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """From each variable of a dataflow block to the variables whose bindings use it."""
    chain: dict[Var, list[Var]] = {}
    for binding in dfb.bindings:
        chain.setdefault(binding.var, [])
        for used in direct_uses(binding.value):
            users = chain.setdefault(used, [])
            if binding.var not in users:
                users.append(binding.var)
    return chain
