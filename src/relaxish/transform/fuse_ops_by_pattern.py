"""FuseOpsByPattern: bindings that match a pattern become functions marked with the pattern's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.module import IRModule
from ..relax.analysis.variables import udchain
from ..relax.dpl.matcher import extract_matched_expr
from ..relax.dpl.pattern import CallPattern, DFPattern, TupleGetItemPattern
from ..relax.expr import Call, DataflowBlock, Expr, Function, Var, VarBinding
from ..relax.expr_functor import PyExprVisitor
from ..support.errors import InternalError
from ..support.sequences import of_kind
from .composite_annotator import annotate_composites
from .graph_partition import Group
from .grouped_functions import fuse_by_groups
from ..ir.declared_pass import ModuleRewrite

__all__ = ["FuseOpsByPattern", "FusionPattern", "PatternCheckContext"]


@dataclass(frozen=True)
class PatternCheckContext:
    """Context of a pattern's check: the match and its surroundings.

    ``matched_expr`` is the last matched value, ``annotated_expr`` the values of the annotated sub-patterns by name,
    ``matched_bindings`` the bound variables inside the match, ``var_usages`` the variables using each variable of the
    dataflow block, ``value_to_bound_var`` the variable each value is bound to.
    """

    matched_expr: Any
    annotated_expr: Mapping[str, Any]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var]]
    value_to_bound_var: Mapping[Expr, Var]


@dataclass(frozen=True)
class FusionPattern:
    """A pattern with its name, such as ``"cutlass.matmul_bias"``.

    ``check`` decides on a match; ``attrs_getter`` makes attributes of the function from the annotated expressions.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.annotation_patterns is None:
            object.__setattr__(self, "annotation_patterns", {})


class _Partitioner(PyExprVisitor):
    """Groups of variables in one function by one pattern."""

    def __init__(self, pattern: FusionPattern) -> None:
        self.pattern = pattern
        self.groups: dict[Any, Group] = {}
        self.members: dict[Group, list[Var]] = {}
        self.values: dict[Var, Any] = {}
        self.variables: dict[Any, Var] = {}
        self.usages: dict[Var, list[Var]] = {}

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        self.usages = udchain(block)
        super().visit_dataflow_block_(block)
        self.usages = {}

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        self.values[binding.var] = value
        self.variables[value] = binding.var
        group = self.groups[binding.var] = Group(binding.var, 0)
        self.members[group] = [binding.var]
        if isinstance(value, Call):
            self._match(binding)
        self.visit_expr(value)

    def _match(self, binding: VarBinding) -> None:
        matches = extract_matched_expr(self.pattern.pattern, binding.value, self.values)
        if matches is None:
            return
        context = self._context(binding.value, matches)
        if self.pattern.check is not None and not self.pattern.check(context):
            return
        inner = [var for var in context.matched_bindings if var is not binding.var]
        earlier = {self.groups[var].find() for var in inner if self.groups[var].find().num_nodes > 1}
        if any(not set(self.members[g]) <= set(context.matched_bindings) for g in earlier):
            return  # an earlier match holds more than this one, so it stays
        group = self.groups[binding.var].find()
        for var in inner:
            other = self.groups[var].find()
            if other is not group:
                other.parent = group
                group.num_nodes += other.num_nodes
                self.members[group] += self.members.pop(other)
        if self.pattern.attrs_getter is not None:
            group.attrs.update(self.pattern.attrs_getter(context.annotated_expr))
        group.attrs["Composite"] = self.pattern.name

    def _context(self, value: Expr, matches: Mapping[DFPattern, Any]) -> PatternCheckContext:
        bindings = {
            self.variables[match]: match
            for pattern, match in matches.items()
            if isinstance(pattern, (CallPattern, TupleGetItemPattern)) and match in self.variables
        }
        annotated = {name: matches[p] for name, p in self.pattern.annotation_patterns.items() if p in matches}
        return PatternCheckContext(value, annotated, bindings, self.usages, self.variables)


def _as_pattern(pattern: Any) -> FusionPattern:
    match pattern:
        case FusionPattern():
            return pattern
        case tuple():
            return FusionPattern(*pattern)
    raise ValueError(f"Invalid pattern: {pattern}")


def _functions(mod: IRModule, names: Sequence[str]) -> list[Function]:
    if names:
        found = [mod[name] for name in names]
        if not all(isinstance(func, Function) for func in found):
            raise InternalError("Entry function must be a relax function")
        return found
    return [
        func
        for func in of_kind(mod.functions.values(), Function)
        if not any(func.attrs.get(a) for a in ("Codegen", "Composite", "Primitive"))
    ]


class FuseOpsByPattern(ModuleRewrite):
    """Group bindings that match one of the patterns; earlier patterns go first.

    ::

        lv = R.nn.conv2d(x, w)      ->    gv = cls.fused_relax_nn_conv2d_relax_nn_relu(x, w)
        gv = R.nn.relu(lv)

    The new function has the attributes ``Composite`` (the pattern's name) and ``Primitive``.  Constants stay inside
    with ``bind_constants``, else they become arguments.  With ``annotate_codegen`` each such function is wrapped in one
    with the attribute ``Codegen`` (the pattern's name up to the dot), for :func:`RunCodegen`.

    Raises ValueError for what is neither a FusionPattern nor a tuple of its fields.
    """

    patterns: Sequence[FusionPattern | tuple[Any, ...]]
    bind_constants: bool = True
    annotate_codegen: bool = False
    entry_functions: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._settle(patterns=[_as_pattern(p) for p in self.patterns])

    def rewrite(self, mod: IRModule) -> IRModule:
        entries = list(self.entry_functions or ())
        for pattern in of_kind(self.patterns, FusionPattern):
            groups: dict[Any, Group] = {}
            for func in _functions(mod, entries):
                partitioner = _Partitioner(pattern)
                partitioner.visit_expr(func)
                groups.update(partitioner.groups)
            mod = fuse_by_groups(mod, groups, lift_constants=not self.bind_constants, only=set(entries) or None)
        return annotate_composites(mod) if self.annotate_codegen else mod
