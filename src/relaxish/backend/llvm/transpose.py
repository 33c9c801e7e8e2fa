"""Two innermost loops that transpose, as square tiles turned around in registers.

In ``for i: for j: B[i, j] = A[j, i]`` either the loads or the stores jump from row to row. A tile of L x L elements is
loaded as L vectors along ``i``, transposed by log2(L) rounds of shuffles, and stored as L vectors along ``j``. The last
tile of a row or column ends where that ends and overlaps the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .index_gen import VecLin
from ...arith.affine import coefficient
from ...arith.functor import uses_var
from ...ir import dtype as dt
from ...ir.prim import FloorDiv, IntImm, Mul, Sub
from ...tir import BufferLoad, BufferStore, For, ForKind
from .ltypes import scalar_type

if TYPE_CHECKING:
    from .stmt_gen import StmtGen

# Sides of tiles, the largest that fits first.
_SIDES = (16, 8, 4)


def transpose_loops(gen: StmtGen, outer: Any) -> bool:
    """Emit ``outer`` in tiles when it and its only inner loop transpose; False leaves it to others."""
    side = _side(gen, outer)
    if side is None:
        return False
    inner: Any = outer.body
    if not all(isinstance(loop.extent, IntImm) for loop in (outer, inner)):
        _sized(gen, outer, inner, side)
        return True

    def tile(i: str, j: str) -> None:
        _tile(gen, outer, inner, (_first(gen, outer, i, side), _first(gen, inner, j, side)), side)

    writes = gen.writes_of(outer)
    rows, columns = (-(-loop.extent.value // side) for loop in (outer, inner))
    gen.counted_loop(
        "0", str(rows), writes, True,
        lambda i: gen.counted_loop("0", str(columns), writes, True, lambda j: tile(i, j)),
    )  # fmt: skip
    return True


def _tile(gen: StmtGen, outer: Any, inner: Any, at: tuple[str, str], side: int) -> None:
    """The tile that begins at these iterations of the two loops."""
    store = inner.body
    vectors = []
    for r in range(side):
        _bind(gen, outer, at[0], 0)
        _bind(gen, inner, at[1], r)
        vectors.append(_load(gen, store.value, side))
    for r, vector in enumerate(_transposed(gen, vectors, store.value.dtype)):
        _bind(gen, outer, at[0], r)
        _bind(gen, inner, at[1], 0)
        terms, consts = _place(gen, store)
        offset = terms, tuple(consts[0] + lane for lane in range(side))
        gen.store_elements(store.buffer, offset, vector, dt.with_lanes(store.value.dtype, side))


def _sized(gen: StmtGen, outer: Any, inner: Any, side: int) -> None:
    """Tiles of loops whose extents are known only at run time, then what they leave over."""
    writes = gen.writes_of(outer)
    rows, columns = (gen.materialize(gen.lin(FloorDiv(loop.extent, _number(loop, side)))) for loop in (outer, inner))

    def start(index: str) -> str:
        name = gen.w.pure(f"mul nuw i64 {index}, {side}", index)
        gen.nonneg.add(name)
        return name

    def row(i: str) -> None:
        gen.counted_loop("0", columns, writes, False, lambda j: _tile(gen, outer, inner, (start(i), start(j)), side))

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
    if len(store.indices) != 1 or len(load.indices) != 1 or dt.lanes(load.dtype) != 1 or dt.bits(load.dtype) < 8:
        return None
    if gen.alias_key(store.buffer.data) == gen.alias_key(load.buffer.data):
        return None
    if not isinstance(outer.min, IntImm) or not isinstance(inner.min, IntImm):
        return None
    extents = [loop.extent.value for loop in (outer, inner) if isinstance(loop.extent, IntImm)]
    most = min(gen.vector_bits // dt.bits(load.dtype), *extents, _SIDES[0])
    side = next((n for n in _SIDES if n <= most), None)
    if side is None:
        return None
    i, j = outer.loop_var, inner.loop_var
    steps = [coefficient(index[0], var) for index in (store.indices, load.indices) for var in (i, j)]
    if steps[1] != 1 or steps[2] != 1 or steps[3] == 1 or uses_var(inner.extent, i):
        return None
    # The distance of rows may be a size that is known only at run time.
    known = steps[0] is not None and steps[3] is not None
    return side if known or len(extents) < 2 else None


def _first(gen: StmtGen, loop: Any, index: str, side: int) -> str:
    """Where tile ``index`` begins: the last one so that it ends with the loop."""
    start = gen.w.pure(f"mul nuw i64 {index}, {side}", index)
    if loop.extent.value % side:
        last = loop.extent.value - side
        inside = gen.w.pure(f"icmp ult i64 {start}, {last}", start)
        start = gen.w.pure(f"select i1 {inside}, i64 {start}, i64 {last}", inside, start)
    gen.nonneg.add(start)
    return start


def _bind(gen: StmtGen, loop: Any, start: str, within: int) -> None:
    gen.lin_cache[loop.loop_var] = ({start: 1}, loop.min.value + within)
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
