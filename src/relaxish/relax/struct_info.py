"""Struct info: what the compiler knows of a graph value (kind, shape, dtype, fields, signature).

The kinds form a lattice with :class:`ObjectStructInfo` on top.  Every expression of a normalised program has one;
shapes may hold symbolic integer expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.dtype import parse as parse_dtype
from ..ir.errors import CheckValueError
from ..ir.node import Node, field
from ..ir.expr import PrimExpr
from . import expr as _expr

__all__ = [
    "FuncStructInfo",
    "ObjectStructInfo",
    "PrimStructInfo",
    "ShapeStructInfo",
    "StructInfo",
    "TensorStructInfo",
    "TupleStructInfo",
    "as_struct_info",
]


class StructInfo(Node):
    """Base of all struct infos."""

    def __eq__(self, other: object) -> bool:
        """Structural equality; :meth:`same_as` is identity."""
        from ..ir.structural import structural_equal

        known = isinstance(other, StructInfo) or hasattr(other, "as_struct_info")
        return self is other or (known and structural_equal(self, other))

    def __hash__(self) -> int:
        from ..ir.structural import structural_hash

        return structural_hash(self)

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value described by ``derived`` is described by this one too."""
        from .analysis.struct_info import BaseCheckResult, struct_info_base_check

        return struct_info_base_check(self, derived) == BaseCheckResult.PASS


def as_struct_info(value: Any) -> StructInfo:
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


class PrimStructInfo(StructInfo):
    """A scalar: its dtype, and its value where known.

    ``PrimStructInfo("int64")`` or ``PrimStructInfo(value=n)``.
    """

    value: PrimExpr | None
    dtype: str = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(self, dtype: Any = None, value: Any = None, span: Any = None) -> None:
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


class ShapeStructInfo(StructInfo):
    """A shape value: its dimensions, or only their number (``ndim=-1``: not even that)."""

    values: tuple[PrimExpr, ...] | None
    ndim: int = field(role="attr")
    span: Any = field(role="ignore")

    def __init__(self, values: Sequence[Any] | None = None, ndim: int = -1, span: Any = None) -> None:
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
        self, shape: Any = None, dtype: Any = "float32", vdevice: Any = None, ndim: int = -1, span: Any = None
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


def _resolve_vdevice(text: str) -> Any:
    """``"llvm"``, ``"cuda:1"``, ``"cuda:1:global"`` as a VDevice."""
    from ..ir import VDevice

    parts = text.split(":")
    index = int(parts[1]) if len(parts) > 1 else 0
    return VDevice(parts[0], index, parts[2] if len(parts) > 2 else "global")


class TupleStructInfo(StructInfo):
    """A tuple and the struct info of each field."""

    fields: tuple[StructInfo, ...]
    span: Any = field(role="ignore", default=None)

    def __init__(self, fields: Sequence[StructInfo], span: Any = None) -> None:
        if not isinstance(fields, Iterable):
            raise CheckValueError(f"the fields of a tuple are a sequence, not {type(fields).__name__}")
        self.fields = tuple(as_struct_info(f) for f in fields)
        self.span = span


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
        span: Any = None,
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
        span: Any = None,
    ) -> FuncStructInfo:
        """A function of unknown signature: its result is ``ret``, or what ``derive_func(call, builder)`` says."""
        if ret is not None and derive_func is not None:
            raise CheckValueError("Cannot specify both ret and derive_func")
        return FuncStructInfo(None, ret, purity, span, derive_func)

    def is_opaque(self) -> bool:
        """Whether the parameters are unknown."""
        return self.params is None
