"""Reading of a scheduled product of tiles: tiles, operands and the result as functions of (batch, row, column, depth).

The schedule leaves ordinary blocks (so it runs in the interpreter as it stands)::

    for bx in T.thread_binding(32, "blockIdx.x"):            tiles of the result
        for by in T.thread_binding(16, "blockIdx.y"):
            for ko in T.serial(64, annotations={"hopper.stages": 4}):
                for i, k in T.grid(128, 64): A_shared[...] = ...          any element-wise function of inputs
                for j, k in T.grid(256, 64): B_shared[...] = ...
                for i, j, k in T.grid(128, 256, 64):                      block annotated "hopper.warpgroups": 2
                    C_local[...] += A_shared[...] * B_shared[...]
            for i, j in T.grid(128, 256): D[...] = f(C_local[...], ...)   any element-wise function

Loops inside are a notation for whole tiles: which thread does what, and with which instructions, is decided by
:mod:`.hopper_kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ....arith import Analyzer
from ....arith.build import is_one
from ....arith.functor import uses_var
from ....arith.linear import detect_linear_equation
from ....ir.expr import PrimExpr, Range
from ....ir.functor import post_order_visit
from ....ir.node import Node
from ....ir.plain import plain
from ....ir.prim import LT, Add, And, Cast, IntImm, Mul, Var, const
from ....ir.structural import same_expression
from ....support.sequences import of_kind
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt, stmt_list
from ..base import LoweringError, call, is_call

__all__ = [
    "CLUSTER", "CLUSTER_COLUMNS", "EPILOGUE", "GEMM", "GROUP", "PERSISTENT", "SPLIT", "STAGES", "TILES",
    "Elementwise", "HopperError", "LinearAccess", "Roles", "TileProgram", "flat_offset", "linear_access",
    "parse_tiles",
]  # fmt: skip

STAGES = "hopper.stages"
"""Annotation of the loop over the depth: how many pairs of tiles the ring holds."""
GEMM = "hopper.warpgroups"
"""Annotation of the product's block: how many warpgroups share a tile's rows."""
TILES = "hopper.tiles"
"""Annotation of a loop over tiles: what is inside needs no threads of its own."""
CLUSTER = "hopper.cluster"
"""Annotation of the product's block: how many blocks, one below the other, fetch the columns they share together."""
CLUSTER_COLUMNS = "hopper.cluster_columns"
"""Annotation of the product's block: how many blocks, side by side, fetch the rows they share together."""
SPLIT = "hopper.split"
"""Annotation of the product's block: how many blocks share the depth of a tile and add up their sums."""
PERSISTENT = "hopper.persistent"
"""Annotation of the product's block: how many blocks process all tiles; 0: each its own."""
GROUP = "hopper.group"
"""Annotation of the product's block: bands of how many rows of tiles (of clusters) blocks walk along."""
EPILOGUE = "hopper.epilogue"
"""Annotation of the product's block: 0: results leave through shared memory where that is possible; 1: they do not."""
_OPTIONS = (PERSISTENT, GROUP, CLUSTER, CLUSTER_COLUMNS, SPLIT, EPILOGUE)


class HopperError(LoweringError):
    """A tile program that the warpgroup lowering cannot take; the message says why."""


@dataclass(frozen=True)
class Roles:
    """The coordinates of the product, as variables that tile functions are written in."""

    batch: tuple[Var, ...]
    row: Var
    column: Var
    depth: Var


@dataclass(frozen=True)
class LinearAccess:
    """A buffer read at ``base + sum(role * stride)``, in elements, where every role is below its extent."""

    buffer: Any
    base: Any
    strides: tuple[tuple[Var, Any], ...]
    extents: dict[Var, Any]


@dataclass(frozen=True)
class Elementwise:
    """``target[indices] = value``, where ``predicate`` (None: everywhere) holds; all in role variables."""

    target: Any
    indices: tuple[Any, ...]
    value: Any
    predicate: Any = None


@dataclass(frozen=True)
class TileProgram:
    """A product of tiles. Sizes in elements; ``bases`` are the first coordinates of a tile in block variables."""

    roles: Roles
    grid: tuple[tuple[Var, Any], ...]
    bases: dict[Var, Any]
    sizes: dict[Var, int]
    extents: dict[Var, Any]
    depth_loop: Var
    steps: Any
    a: Elementwise
    b: Elementwise
    result: Any
    epilogue: Elementwise
    stages: int
    warpgroups: int
    options: dict[str, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, columns, depth) of a tile."""
        r = self.roles
        return self.sizes[r.row], self.sizes[r.column], self.sizes[r.depth]


@dataclass(frozen=True)
class _Nest:
    loops: tuple[For, ...]
    realize: BlockRealize

    @property
    def block(self) -> Block:
        return self.realize.block


def parse_tiles(stmt: Stmt) -> TileProgram:
    """The tile program that a loop nest writes down. Raises HopperError."""
    return _Parser(stmt).parse()


_N = TypeVar("_N", bound=Node)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise HopperError(reason)


def _as(kind: type[_N], node: Node | None, reason: str) -> _N:
    """A node of the class that is needed here. Raises HopperError with the reason for others."""
    if not isinstance(node, kind):
        raise HopperError(reason)
    return node


def _nest(stmt: Stmt) -> _Nest:
    loops = []
    while isinstance(stmt, For):
        _require(stmt.thread_binding is None, "a loop inside a tile is bound to threads")
        loops.append(stmt)
        stmt = stmt.body
    return _Nest(tuple(loops), _as(BlockRealize, stmt, "a tile statement is not one block"))


class _Parser:
    def __init__(self, stmt: Stmt) -> None:
        self.stmt = stmt
        self.analyzer = Analyzer()
        self.grid: list[tuple[Var, Any]] = []
        # All axes of the product, and those whose last tile runs over the end, with their extents.
        self.axes: set[Var] = set()
        self.cut: dict[Var, Any] = {}

    def parse(self) -> TileProgram:
        stmt = self.stmt
        while isinstance(stmt, For) and not stmt.annotations.get(STAGES):
            tag = stmt.thread_binding.thread_tag if stmt.thread_binding is not None else ""
            _require(
                tag.startswith("blockIdx.") or is_one(stmt.extent), "a loop around the tiles is not bound to blocks"
            )
            self.grid.append((stmt.loop_var, stmt.extent))
            self.analyzer.bind(stmt.loop_var, _range(stmt))
            stmt = stmt.body
        parts = stmt_list(stmt)
        _require(len(parts) == 2, "a tile is a loop over the depth and one write-back")
        loop, tail = parts
        if not isinstance(loop, For) or STAGES not in loop.annotations or loop.kind != ForKind.SERIAL:
            raise HopperError("there is no serial loop over the depth with stages")
        self.analyzer.bind(loop.loop_var, _range(loop))
        return self._assemble(loop, int(loop.annotations[STAGES]), _nest(tail))

    def _assemble(self, loop: For, stages: int, tail: _Nest) -> TileProgram:
        nests = [_nest(s) for s in stmt_list(loop.body)]
        products = [n for n in nests if GEMM in n.block.annotations]
        _require(len(products) == 1, "there is no one product in the loop over the depth")
        (product,) = products
        gemm = product.block
        roles, a_load, b_load, result = self._roles(gemm)
        bases, sizes = self._tile(product, {v.var: v for v in gemm.iter_vars})
        wanted = {id(n.block.writes[0].buffer): n for n in nests if n is not product}
        _require(
            len(wanted) == 2 and len(nests) == 3,
            "the loop over the depth has other parts than two copies and a product",
        )
        operands = [self._copy(wanted, load) for load in (a_load, b_load)]
        values = {k: int(v) for k, v in gemm.annotations.items() if k in _OPTIONS}
        return TileProgram(
            roles, tuple(self.grid), bases, sizes, {v.var: v.dom.extent for v in gemm.iter_vars}, loop.loop_var,
            loop.extent, operands[0], operands[1], result.buffer, self._epilogue(tail, result, bases),
            stages, int(gemm.annotations[GEMM]), values,
        )  # fmt: skip

    # -- the product ---------------------------------------------------------------------------------------

    def _roles(self, gemm: Block) -> tuple[Roles, BufferLoad, BufferLoad, BufferStore]:
        init = _as(BufferStore, gemm.init, "the sum does not begin at zero")
        _require(plain(init.value) == 0, "the sum does not begin at zero")
        store = _as(BufferStore, gemm.body, "the product is no sum")
        total = _as(Add, store.value, "the product is no sum")
        kept = _as(BufferLoad, total.a, "the product does not add to its result")
        _require(kept.buffer is store.buffer, "the product does not add to its result")
        term = _as(Mul, total.b, "what is summed is no product")
        loads = [_as(BufferLoad, _uncast(x), "the factors are not plain elements") for x in (term.a, term.b)]
        target = set(of_kind(store.indices, Var))
        inside = [set(of_kind(x.indices, Var)) for x in loads]
        depth = [v.var for v in gemm.iter_vars if v.iter_type == 2]
        rows = [v for v in target & inside[0] if v not in inside[1]]
        columns = [v for v in target & inside[1] if v not in inside[0]]
        _require(len(depth) == len(rows) == len(columns) == 1, "the product has not one row, column and depth axis")
        _require(depth[0] in inside[0] and depth[0] in inside[1], "a factor does not depend on the depth")
        taken = {rows[0], columns[0], depth[0]}
        batch = tuple(v.var for v in gemm.iter_vars if v.var not in taken)
        return Roles(batch, rows[0], columns[0], depth[0]), loads[0], loads[1], store

    def _tile(self, nest: _Nest, iter_vars: dict[Var, Any]) -> tuple[dict[Var, Any], dict[Var, int]]:
        """Of each axis of the product: where the tile begins, and how long it is there."""
        bound = dict(zip(iter_vars, nest.realize.iter_values, strict=True))
        self.axes = set(iter_vars)
        self.cut = self._ends(nest.realize.predicate, bound, {v: iv.dom.extent for v, iv in iter_vars.items()})
        first = {x.loop_var: IntImm(x.loop_var.dtype, 0) for x in nest.loops}
        last = {x.loop_var: x.extent - 1 for x in nest.loops}
        bases: dict[Var, Any] = {}
        sizes: dict[Var, int] = {}
        for var, value in bound.items():
            bases[var] = self.analyzer.simplify(substitute(value, first))
            size = self.analyzer.simplify(substitute(value, last) - bases[var] + 1)
            sizes[var] = _constant(size)
        total = math.prod(_constant(loop.extent) for loop in nest.loops)
        _require(total == math.prod(sizes.values()), "the loops of a tile do not cover it once")
        return bases, sizes

    def _ends(self, predicate: PrimExpr, bindings: dict[Var, Any], extents: dict[Var, Any]) -> dict[Var, Any]:
        """The axes that a predicate keeps within their extents. Raises HopperError for one that says anything else."""
        if isinstance(predicate, IntImm):
            return {}
        found: dict[Var, Any] = {}
        for part in _conjuncts(predicate):
            names = [
                var
                for var, value in bindings.items()
                if isinstance(part, LT)
                and self.analyzer.can_prove_equal(part.a, value)
                and self.analyzer.can_prove_equal(part.b, extents[var])
            ]
            _require(bool(names), "tiles are cut by a predicate that is not the end of an axis")
            found[names[0]] = extents[names[0]]
        return found

    # -- copies and the write-back ----------------------------------------------------------------------------

    def _copy(self, nests: dict[int, _Nest], load: BufferLoad) -> Elementwise:
        nest = nests.get(id(load.buffer))
        _require(nest is not None, f"{load.buffer.name} is not copied in the loop over the depth")
        assert nest is not None
        store = _as(BufferStore, nest.block.body, "a copy is more than one store")
        _require(nest.block.init is None, "a copy is more than one store")
        names = {v.var: value for v, value in zip(nest.block.iter_vars, nest.realize.iter_values, strict=True)}
        places = dict(names)
        for at, index in zip(store.indices, load.indices, strict=True):
            if isinstance(at, Var) and at in names:
                names[at] = index
            else:
                _require(self.analyzer.can_prove_equal(at, index), "a copy does not write its tile in order")
        value = self._simplify(substitute(store.value, names))
        inner = {x.loop_var for x in nest.loops}
        _require(not _mentions(value, inner), "a copy depends on loops that its tile does not show")
        # A tile is copied whole: beyond the end of an axis it is zero.
        here: dict[Any, Any] = {role: extent for role, extent in self.cut.items() if role in names.values()}
        until = {at: here[names[at]] for at in places if names[at] in here}
        self._ends(nest.realize.predicate, {at: places[at] for at in until}, until)
        return Elementwise(load.buffer, tuple(load.indices), self._until(here, value))

    def _until(self, ends: dict[Var, Any], value: PrimExpr) -> PrimExpr:
        """``value`` where every axis is before its end, zero beyond; as it is where it is zero there anyway."""
        inside, own, other, known = None, value, value, None
        if is_call(value, "if_then_else") and plain(value.args[2]) == 0:
            inside, own, other = value.args
            known = _bounds(inside, self.axes)
        condition: Any = None
        for role, extent in ends.items():
            if known is None or role not in known or not self.analyzer.can_prove(known[role] <= extent):
                condition = role < extent if condition is None else And(condition, role < extent)
        if condition is None:
            return value
        if known is not None and inside is not None:
            return call(value.dtype, "if_then_else", And(condition, inside), own, other)
        return call(value.dtype, "if_then_else", condition, value, const(0, value.dtype))

    def _epilogue(self, nest: _Nest, result: BufferStore, bases: dict[Var, Any]) -> Elementwise:
        body: Stmt = nest.block.body
        conditions: list[PrimExpr] = []
        while isinstance(body, IfThenElse) and body.else_case is None:
            conditions.append(body.condition)
            body = body.then_case
        store = _as(BufferStore, body, "the write-back is more than one store")
        _require(nest.block.init is None, "the write-back is more than one store")
        reads = _loads(store.value, result.buffer)
        _require(
            bool(reads) and all(_same(r.indices, reads[0].indices) for r in reads),
            "the write-back reads the result unevenly",
        )
        names = {v.var: value for v, value in zip(nest.block.iter_vars, nest.realize.iter_values, strict=True)}
        values = dict(names)
        for at, role in zip(reads[0].indices, result.indices, strict=True):
            if isinstance(at, Var) and at in names:
                names[at] = role
        # A predicate speaks of loops: the loop of an axis is the coordinate less the tile's first.
        loops: dict[Var, Any] = {}
        for var, value in values.items():
            role = names[var]
            inner = [x.loop_var for x in nest.loops if _mentions(value, {x.loop_var})]
            if isinstance(role, Var) and role in bases and len(inner) == 1:
                loops[inner[0]] = role - substitute(value, {inner[0]: IntImm(inner[0].dtype, 0)})
        if not (isinstance(nest.realize.predicate, IntImm)):
            conditions.append(substitute(nest.realize.predicate, loops))
        predicate: Any = None
        for condition in conditions:
            condition = self._simplify(substitute(condition, names))
            predicate = condition if predicate is None else And(predicate, condition)
        known = {} if predicate is None else _bounds(predicate, self.axes) or {}
        for role, extent in self.cut.items():
            if role not in known or not self.analyzer.can_prove(known[role] <= extent):
                predicate = role < extent if predicate is None else And(predicate, role < extent)
        rest = {x.loop_var for x in nest.loops}
        made = Elementwise(
            store.buffer, tuple(self._simplify(substitute(i, names)) for i in store.indices),
            self._simplify(substitute(store.value, names)), predicate,
        )  # fmt: skip
        parts = (*made.indices, made.value, *([predicate] if predicate is not None else []))
        _require(not any(_mentions(p, rest) for p in parts), "the write-back has loops that the result does not show")
        return made

    def _simplify(self, e: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(e)


def _range(loop: For) -> Range:
    return Range.from_min_extent(loop.min, loop.extent)


def _constant(e: PrimExpr) -> int:
    return _as(IntImm, e, "the size of a tile is not constant").value


def _uncast(e: PrimExpr) -> PrimExpr:
    return e.value if isinstance(e, Cast) else e


def _mentions(e: PrimExpr, variables: set[Var]) -> bool:
    return any(uses_var(e, v) for v in variables)


def _loads(e: PrimExpr, buffer: Buffer) -> list[BufferLoad]:
    found: list[BufferLoad] = []
    post_order_visit(e, lambda n: found.append(n) if isinstance(n, BufferLoad) and n.buffer is buffer else None)
    return found


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return all(same_expression(x, y) for x, y in zip(a, b, strict=True))


def _conjuncts(condition: PrimExpr) -> list[Any]:
    if isinstance(condition, And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _smaller(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """The smaller of two bounds; None where nobody knows which it is."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a if a.value <= b.value else b
    return a if same_expression(a, b) else None


def _bounds(condition: PrimExpr, roles: set[Any]) -> dict[Any, Any] | None:
    """``role < extent and ...`` as a map; None for conditions of another kind."""
    match condition:
        case And():
            left, right = _bounds(condition.a, roles), _bounds(condition.b, roles)
            if left is None or right is None:
                return None
            both = {role: _smaller(left[role], right[role]) for role in set(left) & set(right)}
            return None if None in both.values() else {**left, **right, **both}
        case LT() if condition.a in roles and (not _mentions(condition.b, roles)):
            return {condition.a: condition.b}
    return None


def flat_offset(load: PrimExpr) -> PrimExpr | None:
    """The place of an element in a buffer without gaps; None for others."""
    if not isinstance(load, BufferLoad) or load.buffer.strides or not load.indices:
        return None
    offset: PrimExpr = IntImm(load.indices[0].dtype, 0)
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        offset = offset * size + index
    return offset


def linear_access(program: TileProgram, value: PrimExpr, predicate: PrimExpr | None = None) -> LinearAccess | None:
    """An element read (or stored) at a place linear in the roles, zero (or not stored) beyond bounds; else None.

    ``value`` is a BufferLoad, or ``T.if_then_else(in bounds, load, 0)``.
    """
    r = program.roles
    roles = [*r.batch, r.row, r.column, r.depth]
    extents = dict(program.extents)
    if predicate is None and is_call(value, "if_then_else"):
        predicate, value, other = value.args
        if plain(other) != 0:
            return None
    if predicate is not None:
        known = _bounds(predicate, set(roles))
        if known is None:
            return None
        extents.update(known)
    offset = flat_offset(value)
    if offset is None or not isinstance(value, BufferLoad):
        return None
    analyzer = Analyzer()
    for role in roles:
        analyzer.bind(role, Range(0, extents[role]))
    used = [v for v in roles if _mentions(offset, {v})]
    parts = detect_linear_equation(analyzer.simplify(offset), used)
    if not parts:
        return None
    strides = tuple((v, analyzer.simplify(s)) for v, s in zip(used, parts[:-1], strict=True))
    return LinearAccess(value.buffer, analyzer.simplify(parts[-1]), strides, {v: extents[v] for v in used})
