"""Tile programs of one product on Hopper: handed to the warp-specialised lowering (``wgmma``, bulk tensor copies).

A program qualifies that clears its sums, multiplies two tiles from shared memory in one pipelined loop, and writes the sums
back through element-wise statements. It is rewritten with buffers in coordinates of the whole product, which is what
:mod:`..hopper_tiles` reads. Other programs multiply by ``mma.sync``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....arith import Analyzer
from ....arith.affine import coefficient
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator, all_nodes
from ....support.log import get_logger
from ....support.sequences import of_kind
from ....ir.prim import Cast, IterVar, LT, Var, const, is_zero
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, stmt_list
from ..hopper.kernel import build_kernel
from ..hopper.layout import tile_layout
from ..hopper.tiles import GEMM, STAGES, HopperError, parse_tiles
from .product import Product, product_of
from .names import EVICTIONS, FRAGMENT, GROUP, L2, SHARED, STAGE, SYNC
from .names import STAGES as TURNS
from .program import Kernel, Nest, as_int, loads_of, nest_of, options_of
from .skewed import is_skewed, stage_count

__all__ = ["lower_product"]


_log = get_logger("tile")


#: What wgmma takes.
_SHAPE = "it takes one product of shared tiles in one pipelined loop, its sums cleared before and written back after"


class _Other(Exception):
    """The program is not one product."""


def _require(condition: object) -> None:
    if not condition:
        raise _Other


def lower_product(kernel: Kernel) -> Stmt | None:
    """The kernel by ``wgmma``; None where it is not one product, or a tile does not fit the instruction: the log says so."""
    reason = ""
    for groups in _groups(kernel):
        try:
            return build_kernel(parse_tiles(_WarpgroupRewriter(kernel, groups).build()))
        except (_Other, HopperError) as error:
            reason = reason or str(error)
    if any(nest.op == "gemm" for nest in _nests(kernel)):
        _log.info("T.gemm: mma.sync or threads multiply, not wgmma: %s", reason or _SHAPE)
    return None


def _nests(kernel: Kernel) -> Iterator[Nest]:
    loops = of_kind(all_nodes(kernel.block.body), For)
    return (nest for nest in map(nest_of, loops) if nest is not None)


def _groups(kernel: Kernel) -> list[int]:
    """Consuming warpgroups to try, the number asked for first."""
    x, y, z = kernel.threads
    wanted = max(1, min(3, x * y * z // 128))
    return [wanted, *(g for g in (2, 1) if g != wanted)]


class _WarpgroupRewriter:
    def __init__(self, kernel: Kernel, groups: int) -> None:
        self.kernel = kernel
        self.groups = groups
        self.analyzer = Analyzer()
        for var, extent in kernel.grid:
            self.analyzer.bind(var, Range.from_min_extent(const(0, var.dtype), extent))

    def build(self) -> Stmt:
        """The program in the other notation. Raises _Other."""
        if L2 in self.kernel.annotations:
            _log.warning(
                "T.annotate_l2_hit_ratio: bulk copies say nothing to the cache here; the product is mma.sync, not wgmma"
            )
            raise _Other
        items = stmt_list(self.kernel.block.body)
        at = next((n for n, s in enumerate(items) if isinstance(s, For) and TURNS in s.annotations), None)
        _require(at is not None)
        assert at is not None
        loop: Any = items[at]
        copies, product = self._turn(loop)
        before = [nest_of(s) for s in items[:at]]
        after = [nest_of(s) for s in items[at + 1 :]]
        _require(all(n is not None for n in (*before, *after)))
        self._cleared([n for n in before if n is not None], product)
        self._coordinates(product, copies, loop)
        self._laid_out(product)
        body = [self._copy(copies[x.buffer], x, product) for x in (product.a, product.b)]
        body.append(self._product(product))
        stages = self._stages(loop)
        inner = For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, SeqStmt(body), None, {STAGES: max(2, stages)})
        stmt: Any = SeqStmt([inner, self._tail([n for n in after if n is not None], product)])
        for (var, extent), axis in reversed(list(zip(self.kernel.grid, "xyz", strict=False))):
            binding = IterVar(None, Var("", var.dtype), IterVar.ThreadIndex, f"blockIdx.{axis}")
            stmt = For(var, const(0, var.dtype), extent, ForKind.THREAD_BINDING, stmt, binding)
        return stmt

    def _stages(self, loop: For) -> int:
        """Copies under way: the unit's pipeline has them in one stage, the product in a later one, and waits for both at once."""
        if not is_skewed(loop):
            return stage_count(loop)
        _require(not ({SYNC, GROUP} & set(loop.annotations)))
        if STAGE not in loop.annotations:
            return stage_count(loop)
        stage = [as_int(e, "a stage") for e in loop.annotations[STAGE]]
        _require(len(stage) == 3 and stage[0] == stage[1] < stage[2])
        return stage[2] - stage[0] + 1

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _turn(self, loop: Any) -> tuple[dict[Buffer, Nest], Product]:
        nests = [nest_of(s) for s in stmt_list(loop.body)]
        _require(len(nests) == 3 and all(n is not None for n in nests))
        found = [n for n in nests if n is not None]
        products = [n for n in found if n.op == "gemm"]
        copies = {n.body.buffer: n for n in found if n.op == "copy" and isinstance(n.body, BufferStore)}
        _require(not any(options_of(n) & {"disable_tma", *EVICTIONS} for n in found))
        _require(len(products) == 1 and len(copies) == 2 and found[-1].op == "gemm")
        p = product_of(products[0])
        _require(not p.clear and p.a.buffer in copies and p.b.buffer in copies)
        _require(all(x.buffer.scope() in SHARED for x in (p.a, p.b)))
        _require(is_zero(loop.min))
        return copies, p

    def _laid_out(self, p: Product) -> None:
        """Layouts that the program asked for are those that copies and products of the unit share."""
        _require(all(buffer in (p.a.buffer, p.b.buffer) for buffer in self.kernel.orders))
        for load, rows, by_rows in ((p.a, p.m, p.turned_a), (p.b, p.n, not p.turned_b)):
            order = self.kernel.orders.get(load.buffer)
            if order is not None:
                own = tile_layout(rows, p.depth, load.buffer.dtype, by_rows).table()
                _require(order.table.shape == own.shape and bool((order.table == own).all()))

    def _cleared(self, nests: list[Nest], p: Product) -> None:
        _require(len(nests) == 1 and nests[0].op == "fill")
        _require(isinstance(nests[0].body, BufferStore))
        store = nests[0].store
        _require(store.buffer is p.c and getattr(store.value, "value", None) == 0)
        _require(nests[0].extents == [p.m, p.n])

    def _coordinates(self, p: Product, copies: dict[Buffer, Nest], loop: For) -> None:
        """Where the tile begins along rows, columns and depth, and how far each goes."""
        row, depth_a = self._bases(copies[p.a.buffer], p.a, p.i, p.k, (p.m, p.depth), p.turned_a)
        column, depth_b = self._bases(copies[p.b.buffer], p.b, p.j, p.k, (p.n, p.depth), not p.turned_b)
        _require(self.analyzer.can_prove_equal(depth_a, depth_b))
        self.bases = {p.i: row, p.j: column, p.k: depth_a}
        self.sizes = {p.i: p.m, p.j: p.n, p.k: p.depth}
        _require(coefficient(depth_a, loop.loop_var) == p.depth)
        self.extents = {
            p.i: self._reach(row, p.m), p.j: self._reach(column, p.n), p.k: self.analyzer.simplify(loop.extent * p.depth),
        }  # fmt: skip

    def _bases(
        self, copy: Nest, load: BufferLoad, outer: Var, depth: Var, sizes: tuple[int, int], turned: bool
    ) -> tuple[PrimExpr, PrimExpr]:
        """First coordinates of a tile in its source: along the side that it shares with the result, and the depth."""
        sources = [x for x in loads_of(copy.store.value) if x.buffer.scope() == "global"]
        _require(len(sources) == 1 and len(copy.loops) == 2)
        wanted = (sizes[1], sizes[0]) if turned else sizes
        _require(tuple(copy.extents) == wanted)
        _require(all(a is b for a, b in zip(copy.store.indices, copy.variables, strict=True)))
        order = [depth, outer] if turned else [outer, depth]
        _require(all(a is b for a, b in zip(load.indices, order, strict=True)))
        found = {}
        for role, var in zip(order, copy.variables, strict=True):
            places = [i for i in sources[0].indices if coefficient(i, var) == 1]
            _require(len(places) == 1)
            found[role] = self.analyzer.simplify(substitute(places[0], {var: const(0, var.dtype)}))
        return found[outer], found[depth]

    def _reach(self, base: PrimExpr, size: int) -> PrimExpr:
        """How far tiles of all blocks go along an axis."""
        if is_zero(base):
            return const(size, base.dtype)
        axes = [(v, e) for v, e in self.kernel.grid if coefficient(base, v) not in (0, None)]
        _require(len(axes) == 1 and coefficient(base, axes[0][0]) == size)
        return self.analyzer.simplify(axes[0][1] * size)

    # -- writing -----------------------------------------------------------------------------------------------------------

    def _whole(self, buffer: Buffer, roles: list[Var]) -> Buffer:
        name = buffer.name
        scope = "local" if buffer.scope() == FRAGMENT else buffer.scope()
        known: dict[Any, Any] = self.__dict__.setdefault("wholes", {})
        if buffer not in known:
            known[buffer] = decl_buffer([self.extents[r] for r in roles], buffer.dtype, name, scope=scope)
        return known[buffer]

    def _block(
        self, name: str, roles: list[Var], body: Any, init: Any, annotations: dict[str, Any], reduced: Any = None
    ) -> Stmt:
        """Loops over a tile around a block in the product's coordinates. ``body`` gets them."""
        loops = {r: Var(r.name, r.dtype) for r in roles}
        axes = {r: Var(f"v{r.name}", r.dtype) for r in roles}
        values = [self.bases[r] + loops[r] for r in roles]
        iters = [
            IterVar(Range.from_min_extent(const(0, r.dtype), self.extents[r]), axes[r], 2 if r is reduced else 0)
            for r in roles
        ]
        stmt, start = body(axes), None if init is None else init(axes)
        reads: list[Any] = []
        writes: list[Any] = []
        from ...stmt import BufferRegion
        from .program import stores_of

        for nodes, regions in ((loads_of(stmt), reads), (stores_of(stmt), writes)):
            for x in nodes:
                regions.append(BufferRegion(x.buffer, [Range.from_min_extent(i, const(1, i.dtype)) for i in x.indices]))
        block = Block(iters, reads, writes, name, stmt, start, (), (), annotations)
        made: Any = BlockRealize(values, True, block)
        for r in reversed(roles):
            made = For(loops[r], const(0, r.dtype), const(self.sizes[r], r.dtype), ForKind.SERIAL, made)
        return made

    def _local(self, role: Var, axis: Any) -> PrimExpr:
        """A place in the tile as the product's coordinate less the tile's first."""
        return axis - self.bases[role]

    def _copy(self, nest: Nest, load: BufferLoad, p: Product) -> Stmt:
        order = [p.i if i is p.i else p.j if i is p.j else p.k for i in load.indices]
        whole = self._whole(load.buffer, order)

        def body(axes: dict[Var, Var]) -> Stmt:
            values = {v: self._local(r, axes[r]) for v, r in zip(nest.variables, order, strict=True)}
            return BufferStore(whole, self._plain(substitute(nest.store.value, values)), [axes[r] for r in order])

        return self._block("copy", order, body, None, {})

    def _plain(self, e: PrimExpr) -> PrimExpr:
        return _Simplify(self.analyzer).visit(e)

    def _product(self, p: Product) -> Stmt:
        a, b = (self._whole(x.buffer, list(of_kind(x.indices, Var))) for x in (p.a, p.b))
        c = self._whole(p.c, [p.i, p.j])

        def widened(x: PrimExpr) -> PrimExpr:
            return x if x.dtype == c.dtype else Cast(c.dtype, x)

        def body(axes: dict[Any, Any]) -> Stmt:
            left = BufferLoad(a, [axes[i] for i in p.a.indices])
            right = BufferLoad(b, [axes[i] for i in p.b.indices])
            place = [axes[p.i], axes[p.j]]
            return BufferStore(c, BufferLoad(c, place) + widened(left) * widened(right), place)

        def init(axes: dict[Var, Var]) -> Stmt:
            return BufferStore(c, const(0, c.dtype), [axes[p.i], axes[p.j]])

        return self._block("gemm", [p.i, p.j, p.k], body, init, {GEMM: self.groups}, p.k)

    def _tail(self, nests: list[Nest], p: Product) -> Stmt:
        """Element-wise statements after the loop, put together into one write-back."""
        _require(bool(nests))
        known: dict[Buffer, tuple[list[PrimExpr], PrimExpr]] = {}
        for nest in nests[:-1]:
            _require(nest.op in ("copy", "parallel") and isinstance(nest.body, BufferStore))
            store = nest.store
            _require(store.buffer.scope() in (FRAGMENT, *SHARED))
            _require(all(any(i is v for v in nest.variables) for i in store.indices))
            _require(len(store.indices) == len(nest.variables))
            known[store.buffer] = (list(store.indices), self._value(store.value, known, p.c))
        last = nests[-1]
        _require(last.op in ("copy", "parallel") and last.extents == [p.m, p.n])
        conditions, inner = [], last.body
        while isinstance(inner, IfThenElse) and inner.else_case is None:
            conditions.append(inner.condition)
            inner = inner.then_case
        if not isinstance(inner, BufferStore):
            raise _Other
        store = inner
        _require(store.buffer.scope() == "global")
        c = self._whole(p.c, [p.i, p.j])
        value = self._value(store.value, known, p.c)

        def body(axes: dict[Var, Var]) -> Stmt:
            places = dict(zip(last.variables, (self._local(r, axes[r]) for r in (p.i, p.j)), strict=True))
            where = {p.i: axes[p.i], p.j: axes[p.j]}

            class Result(Mutator):
                def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
                    if node.buffer is p.c:
                        return BufferLoad(c, [where[p.i], where[p.j]])
                    return self.default_visit(node)

            reads = [x for x in loads_of(value) if x.buffer is p.c]
            _require(reads and all(all(a is b for a, b in zip(x.indices, last.variables, strict=True)) for x in reads))
            _require(all(x.buffer is p.c or x.buffer.scope() == "global" for x in loads_of(value)))
            made: Any = BufferStore(
                store.buffer, self._plain(substitute(Result().visit(value), places)),
                [self.analyzer.simplify(substitute(i, places)) for i in store.indices],
            )  # fmt: skip
            for condition in reversed(conditions):
                made = IfThenElse(self._plain(substitute(condition, places)), made)
            return made

        return self._block("store", [p.i, p.j], body, None, {})

    def _value(self, e: PrimExpr, known: Mapping[Buffer, tuple[Sequence[Any], PrimExpr]], c: Buffer) -> PrimExpr:
        """An expression in which fragments are what was stored in them."""

        class Inline(Mutator):
            def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
                found = known.get(node.buffer)
                if found is None:
                    _require(node.buffer is c or node.buffer.scope() == "global")
                    return self.default_visit(node)
                names, value = found
                return substitute(value, dict(zip(names, node.indices, strict=True)))

        return Inline().visit(e)


class _Simplify(Mutator):
    """Indices and conditions in their plain form, the rest as it is."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self.analyzer = analyzer

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return BufferLoad(node.buffer, [self.analyzer.simplify(i) for i in node.indices])

    def visit_LT(self, node: LT) -> PrimExpr:
        return type(node)(self.analyzer.simplify(node.a), self.analyzer.simplify(node.b))
