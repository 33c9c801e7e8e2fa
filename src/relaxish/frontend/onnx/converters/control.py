"""Branches and loops: decided during the import where that is possible, else run by the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TYPE_CHECKING

from .... import op, relax
from ....relax.call_forms import call_pure_packed
from ....relax.expr import Expr, If, PrimValue, SeqExpr, Tuple
from ....relax.scalars import const_int
from ....relax.struct_info import fields_of, TensorStructInfo
from ....support.errors import OpNotImplemented, RelaxishError
from ...loops import branch, NativeLoop
from ..context import Context, convert, RankDecidedAtRunTime

if TYPE_CHECKING:
    import onnx

#: Nodes that a loop of a known number of turns is written out to.
_WRITTEN_OUT = 256


def _scalar(ctx: Context, x: Expr) -> Expr:
    """A tensor of one element without dimensions."""
    x = ctx.tensor(x)
    return ctx.emit(ctx.reshape(x, [])) if ctx.ndim(x) else x


def _tensors(ctx: Context, values: Sequence[Expr], what: str) -> list[Expr]:
    if any(isinstance(v, Tuple) for v in values):
        raise NotImplementedError(f"sequences as results of {what} that is decided when the model runs")
    return [ctx.tensor(v) for v in values]


@convert("If")
def _if(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    known = ctx.setting(inputs[0])
    if known is not None:
        return ctx.scope.inline(ctx, attrs["then_branch" if known.reshape(-1)[0] else "else_branch"], [])
    condition = _scalar(ctx, inputs[0])
    decision = ctx.scope.decision(attrs["__name__"])
    if decision is not None:
        return _only_branch(ctx, attrs, condition, decision)
    branches: dict[bool, SeqExpr] = {}
    forms: dict[bool, list[int | None]] = {}
    errors = []
    for taken, name in ((True, "then_branch"), (False, "else_branch")):
        try:
            branches[taken], forms[taken] = _branch(ctx, attrs[name])
        except (RelaxishError, ValueError) as error:
            if isinstance(error, OpNotImplemented):
                raise
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]
    if errors:
        # The sizes of this import fit one branch only: models that serve several forms of input have such.
        (taken,) = branches
        ctx.scope.fits_not(attrs["__name__"])
        return _only_branch(ctx, attrs, condition, taken)
    if forms[True] != forms[False]:
        raise OpNotImplemented(
            "branches, decided when the model runs, that give sequences of different lengths, or an optional with a value "
            "and one without"
        )
    if _ranks(branches[True]) != _ranks(branches[False]):
        raise RankDecidedAtRunTime(attrs["__name__"])
    chosen = ctx.builder.emit(If(condition, branches[True], branches[False]))
    parts = iter(
        [ctx.with_dims(ctx.builder.emit(chosen[k])) for k in range(len(branches[True].body.struct_info.fields))]
    )
    return [next(parts) if n is None else Tuple([next(parts) for _ in range(n)]) for n in forms[True]]


def _only_branch(ctx: Context, attrs: dict[str, Any], condition: Expr, taken: bool) -> list[Expr]:
    """The results of one branch; the run checks that it is the right one."""
    made = ctx.scope.inline(ctx, attrs["then_branch" if taken else "else_branch"], [])
    return [ctx.with_dims(_required(ctx, condition, taken, x)) for x in _tensors(ctx, made, "a branch")]


def _ranks(whole: SeqExpr) -> list[int]:
    """The ranks of the tensors that a branch gives."""
    return [info.ndim for info in fields_of(whole.body.struct_info) if isinstance(info, TensorStructInfo)]


def _required(ctx: Context, condition: Expr, wanted: bool, x: Expr) -> Expr:
    """``x``, if the condition is as wanted when the model runs."""
    known = ctx.emit(x)
    call = call_pure_packed("vm.builtin.require", known, condition, PrimValue(wanted), sinfo_args=known.struct_info)
    return ctx.builder.emit(call)


def _branch(ctx: Context, graph: onnx.GraphProto) -> tuple[SeqExpr, list[int | None]]:
    """A branch that gives all tensors in a row, and how many of them each result has (None: it is one)."""
    made: list[Expr] = []

    def make() -> list[Expr]:
        made.extend(ctx.scope.inline(ctx, graph, []))
        flat = [part for value in made for part in (value.fields if isinstance(value, Tuple) else [value])]
        return _tensors(ctx, flat, "a branch")

    whole = branch(ctx.builder, make)
    return whole, [len(v.fields) if isinstance(v, Tuple) else None for v in made]


#: A turn of a loop: from its number and the state to whether to go on (None: yes), the state and what is collected.
Turn = Callable[[Context, Expr, list[Expr]], tuple[Expr | None, list[Expr], list[Expr]]]


class _Written:
    """A loop written out turn by turn."""

    def __init__(self, ctx: Context, turn: Turn, state: Sequence[Expr]) -> None:
        self.ctx, self.turn, self.state = ctx, turn, list(state)
        self.collected: list[list[Expr]] = []

    def run(self, count: int) -> bool:
        """All turns; False if whether there is another one is not known."""
        for number in range(count):
            going, self.state, parts = self.turn(self.ctx, self.ctx.const(number, "int64"), self.state)
            self.collected.append(parts)
            if going is None:
                continue
            known = self.ctx.constant(going)
            if known is None:
                return False
            if not known.reshape(-1)[0]:
                break
        return True

    def stacks(self) -> list[Expr]:
        """Values collected turn by turn, stacked along a new first axis."""
        ctx, made = self.ctx, []
        for parts in zip(*self.collected):
            rows = [ctx.emit(op.expand_dims(part, 0)) for part in _tensors(ctx, parts, "a loop")]
            made.append(rows[0] if len(rows) == 1 else ctx.emit(op.concat(rows, 0)))
        return made


def _native(ctx: Context, turn: Turn, state: Sequence[Expr], outside: Mapping[str, Expr]) -> NativeLoop:
    """A loop whose turn sees the values ``outside`` by their names."""

    def run(
        builder: relax.BlockBuilder, number: Expr, values: list[Expr], around: Mapping[str, Expr]
    ) -> tuple[Expr | None, list[Expr], list[Expr]]:
        inner = Context(builder, ctx.opset, ctx.scope)
        with ctx.scope.within(around):
            going, after, parts = turn(inner, number, values)
        going = None if going is None else inner.tensor(going)
        return going, _tensors(inner, after, "a loop"), _tensors(inner, parts, "a loop")

    return NativeLoop(ctx.builder, run, _tensors(ctx, state, "a loop"), outside)


@convert("Loop")
def _loop(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    limit, going, *state = inputs
    body: onnx.GraphProto = attrs["body"]
    carried = len(state)

    def turn(inner: Context, number: Expr, values: list[Expr]) -> tuple[Expr | None, list[Expr], list[Expr]]:
        made = inner.scope.inline(inner, body, [number, inner.const(True, "bool"), *values])
        return made[0], made[1 : 1 + carried], made[1 + carried :]

    begins = ctx.setting(going) if going is not None else None
    starts = going is None or (begins is not None and bool(begins.reshape(-1)[0]))
    count = None if limit is None else ctx.setting(limit)
    turns = None if count is None else max(int(count.reshape(-1)[0]), 0)
    if begins is not None and not starts:
        turns = 0
    sequences = any(isinstance(s, Tuple) for s in state)
    if turns and starts and (turns * len(body.node) <= _WRITTEN_OUT or sequences):
        written = _Written(ctx, turn, state)
        if written.run(turns):
            return [*written.state, *written.stacks()]
    native = _native(ctx, turn, state, ctx.scope.outside(body))
    most = ctx.const(-1, "int64") if limit is None else _scalar(ctx, limit)
    first = ctx.const(True, "bool") if going is None else _scalar(ctx, going)
    after, collected = native.run(most, first)
    return [*after, *collected]


def _flags(attrs: dict[str, Any], name: str, count: int) -> list[int]:
    return [int(v) for v in attrs.get(name, [0] * count)]


@convert("Scan", 9)
def _scan(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    body: onnx.GraphProto = attrs["body"]
    count = int(attrs["num_scan_inputs"])
    carried = len(inputs) - count
    state, rows = list(inputs[:carried]), [ctx.tensor(x) for x in inputs[carried:]]
    axes = [a % ctx.ndim(x) for a, x in zip(_flags(attrs, "scan_input_axes", count), rows)]
    rows = [
        ctx.emit(op.flip(x, axis)) if backwards else x
        for x, axis, backwards in zip(rows, axes, _flags(attrs, "scan_input_directions", count))
    ]
    turns = ctx.dims(rows[0])[axes[0]]
    names = [f"scanned {k}" for k in range(count)]

    def turn(inner: Context, number: Expr, values: list[Expr]) -> tuple[Expr | None, list[Expr], list[Expr]]:
        around = [inner.scope.value(name) for name in names]
        parts = [inner.emit(op.take(x, number, axis)) for x, axis in zip(around, axes)]
        made = inner.scope.inline(inner, body, [*values, *parts])
        return None, made[:carried], made[carried:]

    known = const_int(turns)
    scanned = dict(zip(names, rows))
    if known and known * len(body.node) <= _WRITTEN_OUT:
        with ctx.scope.within(scanned):
            written = _Written(ctx, turn, state)
            written.run(known)
        after, collected = written.state, written.stacks()
    else:
        native = _native(ctx, turn, state, {**ctx.scope.outside(body), **scanned})
        limit = _scalar(ctx, PrimValue(turns))
        states, collected = native.run(limit, ctx.const(True, "bool"), turns)
        after = list(states)
    outputs = len(collected)
    directions = _flags(attrs, "scan_output_directions", outputs)
    placed: list[Expr] = []
    for x, back, axis in zip(collected, directions, _flags(attrs, "scan_output_axes", outputs)):
        out = ctx.emit(op.flip(x, 0)) if back else x
        axis %= ctx.ndim(x)
        order = [*range(1, axis + 1), 0, *range(axis + 1, ctx.ndim(x))]
        placed.append(out if axis == 0 else ctx.emit(op.permute_dims(out, order)))
    return [*after, *placed]
