"""Kernel arguments in memory, as the driver wants them: each at its natural alignment, and a table of their addresses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ..arrays.dtype import numpy_dtype
from .driver import Dim3, Handle, KernelArg, Launcher
from .tensor_map import BYTES as _MAP_BYTES

__all__ = ["ArgumentLayout", "Frame", "PreparedLaunches"]

_FORMATS = {
    "pointer": "Q", "handle": "Q", "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_MAP_ALIGNMENT = 128  # since CUDA 13; it was 64
_BUFFER_ALIGNMENT = 128


class ArgumentLayout:
    """Offset of each argument of these kinds in the parameter buffer.

    >>> from relaxish.runtime.nvidia.arguments import ArgumentLayout
    >>> layout = ArgumentLayout(["int32", "pointer"])
    >>> layout.offsets, layout.nbytes
    ((0, 8), 16)
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        offsets, parts, convert, end = [], ["<"], [], 0
        for index, kind in enumerate(self.kinds):
            text, size, alignment, converter = _field(kind)
            begin = (end + alignment - 1) // alignment * alignment
            parts += ["x" * (begin - end), text]
            end = begin + size
            offsets.append(begin)
            if converter is not None:
                convert.append((index, converter))
        self.offsets = tuple(offsets)
        self.nbytes = end
        self._struct = struct.Struct("".join(parts))
        self._convert = tuple(convert)

    def pack(self, values: Sequence[Any]) -> bytes:
        """The parameter buffer with these values."""
        try:
            return self._struct.pack(*self._converted(values))
        except struct.error as error:
            raise self._refusal(values, error) from None

    def pack_into(self, buffer: bytearray | ctypes.Array[Any], place: int, values: Sequence[Any]) -> None:
        """Write the values into a buffer."""
        try:
            self._struct.pack_into(buffer, place, *self._converted(values))
        except struct.error as error:
            raise self._refusal(values, error) from None

    def _converted(self, values: Sequence[Any]) -> Sequence[Any]:
        if not self._convert:
            return values
        made = list(values)
        for index, converter in self._convert:
            made[index] = converter(made[index])
        return made

    def _refusal(self, values: Sequence[Any], error: Exception) -> RelaxishError:
        if len(values) != len(self.kinds):
            return RelaxishError(f"a kernel of {len(self.kinds)} parameters is launched with {len(values)} arguments")
        shown = ", ".join(f"{v!r}: {k}" for v, k in zip(values, self.kinds) if k != "tensor_map")
        return RelaxishError(f"a kernel argument does not fit its type ({error}): {shown}")


def _field(kind: str) -> tuple[str, int, int, Callable[[Any], Any] | None]:
    """(format, size, alignment, conversion) of an argument."""
    if kind == "tensor_map":
        return f"{_MAP_BYTES}s", _MAP_BYTES, _MAP_ALIGNMENT, None
    text = _FORMATS.get(kind)
    if text is not None:
        size = struct.calcsize("<" + text)
        return text, size, size, None
    # Types that Python's struct lacks (bfloat16, float8, ...).
    dtype = numpy_dtype(kind)
    return f"{dtype.itemsize}s", dtype.itemsize, dtype.itemsize, lambda value: np.array(value, dtype).tobytes()


class Frame:
    """A parameter buffer and the table of argument addresses that ``cuLaunchKernel`` takes; concurrent launches need one each."""

    __slots__ = ("_keep", "buffer", "place", "table", "table_address")

    def __init__(self, layout: ArgumentLayout) -> None:
        buffer = (ctypes.c_char * (layout.nbytes + _BUFFER_ALIGNMENT))()
        begin = ctypes.addressof(buffer)
        self.buffer = buffer
        self.place = -begin % _BUFFER_ALIGNMENT
        self.table = (ctypes.c_void_p * max(1, len(layout.offsets)))()
        for index, offset in enumerate(layout.offsets):
            self.table[index] = begin + self.place + offset
        self.table_address = ctypes.addressof(self.table)
        self._keep = layout


class PreparedLaunches:
    """A driver that implements ``launch`` by a prepared launcher that is used once."""

    def prepare(self, function: Handle, kinds: Sequence[str], cluster: Dim3 = (1, 1, 1)) -> Launcher:
        """As :meth:`.driver.Driver.prepare`."""
        raise NotImplementedError

    def launch(
        self,
        function: Handle,
        grid: Dim3,
        block: Dim3,
        shared: int,
        stream: int,
        args: Sequence[KernelArg],
        cluster: Dim3 = (1, 1, 1),
    ) -> None:
        """Run a kernel on a stream."""
        self.prepare(function, [kind for kind, _ in args], cluster)(grid, block, shared, stream, [v for _, v in args])
