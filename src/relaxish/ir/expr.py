"""Roots of the expression hierarchy, Python operators on scalars, ranges and global names."""

from __future__ import annotations

import numbers
from enum import IntEnum
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Union, NoReturn

import numpy as np
from typing_extensions import Self

from . import dtype as dt
from .errors import CheckTypeError, CheckValueError
from .node import Node, cached, field
from .source import Span

__all__ = [
    "BaseExpr",
    "BaseFunc",
    "EqualOp",
    "ExprLike",
    "ExprOps",
    "GlobalVar",
    "NotEqualOp",
    "PrimExpr",
    "Range",
    "RelaxExpr",
    "ShapeLike",
    "as_expr",
    "as_exprs",
    "convert",
    "optional_expr",
]

if TYPE_CHECKING:
    from .attrs import DictAttrs
    from .op import Op
    from .prim import IterVar

#: What stands for a scalar expression wherever one is asked for; :func:`as_expr` makes it one.
ExprLike: TypeAlias = Union["PrimExpr", "EqualOp", "NotEqualOp", "IterVar", int, float, str, np.generic]
#: The sizes of a tensor or buffer, or positions in it: a sequence, or one scalar for a single dimension.
ShapeLike: TypeAlias = Union[Iterable[ExprLike], ExprLike]

# Binary and unary scalar operators by name; ``primops`` fills the table.
OPERATORS: dict[str, Callable[..., Any]] = {}


class BaseExpr(Node):
    """Any expression; ``span`` says where in the source it stood."""

    span: Span | None = field(role="ignore", default=None, kw_only=True)


class ExprOps:
    """Python operators that build scalar expressions, folding constants on the way.

    Values with ``takes_scalars`` (whole tensors) answer for themselves: ``x + tensor`` is ``tensor.__radd__(x)``.
    """

    __slots__ = ()

    def __add__(self, other: ExprLike) -> PrimExpr:
        if getattr(other, "takes_scalars", False):
            return NotImplemented
        return OPERATORS["add"](self, other)

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["add"](other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        if getattr(other, "takes_scalars", False):
            return NotImplemented
        return OPERATORS["subtract"](self, other)

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["subtract"](other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        if getattr(other, "takes_scalars", False):
            return NotImplemented
        return OPERATORS["multiply"](self, other)

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["multiply"](other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        if getattr(other, "takes_scalars", False):
            return NotImplemented
        return OPERATORS["divide"](self, other)

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["divide"](other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["floordiv"](self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["floordiv"](other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["floormod"](self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["floormod"](other, self)

    def __neg__(self) -> PrimExpr:
        return OPERATORS["negative"](self)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["left_shift"](self, other)

    def __rlshift__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["left_shift"](other, self)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["right_shift"](self, other)

    def __rrshift__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["right_shift"](other, self)

    def __and__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_and"](self, other)

    def __rand__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_and"](other, self)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_or"](self, other)

    def __ror__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_or"](other, self)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_xor"](self, other)

    def __rxor__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["bitwise_xor"](other, self)

    def __invert__(self) -> PrimExpr:
        return OPERATORS["bitwise_neg"](self)

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["less"](self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["less_equal"](self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["greater"](self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return OPERATORS["greater_equal"](self, other)

    def __eq__(self, other: object) -> Any:
        return EqualOp(self, other)

    def __ne__(self, other: object) -> Any:
        return NotEqualOp(self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ValueError(
            "a symbolic expression has no truth value: use tir.all / tir.any instead of and / or, "
            "and tir.Select or tir.if_then_else instead of a Python condition"
        )

    def equal(self, other: ExprLike, span: Span | None = None) -> PrimExpr:
        """The comparison node, where ``==`` must not stand for identity."""
        return OPERATORS["equal"](self, other)

    def astype(self, dtype: str, span: Span | None = None) -> PrimExpr:
        """Cast to ``dtype``."""
        return OPERATORS["cast"](dtype, self)


class EqualOp(ExprOps):
    """``a == b``, not yet decided whether identity (truth value) or comparison (expression) is meant."""

    __slots__ = ("a", "b")
    __hash__ = object.__hash__

    def __init__(self, a: ExprOps, b: object) -> None:
        self.a = a
        self.b = b

    def __bool__(self) -> bool:
        return self.a is self.b

    dtype = "bool"

    def asobject(self) -> PrimExpr:
        """The comparison as an expression."""
        return OPERATORS["equal"](self.a, self.b)


class NotEqualOp(ExprOps):
    """``a != b``, the counterpart of :class:`EqualOp`."""

    __slots__ = ("a", "b")
    __hash__ = object.__hash__

    def __init__(self, a: ExprOps, b: object) -> None:
        self.a = a
        self.b = b

    def __bool__(self) -> bool:
        return self.a is not self.b

    dtype = "bool"

    def asobject(self) -> PrimExpr:
        """The comparison as an expression."""
        return OPERATORS["not_equal"](self.a, self.b)


class PrimExpr(ExprOps, BaseExpr):
    """A scalar (or short vector) expression; ``dtype`` is known by construction."""

    dtype: str = cached()
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        def _rewritten(self) -> PrimExpr: ...


class RelaxExpr(BaseExpr):
    """An expression of the graph level; ``struct_info_`` is filled by normalisation."""

    struct_info_: Any = cached(default=None)

    if TYPE_CHECKING:

        def _rewritten(self) -> RelaxExpr: ...

    @property
    def struct_info(self) -> Any:
        """Struct info of the value. Raises ValueError before inference."""
        if self.struct_info_ is None:
            raise CheckValueError(
                f"the expression has no struct_info yet; emit it through a BlockBuilder or run Normalize:\n{self}"
            )
        return self.struct_info_

    @property
    def checked_type(self) -> Any:
        """The legacy static type of the struct info: rank and dtype without shapes."""
        return STATIC_TYPE["of"](self.struct_info)

    checked_type_ = checked_type

    @property
    def _checked_type_(self) -> Any:
        return None if self.struct_info_ is None else self.checked_type


class GlobalVar(RelaxExpr):
    """The name of a function in an :class:`IRModule`."""

    name_hint: str = field(role="attr")

    def __init__(self, name_hint: str, struct_info: Node | None = None, span: Span | None = None) -> None:
        self.name_hint = name_hint
        self.struct_info_ = struct_info
        self.span = span

    def __call__(self, *args: Any) -> Any:
        """A call of the function: a tir call if every argument is scalar, else a relax call."""
        return CALL_GLOBAL(self, args)

    def astext(self, *_: Any) -> str:
        """Text form."""
        return self.script()


def _no_call(var: GlobalVar | Op, args: tuple[Any, ...]) -> NoReturn:
    name = f"@{var.name_hint}" if isinstance(var, GlobalVar) else f"{var.name}"
    raise TypeError(f"cannot call {name}: the call builder is not loaded (import relaxish.relax)")


class _CallGlobal:
    hook: ClassVar[Callable[[GlobalVar | Op, tuple[Any, ...]], Any]] = staticmethod(_no_call)

    def __call__(self, var: GlobalVar | Op, args: tuple[Any, ...]) -> Any:
        return type(self).hook(var, args)


CALL_GLOBAL = _CallGlobal()


def _nearest_int(value: int) -> str:
    return "int32" if -(1 << 31) <= value < (1 << 31) else "int64"


# The graph level puts its struct-info-to-type function here, as "of".
STATIC_TYPE: dict[str, Callable[[Any], Any]] = {}

# ``prim`` installs the constant constructors here.
CONSTANTS: dict[str, Callable[[Any, str], PrimExpr]] = {}


def as_expr(value: Any) -> PrimExpr:
    """Turn a Python or NumPy value into a scalar expression. Raises TypeError if it is none."""
    if isinstance(value, PrimExpr):
        return value
    match value:
        case bool() | np.bool_():
            return CONSTANTS["int"](int(value), "bool")
        case int():
            return CONSTANTS["int"](value, _nearest_int(value))
        case np.generic():
            return CONSTANTS["float" if dt.is_float(str(value.dtype)) else "int"](value.item(), str(value.dtype))
        case numbers.Integral():
            return CONSTANTS["int"](int(value), _nearest_int(int(value)))
        case numbers.Real():
            return CONSTANTS["float"](float(value), "float32")
        case str():
            return CONSTANTS["string"](value, "handle")
    if hasattr(value, "asobject"):
        return as_expr(value.asobject())
    var = getattr(value, "var", None)
    if isinstance(var, PrimExpr):
        return var
    inner = getattr(value, "__prim_expr__", None)
    if inner is not None:
        result: PrimExpr = inner()
        return result
    raise CheckTypeError(f"expected a scalar expression or number, got {type(value).__name__}: {value!r}")


def optional_expr(value: ExprLike | None) -> PrimExpr | None:
    """``as_expr`` that lets None through."""
    return None if value is None else as_expr(value)


def as_exprs(values: ShapeLike | None) -> tuple[PrimExpr, ...]:
    """A tuple of expressions; a single scalar counts as one element, None as empty."""
    if values is None:
        return ()
    if isinstance(values, PrimExpr) or not isinstance(values, Iterable) or isinstance(values, str):
        return (as_expr(values),)
    return tuple([as_expr(v) for v in values])


#: The base class of objects that stand for IR values (see ``ir.object_generic``, which fills this).
GENERIC: list[Any] = []


def convert(value: Any, span: Span | None = None) -> Any:
    """Turn nested Python values into IR values: numbers to constants, lists to tuples.

    Arrays and runtime modules stay as they are; objects that stand for a value (``ObjectGeneric``) become it.
    """
    for generic in GENERIC:
        if isinstance(value, generic):
            return value.asobject()
    if isinstance(value, (Node, np.ndarray)) or hasattr(value, "numpy") or hasattr(value, "get_function"):
        return value
    match value:
        case list() | tuple():
            return tuple(convert(v) for v in value)
        case dict():
            return {k: convert(v) for k, v in value.items()}
        case None | str():
            return value
    return as_expr(value)


class Range(Node):
    """A half-open interval ``[min, min + extent)``.

    ``Range(begin, end)`` takes both ends, ``Range(extent)`` starts at zero; ``Range.from_min_extent`` takes a
    start and a length, which keeps symbolic extents as they are written.
    """

    min: PrimExpr
    extent: PrimExpr
    span: Span | None = field(role="ignore", default=None, kw_only=True)

    def __init__(self, begin: ExprLike, end: ExprLike | None = None, span: Span | None = None) -> None:
        if end is None:
            extent = as_expr(begin)
            self.min = CONSTANTS["int"](0, extent.dtype)
            self.extent = extent
        else:
            self.min = as_expr(begin)
            self.extent = OPERATORS["subtract"](as_expr(end), self.min)
        self.span = span

    @staticmethod
    def from_min_extent(min_value: ExprLike, extent: ExprLike, span: Span | None = None) -> Range:
        """The range that starts at ``min_value`` and has ``extent`` elements."""
        made: Range = Range.__new__(Range)
        made.min = as_expr(min_value)
        made.extent = as_expr(extent)
        made.span = span
        return made

    @classmethod
    def _make(cls, **fields: Any) -> Range:
        return cls.from_min_extent(fields["min"], fields["extent"], fields.get("span"))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


class CallingConv(IntEnum):
    """Calling convention of a function: as any function, through the packed ABI, or by launching a device kernel."""

    DEFAULT = 0
    C_PACKED_FUNC = 1
    DEVICE_KERNEL_LAUNCH = 2


class BaseFunc(RelaxExpr):
    """A function of either level; ``attrs`` maps names to values."""

    attrs: Any = field(default=None, kw_only=True)
    # The Python name of what was decorated; only script sets it.
    __extra_slots__ = ("__name__",)

    if TYPE_CHECKING:

        def _rewritten(self) -> Self: ...

    def _copy_attrs(self) -> dict[str, Any]:
        return dict(self.attrs) if self.attrs is not None else {}

    def with_attr(self, attr_key_or_dict: str | dict[str, Any], attr_value: Any = None) -> Self:
        """A copy with one attribute (or several, given a dict) set."""
        from .attrs import DictAttrs

        attrs = self._copy_attrs()
        attrs.update(attr_key_or_dict if isinstance(attr_key_or_dict, dict) else {attr_key_or_dict: attr_value})
        return self._with_attrs(DictAttrs(attrs))

    def with_attrs(self, attr_map: Mapping[str, Any] | None) -> Self:
        """A copy with several attributes set; those it had stay."""
        return self.with_attr(dict(attr_map) if attr_map is not None else {})

    def without_attr(self, attr_key: str) -> Self:
        """A copy without one attribute."""
        from .attrs import DictAttrs

        attrs = self._copy_attrs()
        attrs.pop(attr_key, None)
        return self._with_attrs(DictAttrs(attrs))

    def _with_attrs(self, attrs: DictAttrs) -> Self:
        made = self.with_fields(attrs=attrs)
        made.struct_info_ = self.struct_info_
        return made

    def get_attr(self, key: str, default: Any = None) -> Any:
        """One attribute, or ``default``."""
        return self.attrs.get(key, default) if self.attrs is not None else default
