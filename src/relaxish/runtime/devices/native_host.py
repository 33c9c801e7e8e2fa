"""Host programs as machine code: what it calls, and how it is called from here.

The code of a program is ``i32 name__host__packed(ptr slots)``: the slots of its arguments and, before the sizes of shapes,
one integer that stands for the call. It launches kernels, asks for workspace and describes tensors through three functions,
which it finds in the table ``rx_device_calls`` of its library (three addresses, filled by who loads it):

    void launch(i64 call, i32 kernel, i64 *arguments, i64 *sizes)   sizes: grid xyz, block xyz, shared bytes, cluster xyz
    void *allocate(i64 call, i64 bytes)                             workspace lives until the call is over
    void *tensor_map(i64 call, i64 *words)                          address, number of the element type, rank, extents,
                                                                    strides (one less), box, swizzle, interleave, promotion

Kernels are numbered in the order of their names. An argument is an address, an integer, the bits of a double, or what
``tensor_map`` gave.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...support.errors import RelaxishError
from .host_program import HostRuntime, KernelInfo
from ..kernels.kernel import PACKED_SUFFIX, KernelSpec, NativeKernel, NativeLibrary, ParamSpec, packed_entry

if TYPE_CHECKING:
    from .module import DeviceModule

__all__ = ["ALLOCATE", "ELEMENTS", "LAUNCH", "SUFFIX", "TABLE", "TENSOR_MAP", "HostCode", "NativeHost"]

_T = TypeVar("_T")

SUFFIX = "__host"
TABLE = "rx_device_calls"
LAUNCH, ALLOCATE, TENSOR_MAP = "rx_device_launch", "rx_device_allocate", "rx_device_tensor_map"
#: Element types of tensor maps by their numbers.
ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "int8",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_TAIL = 3  # numbers behind the box

# Addresses come as numbers: what is there is read in one piece.
_LaunchType = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
_AllocateType = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_TensorMapType = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
_SIZES = struct.Struct("<10q")
_PLACES = 256  # addresses that are kept in mind


@dataclass(frozen=True)
class HostCode:
    """Compiled host programs: the object, the signatures of what is in it, the object with the table, and a linker."""

    object_bytes: bytes
    specs: Mapping[str, KernelSpec]
    table_object: bytes
    linker: Any
    load: Callable[[Mapping[str, int]], NativeLibrary]
    entries: tuple[str, ...] = ()  # symbols of plans that call the programs


class _Kernel:
    """How a launch finds the arguments of a kernel: their layout in memory, and the places of tensor maps.

    ``last`` are the numbers of the last launch's sizes, and these as launches take them: most launches have the same ones.
    """

    __slots__ = ("last", "layout", "maps", "name", "read")

    def __init__(self, info: KernelInfo) -> None:
        self.name = info.name
        codes = ["d" if kind.startswith(("float", "bfloat")) else "q" for kind in info.kinds]
        self.layout = struct.Struct("<" + "".join(codes))
        self.read = _Reader(self.layout)
        self.maps = [i for i, kind in enumerate(info.kinds) if kind == "tensor_map"]
        self.last: tuple[Any, Any] = ((), ())


class _Reader(dict[int, Any]):
    """Numbers in memory by their address: programs keep them on the stack, where the next call finds the same places."""

    __slots__ = ("kind", "unpack")

    def __init__(self, layout: struct.Struct) -> None:
        super().__init__()
        self.kind = ctypes.c_char * layout.size
        self.unpack = layout.unpack_from

    def __missing__(self, address: int) -> Any:
        if len(self) >= _PLACES:
            self.clear()
        self[address] = found = self.kind.from_address(address)
        return found


class _Call:
    """One call of a host program: who launches its kernels, the workspace it asked for, and the first error."""

    __slots__ = ("error", "kernels", "maps", "runtime", "storage")

    def __init__(self, kernels: Sequence[_Kernel]) -> None:
        self.kernels = kernels
        self.runtime: Any = None
        self.storage: list[Any] = []
        self.maps: list[Any] = []
        self.error: BaseException | None = None


class _Numbered:
    """A call and its number, by which machine code names it; they serve one call after another."""

    __slots__ = ("call", "number")

    def __init__(self, kernels: Sequence[_Kernel]) -> None:
        self.number = next(_NUMBERS)
        self.call = _CALLS[self.number] = _Call(kernels)

    def __del__(self) -> None:
        _CALLS.pop(self.number, None)


_READ_SIZES = _Reader(_SIZES)
_CALLS: dict[int, _Call] = {}
_NUMBERS = itertools.count(1)


def _launch(number: int, kernel: int, arguments: int, sizes: int) -> None:
    call = _CALLS[number]
    if call.error is not None:
        return
    try:
        known = call.kernels[kernel]
        read = known.read
        values = read.unpack(read[arguments])
        if known.maps:
            values = tuple([call.maps[v - 1] if i in known.maps else v for i, v in enumerate(values)])
        numbers = _READ_SIZES.unpack(_READ_SIZES[sizes])
        same, geometry = known.last
        if numbers != same:
            gx, gy, gz, bx, by, bz, shared, *cluster = numbers
            geometry = (gx, gy, gz), (bx, by, bz), shared, tuple(cluster)
            known.last = numbers, geometry
        call.runtime.launch(known.name, values, *geometry)
    except BaseException as error:  # it cannot pass through machine code
        call.error = error


def _allocate(number: int, nbytes: int) -> int:
    call = _CALLS[number]
    try:
        storage: Any = call.runtime.allocate(nbytes)
    except BaseException as error:
        call.error = call.error or error
        return 0
    call.storage.append(storage)
    return int(storage.ptr)


def _tensor_map(number: int, words: Sequence[int]) -> int:
    call = _CALLS[number]
    try:
        address, element, rank = (int(words[i]) for i in range(3))
        rest = [int(words[3 + i]) for i in range(3 * rank - 1 + _TAIL)]
        parts = (tuple(rest[:rank]), tuple(rest[rank : 2 * rank - 1]), tuple(rest[2 * rank - 1 : 3 * rank - 1]))
        call.maps.append(call.runtime.tensor_map(address, ELEMENTS[element], *parts, *rest[3 * rank - 1 :]))
    except BaseException as error:
        call.error = call.error or error
        return 0
    return len(call.maps)


_POINTERS = {
    LAUNCH: _LaunchType(_launch),
    ALLOCATE: _AllocateType(_allocate),
    TENSOR_MAP: _TensorMapType(_tensor_map),
}


def call_addresses() -> dict[str, int]:
    """The functions that programs call, by their symbols."""
    return {name: ctypes.cast(pointer, ctypes.c_void_p).value or 0 for name, pointer in _POINTERS.items()}


class NativeHost:
    """The host programs of a device module that a library has machine code of."""

    def __init__(
        self, library: NativeLibrary, specs: Mapping[str, KernelSpec], infos: Mapping[str, KernelInfo]
    ) -> None:
        with suppress(KeyError):
            table = (ctypes.c_void_p * 3).from_address(library.address(TABLE))
            addresses = call_addresses()
            table[0], table[1], table[2] = (addresses[name] for name in (LAUNCH, ALLOCATE, TENSOR_MAP))
        self.library = library
        self.programs = {name: NativeKernel(spec, library, holds_lock=True) for name, spec in specs.items()}
        # Machine code numbers kernels in the order of their names.
        self._kernels = [_Kernel(infos[name]) for name in sorted(infos)]
        self._calls: list[_Numbered] = []  # those that are over

    @property
    def served(self) -> int:
        """Largest number of simultaneous calls of programs so far."""
        return len(self._calls)

    def function(self, name: str) -> Callable[..., Any]:
        """A program, called as its text is: with the runtime of the device, then the arguments."""
        program = self.programs[name]
        params = program.spec.params[:-1]
        tensors = [i for i, p in enumerate(params) if p.kind == "tensor"]
        if len(tensors) == len(params) and not program.spec.shape_vars and not program.spec.result:
            return self._of_arrays(name, program)
        kernel = program.call

        def run(runtime: HostRuntime, *args: Any) -> object:
            device = runtime.device
            for i in tensors:
                if args[i].device is not device:
                    runtime.misplaced(name, *[args[t] for t in tensors])
            return self._under_number(runtime, lambda number: kernel(*args, number))

        return run

    def _of_arrays(self, name: str, program: NativeKernel) -> Callable[..., Any]:
        """A program of arrays alone, whose slots are their addresses and the number of the call."""
        entry, calls, kernels = program.entry, self._calls, self._kernels
        count = len(program.spec.params) - 1
        pack = struct.Struct(f"<{count + 1}q").pack_into
        free: list[tuple[Any, int]] = []

        def run(runtime: HostRuntime, *args: Any) -> None:
            device = runtime.device
            addresses = [a.ptr for a in args if a.device is device]
            if len(addresses) != count:
                runtime.misplaced(name, *args)
            numbered = calls.pop() if calls else _Numbered(kernels)
            if free:
                slots, address = free.pop()
            else:
                slots = (ctypes.c_int64 * (count + 1))()
                address = ctypes.addressof(slots)
            pack(slots, 0, *addresses, numbered.number)
            call = numbered.call
            call.runtime = runtime
            try:
                code = entry(address)
                if code:
                    raise program.failed(code)
                if call.error is not None:
                    raise call.error
            finally:
                call.runtime = call.error = None
                if call.storage or call.maps:
                    call.storage, call.maps = [], []
                calls.append(numbered)
                free.append((slots, address))

        return run

    def _under_number(self, runtime: HostRuntime, run: Callable[[int], _T]) -> _T:
        """What ``run`` gives, with a number by which its machine code reaches the runtime."""
        numbered = self._calls.pop() if self._calls else _Numbered(self._kernels)
        call = numbered.call
        call.runtime = runtime
        try:
            result = run(numbered.number)
            if call.error is not None:
                raise call.error
        finally:
            call.runtime = call.error = None
            if call.storage or call.maps:
                call.storage, call.maps = [], []
            self._calls.append(numbered)
        return result

    def entry(self, symbol: str) -> Callable[[HostRuntime, list[int]], int] | None:
        """A plan in machine code: called with the runtime of the device and its slots it gives the plan's code; None if
        the library has no such symbol."""
        try:
            function = packed_entry(self.library, symbol, holds_lock=True)
        except (KeyError, RelaxishError):
            return None

        def run(runtime: HostRuntime, slots: list[int]) -> int:
            words = (ctypes.c_int64 * (len(slots) + 1))(*slots)

            def numbered(number: int) -> int:
                words[len(slots)] = number
                return int(function(ctypes.addressof(words)))

            return int(self._under_number(runtime, numbered))

        return run


def bind(module: DeviceModule, library: NativeLibrary) -> NativeHost | None:
    """The native programs of a loaded device module, as far as the library has them; None if it has none."""
    specs = {}
    for name, program in module.programs.items():
        try:
            library.address(name + SUFFIX + PACKED_SUFFIX)
        except (KeyError, RelaxishError):
            continue
        specs[name] = with_call(program.spec)
    return NativeHost(library, specs, module.infos) if specs else None


def with_call(spec: KernelSpec) -> KernelSpec:
    """The signature of a program's machine code: that of the program, then the number of the call."""
    return KernelSpec(
        spec.name + SUFFIX, (*spec.params, ParamSpec("scalar", "int64", ())), spec.shape_vars, spec.result, spec.written
    )
