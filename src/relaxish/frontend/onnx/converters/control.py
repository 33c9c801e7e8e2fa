"""Branches and loops: decided during the import where that is possible, else run by the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TYPE_CHECKING

from .... import op, relax
from ....ir.expr import PrimExpr
from ....relax.analysis import tir_vars_in_struct_info
from ....relax.call_forms import call_pure_packed, make_closure
from ....relax.expr import Constant, Expr, If, PrimValue, SeqExpr, ShapeExpr, Tuple
from ....relax.scalars import const_int, prove_equal
from ....relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ....support.errors import OpAttributeInvalid, OpNotImplemented, RelaxishError
from ....tir import Var
from ....tir.functor import substitute
from ..context import Context, convert

if TYPE_CHECKING:
    import onnx

#: Nodes that a loop of a known number of turns is written out to.
_WRITTEN_OUT = 256
#: Changes of the types of a loop's state before they are given up on; a dimension that changes is unknown from then on.
_ATTEMPTS = 16


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
        return [
            ctx.with_dims(_required(ctx, condition, taken, x))
            for x in _tensors(
                ctx, ctx.scope.inline(ctx, attrs["then_branch" if taken else "else_branch"], []), "a branch"
            )
        ]
    if forms[True] != forms[False]:
        raise OpNotImplemented(
            "branches, decided when the model runs, that give sequences of different lengths, or an optional with a value "
            "and one without"
        )
    chosen = ctx.builder.emit(If(condition, branches[True], branches[False]))
    parts = iter(
        [ctx.with_dims(ctx.builder.emit(chosen[k])) for k in range(len(branches[True].body.struct_info.fields))]
    )
    return [next(parts) if n is None else Tuple([next(parts) for _ in range(n)]) for n in forms[True]]


def _required(ctx: Context, condition: Expr, wanted: bool, x: Expr) -> Expr:
    """``x``, if the condition is as wanted when the model runs."""
    known = ctx.emit(x)
    call = call_pure_packed("vm.builtin.require", known, condition, PrimValue(wanted), sinfo_args=known.struct_info)
    return ctx.builder.emit(call)


def _branch(ctx: Context, graph: onnx.GraphProto) -> tuple[SeqExpr, list[int | None]]:
    """A branch that gives all tensors in a row, and how many of them each result has (None: it is one)."""
    ctx.builder.begin_inner_scope()
    ctx.builder.begin_binding_block()
    try:
        made = ctx.scope.inline(ctx, graph, [])
        flat = [part for value in made for part in (value.fields if isinstance(value, Tuple) else [value])]
        result = ctx.builder.emit(Tuple(_tensors(ctx, flat, "a branch")))
    finally:
        block = ctx.builder.end_block()
        ctx.builder.end_scope()
    return SeqExpr([block], result), [len(v.fields) if isinstance(v, Tuple) else None for v in made]


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
        """What was collected, turn by turn along a new first axis."""
        ctx, made = self.ctx, []
        for parts in zip(*self.collected):
            rows = [ctx.emit(op.expand_dims(part, 0)) for part in _tensors(ctx, parts, "a loop")]
            made.append(rows[0] if len(rows) == 1 else ctx.emit(op.concat(rows, 0)))
        return made


def _symbols(values: Iterable[Expr]) -> list[Var]:
    """The symbolic dimensions in values of the graph."""
    found: dict[Var, None] = {}
    for value in values:
        if isinstance(value, Tuple):
            found |= dict.fromkeys(_symbols(value.fields))
        elif not isinstance(value, Constant):
            found |= dict.fromkeys(tir_vars_in_struct_info(value.struct_info))
    return list(found)


class _Native:
    """A loop that the machine runs: the turn is a function of the module.

    The function has the number of the turn, the state, the tensors around the loop and the symbolic dimensions as
    parameters; the last two are bound once by a closure.
    """

    def __init__(self, ctx: Context, turn: Turn, state: Sequence[Expr], outside: Mapping[str, Expr]) -> None:
        self.ctx, self.turn = ctx, turn
        self.state = [ctx.emit(s) for s in _tensors(ctx, state, "a loop")]
        self.outside = dict(outside)
        around = [*self.state, *self.outside.values()]
        self.symbols = _symbols(around)
        self.fresh: dict[Var, PrimExpr] = {v: Var(v.name, v.dtype) for v in self.symbols}
        self.back: dict[Var, PrimExpr] = {f: v for v, f in self.fresh.items() if isinstance(f, Var)}
        self.params: dict[relax.Var, Expr] = {}

    def inside(self, value: Expr) -> Expr:
        """A value around the loop as the function sees it."""
        match value:
            case Tuple():
                return Tuple([self.inside(f) for f in value.fields])
            case Constant():
                return value
            case ShapeExpr():
                return ShapeExpr([substitute(v, self.fresh) for v in value.values])
            case PrimValue():
                return PrimValue(substitute(value.value, self.fresh))
        param = relax.Var("outer", self.renamed(value.struct_info))
        self.params[param] = value
        return param

    def renamed(self, info: StructInfo) -> StructInfo:
        """A type around the loop as the function sees it."""
        return info.map(lambda e: substitute(e, self.fresh))

    def type(self, x: Expr) -> TensorStructInfo:
        """The type of a tensor around the loop as the function sees it."""
        info = self.renamed(x.struct_info)
        assert isinstance(info, TensorStructInfo)
        return info

    def function(self, infos: Sequence[TensorStructInfo]) -> tuple[relax.GlobalVar, list[TensorStructInfo]]:
        """The turn for a state of these types, and the types of the state after it and of what it collects."""
        ctx = self.ctx
        self.params = {}
        values = {name: self.inside(v) for name, v in self.outside.items()}
        number = relax.Var("turn", TensorStructInfo([], "int64"))
        state = [relax.Var("state", info) for info in infos]
        sizes = relax.Var("sizes", ShapeStructInfo(list(self.fresh.values())))
        with ctx.builder.aside() as builder:
            inner = Context(builder, ctx.opset, ctx.scope)
            name = builder.get_unique_name("turn")
            with builder.function(name, [number, *state, *self.params, sizes], private=True):
                with ctx.scope.within(values):
                    going, after, parts = self.turn(inner, number, list(state))
                going = inner.const(True, "bool") if going is None else _scalar(inner, going)
                made = [*_tensors(inner, after, "a loop"), *_tensors(inner, parts, "a loop")]
                made = [inner.emit(m) for m in made]
                result = builder.emit(Tuple([going, *made]))
                var = builder.emit_func_output(result)
        return var, [m.struct_info for m in made]

    def settle(self) -> tuple[relax.GlobalVar, list[TensorStructInfo], list[TensorStructInfo]]:
        """The function with types of the state that hold for every turn."""
        infos = [self.type(s) for s in self.state]
        changing: set[Var] = set()
        for _ in range(_ATTEMPTS):
            var, made = self.function(infos)
            after = made[: len(infos)]
            wider = [_wider(a, b, changing) for a, b in zip(infos, after, strict=True)]
            if all(a is b for a, b in zip(infos, wider)):
                return var, infos, made
            infos = wider
        raise OpAttributeInvalid("the types of a loop's state do not settle")

    def run(self, limit: Expr, going: Expr, count: PrimExpr | None = None) -> tuple[list[Expr], list[Expr]]:
        """The state after the last turn, and what was collected; ``count`` is the number of turns, if known."""
        ctx = self.ctx
        var, infos, made = self.settle()
        collected = made[len(infos) :]
        known = set(self.back)
        captured = Tuple([*self.params.values(), ShapeExpr(list(self.symbols))])
        closure = ctx.builder.emit(make_closure(var, captured))
        templates = []
        for info in collected:
            dims = [0 if _new(d, known) else substitute(d, self.back) for d in _dims(info)]
            templates.append(ctx.emit(op.zeros([0, *dims], info.dtype)))
        types = [TensorStructInfo(dtype=i.dtype, ndim=i.ndim) for i in infos]
        types += [TensorStructInfo(dtype=i.dtype, ndim=i.ndim + 1) for i in collected]
        call = call_pure_packed(
            "vm.builtin.loop", closure, limit, going, Tuple(self.state), Tuple(templates),
            sinfo_args=TupleStructInfo(types),
        )  # fmt: skip
        whole = ctx.builder.emit(call)
        turns = Var("turns", "int64") if count is None else count
        results: list[Expr] = []
        for k, info in enumerate([*infos, *collected]):
            dims = [Var("n", "int64") if _new(d, known) else substitute(d, self.back) for d in _dims(info)]
            if k >= len(infos):
                dims = [turns, *dims]
            results.append(ctx.builder.match_cast(ctx.builder.emit(whole[k]), TensorStructInfo(dims, info.dtype)))
        return results[: len(infos)], results[len(infos) :]


def _dims(info: TensorStructInfo) -> list[PrimExpr]:
    dims = info.dims()
    if dims is None:
        raise OpAttributeInvalid("a loop needs state of known rank")
    return list(dims)


def _new(dim: PrimExpr, known: set[Var]) -> bool:
    """Whether a dimension is not made of those around the loop alone."""
    return any(v not in known for v in tir_vars_in_struct_info(ShapeStructInfo([dim])))


def _wider(before: TensorStructInfo, after: TensorStructInfo, changing: set[Var]) -> TensorStructInfo:
    """A type that both are of; ``before`` itself if ``after`` is of it."""
    if before.dtype != after.dtype or before.ndim != after.ndim:
        raise OpAttributeInvalid(f"a loop turns its state of {before} into {after}")
    dims: list[PrimExpr] = []
    same = True
    for a, b in zip(_dims(before), _dims(after), strict=True):
        if a in changing or prove_equal(a, b):
            dims.append(a)
            continue
        same = False
        var = Var("k", "int64")
        changing.add(var)
        dims.append(var)
    return before if same else TensorStructInfo(dims, before.dtype)


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
    native = _Native(ctx, turn, state, ctx.scope.outside(body))
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
        native = _Native(ctx, turn, state, {**ctx.scope.outside(body), **scanned})
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
