"""Struct info: what the compiler knows of a graph value (kind, shape, dtype, fields, signature).

The kinds form a lattice with :class:`ObjectStructInfo` on top.  Every expression of a normalised program has one;
shapes may hold symbolic integer expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, overload

from ..ir.dtype import parse as parse_dtype
from ..ir.errors import CheckValueError
from ..ir.expr import ExprLike, PrimExpr
from ..ir.global_info import VDevice
from ..ir.node import Node, field
from ..ir.prim import IntImm
from ..ir.prim import Var as TirVar
from ..ir.source import Span
from ..ir.structural import structural_equal, structural_hash
from ..ir.types import FuncType, PrimType, TupleType, Type
from ..support.errors import InternalError
from . import expr as _expr
from .scalars import prim_vars, prove_equal, substitute_prim
from .ty import DynTensorType, ObjectType, PackedFuncType, ShapeType

if TYPE_CHECKING:
    from ..arith import Analyzer

__all__ = [
    "BaseCheckResult",
    "FuncStructInfo",
    "ObjectStructInfo",
    "PrimStructInfo",
    "ShapeStructInfo",
    "StructInfo",
    "TensorStructInfo",
    "TupleStructInfo",
    "as_struct_info",
    "fields_of",
    "is_pure_function",
    "is_void",
    "tensor_dims",
    "tensor_rank",
]


class BaseCheckResult(IntEnum):
    """Outcome of a subtype check.

    ``FAIL_L0``: surely disjoint; ``FAIL_L1``: not a subtype, though values may overlap; ``FAIL_L2``: cannot be
    proven at compile time, a run-time check may still pass; ``PASS``: a subtype.
    """

    FAIL_L0 = 0
    FAIL_L1 = 1
    FAIL_L2 = 2
    PASS = 3


L0, L1, L2, PASS = BaseCheckResult.FAIL_L0, BaseCheckResult.FAIL_L1, BaseCheckResult.FAIL_L2, BaseCheckResult.PASS

#: What a symbolic variable stands for; None where it is not defined.
ShapeVarMap = Callable[[TirVar], PrimExpr | None]
#: What a variable that holds a shape stands for; None where it is not defined.
VarMap = Callable[["_expr.Var"], "_expr.Expr | None"]
PrimMap = Callable[[PrimExpr], PrimExpr]
#: What a struct info may be written as; :func:`as_struct_info` makes it one.
StructInfoLike: TypeAlias = Union["StructInfo", "StructInfoProxy"]
_Dims = Sequence[PrimExpr]


class StructInfoProxy(Protocol):
    """Interface of what stands for a struct info, such as an annotation of the script."""

    def as_struct_info(self) -> StructInfo: ...


class StructInfo(Node):
    """Base of all struct infos. A class says in ``_check`` and ``_lca`` how it stands to others of the same class."""

    def __eq__(self, other: object) -> bool:
        """Structural equality; :meth:`same_as` is identity."""
        known = isinstance(other, StructInfo) or hasattr(other, "as_struct_info")
        return self is other or (known and structural_equal(self, other))

    def __hash__(self) -> int:
        return structural_hash(self)

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value described by ``derived`` is described by this one too."""
        return self.check(as_struct_info(derived)) is PASS

    def check(self, derived: StructInfo, analyzer: Analyzer | None = None) -> BaseCheckResult:
        """Whether this one describes everything that ``derived`` does, and how badly not."""
        if self is derived:
            return PASS
        if type(self) is not type(derived):
            return L1 if isinstance(derived, ObjectStructInfo) else L0
        return self._check(derived, analyzer)

    def _check(self, derived: Any, analyzer: Analyzer | None) -> BaseCheckResult:
        return PASS if structural_equal(self, derived, map_free_vars=False) else L0

    def lca(self, other: StructInfo, analyzer: Analyzer | None = None) -> StructInfo:
        """The finest struct info that describes both."""
        if self is other:
            return self
        return self._lca(other, analyzer) if type(self) is type(other) else ObjectStructInfo()

    def _lca(self, other: Any, analyzer: Analyzer | None) -> StructInfo:
        return self if self._check(other, analyzer) is PASS else ObjectStructInfo()

    def map(self, prim: PrimMap, expr: Callable[[_expr.Var], _expr.Expr] | None = None) -> StructInfo:
        """The same with every scalar expression sent through ``prim`` and every shape variable through ``expr``."""
        changed = {}
        for name in self._child_fields:
            value = getattr(self, name)
            new = _mapped(value, prim, expr)
            if new is not value:
                changed[name] = new
        return self.with_fields(**changed) if changed else self

    def erase(self, shape_var: ShapeVarMap, var: VarMap | None = None) -> StructInfo:
        """Struct info with only defined variables: a dimension with an unknown variable costs the whole shape, not its
        rank."""
        return self

    def bind(self, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[_expr.Var, _expr.Expr]) -> None:
        """Record what each symbolic variable of this parameter stands for when it receives a value like ``arg``."""

    def prim_exprs(self) -> Iterator[PrimExpr]:
        """Every scalar expression in it, in order."""
        for value in self.iter_children():
            yield from _prim_exprs(value)

    @property
    def static_type(self) -> Type:
        """The legacy type: kind, rank and dtype, without any shape. Raises TypeError where there is none."""
        raise TypeError(f"no static type for struct info of kind {type(self).__name__}")


def _mapped(value: object, prim: PrimMap, expr: Callable[[_expr.Var], _expr.Expr] | None) -> Any:
    """The value of a field, mapped."""
    match value:
        case PrimExpr():
            return prim(value)
        case tuple():
            items = tuple(_mapped(item, prim, expr) for item in value)
            return value if all(a is b for a, b in zip(items, value)) else items
        case _expr.ShapeExpr():
            dims = _mapped(value.values, prim, expr)
            return value if dims is value.values else _expr.ShapeExpr(dims)
        case StructInfo():
            return value.map(prim, expr)
    return expr(value) if expr is not None and isinstance(value, _expr.Var) else value


def _prim_exprs(value: object) -> Iterator[PrimExpr]:
    match value:
        case PrimExpr():
            yield value
        case tuple():
            for item in value:
                yield from _prim_exprs(item)
        case _expr.ShapeExpr():
            yield from value.values
        case _expr.Var():
            yield from _prim_exprs(value.struct_info_)
        case StructInfo():
            yield from value.prim_exprs()


def _check_prim(base: PrimExpr, derived: PrimExpr, analyzer: Analyzer | None) -> BaseCheckResult:
    if base is derived:
        return PASS
    if isinstance(base, IntImm) and isinstance(derived, IntImm):
        return PASS if base.value == derived.value else L0
    return PASS if prove_equal(base, derived, analyzer) else L2


def _check_dims(base: _Dims, derived: _Dims, analyzer: Analyzer | None) -> BaseCheckResult:
    if len(base) != len(derived):
        return L0
    worst = PASS
    for lhs, rhs in zip(base, derived):
        worst = min(worst, _check_prim(lhs, rhs, analyzer))
        if worst is L0:
            break
    return worst


def _check_ndim(base: int, derived: int) -> BaseCheckResult:
    if base == -1 or base == derived:
        return PASS
    return L1 if derived == -1 else L0


def _dims_equal(lhs: _Dims, rhs: _Dims, analyzer: Analyzer | None) -> bool:
    return len(lhs) == len(rhs) and all(prove_equal(a, b, analyzer) for a, b in zip(lhs, rhs))


def _defined_dims(dims: _Dims, shape_var: ShapeVarMap) -> _Dims | None:
    """The dimensions with their variables replaced, or themselves; None where a variable is not defined."""
    out = []
    for dim in dims:
        mapping: dict[TirVar, PrimExpr] = {}
        for symbol in prim_vars(dim):
            new = shape_var(symbol)
            if new is None:
                return None
            new = _expr.as_shape_dim(new)
            if new is not symbol:
                mapping[symbol] = new
        out.append(substitute_prim(dim, mapping) if mapping else dim)
    return dims if all(a is b for a, b in zip(out, dims)) else out


def _bind_dims(params: _Dims, args: _Dims, shapes: dict[TirVar, PrimExpr]) -> None:
    if len(params) == len(args):
        for param, arg in zip(params, args):
            if isinstance(param, TirVar):
                shapes.setdefault(param, arg)


def same_vdevice(lhs: VDevice | None, rhs: VDevice | None) -> bool:
    """Whether two VDevices are the same or structurally equal."""
    if lhs is None or rhs is None:
        return lhs is rhs
    return lhs is rhs or bool(structural_equal(lhs, rhs))


def as_struct_info(value: StructInfoLike) -> StructInfo:
    """``value`` as a struct info: one already, or an annotation of the script such as ``R.Tensor((2, 3), "float32")``.

    Raises TypeError for anything else.
    """
    if isinstance(value, StructInfo):
        return value
    convert = getattr(value, "as_struct_info", None)
    if convert is None:
        raise TypeError(f"expected a struct info, not {type(value).__name__}")
    made: StructInfo = convert()
    return made


class ObjectStructInfo(StructInfo):
    """Any value at all; the top of the lattice."""

    span: Any = field(role="ignore", default=None)

    def check(self, derived: StructInfo, analyzer: Analyzer | None = None) -> BaseCheckResult:
        """It describes everything."""
        return PASS

    def lca(self, other: StructInfo, analyzer: Analyzer | None = None) -> StructInfo:
        """Nothing is above it."""
        return self

    @property
    def static_type(self) -> Type:
        """The type of any object."""
        return ObjectType()


class PrimStructInfo(StructInfo):
    """A scalar: its dtype, and its value where known.

    ``PrimStructInfo("int64")`` or ``PrimStructInfo(value=n)``.
    """

    value: PrimExpr | None
    dtype: str = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(
        self, dtype: str | None = None, value: PrimExpr | float | None = None, span: Span | None = None
    ) -> None:
        if isinstance(dtype, (PrimExpr, int, float)):
            raise TypeError(
                f"The first positional argument of PrimStructInfo must be the datatype, but received {type(dtype)}; "
                "write PrimStructInfo(value=...) for a known value"
            )
        if dtype is None and value is None:
            raise TypeError("PrimStructInfo needs either 'dtype' or 'value'")
        if isinstance(value, (int, float)):
            value = _expr.prim_of(value, str(dtype or ("int64" if isinstance(value, int) else "float32")))
        if value is not None:
            if dtype is not None and str(dtype) != value.dtype:
                raise AssertionError(f"dtype {dtype} and the dtype of the value, {value.dtype}, differ")
            dtype = value.dtype
        parse_dtype(str(dtype))
        self.value = value
        self.dtype = str(dtype)
        self.span = span

    def _check(self, derived: PrimStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        if self.dtype != derived.dtype:
            return L0
        if self.value is None:
            return PASS
        return L2 if derived.value is None else _check_prim(self.value, derived.value, analyzer)

    def _lca(self, other: PrimStructInfo, analyzer: Analyzer | None) -> StructInfo:
        if self.dtype != other.dtype:
            return ObjectStructInfo()
        if self.value is None or (other.value is not None and prove_equal(self.value, other.value, analyzer)):
            return self
        return PrimStructInfo(self.dtype)

    def erase(self, shape_var: ShapeVarMap, var: VarMap | None = None) -> StructInfo:
        """Its value goes if it names an unknown variable."""
        if self.value is None:
            return self
        known = _defined_dims((self.value,), shape_var)
        if known is None:
            return PrimStructInfo(self.dtype)
        return self if known[0] is self.value else PrimStructInfo(value=known[0])

    def bind(self, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[_expr.Var, _expr.Expr]) -> None:
        """A value that is a bare variable stands for the argument's."""
        if isinstance(arg, PrimStructInfo) and self.value is not None and arg.value is not None:
            _bind_dims((self.value,), (arg.value,), shapes)

    @property
    def static_type(self) -> Type:
        """The scalar's dtype."""
        return PrimType(self.dtype)


class ShapeStructInfo(StructInfo):
    """A shape value: its dimensions, or only their number (``ndim=-1``: not even that)."""

    values: tuple[PrimExpr, ...] | None
    ndim: int = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(self, values: Sequence[Any] | None = None, ndim: int = -1, span: Span | None = None) -> None:
        if values is not None:
            if not isinstance(values, Iterable):
                raise CheckValueError(f"the values of a shape are a sequence, not {type(values).__name__}")
            self.values = tuple(_expr.as_shape_dim(v) for v in values)
            if ndim not in (-1, len(self.values)):
                raise CheckValueError(f"ShapeStructInfo has {len(self.values)} values but ndim={ndim}")
            self.ndim = len(self.values)
        else:
            if ndim < -1:
                raise CheckValueError(f"ndim must be at least -1, got {ndim}")
            self.values = None
            self.ndim = int(ndim)
        self.span = span

    def _check(self, derived: ShapeStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        rank = _check_ndim(self.ndim, derived.ndim)
        if rank is not PASS or self.values is None:
            return rank
        return L2 if derived.values is None else _check_dims(self.values, derived.values, analyzer)

    def _lca(self, other: ShapeStructInfo, analyzer: Analyzer | None) -> StructInfo:
        if self.values is not None and other.values is not None and _dims_equal(self.values, other.values, analyzer):
            return self
        return ShapeStructInfo(ndim=self.ndim if self.ndim == other.ndim else -1)

    def erase(self, shape_var: ShapeVarMap, var: VarMap | None = None) -> StructInfo:
        """The dimensions go, and their number stays, if one names an unknown variable."""
        if self.values is None:
            return self
        dims = _defined_dims(self.values, shape_var)
        if dims is None:
            return ShapeStructInfo(ndim=self.ndim)
        return self if dims is self.values else ShapeStructInfo(dims)

    def bind(self, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[_expr.Var, _expr.Expr]) -> None:
        """Dimensions that are bare variables stand for the argument's."""
        if isinstance(arg, ShapeStructInfo) and self.values is not None and arg.values is not None:
            _bind_dims(self.values, arg.values, shapes)

    @property
    def static_type(self) -> Type:
        """A shape of this rank."""
        return ShapeType(self.ndim)


class TensorStructInfo(StructInfo):
    """A tensor: shape (a ``ShapeExpr`` or a variable that holds a shape) or rank, dtype, device.

    ``dtype=""`` means unknown, ``ndim=-1`` unknown rank.
    """

    shape: Any
    dtype: str = field(role="attr")
    vdevice: Any = field(role="child")
    ndim: int = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(
        self,
        shape: _expr.Expr | Sequence[ExprLike] | None = None,
        dtype: str | None = "float32",
        vdevice: VDevice | str | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ) -> None:
        if isinstance(shape, (list, tuple)):
            shape = _expr.ShapeExpr(shape)
        self.dtype = "" if dtype in (None, "", "void") else str(dtype)
        if self.dtype:
            parse_dtype(self.dtype)
        if isinstance(vdevice, str):
            vdevice = _resolve_vdevice(vdevice)
        if shape is not None:
            info = getattr(shape, "struct_info_", None)
            if not isinstance(info, ShapeStructInfo):
                raise CheckValueError(
                    "the shape of a TensorStructInfo must be a ShapeExpr or a variable with ShapeStructInfo"
                )
            if ndim not in (-1, info.ndim):
                raise CheckValueError(f"TensorStructInfo has a shape of rank {info.ndim} but ndim={ndim}")
            if not isinstance(shape, (_expr.ShapeExpr, _expr.Var)):
                raise CheckValueError(f"the shape of a TensorStructInfo cannot be a {type(shape).__name__}")
            ndim = info.ndim
        elif ndim < -1:
            raise CheckValueError(f"ndim must be at least -1, got {ndim}")
        self.shape = shape
        self.vdevice = vdevice
        self.ndim = int(ndim)
        self.span = span

    @property
    def is_unknown_ndim(self) -> bool:
        """Whether not even the rank is known."""
        return self.ndim < 0

    def dims(self) -> tuple[PrimExpr, ...] | None:
        """The dimensions if they are written out: from a ``ShapeExpr``, or from the shape variable's struct info."""
        if isinstance(self.shape, _expr.ShapeExpr):
            return self.shape.values
        if self.shape is not None and isinstance(self.shape.struct_info_, ShapeStructInfo):
            return self.shape.struct_info_.values
        return None

    def _check(self, derived: TensorStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        if self.dtype and self.dtype != derived.dtype:
            return L0 if derived.dtype else L1
        rank = _check_ndim(self.ndim, derived.ndim)
        if rank is not PASS:
            return rank
        if self.vdevice is not None:
            if derived.vdevice is None:
                return L1
            if not same_vdevice(self.vdevice, derived.vdevice):
                return L0
        if self.shape is None or self.shape is derived.shape:
            return PASS
        if isinstance(self.shape, _expr.ShapeExpr) and isinstance(derived.shape, _expr.ShapeExpr):
            return _check_dims(self.shape.values, derived.shape.values, analyzer)
        return L2

    def _lca(self, other: TensorStructInfo, analyzer: Analyzer | None) -> StructInfo:
        dtype = self.dtype if self.dtype == other.dtype else ""
        vdevice = self.vdevice if same_vdevice(self.vdevice, other.vdevice) else None
        mine, theirs = self.shape, other.shape
        same = mine is theirs or (
            isinstance(mine, _expr.ShapeExpr)
            and isinstance(theirs, _expr.ShapeExpr)
            and _dims_equal(mine.values, theirs.values, analyzer)
        )
        if mine is None or not same:
            return TensorStructInfo(None, dtype, vdevice, self.ndim if self.ndim == other.ndim else -1)
        if dtype == self.dtype and vdevice is self.vdevice:
            return self
        return TensorStructInfo(mine, dtype, vdevice)

    def erase(self, shape_var: ShapeVarMap, var: VarMap | None = None) -> StructInfo:
        """The shape goes, and the rank stays, if it names an unknown variable."""
        new: _expr.Expr | None
        if isinstance(self.shape, _expr.ShapeExpr):
            dims = _defined_dims(self.shape.values, shape_var)
            new = None if dims is None else self.shape if dims is self.shape.values else _expr.ShapeExpr(dims)
        else:
            new = var(self.shape) if var is not None and self.shape is not None else None
        if new is self.shape:
            return self
        if new is None:
            return TensorStructInfo(None, self.dtype, self.vdevice, self.ndim)
        if not isinstance(new, (_expr.Var, _expr.ShapeExpr)):
            raise InternalError(f"a shape can be a ShapeExpr or a Var, not {type(new).__name__}")
        return TensorStructInfo(new, self.dtype, self.vdevice)

    def bind(self, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[_expr.Var, _expr.Expr]) -> None:
        """Dimensions that are bare variables, or the variable that holds the shape, stand for the argument's."""
        if not isinstance(arg, TensorStructInfo) or self.shape is None:
            return
        if isinstance(self.shape, _expr.ShapeExpr):
            _bind_dims(self.shape.values, arg.dims() or (), shapes)
        elif arg.shape is not None:
            variables.setdefault(self.shape, arg.shape)

    @property
    def static_type(self) -> Type:
        """A tensor of this rank and dtype."""
        return DynTensorType(self.ndim, self.dtype)


def _resolve_vdevice(text: str) -> VDevice | None:
    """``"llvm"``, ``"cuda:1"``, ``"cuda:1:global"`` as a VDevice."""
    from ..ir import VDevice

    parts = text.split(":")
    index = int(parts[1]) if len(parts) > 1 else 0
    return VDevice(parts[0], index, parts[2] if len(parts) > 2 else "global")


class TupleStructInfo(StructInfo):
    """A tuple and the struct info of each field."""

    fields: tuple[StructInfo, ...]
    span: Any = field(role="ignore", default=None)

    def __init__(self, fields: Sequence[StructInfo], span: Span | None = None) -> None:
        if not isinstance(fields, Iterable):
            raise CheckValueError(f"the fields of a tuple are a sequence, not {type(fields).__name__}")
        self.fields = tuple(as_struct_info(f) for f in fields)
        self.span = span

    def _check(self, derived: TupleStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        if len(self.fields) != len(derived.fields):
            return L0
        return min((b.check(d, analyzer) for b, d in zip(self.fields, derived.fields)), default=PASS)

    def _lca(self, other: TupleStructInfo, analyzer: Analyzer | None) -> StructInfo:
        if len(self.fields) != len(other.fields):
            return ObjectStructInfo()
        return self._with([a.lca(b, analyzer) for a, b in zip(self.fields, other.fields)])

    def _with(self, fields: Sequence[StructInfo]) -> TupleStructInfo:
        return self if all(a is b for a, b in zip(fields, self.fields)) else TupleStructInfo(fields)

    def erase(self, shape_var: ShapeVarMap, var: VarMap | None = None) -> StructInfo:
        """Field by field."""
        return self._with([f.erase(shape_var, var) for f in self.fields])

    def bind(self, arg: StructInfo, shapes: dict[TirVar, PrimExpr], variables: dict[_expr.Var, _expr.Expr]) -> None:
        """Field by field."""
        for param, given in zip(self.fields, arg.fields if isinstance(arg, TupleStructInfo) else ()):
            param.bind(given, shapes, variables)

    @property
    def static_type(self) -> Type:
        """A tuple of the fields' types."""
        return TupleType([f.static_type for f in self.fields])


class FuncStructInfo(StructInfo):
    """A function: parameters, result, purity; or *opaque*: unknown parameters and a rule for the result."""

    params: tuple[StructInfo, ...] | None = field(role="bind")
    ret: StructInfo
    derive_func: Any = field(role="attr")
    purity: bool = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(
        self,
        params: Sequence[StructInfo] | None,
        ret: StructInfo | None,
        purity: bool = True,
        span: Span | None = None,
        derive_func: Any = None,
    ) -> None:
        self.params = None if params is None else tuple(as_struct_info(p) for p in params)
        self.ret = as_struct_info(ret) if ret is not None else ObjectStructInfo()
        self.derive_func = derive_func
        self.purity = bool(purity)
        self.span = span

    @classmethod
    def _make(cls, **fields: Any) -> FuncStructInfo:
        return cls(**fields)

    @staticmethod
    def opaque_func(
        *,
        ret: StructInfo | None = None,
        derive_func: str | Callable[..., StructInfo] | None = None,
        purity: bool = False,
        span: Span | None = None,
    ) -> FuncStructInfo:
        """A function of unknown signature: its result is ``ret``, or what ``derive_func(call, builder)`` says."""
        if ret is not None and derive_func is not None:
            raise CheckValueError("Cannot specify both ret and derive_func")
        return FuncStructInfo(None, ret, purity, span, derive_func)

    def is_opaque(self) -> bool:
        """Whether the parameters are unknown."""
        return self.params is None

    def _check(self, derived: FuncStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        if self.purity and not derived.purity:
            return L0
        if self.params is None:
            if self.derive_func is not None:
                return PASS if self.derive_func == derived.derive_func else L2
            return self.ret.check(derived.ret, analyzer)
        if derived.params is None:
            return L2
        # Symbolic variables of the parameters are renamed to each other here, and only here.
        if structural_equal(self, derived):
            return PASS
        if len(self.params) != len(derived.params):
            return L0
        params = min((b.check(d, analyzer) for b, d in zip(self.params, derived.params)), default=PASS)
        return min(L2 if params is L1 else params, self.ret.check(derived.ret, analyzer))

    def _lca(self, other: FuncStructInfo, analyzer: Analyzer | None) -> StructInfo:
        purity = self.purity and other.purity
        if self.params is None and self.derive_func is not None:
            return self if self.derive_func == other.derive_func else FuncStructInfo.opaque_func(purity=purity)
        ret = self.ret.lca(other.ret, analyzer)
        if self.params is None:
            return self if ret is self.ret else FuncStructInfo.opaque_func(ret=ret, purity=purity)
        if other.params is None:
            return FuncStructInfo.opaque_func(ret=ret, purity=purity)
        if structural_equal(self, other):
            return self
        if len(self.params) != len(other.params):
            return FuncStructInfo.opaque_func(ret=ret, purity=purity)
        params = [a.lca(b, analyzer) for a, b in zip(self.params, other.params)]
        if ret is self.ret and all(a is b for a, b in zip(params, self.params)):
            return self
        return FuncStructInfo(params, ret, purity)

    # It is well defined by itself: its parameters define what it mentions, so that nothing is erased.

    @property
    def static_type(self) -> Type:
        """A function of the types of its parameters and result; a packed one if they are unknown."""
        if self.params is None:
            return PackedFuncType()
        return FuncType([p.static_type for p in self.params], self.ret.static_type)


def tensor_dims(info: StructInfo | None) -> tuple[PrimExpr, ...] | None:
    """The dimensions of a tensor if they are written out; None for any other value."""
    return info.dims() if isinstance(info, TensorStructInfo) else None


def tensor_rank(info: StructInfo | None) -> int:
    """The number of dimensions of a tensor; -1 where it is unknown and for any other value."""
    return info.ndim if isinstance(info, TensorStructInfo) else -1


def is_void(info: StructInfo | None) -> bool:
    """Whether it describes the empty tuple, which is what a call for its effects gives."""
    return isinstance(info, TupleStructInfo) and not info.fields


def is_pure_function(info: StructInfo | None) -> bool:
    """Whether it describes a function without side effects."""
    return isinstance(info, FuncStructInfo) and info.purity


@overload
def fields_of(value: StructInfo) -> tuple[StructInfo, ...]: ...
@overload
def fields_of(value: _expr.Expr) -> tuple[_expr.Expr, ...]: ...
def fields_of(value: StructInfo | _expr.Expr) -> tuple[StructInfo, ...] | tuple[_expr.Expr, ...]:
    """The fields of a tuple's struct info, or of a tuple that is written out; anything else is the one field."""
    return value.fields if isinstance(value, (_expr.Tuple, TupleStructInfo)) else (value,)
