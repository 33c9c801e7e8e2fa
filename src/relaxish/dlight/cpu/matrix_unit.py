"""Products that a matrix or dot-product instruction computes: AMX tiles, VNNI.

The weights must already lie as the instruction reads them, two or four neighbours of a column side by side::

    C[i, j] += A[i, k] * B[k // 4, j, k % 4]            # B: int8, A: uint8, C: int32

becomes a tile of instructions whose results stay in registers over the reduction::

    for j0, i0 (parallel):
        for k: for i1, j1 (a few): C[tile] += A[tile] @ B[tile]      # one instruction

"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...target import Target
from ...tir import PrimFunc, TensorIntrin
from ...tir.schedule import Schedule
from ...tir.schedule.analysis import get_tensorize_loop_mapping
from ...tir.schedule.description import computes_the_same
from ...tir.schedule.rv import BlockRV, LoopRV
from ...tir.schedule.transform import tile_with_tensor_intrin
from .facts import BlockInfo
from ..base import ScheduleRule
from .common import open_reduction, parallel_outer, schedule_elementwise, work_of
from ...ir.prim import const_int


class _Unit(NamedTuple):
    """An intrinsic, the features without which other code is faster, and how many of its tiles to update together."""

    intrin: str
    needs: tuple[str, ...]
    rows: int
    columns: int


_UNITS = (
    _Unit("amx_dot_16x16x32_bf16bf16f32", ("amx-tile", "amx-bf16"), 2, 2),
    _Unit("amx_dot_16x16x64_u8s8s32", ("amx-tile", "amx-int8"), 2, 2),
    _Unit("amx_dot_16x16x64_s8s8s32", ("amx-tile", "amx-int8"), 2, 2),
    _Unit("amx_dot_16x16x64_u8u8s32", ("amx-tile", "amx-int8"), 2, 2),
    _Unit("amx_dot_16x16x64_s8u8s32", ("amx-tile", "amx-int8"), 2, 2),
    _Unit("dot_16x4_vnni", ("avx512vnni",), 4, 4),
    # The same tiles as vector code.
    _Unit("amx_dot_16x16x32_bf16bf16f32", ("avx512bf16",), 1, 1),
    _Unit("amx_dot_16x16x64_s8s8s32", ("avx512vnni",), 1, 1),
    _Unit("amx_dot_16x16x64_u8u8s32", ("avx512vnni",), 1, 1),
    _Unit("amx_dot_16x16x64_s8u8s32", ("avx512vnni",), 1, 1),
)
_MATRIX_TYPES = frozenset(("bfloat16", "int8", "uint8"))


class MatrixUnit(ScheduleRule):
    """One reduction block that an instruction of the target computes, and elementwise blocks around it."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | None:
        """See the module."""
        opened = open_reduction(func, target) if _mentions_types(func) else None
        if opened is None:
            return None
        sch, infos, anchor = opened
        others = [info for info in infos if info is not anchor]
        unit = _fitting(sch, anchor, target)
        if unit is None or any(not info.is_injective for info in others):
            return None
        for info in others:
            schedule_elementwise(sch, info, target)
        _tensorize(sch, anchor, unit, target)
        return sch


def _mentions_types(func: PrimFunc) -> bool:
    return any(buffer.dtype in _MATRIX_TYPES for buffer in func.buffer_map.values())


def _fitting(sch: Schedule, anchor: BlockInfo, target: Target) -> _Unit | None:
    """The first unit of the target whose tiles divide the block."""
    have = target.llvm_features
    for unit in _UNITS:
        intrin = TensorIntrin.get(unit.intrin, allow_missing=True) if set(unit.needs) <= have else None
        if intrin is None or not computes_the_same(sch.get(anchor.rv), intrin.desc):
            continue
        if get_tensorize_loop_mapping(sch, anchor.rv, intrin.desc) is not None:
            return unit
    return None


def _largest(extent: int | None, limit: int) -> int:
    return max(d for d in range(1, limit + 1) if extent is None or extent % d == 0)


def _tensorize(sch: Schedule, anchor: BlockInfo, unit: _Unit, target: Target) -> None:
    block = anchor.rv
    work = work_of(anchor)
    tile = tile_with_tensor_intrin(sch, block, unit.intrin)
    assert tile is not None
    loops = sch.get_loops(block)
    depth = next(i for i, loop in enumerate(loops) if sch.get(loop).loop_var is sch.get(tile).loop_var)
    outer = loops[:depth]
    kinds = _kinds(sch, block)
    spatial = [loop for loop in outer if not kinds[sch.get(loop).loop_var]]
    reduction = [loop for loop in outer if kinds[sch.get(loop).loop_var]]
    *batch, row, column = spatial
    row_outer, row_inner = sch.split(row, [None, _largest(_extent(sch, row), unit.rows)])
    column_outer, column_inner = sch.split(column, [None, _largest(_extent(sch, column), unit.columns)])
    sch.reorder(*batch, column_outer, row_outer, *reduction, row_inner, column_inner)
    parallel_outer(sch, [*batch, column_outer, row_outer], work, target.num_cores)
    init = sch.decompose_reduction(block, reduction[0])
    sch.vectorize(sch.get_loops(init)[-1])
    sch.tensorize(tile, unit.intrin)


def _extent(sch: Schedule, loop: LoopRV) -> int | None:
    return const_int(sch.get(loop).extent)


def _kinds(sch: Schedule, block: BlockRV) -> dict[Any, bool]:
    """Whether each loop around a block drives a reduction."""
    from ...tir import IterVar
    from ...tir.schedule.subst import realize_of
    from ...arith.functor import uses_var

    realize: Any = realize_of(sch.get_sref(block))
    kinds: dict[Any, bool] = {}
    for loop in sch.get_loops(block):
        var = sch.get(loop).loop_var
        pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        kinds[var] = any(iv.iter_type == IterVar.CommReduce and uses_var(value, var) for iv, value in pairs)
    return kinds
