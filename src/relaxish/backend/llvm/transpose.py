"""Two innermost loops that transpose, as square tiles turned around in registers.

In ``for i: for j: B[i, j] = A[j, i]`` either the loads or the stores jump from row to row. A tile of L x L elements is
loaded as L vectors along ``i``, transposed by log2(L) rounds of shuffles, and stored as L vectors along ``j``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .index_gen import VecLin
from ...arith.affine import coefficient
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.prim import FloorDiv, IntImm, Mul, Sub
from ...tir import BufferLoad, BufferStore, For, ForKind
from ...tir.stmt import Stmt
from .ltypes import scalar_type

if TYPE_CHECKING:
    from .stmt_gen import StmtGen


def transpose_loops(gen: StmtGen, outer: Any) -> bool:
    """Emit ``outer`` in tiles when it and its only inner loop transpose; False leaves it to others."""
    side = _side(gen, outer)
    if side is None:
        return False
    inner: Any = outer.body
    if not all(isinstance(loop.extent, IntImm) for loop in (outer, inner)):
        _sized(gen, outer, inner, side)
        return True
    rows, columns = (loop.extent.value // side for loop in (outer, inner))

    writes = gen.writes_of(outer)
    gen.counted_loop(
        "0", str(rows), writes, True,
        lambda i: gen.counted_loop("0", str(columns), writes, True, lambda j: _tile(gen, outer, inner, i, j, side)),
    )  # fmt: skip
    _rest(gen, outer, inner, rows * side, columns * side)
    return True


def _tile(gen: StmtGen, outer: Any, inner: Any, i: str, j: str, side: int) -> None:
    store = inner.body
    vectors = []
    for r in range(side):
        _bind(gen, outer, i, side, 0)
        _bind(gen, inner, j, side, r)
        vectors.append(_load(gen, store.value, side))
    for r, vector in enumerate(_transposed(gen, vectors, store.value.dtype)):
        _bind(gen, outer, i, side, r)
        _bind(gen, inner, j, side, 0)
        terms, consts = _place(gen, store)
        offset = terms, tuple(consts[0] + lane for lane in range(side))
        gen.store_elements(store.buffer, offset, vector, dt.with_lanes(store.value.dtype, side))


def _sized(gen: StmtGen, outer: Any, inner: Any, side: int) -> None:
    """Tiles of loops whose extents are known only at run time, then what they leave over."""
    writes = gen.writes_of(outer)
    rows, columns = (gen.materialize(gen.lin(FloorDiv(loop.extent, _number(loop, side)))) for loop in (outer, inner))

    def row(i: str) -> None:
        gen.counted_loop("0", columns, writes, False, lambda j: _tile(gen, outer, inner, i, j, side))

    gen.counted_loop("0", rows, writes, False, row)
    whole, right = (Mul(FloorDiv(loop.extent, _number(loop, side)), _number(loop, side)) for loop in (outer, inner))
    for part in (
        outer.with_fields(extent=whole, body=inner.with_fields(min=right, extent=Sub(inner.extent, right))),
        outer.with_fields(min=whole, extent=Sub(outer.extent, whole)),
    ):
        gen.one_by_one(part)


def _number(loop: For, value: int) -> IntImm:
    return IntImm(loop.loop_var.dtype, value)


def _side(gen: StmtGen, outer: For) -> int | None:
    """The side of the tiles; None when the loops are of another form."""
    inner = outer.body
    if outer.kind != ForKind.SERIAL or not isinstance(inner, For) or inner.kind != ForKind.SERIAL:
        return None
    store = inner.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
        return None
    load = store.value
    if len(store.indices) != 1 or len(load.indices) != 1 or dt.lanes(load.dtype) != 1 or dt.bits(load.dtype) < 32:
        return None
    if gen.alias_key(store.buffer.data) == gen.alias_key(load.buffer.data):
        return None
    side = min(16, gen.vector_bits // dt.bits(load.dtype))
    extents = [loop.extent.value for loop in (outer, inner) if isinstance(loop.extent, IntImm)]
    if not isinstance(outer.min, IntImm) or not isinstance(inner.min, IntImm) or any(n < side for n in extents):
        return None
    i, j = outer.loop_var, inner.loop_var
    if uses_var(inner.extent, i):
        return None
    steps = [coefficient(index[0], var) for index in (store.indices, load.indices) for var in (i, j)]
    if steps[1] != 1 or steps[2] != 1 or steps[3] == 1:
        return None
    # The distance of rows may be a size that is known only at run time.
    known = steps[0] is not None and steps[3] is not None
    return side if known or len(extents) < 2 else None


def _bind(gen: StmtGen, loop: Any, index: str, side: int, within: int) -> None:
    gen.nonneg.add(index)
    gen.lin_cache[loop.loop_var] = ({index: side}, loop.min.value + within)
    gen.ranges.pop(loop.loop_var, None)


def _place(gen: StmtGen, access: BufferLoad | BufferStore) -> VecLin:
    """Where the one element of an access lies."""
    offset = gen.offset_of(access.buffer, access.indices)
    assert not isinstance(offset, list)
    return offset


def _load(gen: StmtGen, load: BufferLoad, side: int) -> str:
    terms, consts = _place(gen, load)
    offset = terms, tuple(consts[0] + lane for lane in range(side))
    value: str = gen.load_elements(load.buffer, offset, dt.with_lanes(load.dtype, side))
    return value


def _transposed(gen: StmtGen, vectors: list[str], dtype: str) -> list[str]:
    """Each round swaps the off-diagonal blocks of size ``step`` of all 2 x 2 blocks."""
    side = len(vectors)
    ty = f"<{side} x {scalar_type(dtype)}>"
    step = 1
    while step < side:
        upper = ", ".join(f"i32 {t if not t & step else side + t - step}" for t in range(side))
        lower = ", ".join(f"i32 {t + step if not t & step else side + t}" for t in range(side))
        for r in range(side):
            if not r & step:
                a, b = vectors[r], vectors[r + step]
                vectors[r], vectors[r + step] = (
                    gen.w.pure(f"shufflevector {ty} {a}, {ty} {b}, <{side} x i32> <{mask}>", a, b)
                    for mask in (upper, lower)
                )
        step *= 2
    return vectors


def _rest(gen: StmtGen, outer: Any, inner: Any, rows: int, columns: int) -> None:
    """What the tiles leave over: columns right of them, then the rows below."""
    if columns < inner.extent.value:
        right = _part(inner, columns, inner.extent.value)
        gen.stmt(_part(outer, 0, rows).with_fields(body=right))
    if rows < outer.extent.value:
        gen.stmt(_part(outer, rows, outer.extent.value))


def _part(loop: Any, begin: int, end: int) -> Stmt:
    dtype = loop.loop_var.dtype
    return loop.with_fields(min=IntImm(dtype, loop.min.value + begin), extent=IntImm(dtype, end - begin))
