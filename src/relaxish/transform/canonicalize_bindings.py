"""CanonicalizeBindings: copies, redundant casts and projections of known tuples disappear."""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..ir.structural import structural_equal
from ..ir.transform import Pass
from ..relax.analysis.variables import direct_uses
from ..relax.expr import (
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from ..relax.expr_functor import PyExprMutator
from .base import as_module_pass, map_relax_functions

__all__ = ["CanonicalizeBindings", "canonicalize_function"]


def _same_info(lhs: Any, rhs: Any) -> bool:
    return lhs is rhs or (lhs is not None and rhs is not None and structural_equal(lhs, rhs))


class _Plan:
    """Decides which variables are names for others."""

    def __init__(self) -> None:
        self.values: dict[Var, Any] = {}
        self.alias: dict[Var, Any] = {}
        self.home: dict[Var, DataflowBlock | None] = {}
        self.escaped: set[Var] = set()

    def resolve(self, value: Any) -> Any:
        while isinstance(value, Var) and value in self.alias:
            value = self.alias[value]
        return value

    def collect(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            dataflow = block if isinstance(block, DataflowBlock) else None
            for binding in block.bindings:
                self.home[binding.var] = dataflow
                self._binding(binding, dataflow)
        self._note_escape(seq.body, None)

    def _note_escape(self, value: Any, place: DataflowBlock | None) -> None:
        for used in direct_uses(value):
            if self.home.get(used) is not place or place is None:
                self.escaped.add(used)

    def _binding(self, binding: Any, block: DataflowBlock | None) -> None:
        value = binding.value
        self._note_escape(value, block)
        if isinstance(value, If):
            self.collect(value.true_branch)
            self.collect(value.false_branch)
        elif isinstance(value, Function):
            self.collect(value.body)
        canonical = self._canonical(binding)
        self.values[binding.var] = value
        if canonical is not None:
            self.alias[binding.var] = canonical

    def _canonical(self, binding: Any) -> Any:
        """What the bound variable is another name for, or None."""
        value = binding.value
        if isinstance(binding, MatchCast):
            source = self.resolve(value)
            return source if isinstance(source, Var) and _same_info(binding.struct_info, source.struct_info_) else None
        if isinstance(value, (Var, Constant)):
            target = self.resolve(value)
            return target if _same_info(binding.var.struct_info_, target.struct_info_) else None
        if isinstance(value, TupleGetItem):
            made = self.resolve(value.tuple_value)
            known = self.values.get(made) if isinstance(made, Var) else made
            if isinstance(known, Tuple):
                item = self.resolve(known.fields[value.index])
                if is_leaf(item) and _same_info(binding.var.struct_info_, item.struct_info_):
                    return item
        if isinstance(value, Tuple) and value.fields:
            return self._whole_tuple(value)
        return None

    def _whole_tuple(self, value: Tuple) -> Any:
        """``(t[0], t[1])`` of a pair ``t`` is ``t``."""
        source = None
        for index, item in enumerate(value.fields):
            item = self.resolve(item)
            got = self.values.get(item) if isinstance(item, Var) else None
            if not isinstance(got, TupleGetItem) or got.index != index:
                return None
            tuple_value = self.resolve(got.tuple_value)
            if source is None:
                source = tuple_value
            elif source is not tuple_value:
                return None
        info = getattr(source, "struct_info_", None)
        fields = getattr(info, "fields", ())
        return source if isinstance(source, Var) and len(fields) == len(value.fields) else None


class _Canonicalizer(PyExprMutator):
    def __init__(self, plan: _Plan, replaced: dict[Var, Any], outputs: dict[Var, Var]) -> None:
        super().__init__()
        self.plan = plan
        self.replaced = replaced
        self.outputs = outputs

    def visit_var_(self, op: Var) -> Any:
        new = self.replaced.get(op)
        if new is None:
            return super().visit_var_(op)
        return self.visit_expr(new) if isinstance(new, Var) else new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if binding.var in self.replaced:
            return
        output = self.outputs.get(binding.var)
        if output is not None and output is not binding.var:
            value = self.visit_expr(binding.value)
            made = Var(output.name_hint, value.struct_info_ or binding.var.struct_info_, output.span)
            self.var_remap_[binding.var] = made
            self.builder_.emit_normalized(VarBinding(made, value, binding.span))
            return
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        if binding.var not in self.replaced:
            super().visit_match_cast_(binding)


def _decide(plan: _Plan) -> tuple[dict[Var, Any], dict[Var, Var]]:
    """Which aliases to replace, and which dataflow variables take over the name of an output they were copied to."""
    replaced: dict[Var, Any] = {}
    outputs: dict[Var, Var] = {}
    for var in plan.alias:
        target = plan.resolve(var)
        if isinstance(target, DataflowVar) and not isinstance(var, DataflowVar):
            # The variable leaves its block: instead of copying, bind the value to an output variable.
            if plan.home.get(target) is plan.home.get(var):
                outputs.setdefault(target, var)
            else:
                continue
        if isinstance(var, Var) and not isinstance(var, DataflowVar) and isinstance(target, Constant):
            if plan.home.get(var) is not None:
                continue
        replaced[var] = target
    return replaced, outputs


def canonicalize_function(func: Function) -> Function:
    """The function without trivial bindings."""
    plan = _Plan()
    plan.collect(func.body)
    replaced, outputs = _decide(plan)
    if not replaced:
        return func
    made: Function = _Canonicalizer(plan, replaced, outputs).visit_expr(func)
    return made


def _run(mod: IRModule) -> IRModule:
    return map_relax_functions(mod, lambda _, func: canonicalize_function(func))


def CanonicalizeBindings() -> Pass:  # noqa: N802  (public name of the pass)
    """Remove bindings that only rename.

    ::

        y = x                       ->   (uses of y become uses of x)
        z = R.match_cast(x, same)   ->   (uses of z become uses of x)
        t = (a, b); c = t[0]        ->   (uses of c become uses of a)
    """
    return as_module_pass(_run, "CanonicalizeBindings")


