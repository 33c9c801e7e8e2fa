"""Loops and branches that the machine runs, for every frontend: what a turn needs of the graph around it is found here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .. import op, relax
from ..ir.expr import PrimExpr
from ..relax.analysis import tir_vars_in_struct_info
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import call_pure_packed, make_closure
from ..relax.expr import Constant, Expr, PrimValue, SeqExpr, ShapeExpr, Tuple
from ..relax.scalars import prove_equal
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import OpAttributeInvalid
from ..tir import Var
from ..tir.functor import substitute

__all__ = ["NativeLoop", "branch", "scalar"]

#: Changes of the types of a loop's state before they are given up on; a dimension that changes is unknown from then on.
_ATTEMPTS = 16

#: A turn of a loop: from a builder, its number, the state, and the values around it by name, to whether to go on (None:
#: yes), the state and what is collected; all of them are tensors.
Turn = Callable[
    [BlockBuilder, Expr, list[Expr], Mapping[str, Expr]], tuple[Expr | None, Sequence[Expr], Sequence[Expr]]
]


def bound(builder: BlockBuilder, x: Expr) -> Expr:
    """A value whose type is known."""
    return x if getattr(x, "struct_info_", None) is not None else builder.emit(x)


def scalar(builder: BlockBuilder, x: Expr) -> Expr:
    """A tensor of one element without dimensions."""
    x = bound(builder, x)
    info = x.struct_info
    return builder.emit(op.reshape(x, [])) if isinstance(info, TensorStructInfo) and info.ndim else x


def branch(builder: BlockBuilder, make: Callable[[], Sequence[Expr]]) -> SeqExpr:
    """A branch of an ``If``: all that ``make`` emits, and a tuple of its results."""
    builder.begin_inner_scope()
    builder.begin_binding_block()
    try:
        result = builder.emit(Tuple(list(make())))
    finally:
        block = builder.end_block()
        builder.end_scope()
    return SeqExpr([block], result)


def _symbols(values: Iterable[Expr]) -> list[Var]:
    """The symbolic dimensions in values of the graph."""
    found: dict[Var, None] = {}
    for value in values:
        if isinstance(value, Tuple):
            found |= dict.fromkeys(_symbols(value.fields))
        elif not isinstance(value, Constant):
            found |= dict.fromkeys(tir_vars_in_struct_info(value.struct_info))
    return list(found)


class NativeLoop:
    """A loop that the machine runs: the turn is a function of the module.

    The function has the number of the turn, the state, the tensors around the loop and the symbolic dimensions as
    parameters; the last two are bound once by a closure. ``fresh`` are the symbolic dimensions inside of the function, by
    those around it.
    """

    def __init__(self, builder: BlockBuilder, turn: Turn, state: Sequence[Expr], outside: Mapping[str, Expr]) -> None:
        self.builder, self.turn = builder, turn
        self.state = [bound(builder, s) for s in state]
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
        self.params = {}
        values = {name: self.inside(v) for name, v in self.outside.items()}
        number = relax.Var("turn", TensorStructInfo([], "int64"))
        state = [relax.Var("state", info) for info in infos]
        sizes = relax.Var("sizes", ShapeStructInfo(list(self.fresh.values())))
        with self.builder.aside() as builder:
            name = builder.get_unique_name("turn")
            with builder.function(name, [number, *state, *self.params, sizes], private=True):
                going, after, parts = self.turn(builder, number, list(state), values)
                going = relax.const(True, "bool") if going is None else scalar(builder, going)
                made = [bound(builder, m) for m in (*after, *parts)]
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
        builder = self.builder
        var, infos, made = self.settle()
        collected = made[len(infos) :]
        known = set(self.back)
        captured = Tuple([*self.params.values(), ShapeExpr(list(self.symbols))])
        closure = builder.emit(make_closure(var, captured))
        templates = []
        for info in collected:
            dims = [0 if _new(d, known) else substitute(d, self.back) for d in _dims(info)]
            templates.append(builder.emit(op.zeros([0, *dims], info.dtype)))
        types = [TensorStructInfo(dtype=i.dtype, ndim=i.ndim) for i in infos]
        types += [TensorStructInfo(dtype=i.dtype, ndim=i.ndim + 1) for i in collected]
        call = call_pure_packed(
            "vm.builtin.loop", closure, limit, going, Tuple(self.state), Tuple(templates),
            sinfo_args=TupleStructInfo(types),
        )  # fmt: skip
        whole = builder.emit(call)
        turns = Var("turns", "int64") if count is None else count
        results: list[Expr] = []
        for k, info in enumerate([*infos, *collected]):
            dims = [Var("n", "int64") if _new(d, known) else substitute(d, self.back) for d in _dims(info)]
            if k >= len(infos):
                dims = [turns, *dims]
            results.append(builder.match_cast(builder.emit(whole[k]), TensorStructInfo(dims, info.dtype)))
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
