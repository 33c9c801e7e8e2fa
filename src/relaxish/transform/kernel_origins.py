"""Operators from which tensor programs were made, so that a build can choose layouts for a graph of already fused
kernels.

Pipelines without a target (``zero``, ``default_build``, or LegalizeOps, FuseOps and FuseTIR by hand) make loops of operators
in the layout of the model. Blocked layouts, packed weights and kernels of whole patterns are chosen on operators. Passes
that make loops therefore remember what each program computes, beside the program: nothing of it is printed, compared or
saved. :func:`KernelsToOperators` takes a graph of such programs back to operators::

    lv = R.call_tir(cls.fused_conv2d_relu, (x, w), ...)     ->      lv = R.nn.conv2d(x, w)
                                                                    lv1 = R.nn.relu(lv)

A program is recognised by the very statements that the pass made. What a schedule, a user or a file changed is another
program, and stays.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..ir.declared_pass import ModuleRewrite
from ..ir.expr import GlobalVar
from ..ir.functor import post_order_visit
from ..ir.module import IRModule, functions_of
from ..ir.node import Node
from ..ir.structural import structural_equal
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.binding_tools import substitute_params
from ..relax.canonicalize import canonicalize_bindings
from ..relax.copying import copy_with_new_vars
from ..relax.expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    Function,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    is_call_of,
)
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import prim_vars
from ..relax.struct_info import ShapeStructInfo, TensorStructInfo
from ..tir import PrimFunc
from ..tir.stmt import Stmt
from .dead_code_elimination import DeadCodeElimination

__all__ = [
    "KernelsToOperators",
    "has_origin",
    "has_origins",
    "remember_group",
    "remember_lowered",
    "remember_operator",
    "unlowered",
    "unrecorded",
]


@dataclass(frozen=True)
class _Operator:
    """An operator's call; of its leaves (arguments, and what tuples among them hold) those at ``places`` are the program's
    arguments, the others literals."""

    call: Call
    places: tuple[int | None, ...]

    def on(self, fields: tuple[Expr, ...]) -> Call:
        """The operator on the arguments of a call of the program."""
        places = iter(self.places)

        def given(arg: Expr) -> Expr:
            if isinstance(arg, Tuple):
                return Tuple([given(f) for f in arg.fields])
            place = next(places)
            return arg if place is None else fields[place]

        return Call(self.call.op, [given(arg) for arg in self.call.args], self.call.attrs)


@dataclass(frozen=True)
class _Group:
    """A function of bindings that FuseTIR made one program of, and the programs that it calls."""

    function: Function
    programs: Mapping[GlobalVar, PrimFunc]


@dataclass(frozen=True)
class _Program:
    """The rest of a function whose body is remembered: the same statements over other parameters are another program."""

    origin: _Operator | _Group
    params: tuple[Node, ...]
    buffers: tuple[Node, ...]


_PROGRAMS: weakref.WeakKeyDictionary[Stmt, _Program] = weakref.WeakKeyDictionary()
_LOWERED: weakref.WeakKeyDictionary[Function, tuple[IRModule, dict[str, Node]]] = weakref.WeakKeyDictionary()
_RECORDING: ContextVar[bool] = ContextVar("recording", default=True)


@contextmanager
def unrecorded() -> Iterator[None]:
    """While it lasts, nothing is remembered: kernels of a target's own pipeline are as they shall be."""
    token = _RECORDING.set(False)
    try:
        yield
    finally:
        _RECORDING.reset(token)


# ---- remembering


def remember_operator(func: PrimFunc, made: Call, call: Call) -> None:
    """``made``, a ``call_tir`` of ``func``, computes the operator ``call``.

    Nothing is remembered where the program reads anything else than the operator's tensors and literals.
    """
    fields = made.args[1].fields if isinstance(made.args[1], Tuple) else None
    if fields is None or not _RECORDING.get() or func.body in _PROGRAMS:
        return
    places: list[int | None] = []
    for leaf in _leaves(call):
        place = next((i for i, field in enumerate(fields) if field is leaf), None)
        if place is None and not _is_literal(leaf):
            return
        places.append(place)
    if {p for p in places if p is not None} == set(range(len(fields))):
        # Without the tensors: weights shall not live as long as a program that reads them.
        template = _Operator(call, tuple(places)).on(tuple(ShapeExpr([]) for _ in fields))
        _remember(func, _Operator(template, tuple(places)))


def remember_group(func: PrimFunc, function: Function, mod: IRModule) -> None:
    """``func`` computes the bindings of ``function``, which calls programs of ``mod``."""
    tensors = list(function.params)
    if tensors and isinstance(tensors[-1].struct_info_, ShapeStructInfo):
        tensors.pop()  # symbolic sizes
    if not tensors or not _RECORDING.get() or not all(isinstance(p.struct_info_, TensorStructInfo) for p in tensors):
        return
    programs: dict[GlobalVar, PrimFunc] = {}

    def look(node: Node) -> None:
        program = mod.functions.get(node) if isinstance(node, GlobalVar) else None
        if isinstance(program, PrimFunc) and isinstance(node, GlobalVar):
            programs[node] = program

    post_order_visit(function, look)
    _remember(func, _Group(function, programs))


def _remember(func: PrimFunc, origin: _Operator | _Group) -> None:
    _PROGRAMS[func.body] = _Program(origin, tuple(func.params), tuple(func.buffer_map.values()))


def _origin(func: object) -> _Operator | _Group | None:
    """What a program was made from; None for programs of users, of devices, and those that carry a schedule."""
    if not isinstance(func, PrimFunc):
        return None
    known, attrs = _PROGRAMS.get(func.body), func.attrs or {}
    if known is None or "target" in attrs or attrs.get("tir.is_scheduled"):
        return None
    same = len(known.params) == len(func.params) and len(known.buffers) == len(func.buffer_map)
    same = same and all(a is b for a, b in zip(known.params, func.params, strict=True))
    return known.origin if same and all(a is b for a, b in zip(known.buffers, func.buffer_map.values())) else None


def _leaves(call: Call) -> Iterator[Expr]:
    waiting = list(reversed(call.args))
    while waiting:
        arg = waiting.pop()
        if isinstance(arg, Tuple):
            waiting.extend(reversed(arg.fields))
        else:
            yield arg


def _is_literal(leaf: Expr) -> bool:
    """Whether an argument is the same in every call of the program."""
    match leaf:
        case Constant():
            return leaf.data.numpy().ndim == 0
        case ShapeExpr():
            return not any(prim_vars(v) for v in leaf.values)
        case PrimValue():
            return not prim_vars(leaf.value)
    return isinstance(leaf, StringImm | DataTypeImm)


# ---- modules lowered to allocations and calls


def remember_lowered(made: IRModule, source: IRModule) -> IRModule:
    """``made``, which is given back, is ``source`` as the virtual machine runs it."""
    functions: dict[str, Node] = {var.name_hint: func for var, func in made.functions.items()}
    # The function that stands for the module must be one that only the module has.
    ours = [f for _, f in functions_of(made, Function) if not any(f is g for g in source.functions.values())]
    if ours and _RECORDING.get() and made.attrs is not None and "external_mods" not in made.attrs:
        _LOWERED[ours[0]] = source.clone(), functions
    return made


def unlowered(mod: IRModule) -> IRModule:
    """The module that a pipeline lowered to ``mod``, if it is as that pipeline left it; else ``mod``."""
    for _, func in functions_of(mod, Function):
        source, functions = _LOWERED.get(func, (None, {}))
        same = len(functions) == len(mod.functions) and all(
            functions.get(var.name_hint) is other for var, other in mod.functions.items()
        )
        if source is not None and same:
            return source.clone()
    return mod


# ---- back to operators


class _Raiser(PyExprMutator):
    """Calls of remembered programs become the operators, or the bindings, that these were made from."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.programs: Mapping[GlobalVar, PrimFunc] = dict(functions_of(mod, PrimFunc))
        # Inside of a group, whose programs are not those of the module.
        self.in_group = False

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir") or not isinstance(call.args[1], Tuple):
            return call
        func = self.programs.get(call.args[0])
        origin = _origin(func)
        if isinstance(origin, _Operator):
            made = self.builder_.normalize(origin.on(tuple(call.args[1].fields)))
            if structural_equal(made.struct_info_, call.sinfo_args[0]):
                return made
        elif isinstance(origin, _Group) and self.builder_.in_block():
            args = [*call.args[1].fields, *call.args[2:]]
            if len(args) == len(origin.function.params):
                return self._of_group(origin, args)
        if func is None or not self.in_group:
            return call
        name = self.builder_.add_func(func, call.args[0].name_hint)
        return Call(call.op, (name, *call.args[1:]), call.attrs, call.sinfo_args, call.span)

    def _of_group(self, group: _Group, args: list[Expr]) -> Expr:
        """The result of a group, whose bindings are made here."""
        func = copy_with_new_vars(group.function)
        body = substitute_params(func, dict(zip(func.params, args, strict=True))).body
        before = self.programs, self.in_group
        self.programs, self.in_group = group.programs, True
        for binding in (binding for block in body.blocks for binding in block.bindings):
            self.var_remap_[binding.var] = self.builder_.emit(self.visit_expr(binding.value))
        made: Expr = self.visit_expr(body.body)
        self.programs, self.in_group = before
        return made


def has_origin(func: PrimFunc) -> bool:
    """Whether a program can be taken back to operators."""
    return _origin(func) is not None


def has_origins(mod: IRModule) -> bool:
    """Whether there is any program that can be taken back to operators."""
    return any(_origin(func) is not None for func in mod.functions.values())


class KernelsToOperators(ModuleRewrite):
    """Take a graph of tensor programs back to the operators that they were made from; see the module."""

    def rewrite(self, mod: IRModule) -> IRModule:
        if not has_origins(mod):
            return mod
        raiser = _Raiser(mod)
        made: dict[GlobalVar, Function] = {}
        for var, func in functions_of(mod, Function):
            raised = raiser.visit_expr(func)
            if raised is not func:
                made[var] = remove_all_unused(canonicalize_bindings(raised))
        if not made:
            return mod
        out = raiser.builder_.get().clone()
        for var, func in made.items():
            out.update_func(var, func)
        cleaned: IRModule = DeadCodeElimination()(out)
        return cleaned
