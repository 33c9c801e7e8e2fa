"""CombineParallelMatmul: several products with one input become one product and slices of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.transform import Pass
from ..op.binary import add
from ..op.linear_algebra import matmul
from ..op.manipulate import concat, split
from ..relax.analysis.variables import udchain
from ..relax.dpl.rewrite import direct_uses_deep
from ..relax.expr import Call, DataflowBlock, Expr, Function, TupleGetItem, Var, VarBinding
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int, prove_equal_shapes
from ..relax.struct_info import TensorStructInfo
from .base import as_module_pass, map_relax_functions

__all__ = ["CombineParallelMatmul"]

#: ``check(input, weights, biases, bindings)`` decides whether to combine.
Check = Callable[[Var, Sequence[Var], Sequence[Var], Mapping[Var, Expr]], bool]

_ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.silu")


class _Branch:
    """One product with the bias and the activation that follow it."""

    def __init__(self, product: VarBinding) -> None:
        self.product = product
        self.weight = product.value.args[1]
        self.bias: Any = None
        self.activation: str | None = None
        self.end = product.var


def _dims(expr: Any) -> list[Any] | None:
    info = expr.struct_info_
    dims = info.dims() if isinstance(info, TensorStructInfo) else None
    return None if dims is None else list(dims)


def _follow(branch: _Branch, users: Mapping[Var, Sequence[Var]], values: Mapping[Var, Any]) -> None:
    """Extend a branch over a bias of rank one and an activation, while nothing else uses the values between."""
    for step in ("bias", "activation"):
        after = users.get(branch.end, ())
        value = values.get(after[0]) if len(after) == 1 else None
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return
        if step == "bias" and value.op.name == "relax.add" and value.args[0] is branch.end:
            info = value.args[1].struct_info_
            if isinstance(info, TensorStructInfo) and info.ndim > 0 and _adds_to_last(branch, info):
                branch.bias, branch.end = value.args[1], after[0]
        elif step == "activation" and value.op.name in _ACTIVATIONS:
            branch.activation, branch.end = value.op.name, after[0]


def _adds_to_last(branch: _Branch, info: TensorStructInfo) -> bool:
    """Whether a bias holds one value for each column of the product and none for its rows."""
    dims, columns = info.dims(), (_dims(branch.weight) or [None])[-1]
    if dims is None or columns is None or not prove_equal_shapes([dims[-1]], [columns]):
        return False
    return all(const_int(d) == 1 for d in dims[:-1])


def _groups(block: DataflowBlock) -> list[list[_Branch]]:
    """Branches that may be combined: same input, weights alike up to their last dimension, same continuation."""
    users, values = udchain(block), {b.var: b.value for b in block.bindings}
    found: dict[Any, list[_Branch]] = {}
    for binding in block.bindings:
        value = binding.value
        if not isinstance(binding, VarBinding) or not isinstance(value, Call) or not isinstance(value.op, Op):
            continue
        if value.op.name != "relax.matmul":
            continue
        shape = _dims(value.args[1])
        if not isinstance(value.args[0], Var) or shape is None or const_int(shape[-1]) is None:
            continue
        branch = _Branch(binding)
        _follow(branch, users, values)
        key = (value.args[0], len(shape), _rank(branch.bias), branch.activation, value.attrs.out_dtype)
        found.setdefault(key, []).append(branch)
    out: list[list[_Branch]] = []
    for branches in found.values():
        alike: list[list[_Branch]] = []
        for branch in branches:
            shape = _dims(branch.weight) or []
            for group in alike:
                if prove_equal_shapes((_dims(group[0].weight) or [])[:-1], shape[:-1]):
                    group.append(branch)
                    break
            else:
                alike.append([branch])
        out += [g for g in alike if len(g) > 1]
    return out


def _rank(bias: Any) -> int:
    return 0 if bias is None else int(bias.struct_info.ndim)


class _Combiner(PyExprMutator):
    def __init__(self, check: Check | None) -> None:
        super().__init__()
        self.check = check

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        block = super().visit_dataflow_block_(block)
        for group in _groups(block):
            block = self._combine(block, group)
        return block

    def _combine(self, block: DataflowBlock, group: list[_Branch]) -> DataflowBlock:
        values = {b.var: b.value for b in block.bindings}
        source = group[0].product.value.args[0]
        biases = [b.bias for b in group if b.bias is not None]
        if self.check is not None and not self.check(source, [b.weight for b in group], biases, values):
            return block
        if not _available(block, group):
            return block
        replaced = self._replacements(source, group)
        self.builder_.begin_dataflow_block()
        pending = {b.var: b for b in block.bindings}
        for binding in block.bindings:
            self._place(binding, pending, replaced)
        made: Any = self.builder_.end_block()
        return made  # type: ignore[no-any-return]

    def _place(self, first: Any, pending: dict[Var, Any], replaced: Mapping[Var, Any]) -> None:
        stack = [first]
        while stack:
            binding = stack[-1]
            if binding.var not in pending:
                stack.pop()
                continue
            value = replaced.get(binding.var, binding.value)
            needed = [v for v in direct_uses_deep(value) if v in pending and v is not binding.var]
            if needed:
                stack.extend(pending[v] for v in reversed(needed))
                continue
            stack.pop()
            del pending[binding.var]
            if binding.var in replaced:
                self.reemit_binding(binding, self.builder_.normalize(value))
            else:
                self.builder_.emit_normalized(binding)

    @staticmethod
    def _replacements(source: Any, group: list[_Branch]) -> dict[Var, Any]:
        ndim = len(_dims(group[0].weight) or [])
        weights = concat([b.weight for b in group], axis=ndim - 1)
        whole: Any = matmul(source, weights, group[0].product.var.struct_info.dtype)
        if group[0].bias is not None:
            whole = add(whole, concat([b.bias for b in group], axis=group[0].bias.struct_info.ndim - 1))
        if group[0].activation is not None:
            whole = Call(Op.get(group[0].activation), [whole])
        sizes = [const_int((_dims(b.weight) or [0])[-1]) or 0 for b in group]
        axis = max(ndim, len(_dims(source) or [0])) - 1
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        parts = split(whole, ends[:-1], axis)
        return {branch.end: TupleGetItem(parts, i) for i, branch in enumerate(group)}


def _available(block: DataflowBlock, group: list[_Branch]) -> bool:
    """Whether no weight or bias depends on one of the products."""
    ends = {b.product.var for b in group}
    tainted = set(ends)
    for binding in block.bindings:
        if any(v in tainted for v in direct_uses_deep(binding.value)):
            tainted.add(binding.var)
    return not any(v in tainted for b in group for v in (b.weight, b.bias))


def CombineParallelMatmul(check: Check | None = None) -> Pass:  # noqa: N802  (public name of the pass)
    """Multiply one input with several weights at once.

    ::

        lv0 = R.matmul(x, w0)            lv = R.concat((w0, w1), axis=1)
        lv1 = R.matmul(x, w1)     ->     lv1 = R.matmul(x, lv)
                                         lv2 = R.split(lv1, indices_or_sections=[640], axis=2)
                                         lv0 = lv2[0]; ...

    Biases and activations (relu, gelu, silu) that follow every product alike are combined too.
    ``check(input, weights, biases, bindings)`` may refuse.
    """

    def run(mod: IRModule) -> IRModule:
        from ..relax.analysis.cleanup import remove_all_unused

        def combine(_: Any, func: Function) -> Function:
            new: Function = _Combiner(check).visit_expr(func)
            return func if new is func else remove_all_unused(new)

        return map_relax_functions(mod, combine)

    return as_module_pass(run, "CombineParallelMatmul")

