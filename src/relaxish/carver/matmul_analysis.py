"""Recognises matrix products in any layout, and the maps that bring them to ``C[S, I, J] += A[S, I, K] * B[S, J, K]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..ir.expr import PrimExpr
from ..ir.prim import IntImm, IterVar, Mul, Var, is_one, uncast, const_int
from ..support.errors import ScheduleError
from ..target import Target
from ..tir import Block, BufferLoad, IndexMap, PrimFunc
from ..tir.analysis import undefined_vars
from ..tir.schedule import Schedule
from ..tir.schedule.rv import BlockRV
from .arch.device import TileDevice, target_of
from .arch.gpus import is_tensorcore_supported_precision
from .arch.infer import get_arch

__all__ = [
    "IterKind", "IterTrait", "detect_iter_traits", "get_in_out_dtypes", "get_index_map", "get_tensorized_func_and_tags",
    "make_iter_fusion_index_map", "normalize_matmul", "normalize_product",
]  # fmt: skip


class IterKind(Enum):
    """Kind of an iterator of a product: batch (S), rows (I), columns (J), reduction (K), or none (T)."""

    kIter_S = 0
    kIter_I = 1
    kIter_J = 2
    kIter_K = 3
    kIter_T = 4


@dataclass
class IterTrait:
    """An iterator's kind and extent."""

    kind: IterKind
    extent: Any


def make_iter_fusion_index_map(traits: Sequence[IterTrait], kind_order: Sequence[IterKind]) -> IndexMap:
    """The map that fuses all iterators of one kind, kinds in the given order; kinds that do not occur become 0.

    Raises ValueError for a kind outside the order.
    """
    fused: dict[IterKind, Any] = {}
    inputs = []
    for index, trait in enumerate(traits):
        var = Var(f"i{index}", trait.extent.dtype)
        inputs.append(var)
        if trait.kind == IterKind.kIter_T:
            continue
        if trait.kind not in kind_order:
            raise ValueError(f"Unknown iter kind {trait.kind}")
        before = fused.get(trait.kind)
        fused[trait.kind] = var if before is None else before * trait.extent + var
    zero = IntImm(traits[0].extent.dtype, 0)
    return IndexMap(inputs, [fused.get(kind, zero) for kind in kind_order], None)


def detect_iter_traits(block: Block) -> tuple[list[IterTrait], ...] | None:
    """Traits of the iterators of A, B, C and of the block, each in block order; None for what is no product."""
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    regions = [_access_axes(r.region) for r in (block.reads[0], block.reads[1], block.writes[0])]
    if any(axes is None for axes in regions):
        return None
    in_a, in_b, in_c = (axes or set() for axes in regions)
    traits: dict[Var, IterTrait] = {}
    for axis in block.iter_vars:
        kind = _kind(axis, axis.var in in_a, axis.var in in_b, axis.var in in_c)
        if kind is None:
            return None
        traits[axis.var] = IterTrait(kind, _extent_of(axis))
    if not {IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K} <= {t.kind for t in traits.values()}:
        return None
    order = [v.var for v in block.iter_vars]
    return (*([traits[v] for v in order if v in axes] for axes in (in_a, in_b, in_c)), [traits[v] for v in order])


def _access_axes(region: Sequence[Any]) -> set[Var] | None:
    """Variables of the indices of an element access; None if the region is larger than an element."""
    axes: set[Var] = set()
    for dim in region:
        if not is_one(dim.extent):
            return None
        axes |= set(undefined_vars(dim.min))
    return axes


def _kind(axis: IterVar, in_a: bool, in_b: bool, in_c: bool) -> IterKind | None:
    extent = _extent_of(axis)
    if is_one(extent):
        return IterKind.kIter_T
    table = {
        (IterVar.DataPar, True, True, True): IterKind.kIter_S,
        (IterVar.DataPar, True, False, True): IterKind.kIter_I,
        (IterVar.DataPar, False, True, True): IterKind.kIter_J,
        (IterVar.CommReduce, True, True, False): IterKind.kIter_K,
    }
    return table.get((axis.iter_type, in_a, in_b, in_c))


def get_index_map(block: Block) -> tuple[IndexMap, ...] | None:
    """Maps of the block, A, B and C to the canonical product; None for what is no product."""
    traits = detect_iter_traits(block)
    if traits is None:
        return None
    a, b, c, whole = traits
    s, i, j, k = IterKind.kIter_S, IterKind.kIter_I, IterKind.kIter_J, IterKind.kIter_K
    return (
        make_iter_fusion_index_map(whole, [s, i, j, k]),
        make_iter_fusion_index_map(a, [s, i, k]),
        make_iter_fusion_index_map(b, [s, j, k]),
        make_iter_fusion_index_map(c, [s, i, j]),
    )


def normalize_matmul(sch: Schedule, main_block: BlockRV) -> bool:
    """Rewrite the block as ``C[S, I, J] += A[S, I, K] * B[S, J, K]`` over re-indexed operands; False if it is none."""
    if get_index_map(sch.get(main_block)) is None:
        return False
    copies = [sch.reindex(main_block, place) for place in (("read", 0), ("read", 1), ("write", 0))]
    # The copies may lack unit iterators that the operands were indexed with.
    maps = get_index_map(sch.get(main_block))
    assert maps is not None, "reindexing keeps the iterators' kinds"
    whole, *parts = maps
    for copy, kind, index_map in zip(copies, ("write", "write", "read"), parts, strict=True):
        sch.transform_layout(copy, (kind, 0), index_map)
    sch.transform_block_layout(main_block, whole)
    return True


def get_in_out_dtypes(block: Block) -> tuple[str, str]:
    """Dtype of the operands (under casts) and of the result of a product block."""
    product = block.body.value.b  # type: ignore[attr-defined]
    operand = uncast(product.a)
    dtype = operand.buffer.dtype if isinstance(operand, BufferLoad) else operand.dtype
    return str(dtype), str(block.writes[0].buffer.dtype)


def normalize_product(sch: Schedule, main: BlockRV) -> bool:
    """Rewrite a block as ``C[S, I, J] += A[S, I, K] * B[S, J, K]`` over re-indexed operands; False if it is none.

    Indices may be any functions of the axes: of a convolution, what a result needs of the image becomes a row of A.
    """
    node = sch.get(main)
    if len(node.reads) != 2 or len(node.writes) != 1:
        return False
    try:
        copies = [sch.reindex(main, place) for place in (("read", 0), ("read", 1), ("write", 0))]
        maps = get_index_map(sch.get(main))
        if maps is None:
            return False
        whole, *parts = maps
        for copy, kind, index_map in zip(copies, ("write", "write", "read"), parts, strict=True):
            sch.transform_layout(copy, (kind, 0), index_map)
        sch.transform_block_layout(main, whole)
    except (ScheduleError, ValueError):
        return False
    return True


def _extent_of(axis: IterVar) -> PrimExpr:
    assert axis.dom is not None, "block iterators have domains"
    return axis.dom.extent


def get_tensorized_func_and_tags(
    func: PrimFunc, target: Target | TileDevice, layout: Sequence[str] | None = None, allow_gemv: bool = False
) -> tuple[PrimFunc, dict[str, Any] | None]:
    """A function whose only reduction is a product, as ``C[S, I, J] += A[S, I, K] * B[S, J, K]``, and its tags.

    The tags say which axes are rows and columns (``tensorcore_config``) and what fragments are made of
    (``intrin_info``); they are None, and the function as it was, where matrix units of the target do not compute it:
    no product, a dtype they lack, or sides shorter than a fragment (``allow_gemv`` admits a single row).
    """
    made = Target(target_of(target.target if hasattr(target, "target") else target))
    arch = get_arch(made)
    if not arch.get_avaliable_tensorintrin_shapes() or (func.attrs or {}).get("dlight.do_not_tensorize"):
        return func, None
    sch = Schedule(func)
    main = _only_reduction(sch)
    if main is None or not _is_product(sch.get(main)):
        return func, None
    transposed = _stored_by_columns(sch.get(main))
    if not normalize_product(sch, main):
        return func, None
    block = sch.get(main)
    in_dtype, out_dtype = get_in_out_dtypes(block)
    if not _computes(arch, in_dtype, out_dtype):
        return func, None
    sides = [const_int(_extent_of(v)) for v in block.iter_vars[1:3]]
    if any(n is not None and n < 16 for n in sides) and not allow_gemv:
        return func, None
    info = {"in_dtype": in_dtype, "out_dtype": out_dtype, "trans_b": transposed}
    batched = const_int(_extent_of(block.iter_vars[0])) != 1
    return sch.mod["main"], {"tensorcore_config": [1, 2] if batched else [0, 1], "intrin_info": info}


def _computes(arch: Any, in_dtype: str, out_dtype: str) -> bool:
    if arch.platform == "CUDA":
        return arch.sm_version >= 70 and is_tensorcore_supported_precision(in_dtype, out_dtype, arch)
    return (in_dtype, out_dtype) in {("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32")}


def _only_reduction(sch: Schedule) -> BlockRV | None:
    """The only block that reduces, if all others are spatial; None otherwise."""
    found = []
    for rv in sch.get_child_blocks(sch.get_block("root")):
        kinds = {v.iter_type for v in sch.get(rv).iter_vars}
        if kinds == {IterVar.DataPar, IterVar.CommReduce}:
            found.append(rv)
        elif kinds != {IterVar.DataPar}:
            return None
    return found[0] if len(found) == 1 else None


def _is_product(block: Block) -> bool:
    """Whether the block adds up products of two loads."""
    value = getattr(block.body, "value", None)
    term = getattr(value, "b", None)
    if not isinstance(term, Mul):
        return False
    return all(isinstance(uncast(side), BufferLoad) for side in (term.a, term.b))


def _stored_by_columns(block: Block) -> bool:
    """Whether the reduction runs along the last axis of the second operand."""
    last = block.reads[-1].region[-1].min
    return any(v.iter_type == IterVar.CommReduce and v.var in undefined_vars(last) for v in block.iter_vars)
