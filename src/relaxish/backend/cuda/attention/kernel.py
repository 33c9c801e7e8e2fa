"""Attention as one kernel: scores stay in registers, keys and values are read once for each tile of query rows.

A block takes a tile of rows of one batch and key head, and walks over the keys::

    fetch queries, first keys, first values                # cp.async
    for each tile of keys:
        scores = queries keys^T (+ bias)                   # mma.sync, float32 sums in registers
        mask what is beyond the end or the diagonal        # only in tiles that have such keys
        weights = softmax so far; rescale sums             # in registers, rows over four threads
        sums += weights values                             # scores are operands as they lie in registers
    out = sums / totals

While a tile is multiplied, the next is on its way. Rows of all query heads that share a key head are one tile.

Source: Dao, "FlashAttention-2" (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .... import tir
from ....ir.expr import ExprLike, PrimExpr
from ....relax.scalars import const_int
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from ....script.ir_builder.tir.frame import TIRFrame
from .block import Block, bind, bind_register, flattened, float32, local, only_if, pairs, register_loops, sync_threads
from .copies import commit_copies, fetch, wait_for_copies
from .problem import AttentionProblem, Operand, is_multiple
from .results import Partial, Results
from .softmax import OnlineSoftmax
from .tiling import Tiling, padded

__all__ = ["KERNEL_ATTRS", "attention_kernel", "parameter", "partial_shapes"]

KERNEL_ATTRS = {"tir.is_scheduled": True, "tir.noalias": True, "op_pattern": 8}


def partial_shapes(problem: AttentionProblem, tiling: Tiling) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shapes of the partial sums and of their logarithms, which a kernel that splits the keys gives instead of the result."""
    rows = (tiling.parts, problem.batch, problem.kv_heads, problem.rows)
    return (*rows, problem.value_size), rows


def attention_kernel(problem: AttentionProblem, tiling: Tiling) -> tir.PrimFunc:
    """The kernel of a problem: ``attention(q, k, v[, bias][, starts_q, starts_k], out)``.

    With several parts it ends in ``(..., sums, logarithms)`` instead, which :func:`.combine.combine_kernel` takes.
    """
    with IRBuilder() as builder:
        with T.prim_func(is_private=True), ExitStack() as stack:
            T.func_name("attention")
            T.func_attr(dict(KERNEL_ATTRS))
            inputs = [("q", problem.q), ("k", problem.k), ("v", problem.v)]
            tensors = {name: parameter(name, operand.shape, problem.dtype) for name, operand in inputs}
            if problem.bias is not None:
                tensors["bias"] = parameter("bias", problem.bias.shape, problem.bias.dtype)
            if problem.starts is not None:
                tensors.update({name: parameter(name, (problem.starts,), "int32") for name in ("starts_q", "starts_k")})
            if tiling.parts == 1:
                tensors["out"] = parameter("out", problem.out.shape, problem.dtype)
            else:
                sums, logarithms = partial_shapes(problem, tiling)
                tensors["sums"] = parameter("sums", sums, "float32")
                tensors["logarithms"] = parameter("logarithms", logarithms, "float32")
            _Kernel(problem, tiling, tensors, stack).emit()
    func: tir.PrimFunc = builder.get()
    return func


def parameter(name: str, shape: tuple[Any, ...], dtype: str) -> tir.Buffer:
    """A tensor among the parameters of the function being built."""
    wide = [d if (known := const_int(d)) is None else tir.const(known, "int64") for d in shape]
    return T.arg(name, T.buffer(wide, dtype, name=name))


def _ceil_div(a: Any, b: int) -> PrimExpr:
    return (a + (b - 1)) // b


def _short(value: ExprLike) -> tir.PrimExpr:
    """A size or a number of blocks as int32."""
    number = const_int(value)
    return tir.const(number, "int32") if number is not None else tir.Cast("int32", value)


def _wide(value: float, lanes: int) -> tir.PrimExpr:
    """A float32 constant, broadcast to a vector of ``lanes``."""
    return float32(value) if lanes == 1 else tir.Broadcast(float32(value), lanes)


class _Kernel:
    """Emits the statements of one kernel."""

    def __init__(self, problem: AttentionProblem, tiling: Tiling, tensors: dict[str, Any], stack: ExitStack) -> None:
        self.problem, self.tiling, self.tensors, self.stack = problem, tiling, tensors, stack
        self.size, self.value_size = padded(problem.size), padded(problem.value_size)
        self.starts: dict[str, Any] = {}
        # Sizes of the call would go into every index, and make these too long to reason about.
        sizes = (problem.batch, problem.queries, problem.keys, problem.kv_heads)
        self.keep = bind if problem.starts is None and None not in map(const_int, sizes) else bind_register
        self.ragged = problem.starts is not None or not is_multiple(problem.keys, tiling.keys)

    def emit(self) -> None:
        """Emit the whole kernel: launch, loop over tiles of keys, output."""
        self._launch()
        if self.problem.starts is not None:
            self.stack.enter_context(only_if(self.block.first_row < self.block.rows))
        self._allocate()
        self._find_keys()
        self._begin()
        with T.serial(self.tile_count) as step:
            IRBuilder.name("step", step)
            with ExitStack() as inner:
                stage = bind(inner, "stage", step % self.tiling.buffers(self.problem))
                self._step(inner, step, stage)
        partial = None
        if self.tiling.parts > 1:
            partial = Partial(
                flattened(self.stack, self.tensors["sums"]), flattened(self.stack, self.tensors["logarithms"])
            )
        out = flattened(self.stack, self.tensors["out"]) if partial is None else None
        start = self._start_of("q") * self.problem.out.row
        Results(self.block, self.softmax, self.sums, out, partial, start).write()

    # -- the block -----------------------------------------------------------------------------------------

    def _enter(self, frame: TIRFrame, name: str) -> Any:
        made = self.stack.enter_context(frame)
        IRBuilder.name(name, made)
        return made

    def _launch(self) -> None:
        problem, tiling = self.problem, self.tiling
        self.stack.enter_context(T.attr(tir.const(0, "int32"), "explicit_sync", tir.const(1, "int32")))
        tiles = _ceil_div(problem.rows, tiling.rows)
        x = self._enter(T.launch_thread("blockIdx.x", _short(tiles * tiling.parts)), "tile")
        head = self._enter(T.launch_thread("blockIdx.y", _short(problem.kv_heads)), "head")
        batch = self._enter(T.launch_thread("blockIdx.z", _short(problem.batch)), "batch")
        thread = self._enter(T.launch_thread("threadIdx.x", tir.const(tiling.threads, "int32")), "thread")
        tile, part = (x, 0) if tiling.parts == 1 else (x // tiling.parts, x % tiling.parts)
        if problem.causal is not None and tiling.parts == 1:
            tile = _short(tiles) - 1 - tile  # the last rows have the most keys: they go first
        first_row = self.keep(self.stack, "first_row", tile * tiling.rows)
        rows, keys = self._lengths(batch)
        shared = self._enter(
            T.decl_buffer((tiling.shared_elements(problem),), problem.dtype, scope="shared.dyn"), "shared"
        )
        self.block = Block(problem, tiling, shared, thread, batch, head, first_row, part, rows, keys)

    def _lengths(self, batch: tir.PrimExpr) -> tuple[Any, Any]:
        """Rows and keys of this batch; where these are sequences' lengths, blocks beyond the end have nothing to do."""
        problem, stack = self.problem, self.stack
        if problem.starts is None:
            return self.keep(stack, "rows", _short(problem.rows)), self.keep(stack, "keys", _short(problem.keys))
        lengths = []
        for name in ("q", "k"):
            starts = self.tensors[f"starts_{name}"]
            self.starts[name] = bind_register(stack, f"start_{name}", starts[batch])
            lengths.append(bind_register(stack, f"length_{name}", starts[batch + 1] - self.starts[name]))
        return lengths[0] * problem.group, lengths[1]

    def _start_of(self, name: str) -> tir.BufferLoad | int:
        """The first row of this batch's sequence among all queries ("q") or keys ("k")."""
        return self.starts.get(name, 0)

    def _allocate(self) -> None:
        problem, tiling, stack = self.problem, self.tiling, self.stack
        m, steps = tiling.row_tiles, self.size // 16
        self.kept = tiling.keeps_queries(problem)
        self.queries = local(stack, "queries", m * 8 * (steps if self.kept else 1), problem.dtype)
        self.operand = local(stack, "operand", 8, problem.dtype)
        self.scores = local(stack, "scores", m * self.block.warp_keys // 2)
        self.weights = local(stack, "weights", m * self.block.warp_keys // 2, problem.dtype)
        self.sums = local(stack, "sums", m * self.value_size // 2)
        self.softmax = OnlineSoftmax(self.block, stack)
        key_elements, value_elements = tiling.stage_elements(problem)
        self.keys_at = tiling.query_elements(problem)
        self.values_at = self.keys_at + tiling.buffers(problem) * key_elements
        self.key_stage, self.value_stage = key_elements, value_elements

    def _find_keys(self) -> None:
        """Which tiles of keys this block walks over."""
        problem, tiling, block = self.problem, self.tiling, self.block
        end = block.keys
        if problem.causal is not None:
            self.ahead = self.keep(self.stack, "ahead", self._ahead())
            last = tir.min(block.first_row + tiling.rows, block.rows) - 1
            end = tir.min(end, block.position(last)[0] + self.ahead + 1)
        tiles = _ceil_div(end, tiling.keys)
        if problem.window is not None:
            begin = block.position(block.first_row)[0] + self.ahead - (problem.window - 1)
            self.first_tile = self.keep(self.stack, "first_tile", tir.max(begin, 0) // tiling.keys)
            tiles = tir.max(tiles - self.first_tile, 0)
        elif tiling.parts > 1:
            of_part = _ceil_div(_ceil_div(block.keys, tiling.keys), tiling.parts)
            self.first_tile = self.keep(self.stack, "first_tile", block.part * of_part)
            tiles = tir.max(tir.min(tiles - self.first_tile, of_part), 0)
        else:
            self.first_tile = tir.const(0, "int32")
        self.tile_count = self.keep(self.stack, "tile_count", tiles)

    def _ahead(self) -> tir.PrimExpr:
        """Query ``i`` sees keys up to ``i + ahead``: the distance of the corners, of whose sign only sequences know."""
        if self.problem.causal != "BottomRight":
            return tir.const(0, "int32")
        if self.problem.starts is not None:
            return self.block.keys - self.block.rows // self.problem.group
        queries, keys = const_int(self.problem.queries), const_int(self.problem.keys)
        if queries is not None and keys is not None:
            return tir.const(abs(queries - keys), "int32")
        return tir.abs(_short(self.problem.queries) - self.block.keys)

    # -- operands ------------------------------------------------------------------------------------------

    def _first_element(self, operand: Operand, head: tir.PrimExpr, start: ExprLike) -> tir.PrimExpr:
        base = operand.offset + self.block.batch * operand.batch + head * operand.head + start * operand.row
        return self.keep(self.stack, "base", base)

    def _fetch_queries(self) -> None:
        problem, block = self.problem, self.block
        base = self._first_element(problem.q, block.kv_head * problem.group, self._start_of("q"))

        def place(row: tir.FloorDiv) -> tir.Add:
            query, head = block.position(block.first_row + row)
            return base + query * problem.q.row + head * problem.q.head

        whole = problem.starts is None and is_multiple(problem.rows, self.tiling.rows)
        inside = None if whole else lambda row: block.first_row + row < block.rows
        fetch(block, self.tensors["q"], problem.q, problem.size, 0, self.tiling.rows, place, inside)

    def _fetcher(
        self, name: str, operand: Operand, size: int, at: int, stage_elements: int
    ) -> Callable[[Any, Any], None]:
        """Fetches a tile of keys or values into a stage, and closes a group."""
        tiling = self.tiling
        base = self._first_element(operand, self.block.kv_head, self._start_of("k"))

        def run(step: tir.PrimExpr, stage: Any) -> None:
            first = (self.first_tile + step) * tiling.keys
            inside = (lambda row: first + row < self.block.keys) if self.ragged else None
            fetch(
                self.block, self.tensors[name], operand, size, at + stage * stage_elements, tiling.keys,
                lambda row: base + (first + row) * operand.row, inside,
            )  # fmt: skip

        return run

    def _begin(self) -> None:
        problem = self.problem
        self.fetch_keys = self._fetcher("k", problem.k, problem.size, self.keys_at, self.key_stage)
        self.fetch_values = self._fetcher("v", problem.v, problem.value_size, self.values_at, self.value_stage)
        zero = tir.const(0, "int32")
        self._fetch_queries()
        may_be_none = self.tiling.parts > 1 or problem.window is not None
        with only_if(self.tile_count > 0 if may_be_none else None):
            self.fetch_keys(zero, zero)
        commit_copies()
        if self.tiling.stages > 1:
            with only_if(self.tile_count > 0 if may_be_none else None):
                self.fetch_values(zero, zero)
            commit_copies()
        self.softmax.begin()
        with register_loops(self.tiling.row_tiles * self.value_size // 2) as (i,):
            T.buffer_store(self.sums, float32(0.0), [i])
        block, pitch = self.block, self.tiling.pitch(problem.size)
        self.query_place = bind(
            self.stack, "query_place", block.row_warp * block.warp_rows * pitch + block.by_rows(pitch)
        )
        self.key_place = bind(
            self.stack, "key_place", block.key_warp * block.warp_keys * pitch + block.by_columns(pitch)
        )
        pitch = self.tiling.pitch(problem.value_size)
        self.value_place = bind(
            self.stack, "value_place", block.key_warp * block.warp_keys * pitch + block.by_rows(pitch)
        )
        if problem.bias is not None:
            self.bias = flattened(self.stack, self.tensors["bias"])
        if self.kept:
            wait_for_copies(self.tiling.stages - 1)
            sync_threads()
            with register_loops(self.size // 16, self.tiling.row_tiles) as (k, m):
                self._load_queries(k, m, (k * self.tiling.row_tiles + m) * 8)

    def _load_queries(self, k: tir.PrimExpr, m: tir.PrimExpr, at: tir.Mul) -> None:
        pitch = self.tiling.pitch(self.problem.size)
        self.block.load(self.queries, at, self.query_place + m * (16 * pitch) + k * 16)

    # -- one tile of keys ------------------------------------------------------------------------------------

    def _step(self, inner: ExitStack, step: tir.Var, stage: tir.PrimExpr) -> None:
        first = bind(inner, "first_key", (self.first_tile + step) * self.tiling.keys)
        self._begin_scores(first)
        several = self.tiling.stages > 1
        with self._next(step, several) as following:
            wait_for_copies(1 if several else 0)
            sync_threads()
            if several:
                following(self.fetch_keys)
            else:
                self.fetch_values(step, stage)
                commit_copies()
        self._multiply_keys(stage)
        self._mask(first)
        self.softmax.update(self.scores, self.sums, self.value_size // 8)
        with register_loops(self.tiling.row_tiles * self.block.warp_keys // 4) as (i,):
            narrow = tir.Cast(f"{self.problem.dtype}x2", self.scores[pairs(i * 2)])
            T.buffer_store(self.weights, narrow, [pairs(i * 2)])
        with self._next(step, several) as following:
            wait_for_copies(1 if several else 0)
            sync_threads()
            following(self.fetch_values if several else self.fetch_keys)
        self._multiply_values(stage)

    @contextmanager
    def _next(self, step: tir.Var, several: bool) -> Iterator[Callable[[Callable[[Any, Any], None]], None]]:
        """How to fetch something of the following tile, if there is one; a group is closed in any case."""

        def run(fetcher: Callable[[Any, Any], None]) -> None:
            with only_if(step + 1 < self.tile_count):
                fetcher(step + 1, (step + 1) % self.tiling.buffers(self.problem))
            commit_copies()

        yield run

    def _begin_scores(self, first: tir.PrimExpr) -> None:
        tiles, row_tiles = self.block.warp_keys // 8, self.tiling.row_tiles
        if self.problem.bias is None:
            with register_loops(row_tiles * tiles * 4) as (i,):
                T.buffer_store(self.scores, float32(0.0), [i])
            return
        with register_loops(row_tiles, tiles, 2) as (m, tile, half):
            key = first + self.block.key_warp * self.block.warp_keys + tile * 8 + self.block.quad * 2
            self._load_bias((m * tiles + tile) * 4 + half * 2, self.block.first_row + self.block.own_row(m, half), key)

    def _load_bias(self, at: tir.PrimExpr, row: tir.PrimExpr, key: tir.PrimExpr) -> None:
        """Products are added to the bias, so that the factor of scores must be taken out of it before."""
        problem, bias = self.problem, self.problem.bias
        assert bias is not None
        query, head = self.block.position(tir.min(row, self.block.rows - 1))
        of_head = (self.block.kv_head * problem.group + head) * bias.head
        start = bias.offset + self.block.batch * bias.batch + of_head + query * bias.row

        def scaled(value: tir.PrimExpr, lanes: int) -> tir.PrimExpr:
            factor = _wide(1.0 / problem.scale, lanes)
            return tir.Cast(factor.dtype, value) * factor

        keys, strides = self.block.keys, (bias.offset, bias.batch, bias.head, bias.row)
        if const_int(bias.column) == 1 and all(is_multiple(d, 2) for d in (problem.keys, *strides)):
            value = tir.if_then_else(key < keys, scaled(self.bias[pairs(start + key)], 2), _wide(0.0, 2))
            T.buffer_store(self.scores, value, [pairs(at)])
            return
        for i in range(2):
            inside = key + i < keys
            value = tir.if_then_else(inside, scaled(self.bias[start + (key + i) * bias.column], 1), float32(0.0))
            T.buffer_store(self.scores, value, [at + i])

    def _multiply_keys(self, stage: tir.PrimExpr) -> None:
        block, tiles = self.block, self.block.warp_keys // 8
        pitch, row_tiles = self.tiling.pitch(self.problem.size), self.tiling.row_tiles
        start = self.keys_at + stage * self.key_stage + self.key_place
        with register_loops(self.size // 16) as (k,):
            if not self.kept:
                with register_loops(row_tiles) as (m,):
                    self._load_queries(k, m, m * 8)
            with register_loops(tiles // 2) as (n,):
                block.load(self.operand, 0, start + n * (16 * pitch) + k * 16)
                with register_loops(row_tiles) as (m,):
                    left = (k * row_tiles + m) * 8 if self.kept else m * 8
                    at = (m * tiles + n * 2) * 4
                    block.multiply(self.scores, at, self.queries, left, self.operand, 0)
                    block.multiply(self.scores, at + 4, self.queries, left, self.operand, 4)

    def _mask(self, first: tir.PrimExpr) -> None:
        """Scores of keys that a row does not see become minus infinity, in tiles that have such keys."""
        problem, tiling, block = self.problem, self.tiling, self.block
        needed = []
        if self.ragged:
            needed.append(first + tiling.keys > block.keys)
        if problem.causal is not None:
            needed.append(first + tiling.keys - 1 > block.position(block.first_row)[0] + self.ahead)
        if problem.window is not None:
            last = tir.min(block.first_row + tiling.rows, block.rows) - 1
            needed.append(first <= block.position(last)[0] + self.ahead - problem.window)
        if not needed:
            return
        tiles = block.warp_keys // 8
        with only_if(needed[0] if len(needed) == 1 else tir.any(*needed)):
            with register_loops(tiling.row_tiles, tiles, 2, 2) as (m, tile, half, i):
                key = first + block.key_warp * block.warp_keys + tile * 8 + block.quad * 2 + i
                seen = [key < block.keys]
                if problem.causal is not None:
                    query = block.position(block.first_row + block.own_row(m, half))[0]
                    seen.append(key <= query + self.ahead)
                    if problem.window is not None:
                        seen.append(key > query + self.ahead - problem.window)
                at = (m * tiles + tile) * 4 + half * 2 + i
                visible = seen[0] if len(seen) == 1 else tir.all(*seen)
                T.buffer_store(self.scores, tir.Select(visible, self.scores[at], float32(float("-inf"))), [at])

    def _multiply_values(self, stage: tir.PrimExpr) -> None:
        block, tiles, row_tiles = self.block, self.block.warp_keys // 8, self.tiling.row_tiles
        pitch, columns = self.tiling.pitch(self.problem.value_size), self.value_size // 8
        start = self.values_at + stage * self.value_stage + self.value_place
        with register_loops(tiles // 2, columns // 2) as (k, n):
            block.load(self.operand, 0, start + k * (16 * pitch) + n * 16, transposed=True)
            with register_loops(row_tiles) as (m,):
                left, at = (m * tiles + k * 2) * 4, (m * columns + n * 2) * 4
                block.multiply(self.sums, at, self.weights, left, self.operand, 0)
                block.multiply(self.sums, at + 4, self.weights, left, self.operand, 4)
