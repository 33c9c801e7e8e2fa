"""Constant weights in the order their kernels read them.

Before, a tile of 48 columns jumps through the matrix, one page a row::

    C[i, j] += A[i, k] * B[k, j]                        # B: (768, 3072)

After, every tile of columns is one contiguous strip; the constant itself is permuted at compile time::

    C[i, j] += A[i, k] * B[j // 48, k, j % 48]          # B: (64, 768, 48)

Rules that tile a reduction note the iterator and the tile's width on the block (`PACK_ATTR`); the pass rewrites every
parameter that moves with that iterator along its last axis and that all callers pass a constant for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...ir.expr import GlobalVar, Range, PrimExpr, RelaxExpr
from ...ir.functor import Mutator, all_nodes, pre_order_visit
from ...ir.module import IRModule, functions_of
from ...ir.node import Node
from ...ir.op import Op
from ...ir.prim import FloorDiv, FloorMod, IntImm, const_ints, is_one
from ...ir.transform import Pass, PassContext, PassInfo
from ...relax.expr import Call, Constant, Function, Tuple
from ...relax.expr_functor import PyExprMutator
from ...runtime.arrays.ndarray import NDArray, empty
from ...support.sequences import of_kind
from ...tir import Block, BufferLoad, BufferRegion, PrimFunc, decl_buffer
from ...ir.plain import plain_int

#: Arguments of a call as a rewritten kernel takes them, from those of the kernel as it was.
Repacked = Callable[[list[Any]], list[Any]]
PACK_ATTR = "relaxish.pack_columns"
#: Numbers of the parameters for which all callers pass constants, while default schedules are chosen.
CONSTANT_ATTR = "relaxish.constant_params"
_CALL_TIR = Op.get("relax.call_tir")


class MarkConstants(Pass):
    """Note on every kernel which of its parameters are constants in all calls: these need no packing at run time."""

    def __init__(self) -> None:
        super().__init__(PassInfo(0, "MarkConstants"))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with notes, which :class:`PackWeights` removes."""
        out = mod.clone()
        for gvar, places in constant_arguments(mod).items():
            func = mod.functions.get(gvar)
            if isinstance(func, PrimFunc) and places:
                out.update_func(gvar, func.with_attr(CONSTANT_ATTR, sorted(places)))
        return out


class PackWeights(Pass):
    """Permute constant weights into the strips that default schedules asked for; see the module."""

    def __init__(self) -> None:
        super().__init__(PassInfo(0, "PackWeights"))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with packed constants and kernels that read them."""
        constants = constant_arguments(mod)
        mod = _without_notes(mod)
        plans: dict[GlobalVar, tuple[GlobalVar, Repacked]] = {}
        strips = _Strips()
        out = mod.clone()
        for gvar, func in functions_of(mod, PrimFunc):
            if not _wishes(func):
                continue
            plan = _plan(func, constants.get(gvar, frozenset()))
            packed = _rewrite(func, plan)
            if not plan:
                out.update_func(gvar, packed)
                continue
            # Another signature is another variable: its struct info is that of the old one.
            del out[gvar]
            plans[gvar] = GlobalVar(gvar.name_hint), strips.repacked(plan)
            out[plans[gvar][0]] = packed
        return with_repacked_calls(out, plans)


def with_repacked_calls(mod: IRModule, plans: Mapping[GlobalVar, tuple[GlobalVar, Repacked]]) -> IRModule:
    """A module whose graph functions call rewritten kernels by their new names, with repacked arguments."""
    if plans:
        packer = _RepackCalls(mod, plans)
        for gvar, func in list(mod.functions.items()):
            if isinstance(func, Function):
                mod.update_func(gvar, packer.visit_expr(func))
    return mod


def _without_notes(mod: IRModule) -> IRModule:
    noted = {g: f for g, f in functions_of(mod, PrimFunc) if CONSTANT_ATTR in (f.attrs or {})}
    if not noted:
        return mod
    out = mod.clone()
    for gvar, func in noted.items():
        out.update_func(gvar, func.without_attr(CONSTANT_ATTR))
    return out


def pack_columns(weight: NDArray, width: int) -> NDArray:
    """``weight`` of shape (..., n) as (n / width, ..., width), aligned for vector loads."""
    *lead, columns = weight.shape
    packed = empty((columns // width, *lead, width), weight.dtype)
    split = weight.numpy().reshape(*lead, columns // width, width)
    packed.copyfrom(np.moveaxis(split, -2, 0))
    return packed


def pack_function(func: PrimFunc, constant: frozenset[int]) -> PrimFunc:
    """The function as it is after packing, if callers pass constants for the parameters numbered ``constant``."""
    return _rewrite(func, _plan(func, constant)) if _wishes(func) else func


# ---- what can be packed


def constant_arguments(mod: IRModule) -> dict[GlobalVar, frozenset[int]]:
    """For each called kernel the arguments for which every call passes a constant."""
    found: dict[GlobalVar, frozenset[int]] = {}

    def look(item: Node) -> bool:
        if isinstance(item, GlobalVar):
            # Reached only when the function is used for something else than being called.
            found[item] = frozenset()
        if isinstance(item, Call) and item.op is _CALL_TIR and isinstance(item.args[1], Tuple):
            here = frozenset(i for i, arg in enumerate(item.args[1].fields) if isinstance(arg, Constant))
            gvar = item.args[0]
            found[gvar] = found.get(gvar, here) & here
            return False
        return True

    for func in of_kind(mod.functions.values(), Function):
        pre_order_visit(func, look)
    return found


def free_arguments(mod: IRModule) -> dict[GlobalVar, frozenset[int]]:
    """For each program the parameters whose layout its schedule may choose."""
    free = {g: (f.attrs or {}).get("layout_free_buffers") or () for g, f in functions_of(mod, PrimFunc)}
    return {g: frozenset(plain_int(i) for i in places) for g, places in free.items()}


def _wishes(func: PrimFunc) -> bool:
    return any(PACK_ATTR in block.annotations for block in _blocks(func))


def _blocks(func: PrimFunc) -> list[Block]:
    return list(of_kind(all_nodes(func.body), Block))


def _plan(func: PrimFunc, constant: frozenset[int]) -> dict[int, int]:
    """Parameter index to strip width, for parameters all of whose loads fit."""
    index_of = {func.buffer_map[p].data: i for i, p in enumerate(func.params) if p in func.buffer_map}
    widths: dict[int, int] = {}
    spoiled: set[int] = set()
    for block in _blocks(func):
        wish = block.annotations.get(PACK_ATTR)
        column, width = (None, 0) if wish is None else (block.iter_vars[int(wish[0])].var, int(wish[1]))
        for load in _own_loads(block):
            index = index_of.get(load.buffer.data)
            if index is None or index not in constant:
                continue
            if column is None or not _moves_last(load, column) or _last(load.buffer) % width:
                spoiled.add(index)
            elif widths.setdefault(index, width) != width:
                spoiled.add(index)
    for block in _blocks(func):
        spoiled |= {index_of[m.source.buffer.data] for m in block.match_buffers if m.source.buffer.data in index_of}
    return {i: w for i, w in widths.items() if i not in spoiled and _last(func.buffer_map[func.params[i]]) > w}


def _last(buffer: Any) -> int:
    return int(buffer.shape[-1].value)


def _own_loads(block: Block) -> list[BufferLoad]:
    found: list[BufferLoad] = []

    def look(item: Node) -> bool:
        if isinstance(item, BufferLoad):
            found.append(item)
        return not isinstance(item, Block)

    for part in (block.init, block.body):
        if part is not None:
            pre_order_visit(part, look)
    return found


def _moves_last(load: BufferLoad, column: PrimExpr) -> bool:
    from ...arith.functor import uses_var

    if len(load.indices) < 2 or const_ints(load.buffer.shape) is None:
        return False
    return load.indices[-1] is column and not any(uses_var(index, column) for index in load.indices[:-1])


# ---- rewriting


class _Reindex(Mutator):
    """Reads packed parameters and drops the notes that asked for them."""

    _table = {}

    def __init__(self, buffers: dict[Any, tuple[Any, int]]) -> None:
        self.buffers = buffers

    def visit_Block(self, block: Block) -> Block:
        if PACK_ATTR in block.annotations:
            notes = {k: v for k, v in block.annotations.items() if k != PACK_ATTR}
            block = block.with_fields(annotations=notes)
        return self.default_visit(block)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        found = self.buffers.get(load.buffer.data)
        if found is None:
            return self.default_visit(load)
        packed, width = found
        *lead, column = (self.visit(index) for index in load.indices)
        size = IntImm(column.dtype, width)
        return BufferLoad(packed, [FloorDiv(column, size), *lead, FloorMod(column, size)])

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        found = self.buffers.get(region.buffer.data)
        if found is None:
            return self.default_visit(region)
        packed, width = found
        *lead, last = region.region
        size = IntImm(last.min.dtype, width)
        strip, within = FloorDiv(last.min, size), FloorMod(last.min, size)
        if not is_one(last.extent):
            # More than one column: all of them, which is a superset whatever the alignment.
            zero = IntImm(last.min.dtype, 0)
            whole = [Range.from_min_extent(zero, packed.shape[0]), *lead, Range.from_min_extent(zero, size)]
            return BufferRegion(packed, whole)
        one = last.extent
        return BufferRegion(packed, [Range.from_min_extent(strip, one), *lead, Range.from_min_extent(within, one)])


def _rewrite(func: PrimFunc, plan: dict[int, int]) -> PrimFunc:
    buffers: dict[Any, tuple[Any, int]] = {}
    buffer_map = dict(func.buffer_map)
    for index, width in plan.items():
        param = func.params[index]
        old: Any = buffer_map[param]
        *lead, columns = old.shape
        shape = [IntImm(columns.dtype, columns.value // width), *lead, IntImm(columns.dtype, width)]
        packed = decl_buffer(shape, old.dtype, old.name, data=old.data)
        buffers[old.data] = packed, width
        buffer_map[param] = packed
    body = _Reindex(buffers).visit(func.body)
    return func.with_fields(body=body, buffer_map=buffer_map)


class _RepackCalls(PyExprMutator):
    """Calls of rewritten kernels, by their new names and with their arguments as these take them."""

    def __init__(self, mod: IRModule, plans: Mapping[GlobalVar, tuple[GlobalVar, Repacked]]) -> None:
        super().__init__(mod)
        self.plans = plans

    def visit_call_(self, op: Call) -> RelaxExpr:
        found = self.plans.get(op.args[0]) if op.op is _CALL_TIR else None
        if found is None:
            return super().visit_call_(op)
        gvar, repacked = found
        args = (gvar, Tuple(repacked(list(op.args[1].fields))), *op.args[2:])
        return super().visit_call_(Call(op.op, args, op.attrs, op.sinfo_args, op.span))


class _Strips:
    """Packs constants; one used twice is packed once."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, int], Constant] = {}

    def repacked(self, plan: dict[int, int]) -> Repacked:
        """Function that packs the arguments of a kernel by its plan."""

        def pack(fields: list[Any]) -> list[Any]:
            for index, width in plan.items():
                fields[index] = self._packed(fields[index], width)
            return fields

        return pack

    def _packed(self, weight: Constant, width: int) -> Constant:
        key = id(weight), width
        if key not in self.made:
            self.made[key] = Constant(pack_columns(weight.data, width))
        return self.made[key]
