"""Correspondence of the variables of a block and those of a tensor intrinsic, fused where several play one part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.prim import IterVar, const
from ..buffer import Buffer
from ..expr import BufferLoad, IntImm, Var
from ..index_map import IndexMap
from ..stmt import Block, BufferStore
from .description import Description, body_signature
from .walk import vars_in

if TYPE_CHECKING:
    from ..function import PrimFunc
    from .rv import BlockRV
    from .schedule import Schedule

__all__ = ["AutoTensorizeMappingInfo", "get_auto_tensorize_mapping_info"]


class AutoTensorizeMappingInfo:
    """Result of :func:`get_auto_tensorize_mapping_info`.

    ``mappings`` are index maps for ``transform_block_layout`` (one at present), ``lhs_buffer_map`` maps buffers of the
    program to those of the description, ``lhs_iters`` and ``rhs_iters`` are the variables of both.
    """

    def __init__(
        self,
        mappings: list[IndexMap],
        lhs_buffer_map: dict[Any, Any],
        lhs_iters: Sequence[IterVar],
        rhs_iters: Sequence[IterVar],
    ) -> None:
        self.mappings = mappings
        self.lhs_buffer_map = lhs_buffer_map
        self.lhs_iters = tuple(lhs_iters)
        self.rhs_iters = tuple(rhs_iters)


class _Accesses(Visitor):
    """The buffers that a block's body stores to and loads from, in order, with the variables of their indices.

    Only variables that matter within their domains count: ``f // 32 * 32 + c`` does not depend on ``f < 32``. An index
    that is one number in all its domain (that of a batch of one) keeps its variables: they tell its part.
    """

    def __init__(self, iter_vars: Iterable[Any]) -> None:
        self.found: list[tuple[Any, set[Any]]] = []
        self.analyzer = Analyzer()
        for iv in iter_vars:
            self.analyzer.bind(iv.var, iv.dom)

    def _variables(self, indices: Sequence[Any]) -> set[Any]:
        plain = tuple(self.analyzer.simplify(index) for index in indices)
        return set(vars_in(tuple(e if isinstance(s, IntImm) else s for e, s in zip(indices, plain, strict=True))))

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.found.append((node.buffer, self._variables(node.indices)))

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.found.append((node.buffer, self._variables(node.indices)))
        self.visit(node.value)


def _accesses(block: Block) -> list[tuple[Any, set[Any]]]:
    visitor = _Accesses(block.iter_vars)
    visitor.visit(block.body)
    return visitor.found


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """The index map that makes an einsum-like block look like an intrinsic's description; None if none does.

    Variables that index the same buffers play the same part and are fused, in the order of the block; those that play
    no part of the description (batch axes) come first, as they are.

    >>> from relaxish.testing.examples import Schedule, matmul
    >>> sch = Schedule(matmul)
    >>> info = get_auto_tensorize_mapping_info(sch, sch.get_block("C"), matmul)
    >>> [str(e) for e in info.mappings[0].final_indices]
    ['vi', 'vj', 'vk']
    """
    desc = Description(desc_func)
    node = sch.get(block)
    if body_signature(node) != body_signature(desc.realize.block):
        return None
    mine, theirs = _accesses(node), _accesses(desc.realize.block)
    buffers: dict[Any, Any] = {}
    for (have, _), (want, _) in zip(mine, theirs, strict=True):
        if buffers.setdefault(have, want) is not want:
            return None
    if len(set(buffers.values())) != len(buffers):
        return None

    def part(iv: IterVar, accesses: Sequence[tuple[Buffer, set[PrimExpr]]]) -> tuple[Any, ...]:
        return (iv.iter_type, *(iv.var in used for _, used in accesses))

    groups: dict[tuple[Any, ...], list[Any]] = {}
    for iv in node.iter_vars:
        groups.setdefault(part(iv, mine), []).append(iv)
    wanted = [part(iv, theirs) for iv in desc.realize.block.iter_vars]
    if len(set(wanted)) != len(wanted) or any(p not in groups for p in wanted):
        return None
    names = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in node.iter_vars}
    final: list[Any] = [names[iv.var] for key, ivs in groups.items() if key not in wanted for iv in ivs]
    final += [_fused(groups[key], names) for key in wanted]
    index_map = IndexMap(list(names.values()), final)
    return AutoTensorizeMappingInfo([index_map], buffers, node.iter_vars, desc.realize.block.iter_vars)


def _fused(ivs: list[Any], names: dict[Any, Any]) -> PrimExpr:
    """Several variables as one number, the last counting fastest."""
    made: Any = const(0, ivs[0].var.dtype)
    scale: Any = const(1, ivs[0].var.dtype)
    terms = []
    for iv in reversed(ivs):
        terms.append(names[iv.var] * scale)
        scale = scale * iv.dom.extent
    for term in reversed(terms):
        made = made + term
    return made
