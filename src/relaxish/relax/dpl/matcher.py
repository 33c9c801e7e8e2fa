"""Matching one expression against a pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...relax.expr import is_call_of
from ...ir.attrs import Attrs
from ...ir.expr import GlobalVar
from ...ir.op import Op
from ...ir.structural import structural_equal
from ..expr import (
    Call,
    Constant,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    as_shape_dim,
)
from ..scalars import prove_equal_shapes
from ..struct_info import TensorStructInfo, tensor_dims
from . import pattern as p
from .conditions import Conditions, subtype_conditions
from ...ir.plain import plain

__all__ = ["Matcher", "extract_matched_expr"]

_COMMUTATIVE = frozenset({"relax.add", "relax.multiply"})


class Matcher:
    """One attempt; ``memo`` holds what each pattern has matched so far."""

    def __init__(self, var2val: Mapping[Var, Any] | None = None) -> None:
        self.var2val = var2val or {}
        self.memo: dict[p.DFPattern, Any] = {}
        self.conditions = Conditions()

    def value_of(self, expr: Expr) -> Expr:
        """Value of a bound variable, all the way down."""
        while True:
            match expr:
                case Var() if expr in self.var2val:
                    expr = self.var2val[expr]
                case SeqExpr() if not expr.blocks:
                    expr = expr.body
                case _:
                    return expr

    def match(self, pattern: p.DFPattern, expr: Expr) -> bool:
        """Whether the expression matches, in agreement with what matched before; nothing is kept of a failure."""
        value = self.value_of(expr)
        if pattern in self.memo:
            return self.memo[pattern] is value or (isinstance(value, Op) and self.memo[pattern] == value)
        before = len(self.memo)
        conditions = self.conditions
        rule = _RULES[type(pattern)]
        if rule(self, pattern, value if type(pattern) not in _ON_VARIABLES else expr):
            self.memo[pattern] = value
            return True
        self.forget(before)
        self.conditions = conditions
        return False

    def forget(self, count: int) -> None:
        """Back to the first ``count`` matches."""
        while len(self.memo) > count:
            self.memo.popitem()

    def match_all(self, patterns: Sequence[p.DFPattern], exprs: Sequence[Any]) -> bool:
        """Whether all match, pairwise."""
        before = len(self.memo)
        if all(self.match(pattern, expr) for pattern, expr in zip(patterns, exprs)):
            return True
        self.forget(before)
        return False


def _expr(m: Matcher, pattern: p.ExprPattern, expr: Expr) -> bool:
    return expr is pattern.expr or (type(expr) is type(pattern.expr) and structural_equal(pattern.expr, expr))


def _var(m: Matcher, pattern: p.VarPattern, expr: Expr) -> bool:
    return isinstance(expr, Var) and pattern.name_hint in ("", expr.name_hint)


def _dataflow_var(m: Matcher, pattern: p.DataflowVarPattern, expr: Expr) -> bool:
    return isinstance(expr, DataflowVar) and pattern.name_hint in ("", expr.name_hint)


def _global_var(m: Matcher, pattern: p.GlobalVarPattern, expr: Expr) -> bool:
    return isinstance(expr, GlobalVar) and pattern.name_hint in expr.name_hint


def _extern(m: Matcher, pattern: p.ExternFuncPattern, expr: Expr) -> bool:
    return isinstance(expr, ExternFunc) and pattern.global_symbol in ("", expr.global_symbol)


def _constant(m: Matcher, pattern: p.ConstantPattern, expr: Expr) -> bool:
    return isinstance(expr, Constant)


def _call(m: Matcher, pattern: p.CallPattern, expr: Expr) -> bool:
    if not isinstance(expr, Call):
        return False
    before = len(m.memo)
    if not m.match(pattern.op, expr.op):
        return _reassociated(m, pattern, expr)
    wanted, given = len(pattern.args), len(expr.args)
    if given != wanted and not (pattern.varg_default_wildcard and given > wanted):
        m.forget(before)
        return False
    if m.match_all(pattern.args, expr.args):
        return True
    if is_call_of(expr, *_COMMUTATIVE) and m.match_all(pattern.args, expr.args[::-1]):
        return True
    m.forget(before)
    return False


def _reassociated(m: Matcher, pattern: p.CallPattern, expr: Call) -> bool:
    """``a * b / c`` also matches ``a * (b / c)``, and the other way round."""

    def is_op(value: Expr, name: str) -> bool:
        value = m.value_of(value)
        return is_call_of(value, name)

    if p.is_operator_pattern(pattern, "relax.divide") and is_op(expr, "relax.multiply"):
        product = pattern.args[0]
        if p.is_operator_pattern(product, "relax.multiply") and any(is_op(a, "relax.divide") for a in expr.args):
            assert isinstance(product, p.CallPattern)
            for i in range(2):
                divided = p.CallPattern(pattern.op, [product.args[i], pattern.args[1]], add_constraint=False)
                if m.match(p.CallPattern(product.op, [product.args[1 - i], divided], add_constraint=False), expr):
                    return True
    if p.is_operator_pattern(pattern, "relax.multiply") and is_op(expr, "relax.divide"):
        for i, factor in enumerate(pattern.args):
            quotient: Any = factor
            if p.is_operator_pattern(quotient, "relax.divide") and any(is_op(a, "relax.multiply") for a in expr.args):
                numerator = p.CallPattern(pattern.op, [quotient.args[0], pattern.args[1 - i]], add_constraint=False)
                return m.match(p.CallPattern(quotient.op, [numerator, quotient.args[1]], add_constraint=False), expr)
    return False


def _function(m: Matcher, pattern: p.FunctionPattern, expr: Expr) -> bool:
    if not isinstance(expr, Function) or len(expr.params) != len(pattern.params):
        return False
    return m.match_all(pattern.params, expr.params) and m.match(pattern.body, expr.body)


def _tuple(m: Matcher, pattern: p.TuplePattern, expr: Expr) -> bool:
    if not isinstance(expr, Tuple) or len(expr.fields) != len(pattern.fields):
        return False
    return m.match_all(pattern.fields, expr.fields)


def _unordered_tuple(m: Matcher, pattern: p.UnorderedTuplePattern, expr: Expr) -> bool:
    if not isinstance(expr, Tuple) or len(expr.fields) != len(pattern.fields):
        return False
    return _assign(m, pattern.fields, list(expr.fields))


def _assign(m: Matcher, patterns: Sequence[p.DFPattern], left: list[Any]) -> bool:
    if not patterns:
        return True
    for index, item in enumerate(left):
        before = len(m.memo)
        if m.match(patterns[0], item) and _assign(m, patterns[1:], left[:index] + left[index + 1 :]):
            return True
        m.forget(before)
    return False


def _tuple_get_item(m: Matcher, pattern: p.TupleGetItemPattern, expr: Expr) -> bool:
    if not isinstance(expr, TupleGetItem) or pattern.index not in (-1, expr.index):
        return False
    return m.match(pattern.tuple, expr.tuple_value)


def _or(m: Matcher, pattern: p.OrPattern, expr: Expr) -> bool:
    return m.match(pattern.left, expr) or m.match(pattern.right, expr)


def _and(m: Matcher, pattern: p.AndPattern, expr: Expr) -> bool:
    return m.match(pattern.left, expr) and m.match(pattern.right, expr)


def _not(m: Matcher, pattern: p.NotPattern, expr: Expr) -> bool:
    before = len(m.memo)
    matched = m.match(pattern.reject, expr)
    m.forget(before)
    return not matched


def _wildcard(m: Matcher, pattern: p.WildcardPattern, expr: Expr) -> bool:
    return pattern.pattern is None or m.match(pattern.pattern, expr)


def _struct_info(m: Matcher, pattern: p.StructInfoPattern, expr: Expr) -> bool:
    if not m.match(pattern.pattern, expr):
        return False
    info = getattr(expr, "struct_info_", None)
    demands = None if info is None else subtype_conditions(pattern.struct_info, info)
    conditions = None if demands is None else m.conditions.with_equal(demands)
    if conditions is None:
        return False
    m.conditions = conditions
    return True


def _type(m: Matcher, pattern: p.TypePattern, expr: Expr) -> bool:

    info = getattr(expr, "struct_info_", None)
    return info is not None and structural_equal(info.static_type, pattern.type) and m.match(pattern.pattern, expr)


def _dtype(m: Matcher, pattern: p.DataTypePattern, expr: Expr) -> bool:
    info = getattr(expr, "struct_info_", None)
    return isinstance(info, TensorStructInfo) and info.dtype == pattern.dtype and m.match(pattern.pattern, expr)


def _shape(m: Matcher, pattern: p.ShapePattern, expr: Expr) -> bool:
    info = getattr(expr, "struct_info_", None)
    dims = tensor_dims(info)
    if dims is None or not prove_equal_shapes([as_shape_dim(d) for d in pattern.shape], dims):
        return False
    return m.match(pattern.pattern, expr)


def _prim_array(m: Matcher, pattern: p.PrimArrPattern, expr: Expr) -> bool:
    return isinstance(expr, ShapeExpr) and prove_equal_shapes([as_shape_dim(d) for d in pattern.shape], expr.values)


def _attr(m: Matcher, pattern: p.AttrPattern, expr: Expr) -> bool:
    match expr:
        case Op():
            found = {key: expr.get_attr(key) for key in pattern.attrs}
        case Call() | Function():
            attrs = expr.attrs
            found = {} if attrs is None else {key: _attr_value(attrs, key) for key in pattern.attrs}
        case _:
            return False
    if not all(key in found and _same_attr(found[key], value) for key, value in pattern.attrs.items()):
        return False
    return m.match(pattern.pattern, expr)


def _attr_value(attrs: Attrs | Mapping[str, Any] | None, key: str) -> object:
    return None if attrs is None else attrs.get(key)


def _same_attr(have: Any, want: Any) -> bool:
    have, want = (plain(v) for v in (have, want))
    if isinstance(want, (list, tuple)):
        return isinstance(have, (list, tuple)) and len(have) == len(want) and all(map(_same_attr, have, want))
    if isinstance(have, str) or isinstance(want, str):
        return str(have) == str(want)
    return bool(have == want) if not hasattr(want, "_fields") else structural_equal(have, want)


_ON_VARIABLES = frozenset({p.VarPattern, p.DataflowVarPattern})

_RULES: dict[type, Any] = {
    p.ExprPattern: _expr,
    p.VarPattern: _var,
    p.DataflowVarPattern: _dataflow_var,
    p.GlobalVarPattern: _global_var,
    p.ExternFuncPattern: _extern,
    p.ConstantPattern: _constant,
    p.CallPattern: _call,
    p.FunctionPattern: _function,
    p.TuplePattern: _tuple,
    p.UnorderedTuplePattern: _unordered_tuple,
    p.TupleGetItemPattern: _tuple_get_item,
    p.OrPattern: _or,
    p.AndPattern: _and,
    p.NotPattern: _not,
    p.WildcardPattern: _wildcard,
    p.StructInfoPattern: _struct_info,
    p.TypePattern: _type,
    p.DataTypePattern: _dtype,
    p.ShapePattern: _shape,
    p.PrimArrPattern: _prim_array,
    p.AttrPattern: _attr,
}


def extract_matched_expr(
    pattern: p.DFPattern, expr: Expr, var2val: Mapping[Var, Any] | None = None
) -> dict[p.DFPattern, Any] | None:
    """Expressions matched by each part of the pattern, or None."""
    matcher = Matcher(var2val)
    return matcher.memo if matcher.match(pattern, expr) else None
