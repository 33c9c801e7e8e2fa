"""Asynchronous copies and memory barriers in thread functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ir.prim import Cast, IntImm
from . import layout
from .table import emulates

if TYPE_CHECKING:
    from .thread_function import Place, ThreadFunction

__all__: list[str] = []


def _bytes_at(gen: ThreadFunction, place: Place) -> Any:
    return place.index * gen.bytes_of(place.dtype)


def _address(gen: ThreadFunction, place: Place) -> Any:
    return gen.as_number(place.address)


def _checked_source(gen: ThreadFunction, place: Place, size: int) -> Place:
    """The place to copy from; its bytes are checked as read now."""
    if gen.checked:
        unit = gen.bytes_of(place.dtype)
        site = gen.access(place, layout.SITE_LOAD, align=min(size, 16))
        return type(place)(place.data, place.dtype, gen.call("rx_check", place.index, max(1, size // unit), site))
    return place


def _target_site(gen: ThreadFunction, place: Place, size: int) -> int:
    return gen.access(place, layout.SITE_STORE, align=min(size, 16))


@emulates("ptx_cp_async")
def _copy_async(gen: ThreadFunction, call: Any) -> Any:
    """``(shared, offset, global, offset, bytes[, predicate])``."""
    target, t_at, source, s_at, size, *rest = call.args
    to, size = gen.place(target, t_at), int(size.value)
    condition = gen.visit(rest[0]) if rest else IntImm("bool", 1)
    site = _target_site(gen, to, size)
    origin = gen.place(source, s_at)
    if gen.checked:
        number = gen.access(origin, layout.SITE_LOAD, align=size)
        unit = gen.bytes_of(origin.dtype)
        # Where nothing is copied the source may lie anywhere.
        checked = gen.call("rx_check_if", origin.index, max(1, size // unit), Cast("int64", condition), number)
        origin = type(origin)(origin.data, origin.dtype, checked)
        to = type(to)(to.data, to.dtype, gen.call("rx_check_place", to.index, max(1, size // gen.bytes_of(to.dtype)), site))
    return gen.call(
        "rx_copy_async_at", gen.as_number(_base(to)), _bytes_at(gen, to), _address(gen, origin), size,
        Cast("int64", condition), site,
    )  # fmt: skip


def _base(place: Place) -> Any:
    return type(place)(place.data, place.dtype, IntImm("int64", 0)).address


@emulates("ptx_commit_group")
def _commit(gen: ThreadFunction, call: Any) -> Any:
    return gen.call("rx_commit_copies")


@emulates("ptx_wait_group")
def _wait(gen: ThreadFunction, call: Any) -> Any:
    return gen.call("rx_finish_copies", gen.integer(gen.visit(call.args[0])))
