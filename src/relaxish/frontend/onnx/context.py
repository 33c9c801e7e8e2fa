"""State of an import: the builder, the values of the graph, and the shapes known at import time.

A one-dimensional int64 tensor whose elements are known expressions travels as a ``ShapeExpr``, a scalar one as a
``PrimValue``: shape arithmetic of exported models is thus done during import, symbolic dimensions included.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TYPE_CHECKING, TypeVar

import numpy as np

from ... import op, relax, te
from ...ir.expr import PrimExpr, as_expr
from ...ir.functor import all_nodes
from ...ir.op import Op
from ...relax.expr import Call, Constant, Expr, PrimValue, ShapeExpr, Tuple
from ...relax.scalars import const_int, prove_equal, prove_equal_shapes, simplify
from ...relax.struct_info import PrimStructInfo, ShapeStructInfo, TensorStructInfo, tensor_dims
from ...runtime.arrays.ndarray import NDArray
from ...support.errors import OpAttributeInvalid, OpNotImplemented
from ...tir import Buffer, Call as TirCall, const, Stmt, Var
from ...topi import loops
from ...transform.equate_sizes import cast_because

if TYPE_CHECKING:
    import onnx

__all__ = [
    "CONVERTERS",
    "Array",
    "Attribute",
    "Context",
    "Converter",
    "Dim",
    "Made",
    "RankDecidedAtRunTime",
    "Scope",
    "convert",
    "dtype_name",
    "table_name",
]

Array = np.ndarray[Any, Any]
#: A dimension: an expression, or a number that is known.
Dim = PrimExpr | int
#: The value of an attribute of a node.
Attribute = float | int | str | Sequence[Any] | Array
#: The result of a converter: one value, or the values of the outputs in order.
Made = Expr | Sequence[Expr]

#: A converter: the values of the inputs (None where an input is left out) and the attributes by name.
Converter = Callable[["Context", list[Any], dict[str, Any]], Made]
_C = TypeVar("_C", bound=Converter)

#: Operator name to its implementations by the first opset they hold for; an operator of another domain than the
#: standard's own goes by ``domain.name``.
CONVERTERS: dict[str, dict[int, Converter]] = {}

#: Constants up to this many elements take part in arithmetic at import time.
_FOLD_LIMIT = 1024


def convert(name: str, since: int = 1, domain: str = "") -> Callable[[_C], _C]:
    """Register ``f(ctx, inputs, attrs)`` as the converter of an ONNX operator from opset ``since`` on."""
    name = table_name(name, domain)

    def register(func: _C) -> _C:
        CONVERTERS.setdefault(name, {})[since] = func
        return func

    return register


def table_name(name: str, domain: str) -> str:
    """Key of an operator of a domain in :data:`CONVERTERS`."""
    return name if domain in ("", "ai.onnx") else f"{domain}.{name}"


def dtype_name(code: int) -> str:
    """The dtype an ONNX type code stands for. Raises OpNotImplemented for strings, which no kernel computes with."""
    import onnx

    if code == onnx.TensorProto.STRING:
        raise OpNotImplemented(
            "tensors of strings are not supported: compute what is made of text before the model runs"
        )
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))


class RankDecidedAtRunTime(OpNotImplemented):
    """An ``If`` decided when the model runs whose branches give tensors of different ranks; ``name`` is its first output."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the branches of {name!r}, decided when the model runs, give tensors of different ranks: give the sizes that "
            "decide in shape_dict"
        )
        self.name = name


class Scope(Protocol):
    """The names that nodes of graphs inside of graphs see."""

    def inline(self, ctx: Context, graph: onnx.GraphProto, inputs: Sequence[Expr]) -> list[Expr]:
        """The outputs of a subgraph, whose nodes are emitted where the context is."""

    def outside(self, graph: onnx.GraphProto) -> dict[str, Expr]:
        """Values of the names that a subgraph takes from the graphs around it."""

    def decision(self, name: str) -> bool | None:
        """The branch that this import takes of the ``If`` whose first output has that name; None for either."""

    def fits_not(self, name: str) -> None:
        """Only one branch of the ``If`` whose first output has that name fits the rest of this import."""

    def value(self, name: str) -> Expr:
        """Value of a name."""

    def within(self, values: Mapping[str, Expr]) -> AbstractContextManager[None]:
        """A scope in which names have other values for a while."""


class NodeInWork(NamedTuple):
    """The node that is being imported, for errors: its operator, its name, and what its inputs are called."""

    kind: str = "the model"
    name: str = ""
    inputs: tuple[tuple[str, Expr | None], ...] = ()

    def why(self, values: Sequence[Expr]) -> str:
        """Why sizes are checked: the node needs those of ``values`` to be equal."""
        called = [next((repr(name) for name, x in self.inputs if x is v), "a part of it") for v in values]
        return (
            f"because {self.kind} {self.name!r} needs inputs of sizes that fit: {' and '.join(dict.fromkeys(called))}"
        )


class Context:
    """One import in progress.

    ``weights`` has the arrays of initializers that are parameters of the function. Those that an operator needs at
    import time (axes, sizes) are constants of the function instead; ``settled`` are their variables. ``scope`` imports
    the graphs inside of nodes.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        opset: int,
        scope: Scope,
        weights: Mapping[relax.Var, NDArray] | None = None,
    ) -> None:
        self.builder = builder
        self.opset = opset
        self.scope = scope
        self.weights = dict(weights or {})
        self.settled: dict[relax.Var, Constant] = {}
        self.at: NodeInWork = NodeInWork()
        self._numbers = itertools.count()

    def next_number(self) -> int:
        """A number that no other node has."""
        return next(self._numbers)

    def emit(self, expr: Expr, name: str = "") -> Expr:
        """Bind an expression, so that its shape is known."""
        if isinstance(expr, (Constant, ShapeExpr, PrimValue)) or getattr(expr, "struct_info_", None) is not None:
            return expr
        return self.builder.emit(expr, name)

    def info(self, x: Expr) -> TensorStructInfo:
        """Struct info of a tensor."""
        found = self.tensor(x).struct_info
        assert isinstance(found, TensorStructInfo)
        return found

    def dtype(self, x: Expr) -> str:
        """The dtype of a value."""
        if isinstance(x, ShapeExpr):
            return "int64"
        info = x.struct_info
        if isinstance(info, (TensorStructInfo, PrimStructInfo)):
            return info.dtype
        return "int64"

    def dims(self, x: Expr) -> list[PrimExpr]:
        """The dimensions of a tensor. Raises if they are unknown."""
        match x:
            case ShapeExpr():
                return [relax.PrimValue(len(x.values)).value]
            case PrimValue():
                return []
        dims = tensor_dims(x.struct_info)
        if dims is None:
            raise OpAttributeInvalid("the operator needs an input of known shape")
        return list(dims)

    def ndim(self, x: Expr) -> int:
        """The rank of a value."""
        match x:
            case ShapeExpr():
                return 1
            case PrimValue():
                return 0
        rank = x.struct_info.ndim
        if rank < 0:
            raise OpAttributeInvalid("the operator needs an input of known rank")
        return int(rank)

    def tensor(self, x: Expr) -> Expr:
        """A value as a tensor: shapes and scalars become tensors."""
        match x:
            case PrimValue():
                known = getattr(x.value, "value", None)
                if known is not None:
                    return relax.const(np.asarray(known, x.value.dtype), x.value.dtype)
                row = self.emit(op.shape_to_tensor(ShapeExpr([x.value])))
                return self.emit(op.reshape(row, []))
            case ShapeExpr():
                values = [const_int(v) for v in x.values]
                if all(v is not None for v in values):
                    return relax.const(np.asarray(values, "int64"), "int64")
                return self.emit(op.shape_to_tensor(x))
        if isinstance(getattr(x, "struct_info_", None), ShapeStructInfo):
            return self.emit(op.shape_to_tensor(x))
        return x

    def constant(self, x: Expr | None) -> Array | None:
        """The NumPy value of a constant, else None."""
        match x:
            case Constant():
                return x.data.numpy()
            case ShapeExpr():
                values = [const_int(v) for v in x.values]
                return np.asarray(values, "int64") if all(v is not None for v in values) else None
            case PrimValue():
                known = getattr(x.value, "value", None)
                return None if known is None else np.asarray(known, x.value.dtype)
        return None

    def setting(self, x: Expr | None) -> Array | None:
        """As :meth:`constant`, for what decides the operator's form: a parameter with a known value becomes a constant."""
        if isinstance(x, relax.Var) and x in self.weights:
            data = self.weights[x].numpy()
            self.settled.setdefault(x, relax.const(data, str(data.dtype)))
            return data
        return self.constant(x)

    def need_constant(self, x: Expr | None, what: str) -> Array:
        """As :meth:`setting`, with an error naming what had to be one."""
        value = self.setting(x)
        if value is None:
            raise OpAttributeInvalid(f"{what} must be a constant")
        return value

    def scalars(self, x: Expr) -> list[PrimExpr] | None:
        """The elements of a small integer value as expressions, if known."""
        match x:
            case ShapeExpr():
                return list(x.values)
            case PrimValue():
                return [x.value]
            case relax.Var() if x in self.weights and "int" in self.weights[x].dtype:
                self.setting(x)
                x = self.settled[x]
        if isinstance(x, Constant):
            array = x.data.numpy()
            if array.size <= _FOLD_LIMIT and np.issubdtype(array.dtype, np.integer) and array.ndim <= 1:
                return [relax.PrimValue(int(v)).value for v in array.reshape(-1)]
        return None

    def elements(self, x: Expr) -> list[PrimExpr]:
        """The elements of an integer value of rank 0 or 1: expressions where they are known, else new variables.

        The variables get their values when the model runs and may be negative. Raises OpAttributeInvalid if the number
        of elements is unknown.
        """
        known = self.scalars(x)
        if known is not None:
            return known
        x = self.tensor(x)
        if self.dtype(x) != "int64":
            x = self.emit(op.astype(x, "int64"))
        if self.ndim(x) != 1:
            x = self.emit(self.reshape(x, [-1]))
        return self.run_time_shape(x)

    def element(self, x: Expr) -> PrimExpr:
        """The one element of an integer value, as :meth:`elements`."""
        return self.elements(x)[0].astype("int64")

    def named(self, values: Sequence[Dim]) -> list[PrimExpr]:
        """Variables for computed sizes, so that what uses them is not a large expression; known ones stay."""
        sizes = [simplify(as_expr(v)) for v in values]
        plain = [const_int(v) is not None or isinstance(v, Var) for v in sizes]
        computed = [v for v, p in zip(sizes, plain) if not p]
        if any(_chooses(v) for v in computed):
            # By a kernel, so that no later pass writes choices out again and again.
            fresh = iter(self.run_time_shape(self.builder.emit_te(_listed, computed, primfunc_name_hint="sizes")))
        else:
            symbols: list[PrimExpr] = [Var("n", "int64") for _ in computed]
            if computed:
                self.builder.match_cast(ShapeExpr(computed), ShapeStructInfo(symbols))
            fresh = iter(symbols)
        return [v if p else next(fresh) for v, p in zip(sizes, plain)]

    def require(self, have: Sequence[Dim], wanted: Sequence[Dim]) -> None:
        """Check when the model runs that sizes are equal. Raises OpAttributeInvalid if they are known not to be."""
        for a, b in zip(have, wanted, strict=True):
            if const_int(a) is not None and const_int(b) is not None and const_int(a) != const_int(b):
                raise OpAttributeInvalid(f"sizes of {a} and {b} do not fit")
        if not prove_equal_shapes(have, wanted):
            why = self.at.why([x for _, x in self.at.inputs if x is not None])
            cast_because(self.builder, ShapeExpr(list(have)), ShapeStructInfo(list(wanted)), why)

    def with_dims(self, x: Expr) -> Expr:
        """A tensor of known rank whose dimensions have names at least."""
        x = self.emit(x)
        info = x.struct_info
        if not isinstance(info, TensorStructInfo) or info.dims() is not None or info.ndim < 0:
            return x
        return self.builder.match_cast(x, TensorStructInfo([Var("n", "int64") for _ in range(info.ndim)], info.dtype))

    def is_shape(self, x: Expr) -> bool:
        """Whether a value is known element by element and not simply a constant."""
        return isinstance(x, (ShapeExpr, PrimValue))

    def from_scalars(self, values: Sequence[Dim], rank: int) -> Expr:
        """Known elements as a value of rank 0 or 1."""
        items = [simplify(v) if isinstance(v, PrimExpr) else v for v in values]
        return PrimValue(items[0]) if rank == 0 else ShapeExpr(items)

    def const(self, value: np.typing.ArrayLike, dtype: str) -> Expr:
        """A constant tensor."""
        return relax.const(np.asarray(value), dtype)

    def fold(self, function: Callable[..., Array], inputs: Sequence[Expr | None]) -> Constant | None:
        """``function`` applied to constants at import time, or None if an input is not a small one."""
        arrays = [self.constant(x) for x in inputs]
        if any(a is None or a.size > _FOLD_LIMIT for a in arrays):
            return None
        made = np.asarray(function(*arrays))
        return relax.const(made, str(made.dtype))

    def reshape(self, x: Expr, shape: Sequence[Dim]) -> Expr:
        """``x`` in another shape, in which a dimension of zero means no elements (and -1 infers)."""
        if any(const_int(d) == 0 for d in map(as_expr, shape)):
            return Call(Op.get("relax.reshape"), [x, ShapeExpr(list(shape))])
        return op.reshape(x, list(shape))

    def run_time_shape(self, x: Expr) -> list[PrimExpr]:
        """The elements of a shape tensor computed at run time, as new symbolic dimensions.

        ``x`` is a one-dimensional int64 tensor of known length. Raises OpAttributeInvalid if that is unknown.
        """
        count = const_int(self.dims(x)[0])
        if count is None:
            raise OpAttributeInvalid("the operator needs a shape of known length")
        shape = self.emit(op.tensor_to_shape(x))
        symbols: list[PrimExpr] = [Var("n", "int64") for _ in range(count)]
        self.builder.match_cast(shape, ShapeStructInfo(symbols))
        return symbols

    def require_sizes(self, sizes: Expr, wanted: Sequence[Dim]) -> None:
        """Check when the model runs that the elements of a computed int64 tensor are the sizes wanted."""
        why = self.at.why([x for _, x in self.at.inputs if x is not None])
        cast_because(self.builder, self.emit(op.tensor_to_shape(sizes)), ShapeStructInfo(list(wanted)), why)

    def agreeing(self, values: Sequence[Expr], apart: int | None = None) -> list[Expr]:
        """Tensors whose dimensions are equal, or 1, by their types.

        Two dimensions of which it cannot be proved that they are equal are taken to be, and the run checks it. If axis
        ``apart`` of tensors of one rank may differ, all others are equal.
        """
        tensors = [self.tensor(x) for x in values]
        shapes = [tensor_dims(x.struct_info) for x in tensors]
        known = [list(s) for s in shapes if s is not None]
        if len(known) != len(tensors):
            return tensors
        rank = max(map(len, known), default=0)
        skipped = None if apart is None else apart % rank - rank
        for place in range(-rank, 0):
            # Tensors that are put side by side do not broadcast: there a 1 is a size like any other.
            meeting = [s[place] for s in known if len(s) >= -place and (apart is not None or const_int(s[place]) != 1)]
            if place == skipped or not meeting:
                continue
            wanted = next((d for d in meeting if const_int(d) is not None), meeting[0])
            for shape in known:
                there = shape[place] if len(shape) >= -place else wanted
                if const_int(there) is None and not prove_equal(there, wanted):
                    shape[place] = wanted
        return [
            x if all(a is b for a, b in zip(old or (), new)) else self._checked(x, new, self.at.why(values))
            for x, old, new in zip(tensors, shapes, known)
        ]

    def fitted(self, x: Expr, dims: Sequence[Dim]) -> Expr:
        """A tensor of these dimensions, which the run checks where they cannot be proved; others stay as they are."""
        have, wanted = self.dims(x), [as_expr(d) for d in dims]
        if len(have) != len(wanted) or prove_equal_shapes(have, wanted):
            return x
        if any(None not in (p := (const_int(a), const_int(b))) and p[0] != p[1] for a, b in zip(have, wanted)):
            return x  # for the operator's own error
        return self._checked(x, wanted, self.at.why([i for _, i in self.at.inputs if i is not None]))

    def _checked(self, x: Expr, dims: Sequence[PrimExpr], why: str) -> Expr:
        return cast_because(self.builder, x, TensorStructInfo(dims, self.dtype(x)), why)

    def axes(self, x: Expr, what: str = "axes") -> list[int]:
        """Axes given as an input tensor."""
        return [int(v) for v in np.atleast_1d(self.need_constant(x, what))]


def _chooses(value: PrimExpr) -> bool:
    """Whether an expression has branches."""
    return any(isinstance(node, TirCall) for node in all_nodes(value))


def _listed(values: list[PrimExpr]) -> te.Tensor:
    """Scalar expressions as an int64 tensor."""

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        return loops.seq(*(loops.write(outs[0], v, const(k, "int64")) for k, v in enumerate(values)))

    made: te.Tensor = te.extern([(const(len(values), "int64"),)], [], body, "sizes", ["int64"])
    return made


def as_list(value: Made) -> list[Expr]:
    """The fields of a tuple, or one value."""
    match value:
        case Tuple():
            return list(value.fields)
        case Sequence():
            return list(value)
    return [value]


def attr_ints(attrs: dict[str, Any], name: str, default: Sequence[int] | None = None) -> list[int] | None:
    """A list-of-integers attribute."""
    if name not in attrs:
        return None if default is None else list(default)
    return [int(v) for v in attrs[name]]


def is_expr(x: object) -> bool:
    """Whether a value is a graph expression."""
    return isinstance(x, Expr)
