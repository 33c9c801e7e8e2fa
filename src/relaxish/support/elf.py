"""Object files of the ELF format: giving what one defines other names, so that several can be linked into one library."""

from __future__ import annotations

import struct

from .errors import RelaxishError

__all__ = ["with_suffix"]

_SYMTAB = 2
_GLOBAL, _WEAK = 1, 2
_SYMBOL = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def with_suffix(data: bytes, suffix: str) -> bytes:
    """A relocatable object in which all global symbols it *defines* end in ``suffix``; those it needs keep their names.

    Raises RelaxishError for objects other than those of 64-bit little-endian ELF systems.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise RelaxishError("several versions of a program can be put into one library on 64-bit ELF systems only")
    made = bytearray(data)
    start, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        offset, length, link = section[4], section[5], section[6]
        names = sections[link]
        strings = bytearray(data[names[4] : names[4] + names[5]])
        for at in range(offset, offset + length, _SYMBOL.size):
            name, info, other, where, value, extent = _SYMBOL.unpack_from(data, at)
            if info >> 4 not in (_GLOBAL, _WEAK) or where == 0:
                continue
            old = strings[name : strings.index(0, name)]
            _SYMBOL.pack_into(made, at, len(strings), info, other, where, value, extent)
            strings += old + suffix.encode() + b"\0"
        made += bytes(-len(made) % 8)
        changed = (*names[:4], len(made), len(strings), *names[6:])
        _SECTION.pack_into(made, start + link * size, *changed)
        made += strings
    return bytes(made)
