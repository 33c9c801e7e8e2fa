"""Questions that schedule rules ask: does a tensor intrinsic fit, where is a block, which layout suits a buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr
from ..buffer import Buffer
from ..expr import IntImm, Var
from ..index_map import IndexMap
from ..stmt import For, SeqStmt
from . import checks
from .description import Description
from .mapping import AutoTensorizeMappingInfo, get_auto_tensorize_mapping_info
from .sref import StmtSRef
from .subst import realize_of
from .walk import vars_in

if TYPE_CHECKING:
    from ..function import PrimFunc
    from .rv import BlockRV
    from .schedule import Schedule

__all__ = [
    "AutoTensorizeMappingInfo",
    "TensorizeInfo",
    "get_auto_tensorize_mapping_info",
    "get_tensorize_loop_mapping",
    "has_block",
    "is_output_block",
    "suggest_index_map",
]


class TensorizeInfo:
    """Correspondence of the loops of a block and those of an intrinsic's description.

    ``loop_map`` maps loop references of the program to loops of the description, ``desc_loop_indexer`` those to
    their position, ``block_iter_paddings`` says what each block variable must be padded to (None: nothing).
    """

    def __init__(
        self, loop_map: Mapping[Any, For], desc_loop_indexer: Mapping[For, int], paddings: Sequence[int] | None
    ) -> None:
        self.loop_map = dict(loop_map)
        self.desc_loop_indexer = dict(desc_loop_indexer)
        self.block_iter_paddings = paddings


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Loops of ``block`` that an intrinsic may take, innermost first; None if they do not fit.

    Only loops are compared, not what the block computes.  The last block variables of each type correspond to those
    of the description, and the loops that drive them must be multiples of the description's (with ``allow_padding``
    they may be padded to be, as long as each loop is a block variable by itself).
    """
    desc = Description(desc_func)
    sref = sch.sref(block)
    realize = realize_of(sref)
    loops = _single_branch_loops(sref)
    loop_vars = {s.stmt.loop_var for s in loops}
    desc_vars = {n.loop_var for n in desc.loops}
    if any(not checks.is_zero(s.stmt.min) for s in loops):
        return None
    block_vars, desc_iters = realize.block.iter_vars, desc.realize.block.iter_vars
    analyzer = Analyzer()
    loop_map: dict[Any, For] = {}
    paddings: dict[int, int] = {}
    position = len(block_vars) - 1
    for desc_var, desc_value in reversed(list(zip(desc_iters, desc.realize.iter_values, strict=True))):
        desc_loop = next((n for n in desc.loops if _driven_by(desc_value, n.loop_var, desc_vars, analyzer)), None)
        if desc_loop is None or not isinstance(desc_loop.extent, IntImm):
            return None
        while position >= 0 and block_vars[position].iter_type != desc_var.iter_type:
            position -= 1
        if position < 0:
            return None
        value, size = realize.iter_values[position], int(desc_loop.extent.value)
        free = (s for s in loops if s not in loop_map and _driven_by(value, s.stmt.loop_var, loop_vars, analyzer))
        loop = next(free, None)
        if loop is not None:
            allow_padding = allow_padding and value is loop.stmt.loop_var
            if not isinstance(loop.stmt.extent, IntImm):
                return None
            if loop.stmt.extent.value % size:
                if not allow_padding:
                    return None
                paddings[position] = size
            loop_map[loop] = desc_loop
        position -= 1
    if paddings and not allow_padding:
        return None
    full = [paddings.get(i, 1) for i in range(len(block_vars))] if paddings else None
    return TensorizeInfo(loop_map, {loop: i for i, loop in enumerate(desc.loops)}, full)


def _single_branch_loops(block_sref: StmtSRef) -> list[Any]:
    """The loops right around a block that hold nothing else, outermost first."""
    out: list[Any] = []
    for sref in reversed(checks.loops_above(block_sref)):
        if isinstance(sref.stmt.body, SeqStmt):
            break
        out.insert(0, sref)
    return out


def _driven_by(value: PrimExpr, loop_var: PrimExpr, loop_vars: set[Any], analyzer: Analyzer) -> bool:
    """Whether ``value`` is ``loop_var`` plus something that no loop changes."""
    if loop_var not in vars_in(value):
        return False
    return loop_vars.isdisjoint(vars_in(analyzer.simplify(value - loop_var)))


def has_block(sch: Schedule, block_name: str) -> bool:
    """Whether the function worked on has a block of that name."""
    from .primitives.queries import blocks_named

    gvar = sch.func_working_on
    if gvar is None:
        return any(blocks_named(sch.state, block_name, g) for g in sch.state.roots.values())
    return bool(blocks_named(sch.state, block_name, gvar))


def is_output_block(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block writes what its scope does not allocate."""
    sref = sch.sref(block)
    return checks.is_output_block(sref, checks.scope_root(sch.state, sref))


def suggest_index_map(
    buffer: Buffer, indices: Sequence[Any], loops: Sequence[For], predicate: PrimExpr, analyzer: Analyzer | None = None
) -> IndexMap | None:
    """A layout in which the accesses of ``buffer`` under ``loops`` are consecutive; None if none is found.

    Each dimension is cut where the loops cut it, and the pieces are ordered as the loops are.
    """
    from ...ir.expr import Range
    from .bindings import _NotSimple, _terms

    ranges = {n.loop_var: Range.from_min_extent(n.min, n.extent) for n in loops}
    sums: list[tuple[list[tuple[Any, ...]], int]] = []
    try:
        for index in indices:
            # Only the digits this access uses: other buffers may use the rest of a fused loop.
            sums.append(_terms(index, ranges))
    except _NotSimple:
        return None
    order = {n.loop_var: i for i, n in enumerate(loops)}
    names = [Var(f"i{k}", d.dtype) for k, d in enumerate(buffer.shape)]
    pieces: list[tuple[Any, Any]] = []
    for var, (terms, base), extent in zip(names, sums, buffer.shape, strict=True):
        if base or not isinstance(extent, IntImm):
            return None
        expected = 1
        for loop_var, lower, size, scale, _ in sorted(terms, key=lambda t: t[3]):
            if size == 1:
                continue
            if scale != expected:
                return None
            expr = var if scale == 1 else var // scale
            if scale * size != int(extent.value):
                expr = expr % size
            pieces.append(((order[loop_var], -lower), expr))
            expected = scale * size
        if expected != int(extent.value):
            return None
    pieces.sort(key=lambda p: p[0])
    return IndexMap(names, [e for _, e in pieces]) if pieces else None
