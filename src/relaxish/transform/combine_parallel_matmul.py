"""CombineParallelMatmul: several products with one input become one product and slices of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ..ir.expr import GlobalVar, PrimExpr
from ..ir.module import IRModule
from ..ir.op import Op
from ..op.binary import add
from ..op.linear_algebra import matmul
from ..op.manipulate import concat, split
from ..relax.analysis.cleanup import remove_all_unused
from ..relax.dpl.rewrite_mutator import direct_uses_deep
from ..relax.expr import BindingBlock, Call, DataflowBlock, Expr, Function, TupleGetItem, Var, is_call_of
from ..relax.expr_functor import PyExprMutator
from ..relax.scalars import const_int, prove_equal_shapes
from ..relax.struct_info import TensorStructInfo, tensor_dims
from .base import map_relax_functions
from ..ir.declared_pass import ModuleRewrite

__all__ = ["CombineParallelMatmul"]

#: ``check(input, weights, biases, bindings)`` decides whether to combine.
Check = Callable[[Var, Sequence[Var], Sequence[Var], Mapping[Var, Expr]], bool]

_ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")


@dataclass(frozen=True)
class _Kind:
    """How many products one input has, and what follows all of them alike."""

    count: int
    bias_ndim: int | None = None
    activation: str | None = None


class _Branch:
    """One product, with the bias and the activation that follow it where a kind asks for them."""

    def __init__(self, product: Var, call: Call, end: Var, bias: Any) -> None:
        self.product = product
        self.weight: Any = call.args[1]
        self.bias = bias
        self.end = end

    @property
    def width(self) -> PrimExpr:
        """The number of columns."""
        return _dims(self.weight)[-1]  # type: ignore[index]


def _dims(expr: Expr) -> list[Any] | None:
    info = expr.struct_info_
    dims = tensor_dims(info)
    return None if dims is None else list(dims)


class _Chains:
    """What is computed from products: biased and activated ones."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self.values: dict[Var, Any] = {b.var: b.value for b in bindings}
        self.products = {
            v: e for v, e in self.values.items() if is_call_of(e, "relax.matmul") and isinstance(e.args[0], Var)
        }

    def biased(self, var: Any) -> Expr | None:
        """The bias, if ``var`` is the sum of a product and a bias with a value for each column."""
        value: Any = self.values.get(var)
        if not is_call_of(value, "relax.add") or value.args[0] not in self.products:
            return None
        info = value.args[1].struct_info_
        columns = (_dims(self.products[value.args[0]].args[1]) or [None])[-1]
        if not isinstance(info, TensorStructInfo) or not info.dims() or columns is None:
            return None
        return value.args[1] if prove_equal_shapes([info.dims()[-1]], [columns]) else None  # type: ignore[index]

    def branches(self, kind: _Kind) -> dict[Var, list[_Branch]]:
        """For each input its products that go on as ``kind`` says."""
        found: dict[Var, list[_Branch]] = {}
        for var, value in self.values.items():
            end, bias = var, None
            if kind.activation is not None:
                if not is_call_of(value, kind.activation):
                    continue
                end = value.args[0]
            if kind.bias_ndim is not None:
                bias = self.biased(end)
                if bias is None or bias.struct_info.ndim != kind.bias_ndim:
                    continue
                end = self.values[end].args[0]
            if end in self.products:
                call = self.products[end]
                found.setdefault(call.args[0], []).append(_Branch(end, call, var, bias))
        return found


def _kinds(func: Function) -> list[_Kind]:
    """The kinds to combine, most products first.

    Bias and activation are combined along only where all products of an input have them alike: more products together
    are better than fewer together with what follows.
    """
    chains = _Chains([b for block in func.body.blocks for b in block.bindings])
    products: dict[Var, _Kind] = {lhs: _Kind(len(found)) for lhs, found in chains.branches(_Kind(0)).items()}
    if all(kind.count < 2 for kind in products.values()):
        return []
    biased = _with_biases(chains, None)
    active: dict[Var, _Kind] = {}
    for name in _ACTIVATIONS:
        for lhs, kind in _with_biases(chains, name).items():
            active.setdefault(lhs, kind)
    for name in _ACTIVATIONS:
        for lhs, found in chains.branches(_Kind(0, None, name)).items():
            active.setdefault(lhs, _Kind(len(found), None, name))
    for group in (biased, active):
        for lhs, kind in group.items():
            if lhs in products and products[lhs].count == kind.count:
                products[lhs] = kind
    kinds = dict.fromkeys(k for group in (products, active, biased) for k in group.values() if k.count > 1)
    return sorted(kinds, key=lambda kind: -kind.count)


def _with_biases(chains: _Chains, activation: str | None) -> dict[Var, _Kind]:
    """For each input how many products have a bias (and that activation); biases of several ranks count as none."""
    ranks: dict[Var, list[int]] = {}
    for var, value in chains.values.items():
        if activation is not None:
            if not is_call_of(value, activation):
                continue
            var = value.args[0]
        bias = chains.biased(var)
        if bias is not None:
            lhs = chains.products[chains.values[var].args[0]].args[0]
            ranks.setdefault(lhs, []).append(bias.struct_info.ndim)
    return {
        lhs: _Kind(len(found), found[0] if len(set(found)) == 1 else None, activation) for lhs, found in ranks.items()
    }


def _together(branches: list[_Branch]) -> list[list[_Branch]]:
    """Branches that may be one product: weights of one rank and equal batch sizes.

    At most one of them may have an unknown width, which then comes last.
    """
    by_rank: dict[int, list[_Branch]] = {}
    for branch in branches:
        by_rank.setdefault(len(_dims(branch.weight) or ()), []).append(branch)
    out = []
    for rank, group in by_rank.items():
        batches = [(_dims(b.weight) or [])[: max(rank - 2, 0)] for b in group]
        if any(not prove_equal_shapes(batches[0], batch) for batch in batches[1:]):
            continue
        static = [b for b in group if const_int(b.width) is not None]
        dynamic = [b for b in group if const_int(b.width) is None]
        group = [*static, *dynamic[:1]]
        if len(group) > 1 and len({b.product.struct_info.dtype for b in group}) == 1 and _biases_alike(group):
            out.append(group)
    return out


def _biases_alike(group: list[_Branch]) -> bool:
    shapes = [_dims(b.bias) for b in group if b.bias is not None]
    return all(s is not None and prove_equal_shapes((shapes[0] or [])[:-1], s[:-1]) for s in shapes)


class _Combiner(PyExprMutator):
    """Combines all matches of one kind."""

    def __init__(self, kind: _Kind, check: Check | None) -> None:
        super().__init__()
        self.kind = kind
        self.check = check

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        block = super().visit_dataflow_block_(block)
        for found in _Chains(block.bindings).branches(self.kind).values():
            chunks = range(0, len(found) - self.kind.count + 1, self.kind.count)
            for part in (found[i : i + self.kind.count] for i in chunks):
                if all(_dims(b.weight) is not None for b in part):
                    for group in _together(part):
                        block = self._combine(block, group)
        return block

    def _combine(self, block: DataflowBlock, group: list[_Branch]) -> DataflowBlock:
        values = {b.var: b.value for b in block.bindings}
        source = values[group[0].product].args[0]
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
        return made

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

    def _replacements(self, source: Any, group: list[_Branch]) -> dict[Var, Any]:
        ndim = len(_dims(group[0].weight) or [])
        weights = concat([b.weight for b in group], axis=ndim - 1)
        whole: Any = matmul(source, weights, group[0].product.struct_info.dtype)
        if group[0].bias is not None:
            whole = add(whole, concat([b.bias for b in group], axis=group[0].bias.struct_info.ndim - 1))
        if self.kind.activation is not None:
            whole = Call(Op.get(self.kind.activation), [whole])
        ends = list(accumulate(const_int(b.width) or 0 for b in group[:-1]))
        axis = max(ndim, source.struct_info.ndim) - 1 if source.struct_info.ndim > 1 else ndim - 2
        parts = split(whole, ends, axis)
        return {branch.end: TupleGetItem(parts, i) for i, branch in enumerate(group)}


def _available(block: DataflowBlock, group: list[_Branch]) -> bool:
    """Whether no weight or bias depends on one of the products."""
    ends = {b.product for b in group}
    tainted = set(ends)
    for binding in block.bindings:
        if any(v in tainted for v in direct_uses_deep(binding.value)):
            tainted.add(binding.var)
    return not any(v in tainted for b in group for v in (b.weight, b.bias))


class CombineParallelMatmul(ModuleRewrite):
    """Multiply one input with several weights at once.

    ::

        lv0 = R.matmul(x, w0)            lv = R.concat((w0, w1), axis=1)
        lv1 = R.matmul(x, w1)     ->     lv1 = R.matmul(x, lv)
                                         lv2 = R.split(lv1, indices_or_sections=[640], axis=2)
                                         lv0 = lv2[0]; ...

    Biases and activations (relu, gelu, silu) that follow every product alike are combined too.
    ``check(input, weights, biases, bindings)`` may refuse.
    """

    check: Check | None = None

    def rewrite(self, mod: IRModule) -> IRModule:
        def combine(_: GlobalVar, func: Function) -> Function:
            for kind in _kinds(func):
                new: Function = _Combiner(kind, self.check).visit_expr(func)
                func = func if new is func else remove_all_unused(new)
            return func

        return map_relax_functions(mod, combine)
