"""Elements of 4 bits in thread functions: two to a byte, the lower half first, as on the device.

Before and after (of a buffer ``q`` of int4, shortened)::

    x = q[i]          at = rx_check_nibbles(thread, i, 1, 4); x = sign_extended(bytes[at // 2] >> at % 2 * 4)
    q[i] = y          bytes[at // 2] = bytes[at // 2] & ~(15 << at % 2 * 4) | (y & 15) << at % 2 * 4

The two halves of a byte are places of their own: different threads may write them, since the device does so atomically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.op import Op
from ...ir.prim import Call, Cast, IntImm, Let, Shuffle, Var, is_consecutive
from ...support.errors import RelaxishError
from ...tir import Buffer, BufferLoad, BufferStore, LetStmt, SeqStmt
from ...tir.buffer import decl_buffer
from ...tir.stmt import Stmt
from . import layout

if TYPE_CHECKING:
    from .thread_function import ThreadFunction

__all__ = ["is_nibble", "load_nibbles", "nibble_bytes", "store_nibbles", "unpacked"]


def is_nibble(dtype: str) -> bool:
    """Whether elements of a type are two to a byte.

    >>> is_nibble("uint4x8"), is_nibble("int8")
    (True, False)
    """
    return dt.element_of(dtype) in ("int4", "uint4")


def nibble_bytes(count: int) -> int:
    """Bytes that ``count`` elements of 4 bits take."""
    return (count + 1) // 2


def unpacked(raw: Any, signed: bool) -> PrimExpr:
    """The int32 value of an int32 number's lowest four bits."""
    low = _bits("bitwise_and", raw, IntImm("int32", 15))
    return _bits("bitwise_xor", low, IntImm("int32", 8)) - 8 if signed else low


def _bits(name: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return Call("int32", Op.get(f"tir.{name}"), [a, b])


def _first(gen: ThreadFunction, buffer: Buffer, index: PrimExpr) -> tuple[Any, int]:
    """The first of consecutive elements, and their number. Raises RelaxishError where they are not consecutive."""
    inner, lanes = dt.lanes(buffer.dtype), dt.lanes(index.dtype)
    if is_consecutive(index):
        index = index.base
    elif lanes > 1:
        raise RelaxishError(f"kernel {gen.name} gathers elements of 4 bits from {buffer.name}, which the device cannot")
    first = gen.integer(index) * inner
    if buffer.elem_offset is not None:
        first = first + gen.integer(gen.visit(buffer.elem_offset))
    return first, inner * lanes


def _checked(gen: ThreadFunction, buffer: Buffer, first: PrimExpr, count: int, kind: int) -> PrimExpr:
    if not gen.checked:
        return first
    memory = gen.memory_of.get(buffer.data)
    if memory is not None:
        memory.note(1, kind != layout.SITE_LOAD)
        memory.fine = True
    site = gen.site(
        buffer=buffer.data.name, memory=-1 if memory is None else memory.number, kind=kind,
        align=max(0, min(16, nibble_bytes(count)) - 1), size=gen.local_size.get(buffer.data, 1 << 62), dtype=buffer.dtype,
    )  # fmt: skip
    return gen.call("rx_check_nibbles", first, count, site)


def _view(buffer: Buffer) -> Buffer:
    return decl_buffer((1 << 30,), "uint8", name=buffer.name, data=buffer.data)


def _place(at: Var, number: int) -> tuple[Any, Any]:
    """The byte that an element is in, and how far it is shifted there."""
    element = at + number
    return element // 2, Cast("int32", element % 2 * 4)


def load_nibbles(gen: ThreadFunction, e: BufferLoad) -> PrimExpr:
    """The expression that replaces a load of 4-bit elements."""
    first, count = _first(gen, e.buffer, gen.visit(gen.flat(e.buffer, e.indices)))
    at, view, dtype = Var("at", "int64"), _view(e.buffer), dt.element_of(e.dtype)
    parts = []
    for number in range(count):
        byte, shift = _place(at, number)
        raw = _bits("shift_right", Cast("int32", BufferLoad(view, [byte])), shift)
        parts.append(Cast(dtype, unpacked(raw, dtype == "int4")))
    value = parts[0] if count == 1 else Shuffle(parts, [IntImm("int32", i) for i in range(count)])
    return Let(at, _checked(gen, e.buffer, first, count, layout.SITE_LOAD), value)


def store_nibbles(gen: ThreadFunction, stmt: BufferStore) -> Stmt:
    """The statement that replaces a store of 4-bit elements."""
    value = gen.visit(stmt.value)
    first, count = _first(gen, stmt.buffer, gen.visit(gen.flat(stmt.buffer, stmt.indices)))
    at, view, held = Var("at", "int64"), _view(stmt.buffer), Var("held", value.dtype)
    made = []
    for number in range(count):
        byte, shift = _place(at, number)
        part = held if count == 1 else Shuffle([held], [IntImm("int32", number)])
        new = _bits("shift_left", _bits("bitwise_and", Cast("int32", part), IntImm("int32", 15)), shift)
        others = Call("int32", Op.get("tir.bitwise_not"), [_bits("shift_left", IntImm("int32", 15), shift)])
        old = _bits("bitwise_and", Cast("int32", BufferLoad(view, [byte])), others)
        made.append(BufferStore(view, Cast("uint8", _bits("bitwise_or", old, new)), [byte]))
    where = _checked(gen, stmt.buffer, first, count, layout.SITE_STORE)
    return LetStmt(held, value, LetStmt(at, where, SeqStmt(made) if count > 1 else made[0]))
