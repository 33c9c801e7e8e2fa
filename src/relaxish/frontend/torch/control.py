"""Graphs inside of programs: branches, loops, and scopes that only change how PyTorch records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TYPE_CHECKING

from ... import op, relax, tir
from ...ir import PrimExpr
from ...relax.expr import Expr, If
from ...tir import Var
from ...relax.scalars import const_int
from ...support.errors import OpNotImplemented
from ..loops import branch, NativeLoop
from .importer import Importer, Value
from .table import converter, Made

if TYPE_CHECKING:
    import torch

__all__ = ["BRANCHING", "has_branches"]

#: Operators whose graphs are run or not, and how often, by values that only the run knows.
BRANCHING = ("cond", "while_loop", "scan", "map_impl")


def has_branches(module: torch.fx.GraphModule) -> bool:
    """Whether a graph, or one inside of it, has branches or loops."""
    graphs = [part.graph for part in module.modules() if hasattr(part, "graph")]
    return any(getattr(node.target, "__name__", "") in BRANCHING for graph in graphs for node in graph.nodes)


# ---- scopes


@converter("wrap_with_set_grad_enabled")
def _with_gradients(self: Importer, enabled: bool, body: torch.fx.GraphModule, *operands: Value) -> list[Any]:
    return self.inline(body, operands)


@converter("invoke_subgraph")
def _invoke(self: Importer, body: torch.fx.GraphModule, name: str, *operands: Value) -> list[Any]:
    return self.inline(body, operands)


@converter("tag_activation_checkpoint")
def _checkpoint(self: Importer, body: torch.fx.GraphModule, *operands: Value, **options: Any) -> list[Any]:
    return self.inline(body, operands)


# ---- numbers as tensors, which branches give and loops carry


def _as_tensor(self: Importer, value: Value) -> Expr:
    return value if self.is_tensor(value) else self.tensor(value)


def _as_condition(self: Importer, value: Value) -> Expr:
    """A tensor of one truth value; conditions on sizes are computed when the program runs."""
    if not self.is_tensor(value):
        truth = value if isinstance(value, PrimExpr) else tir.const(bool(value), "bool")
        number = tir.Select(truth, tir.const(1, "int64"), tir.const(0, "int64")) if truth.dtype == "bool" else truth
        value = self.tensor(number)
    value = self.emit(op.reshape(value, [])) if self.rank(value) else value
    return self.cast(value, "bool")


def _as_number(self: Importer, value: Expr) -> PrimExpr:
    """A tensor of one integer as a number of the program."""
    shape = self.emit(op.tensor_to_shape(self.emit(op.reshape(self.cast(value, "int64"), [1]))))
    number = Var("n", "int64")
    self.builder.match_cast(shape, relax.ShapeStructInfo([number]))
    return number


def _like(self: Importer, values: Sequence[Expr], forms: Sequence[Value]) -> list[Any]:
    """Tensors as numbers where the program has numbers."""
    return [v if self.is_tensor(form) else _as_number(self, v) for v, form in zip(values, forms, strict=True)]


# ---- branches


@converter("cond")
def _cond(
    self: Importer,
    condition: Value | bool,
    taken: torch.fx.GraphModule,
    other: torch.fx.GraphModule,
    operands: Sequence[Value] = (),
) -> list[Any]:
    condition = const_int(condition, condition) if isinstance(condition, PrimExpr) else condition
    if isinstance(condition, (bool, int)):
        return self.inline(taken if condition else other, operands)
    numbers: list[bool] = []

    def results(body: torch.fx.GraphModule) -> list[Expr]:
        made = self.inline(body, operands)
        numbers[:] = [not self.is_tensor(m) for m in made]
        return [_as_tensor(self, m) for m in made]

    yes, no = (branch(self.builder, lambda body=body: results(body)) for body in (taken, other))  # type: ignore[misc]
    chosen = self.builder.emit(If(_as_condition(self, condition), yes, no))
    made = [_with_dims(self, self.builder.emit(chosen[k])) for k in range(len(numbers))]
    return [_as_number(self, m) if number else m for m, number in zip(made, numbers)]


def _with_dims(self: Importer, x: Expr) -> Expr:
    """A tensor whose dimensions have names at least."""
    info = x.struct_info
    if info.dims() is not None or info.ndim < 0:
        return x
    return self.builder.match_cast(x, relax.TensorStructInfo([Var("n", "int64") for _ in range(info.ndim)], info.dtype))


# ---- loops


class _Around:
    """What a loop's graphs take besides its state, by names, so that it can be handed to the function of a turn."""

    def __init__(self, operands: Sequence[Any]) -> None:
        self.operands = list(operands)
        self.wrapped: dict[str, Expr] = {}
        for k, value in enumerate(self.operands):
            match value:
                case Expr():
                    self.wrapped[str(k)] = value
                case PrimExpr():
                    self.wrapped[str(k)] = relax.PrimValue(value)

    def inside(self, values: Mapping[str, Expr]) -> list[Any]:
        """The operands as a turn sees them."""
        found: list[Any] = list(self.operands)
        for name, value in values.items():
            found[int(name)] = value.value if isinstance(value, relax.PrimValue) else value
        return found


def _renamed(self: Importer, loop: NativeLoop) -> dict[str, Var]:
    """The symbolic sizes of the program as a turn sees them."""
    return {name: fresh for name, var in self.symbols.items() if isinstance(fresh := loop.fresh.get(var), Var)}


@converter("while_loop")
def _while_loop(
    self: Importer,
    test: torch.fx.GraphModule,
    body: torch.fx.GraphModule,
    carried: Sequence[Value],
    extra: Sequence[Any] = (),
) -> list[Any]:
    state = [_as_tensor(self, c) for c in carried]
    around = _Around(extra)

    def turn(
        builder: relax.BlockBuilder, number: Expr, values: list[Expr], outside: Mapping[str, Expr]
    ) -> tuple[Expr, list[Expr], list[Expr]]:
        inner = self.inner(builder, _renamed(self, loop))
        rest = around.inside(outside)
        after = [_as_tensor(inner, v) for v in inner.inline(body, [*_like(inner, values, carried), *rest])]
        (going,) = inner.inline(test, [*_like(inner, after, carried), *rest])
        return _as_condition(inner, going), after, []

    loop = NativeLoop(self.builder, turn, state, around.wrapped)
    (first,) = self.inline(test, [*carried, *extra])
    made, _ = loop.run(relax.const(-1, "int64"), _as_condition(self, first))
    return _like(self, made, carried)


def _slices(
    self: Importer, body: torch.fx.GraphModule, state: Sequence[Value], rows: Sequence[Expr], extra: Sequence[Any]
) -> tuple[list[Expr], list[Expr]]:
    """A graph of the state and a slice of each of ``rows`` along their first axis: the last state, and what is stacked."""
    turns = self.shape(rows[0])[0]
    around = _Around([*rows, *extra])
    count = len(rows)

    def turn(
        builder: relax.BlockBuilder, number: Expr, values: list[Expr], outside: Mapping[str, Expr]
    ) -> tuple[None, list[Expr], list[Expr]]:
        inner = self.inner(builder, _renamed(self, loop))
        given = around.inside(outside)
        parts = [inner.emit(op.take(x, number, 0)) for x in given[:count]]
        made = inner.inline(body, [*_like(inner, values, state), *parts, *given[count:]])
        tensors = [_as_tensor(inner, m) for m in made]
        return None, tensors[: len(state)], tensors[len(state) :]

    loop = NativeLoop(self.builder, turn, [_as_tensor(self, s) for s in state], around.wrapped)
    known = const_int(turns)
    limit = relax.const(known, "int64") if known is not None else self.scalar(turns, "int64")
    return loop.run(limit, relax.const(True, "bool"), relax.PrimValue(turns).value)


@converter("scan")
def _scan(
    self: Importer,
    body: torch.fx.GraphModule,
    state: Sequence[Value],
    rows: Sequence[Expr],
    extra: Sequence[Any] = (),
) -> list[Any]:
    if not rows:
        raise OpNotImplemented("scan without tensors to go through")
    after, stacked = _slices(self, body, state, rows, extra)
    return [*_like(self, after, state), *stacked]


@converter("map_impl")
def _map(self: Importer, body: torch.fx.GraphModule, rows: Sequence[Expr], extra: Sequence[Any] = ()) -> Made:
    return _slices(self, body, [], rows, extra)[1]
