"""Compiled loop programs and how they are called.

A kernel is one symbol ``i32 name(...)`` plus ``i32 name__packed(ptr slots)``, which reads the same arguments from an
array of 64-bit slots: tensor parameters as data pointers, scalars as int64 or double, then one int64 for each free
symbolic shape variable, then, where the program returns a value (``T.ret``), room for it as int64 or double. 0 means
success.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..support.errors import RelaxishError
from .ndarray import NDArray, as_ndarray
from .thread_count import SETTER, pool_loaded

PACKED_SUFFIX = "__packed"
_PACKED_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


@dataclass(frozen=True)
class ParamSpec:
    """One parameter: ``kind`` is "tensor" or "scalar"; symbolic dims of ``shape`` are names or expression texts."""

    kind: str
    dtype: str
    shape: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class ShapeVarSource:
    """Where a free symbolic variable's value comes from: dimension ``dim_index`` of parameter ``param_index``."""

    name: str
    param_index: int
    dim_index: int


@dataclass(frozen=True)
class KernelSpec:
    """What a caller must know of a kernel."""

    name: str
    params: tuple[ParamSpec, ...]
    shape_vars: tuple[ShapeVarSource, ...] = ()
    result: str = ""  # dtype of the returned value, if the program returns one

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "params": [[p.kind, p.dtype, list(p.shape)] for p in self.params],
            "shape_vars": [[s.name, s.param_index, s.dim_index] for s in self.shape_vars],
            **({"result": self.result} if self.result else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelSpec:
        """Inverse of :meth:`to_json`."""
        return KernelSpec(
            data["name"],
            tuple(ParamSpec(kind, dtype, tuple(shape)) for kind, dtype, shape in data["params"]),
            tuple(ShapeVarSource(*s) for s in data["shape_vars"]),
            data.get("result", ""),
        )


class NativeLibrary(Protocol):
    """Machine code with named symbols, from a JIT or a shared object."""

    def address(self, symbol: str) -> int:
        """The address of a symbol; ``KeyError`` when there is none."""
        ...


# Which file was loaded under a name; the dynamic linker knows libraries by name and never unloads them.
_LOADED: dict[str, tuple[int, int]] = {}
# Files that were loaded by descriptor: as names, the descriptors must not be used again.
_KEPT_OPEN: list[int] = []


def _linker_name(path: str) -> str:
    """A name under which ``dlopen`` gives this very file, although another may have been loaded from its path."""
    stat = os.stat(path)
    identity = stat.st_dev, stat.st_ino
    if _LOADED.setdefault(path, identity) == identity or not os.path.isdir("/proc/self/fd"):
        return path
    _KEPT_OPEN.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return f"/proc/self/fd/{_KEPT_OPEN[-1]}"


class SharedLibrary:
    """A shared object opened with ``dlopen``; a file written again since it was loaded is loaded again."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._handle = ctypes.CDLL(_linker_name(path))
        except OSError as err:
            raise RelaxishError(f"cannot load {path}: {err}") from None
        with contextlib.suppress(KeyError):
            pool_loaded(self.address(SETTER))

    def address(self, symbol: str) -> int:
        """The address of an exported symbol."""
        try:
            return ctypes.cast(getattr(self._handle, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise KeyError(symbol) from None


class ArgumentError(RelaxishError, ValueError):
    """An argument has the wrong shape, dtype or number for the function's signature."""


class ArgumentTypeError(RelaxishError, TypeError):
    """An argument is a value of another kind than the function's signature says."""


class MissingFunctionError(RelaxishError, AttributeError):
    """A module has no function of the name asked for."""


class UnknownFunctionError(RelaxishError, ValueError):
    """The machine has no function, or no inputs or outputs kept for it."""


class KernelError(RelaxishError):
    """A kernel returned an error code."""


def packed_entry(library: NativeLibrary, symbol: str) -> Callable[[int], int]:
    """The ``i32 symbol(ptr)`` function as a Python callable taking an address."""
    return _PACKED_TYPE(library.address(symbol))


def scalar_bits(value: Any, dtype: str) -> int:
    """A scalar argument as the signed 64-bit content of its slot."""
    if dtype.startswith(("float", "bfloat")):
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    number = int(value)
    if not -(1 << 63) <= number < (1 << 64):
        raise ValueError(f"scalar {number} does not fit in 64 bits")
    return number - (1 << 64) if number >= (1 << 63) else number


def scalar_value(bits: int, dtype: str) -> bool | int | float:
    """What the signed 64-bit content of a slot stands for."""
    if dtype.startswith(("float", "bfloat")):
        return float(struct.unpack("<d", struct.pack("<q", bits))[0])
    if dtype == "bool":
        return bool(bits)
    return bits + (1 << 64) if dtype == "uint64" and bits < 0 else bits


class NativeKernel:
    """A kernel bound to its machine code; call it with arrays in parameter order (outputs last).

    ``call`` trusts its arguments (the VM has checked them), ``__call__`` checks everything and accepts NumPy and torch
    tensors as well.
    """

    def __init__(self, spec: KernelSpec, library: NativeLibrary, messages: Sequence[str] = ()) -> None:
        self.spec = spec
        self.messages = messages  # of the assertions, by error code from 1
        self.name = spec.name
        self.library = library
        self._entry = packed_entry(library, spec.name + PACKED_SUFFIX)
        self._slot_count = len(spec.params) + len(spec.shape_vars) + bool(spec.result)
        self._frames: list[tuple[Any, int]] = []
        self._all_tensors = all(p.kind == "tensor" for p in spec.params) and not spec.shape_vars and not spec.result

    def _new_frame(self) -> tuple[Any, int]:
        slots = (ctypes.c_int64 * max(1, self._slot_count))()
        return slots, ctypes.addressof(slots)

    def call(self, *args: Any) -> Any:
        """Run on trusted arguments; gives what the program returns, which for most is nothing."""
        frames = self._frames
        frame = frames.pop() if frames else self._new_frame()
        slots, address = frame
        if self._all_tensors:
            slots[:] = [a.ptr for a in args]
        else:
            spec = self.spec
            values = [
                a.ptr if p.kind == "tensor" else scalar_bits(a, p.dtype) for a, p in zip(args, spec.params, strict=True)
            ]
            values += [args[s.param_index].shape[s.dim_index] for s in spec.shape_vars]
            slots[:] = [*values, 0] if spec.result else values
        code = self._entry(address)
        result = scalar_value(slots[-1], self.spec.result) if self.spec.result else None
        frames.append(frame)
        if code:
            known = 0 < code <= len(self.messages)
            raise KernelError(
                f"Assert fail: {self.messages[code - 1]}" if known else f"kernel {self.name} failed with code {code}"
            )
        return result

    def __call__(self, *args: Any) -> Any:
        return self.call(*self.check(args))

    def check(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as the kernel wants them, or an error naming the parameter that does not fit."""
        return check_arguments(self.spec, args)


def check_arguments(spec: KernelSpec, args: Sequence[Any]) -> list[Any]:
    """Arguments as a function wants them, or an error naming the parameter that does not fit."""
    params = spec.params
    if len(args) != len(params):
        raise ArgumentError(
            f"Assert fail: num_args == {len(params)}, {spec.name}: num_args should be {len(params)}, got {len(args)}"
        )
    bound: dict[str, int] = {}
    return [_check_one(spec.name, i, a, p, bound) for i, (a, p) in enumerate(zip(args, params, strict=True))]


def _check_one(name: str, index: int, value: Any, param: ParamSpec, bound: dict[str, int]) -> Any:
    where = f"{name}: argument {index}"
    if param.kind == "scalar":
        if isinstance(value, NDArray) or not isinstance(value, int | float):
            if not hasattr(value, "__index__") and not hasattr(value, "__float__"):
                raise ArgumentTypeError(f"{where}: expected a {param.dtype} scalar, got {type(value).__name__}")
        return value
    tensor = as_ndarray(value)
    if tensor is None:
        raise ArgumentTypeError(f"{where}: expected a tensor, got {type(value).__name__}")
    if tensor.dtype != param.dtype:
        raise ArgumentError(f"{where}: dtype is expected to be {param.dtype}, got {tensor.dtype}")
    if len(tensor.shape) != len(param.shape):
        raise ArgumentError(f"{where}: ndim is expected to equal {len(param.shape)}, got {len(tensor.shape)}")
    for axis, (have, want) in enumerate(zip(tensor.shape, param.shape, strict=True)):
        if isinstance(want, str):
            want = bound.setdefault(want, have) if want.isidentifier() else have
        if have != want:
            raise ArgumentError(f"{where}: shape[{axis}] is expected to be {want}, got {have} (shape {tensor.shape})")
    return tensor


class PythonKernel:
    """A kernel run by a Python function on the same arguments (the interpreting mode)."""

    def __init__(self, spec: KernelSpec, function: Callable[..., Any]) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = function

    def call(self, *args: Any) -> None:
        """Run on trusted arguments."""
        self.function(*args)

    __call__ = call
