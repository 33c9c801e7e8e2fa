"""Tensors of the compute language: values named by the operation that makes them and an output index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..support.entry_points import lazy_package, load
from ..support.sequences import as_list
from ..ir.errors import CheckValueError
from ..tir import IterVar, PrimExpr, ProducerLoad

if TYPE_CHECKING:
    from .operation import Operation

__all__ = ["ARITHMETIC", "Dim", "ExprLike", "Index", "Operand", "Tensor", "TensorSlice"]

#: A dimension or an index as callers write it.
Dim = PrimExpr | int
#: A scalar as callers write it.
ExprLike = PrimExpr | int | float

#: Filled by ``topi``: what ``A + B`` on whole tensors means (element-wise with broadcasting), by operator name.
ARITHMETIC: dict[str, Callable[..., Tensor]] = {}


def _arith(name: str, lhs: Operand, rhs: Operand | None) -> Tensor:
    if name not in ARITHMETIC:
        load("tensor_arithmetic")
    return ARITHMETIC[name](lhs, rhs)


class Tensor:
    """One output of an :class:`Operation`; ``A[i, j]`` or ``A(i, j)`` loads an element."""

    __slots__ = ("__weakref__", "dtype", "op", "shape", "value_index")
    takes_scalars = True

    def __init__(self, shape: Sequence[PrimExpr], dtype: str, op: Operation, value_index: int) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.op = op
        self.value_index = value_index

    def same_as(self, other: object) -> bool:
        """Whether both name the same output of the same operation."""
        return isinstance(other, Tensor) and self.op is other.op and self.value_index == other.value_index

    def __eq__(self, other: object) -> bool:
        return self.same_as(other)

    def __hash__(self) -> int:
        return hash((id(self.op), self.value_index))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """The operation's name, with ``.v<k>`` for one of several outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    def __call__(self, *indices: Index | Sequence[Index]) -> ProducerLoad:
        flat: Sequence[Any] = indices[0] if len(indices) == 1 and isinstance(indices[0], (tuple, list)) else indices
        if len(flat) != self.ndim:
            raise CheckValueError(
                f"Need to provide {self.ndim} index in tensor but {len(flat)} was provided: {self.name}"
            )
        return ProducerLoad(self, tuple(_index(i) for i in flat))

    # An index is never too large for a load to be made, so Python's iteration by index would not end.
    __iter__ = None

    def __getitem__(self, indices: Index | Sequence[Index]) -> ProducerLoad | Any:  # a TensorSlice of too few indices
        return TensorSlice(self, ())[indices]

    def __add__(self, other: Operand) -> Tensor:
        return _arith("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return _arith("add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return _arith("subtract", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return _arith("subtract", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return _arith("multiply", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return _arith("multiply", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return _arith("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _arith("divide", other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return _arith("floor_divide", self, other)

    def __mod__(self, other: Operand) -> Tensor:
        return _arith("floor_mod", self, other)

    def __neg__(self) -> Tensor:
        return _arith("negative", self, None)

    def __lt__(self, other: Operand) -> Tensor:
        return _arith("less", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return _arith("greater", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return _arith("less_equal", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return _arith("greater_equal", self, other)

    def __str__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], op.name={self.op.name})"

    __repr__ = __str__


class TensorSlice:
    """A tensor with its leading indices given; becomes a load once all of them are."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: Sequence[Any]) -> None:
        self.tensor = tensor
        self.indices = tuple(indices)

    __iter__ = None

    def __getitem__(self, indices: Index | Sequence[Index]) -> ProducerLoad | Any:  # or another slice
        more = tuple(as_list(indices))
        full = self.indices + more
        if len(full) >= self.tensor.ndim:
            return self.tensor(*full)
        return TensorSlice(self.tensor, full)

    def asobject(self) -> ProducerLoad:
        """The element load this slice stands for."""
        return self.tensor(*self.indices)

    @property
    def dtype(self) -> str:
        """Data type of the tensor."""
        return self.tensor.dtype


#: An index as callers write it: an axis stands for its variable.
Index = Dim | IterVar | TensorSlice

#: What operators on whole tensors take: tensors, scalars or a mixture.
Operand = Tensor | ExprLike


def _index(value: Index) -> Dim:
    """An index as an expression: an axis stands for its variable, a slice for the element that it has become."""
    match value:
        case IterVar():
            return value.var
        case TensorSlice():
            return value.asobject()
    return value


__getattr__, __dir__ = lazy_package(globals())  # operations have a file of their own
