"""Warp operations and barriers, for kernels written for one thread (``T.get_thread_binding``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.expr import ExprLike, PrimExpr, as_expr
from ...ir.prim import And, StringImm, const, const_int
from ...ir.primops import cast, max_, min_
from ...script.ir_builder import tir as B
from ...tir import Buffer, BufferLoad, Evaluate, IfThenElse, bitwise_and, bitwise_or, decl_buffer
from ...tir.op import call_builtin
from .blocks import inside_kernel
from .regions import TileError

if TYPE_CHECKING:
    from .kernel import KernelFrame

__all__ = [
    "activemask", "all_sync", "alloc_barrier", "any_sync", "ballot", "ballot_sync", "barrier_arrive", "barrier_wait",
    "mbarrier_arrive", "mbarrier_expect_tx", "mbarrier_wait_parity", "shfl_down", "shfl_sync", "shfl_up", "shfl_xor",
    "warp_reduce_bitand", "warp_reduce_bitor", "warp_reduce_max", "warp_reduce_min", "warp_reduce_sum",
]  # fmt: skip

_ALL = 0xFFFFFFFF
_WARP = 32


def _one_thread(what: str) -> KernelFrame:
    frame = inside_kernel(what)
    if not frame.thread_vars:
        raise TileError(
            f"{what} is about single threads, and the kernel's statements are the whole block's: call T.get_thread_binding first "
            "to write the kernel for one thread, or use T.reduce_*, T.copy, T.any_of and T.all_of"
        )
    return frame


# -- warps


def _shuffled(what: str, name: str, value: ExprLike, place: ExprLike, width: int, mask: ExprLike | None) -> PrimExpr:
    _one_thread(what)
    value = as_expr(value)
    if width not in (1, 2, 4, 8, 16, 32):
        raise TileError(f"{what}(width={width}): a warp divides into 1, 2, 4, 8, 16 or 32 threads")
    lanes = const(_ALL, "uint32") if mask is None else cast("uint32", as_expr(mask))
    made: PrimExpr = call_builtin(
        value.dtype, name, lanes, value, cast("int32", as_expr(place)), const(width, "int32"), const(_WARP, "int32")
    )
    return made


def shfl_sync(value: ExprLike, lane: ExprLike, width: int = _WARP, mask: ExprLike | None = None) -> PrimExpr:
    """The value that thread ``lane`` of the warp (of its part of ``width`` threads) has."""
    return _shuffled("T.shfl_sync", "tvm_warp_shuffle", value, lane, width, mask)


def shfl_xor(value: ExprLike, offset: ExprLike, width: int = _WARP, mask: ExprLike | None = None) -> PrimExpr:
    """The value of the thread whose number differs in the bits of ``offset``."""
    return _shuffled("T.shfl_xor", "tvm_warp_shuffle_xor", value, offset, width, mask)


def shfl_up(value: ExprLike, offset: ExprLike, width: int = _WARP, mask: ExprLike | None = None) -> PrimExpr:
    """The value of the thread ``offset`` before; the first ones keep theirs."""
    return _shuffled("T.shfl_up", "tvm_warp_shuffle_up", value, offset, width, mask)


def shfl_down(value: ExprLike, offset: ExprLike, width: int = _WARP, mask: ExprLike | None = None) -> PrimExpr:
    """The value of the thread ``offset`` behind; the last ones keep theirs."""
    return _shuffled("T.shfl_down", "tvm_warp_shuffle_down", value, offset, width, mask)


def _vote(what: str, name: str, dtype: str, predicate: ExprLike, mask: ExprLike | None) -> PrimExpr:
    _one_thread(what)
    lanes = const(_ALL, "uint32") if mask is None else cast("uint32", as_expr(mask))
    made: PrimExpr = call_builtin(dtype, "call_extern", StringImm(name), lanes, cast("bool", as_expr(predicate)))
    return made


def ballot_sync(predicate: ExprLike, mask: ExprLike | None = None) -> PrimExpr:
    """A bit for each thread of the warp: whether its condition holds."""
    return _vote("T.ballot", "__ballot_sync", "uint32", predicate, mask)


ballot = ballot_sync


def any_sync(predicate: ExprLike, mask: ExprLike | None = None) -> PrimExpr:
    """Whether the condition of some thread of the warp holds."""
    return _vote("T.any_sync", "__any_sync", "int32", predicate, mask) != 0


def all_sync(predicate: ExprLike, mask: ExprLike | None = None) -> PrimExpr:
    """Whether the conditions of all threads of the warp hold."""
    return _vote("T.all_sync", "__all_sync", "int32", predicate, mask) != 0


def activemask() -> PrimExpr:
    """A bit for each thread of the warp that runs this, too."""
    _one_thread("T.activemask")
    made: PrimExpr = call_builtin("uint32", "tvm_warp_activemask")
    return made


def _reduction(kind: str, join: Callable[[Any, Any], Any]) -> Callable[[Any], PrimExpr]:
    def run(value: ExprLike) -> PrimExpr:
        _one_thread(f"T.warp_reduce_{kind}")
        value = as_expr(value)
        found = B.alloc_buffer([1], value.dtype, scope="local")
        found.name = found.data.name = f"warp_{kind}"
        B.buffer_store(found, value, [0])
        distance = _WARP // 2
        while distance:
            mine = BufferLoad(found, [as_expr(0)])
            B.buffer_store(found, join(mine, shfl_xor(mine, distance)), [0])
            distance //= 2
        made: PrimExpr = BufferLoad(found, [as_expr(0)])
        return made

    run.__name__ = run.__qualname__ = f"warp_reduce_{kind}"
    run.__doc__ = f"The {kind} over all threads of the warp, which all get it."
    return run


warp_reduce_sum = _reduction("sum", lambda a, b: a + b)
warp_reduce_max = _reduction("max", max_)
warp_reduce_min = _reduction("min", min_)
warp_reduce_bitand = _reduction("bitand", bitwise_and)
warp_reduce_bitor = _reduction("bitor", bitwise_or)


# -- barriers


def alloc_barrier(arrive_count: int | Sequence[int]) -> Buffer:
    """A barrier whose phase is over when so many threads have arrived; a list makes several, taken by index.

    In kernels of whole blocks the compiler waits where it must: arriving and waiting are then nothing.
    """
    frame = inside_kernel("T.alloc_barrier")
    counts: list[Any] = list(arrive_count) if isinstance(arrive_count, (list, tuple)) else [arrive_count]
    if not counts or not all(isinstance(c, int) and 0 < c <= 1024 for c in counts):
        raise TileError(f"T.alloc_barrier takes numbers of threads, 1 to 1024, not {arrive_count}")
    # Nobody loads or stores it: it names a range of the kernel's barriers.
    made: Buffer = decl_buffer([len(counts)], "uint64", "barrier", scope="shared.barrier")
    frame.barriers[made] = counts
    return made


def _at_barrier(what: str, name: str, barrier: Buffer | BufferLoad, *more: ExprLike) -> None:
    frame = inside_kernel(what)
    buffer = barrier.buffer if isinstance(barrier, BufferLoad) else barrier
    if buffer not in frame.barriers:
        raise TileError(f"{what}: {getattr(buffer, 'name', buffer)} is no barrier; make one with T.alloc_barrier")
    index = barrier.indices[0] if isinstance(barrier, BufferLoad) else as_expr(0)
    count = len(frame.barriers[buffer])
    if not 0 <= const_int(index, 0) < count:
        raise TileError(f"{what}: there are {count} barriers, no number {index}")
    known = list(frame.barriers)
    first = sum(len(frame.barriers[b]) for b in known[: known.index(buffer)])
    if frame.thread_vars:
        number = first + index if first else index
        B.evaluate(call_builtin("", name, number, *(cast("int32", as_expr(x)) for x in more)))


def mbarrier_arrive(barrier: Buffer | BufferLoad) -> None:
    """This thread has come to the barrier."""
    _at_barrier("T.mbarrier_arrive", "ptx_arrive_barrier", barrier)


def mbarrier_expect_tx(barrier: Buffer | BufferLoad, nbytes: ExprLike) -> None:
    """This thread has come to the barrier, and copies will bring so many bytes before the phase is over."""
    _at_barrier("T.mbarrier_expect_tx", "ptx_arrive_barrier_expect_tx", barrier, nbytes)


def mbarrier_wait_parity(barrier: Buffer | BufferLoad, parity: ExprLike) -> None:
    """Wait until the phase of that parity is over: 0 for the first, the third, ..."""
    _at_barrier("T.mbarrier_wait_parity", "ptx_wait_barrier", barrier, parity)


barrier_arrive, barrier_wait = mbarrier_arrive, mbarrier_wait_parity


def made_barriers(counts: Sequence[int], threads: Sequence[Any]) -> list[Any]:
    """Statements that make a kernel's barriers, by its first thread, before any other statement."""
    first: Any = None
    for var in threads:
        here = var.equal(0)
        first = here if first is None else And(first, here)
    init: list[Any] = [
        IfThenElse(first, Evaluate(call_builtin("", "ptx_init_barrier_thread_count", as_expr(n), as_expr(count))))
        for n, count in enumerate(counts)
    ]
    wait = Evaluate(call_builtin("int32", "tvm_storage_sync", "shared"))
    return [Evaluate(call_builtin("", "create_barriers", as_expr(len(counts)))), *init, wait]
