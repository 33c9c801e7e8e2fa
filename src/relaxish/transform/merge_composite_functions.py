"""MergeCompositeFunctions: neighbouring composites of one code generator become one function for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..relax.copying import copy_with_new_vars
from ..relax.expr import Binding, Call, Expr, Function, Tuple, Var
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from .composite_annotator import codegen_name
from .dead_code_elimination import eliminate
from .graph_partition import Group
from .grouped_functions import fuse_by_groups
from .to_non_dataflow import to_non_dataflow
from ..ir.declared_pass import ModuleRewrite

__all__ = ["MergeCompositeFunctions"]


class _Groups(PyExprVisitor):
    """Merges each composite call into a producer's group of the same code generator, unless that made a cycle."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.groups: dict[Any, Group] = {}
        self.needs: dict[Group, set[Group]] = {}

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.groups[param] = Group(param, 0)
        self.visit_expr(op.body)

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(value, Call):
            group = self._group_of_call(value, binding.var)
            operands: Any = value.args
        else:
            from ..relax.analysis.variables import direct_uses

            group = Group(binding.var, 0)
            operands = direct_uses(value)
        self.groups[binding.var] = group
        self._note_needs(group.find(), operands)

    def _codegen(self, callee: Expr) -> str | None:
        if not isinstance(callee, GlobalVar) or callee not in self.mod:
            return None
        func = self.mod[callee]
        composite = func.attrs.get("Composite") if func.attrs is not None else None
        return None if composite is None else codegen_name(composite)

    def _leaf_groups(self, args: Any) -> list[Group]:
        out: list[Group] = []
        for arg in args:
            match arg:
                case Tuple():
                    out += self._leaf_groups(arg.fields)
                case Var() if arg in self.groups:
                    out.append(self.groups[arg].find())
        return out

    def _group_of_call(self, call: Call, var: Var) -> Group:
        codegen = self._codegen(call.op)
        if codegen is None:
            return Group(var, 0)
        parents = self._leaf_groups(a for a in call.args if not isinstance(a, Tuple))
        behind = {need for parent in self._leaf_groups(call.args) for need in self.needs.get(parent, ())}
        mergeable = [g for g in dict.fromkeys(parents) if g.attrs.get("Codegen") == codegen and g not in behind]
        if not mergeable:
            made = Group(var, 0)
            made.attrs["Codegen"] = codegen
            return made
        first = mergeable[0]
        first.num_nodes += 1
        for other in mergeable[1:]:
            self._merge(other.find(), first.find())
        return first

    def _merge(self, source: Group, target: Group) -> None:
        if source is target:
            return
        source.parent = target
        target.num_nodes += source.num_nodes
        self.needs.setdefault(target, set()).update(self.needs.pop(source, ()))
        for needed in self.needs.values():
            if source in needed:
                needed.discard(source)
                needed.add(target)

    def _note_needs(self, group: Group, operands: Sequence[Expr]) -> None:
        needed = self.needs.setdefault(group, set())
        for other in self._leaf_groups(operands):
            if other is not group:
                # Only groups of a code generator are ever asked for.
                if "Codegen" in other.attrs:
                    needed.add(other)
                needed |= self.needs.get(other, set())


class _Inliner(PyExprMutator):
    """Calls of composites become calls of local copies, one of each composite."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod
        self.local: dict[str, Var] = {}

    def visit_call_(self, op: Call) -> Expr:
        if isinstance(op.op, GlobalVar) and op.op in self.mod:
            func = self.mod[op.op]
            if isinstance(func, Function) and func.attrs.get("Composite"):
                local = self.local.get(op.op.name_hint)
                if local is None:
                    local = self.builder_.emit(
                        copy_with_new_vars(func.without_attr("global_symbol").without_attr("Primitive"))
                    )
                    self.local[op.op.name_hint] = local
                return Call(local, [self.visit_expr(a) for a in op.args])
        return super().visit_call_(op)


class MergeCompositeFunctions(ModuleRewrite):
    """Join composite functions (of FuseOpsByPattern) for the same code generator into larger ones.

    ::

        lv = cls.fused_conv2d_relu(x, w1)     ->    gv = cls.fused_conv2d_relu_conv2d_relu_dnnl(x, w1, w2)
        gv = cls.fused_conv2d_relu(lv, w2)

    The new function has the attribute ``Codegen`` and defines the composites locally.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        groups = _Groups(mod)
        groups.visit_expr(mod["main"])
        grouped = fuse_by_groups(
            mod, {v: g.find() for v, g in groups.groups.items()}, lift_constants=True, only={"main"}
        )
        out = grouped.clone()
        for var, func in functions_of(grouped, Function):
            if func.attrs.get("Codegen"):
                new = (
                    _Inliner(mod)
                    .visit_expr(to_non_dataflow(func))
                    .without_attr("Primitive")
                    .with_attr("global_symbol", var.name_hint)
                )
                out.update_func(var, new)
        return eliminate(out, ["main"])
