"""Products of tiles: ``mma.sync`` fed by ``ldmatrix``, ``wmma``, or multiplications of threads where no matrix unit fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ir.expr import PrimExpr
from ....ir.prim import IntImm, Var, const, uncast, const_int
from ....ir.types import PointerType, PrimType
from ....support.log import get_logger
from ...buffer import Buffer, decl_buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Allocate, BufferStore, DeclBuffer, Evaluate, For, ForKind, Stmt
from ..base import call, seq
from .arch import Arch
from .layout import Layout, accumulator, by_rows, outer_product
from .mma import Mma, form_of, is_unbuilt
from .mma_sparse import SparseMma, sparse_form_of
from .names import FRAGMENT
from .product import Product, product_of
from .program import Nest, TileLoweringError, accesses, loads_of
from .sparse import SparseProduct, sparse_product_of

if TYPE_CHECKING:
    from .gpu import GpuKernel

__all__ = ["Products", "warp_grid"]

_ROWS, _COLUMNS = 1, 2
_log = get_logger("tile")


def warp_grid(m: int, n: int, warps: int, policy: int, columns: int, height: int = 16) -> tuple[int, int] | None:
    """(warps along rows, along columns) of a result in tiles of ``height`` x ``columns``; None where they do not divide it."""
    best: tuple[float, int, int] | None = None
    for rows in range(1, warps + 1):
        across = warps // rows
        if rows * across != warps or m % (height * rows) or n % (columns * across):
            continue
        tall, wide = m // rows, n // across
        cost = {_ROWS: float(across), _COLUMNS: float(rows)}.get(policy, max(tall / wide, wide / tall) + 0.01 * across)
        if best is None or cost < best[0]:
            best = (cost, rows, across)
    return None if best is None else best[1:]


class Products:
    """Matrix products of one kernel by an architecture's instructions."""

    def __init__(self, arch: Arch, threads: int) -> None:
        self.arch = arch
        self.threads = threads
        self.allocations: list[Buffer] = []
        self.open: dict[Buffer, _Open] = {}
        self.entered: list[list[Buffer]] = []
        self.scratches: dict[int, Any] = {}

    def unit(self, p: Product) -> tuple[str, int, int]:
        """("mma", "wmma" or "simt", warps along rows, along columns)."""
        warps, form = self.threads // 32, form_of(p)
        if self.threads % 32 == 0 and self.arch.unit and self._whole(p) and form is not None:
            if self.arch.unit == "mma" and self.arch.level >= form.level and p.depth % form.depth == 0:
                grid = warp_grid(p.m, p.n, warps, p.policy, 8, form.shape.m)
                if grid is not None:
                    return ("mma", *grid)
            if self.arch.unit == "wmma" and p.a.buffer.dtype == "float16" and p.depth % 16 == 0:
                grid = warp_grid(p.m, p.n, warps, p.policy, 16)
                if grid is not None:
                    return ("wmma", *grid)
        return "simt", 0, 0

    def sparse_grid(self, p: SparseProduct) -> tuple[int, int] | None:
        """(warps along rows, along columns) of a sparse product by the matrix unit; None where it has no instruction for it,
        or the tile is not whole pieces of it."""
        form = sparse_form_of(p)
        if self.arch.unit != "mma" or self.threads % 32 or form is None or not self._whole(p):
            return None
        if self.arch.level < form.level or p.depth % form.depth:
            return None
        return warp_grid(p.m, p.n, self.threads // 32, p.policy, 8, form.shape.m)

    def takes_sparse(self, p: SparseProduct) -> bool:
        """Whether the matrix unit multiplies a sparse product as it is."""
        return self.sparse_grid(p) is not None

    def _say_why(self, p: Product) -> None:
        """A note where threads multiply, though the architecture has a unit for such products or the types one elsewhere."""
        form, kinds = form_of(p), f"{p.a.buffer.dtype} x {p.b.buffer.dtype} -> {p.c.dtype}"
        if self.arch.level < 70 or (form is None and not is_unbuilt(p)):
            return
        if form is None:
            why = f"instructions for {kinds} are not written here; dequantise to float16, or sum in float32"
        elif (self.arch.unit == "wmma" and p.a.buffer.dtype != "float16") or self.arch.level < form.level:
            why = f"{self.arch.name} has no instruction for {kinds}, sm_{form.level} has"
        else:
            why = (
                f"tiles of {p.m} x {p.n} x {p.depth} among {self.threads} threads are no whole pieces of {form.shape.m} x 8 x "
                f"{form.depth} for each warp"
            )
        _log.warning("T.gemm: threads multiply one by one, no matrix unit: %s", why)

    def _whole(self, p: Product) -> bool:
        """Whether the result is all of a fragment, and operands begin where vectors may."""
        shape = [const_int(e, 0) for e in p.c.shape]
        return shape == [p.m, p.n] and [*p.store.indices] == [p.i, p.j]

    def layouts(self, nest: Nest) -> dict[Any, Layout]:
        """Layouts that a product requires of its fragments."""
        if nest.op == "gemm_sp":
            sparse = sparse_product_of(nest)
            return {sparse.c: accumulator(sparse.m, sparse.n, *self._warps(sparse))}
        p = product_of(nest)
        if not self._whole(p):
            raise TileLoweringError(
                f"T.gemm: the result is a part of fragment {p.c.name}{[str(e) for e in p.c.shape]}; products here fill whole fragments"
            )
        unit, rows, across = self.unit(p)
        if unit == "mma":
            form = form_of(p)
            assert form is not None
            wanted = {p.c: form.result(p, rows, across)}
            if p.a.buffer.scope() == FRAGMENT:
                if p.turned_a:
                    raise TileLoweringError(
                        f"T.gemm(transpose_A=True): {p.a.buffer.name} is a fragment; copy it to shared memory"
                    )
                wanted[p.a.buffer] = form.operand(p, rows, across)
            return wanted
        if unit == "wmma":
            return {p.c: by_rows(p.m, p.n, self.threads)}
        if p.policy == _ROWS:
            return {p.c: by_rows(p.m, p.n, self.threads)}
        return {p.c: outer_product(p.m, p.n, self.threads)}

    # -- lowering ----------------------------------------------------------------------------------------------------------

    def lower(self, kernel: GpuKernel, nest: Nest) -> Stmt:
        """A product as steps."""
        if nest.op == "gemm_sp":
            return self._lower_sparse(kernel, sparse_product_of(nest))
        p = product_of(nest)
        unit, rows, across = self.unit(p)
        made = []
        if p.clear:
            made.append(self._zero(kernel, p))
        if unit == "mma":
            form = form_of(p)
            assert form is not None
            body = Mma(kernel, p, form, rows, across).build()
            made.append(kernel.step(body, [p.a.buffer, p.b.buffer], []))
        elif unit == "wmma":
            made.append(self._wmma(kernel, p, rows, across))
        else:
            self._say_why(p)
            made.append(self._simt(kernel, p))
        return seq(made)

    def _warps(self, p: SparseProduct) -> tuple[int, int]:
        grid = self.sparse_grid(p)
        assert grid is not None, "others were expanded"
        return grid

    def _lower_sparse(self, kernel: GpuKernel, p: SparseProduct) -> Stmt:
        form = sparse_form_of(p)
        assert form is not None, "others were expanded"
        body = SparseMma(kernel, p, form, *self._warps(p)).build()
        step = kernel.step(body, [p.a.buffer, p.b.buffer, p.e.buffer], [])
        return seq([self._zero(kernel, p), step]) if p.clear else step

    def _zero(self, kernel: GpuKernel, p: Product) -> Stmt:
        loops = ((Var("i", "int32"), p.c.shape[0]), (Var("j", "int32"), p.c.shape[1]))
        body = BufferStore(p.c, const(0, p.c.dtype), [v for v, _ in loops])
        return kernel.elementwise(Nest("fill", loops, body, None, {}, "SS"))

    def _in_shared(self, kernel: GpuKernel, p: Product) -> tuple[list[Any], Any]:
        """Steps that bring a left operand to shared memory, and the update that reads it there."""
        buffer = p.a.buffer
        if buffer.scope() != FRAGMENT:
            return [], p.store
        from .gpu import _Swap

        other = decl_buffer(buffer.shape, buffer.dtype, f"{buffer.name}_tile", scope="shared.dyn")
        kernel.tile_in_passing(other)
        return [kernel._between(other, buffer)], _Swap({buffer: other}).visit(p.store)

    def _simt(self, kernel: GpuKernel, p: Product) -> Stmt:
        first, store = self._in_shared(kernel, p)
        layout = kernel.memory.layouts[p.c]
        loops = ((p.i, const(p.m, p.i.dtype)), (p.j, const(p.n, p.j.dtype)))
        body = kernel.spread.by_layout("gemm", loops, store, layout)
        made = For(p.k, const(0, p.k.dtype), const(p.depth, p.k.dtype), ForKind.SERIAL, body)
        return seq([*first, kernel.step(made, [x.buffer for x in loads_of(store)], [])])

    # -- wmma --------------------------------------------------------------------------------------------------------------

    def around(self, kernel: GpuKernel, loop: For) -> For:
        """Before a loop is lowered: results that only products touch in it stay in the unit meanwhile."""
        entered: list[Any] = []
        self.entered.append(entered)
        if self.arch.unit != "wmma":
            return loop
        products, others = _uses(loop.body)
        for p in products:
            unit, rows, across = self.unit(p)
            if unit == "wmma" and p.c not in others and p.c not in self.open and not p.clear:
                self.open[p.c] = _Open(self, p, rows, across)
                entered.append(p.c)
        return loop

    def leave(self, kernel: GpuKernel, stmt: Stmt) -> Stmt:
        """After it: they come back."""
        for c in self.entered.pop():
            sums = self.open.pop(c)
            stmt = seq([kernel.step(sums.fill(), [], []), stmt, *sums.add_to(kernel, c)])
        return stmt

    def _wmma(self, kernel: GpuKernel, p: Product, rows: int, across: int) -> Stmt:
        first, store = self._in_shared(kernel, p)
        sums = self.open.get(p.c)
        alone = sums is None
        if sums is None:
            sums = _Open(self, p, rows, across)
        a = uncast(store.value.b.a)
        made = [kernel.step(sums.multiply(kernel, p, a), [a.buffer, p.b.buffer], [])]
        if alone:
            made = [kernel.step(sums.fill(), [], []), *made, *sums.add_to(kernel, p.c)]
        return seq([*first, *made])

    def fragment(self, name: str, dtype: str, count: int, scope: str) -> Buffer:
        """Registers of the matrix unit."""
        data = Var(name, PointerType(PrimType(dtype), scope))
        made = decl_buffer([count * 256], dtype, name, data=data, scope=scope)
        self.allocations.append(made)
        return made

    def wrap(self, body: Stmt) -> Stmt:
        """The kernel with the unit's registers around."""
        for buffer in self.allocations:
            body = Allocate(
                buffer.data, buffer.dtype, list(buffer.shape), const(True, "bool"), DeclBuffer(buffer, body)
            )
        return body


def _uses(body: Stmt) -> tuple[list[Product], set[Any]]:
    """(products, buffers that other statements touch) of a loop's body."""
    from .infer import nests_of

    products, others = [], set()
    for nest in nests_of(body):
        if nest.op == "gemm":
            p = product_of(nest)
            products.append(p)
            others.add(p.a.buffer)
        else:
            others |= {x.buffer for x in accesses(nest.body)}
    return products, others


class _Open:
    """A result in the registers of ``wmma``, whose distribution nobody knows: sums that begin at zero and are added later."""

    def __init__(self, products: Products, p: Product, rows: int, across: int) -> None:
        self.owner = products
        self.rows, self.across = rows, across
        self.tall, self.wide = p.m // rows // 16, p.n // across // 16
        self.n = p.n
        self.dtype = p.c.dtype
        self.sums = products.fragment(f"{p.c.name}_sums", p.c.dtype, self.tall * self.wide, "wmma.accumulator")

    def fill(self) -> Stmt:
        """All sums zero."""
        return seq([
            Evaluate(call("handle", "tvm_fill_fragment", self.sums.data, *_SIXTEEN, const(n, "int32"), const(0, "float32")))
            for n in range(self.tall * self.wide)
        ])  # fmt: skip

    def _warp(self, kernel: GpuKernel) -> tuple[PrimExpr, PrimExpr]:
        warp = kernel.thread // 32
        return warp % self.rows, warp // self.rows

    def multiply(self, kernel: GpuKernel, p: Product, a_load: BufferLoad) -> Stmt:
        """Add a product to the sums."""
        a = self.owner.fragment("left", p.a.buffer.dtype, self.tall, "wmma.matrix_a")
        b = self.owner.fragment("right", p.b.buffer.dtype, self.wide, "wmma.matrix_b")
        row, column = self._warp(kernel)
        k = Var("k16", "int32")
        body: list[Any] = []
        for t in range(self.tall):
            at = {p.i: row * (self.tall * 16) + t * 16, p.k: k * 16}
            body.append(_load(kernel, a, t, a_load, at, p.turned_a))
        for w in range(self.wide):
            at = {p.j: column * (self.wide * 16) + w * 16, p.k: k * 16}
            body.append(_load(kernel, b, w, p.b, at, p.turned_b))
        for t in range(self.tall):
            for w in range(self.wide):
                place = const(t * self.wide + w, "int32")
                body.append(Evaluate(call(
                    "handle", "tvm_mma_sync", self.sums.data, place, a.data, const(t, "int32"), b.data, const(w, "int32"),
                    self.sums.data, place,
                )))  # fmt: skip
        return For(k, const(0, "int32"), const(p.depth // 16, "int32"), ForKind.SERIAL, seq(body))

    def add_to(self, kernel: GpuKernel, c: Any) -> list[Stmt]:
        """Steps that add the sums to the result's registers, by way of shared memory."""
        m = self.rows * self.tall * 16
        buffer = decl_buffer([m, self.n], self.dtype, f"{c.name}_room", scope="shared.dyn")
        kernel.tile_in_passing(buffer)
        kept = kernel.memory.shared[buffer]
        row, column = self._warp(kernel)
        stores: list[Stmt] = []
        for t in range(self.tall):
            for w in range(self.wide):
                at = kept.offset([row * (self.tall * 16) + t * 16, column * (self.wide * 16) + w * 16])
                stores.append(Evaluate(call(
                    "handle", "tvm_store_matrix_sync", self.sums.data, *_SIXTEEN, const(t * self.wide + w, "int32"),
                    _pointer(kept.view, at, "w"), const(kept.pitch, "int32"), "row_major",
                )))  # fmt: skip
        loops = ((Var("i", "int32"), const(m, "int32")), (Var("j", "int32"), const(self.n, "int32")))
        place = [v for v, _ in loops]
        add = BufferStore(c, BufferLoad(c, place) + BufferLoad(buffer, place), place)
        return [
            kernel.step(seq(stores), [], [buffer]),
            kernel.elementwise(Nest("gemm", loops, add, None, {}, "SS")),
        ]


_SIXTEEN = tuple(IntImm("int32", 16) for _ in range(3))


def _pointer(view: Buffer, offset: PrimExpr, mask: str) -> PrimExpr:
    return view.access_ptr(mask, offset=offset)


def _load(
    kernel: GpuKernel, fragment: Buffer, index: int, load: BufferLoad, at: dict[Var, PrimExpr], turned: bool
) -> Stmt:
    kept = kernel.memory.shared[load.buffer]
    if kept.row_pitch is None:
        raise TileLoweringError(
            f"T.annotate_layout: {load.buffer.name} is an operand of wmma, which reads rows that lie at one distance: {kernel.arch.name} "
            "multiplies no swizzled tiles; leave the layout out for it, or use a padded one"
        )
    place = kept.offset([substitute(i, at) for i in load.indices], kernel.memory.turns.get(load.buffer))
    return Evaluate(call(
        "handle", "tvm_load_matrix_sync", fragment.data, *_SIXTEEN, const(index, "int32"), _pointer(kept.view, place, "r"),
        const(kept.row_pitch, "int32"), "col_major" if turned else "row_major",
    ))  # fmt: skip
