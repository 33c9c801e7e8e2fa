"""Asynchronous copies and memory barriers in thread functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.expr import PrimExpr
from ...ir.op import Op
from ...ir.prim import Call, Cast, IntImm
from ...support.errors import RelaxishError
from . import layout
from .table import emulates

if TYPE_CHECKING:
    from .thread_function import Place, ThreadFunction

__all__: list[str] = []


def _bytes_at(gen: ThreadFunction, place: Place) -> PrimExpr:
    return place.index * gen.bytes_of(place.dtype)


def _address(gen: ThreadFunction, place: Place) -> PrimExpr:
    return gen.as_number(place.address)


@emulates("ptx_cp_async")
def _copy_async(gen: ThreadFunction, call: Call) -> PrimExpr:
    """``(shared, offset, global, offset, bytes[, predicate])``."""
    target, t_at, source, s_at, size, *rest = call.args
    to, size = gen.place(target, t_at), int(size.value)
    condition = gen.visit(rest[0]) if rest else IntImm("bool", 1)
    site = gen.access(to, layout.SITE_STORE, align=min(size, 16))
    origin = gen.place(source, s_at)
    if gen.checked:
        number = gen.access(origin, layout.SITE_LOAD, align=size)
        unit = gen.bytes_of(origin.dtype)
        # Where nothing is copied the source may lie anywhere.
        checked = gen.call("rx_check_if", origin.index, max(1, size // unit), Cast("int64", condition), number)
        origin = type(origin)(origin.data, origin.dtype, checked)
        to = type(to)(
            to.data, to.dtype, gen.call("rx_check_place", to.index, max(1, size // gen.bytes_of(to.dtype)), site)
        )
    return gen.call(
        "rx_copy_async_at", gen.as_number(_base(to)), _bytes_at(gen, to), _address(gen, origin), size,
        Cast("int64", condition), site,
    )  # fmt: skip


def _base(place: Place) -> PrimExpr:
    return type(place)(place.data, place.dtype, IntImm("int64", 0)).address


@emulates("ptx_commit_group")
def _commit(gen: ThreadFunction, call: PrimExpr) -> PrimExpr:
    return gen.call("rx_commit_copies")


@emulates("ptx_wait_group")
def _wait(gen: ThreadFunction, call: Call) -> PrimExpr:
    return gen.call("rx_finish_copies", gen.integer(gen.visit(call.args[0])))


# ---- barriers by number


@emulates("create_barriers")
def _create(gen: ThreadFunction, call: Call) -> PrimExpr:
    gen.barriers_at = gen.static_room(8 * int(call.args[0].value))
    return IntImm("int32", 0)


def _numbered(gen: ThreadFunction, number: PrimExpr) -> PrimExpr:
    """The address of a barrier. Raises RelaxishError where the kernel has made none."""
    if gen.barriers_at is None:
        raise RelaxishError(f"kernel {gen.name} uses barriers that create_barriers has not made")
    gen.clocks = True
    return gen.call("rx_shared", gen.barriers_at) + gen.integer(gen.visit(number)) * 8


@emulates("ptx_init_barrier_thread_count")
def _init(gen: ThreadFunction, call: Call) -> PrimExpr:
    count = gen.integer(gen.visit(call.args[1]))
    return gen.call("rx_mbarrier_init_fenced", _numbered(gen, call.args[0]), count, gen.site())


@emulates("ptx_arrive_barrier", "ptx_arrive_barrier_expect_tx")
def _arrive(gen: ThreadFunction, call: Call) -> PrimExpr:
    expected = gen.integer(gen.visit(call.args[1])) if len(call.args) > 1 else 0
    return gen.call("rx_mbarrier_arrive", _numbered(gen, call.args[0]), 1, expected, gen.site())


@emulates("ptx_wait_barrier")
def _wait_barrier(gen: ThreadFunction, call: Call) -> PrimExpr:
    parity = gen.integer(gen.visit(call.args[1])) if len(call.args) > 1 else 0
    return gen.call("rx_mbarrier_wait", _numbered(gen, call.args[0]), parity, gen.site())


@emulates("ptx_cp_async_barrier")
def _after_copies(gen: ThreadFunction, call: Call) -> PrimExpr:
    return gen.call("rx_mbarrier_after_copies", _numbered(gen, call.args[0]), gen.site())


@emulates("ptx_cp_async_bulk")
def _bulk(gen: ThreadFunction, call: Call) -> PrimExpr:
    """``(shared, offset, global, offset, bytes, barrier)``."""
    target, t_at, source, s_at, size, barrier = call.args
    to, origin = gen.place(target, t_at), gen.place(source, s_at)
    site = gen.access(to, layout.SITE_STORE, align=16)
    memory = gen.memory_of.get(to.data)
    if memory is not None:
        memory.note(16, True)
    count = gen.integer(gen.visit(size))
    if gen.checked:
        unit = gen.bytes_of(origin.dtype)
        number = gen.access(origin, layout.SITE_LOAD, align=16)
        origin = type(origin)(origin.data, origin.dtype, gen.call("rx_check", origin.index, count // unit, number))
    return gen.call(
        "rx_bulk_copy", _numbered(gen, barrier), gen.as_number(_base(to)), _bytes_at(gen, to), _address(gen, origin), count,
        site,
    )  # fmt: skip


@emulates("ptx_ldg32")
def _load_if(gen: ThreadFunction, call: Call) -> PrimExpr:
    """``(registers, predicate, A[i], at)``: registers[at] = A[i] where the predicate holds."""
    registers, predicate, load, at = call.args
    target, condition = gen.place(registers, at), gen.visit(predicate)
    origin = gen.place(Call("handle", Op.get("tir.address_of"), [load]))
    if gen.checked:
        number = gen.access(origin, layout.SITE_LOAD)
        checked = gen.call("rx_check_if", origin.index, 1, Cast("int64", condition), number)
        origin = type(origin)(origin.data, origin.dtype, checked)
    size = gen.bytes_of(origin.dtype)
    return gen.call("rx_copy_if", _address(gen, target), _address(gen, origin), size, Cast("int64", condition))
