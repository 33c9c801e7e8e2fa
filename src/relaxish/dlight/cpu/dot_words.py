"""Products of narrow types by instructions that add the products of neighbours: ``vdpbf16ps``, ``vpdpbusd``.

Neighbours along the reduction become words of 32 bits, two bfloat16 or four bytes. What rows are broadcast from is packed
by the kernel, constant weights when the model is compiled, and what is left is a reduction over words, which the rule for
contractions tiles like one over floats.

Before (``A``: bfloat16, ``W``: a constant)::

    C[i, j] += T.Cast("float32", A[i, k]) * T.Cast("float32", W[k, j])

After::

    A_words[i, q] = bits(A[i, 2 * q]) | bits(A[i, 2 * q + 1]) << 16
    C[i, j] += T.dot_bf16x2(A_words[i, q], W_words[q, j])

The byte instruction takes one unsigned operand. Signed by signed bytes are multiplied with 128 added to the packed operand;
what that adds to a column, 128 times the sum of its weights, is subtracted where the sum starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.build import as_int
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.expr import GlobalVar, PrimExpr, Range
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.prim import Add, Call, Cast, IntImm, IterVar, Mul, Var, const_int
from ...ir.transform import Pass, PassContext, PassInfo
from ...relax.expr import Constant
from ...target import Target
from ...tir import Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc, decl_buffer
from ...tir.op import if_then_else, reinterpret
from ...tir.stmt import For, ForKind, SeqStmt, Stmt, stmt_list
from ...ir.functor import all_nodes
from ..base.transform import is_scheduled, schedulable
from .common import KEPT_ATTR, open_reduction
from .facts import BlockInfo, IterInfo, access_stride
from .packing import Repacked, constant_arguments, free_arguments, with_repacked_calls

__all__ = ["DotWords"]

# So many rows must share an operand that is packed when the kernel runs, and so many columns one that is broadcast.
_ROWS_TO_PACK, _COLUMNS_TO_PACK = 16, 8
# A reduction shorter than this is mostly padding of words and of tiles.
_LEAST_DEPTH = 8
_UNITS = {"bfloat16": ("dot_bf16x2", ("avx512bf16",)), "8": ("dot_u8s8x4", ("avx512vnni", "avxvnni"))}
_BIAS = 0x80


@dataclass(frozen=True)
class _Product:
    """A reduction that words serve: ``row`` is broadcast along ``column``, ``weight`` moves with it; both move with
    ``depth``, a row along its last axis, a weight along the axis numbered ``place``."""

    info: BlockInfo
    row: BufferLoad
    weight: BufferLoad
    column: IterInfo
    depth: IterInfo
    place: int
    intrinsic: str
    # 128 is added to the bytes of a row, because both operands are signed, or both are not.
    shifted: bool

    @property
    def count(self) -> int:
        """Elements of a word."""
        return 32 // dt.bits(self.row.dtype)

    @property
    def words(self) -> int:
        """Steps of the reduction."""
        return -(-(self.depth.dom or 0) // self.count)


class DotWords(Pass):
    """Products of bfloat16 and of bytes by dot-product instructions, on CPUs that have them; see the module."""

    def __init__(self, *, free_weights: bool = False) -> None:
        """With ``free_weights``, parameters in ``layout_free_buffers`` are constants; nobody who calls is told."""
        super().__init__(PassInfo(0, "DotWords"))
        self.free_weights = free_weights

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with kernels over words, and constants packed to match."""
        constants = free_arguments(mod) if self.free_weights else constant_arguments(mod)
        made: dict[GlobalVar, tuple[GlobalVar, Repacked]] = {}
        words = _Words()
        out = mod.clone()
        for gvar, func in mod.functions.items():
            if not isinstance(func, PrimFunc) or is_scheduled(func) or not schedulable(func):
                continue
            target = Target((func.attrs or {}).get("target") or Target.current(allow_none=False))
            found = _found(func, target)
            if found is None:
                continue
            func, product = found
            index = _parameter(func, product.weight.buffer)
            if index is not None and index not in constants.get(gvar, frozenset()):
                index = None
            if product.shifted and (index is None or not _sums_columns(product)):
                continue
            if index is None and not _worth_packing(product):
                continue
            del out[gvar]
            # Another signature is another variable: its struct info is that of the old one.
            made[gvar] = GlobalVar(gvar.name_hint), words.repacked(product, index)
            out[made[gvar][0]] = _rewritten(func, product, index)
        return with_repacked_calls(out, made) if made else mod


# ---- what to rewrite


def _mentions_types(func: PrimFunc) -> bool:
    return any(b.dtype == "bfloat16" or dt.bits(b.dtype) == 8 for b in func.buffer_map.values())


def _found(func: PrimFunc, target: Target) -> tuple[PrimFunc, _Product] | None:
    """The function with its elementwise stages folded in, and its product."""
    if target.kind.name != "llvm" or not _mentions_types(func):
        return None
    if not target.llvm_features & {"avx512bf16", "avx512vnni", "avxvnni"}:
        return None
    opened = open_reduction(func, target)
    if opened is None:
        return None
    sch, infos, anchor = opened
    product = _product(anchor, target)
    if product is None or any(not info.is_injective for info in infos if info is not anchor):
        return None
    return sch.mod["main"], product


def _product(info: BlockInfo, target: Target) -> _Product | None:
    store = info.store
    value = store.value if store is not None else None
    if (
        store is None
        or not isinstance(value, Add)
        or any(it.kind == "O" for it in info.iters)
        or not isinstance(info.block.body, BufferStore)
    ):
        return None
    total, product = (value.a, value.b) if isinstance(value.b, Mul) else (value.b, value.a)
    own = isinstance(total, BufferLoad) and total.buffer is store.buffer
    if not own or not isinstance(product, Mul):
        return None
    loads = [_narrow(side, value.dtype) for side in (product.a, product.b)]
    column = next((it for it in reversed(info.spatial) if access_stride(store.indices, it.var) == "unit"), None)
    if column is None or column.dom is None or column.dom < _COLUMNS_TO_PACK or None in loads:
        return None
    rows = [load for load in loads if load is not None and not _uses(load.indices, column.var)]
    weights = [load for load in loads if load is not None and _uses(load.indices, column.var)]
    if len(rows) != 1 or len(weights) != 1 or rows[0].buffer is weights[0].buffer:
        return None
    return _of_operands(info, rows[0], weights[0], column, target)


def _of_operands(
    info: BlockInfo, row: BufferLoad, weight: BufferLoad, column: IterInfo, target: Target
) -> _Product | None:
    kinds = row.dtype, weight.dtype
    narrow = "bfloat16" if kinds == ("bfloat16", "bfloat16") else "8"
    if narrow == "8" and not set(kinds) <= {"int8", "uint8"}:
        return None
    intrinsic, features = _UNITS[narrow]
    depth = next((it for it in info.reductions if row.indices and row.indices[-1] is it.var), None)
    if depth is None or (depth.dom or 0) < _LEAST_DEPTH or not target.llvm_features & set(features):
        return None
    places = [i for i, index in enumerate(weight.indices) if uses_var(index, depth.var)]
    plain = len(places) == 1 and not _uses(row.indices[:-1], depth.var) and weight.indices[places[0]] is depth.var
    whole = plain and all(
        const_int(b.shape[i]) == depth.dom and not b.strides for b, i in ((row.buffer, -1), (weight.buffer, places[0]))
    )
    if not whole:
        return None
    shifted = narrow == "8" and kinds[0] == kinds[1]
    return _Product(info, row, weight, column, depth, places[0], intrinsic, shifted)


def _narrow(side: PrimExpr, dtype: str) -> BufferLoad | None:
    """The narrow element that a factor is."""
    return side.value if isinstance(side, Cast) and side.dtype == dtype and isinstance(side.value, BufferLoad) else None


def _uses(indices: Iterable[PrimExpr], var: Var) -> bool:
    return any(uses_var(index, var) for index in indices)


def _parameter(func: PrimFunc, buffer: Buffer) -> int | None:
    """The number of the parameter that a buffer is, if nothing else reads it."""
    loads = sum(isinstance(item, BufferLoad) and item.buffer.data is buffer.data for item in all_nodes(func.body))
    for i, param in enumerate(func.params):
        if func.buffer_map.get(param) is buffer:
            return i if loads == 1 else None
    return None


def _sums_columns(product: _Product) -> bool:
    """Whether every step of the reduction takes another element of the weight, and every column all of them."""
    axes = [product.column, *product.info.reductions]
    extents = {it.var: it.dom for it in axes}
    known = {
        index: as_int(size) for index, size in zip(product.weight.indices, product.weight.buffer.shape, strict=True)
    }
    return len(known) == len(axes) and None not in extents.values() and known == extents


def _worth_packing(product: _Product) -> bool:
    sharing = [it.dom for it in product.info.spatial if not _uses(product.weight.indices, it.var)]
    rows = 1
    for size in sharing:
        rows *= _ROWS_TO_PACK if size is None else size
    return rows >= _ROWS_TO_PACK


# ---- the kernel over words


def _words_like(buffer: Buffer, place: int, words: int, name: str) -> Buffer:
    shape = [IntImm(size.dtype, words) if i == place else size for i, size in enumerate(buffer.shape)]
    return decl_buffer(shape, "uint32", name)


def _rewritten(func: PrimFunc, product: _Product, index: int | None) -> PrimFunc:
    """The kernel; parameter ``index`` is the packed weight, None: the kernel packs it itself."""
    root: Any = func.body
    nests = stmt_list(root.block.body)
    at = next(i for i, nest in enumerate(nests) if any(item is product.info.block for item in all_nodes(nest)))
    last = len(product.row.indices) - 1
    row = _words_like(product.row.buffer, last, product.words, f"{product.row.buffer.name}_words")
    weight = _words_like(product.weight.buffer, product.place, product.words, f"{product.weight.buffer.name}_words")
    packing = [_packing(product, product.row.buffer, row, last, product.shifted)]
    alloc = [row]
    params, buffer_map = list(func.params), dict(func.buffer_map)
    start = None
    if index is None:
        packing.append(_packing(product, product.weight.buffer, weight, product.place, False))
        alloc.append(weight)
    else:
        buffer_map[params[index]] = weight
        if product.shifted:
            handle = Var(f"p_{weight.name}_start", "handle")
            assert product.column.dom is not None
            start = decl_buffer([product.column.dom], "int32", f"{weight.name}_start")
            params.insert(_inputs(func), handle)
            buffer_map[handle] = start
    nests[at : at + 1] = [*packing, _over_words(nests[at], product, row, weight, start)]
    block = root.block.with_fields(body=SeqStmt(nests), alloc_buffers=[*root.block.alloc_buffers, *alloc])
    made: PrimFunc = func.with_fields(body=root.with_fields(block=block), params=params, buffer_map=buffer_map)
    return made


def _inputs(func: PrimFunc) -> int:
    """How many parameters come before the first one that is written."""
    written = {item.buffer.data for item in all_nodes(func.body) if isinstance(item, BufferStore)}
    for i, param in enumerate(func.params):
        if param in func.buffer_map and func.buffer_map[param].data in written:
            return i
    return len(func.params)


def _packing(product: _Product, source: Buffer, words: Buffer, place: int, shifted: bool) -> Stmt:
    """The nest that packs neighbours along an axis; what is missing in the last word is zero."""
    count, bits = product.count, 32 // product.count
    axes = [Var(f"v{i}", str(size.dtype)) for i, size in enumerate(words.shape)]
    loops = [Var(f"i{i}", axis.dtype) for i, axis in enumerate(axes)]
    word, depth = axes[place], product.depth.dom or 0
    value: Any = None
    for n in range(count):
        at: list[PrimExpr] = [word * count + n if i == place else axis for i, axis in enumerate(axes)]
        element = reinterpret(f"uint{bits}", BufferLoad(source, at)).astype("uint32")
        if (product.words - 1) * count + n >= depth:
            element = if_then_else(at[place] < depth, element, IntImm("uint32", 0))
        element = element if n == 0 else element << IntImm("uint32", n * bits)
        value = element if value is None else value | element
    if shifted:
        value = value ^ IntImm("uint32", 0x01010101 * _BIAS)
    ones = [Range.from_min_extent(axis, IntImm(axis.dtype, 1)) for axis in axes]
    all_of = Range.from_min_extent(IntImm(word.dtype, 0), source.shape[place])
    whole = depth % count == 0
    neighbours = Range.from_min_extent(word * count, IntImm(word.dtype, count)) if whole else all_of
    reads = [neighbours if i == place else r for i, r in enumerate(ones)]
    block = Block(
        [IterVar(Range.from_min_extent(IntImm(a.dtype, 0), n), a, IterVar.DataPar) for a, n in zip(axes, words.shape)],
        [BufferRegion(source, reads)],
        [BufferRegion(words, ones)],
        words.name,
        BufferStore(words, value, axes),
        annotations={KEPT_ATTR: 1},
    )
    body: Any = BlockRealize(loops, True, block)
    for loop, size in reversed(list(zip(loops, words.shape, strict=True))):
        body = For(loop, IntImm(loop.dtype, 0), size, ForKind.SERIAL, body)
    return body


def _over_words(nest: Stmt, product: _Product, row: Buffer, weight: Buffer, start: Buffer | None) -> Stmt:
    """The product's nest with its reduction over words."""
    info, block = product.info, product.info.block
    store: Any = info.store
    operands = [BufferLoad(row, product.row.indices), BufferLoad(weight, product.weight.indices)]
    if product.intrinsic == "dot_u8s8x4" and product.weight.dtype == "uint8":
        operands.reverse()  # the first one is unsigned
    dot = Call(store.value.dtype, Op.get(f"tir.{product.intrinsic}"), operands)
    extent = IntImm(product.depth.extent.dtype, product.words)
    init = block.init
    if start is not None and init is not None:
        init = init.with_fields(value=BufferLoad(start, [product.column.var]))
    swapped = {product.row.buffer: row, product.weight.buffer: weight}
    reads = [_region(r, swapped, product) for r in block.reads]
    if start is not None:
        reads.append(
            BufferRegion(start, [Range.from_min_extent(product.column.var, IntImm(product.column.var.dtype, 1))])
        )
    made = block.with_fields(
        iter_vars=[
            iv.with_fields(dom=Range.from_min_extent(iv.dom.min, extent)) if iv.var is product.depth.var else iv
            for iv in block.iter_vars
        ],
        reads=reads,
        body=store.with_fields(value=Add(BufferLoad(store.buffer, store.indices), dot)),
        init=init,
    )
    loops: list[For] = []
    inner: Any = nest
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    var = inner.iter_values[[iv.var for iv in block.iter_vars].index(product.depth.var)]
    body: Any = inner.with_fields(block=made)
    for loop in reversed(loops):
        body = loop.with_fields(body=body, **({"extent": extent} if loop.loop_var is var else {}))
    return body


def _region(read: BufferRegion, swapped: dict[Buffer, Buffer], product: _Product) -> BufferRegion:
    words = swapped.get(read.buffer)
    return read if words is None else BufferRegion(words, read.region)


# ---- the calls


def packed_words(weight: np.ndarray[Any, Any], place: int) -> np.ndarray[Any, Any]:
    """Words of the neighbours along an axis, the last filled with zeros; that axis has a word for each two or four.

    >>> packed_words(np.arange(1, 6, dtype="int8").reshape(5, 1), 0).tolist()
    [[67305985], [5]]
    """
    count = 4 // weight.itemsize
    missing = -weight.shape[place] % count
    widths = [(0, missing if i == place else 0) for i in range(weight.ndim)]
    bits = np.pad(weight.view(f"uint{8 * weight.itemsize}"), widths)
    split = bits.reshape(*bits.shape[:place], bits.shape[place] // count, count, *bits.shape[place + 1 :])
    return np.ascontiguousarray(np.moveaxis(split, place + 1, -1)).view("uint32")[..., 0]


class _Words:
    """Packs constants; one used twice is packed once."""

    def __init__(self) -> None:
        self.packed: dict[tuple[int, int], Constant] = {}

    def repacked(self, product: _Product, index: int | None) -> Repacked:
        """Function that packs the arguments of a kernel, whose parameter ``index`` is the weight."""

        def pack(fields: list[Any]) -> list[Any]:
            if index is None:
                return fields
            weight = fields[index]
            key = id(weight), product.place
            if key not in self.packed:
                self.packed[key] = Constant(packed_words(weight.data.numpy(), product.place))
            fields[index] = self.packed[key]
            return [*fields, Constant(_start(weight.data.numpy(), product))] if product.shifted else fields

        return pack


def _start(weight: np.ndarray[Any, Any], product: _Product) -> np.ndarray[Any, Any]:
    """What the sums of columns start at, so that 128 added to every element of a row makes no difference.

    Of signed operands the row has 128 more than it should; of unsigned ones 128 less, its bytes being read as signed.
    """
    axis = next(i for i, index in enumerate(product.weight.indices) if uses_var(index, product.column.var))
    others = tuple(i for i in range(weight.ndim) if i != axis)
    sums = weight.astype(np.int64).sum(others) * _BIAS
    sums = -sums if product.row.dtype == "int8" else sums
    return sums.astype(np.int32)
