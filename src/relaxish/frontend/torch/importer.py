"""State and helpers shared by the converters of one import."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

from ... import op, relax, tir
from ...ir import PrimExpr
from ...ir import dtype as dt
from ...ir.prim import const_int
from ...support.errors import OpNotImplemented
from ...relax.expr import Expr, Var
from ...ir.plain import plain

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["Deferred", "Dim", "Importer", "Number", "Steps", "Value", "dtype_of", "torch_dtype"]

#: A size: a number, or an expression where it is symbolic.
Dim = int | PrimExpr
#: A Python number of the program, or an expression of its symbolic sizes.
Number = int | float | PrimExpr
#: An argument that may be a tensor or a number.
Value = Expr | Number
#: Strides, paddings, kernels: one number, or one for each spatial axis.
Steps = int | Sequence[int]
#: How the results of a graph inside of a program are found.
Graphs = Callable[["Importer", "torch.fx.GraphModule", Sequence[Any]], list[Any]]
_T = TypeVar("_T")


def torch_dtype(dtype: torch.dtype | str) -> str:
    """The relaxish dtype of a ``torch.dtype``. Raises ValueError for types without a counterpart."""
    text = str(dtype).removeprefix("torch.")
    aliases = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}
    text = aliases.get(text, text)
    try:
        dt.parse(text)
    except ValueError:
        raise ValueError(f"torch dtype {dtype} has no counterpart here") from None
    return text


def dtype_of(x: Expr) -> str:
    """The element type of a tensor expression."""
    return str(x.struct_info.dtype)


class Deferred(Generic[_T]):
    """A further result of an operator, computed when something uses it: most programs take the first result only."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: _T | None = None

    def value(self) -> _T:
        """The result; raises OpNotImplemented where it cannot be computed here."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @classmethod
    def missing(cls, what: str) -> Deferred[Expr]:
        """A result that has no counterpart here: using it is an error."""

        def refuse() -> Expr:
            raise OpNotImplemented(f"{what} has no counterpart here")

        return Deferred(refuse)


class Importer:
    """Emits bindings into one BlockBuilder and answers questions of shape and type.

    ``env`` maps the nodes of the graph to what they were converted to.
    """

    def __init__(self, builder: relax.BlockBuilder, graphs: Graphs | None = None) -> None:
        self.builder = builder
        self.env: dict[Any, Any] = {}
        self.symbols: dict[str, tir.Var] = {}
        #: The node that is converted, for converters that ask what PyTorch knows of it.
        self.node: torch.fx.Node | None = None
        #: Numbers of the draws by chance.
        self.draws = itertools.count()
        self._graphs = graphs

    def inline(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """The results of a graph inside of the program, whose operators are emitted here."""
        if self._graphs is None:
            raise OpNotImplemented("graphs inside of this kind of program are not supported")
        return self._graphs(self, graph, inputs)

    def inner(self, builder: relax.BlockBuilder, symbols: Mapping[str, tir.Var]) -> Importer:
        """An importer into another function of the module, which has its own variables for symbolic sizes."""
        made = Importer(builder, self._graphs)
        made.env, made.symbols, made.draws = self.env, dict(symbols), self.draws
        return made

    @property
    def block_builder(self) -> relax.BlockBuilder:
        """The builder that converters emit into."""
        return self.builder

    def emit(self, expr: Expr, name: str = "") -> Var:
        """Bind an expression, inferring its struct info."""
        return self.builder.emit(expr, name) if name else self.builder.emit(expr)

    @staticmethod
    def is_tensor(x: object) -> TypeIs[Expr]:
        """Whether ``x`` is a Relax tensor expression (and not a Python number)."""
        return isinstance(x, relax.Expr) and isinstance(x.struct_info, relax.TensorStructInfo)

    @staticmethod
    def shape(x: Expr) -> list[Dim]:
        """Dimensions: ints where known, scalar expressions where symbolic."""
        info = x.struct_info
        if info.shape is None:
            raise ValueError(f"the rank of {x} is known but not its shape")
        return [const_int(d, d) for d in info.shape.values]

    @staticmethod
    def rank(x: Expr) -> int:
        """Number of dimensions."""
        return int(x.struct_info.ndim)

    def known(self, x: Expr, dim: int, what: str) -> int:
        """The extent of a dimension. Raises OpNotImplemented, naming what needs it, where it is symbolic."""
        size = self.shape(x)[dim]
        if not isinstance(size, int):
            raise OpNotImplemented(f"{what} along a dimension of unknown size")
        return size

    def axis(self, x: Expr, axis: int) -> int:
        """A non-negative axis."""
        return axis + self.rank(x) if axis < 0 else axis

    def scalar(self, value: Number, dtype: str) -> Expr:
        """A constant tensor of no dimensions."""
        if isinstance(value, PrimExpr) and not isinstance(value, (tir.IntImm, tir.FloatImm)):
            number = self.emit(op.reshape(self.emit(op.shape_to_tensor(relax.ShapeExpr([value]))), []))
            return self.cast(number, dtype)
        number = plain(value)
        return relax.const(np.array(number, dtype=dt.numpy_dtype(dtype)), dtype)

    def tensor(self, value: Value, like: Expr | None = None, dtype: str | None = None) -> Expr:
        """A tensor expression: numbers become constants of ``like``'s type."""
        if self.is_tensor(value):
            return value
        kind = dtype or (dtype_of(like) if like is not None else None)
        if kind is None:
            integral = isinstance(value, (int, PrimExpr)) and not isinstance(value, tir.FloatImm)
            kind = "bool" if isinstance(value, bool) else "int64" if integral else "float32"
        if isinstance(value, float) and not dt.is_float(kind):
            kind = "float32"
        return self.scalar(value, kind)

    def promote(self, a: Value, b: Value) -> tuple[Expr, Expr]:
        """Operands of one type, by torch's promotion rules for tensors and numbers."""
        if not self.is_tensor(a):
            assert self.is_tensor(b)  # of two numbers converters make a number
            return self.tensor(a, b) if not _needs_float(a, b) else self.scalar(a, "float32"), self.as_float_for(a, b)
        if not self.is_tensor(b):
            return self.as_float_for(b, a), self.tensor(b, a) if not _needs_float(b, a) else self.scalar(b, "float32")
        da, db = dtype_of(a), dtype_of(b)
        if da == db:
            return a, b
        goal = _wider(da, db, self.rank(a), self.rank(b))
        return self.cast(a, goal), self.cast(b, goal)

    def together(self, *tensors: Expr) -> list[Expr]:
        """Tensors in the type that all of them promote to."""
        kind, rank = dtype_of(tensors[0]), self.rank(tensors[0])
        for tensor in tensors[1:]:
            kind = _wider(kind, dtype_of(tensor), rank, self.rank(tensor)) if kind != dtype_of(tensor) else kind
            rank = max(rank, self.rank(tensor))
        return [self.cast(tensor, kind) for tensor in tensors]

    def as_float_for(self, number: Value, x: Expr) -> Expr:
        """``x``, cast to float32 if it is integral while ``number`` is a float."""
        return self.cast(x, "float32") if _needs_float(number, x) else x

    def cast(self, x: Expr, dtype: str) -> Expr:
        """``x`` as ``dtype``."""
        return x if dtype_of(x) == dtype else self.emit(op.astype(x, dtype))

    def floating(self, x: Expr) -> Expr:
        """``x`` as a floating-point tensor."""
        return x if dt.is_float(dtype_of(x)) else self.cast(x, "float32")

    def dims(self, sizes: Sequence[Dim | relax.PrimValue]) -> list[Dim]:
        """Sizes as ints or scalar expressions."""
        return [s.value if isinstance(s, (tir.IntImm, relax.PrimValue)) else s for s in sizes]


def _needs_float(number: Value, x: Expr) -> bool:
    return isinstance(number, float) and not dt.is_float(dtype_of(x))


_ORDER = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def _wider(a: str, b: str, rank_a: int, rank_b: int) -> str:
    kind_a, kind_b = dt.is_float(a), dt.is_float(b)
    if kind_a == kind_b and (rank_a == 0) != (rank_b == 0):
        # A tensor without dimensions does not widen one that has them, within a category.
        return (
            b
            if rank_a == 0 and a != "bool" and b != "bool"
            else a
            if rank_b == 0 and b != "bool"
            else max(a, b, key=_ORDER.index)
        )
    if kind_a != kind_b:
        return a if kind_a else b
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    return max(a, b, key=_ORDER.index)
