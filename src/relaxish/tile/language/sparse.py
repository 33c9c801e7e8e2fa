"""Products whose left operand has half of its elements: 2:4 structured sparsity (1:2 for elements of 32 bits)."""

from __future__ import annotations

from typing import Any

from ...ir import dtype as dt
from ...ir.expr import as_expr
from ...ir.prim import const
from ...ir.primops import cast
from ...script.ir_builder import tir as B
from ...tir.transform.tiles.names import CLEAR, POLICY, SHARED
from ...tir.transform.tiles.sparse import Sparsity
from .blocks import at, tile_block
from .operators import GemmWarpPolicy, check_product, matrix_of, values_of
from .regions import Region, Tile, TileError, takes_regions

__all__ = ["gemm_sp"]


@takes_regions
def gemm_sp(
    A_sparse: Tile,
    E: Tile,
    B_: Tile | None = None,
    C: Tile | None = None,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: bool = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    **named: Any,
) -> None:
    """``C += op(A) @ op(B)``, where of every four elements of A along the depth ``A_sparse`` has two and ``E`` says which.

    ``E`` holds four bits for each four elements (for each two elements of 32 bits, of which there is one), the first in the
    lowest bits of a word of 8, 16 or 32: ``relaxish.tile.utils.sparse.compress`` makes both. Rows of ``E`` are rows of A.
    A, E and B lie in shared memory, C in a fragment. sm_80 and later multiply by ``mma.sp`` where tiles are whole pieces of
    it; otherwise A is expanded in shared memory (in a packed panel on a CPU) and multiplied as ``T.gemm`` does.
    """
    if "B" in named:
        B_ = named.pop("B")
    if named:
        raise TypeError(f"T.gemm_sp got an unexpected argument {next(iter(named))!r}")
    del k_pack, wg_wait
    a, dims_a, shape_a = matrix_of(A_sparse, "T.gemm_sp", "A_sparse")
    e, dims_e, shape_e = matrix_of(E, "T.gemm_sp", "E")
    b, dims_b, shape_b = matrix_of(B_, "T.gemm_sp", "B")
    c, dims_c, shape_c = matrix_of(C, "T.gemm_sp", "C")
    check_product("T.gemm_sp", a, b, c)
    sparsity = _sparsity(a, e)
    m, stored = values_of(shape_a)[::-1] if transpose_A else values_of(shape_a)
    rows, words = values_of(shape_e)[::-1] if transpose_E else values_of(shape_e)
    n, depth = values_of(shape_b) if transpose_B else values_of(shape_b)[::-1]
    if [m, n] != values_of(shape_c) or stored * 2 != depth:
        raise TileError(
            f"T.gemm_sp: C{values_of(shape_c)} += {'A^T' if transpose_A else 'A'}{values_of(shape_a)} @ "
            f"{'B^T' if transpose_B else 'B'}{values_of(shape_b)} does not fit: A_sparse has half of the depth of B"
        )
    if rows != m or words * sparsity.dense_per_word != depth:
        raise TileError(
            f"T.gemm_sp: E is [{m}, {depth} / {sparsity.dense_per_word}]{' transposed' if transpose_E else ''} for words of "
            f"{e.dtype}, not {values_of(shape_e)}; the sixth argument is transpose_E, transpose_B follows it"
        )

    def body(v: list[Any]) -> None:
        i, j, r = v
        left = B.BufferLoad(a.buffer, at(a, dims_a, [r, i] if transpose_A else [i, r]))
        word = r // sparsity.stored_per_word
        meta = B.BufferLoad(e.buffer, at(e, dims_e, [word, i] if transpose_E else [i, word]))
        k = sparsity.place(meta, r)
        right = B.BufferLoad(b.buffer, at(b, dims_b, [j, k] if transpose_B else [k, j]))
        place = at(c, dims_c, [i, j])
        if clear_accum:
            with B.init():
                B.buffer_store(c.buffer, const(0, c.dtype), place)
        B.buffer_store(c.buffer, B.BufferLoad(c.buffer, place) + cast(c.dtype, left) * cast(c.dtype, right), place)

    attrs: dict[str, Any] = {POLICY: int(policy)}
    if clear_accum:
        attrs[CLEAR] = 1
    tile_block("gemm_sp", [as_expr(m), as_expr(n), as_expr(stored)], "SSR", body, attrs)


def _sparsity(a: Region, e: Region) -> Sparsity:
    """How the left operand is stored. Raises TileError."""
    for region, what in ((a, "A_sparse"), (e, "E")):
        if region.buffer.scope() not in SHARED:
            raise TileError(
                f"T.gemm_sp: {what} lies in shared memory (T.alloc_shared), {region.buffer.name} has scope "
                f"{region.buffer.scope()!r}"
            )
    if not (dt.is_int(e.dtype) or dt.is_uint(e.dtype)) or dt.bits(e.dtype) not in (8, 16, 32):
        raise TileError(f"T.gemm_sp: E has words of 8, 16 or 32 bits, {e.buffer.name} has elements of {e.dtype}")
    if dt.bits(a.dtype) not in (8, 16, 32):
        raise TileError(f"T.gemm_sp: A_sparse has elements of 8, 16 or 32 bits, {a.buffer.name} has {a.dtype}")
    return Sparsity(dt.bits(a.dtype), dt.bits(e.dtype))
