"""Expressions that the programs of one lane share (``matrix_helpers``, ``hopper_helpers``).

A lane program is a PrimFunc that the emulator calls for one thread of a warp. It receives that thread's record (see
``layout``), pointers without sizes, and the number of the statement (``site``) that a fault is reported for.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import PrimExpr
from ...script import tir as T
from . import layout

__all__ = ["LANE", "checked_index", "elements", "fiber_words", "scratch_room", "wait_for_warp"]

LANE = layout.FIBER_LANE // 8
"""The word of a thread's record that holds its lane."""

_UNBOUNDED = 1 << 30


def fiber_words(thread: PrimExpr) -> Any:
    """A thread's record, as 64-bit words."""
    return T.decl_buffer((layout.FIBER_BYTES // 8,), "int64", data=thread)


def elements(data: PrimExpr, dtype: str) -> Any:
    """Memory whose size the program does not know, as elements of a type."""
    return T.decl_buffer((_UNBOUNDED,), dtype, data=data)


def scratch_room(thread: PrimExpr) -> PrimExpr:
    """The pointer to the warp's scratch room, through which its lanes exchange elements."""
    return T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))


def wait_for_warp(thread: PrimExpr, site: PrimExpr) -> None:
    """Wait until all lanes of the warp are here; what they wrote to the scratch room can be read afterwards."""
    return T.evaluate(T.call_extern("int64", "rx_gather", thread, site))


def checked_index(checked: bool, thread: Any, first: Any, count: Any, site: Any, stride: Any = None) -> PrimExpr:
    """The index ``first``, once the accesses to ``count`` elements from there on, ``stride`` apart, have been checked.

    A fault ends the launch with an error that names the statement ``site``. Without ``checked`` nothing is looked at.
    """
    name = "rx_check" if checked else "rx_index"
    if stride is None:
        return T.call_extern("int64", name, thread, first, T.int64(count), site)
    return T.call_extern("int64", f"{name}_strided", thread, first, T.int64(count), stride, site)
