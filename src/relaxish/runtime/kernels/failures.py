"""Why a kernel gave up: the records compiled code leaves, and the errors they become.

A kernel returns 0, or a code. Codes from :data:`RECORDED` on are numbers of records in the library's own memory, each
written by one failure: where it was (text in the machine code) and two numbers. So threads that fail at the same time
do not take each other's message, and a worker of a parallel loop goes on to its next work. The text has fields
separated by :data:`FIELD`, its first is the kind of failure, its second the kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Protocol

from ...support.errors import (
    DivisionByZeroError, DivisionOverflowError, IndexBoundsError, KernelError, MemoryCheckError,
)  # fmt: skip
from .packed_calls import pending

__all__ = ["FAIL", "FIELD", "NativeLibrary", "RECORD", "RECORDED", "RECORDS", "failure", "site_text"]

FAIL = "rx_kernel_failed"
"""``i32 rx_kernel_failed(ptr site, i64 value, i64 bound)``: write a record; gives the code to return."""
RECORD = "rx_failure_record"
"""``ptr rx_failure_record(i32 code)``: four 64-bit words, the code, the site's address, value and bound."""
RECORDED = 1 << 30
RECORDS = 4096
FIELD = "\x1f"


def site_text(kind: str, kernel: str, *fields: str) -> str:
    """The text of a place that may fail: what :func:`failure` makes its message of."""
    return FIELD.join((kind, kernel, *fields))


def _index(kernel: str, fields: Sequence[str], value: int, bound: int) -> KernelError:
    block, buffer, axis, rank = fields
    where = f"axis {axis} of {buffer}" if axis and rank != "1" else buffer if axis else f"its axis of {buffer}"
    named = f" (block {block})" if block else ""
    return IndexBoundsError(f"{kernel}: index {value} is out of bounds for {where}, whose size there is {bound}{named}")


def _division(kernel: str, fields: Sequence[str], value: int, bound: int) -> KernelError:
    what, dtype = fields
    if bound == 0:
        return DivisionByZeroError(f"{kernel}: {what} of {dtype} by zero")
    return DivisionOverflowError(f"{kernel}: {what} of {value} by {bound} overflows {dtype}")


def _memory(kernel: str, fields: Sequence[str], value: int, bound: int) -> KernelError:
    what, buffer, shape, lanes = fields
    elements = f"element {value}" if lanes == "1" else f"elements {value} to {value + int(lanes) - 1}"
    return MemoryCheckError(
        f"{kernel}: {what} of {elements} of {buffer}, of flat shape {shape}, whose memory has {bound} elements"
    )


def _assertion(kernel: str, fields: Sequence[str], value: int, bound: int) -> KernelError:
    return KernelError(f"Assert fail: {FIELD.join(fields)}")


class NativeLibrary(Protocol):
    """Machine code with named symbols, from a JIT or a shared object."""

    def address(self, symbol: str) -> int:
        """The address of a symbol; ``KeyError`` when there is none."""
        ...


_KINDS: dict[str, Callable[[str, Sequence[str], int, int], KernelError]] = {
    "index": _index,
    "division": _division,
    "memory": _memory,
    "assert": _assertion,
}


def failure(library: NativeLibrary, code: int, who: str, messages: Sequence[str] = ()) -> BaseException:
    """The error for what compiled code returned, not 0; ``messages`` are those of codes from 1 on.

    An exception of a function that the kernel called is that error itself.
    """
    raised = pending(code)
    if raised is not None:
        return raised
    if 0 < code <= len(messages):
        return KernelError(f"Assert fail: {messages[code - 1]}")
    record = _read(library, code) if code >= RECORDED else None
    if record is None:
        return KernelError(f"{who} failed with code {code}")
    text, value, bound = record
    kind, kernel, *fields = text.split(FIELD)
    return _KINDS[kind](kernel, fields, value, bound)


def _read(library: NativeLibrary, code: int) -> tuple[str, int, int] | None:
    """Text and numbers of a record; None if it has been overwritten, or the library keeps none."""
    try:
        address = library.address(RECORD)
    except KeyError:
        return None
    found = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)(address)(code)
    words = (ctypes.c_int64 * 4).from_address(found)
    number, site, value, bound = words
    if number != code:
        return None
    text = ctypes.string_at(site).decode("utf-8", "replace")
    # Written over while it was read, after a great many failures of other threads.
    return (text, value, bound) if words[0] == code else None
