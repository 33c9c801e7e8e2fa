"""Calls from compiled code back into registered functions: ``T.call_packed("name", ...)`` and ``tir.trace``.

Compiled code hands over the function's name, a letter for each argument, their 64-bit words and the kind of result it
wants. The thread pool that every library carries asks the function set by ``rx_set_packed``, which is :func:`serve` here;
a library whose host sets none fails such calls with an error. An exception of the called function ends the kernel: it is
kept under the code that the kernel returns, and raised by whoever called the kernel.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
import struct
from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np

from ...support.errors import KernelError, RelaxishError
from ..arrays.dtype import numpy_dtype
from ..arrays.ndarray import NDArray, from_numpy
from ..registry import get_global_func

__all__ = [
    "ARRAY", "BOOL", "CALL", "FAILED", "FLOAT", "HANDLE", "INT", "NOTHING", "NO_HOST", "SETTER", "STRING", "TRACE_ACTION",
    "pending", "serve",
]  # fmt: skip

CALL = "rx_call_packed"
"""``i32 rx_call_packed(ptr name, ptr kinds, ptr words, i32 wanted, ptr result)``: 0, or the code to return."""
SETTER = "rx_set_packed"
"""``void rx_set_packed(ptr function)``: what the library calls."""
INT, FLOAT, BOOL, HANDLE, STRING, ARRAY, NOTHING = b"ifbhsan"
FAILED = (1 << 30) | (1 << 29)
"""Codes from here on are those of calls that failed; the first says that nobody serves them."""
NO_HOST = FAILED
TRACE_ACTION = "tvm.default_trace_action"
_KEPT = 4096

_WORDS = ctypes.POINTER(ctypes.c_int64)
_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, _WORDS, ctypes.c_int32, _WORDS)
_SET_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_errors: dict[int, BaseException] = {}
_numbers = itertools.count(1)


def pending(code: int) -> BaseException | None:
    """The exception behind a code that a kernel returned; None for codes of other failures."""
    if code & FAILED != FAILED:
        return None
    if code == NO_HOST:
        return KernelError("the kernel calls a registered function, but the process that runs it has no registry")
    return _errors.pop(code, None)


def _array(address: int) -> NDArray:
    """The array that a descriptor tells of: data, name of the type, rank, offset in elements, extents."""
    data, dtype, rank, offset = (ctypes.c_int64 * 4).from_address(address)
    shape = tuple((ctypes.c_int64 * rank).from_address(address + 32)) if rank else ()
    kind = numpy_dtype(ctypes.string_at(dtype).decode())
    size = math.prod(shape)
    if not size:
        return from_numpy(np.empty(shape, kind))
    memory = (ctypes.c_char * (size * kind.itemsize)).from_address(data + offset * kind.itemsize)
    return from_numpy(np.frombuffer(memory, kind).reshape(shape))


def _argument(kind: int, word: int) -> object:
    if kind == INT:
        return word
    if kind == FLOAT:
        return struct.unpack("<d", struct.pack("<q", word))[0]
    if kind == BOOL:
        return bool(word)
    if kind == STRING:
        return ctypes.string_at(word).decode()
    if kind == ARRAY:
        return _array(word)
    return None if kind == NOTHING or not word else ctypes.c_void_p(word)


def _call(name: str, arguments: Sequence[Any]) -> Any:
    function = get_global_func(name, allow_missing=True)
    if function is None:
        if name != TRACE_ACTION:
            raise RelaxishError(f"the kernel calls {name!r}, which is not registered; register it with register_func")
        print(*arguments)
        return arguments[-1]
    return function(*arguments)


def _serve(name: bytes, kinds: bytes, words: Sequence[int], wanted: int, result: MutableSequence[int]) -> int:
    try:
        value = _call(name.decode(), [_argument(kind, words[i]) for i, kind in enumerate(kinds)])
        if wanted == FLOAT:
            result[0] = struct.unpack("<q", struct.pack("<d", float(value)))[0]
        elif wanted == INT:
            result[0] = operator.index(value)
        elif isinstance(value, int):  # a statement's call: nobody reads the result, whatever it is
            result[0] = value
    except BaseException as err:  # the kernel ends here; its caller raises this
        code = FAILED + next(_numbers) % (1 << 28)
        while len(_errors) >= _KEPT:
            _errors.pop(next(iter(_errors)))
        _errors[code] = err
        return code
    return 0


_SERVER = _TYPE(_serve)


def serve(setter: int) -> None:
    """Let the library with this setter call registered functions of this process."""
    _SET_TYPE(setter)(ctypes.cast(_SERVER, ctypes.c_void_p))
