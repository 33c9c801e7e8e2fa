"""Patterns of graph expressions.

::

    x, w = wildcard(), wildcard()
    pattern = is_op("relax.nn.relu")(is_op("relax.matmul")(x, w))
    pattern.match(value, var2val)

Patterns combine with ``|``, ``&`` and ``~``; ``a >> b`` (a is used by b only) and ``a ^ b`` (a is used by b) state
constraints of the :class:`~relaxish.relax.dpl.context.PatternContext` in scope.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.op import Op
from ...ir.types import Type
from ...support.entry_points import lazy_package
from ...support.errors import InternalError
from ..expr import Expr, Var
from ..struct_info import StructInfo, as_struct_info
from .context import SameShapeConstraint, relate

__all__ = [
    "AndPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DataTypePattern",
    "DataflowVarPattern",
    "ExprPattern",
    "ExternFuncPattern",
    "FunctionPattern",
    "GlobalVarPattern",
    "NotPattern",
    "OrPattern",
    "PatternSeq",
    "PrimArrPattern",
    "ShapePattern",
    "StructInfoPattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "UnorderedTuplePattern",
    "VarPattern",
    "WildcardPattern",
]


def _joined(parts: Sequence[Any]) -> str:
    return ", ".join(map(str, parts))


class DFPattern:
    """Base of all patterns. A pattern used in two places must match the same expression in both.

    >>> from relaxish.relax.dpl import is_const, is_op, wildcard
    >>> is_op("relax.add")(wildcard(), is_const() | wildcard())
    Op(relax.add)(*, OrPattern(ConstantPattern() | *))
    """

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of what this pattern matches; with ``varg_default_wildcard`` the call may have more arguments."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other, -1)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other, -1)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """This pattern, on an operator, call or function with these attributes."""
        return AttrPattern(self, attrs)

    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """This pattern, on an expression of that struct info."""
        return StructInfoPattern(self, struct_info)

    def has_type(self, ttype: Type) -> TypePattern:
        """This pattern, on an expression of that legacy type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This pattern, on a tensor of that dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """This pattern, on a tensor of that shape. Raises ValueError if ``shape`` is no sequence."""
        if not isinstance(shape, (list, tuple)):
            raise ValueError("has_shape takes a list or tuple as input.")
        return ShapePattern(self, shape)

    def match(self, expr: Expr, var2val: Mapping[Var, Any] | None = None) -> bool:
        """Whether ``expr`` matches; ``var2val`` says what variables are bound to (``analysis.get_var2val``)."""
        return self.extract_matched_expr(expr, var2val) is not None

    def extract_matched_expr(self, expr: Expr, var2val: Mapping[Var, Any] | None = None) -> dict[DFPattern, Any] | None:
        """Expressions matched by each part of this pattern, or None if ``expr`` does not match."""
        from .matcher import extract_matched_expr

        return extract_matched_expr(self, expr, var2val)

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """In the pattern context: the match is used by that of ``other``, as argument ``index`` if given."""
        return PatternSeq([self]).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """In the pattern context: the match is used by that of ``other`` and by nothing else."""
        return PatternSeq([self]).only_used_by(other, index)

    def dup(self) -> DFPattern:
        """The same pattern as a new object, which may match something else."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """In the pattern context: the match is used by the match of each argument."""
        for other in args:
            self.used_by(other)

    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """In the pattern context: all matches have the same shape."""
        return SameShapeConstraint(self, *args)


class ExprPattern(DFPattern):
    """Exactly this expression, e.g. an operator."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __str__(self) -> str:
        return str(self.expr)


class VarPattern(DFPattern):
    """A variable, by name if one is given."""

    def __init__(self, name_hint: str = "") -> None:
        self.name_hint = name_hint

    @property
    def name(self) -> str:
        """The name to match."""
        return self.name_hint

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name_hint})"


class DataflowVarPattern(VarPattern):
    """A dataflow variable, by name if one is given."""


class GlobalVarPattern(DFPattern):
    """A function of the module whose name contains ``name_hint``."""

    def __init__(self, name_hint: str = "") -> None:
        self.name_hint = name_hint

    @property
    def name(self) -> str:
        """The name to match."""
        return self.name_hint

    def __str__(self) -> str:
        return f"GlobalVarPattern({self.name_hint})"


class ExternFuncPattern(DFPattern):
    """A packed function, by name if one is given."""

    def __init__(self, global_symbol: str = "") -> None:
        self.global_symbol = global_symbol

    def __str__(self) -> str:
        return f"ExternFuncPattern({self.global_symbol})"


class ConstantPattern(DFPattern):
    """Any constant."""


class CallPattern(DFPattern):
    """A call, by its callee and arguments; in a pattern context the call uses them (unless ``add_constraint=False``)."""

    def __init__(
        self,
        op: DFPattern,
        args: Sequence[DFPattern],
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None:
        self.op = op
        self.args = tuple(args)
        self.varg_default_wildcard = varg_default_wildcard
        if add_constraint:
            for index, arg in enumerate(self.args):
                if not isinstance(arg, (ConstantPattern, PrimArrPattern, TuplePattern, ExternFuncPattern)):
                    relate(arg, self, index, only=False)

    def __str__(self) -> str:
        return f"{self.op}({_joined(self.args)})"


class FunctionPattern(DFPattern):
    """A function, by its parameters and body."""

    def __init__(self, params: Sequence[DFPattern], body: DFPattern) -> None:
        self.params = tuple(params)
        self.body = body

    def __str__(self) -> str:
        return f"FunctionPattern([{_joined(self.params)}], {self.body})"


class TuplePattern(DFPattern):
    """A tuple of matching fields."""

    def __init__(self, fields: Sequence[DFPattern]) -> None:
        self.fields = tuple(fields)

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        if index is not None and index < 0:
            index += len(self)
        if index is not None and index >= len(self):
            raise IndexError("TuplePattern index out of range")
        return TupleGetItemPattern(self, index)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return f"TuplePattern([{_joined(self.fields)}])"


class UnorderedTuplePattern(DFPattern):
    """A tuple whose fields match in some order."""

    def __init__(self, fields: Sequence[DFPattern]) -> None:
        self.fields = tuple(fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return f"UnorderedTuplePattern([{_joined(self.fields)}])"


class TupleGetItemPattern(DFPattern):
    """A projection; any of them if ``index`` is None."""

    def __init__(self, tuple: DFPattern, index: int | None = None) -> None:  # public parameter name
        self.tuple = tuple
        self.index = -1 if index is None else index

    def __str__(self) -> str:
        return f"TupleGetItemPattern({self.tuple}, {self.index})"


class OrPattern(DFPattern):
    """The left pattern or, failing that, the right one."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left = left
        self.right = right

    def __str__(self) -> str:
        return f"OrPattern({self.left} | {self.right})"


class AndPattern(DFPattern):
    """Both patterns."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left = left
        self.right = right

    def __str__(self) -> str:
        return f"AndPattern({self.left} & {self.right})"


class NotPattern(DFPattern):
    """Anything that does not match."""

    def __init__(self, to_reject: DFPattern) -> None:
        self.reject = to_reject

    def __str__(self) -> str:
        return f"!({self.reject})"


class WildcardPattern(DFPattern):
    """Anything."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """From now on match what ``pattern`` matches; makes patterns that refer to themselves."""
        self.pattern = pattern

    def __str__(self) -> str:
        return "*"


class StructInfoPattern(DFPattern):
    """A pattern with a demand on the struct info."""

    def __init__(self, pattern: DFPattern, struct_info: StructInfo) -> None:
        self.pattern = pattern
        self.struct_info = as_struct_info(struct_info)

    def __str__(self) -> str:
        return f"StructInfoPattern({self.pattern} has relax StructInfo {self.struct_info})"


class TypePattern(DFPattern):
    """A pattern with a demand on the legacy type."""

    def __init__(self, pattern: DFPattern, ttype: Type) -> None:
        self.pattern = pattern
        self.type = ttype

    def __str__(self) -> str:
        return f"TypePattern({self.pattern} has type {self.type})"


class DataTypePattern(DFPattern):
    """A pattern with a demand on the dtype."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        self.pattern = pattern
        self.dtype = str(dtype)

    def __str__(self) -> str:
        return f"DataTypePattern({self.pattern} has dtype {self.dtype})"


class ShapePattern(DFPattern):
    """A pattern with a demand on the shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        self.pattern = pattern
        self.shape = tuple(shape)

    def __str__(self) -> str:
        return f"ShapePattern({self.pattern} has shape [{_joined(self.shape)}])"


class PrimArrPattern(DFPattern):
    """A shape value of these dimensions."""

    def __init__(self, shape: Sequence[Any]) -> None:
        self.fields = self.shape = tuple(shape)

    def __getitem__(self, index: int) -> PrimExpr:
        if index >= len(self):
            raise IndexError("PrimArrPattern index out of range")
        return self.shape[index]

    def __len__(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"PrimArrPattern([{_joined(self.fields)}])"


class AttrPattern(DFPattern):
    """A pattern with a demand on attributes of an operator, a call or a function."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        self.pattern = pattern
        self.attrs = dict(attrs)

    def __str__(self) -> str:
        return f"AttrPattern({self.pattern} has attributes {json.dumps(self.attrs, default=str)})"


class PatternSeq:
    """Patterns chained by use: ``a >> b ^ c``."""

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False) -> None:
        if not patterns:
            raise InternalError("PatternSeq must have at least one pattern")
        self.patterns = list(patterns)
        self._links = [(only_use, -1)] * (len(self.patterns) - 1)
        for (only, index), left, right in zip(self._links, self.patterns, self.patterns[1:]):
            relate(left, right, index, only=only)

    def _chain(self, other: DFPattern | PatternSeq, index: int, only: bool) -> PatternSeq:
        tail = other if isinstance(other, PatternSeq) else PatternSeq([other])
        relate(self.patterns[-1], tail.patterns[0], index, only=only)
        return self._linked([*self.patterns, *tail.patterns], [*self._links, (only, index), *tail._links])

    @classmethod
    def _linked(cls, patterns: list[DFPattern], links: list[tuple[bool, int]]) -> PatternSeq:
        made = cls.__new__(cls)
        made.patterns = patterns
        made._links = links
        return made

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The last match is used by the first of ``other``."""
        return self._chain(other, index, only=False)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The last match is used by the first of ``other`` and by nothing else."""
        return self._chain(other, index, only=True)

    def __repr__(self) -> str:
        links = ["", *(" >> " if only else " ^ " for only, _ in self._links)]
        return f"[{''.join(f'{link}{pattern}' for link, pattern in zip(links, self.patterns))}]"

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def __len__(self) -> int:
        return len(self.patterns)

    def dup(self) -> PatternSeq:
        """A chain of copies with the same constraints."""
        made = self._linked([p.dup() for p in self.patterns], list(self._links))
        for (only, index), left, right in zip(made._links, made.patterns, made.patterns[1:]):
            relate(left, right, index, only=only)
        return made

    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """The last match is used by the first match of each argument."""
        for other in args:
            self.used_by(other)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other, -1)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other, -1)


def is_operator_pattern(pattern: DFPattern, *names: str) -> bool:
    """Whether the pattern is a call of one of these operators."""
    callee = pattern.op if isinstance(pattern, CallPattern) else None
    return isinstance(callee, ExprPattern) and isinstance(callee.expr, Op) and callee.expr.name in names


__getattr__, __dir__ = lazy_package(globals())  # what builds patterns has a file of its own
