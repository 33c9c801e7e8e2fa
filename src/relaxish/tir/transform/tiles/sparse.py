"""Products whose left operand has half of its elements, ``T.gemm_sp``: how metadata says which, and the operand made whole.

Where no instruction multiplies such operands, a kernel is rewritten before anything else is planned: the left operand is
expanded into shared memory of its own, and multiplied as every other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....arith import Analyzer
from ....arith.functor import uses_var
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import Cast, IterVar, Select, Var, const, is_call_of, is_zero
from ....ir.primops import cast as to
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...op import bitwise_and, shift_right
from ...stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from ..base import seq
from .names import CLEAR, LOOPS, OP, PARALLEL, POLICY
from .product import Product, operands_of
from .program import Kernel, Nest, TileLoweringError, as_int, loads_of, nest_of
from .skewed import is_skewed

__all__ = ["SparseProduct", "Sparsity", "expand", "sparse_product_of"]


@dataclass(frozen=True)
class Sparsity:
    """Metadata in words of ``word_bits`` for elements of ``bits``: four bits for each group of elements.

    Of elements of 8 and 16 bits two of four are stored, and each has its place in the group in two bits, the first in the
    lower ones. Of two elements of 32 bits one is stored: the uppermost of the four bits says which.
    """

    bits: int
    word_bits: int

    @property
    def group(self) -> int:
        """Elements of a group, half of which are stored."""
        return 2 if self.bits == 32 else 4

    @property
    def dense_per_word(self) -> int:
        """Elements, stored or not, that a word is about."""
        return self.word_bits // 4 * self.group

    @property
    def stored_per_word(self) -> int:
        """Stored elements that a word is about."""
        return self.dense_per_word // 2

    def within(self, word: PrimExpr, stored: PrimExpr) -> PrimExpr:
        """Position of a stored element within its group; ``word`` is the metadata of the group's word."""
        each, low = (4, 3) if self.group == 2 else (2, 0)
        shift = stored % self.stored_per_word * each + low
        bits = shift_right(Cast("uint32", word), Cast("uint32", shift))
        return Cast(stored.dtype, bitwise_and(bits, const(1 if self.group == 2 else 3, "uint32")))

    def place(self, word: PrimExpr, stored: PrimExpr) -> PrimExpr:
        """Index of a stored element along the dense depth."""
        return stored // (self.group // 2) * self.group + self.within(word, stored)


@dataclass(frozen=True)
class SparseProduct(Product):
    """A product whose ``a`` is indexed by stored elements along the depth, and ``e`` by words: both where ``k`` stands."""

    e: BufferLoad
    sparsity: Sparsity


def sparse_product_of(nest: Nest) -> SparseProduct:
    """The parts of a sparse product, its ``b`` as that of a dense one of the whole depth.

    Raises TileLoweringError where a side is not constant, or the place of the right operand is read from memory.
    """
    (i, m), (j, n), (r, stored) = nest.loops
    a, b = operands_of(nest)
    words = [(d, load) for d, index in enumerate(b.indices) for load in loads_of(index)]
    if len(words) != 1:
        raise TileLoweringError(
            f"T.gemm_sp: where {b.buffer.name} begins is read from memory; assign it to a T.alloc_var first"
        )
    (at, e), k = words[0], Var("k", r.dtype)
    analyzer, start = Analyzer(), {r: const(0, r.dtype)}

    def along(index: PrimExpr) -> PrimExpr:
        """The index of the first element, ``k`` further on."""
        begin = analyzer.simplify(substitute(index, start))
        return k if is_zero(begin) else begin + k

    right = BufferLoad(b.buffer, [along(_AtFirst().visit(x)) if d == at else x for d, x in enumerate(b.indices)])
    left = BufferLoad(a.buffer, [substitute(x, {r: k}) for x in a.indices])
    meta = BufferLoad(e.buffer, [along(x) if uses_var(x, r) else x for x in e.indices])
    return SparseProduct(
        i, j, k, as_int(m, "a side of T.gemm_sp"), as_int(n, "a side of T.gemm_sp"),
        2 * as_int(stored, "the depth of T.gemm_sp"), nest.store, left, right, not uses_var(a.indices[-1], r),
        at == len(b.indices) - 1, as_int(nest.attrs[POLICY], "policy"), CLEAR in nest.attrs, meta,
        Sparsity(dt.bits(a.buffer.dtype), dt.bits(e.buffer.dtype)),
    )  # fmt: skip


class _AtFirst(Mutator):
    """Places of elements within their groups as the first one."""

    def visit_Cast(self, node: Cast) -> PrimExpr:
        if is_call_of(node.value, "tir.bitwise_and") and loads_of(node):
            return const(0, node.dtype)
        made: PrimExpr = self.default_visit(node)
        return made


# -- the operand made whole


def expand(kernel: Kernel, stays: Callable[[SparseProduct], bool]) -> Kernel:
    """The kernel with its sparse products as dense ones of expanded operands, but for those that stay.

    Raises TileLoweringError in loops that place their statements in stages, where there would be more statements.
    """
    change = _Expand(stays)
    body = change.visit(kernel.block.body)
    if not change.made:
        return kernel
    return replace(
        kernel, block=kernel.block.with_fields(body=body, alloc_buffers=(*kernel.block.alloc_buffers, *change.made))
    )


class _Expand(Mutator):
    def __init__(self, stays: Callable[[SparseProduct], bool]) -> None:
        super().__init__()
        self.stays = stays
        self.made: list[Buffer] = []
        self.skewed = False

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_For(self, node: For) -> Stmt:
        nest = nest_of(node)
        if nest is None:
            outer, self.skewed = self.skewed, self.skewed or is_skewed(node)
            made: Stmt = self.default_visit(node)
            self.skewed = outer
            return made
        if nest.op != "gemm_sp":
            return node
        p = sparse_product_of(nest)
        if self.stays(p):
            return node
        if self.skewed:
            raise TileLoweringError(
                "T.gemm_sp is a copy and a product here, which a loop with stage= and order= has no places for; leave these out"
            )
        dense = decl_buffer([p.m, p.depth], p.a.buffer.dtype, f"{p.a.buffer.name}_dense", scope="shared.dyn")
        self.made.append(dense)
        return seq([_expansion(p, dense), _product(nest, p, dense)])


def _expansion(p: SparseProduct, dense: Buffer) -> Stmt:
    """Loops over rows, groups, and the elements of a group."""
    dtype, sparsity = p.i.dtype, p.sparsity
    i, g, t = (Var(name, dtype) for name in ("i", "g", "t"))
    half = sparsity.group // 2
    word = substitute(p.e, {p.i: i, p.k: g * half // sparsity.stored_per_word})
    value: PrimExpr = const(0, dense.dtype)
    for stored in reversed([g * half + s for s in range(half)]):
        element = substitute(p.a, {p.i: i, p.k: stored})
        value = Select(sparsity.within(word, stored).equal(t), element, value)
    body: Stmt = BufferStore(dense, value, [i, g * sparsity.group + t])
    loops = ((i, p.m), (g, p.depth // sparsity.group), (t, sparsity.group))
    for position, (var, extent) in reversed(list(enumerate(loops))):
        notes = {} if position else {PARALLEL: len(loops)}
        body = For(var, const(0, dtype), const(extent, dtype), ForKind.SERIAL, body, None, notes)
    return body


def _product(nest: Nest, p: SparseProduct, dense: Buffer) -> Stmt:
    """The product of the whole operand."""
    i, j, k = names = [Var(f"v{v}", p.i.dtype) for v in "ijk"]
    c, place = p.c, [substitute(x, {p.i: i, p.j: j}) for x in p.store.indices]
    right = substitute(p.b, {p.j: j, p.k: k})
    term = to(c.dtype, BufferLoad(dense, [i, k])) * to(c.dtype, right)
    body = BufferStore(c, BufferLoad(c, place) + term, place)
    init = None if nest.init is None else substitute(nest.init, {p.i: i, p.j: j})
    loops = [(Var(v, p.i.dtype), extent) for v, extent in zip("ijk", (p.m, p.n, p.depth), strict=True)]
    kinds = (IterVar.DataPar, IterVar.DataPar, IterVar.CommReduce)
    axes = [IterVar(Range(0, extent), name, kind) for (_, extent), name, kind in zip(loops, names, kinds, strict=True)]
    block = Block(axes, (), (), "gemm", body, init, (), (), {**nest.attrs, OP: "gemm", LOOPS: 3})
    made: Stmt = BlockRealize([v for v, _ in loops], True, block)
    for var, extent in reversed(loops):
        made = For(var, const(0, var.dtype), const(extent, var.dtype), ForKind.SERIAL, made)
    return made
