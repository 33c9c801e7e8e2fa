"""Lowering of kernel intrinsics in thread functions: a table that each family of intrinsics fills.

An entry gets the thread function that is being built and the call, and returns the expression that takes its place::

    @emulates("tvm_warp_activemask")
    def _active(gen, call):
        return Cast("uint32", gen.call("rx_active_mask", gen.site()))

``gen.call`` calls a function of the runtime (:mod:`.runtime_code`) or a helper: a PrimFunc made once in a process,
compiled by itself (``gen.helper``). ``gen.place`` says where a pointer argument points, ``gen.access`` registers an
access that the callee is to check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.op import op_name_of
from ...ir.prim import Call, StringImm
from ...support.errors import RelaxishError

if TYPE_CHECKING:
    from .thread_function import ThreadFunction

__all__ = ["Entry", "emulates", "emulates_function", "lookup"]

Entry = Callable[["ThreadFunction", Any], Any]
_ENTRIES: dict[str, Entry] = {}
_FUNCTIONS: dict[str, Entry] = {}


def emulates(*names: str) -> Callable[[Entry], Entry]:
    """Register how calls of the intrinsic ``tir.<name>`` are emulated."""

    def add(entry: Entry) -> Entry:
        for name in names:
            _ENTRIES["tir." + name] = entry
        return entry

    return add


def emulates_function(*names: str) -> Callable[[Entry], Entry]:
    """Register how calls of a device function by name (``call_extern``) are emulated; the name is the first argument."""

    def add(entry: Entry) -> Entry:
        for name in names:
            _FUNCTIONS[name] = entry
        return entry

    return add


def lookup(call: Call) -> Entry | None:
    """The entry for a call; None where CPU code generation already gives it the right meaning."""
    if not op_name_of(call):
        raise RelaxishError(f"a kernel calls {call.op}, which is no intrinsic")
    if call.op.name in ("tir.call_extern", "tir.call_pure_extern") and isinstance(call.args[0], StringImm):
        return _FUNCTIONS.get(call.args[0].value)
    return _ENTRIES.get(call.op.name)
