"""LowerGlobalViewToLocalView: functions over whole tensors become functions over one worker's part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...arith.build import is_zero
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator, Visitor
from ...ir.module import IRModule, functions_of
from ...ir.op import Op
from ...op.ccl import allreduce
from ...relax.distributed import DTensorStructInfo
from ...relax.expr import Call, Function, VarBinding, is_call_of
from ...relax.expr_functor import PyExprMutator
from ...relax.struct_info import StructInfo, TupleStructInfo, fields_of
from ...support.errors import InternalError
from ...support.sequences import of_kind
from ...tir.analysis.buffer_axes import BufferAxisGroups, split_variable
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar, Var
from ...tir.function import PrimFunc
from ...tir.functor import renew_defs, substitute_buffers
from ...tir.op import floordiv, floormod
from ...tir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from ..base import map_relax_functions
from ...ir.declared_pass import ModuleRewrite

__all__ = ["LowerGlobalViewToLocalView", "local_part"]

#: By the class of the node that combines: the operation that combines the workers' parts of a sum over all.
_COMBINED_BY = {"Add": "sum", "Mul": "prod", "Min": "min", "Max": "max"}


class _BlockFacts(Visitor):
    """The indices of each buffer in a block, and how the block reduces."""

    def __init__(self, block: Stmt) -> None:
        self.indices: dict[Buffer, list[Sequence[Any]]] = {}
        self.combiner = ""
        self._reduced: Any = None
        self.visit(block)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.indices.setdefault(store.buffer, []).append(store.indices)
        self.default_visit(store)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.indices.setdefault(load.buffer, []).append(load.indices)
        self.default_visit(load)

    def visit_Block(self, block: Block) -> None:
        if any(iv.iter_type == IterVar.CommReduce for iv in block.iter_vars):
            if len(block.writes) != 1:
                raise InternalError(f"block {block.name_hint} reduces, so it must write one buffer")
            self._reduced = block.writes[0].buffer
        self.default_visit(block)

    def _combine(self, node: Any) -> None:
        if any(getattr(side, "buffer", None) is self._reduced is not None for side in (node.a, node.b)):
            self.combiner = _COMBINED_BY[type(node).__name__]
        self.default_visit(node)

    visit_Add = visit_Mul = visit_Min = visit_Max = _combine


def _split(extent: PrimExpr, parts: int) -> PrimExpr:
    if not is_zero(Analyzer().simplify(floormod(extent, parts))):
        raise InternalError(f"a range of {extent} cannot be split evenly into {parts}")
    return floordiv(extent, parts)


class _Splitter(Mutator):
    """Shortens buffers, block variables and loops to one worker's part."""

    def __init__(self, parts: Mapping[Buffer, Mapping[int, int]]) -> None:
        self.parts = parts
        self.combiner = ""
        self._variables: dict[Any, int] = {}
        self._loops: dict[Any, int] = {}

    def part_of(self, buffer: Buffer) -> Buffer:
        """The buffer of one worker's part."""
        parts = self.parts.get(buffer)
        if not parts:
            return buffer
        shape = [floordiv(size, parts[n]) if n in parts else size for n, size in enumerate(buffer.shape)]
        made: Buffer = buffer.with_fields(shape=tuple(shape))
        return made

    def _split_variables(self, block: Any, facts: _BlockFacts) -> list[IterVar]:
        ranges = {iv.var: iv.dom for iv in block.iter_vars}
        for region in (*block.reads, *block.writes):
            for indices in facts.indices.get(region.buffer, ()):
                for dim, parts in self.parts.get(region.buffer, {}).items():
                    var = split_variable(indices[dim], ranges)
                    if self._variables.setdefault(var, parts) != parts:
                        raise InternalError("A loop cannot have different sharding")
        made = []
        for iv in block.iter_vars:
            parts = self._variables.get(iv.var, 1)
            dom = Range.from_min_extent(iv.dom.min, _split(iv.dom.extent, parts)) if parts > 1 else iv.dom
            made.append(IterVar(dom, iv.var, iv.iter_type, iv.thread_tag) if parts > 1 else iv)
        return made

    def visit_Block(self, block: Block) -> Stmt:
        """Inner blocks first: the facts are those of the program as it was."""
        facts = _BlockFacts(block)
        made = self.default_visit(block)
        variables = self._split_variables(block, facts)
        if any(iv.iter_type == IterVar.CommReduce and iv.var in self._variables for iv in variables):
            if self.combiner:
                raise InternalError("a function may reduce over one axis that is split, not over several")
            self.combiner = facts.combiner
        return made.with_fields(iter_vars=tuple(variables))

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        """Notes the loops that drive the variables that were shortened."""
        made = self.default_visit(realize)
        for value, iv in zip(realize.iter_values, realize.block.iter_vars):
            if iv.var in self._variables:
                if not isinstance(value, Var):
                    raise InternalError(f"block variable {iv.var} must be a loop variable to be split, but is {value}")
                self._loops[value] = self._variables[iv.var]
        return made

    def visit_For(self, loop: For) -> Stmt:
        """Shortens a loop that its body asked for."""
        made = self.default_visit(loop)
        parts = self._loops.get(loop.loop_var, 1)
        return made.with_fields(extent=_split(made.extent, parts)) if parts > 1 else made


def _parts(func: PrimFunc, infos: Sequence[DTensorStructInfo]) -> dict[Buffer, dict[int, int]]:
    """For each buffer, into how many parts its axes are cut: the parameters', and those that go along."""
    groups = BufferAxisGroups(func.body)
    seen: set[Any] = set()
    made: dict[Buffer, dict[int, int]] = {}
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    for buffer, info in zip(buffers, infos):
        for size, spec in zip(info.device_mesh.shape, info.placement.dim_specs):
            if spec.kind == "sharding":
                for other, axis in groups.group_of((buffer, spec.axis), seen):
                    made.setdefault(other, {})[axis] = size
    return made


def local_part(func: PrimFunc, infos: Sequence[DTensorStructInfo]) -> tuple[PrimFunc, str]:
    """The function that a worker runs on its part when the buffers lie as ``infos`` say, and how the results of all
    workers are to be combined (empty: they are not).

    Raises InternalError for programs whose loops cannot be split evenly or in one way.
    """
    func = renew_defs(func)
    splitter = _Splitter(_parts(func, infos))
    body = splitter.visit(func.body)
    swap = {buffer: splitter.part_of(buffer) for buffer in splitter.parts}
    body = substitute_buffers(body, {}, swap)
    buffer_map = {param: swap.get(buffer, buffer) for param, buffer in func.buffer_map.items()}
    return PrimFunc(func.params, body, func.ret_type, buffer_map, func.attrs, func.span), splitter.combiner


def _distributed(info: StructInfo) -> list[DTensorStructInfo]:
    fields = fields_of(info)
    found = list(of_kind(fields, DTensorStructInfo))
    if len(found) != len(fields):
        raise InternalError("the inputs and outputs of a call_tir should be distributed tensors")
    return found


class _GlobalViewLowerer(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_var_binding_(self, binding: VarBinding) -> None:
        call = binding.value
        if not is_call_of(call, "relax.call_tir"):
            super().visit_var_binding_(binding)
            return
        callee = call.args[0]
        infos = [info for arg in call.args[1].fields for info in _distributed(arg.struct_info)]
        infos += _distributed(binding.var.struct_info)
        func, combiner = local_part(self.mod[callee], infos)
        local = self.builder_.add_func(func, callee.name_hint)
        seen: Any = self.visit_expr(call)
        op = Op.get("relax.dist.call_tir_local_view")
        call = Call(op, (local, *seen.args[1:]), seen.attrs, seen.sinfo_args, seen.span)
        value = allreduce(call, combiner) if combiner else call
        self.reemit_binding(binding, self.builder_.normalize(value))


def is_distributed(func: Function) -> bool:
    """Whether the parameters are distributed tensors. Raises InternalError if some are and others are not."""
    from ...relax.struct_info import TensorStructInfo

    leaves: list[StructInfo] = []
    stack: list[StructInfo] = [p.struct_info for p in func.params]
    while stack:
        info = stack.pop()
        if isinstance(info, TupleStructInfo):
            stack.extend(info.fields)
        else:
            leaves.append(info)
    spread = any(isinstance(info, DTensorStructInfo) for info in leaves)
    if spread and any(isinstance(info, TensorStructInfo) for info in leaves):
        raise InternalError("mixed use of DTensor and Tensor in one function")
    return spread


class LowerGlobalViewToLocalView(ModuleRewrite, opt_level=1):
    """Turn ``R.call_tir`` on distributed tensors into ``R.dist.call_tir_local_view`` of a function whose buffers and
    loops are as short as one worker's part.

    Where a loop that is summed over is split, ``R.ccl.allreduce`` follows.  The functions over whole tensors stay in
    the module.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        lower = _GlobalViewLowerer(mod)
        changed: dict[Any, Any] = {}
        for var, func in functions_of(mod, Function):
            if is_distributed(func):
                changed[var] = func.with_fields(body=lower.visit_expr(func.body))
        if not changed:
            return mod
        out = lower.builder_.get()
        return map_relax_functions(out, lambda var, func: changed.get(var, func))
