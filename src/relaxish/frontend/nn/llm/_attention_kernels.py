"""Attention kernels over pages or ragged rows, as loop programs made for one model's sizes.

All are one algorithm: for each query row and head, walk over the keys once, keep the largest score so far, the sum of
the exponentials relative to it and the weighted sum of values (rescaled whenever the largest score grows). Kernels
differ in where keys lie (:class:`_Keys`) and which of them a row sees. Scores are in base 2, and so are the returned
logarithms of sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from .... import tir
from ....script.ir_builder import IRBuilder
from ....script.ir_builder import tir as T
from ....tir import Buffer, PrimExpr
from ._threads import WARP, rows_by_threads
from .position_embedding import rotated

LOG2_E = math.log2(math.e)
_LOWEST = -5e4


@dataclass(frozen=True)
class Sizes:
    """Sizes a kernel is made for. ``threads`` binds query rows and heads to GPU blocks instead of CPU threads."""

    kv_heads: int
    q_heads: int
    key_dim: int
    value_dim: int
    dtype: str
    rope_scaling: Mapping[str, Any] | None = None
    rotary_dim: int | None = None
    threads: bool = False

    @property
    def group(self) -> int:
        """Query heads for each key head."""
        return self.q_heads // self.kv_heads


@dataclass
class Keys:
    """Keys and values of one sequence: how to read element ``d`` of token ``i`` for head ``h``, and how many there are."""

    count: Any
    key: Callable[[Any, Any, Any], Any]
    value: Callable[[Any, Any, Any], Any]
    offset: Any
    visible: Callable[[Any, Any], Any] | None = None
    position: Callable[[Any], Any] | None = None  # of a token; offset + token unless given


@dataclass
class Queries:
    """Rows of queries, their positions and where results go."""

    q: Any
    position: Callable[[Any], Any]
    out: Any
    lse: Any


@dataclass
class Rope:
    """Run-time parameters of attention."""

    mode: Any
    scale: Any
    theta: Any
    sm_scale: Any


def scalars(*names: str) -> list[Any]:
    """Scalar parameters, in order; ``causal`` and ``rotary_mode`` are integers, all others floats."""
    return [T.arg(n, tir.Var(n, "int32" if n in ("causal", "rotary_mode") else "float32")) for n in names]


def size_var(name: str) -> tir.SizeVar:
    """A symbolic dimension."""
    return tir.SizeVar(name, "int32")


def matched(handle: tir.Var, shape: Sequence[Any], dtype: str, name: str) -> Buffer:
    """A parameter as a buffer."""
    made = T.match_buffer(handle, shape, dtype, offset_factor=1)
    IRBuilder.name(name, made)
    return made


def local(stack: ExitStack, shape: Sequence[int], dtype: str, name: str) -> Buffer:
    """Memory of one thread, until ``stack`` closes."""
    made = stack.enter_context(T.decl_buffer(shape, dtype, scope="local"))
    IRBuilder.name(name, made)
    return made


def _lanes(dim: int) -> int:
    return math.gcd(dim, 16)


@contextmanager
def rows_of_heads(sizes: Sizes, rows: PrimExpr) -> Iterator[tuple[PrimExpr, PrimExpr | None]]:
    """The outer loop over ``rows * q_heads``: parallel on a CPU; on a GPU a warp takes each.

    Gives the number of the row and head, and of the thread in its warp (None on a CPU).
    """
    with rows_by_threads(rows * sizes.q_heads, sizes.threads) as found:
        yield found


class Attention:
    """Emits the walk over the keys for one query row and head."""

    def __init__(self, sizes: Sizes, rope: Rope) -> None:
        self.sizes = sizes
        self.rope = rope

    def allocate(self, stack: ExitStack) -> None:
        """Working memory; inside the parallel loop."""
        sizes = self.sizes
        self.query = local(stack, (self._slots(sizes.key_dim),), "float32", "q_row")
        self.keys = local(stack, (self._slots(sizes.key_dim),), "float32", "k_row")
        self.total = local(stack, (self._slots(sizes.value_dim),), "float32", "o_row")
        self.partial = local(stack, (self._partial_sums(),), "float32", "partial")
        self.state = local(stack, (4,), "float32", "state")  # largest score, sum, rescaling, weight

    def _slots(self, dim: int) -> int:
        """Elements of a row that one thread keeps."""
        return dim

    def _partial_sums(self) -> int:
        return _lanes(self.sizes.key_dim)

    def emit(self, queries: Queries, keys: Keys, row: PrimExpr, head: PrimExpr, kv_head: PrimExpr) -> None:
        """One row and head: ``row`` numbers the query among all rows."""
        self._load_query(queries, row, head)
        T.buffer_store(self.state, tir.const(_LOWEST, "float32"), [0])
        T.buffer_store(self.state, tir.const(1.0, "float32"), [1])
        self._each(self.total, self.sizes.value_dim, lambda d, slot: tir.const(0.0, "float32"))
        with T.serial(keys.count) as token:
            if keys.visible is None:
                self._step(keys, kv_head, token)
            else:
                with T.If(keys.visible(row, token)), T.Then():
                    self._step(keys, kv_head, token)
        inverse = tir.const(1.0, "float32") / self.state[1]
        T.buffer_store(self.state, inverse, [2])
        self._each_of(
            self.sizes.value_dim,
            lambda d, slot: T.buffer_store(
                queries.out, (self.total[slot] * self.state[2]).astype(self.sizes.dtype), [row, head, d]
            ),
        )
        self._finish(lambda: T.buffer_store(queries.lse, self.state[0] + tir.log2(self.state[1]), [row, head]))

    def _finish(self, store: Callable[[], None]) -> None:
        """Write what there is one of."""
        store()

    def _each_of(self, dim: int, store: Callable[[Any, Any], None]) -> None:
        """For each element of a row that this thread has: its place in the row and among the thread's own."""
        lanes = _lanes(dim)
        with T.serial(dim // lanes) as outer, T.vectorized(lanes) as inner:
            store(outer * lanes + inner, outer * lanes + inner)

    def _each_slowly(self, dim: int, store: Callable[[Any, Any], None]) -> None:
        """As :meth:`_each_of`, for what does not vectorise."""
        with T.serial(dim) as d:
            store(d, d)

    def _each(self, buffer: Buffer, dim: int, value: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> None:
        self._each_of(dim, lambda d, slot: T.buffer_store(buffer, value(d, slot), [slot]))

    def _load_query(self, queries: Queries, row: PrimExpr, head: PrimExpr) -> None:
        scale = self.rope.sm_scale * tir.const(LOG2_E, "float32")
        dim = self.sizes.key_dim
        plain = lambda d, _slot: queries.q[row, head, d].astype("float32") * scale
        if self.rope.mode is None:
            self._each(self.query, dim, plain)
            return

        def turn(d: PrimExpr, slot: PrimExpr) -> None:
            turned = self._turned(lambda i: queries.q[row, head, i], d, queries.position(row))
            T.buffer_store(self.query, turned * scale, [slot])

        with T.If(self.rope.mode == 1):
            with T.Then():
                self._each_slowly(dim, turn)
            with T.Else():
                self._each(self.query, dim, plain)

    def _turned(self, read: Callable[[PrimExpr], PrimExpr], d: PrimExpr, position: PrimExpr) -> PrimExpr:
        sizes = self.sizes
        rotary = sizes.rotary_dim or sizes.key_dim
        at = position.astype("float32") * self.rope.scale
        turned = rotated(read, d, at, rotary, self.rope.theta, "float32", sizes.rope_scaling)
        return turned if rotary == sizes.key_dim else tir.if_then_else(d < rotary, turned, read(d).astype("float32"))

    def _step(self, keys: Keys, kv_head: PrimExpr, token: PrimExpr) -> None:
        """Take one key into account."""
        plain = lambda d, _slot: keys.key(token, kv_head, d).astype("float32")

        def turn(d: PrimExpr, slot: PrimExpr) -> None:
            position = keys.position(token) if keys.position else keys.offset + token
            T.buffer_store(self.keys, self._turned(lambda i: keys.key(token, kv_head, i), d, position), [slot])

        if self.rope.mode is None:
            self._dot(plain)
        else:
            with T.If(self.rope.mode == 1):
                with T.Then():
                    self._each_slowly(self.sizes.key_dim, turn)
                    self._dot(lambda _d, slot: self.keys[slot])
                with T.Else():
                    self._dot(plain)
        self._share_score()
        score = self.state[3]
        dim = self.sizes.value_dim
        with T.If(score > self.state[0]):
            with T.Then():
                T.buffer_store(self.state, tir.exp2(self.state[0] - score), [2])
                T.buffer_store(self.state, score, [0])
                T.buffer_store(self.state, self.state[1] * self.state[2] + tir.const(1.0, "float32"), [1])
                self._each(
                    self.total, dim,
                    lambda d, slot: self.total[slot] * self.state[2] + self._value(keys, token, kv_head, d),
                )  # fmt: skip
            with T.Else():
                T.buffer_store(self.state, tir.exp2(score - self.state[0]), [3])
                T.buffer_store(self.state, self.state[1] + self.state[3], [1])
                self._each(
                    self.total, dim,
                    lambda d, slot: self.total[slot] + self.state[3] * self._value(keys, token, kv_head, d),
                )  # fmt: skip

    @staticmethod
    def _value(keys: Keys, token: PrimExpr, kv_head: PrimExpr, d: PrimExpr) -> PrimExpr:
        return keys.value(token, kv_head, d).astype("float32")

    def _share_score(self) -> None:
        """Make ``state[3]`` the score of the whole row; one thread has all of it already."""

    def _dot(self, key: Callable[[Any, Any], Any]) -> None:
        """``state[3] = query . key``, in lanes that are added up at the end."""
        dim = self.sizes.key_dim
        lanes = _lanes(dim)
        with T.vectorized(lanes) as lane:
            T.buffer_store(self.partial, self.query[lane] * key(lane, lane), [lane])
        if dim > lanes:
            with T.serial(1, dim // lanes) as outer, T.vectorized(lanes) as lane:
                d = outer * lanes + lane
                T.buffer_store(self.partial, self.partial[lane] + self.query[d] * key(d, d), [lane])
        sums: list[PrimExpr] = [self.partial[i] for i in range(lanes)]
        while len(sums) > 1:
            sums = [sums[i] + sums[i + 1] if i + 1 < len(sums) else sums[i] for i in range(0, len(sums), 2)]
        T.buffer_store(self.state, sums[0], [3])


class WarpAttention(Attention):
    """As :class:`Attention`, by the threads of a warp: thread ``lane`` has elements ``lane``, ``lane + 32``, ... of rows.

    All threads keep the same state; only the sum of a score goes from thread to thread.
    """

    def __init__(self, sizes: Sizes, rope: Rope, lane: PrimExpr) -> None:
        super().__init__(sizes, rope)
        self.lane = lane

    def allocate(self, stack: ExitStack) -> None:
        """Working memory of a thread."""
        super().allocate(stack)
        self.score = local(stack, (1,), "float32", "score")

    def _slots(self, dim: int) -> int:
        return -(-dim // WARP)

    def _partial_sums(self) -> int:
        return 1

    def _each_of(self, dim: int, store: Callable[[Any, Any], None]) -> None:
        with T.unroll(self._slots(dim)) as slot:
            d = slot * WARP + self.lane
            if dim % WARP == 0:
                store(d, slot)
            else:
                with T.If(d < dim), T.Then():
                    store(d, slot)

    _each_slowly = _each_of

    def _finish(self, store: Callable[[], None]) -> None:
        with T.If(self.lane == 0), T.Then():
            store()

    def _dot(self, key: Callable[[Any, Any], Any]) -> None:
        T.buffer_store(self.partial, tir.const(0.0, "float32"), [0])
        self._each_of(
            self.sizes.key_dim,
            lambda d, slot: T.buffer_store(self.partial, self.partial[0] + self.query[slot] * key(d, slot), [0]),
        )

    def _share_score(self) -> None:
        reducer = T.comm_reducer(lambda x, y: x + y, [tir.const(0.0, "float32")])
        with T.attr(reducer, "reduce_scope", tir.reinterpret("handle", tir.const(0, "uint64"))):
            T.evaluate(
                tir.call_intrin(
                    "handle",
                    "tir.tvm_thread_allreduce",
                    tir.const(1, "uint32"),
                    self.partial[0],
                    tir.const(1, "bool"),
                    self.score[0],
                    self.lane,
                )  # fmt: skip
            )
        T.buffer_store(self.state, self.score[0], [3])


def attention_by(sizes: Sizes, rope: Rope, lane: PrimExpr | None) -> Attention:
    """By one thread, or by the threads of a warp."""
    return Attention(sizes, rope) if lane is None else WarpAttention(sizes, rope, lane)


def owner_of(stack: ExitStack, indptr: Buffer, batch: PrimExpr, row: PrimExpr) -> PrimExpr:
    """A loop program piece: the sequence that row ``row`` belongs to, found by walking ``indptr``."""
    found = local(stack, (1,), "int32", "owner")
    T.buffer_store(found, tir.const(0, "int32"), [0])
    with T.serial(batch) as b, T.If(indptr[b + 1] <= row), T.Then():
        T.buffer_store(found, b + 1, [0])
    return found[0]
