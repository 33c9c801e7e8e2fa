"""AMX: tile multiplications as instructions, with the result tiles kept in registers over a reduction loop.

A call ``amx.tdp...(c, c_stride, a, a_stride, b, b_stride)`` alone becomes three tile loads, the multiplication and a
tile store. Inside a loop that only multiplies tiles, and whose result tiles do not move with it, each result tile is
loaded before the loop and stored after it; tiles of A and B that calls of one iteration share are loaded once.
Tiles 0 to 3 hold results, 4 and 5 hold A, 6 and 7 hold B. Every function that uses tiles configures them at its entry
and releases them at its end, so each thread of a parallel loop has its own configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import PrimExpr
from .index_gen import Lin
from ...ir import dtype as dt
from ...ir.functor import all_nodes
from ...ir.prim import Call, IntImm, StringImm, Var
from ...support.errors import RelaxishError
from ...tir import AttrStmt, Evaluate, For, ForKind, SeqStmt
from ...tir.stmt import Stmt
from .amx_fallback import fallback_function

if TYPE_CHECKING:
    from .stmt_gen import StmtGen

__all__ = ["TileFile", "amx_call", "chain_products", "is_amx_call", "keep_result_tiles"]

_RESULTS = 4
_OPERANDS = {"a": (4, 5), "b": (6, 7)}
# Element bytes of A and B; C has four-byte elements.
_BYTES = {"tdpbf16ps": 2}


def is_amx_call(expr: PrimExpr) -> bool:
    """Whether an expression is a tile multiplication."""
    return (
        isinstance(expr, Call)
        and bool(expr.args)
        and isinstance(expr.args[0], StringImm)
        and expr.args[0].value.startswith("amx.tdp")
    )


class TileFile:
    """Contents of the tile registers of one function during code generation."""

    def __init__(self, gen: StmtGen) -> None:
        self.gen = gen
        self.scope = -1
        self.results: dict[Any, tuple[int, str, str]] = {}
        self.held: dict[tuple[str, Any], int] = {}
        self.turn = {"a": 0, "b": 0}
        w = gen.w
        w.module.declare("declare void @llvm.x86.ldtilecfg(ptr)")
        w.module.declare("declare void @llvm.x86.tilerelease()")
        # Palette 1; eight tiles of 16 rows of 64 bytes.
        self.config = w.module.constant(bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8]))
        w.allocas.append(f"  call void @llvm.x86.ldtilecfg(ptr {self.config})")

    def reconfigure(self) -> None:
        """After code that may have used tiles for itself."""
        self.gen.w.line(f"call void @llvm.x86.ldtilecfg(ptr {self.config})")

    def release(self) -> None:
        """Before the function returns."""
        self.gen.w.line("call void @llvm.x86.tilerelease()")

    def move(self, what: str, tile: int, pointer: str, stride: str) -> None:
        """Load or store a tile."""
        w = self.gen.w
        w.module.declare(f"declare void @llvm.x86.{what}(i8 immarg, ptr, i64)")
        w.line(f"call void @llvm.x86.{what}(i8 {tile}, ptr {pointer}, i64 {stride})")

    def operand(self, side: str, pointer: str, stride: str) -> int:
        """The tile holding an operand, loaded when it is not there yet."""
        key = (side, (pointer, stride))
        tile = self.held.get(key)
        if tile is None:
            choices = _OPERANDS[side]
            tile = choices[self.turn[side] % len(choices)]
            self.turn[side] += 1
            self.held = {k: v for k, v in self.held.items() if v != tile}
            if self.scope >= 0:
                self.held[key] = tile
            self.move("tileloadd64", tile, pointer, stride)
        return tile

    def result(self, pointer: str, stride: str) -> int:
        """The tile holding a result; inside a kept loop it was loaded before the loop."""
        if self.scope < 0:
            self.move("tileloadd64", 0, pointer, stride)
            return 0
        key = (pointer, stride)
        known = self.results.get(key)
        if known is not None:
            return known[0]
        tile = len(self.results)
        w = self.gen.w
        if tile >= _RESULTS or any(w.depth_of.get(x, 0) >= self.scope for x in key):
            raise RelaxishError("internal error: more result tiles in a loop than were counted")
        lines, scopes = w.lines, w.scopes
        w.lines, w.scopes = scopes[self.scope].pre, scopes[: self.scope]
        self.move("tileloadd64", tile, pointer, stride)
        w.lines, w.scopes = lines, scopes
        self.results[key] = (tile, pointer, stride)
        return tile

    def store_results(self) -> None:
        """After the loop that kept them."""
        for tile, pointer, stride in self.results.values():
            self.move("tilestored64", tile, pointer, stride)
        self.results.clear()
        self.scope = -1
        self.gen.w.touch_all()

    def forget_operands(self) -> None:
        """At the edge of an iteration."""
        self.held.clear()


def has_tiles(gen: StmtGen, name: str) -> bool:
    """Whether the target has the instruction ``name``."""
    needs = {"amx-tile", "amx-bf16" if name == "tdpbf16ps" else "amx-int8"}
    return needs <= set(gen.features)


def _step(gen: StmtGen, offset: PrimExpr, var: PrimExpr, low: Lin) -> int | None:
    """Elements an offset moves on with each iteration of a loop; None where that is not a constant."""
    saved = gen.lin_cache.get(var)
    values = []
    for position in (0, 1):
        gen.lin_cache[var] = (low[0], low[1] + position)
        values.append(gen.lin(offset))
    if saved is None:
        del gen.lin_cache[var]
    else:
        gen.lin_cache[var] = saved
    return values[1][1] - values[0][1] if values[0][0] == values[1][0] else None


def chain_products(gen: StmtGen, loop: For, low: Lin, count: int) -> bool:
    """Emit a loop of nothing but tile multiplications, on a machine without tiles, as one call for each result tile.

    The results do not move with the loop, so their order among one another is free, and each stays in vector
    registers over all iterations.
    """
    calls = _only_calls(loop.body, [])
    for call, loops in calls:
        instruction: Any = call.args[0]
        pointers: list[Any] = [call.args[i] for i in (1, 3, 5)]
        if has_tiles(gen, str(instruction.value).removeprefix("amx.")) or not all(_written_out(x) for x in loops):
            return False
        if _mentions(call.args[1:3], {loop.loop_var}) or len({p.args[1] for p in pointers}) != 3:
            return False
        if any(_mentions([call.args[i]], {loop.loop_var}) for i in (2, 4, 6)):
            return False
        bound = {x.loop_var: gen.lin_cache.get(x.loop_var) for x in loops}
        gen.lin_cache.update({var: ({}, 0) for var in bound})
        steps = [_step(gen, p.args[2], loop.loop_var, low) for p in pointers[1:]]
        for var, value in bound.items():
            if value is None:
                del gen.lin_cache[var]
            else:
                gen.lin_cache[var] = value
        if None in steps:
            return False
    if not calls or gen.tile_chain is not None:
        return False
    gen.tile_chain = (loop.loop_var, low, str(count))
    gen._bind(loop.loop_var, low)
    gen.stmt(loop.body)
    gen.tile_chain = None
    return True


def amx_call(gen: StmtGen, expr: Call) -> str:
    """Generate one tile multiplication."""
    instruction: Any = expr.args[0]
    name = str(instruction.value).removeprefix("amx.")
    width = _BYTES.get(name, 1)
    places = []
    for index, size in ((1, 4), (3, width), (5, width)):
        pointer = gen.visit(expr.args[index])
        terms, const = gen.lin(expr.args[index + 1])
        places += [pointer, gen.materialize(({k: v * size for k, v in terms.items()}, const * size))]
    w = gen.w
    if not has_tiles(gen, name):
        count, steps = "1", ["0", "0"]
        if gen.tile_chain is not None:
            var, low, count = gen.tile_chain
            steps = [str(width * (_step(gen, expr.args[i].args[2], var, low) or 0)) for i in (3, 5)]
        symbol = fallback_function(w.module, name)
        typed = ", ".join(f"{'i64' if i % 2 else 'ptr'} {x}" for i, x in enumerate(places))
        w.line(f'call void @"{symbol}"({typed}, i64 {count}, i64 {steps[0]}, i64 {steps[1]})')
        w.touch_all()
        return "0"
    tiles = gen.tile_file()
    c, a, b = tiles.result(*places[:2]), tiles.operand("a", *places[2:4]), tiles.operand("b", *places[4:])
    w.module.declare(f"declare void @llvm.x86.{name}(i8 immarg, i8 immarg, i8 immarg)")
    w.line(f"call void @llvm.x86.{name}(i8 {c}, i8 {a}, i8 {b})")
    if tiles.scope < 0:
        tiles.move("tilestored64", c, *places[:2])
        tiles.held.clear()
        w.touch_all()
    return "0"


def keep_result_tiles(gen: StmtGen, loop: For) -> bool:
    """Whether the result tiles of a loop can stay in registers while it runs."""
    if "amx-tile" not in gen.features or (gen.tiles is not None and gen.tiles.scope >= 0):
        return False
    calls = _only_calls(loop.body, [])
    if not calls:
        return False
    count = 0
    moving = {loop.loop_var}
    for call, loops in calls:
        moving |= {x.loop_var for x in loops if not _written_out(x)}
        size = 1
        for x in loops:
            if isinstance(x.extent, IntImm) and _written_out(x) and _mentions(call.args[1:3], {x.loop_var}):
                size *= x.extent.value
        count += size
    return count <= _RESULTS and not any(_mentions(call.args[1:3], moving) for call, _ in calls)


def _written_out(loop: For) -> bool:
    return isinstance(loop.extent, IntImm) and (loop.kind == ForKind.UNROLLED or loop.extent.value == 1)


def _only_calls(stmt: Stmt, loops: list[For]) -> list[tuple[Call, list[For]]]:
    """Every tile multiplication with the loops around it; empty when the statement does anything else."""
    match stmt:
        case Evaluate() if isinstance(stmt.value, Call) and is_amx_call(stmt.value):
            return [(stmt.value, list(loops))]
        case For() if stmt.kind in (ForKind.SERIAL, ForKind.UNROLLED):
            return _only_calls(stmt.body, [*loops, stmt])
        case AttrStmt():
            return _only_calls(stmt.body, loops)
        case SeqStmt():
            parts = [_only_calls(s, loops) for s in stmt.seq]
            return [call for part in parts for call in part] if all(parts) else []
    return []


def _mentions(exprs: Sequence[PrimExpr], variables: set[Any]) -> bool:
    return any(
        isinstance(item, Var) and (not dt.is_handle(item.dtype)) and (item in variables)
        for expr in exprs
        for item in all_nodes(expr)
    )
