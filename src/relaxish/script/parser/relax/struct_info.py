"""Annotations of graph functions: ``R.Tensor(("n", 4), "float32")`` before its symbols are known."""

from __future__ import annotations

from collections import abc
from typing import Any, TypeAlias
from collections.abc import Iterable, Sequence

from .... import relax, tir
from ....ir.expr import ExprLike, PrimExpr, Range
from ....ir.global_info import VDevice
from ....relax import distributed
from ....relax.distributed import DeviceMesh, Placement
from ....relax.expr import Expr
from ....relax.struct_info import StructInfo
from ....support.errors import DiagnosticError
from ...ir_builder.relax import as_vdevice
from ...ir_builder.relax.distributed import as_mesh, as_placement
from ..core.parser import evaluate_text

__all__ = ["Callable", "DTensor", "Object", "Prim", "Proxy", "Shape", "Tensor", "Tuple", "normalize"]


# What may stand in an annotation: functions are called for it, ``R.Tensor`` for ``R.Tensor()``.
Annotation: TypeAlias = "Proxy | StructInfo | abc.Callable[[], object] | None"


class Proxy:
    """An annotation that becomes struct info once its symbolic names are bound."""

    def symbols(self) -> set[str]:
        """Names that the annotation introduces."""
        return set()

    def as_struct_info(self, names: dict[str, Any] | None = None) -> StructInfo:
        """The struct info, with names looked up in ``names``."""
        raise NotImplementedError

    def asobject(self) -> StructInfo:
        """Struct info of the annotation, where an object is wanted."""
        return self.as_struct_info()


def _names_of(text: str) -> set[str]:
    return {text} if text.isidentifier() else set()


def _evaluate(value: ExprLike, names: dict[str, Any] | None) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return evaluate_text(value, names or {})
    except (DiagnosticError, SyntaxError) as problem:
        # Whoever reads the annotation knows where it stands.
        raise ValueError(f"cannot evaluate {value!r} in an annotation: {problem}") from problem


def _dims(values: Iterable[ExprLike], names: dict[str, Any] | None) -> list[Any]:
    out = []
    for value in values:
        made = _evaluate(value, names)
        out.append(tir.IntImm("int64", made) if isinstance(made, int) and not isinstance(made, bool) else made)
    return out


class ObjectProxy(Proxy):
    """``R.Object``"""

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.ObjectStructInfo:
        return relax.ObjectStructInfo()


class TensorProxy(Proxy):
    """``R.Tensor(...)``"""

    def __init__(
        self, shape: Expr | Sequence[ExprLike] | None, dtype: str | None, vdevice: VDevice | str | None, ndim: int
    ) -> None:
        self.shape, self.dtype, self.vdevice, self.ndim = shape, dtype, vdevice, ndim

    def symbols(self) -> set[str]:
        if not isinstance(self.shape, (list, tuple)):
            return set()
        return {n for s in self.shape if isinstance(s, str) for n in _names_of(s)}

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.TensorStructInfo:
        vdevice = as_vdevice(self.vdevice)
        if self.shape is None:
            return relax.TensorStructInfo(None, self.dtype, vdevice, self.ndim)
        if isinstance(self.shape, relax.Expr):
            return relax.TensorStructInfo(self.shape, self.dtype, vdevice, self.ndim)
        return relax.TensorStructInfo(_dims(self.shape, names), self.dtype, vdevice, self.ndim)


class ShapeProxy(Proxy):
    """``R.Shape(...)``"""

    def __init__(self, values: Sequence[ExprLike] | None, ndim: int) -> None:
        self.values, self.ndim = values, ndim

    def symbols(self) -> set[str]:
        return {n for s in self.values or () if isinstance(s, str) for n in _names_of(s)}

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.ShapeStructInfo:
        values = None if self.values is None else _dims(self.values, names)
        return relax.ShapeStructInfo(values, self.ndim)


class PrimProxy(Proxy):
    """``R.Prim(...)``"""

    def __init__(self, dtype: str | None, value: ExprLike | None) -> None:
        if dtype is None and value is None:
            raise TypeError("R.Prim missing required argument.  Must provide either 'dtype' or 'value'")
        self.dtype, self.value = dtype, value

    def symbols(self) -> set[str]:
        return _names_of(self.value) if isinstance(self.value, str) else set()

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.PrimStructInfo:
        if self.value is None:
            return relax.PrimStructInfo(self.dtype)
        value = _evaluate(self.value, names)
        if isinstance(value, int) and not isinstance(value, bool):
            value = tir.IntImm("int64", value)
        return relax.PrimStructInfo(value=value)


class TupleProxy(Proxy):
    """``R.Tuple(...)``"""

    def __init__(self, fields: Iterable[Annotation]) -> None:
        self.fields = [normalize(f) for f in fields]

    def symbols(self) -> set[str]:
        return set().union(*[f.symbols() for f in self.fields])

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.TupleStructInfo:
        return relax.TupleStructInfo([f.as_struct_info(names) for f in self.fields])


class CallableProxy(Proxy):
    """``R.Callable(...)``"""

    def __init__(
        self,
        params: Annotation | Sequence[Annotation],
        ret: Annotation,
        purity: bool,
        derive_func: str | abc.Callable[..., StructInfo] | None,
    ) -> None:
        if params is None:
            self.params = None
        else:
            items: abc.Sequence[Any] = params if isinstance(params, (list, tuple)) else [params]
            self.params = [normalize(p) for p in items]
        # The rule of a derived result leaves nothing to be said of the result here.
        self.ret = (
            None if ret is None and derive_func is not None else normalize(ret) if ret is not None else ObjectProxy()
        )
        self.purity, self.derive_func = purity, derive_func

    def symbols(self) -> set[str]:
        return set().union(*[p.symbols() for p in self.params or ()])

    def as_struct_info(self, names: dict[str, Any] | None = None) -> relax.FuncStructInfo:
        ret = None if self.ret is None else self.ret.as_struct_info(names)
        if self.params is None:
            return relax.FuncStructInfo.opaque_func(ret=ret, derive_func=self.derive_func, purity=bool(self.purity))
        params = [p.as_struct_info(names) for p in self.params]
        return relax.FuncStructInfo(params, ret, bool(self.purity))


class KnownProxy(Proxy):
    """Struct info given as such."""

    def __init__(self, info: StructInfo) -> None:
        self.info = info

    def as_struct_info(self, names: dict[str, Any] | None = None) -> StructInfo:
        return self.info


def normalize(annotation: Annotation) -> Proxy:
    """Struct info of an annotation or its proxy. Raises TypeError for anything else."""
    match annotation:
        case Proxy():
            return annotation
        case None:
            return TupleProxy([])
        case relax.StructInfo():
            return KnownProxy(annotation)
    if callable(annotation):
        # `R.Tensor` for `R.Tensor()`, and `T.int64` for a scalar of that type.
        made = annotation()
        match made:
            case tir.Var():
                return PrimProxy(made.dtype, None)
            case Proxy() | relax.StructInfo():
                return normalize(made)
    raise TypeError(f"Expected StructInfoProxy but got {type(annotation).__name__}")


def Object() -> ObjectProxy:
    """Anything."""
    return ObjectProxy()


def Tensor(
    shape: Expr | Sequence[ExprLike] | str | None = None,
    dtype: str | None = None,
    vdevice: VDevice | str | None = None,
    ndim: int = -1,
) -> TensorProxy:
    """A tensor; dimensions are numbers, symbolic expressions, or names in quotes."""
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if shape is not None and not isinstance(shape, (tuple, list)) and not isinstance(shape, relax.Expr):
        if isinstance(shape, PrimExpr) or not isinstance(shape, (tuple, list)):
            raise ValueError(f"shape must be a list/tuple or an Expr, but got: {shape}")
    return TensorProxy(shape, dtype, vdevice, ndim)


def Shape(values: Sequence[ExprLike] | None = None, ndim: int = -1) -> ShapeProxy:
    """A shape."""
    return ShapeProxy(values, ndim)


def Prim(dtype: str | None = None, value: ExprLike | None = None) -> PrimProxy:
    """A scalar."""
    return PrimProxy(dtype, value)


def Tuple(*fields: Any) -> TupleProxy:
    """A tuple."""
    if len(fields) == 1 and isinstance(fields[0], (tuple, list)):
        fields = tuple(fields[0])
    return TupleProxy(fields)


def Callable(
    params: Annotation | Sequence[Annotation] | None = None,
    ret: Annotation | None = None,
    purity: bool | None = None,
    derive_func: str | abc.Callable[..., StructInfo] | None | None = None,
) -> CallableProxy:
    """A function."""
    if purity is None:
        purity = params is not None
    return CallableProxy(params, ret, purity, derive_func)


class DTensorProxy(Proxy):
    """``R.DTensor(...)``"""

    def __init__(self, tensor: TensorProxy, device_mesh: DeviceMesh | str, placement: Placement | str) -> None:
        self.tensor, self.device_mesh, self.placement = tensor, device_mesh, placement

    def symbols(self) -> set[str]:
        return self.tensor.symbols()

    def as_struct_info(self, names: dict[str, Any] | None = None) -> distributed.DTensorStructInfo:
        mesh, placement = as_mesh(self.device_mesh), as_placement(self.placement)
        return distributed.DTensorStructInfo(self.tensor.as_struct_info(names), mesh, placement)


def DTensor(
    shape: Expr | Sequence[ExprLike] | str | None = None,
    dtype: str | None = None,
    device_mesh: DeviceMesh | str | None = None,
    placement: Placement | str = "",
    *,
    ndim: int = -1,
) -> DTensorProxy:
    """A tensor spread over a mesh of devices; ``device_mesh`` may be named as ``"mesh[0]"``."""
    mesh = distributed.DeviceMesh((), Range(0, 1)) if device_mesh is None else device_mesh
    return DTensorProxy(Tensor(shape, dtype, ndim=ndim), mesh, placement)


# They may stand without parentheses, also inside calls.
_FACTORIES: tuple[Any, ...] = (Object, Tensor, Shape, Prim, Tuple, Callable, DTensor)
for _factory in _FACTORIES:
    _factory.is_annotation = True
