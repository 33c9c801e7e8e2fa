"""Scalar expression nodes: variables, constants, arithmetic, comparison, vectors, calls.

Constructors check operand types and never fold; the functions of ``primops`` (and Python's operators) do fold.
"""

from __future__ import annotations

from typing_extensions import Self
import math
from enum import IntEnum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, SupportsFloat, TypeGuard, TypeVar, overload

import numpy as np


from .errors import CheckOverflowError, CheckTypeError, CheckValueError
from . import dtype as dt
from .expr import CONSTANTS, BaseExpr, ExprLike, PrimExpr, Range, ShapeLike, as_expr, as_exprs, optional_expr
from .node import Converted, Node, cached, field
from .op import Op, op_name_of
from .source import Span
from .types import PointerType, PrimType, Type, dtype_of_type

if TYPE_CHECKING:
    from .expr import RelaxExpr

__all__ = [
    "Add", "And", "Any_", "BinaryOp", "Broadcast", "Call", "Cast", "CmpOp", "CommReducer", "ConstExpr", "Div", "EQ", "FloatImm",
    "FloorDiv", "FloorMod", "GE", "GT", "IntImm", "IterVar", "LE", "LT", "Let", "LogicalOp", "Max", "Min", "Mod",
    "Mul", "NE", "Not", "Or", "Ramp", "Reduce", "Select", "Shuffle", "SizeVar", "StringImm", "Sub", "Var",
    "const", "const_int", "const_ints", "is_call_of", "is_consecutive", "is_one", "is_zero", "lanes_expr", "same_int", "uncast",
]  # fmt: skip

_T = TypeVar("_T")


class Var(PrimExpr):
    """A scalar or pointer variable; identity, not name, makes it the same variable."""

    _is_var: ClassVar[bool] = True

    name: str = field(role="ignore")
    type_annotation: Type | None = field(role="attr", default=None)

    def __init__(self, name: str = "", dtype: str | Type = "int32", span: Span | None = None) -> None:
        self.name = name
        if isinstance(dtype, Type):
            self.type_annotation = dtype
            self.dtype = dtype_of_type(dtype)
        else:
            self.dtype = dt.canonical(str(dtype))
            dt.parse(self.dtype)
            self.type_annotation = PrimType(self.dtype)
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        return cls(fields["name"], fields["type_annotation"], fields.get("span"))

    @property
    def name_hint(self) -> str:
        """The name, as other nodes call it."""
        return self.name

    def copy_with_suffix(self, suffix: str) -> Self:
        """A fresh variable of the same type under a longer name."""
        return type(self)(self.name + suffix, self.type_annotation or self.dtype)


class SizeVar(Var):
    """A variable known to be non-negative, such as a tensor's dimension."""

    if TYPE_CHECKING:

        def __init__(self, name: str = "", dtype: str | Type = "int32", span: Span | None = None) -> None: ...


class ConstExpr(PrimExpr):
    """Base of literals."""


class IntImm(ConstExpr):
    """An integer (or truth value) constant."""

    value: int = field(role="attr")
    dtype: str = cached()

    def __init__(self, dtype: str, value: IntImm | int, span: Span | None = None) -> None:
        value = int(value.value if isinstance(value, IntImm) else value)
        dtype = dt.canonical(str(dtype))
        parsed = dt.parse(dtype)
        if parsed.code not in ("int", "uint", "bool") or parsed.lanes != 1:
            raise CheckValueError(f"IntImm needs a scalar integer or bool type, got {dtype!r}")
        if parsed.code in ("uint", "bool") and value < 0:
            raise CheckValueError(f"Literal value {value} is negative for unsigned integer type {dtype}")
        if not -(1 << 63) <= value < 1 << 63:
            raise CheckOverflowError(f"the literal {value} does not fit 64 bits")
        if parsed.bits < 64:
            low, high = dt.min_value(dtype), dt.max_value(dtype)
            if not low <= value <= high:
                raise CheckValueError(
                    f"Literal value {value} exceeds {'maximum' if value > high else 'minimum'} of {dtype}"
                )
        self.value = value
        self.dtype = dtype
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        return cls(fields["dtype"], fields["value"], fields.get("span"))

    def with_fields(self, **changes: Any) -> Self:
        return type(self)(
            changes.get("dtype", self.dtype), changes.get("value", self.value), changes.get("span", self.span)
        )

    def __hash__(self) -> int:
        return self.value

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __nonzero__(self) -> bool:
        return self.value != 0

    def __bool__(self) -> bool:
        return self.value != 0

    def __eq__(self, other: object) -> Any:
        if isinstance(other, (int, IntImm)):
            return self.value == int(other)
        return super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        if isinstance(other, (int, IntImm)):
            return self.value != int(other)
        return super().__ne__(other)


@overload
def const_int(value: object) -> int | None: ...
@overload
def const_int(value: object, default: _T) -> int | _T: ...
def const_int(value: object, default: object = None) -> object:
    """The value of an integer literal, or of a Python integer; ``default`` for anything else."""
    if type(value) is IntImm:
        return value.value
    return value if isinstance(value, int) else default


def const_ints(values: Iterable[object]) -> list[int] | None:
    """The values of integers that are all literals; None if one of them is not."""
    out: list[int] = []
    for value in values:
        number = const_int(value)
        if number is None:
            return None
        out.append(number)
    return out


def same_int(a: object, b: object) -> bool:
    """Whether both are literals of one value."""
    number = const_int(a)
    return number is not None and number == const_int(b)


def is_zero(expr: object) -> bool:
    """Whether an expression is the literal 0 (or false)."""
    return type(expr) is IntImm and expr.value == 0


def is_one(expr: object) -> bool:
    """Whether an expression is the literal 1 (or true)."""
    return type(expr) is IntImm and expr.value == 1


_FLOAT_LIMITS = {"float32": 3.4028235677973366e38, "float16": 65504.0, "bfloat16": 3.895313892515355e38}
"""The largest finite literals; float32 allows for the rounding of its own maximum written in decimal, and bfloat16 for
float32's, which its reductions start from."""


class FloatImm(ConstExpr):
    """A floating-point constant; the value is kept as given and rounds to its type where it is computed with."""

    value: float = field(role="attr")
    dtype: str = cached()

    def __init__(self, dtype: str, value: SupportsFloat, span: Span | None = None) -> None:
        if not dt.is_float(dtype) or dt.lanes(dtype) != 1:
            raise CheckValueError(f"FloatImm needs a scalar floating-point type, got {dtype!r}")
        number = float(value)
        limit = _FLOAT_LIMITS.get(dtype)
        if limit is not None and math.isfinite(number) and abs(number) > limit:
            raise CheckValueError(f"Literal value {number} exceeds {'maximum' if number > 0 else 'minimum'} of {dtype}")
        self.value = number
        self.dtype = dtype
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        return cls(fields["dtype"], fields["value"], fields.get("span"))

    def with_fields(self, **changes: Any) -> Self:
        return type(self)(
            changes.get("dtype", self.dtype), changes.get("value", self.value), changes.get("span", self.span)
        )

    def __float__(self) -> float:
        return self.value


class StringImm(ConstExpr):
    """A text constant, used as an intrinsic's argument."""

    value: str = field(role="attr")
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        self.dtype = "handle"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringImm):
            return self.value == other.value
        return self.value == other

    def __ne__(self, other: object) -> bool:
        return not self == other


class Cast(PrimExpr):
    """Value conversion to another dtype (same lanes)."""

    value: PrimExpr
    dtype: str = cached()

    def __init__(self, dtype: str, value: ExprLike, span: Span | None = None) -> None:
        self.value = as_expr(value)
        self.dtype = dt.canonical(str(dtype))
        self.span = span
        if dt.lanes(self.dtype) != dt.lanes(self.value.dtype):
            raise CheckTypeError(f"a cast keeps the lanes: {self.value.dtype} to {self.dtype}")

    @classmethod
    def _make(cls, **fields: Any) -> Self:
        return cls(fields["dtype"], fields["value"], fields.get("span"))

    def with_fields(self, **changes: Any) -> Self:
        return type(self)(
            changes.get("dtype", self.dtype), changes.get("value", self.value), changes.get("span", self.span)
        )


class BinaryOp(PrimExpr):
    """Two operands of one type."""

    a: Converted[PrimExpr, ExprLike]
    b: Converted[PrimExpr, ExprLike]
    _op_name: ClassVar[str] = ""

    def __init__(self, a: ExprLike, b: ExprLike, span: Span | None = None) -> None:
        self.a = a = a if isinstance(a, PrimExpr) else as_expr(a)
        self.b = b = b if isinstance(b, PrimExpr) else as_expr(b)
        if a.dtype != b.dtype:
            raise CheckTypeError(f"mismatched types in {type(self).__name__}: {a.dtype} vs. {b.dtype}")
        self.dtype = a.dtype
        self.span = span

    def with_fields(self, **changes: Any) -> Self:
        return type(self)(changes.get("a", self.a), changes.get("b", self.b), changes.get("span", self.span))


class Add(BinaryOp):
    """``a + b``"""


class Sub(BinaryOp):
    """``a - b``"""


class Mul(BinaryOp):
    """``a * b``"""


class Div(BinaryOp):
    """Division that rounds towards zero on integers, true division on floats."""


class Mod(BinaryOp):
    """Remainder of truncated division; takes the sign of the dividend."""


class FloorDiv(BinaryOp):
    """Division that rounds towards minus infinity."""


class FloorMod(BinaryOp):
    """Remainder of floor division; takes the sign of the divisor."""


class Min(BinaryOp):
    """The smaller operand."""


class Max(BinaryOp):
    """The larger operand."""


class CmpOp(BinaryOp):
    """A comparison; its type is bool with the operands' lanes."""

    def __init__(self, a: ExprLike, b: ExprLike, span: Span | None = None) -> None:
        super().__init__(a, b, span)
        self.dtype = dt.with_lanes("bool", dt.lanes(self.a.dtype))


class EQ(CmpOp):
    """``a == b``"""


class NE(CmpOp):
    """``a != b``"""


class LT(CmpOp):
    """``a < b``"""


class LE(CmpOp):
    """``a <= b``"""


class GT(CmpOp):
    """``a > b``"""


class GE(CmpOp):
    """``a >= b``"""


class LogicalOp(BinaryOp):
    """Both operands are bool."""

    def __init__(self, a: ExprLike, b: ExprLike, span: Span | None = None) -> None:
        super().__init__(a, b, span)
        if not dt.is_bool(self.a.dtype):
            raise CheckTypeError(f"{type(self).__name__} needs bool operands, got {self.a.dtype}")


class And(LogicalOp):
    """Logical conjunction."""


class Or(LogicalOp):
    """Logical disjunction."""


class Not(PrimExpr):
    """Logical negation."""

    a: Converted[PrimExpr, ExprLike] = field(conv=as_expr)

    def __post_init__(self) -> None:
        if not dt.is_bool(self.a.dtype):
            raise CheckTypeError(f"Not needs a bool operand, got {self.a.dtype}")
        self.dtype = self.a.dtype


class Select(PrimExpr):
    """``true_value`` where the condition holds, else ``false_value``; both may be evaluated."""

    condition: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    true_value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    false_value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)

    def __post_init__(self) -> None:
        if not dt.is_bool(self.condition.dtype):
            raise CheckTypeError(f"Select needs a bool condition, got {self.condition.dtype}")
        if self.true_value.dtype != self.false_value.dtype:
            raise CheckTypeError(f"Select has mismatched values: {self.true_value.dtype} vs. {self.false_value.dtype}")
        self.dtype = self.true_value.dtype


def _lane_count(lanes: ExprLike) -> int:
    value = as_expr(lanes)
    match value:
        case IntImm():
            if value.value <= 1:
                raise CheckValueError(f"a vector has more than one lane, got {value.value}")
            return value.value
        # Scalable vectors write lanes as a multiple of the vscale intrinsic.
        case Mul():
            for factor, other in ((value.a, value.b), (value.b, value.a)):
                if (
                    isinstance(factor, IntImm)
                    and isinstance(other, Call)
                    and getattr(other.op, "name", "") == "tir.vscale"
                ):
                    return -factor.value
    raise CheckValueError(f"Invalid expression for scalable lanes {value}")


def lanes_expr(lanes: int) -> PrimExpr:
    """The lane count of a dtype as an expression: a literal, or ``vscale() * n`` of a scalable vector."""
    if lanes > 0:
        return IntImm("int32", lanes)
    return Mul(Call("int32", Op.register("tir.vscale"), []), IntImm("int32", -lanes))


class Ramp(PrimExpr):
    """The vector ``base, base + stride, ...`` of ``lanes`` elements."""

    base: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    stride: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    lanes: Converted[PrimExpr, ExprLike] = field(conv=as_expr)

    def __post_init__(self) -> None:
        if self.stride.dtype != self.base.dtype:
            if dt.lanes(self.stride.dtype) != dt.lanes(self.base.dtype):
                raise CheckTypeError(f"Ramp has base {self.base.dtype} but stride {self.stride.dtype}")
            object.__setattr__(self, "stride", self.stride.astype(self.base.dtype))
        count = _lane_count(self.lanes)
        object.__setattr__(self, "lanes", lanes_expr(count))
        self.dtype = dt.with_lanes(self.base.dtype, count * dt.lanes(self.base.dtype))


def is_consecutive(index: object) -> TypeGuard[Ramp]:
    """Whether an index names consecutive elements, one a lane."""
    return isinstance(index, Ramp) and is_one(index.stride)


class Broadcast(PrimExpr):
    """A vector of ``lanes`` equal elements."""

    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    lanes: Converted[PrimExpr, ExprLike] = field(conv=as_expr)

    def __post_init__(self) -> None:
        count = _lane_count(self.lanes)
        object.__setattr__(self, "lanes", lanes_expr(count))
        self.dtype = dt.with_lanes(self.value.dtype, count * dt.lanes(self.value.dtype))


class Shuffle(PrimExpr):
    """Elements picked by constant indices from the concatenation of vectors."""

    vectors: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    indices: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)

    def __post_init__(self) -> None:
        if not self.vectors or not self.indices:
            raise CheckValueError("Shuffle needs at least one vector and one index")
        element = dt.element_of(self.vectors[0].dtype)
        for vector in self.vectors:
            if dt.element_of(vector.dtype) != element:
                raise CheckTypeError(f"Shuffle mixes {element} and {dt.element_of(vector.dtype)}")
        self.dtype = dt.with_lanes(self.vectors[0].dtype, len(self.indices))


class Call(PrimExpr):
    """An intrinsic, external or global function applied to arguments."""

    op: Any
    args: tuple[Any, ...]
    annotations: dict[str, Any] = field(role="attr", default=None)

    def __init__(
        self,
        dtype: str,
        op: Op | RelaxExpr | str,
        args: Iterable[Node | ExprLike],
        annotations: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None:
        if isinstance(op, str):
            if not op.startswith("tir."):
                raise CheckValueError(f"{op!r} names no intrinsic (those start with 'tir.'); see also tir.call_extern")
            op = Op.get(op)
        self.op = op
        self.args = tuple([a if isinstance(a, Node) else as_expr(a) for a in args])
        self.dtype = dt.canonical(str(dtype)) if dtype else "void"
        self.annotations = dict(annotations) if annotations else {}
        self.span = span

    @classmethod
    def _make(cls, **f: Any) -> Self:
        return cls(f["dtype"], f["op"], f["args"], f.get("annotations"), f.get("span"))

    def with_fields(self, **changes: Any) -> Self:
        return type(self)(
            changes.get("dtype", self.dtype),
            changes.get("op", self.op),
            changes.get("args", self.args),
            changes.get("annotations", self.annotations),
            changes.get("span", self.span),
        )


def is_call_of(expr: object, *names: str) -> TypeGuard[Call]:
    """Whether an expression calls one of the intrinsics of these full names."""
    return op_name_of(expr) in names


def uncast(expr: Any) -> Any:
    """Operand of a chain of conversions."""
    while isinstance(expr, Cast):
        expr = expr.value
    return expr


class Let(PrimExpr, checked=True):
    """``body`` with ``var`` standing for ``value``."""

    var: Var = field(role="bind")
    value: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    body: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    _equal_order = ("value", "var", "body")

    def __post_init__(self) -> None:
        if self.var.dtype != self.value.dtype:
            raise CheckTypeError(f"Let binds a {self.var.dtype} variable to a {self.value.dtype} value")
        self.dtype = self.body.dtype


class IterVar(Node):
    """A variable with a domain and a role in iteration."""

    dom: Any  # a Range; None for thread variables, whose extent is the loop's
    var: Var = field(role="bind")
    iter_type: int = field(role="attr")
    thread_tag: str = field(role="attr", default="")
    span: Span | None = field(role="ignore", default=None, kw_only=True)

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2
    Ordered: ClassVar[int] = 3
    DimInfo: ClassVar[int] = 4
    Opaque: ClassVar[int] = 4
    Unrolled: ClassVar[int] = 5
    Vectorized: ClassVar[int] = 6
    Parallelized: ClassVar[int] = 7
    Tensorized: ClassVar[int] = 8

    def __init__(
        self,
        dom: Range | Sequence[ExprLike] | None,
        var: PrimExpr | str,
        iter_type: int,
        thread_tag: str = "",
        span: Span | None = None,
    ) -> None:
        if dom is not None and not isinstance(dom, Range):
            if not isinstance(dom, (list, tuple)) or len(dom) != 2:
                raise CheckTypeError("the domain of an IterVar is a Range or a (begin, end) pair")
            dom = Range(dom[0], dom[1])
        if isinstance(var, str):
            var = Var(var, dom.extent.dtype if dom is not None else "int32")
        elif not isinstance(var, Var):
            raise CheckTypeError(f"IterVar expects a Var or its name, but got {type(var).__name__}")
        if dom is not None and dom.extent.dtype != var.dtype:
            raise CheckTypeError(
                f"The dtype of the extent of an IterVar ({dom.extent.dtype}) must match its variable's ({var.dtype})"
            )
        self.dom = dom
        self.var = var
        self.iter_type = int(iter_type)
        self.thread_tag = thread_tag
        self.span = span

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @property
    def dtype(self) -> str:
        """The variable's type."""
        return self.var.dtype

    def _arith(self, name: str, *args: Any) -> Any:
        return getattr(self.var, name)(*args)

    def __add__(self, other: ExprLike) -> PrimExpr:
        return self.var + other

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return as_expr(other) + self.var

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return self.var - other

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return as_expr(other) - self.var

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return self.var * other

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return as_expr(other) * self.var

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return self.var // other

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return self.var % other

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return self.var < other

    def __le__(self, other: ExprLike) -> PrimExpr:
        return self.var <= other

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return self.var > other

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return self.var >= other

    def __neg__(self) -> PrimExpr:
        return -self.var

    def astype(self, dtype: str) -> PrimExpr:
        """The variable cast to ``dtype``."""
        return self.var.astype(dtype)

    def equal(self, other: ExprLike) -> PrimExpr:
        """The comparison node with another expression."""
        return self.var.equal(other)


class CommReducer(Node):
    """An associative, commutative combination of value tuples with its identity."""

    lhs: Converted[tuple[Var, ...], Iterable[Var]] = field(role="bind", conv=tuple)
    rhs: Converted[tuple[Var, ...], Iterable[Var]] = field(role="bind", conv=tuple)
    result: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    identity_element: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    span: Span | None = field(role="ignore", default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not len(self.lhs) == len(self.rhs) == len(self.result) == len(self.identity_element):
            raise CheckValueError("a CommReducer has as many operands on either side as results and identities")


class Reduce(PrimExpr):
    """A reduction over ``axis``; ``value_index`` picks one result of a tuple reduction."""

    combiner: CommReducer
    source: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    init: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...] = field(role="bind")
    condition: PrimExpr
    value_index: int = field(role="attr")
    _equal_order = ("axis", "source", "init", "condition", "combiner", "value_index")

    def __init__(
        self,
        combiner: CommReducer,
        src: ShapeLike,
        rdom: Sequence[IterVar],
        condition: ExprLike,
        value_index: int,
        init: ShapeLike | None = None,
        span: Span | None = None,
    ) -> None:
        for axis in rdom:
            if not isinstance(axis, IterVar) or axis.iter_type != IterVar.CommReduce:
                raise CheckValueError("Can only take axis created by reduce_axis")
        self.combiner = combiner
        self.source = as_exprs(src)
        self.axis = tuple(rdom)
        self.condition = as_expr(condition)
        self.value_index = int(value_index)
        self.init = as_exprs(init) if init is not None else ()
        self.dtype = self.source[self.value_index].dtype
        self.span = span

    @classmethod
    def _make(cls, **f: Any) -> Self:
        return cls(f["combiner"], f["source"], f["axis"], f["condition"], f["value_index"], f["init"], f.get("span"))


class Any_(PrimExpr):
    """An unknown dimension; kept for the old public name ``tir.Any``."""

    def __post_init__(self) -> None:
        self.dtype = "int32"


class CallEffectKind(IntEnum):
    """Effects of a call beyond its value."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    SpecialCallArg = 4
    EmbedInfo = 5
    ControlJump = 6
    Opaque = 3


def const(value: float | np.number[Any] | np.bool_, dtype: str | None = None, span: Span | None = None) -> PrimExpr:
    """A constant; the type is deduced from the Python value unless given."""
    if dtype is None:
        dtype = _literal_type(value)
    element = dt.element_of(dtype)
    made: PrimExpr
    if dt.is_float(element):
        made = FloatImm(element, value, span)
    elif dt.is_handle(element):
        raise CheckValueError("a handle has no constants; use tir.reinterpret of an integer")
    else:
        made = _wrap_int(int(value), element, span)
    return made if dt.lanes(dtype) == 1 else Broadcast(made, lanes_expr(dt.lanes(dtype)))


def _literal_type(value: float | np.number[Any] | np.bool_) -> str:
    """The type a constant has unless one is given: 32 bits where they suffice."""
    if hasattr(value, "dtype"):
        return str(value.dtype)
    match value:
        case bool():
            return "bool"
        case float():
            return "float32" if -3.40282347e38 <= value <= 3.40282347e38 else "float64"
        case int():
            return "int32" if -(1 << 31) <= value < (1 << 31) else "int64"
    raise NotImplementedError(f"Cannot automatically inference the type. value={value}")


def _wrap_int(value: int, dtype: str, span: Span | None) -> PrimExpr:
    if dt.is_bool(dtype):
        return IntImm(dtype, 1 if value else 0, span)
    if dt.is_uint(dtype) and value > (1 << 63) - 1:
        return Call(
            dtype,
            Op.register("tir.large_uint_imm"),
            [IntImm("uint32", value & 0xFFFFFFFF), IntImm("uint32", value >> 32)],
        )
    return IntImm(dtype, value, span)


def _make_int(value: int, dtype: str) -> PrimExpr:
    return IntImm(dtype, value)


def _make_float(value: float, dtype: str) -> PrimExpr:
    return FloatImm(dtype, value)


CONSTANTS["int"] = _make_int
CONSTANTS["float"] = _make_float
CONSTANTS["string"] = lambda value, _dtype: StringImm(value)
_ = (BaseExpr, PointerType, optional_expr)
