"""Addresses, asynchronous copies, and the barriers that copies arrive at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....ir import dtype as dt
from ....ir.prim import Call
from ....support.errors import RelaxishError
from .table import Printer, calls, constant_argument, prints
from .types import is_nibble, type_name

if TYPE_CHECKING:
    from .expr import CudaExpressions

__all__: list[str] = []


@prints("tir.tvm_access_ptr")
def _access_ptr(gen: CudaExpressions, e: Call) -> str:
    kind, data, offset = e.args[:3]
    gen.uses(kind.dtype)
    if is_nibble(kind.dtype):
        return f"((unsigned char*){gen.expr(data)} + ({gen.index(offset)}) / 2)"
    base: str = gen.expr(data)
    if gen.memory_types.get(data) != kind.dtype:
        base = f"({type_name(kind.dtype)}*){base}"
    return f"({base} + {gen.index(offset)})"


@prints("tir.address_of")
def _address_of(gen: CudaExpressions, e: Call) -> str:
    load = e.args[0]
    index = gen.narrow(load.indices[0])
    start = index if dt.lanes(index.dtype) == 1 else gen.consecutive(load.buffer, index)
    if start is None:
        raise RelaxishError(f"elements of {load.buffer.name} that do not follow each other have no address")
    at = gen.expr(start)
    if is_nibble(load.buffer.dtype):
        return f"({gen.memory(load.buffer)} + ({at}) / 2)"
    return f"(&{gen.memory(load.buffer)}[{at}])"


prints("tir.handle_add_byte_offset")(calls("((void*)((char*){0} + {1}))"))
prints("tir.isnullptr")(calls("({0} == nullptr)"))

# -- copies that nobody waits for ------------------------------------------------------------------------------------


@prints("tir.ptx_cp_async")
def _copy_async(gen: CudaExpressions, e: Call) -> str:
    """``(shared, offset, global, offset, bytes[, predicate])``: offsets count elements of the pointers' own types."""
    target, t_at, source, s_at, size, *rest = e.args
    if int(size.value) not in (4, 8, 16):
        raise RelaxishError(f"cp.async copies 4, 8 or 16 bytes, not {size.value}")
    gen.need("async")
    if source in gen.kept:
        really = gen.expr(rest[0]) if rest else "true"
        places = f"{gen.address(target, t_at)}, {gen.address(source, s_at)}"
        return f"copy_async_kept<{int(size.value)}>({places}, {really}, {gen.kept[source]})"
    condition = f", {gen.expr(rest[0])}" if rest else ""
    return f"copy_async<{int(size.value)}>({gen.address(target, t_at)}, {gen.address(source, s_at)}{condition})"


prints("tir.ptx_commit_group")(calls("commit_copies()", need="async"))


@prints("tir.ptx_wait_group")
def _wait(gen: CudaExpressions, e: Call) -> str:
    gen.need("async")
    return f"wait_copies<{constant_argument(e.args[0], 'how many groups of copies may be on their way')}>()"


@prints("tir.ptx_ldg32")
def _load_if(gen: CudaExpressions, e: Call) -> str:
    """``(registers, predicate, A[i], at)``: registers[at] = A[i] where the predicate holds."""
    registers, predicate, load, at = e.args
    if dt.bits(load.dtype) != 32:
        raise RelaxishError(f"ptx_ldg32 loads 32 bits, not {load.dtype}")
    gen.need("async")
    source = f"&{gen.memory(load.buffer)}[{gen.index(load.indices[0])}]"
    return f"load_if({gen.address(registers, at)}, {source}, {gen.expr(predicate)})"


# -- barriers in shared memory ---------------------------------------------------------------------------------------


@prints("tir.create_barriers")
def _create(gen: CudaExpressions, e: Call) -> str:
    count = int(e.args[0].value)
    gen.need("barrier")
    gen.line(f"__shared__ __align__(8) unsigned long long barriers[{count}];")
    return ""


def _at_barrier(function: str) -> Printer:
    """A call of ``function`` with the address of a barrier and the other arguments."""

    def printer(gen: CudaExpressions, e: Call) -> str:
        gen.need("barrier")
        rest = "".join(f", {gen.expr(a)}" for a in e.args[1:])
        return f"{function}(&barriers[{gen.expr(e.args[0])}]{rest})"

    return printer


prints("tir.ptx_init_barrier_thread_count")(_at_barrier("barrier_init"))
prints("tir.ptx_arrive_barrier")(_at_barrier("barrier_arrive"))
prints("tir.ptx_arrive_barrier_expect_tx")(_at_barrier("barrier_arrive_expect"))
prints("tir.ptx_wait_barrier")(_at_barrier("barrier_wait"))
prints("tir.ptx_cp_async_barrier")(_at_barrier("barrier_arrive_after_copies"))


@prints("tir.ptx_cp_async_bulk")
def _bulk(gen: CudaExpressions, e: Call) -> str:
    """``(shared, offset, global, offset, bytes, barrier)``."""
    gen.need("barrier")
    target, t_at, source, s_at, size, barrier = e.args
    return f"copy_bulk({gen.address(target, t_at)}, {gen.address(source, s_at)}, {gen.expr(size)}, &barriers[{gen.expr(barrier)}])"
