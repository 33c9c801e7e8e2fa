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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...support.errors import RelaxishError
from .host_program import HostRuntime, KernelInfo
from ..kernel import PACKED_SUFFIX, KernelSpec, NativeKernel, NativeLibrary, ParamSpec, scalar_value

__all__ = ["ALLOCATE", "ELEMENTS", "LAUNCH", "SUFFIX", "TABLE", "TENSOR_MAP", "HostCode", "NativeHost"]

SUFFIX = "__host"
TABLE = "rx_device_calls"
LAUNCH, ALLOCATE, TENSOR_MAP = "rx_device_launch", "rx_device_allocate", "rx_device_tensor_map"
#: Element types of tensor maps by their numbers.
ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "int8",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_TAIL = 3  # numbers behind the box

_LaunchType = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64)
)
_AllocateType = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_TensorMapType = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))


@dataclass(frozen=True)
class HostCode:
    """Compiled host programs: the object, the signatures of what is in it, the object with the table, and a linker."""

    object_bytes: bytes
    specs: Mapping[str, KernelSpec]
    table_object: bytes
    linker: Any
    load: Callable[[Mapping[str, int]], NativeLibrary]


class _Call:
    """One call of a host program: who launches its kernels, the workspace it asked for, and the first error."""

    __slots__ = ("error", "infos", "maps", "names", "runtime", "storage")

    def __init__(self, runtime: HostRuntime, names: Sequence[str], infos: Mapping[str, KernelInfo]) -> None:
        self.runtime = runtime
        self.names = names
        self.infos = infos
        self.storage: list[Any] = []
        self.maps: list[Any] = []
        self.error: BaseException | None = None


_CALLS: dict[int, _Call] = {}
_NUMBERS = itertools.count(1)


def _launch(number: int, kernel: int, arguments: Any, sizes: Any) -> None:
    call = _CALLS[number]
    if call.error is not None:
        return
    try:
        name = call.names[kernel]
        kinds = call.infos[name].kinds
        values = tuple(_value(call, arguments[i], kind) for i, kind in enumerate(kinds))
        s = [int(sizes[i]) for i in range(10)]
        call.runtime.launch(name, values, tuple(s[:3]), tuple(s[3:6]), s[6], tuple(s[7:]))
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


def _tensor_map(number: int, words: Any) -> int:
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


def _value(call: _Call, bits: int, kind: str) -> Any:
    if kind == "tensor_map":
        return call.maps[bits - 1]
    return int(bits) if kind == "pointer" or not kind.startswith(("float", "bfloat")) else scalar_value(bits, kind)


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
        self.infos = dict(infos)
        self.names = sorted(infos)
        self.programs = {name: NativeKernel(spec, library) for name, spec in specs.items()}

    def function(self, name: str) -> Callable[..., Any]:
        """A program, called as its text is: with the runtime of the device, then the arguments."""
        kernel = self.programs[name]

        def run(runtime: HostRuntime, *args: Any) -> Any:
            tensors = [a for a in args if hasattr(a, "device")]
            if any(t.device is not runtime.device for t in tensors):
                runtime.misplaced(name, *tensors)
            number = next(_NUMBERS)
            call = _CALLS[number] = _Call(runtime, self.names, self.infos)
            try:
                result = kernel.call(*args, number)
            finally:
                del _CALLS[number]
            if call.error is not None:
                raise call.error
            return result

        return run


def bind(module: Any, library: NativeLibrary) -> NativeHost | None:
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
