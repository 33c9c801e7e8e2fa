"""Compiled loop programs and how they are called.

A kernel is one symbol ``i32 name(...)`` plus ``i32 name__packed(ptr slots)``, which reads the same arguments from an
array of 64-bit slots: tensor parameters as data pointers, scalars as int64 or double, then one int64 for each free
symbolic shape variable, then, where the program returns a value (``T.ret``), room for it as int64 or double. 0 means
success.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ..arrays.borrowing import GiveBack, borrow, separate
from ..device import Device
from .failures import NativeLibrary as NativeLibrary, failure
from ..arrays.ndarray import NDArray, ReadOnlyError, as_ndarray, from_numpy, is_shareable
from ..bytecode.shape_text import extent_of
from ..exports.shared_library import SharedLibrary as SharedLibrary

PACKED_SUFFIX = "__packed"
_PACKED_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_HOLDING_TYPE = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


@dataclass(frozen=True)
class ParamSpec:
    """One parameter: ``kind`` is "tensor" or "scalar"; symbolic dims of ``shape`` are names or expression texts.

    A scalar's ``shape`` is its name, as shapes of tensors may refer to it, or nothing.
    """

    kind: str
    dtype: str
    shape: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class ShapeVarSource:
    """Source of a free symbolic variable's value: dimension ``dim_index`` of parameter ``param_index``."""

    name: str
    param_index: int
    dim_index: int


@dataclass(frozen=True)
class KernelSpec:
    """Signature of a kernel for its callers.

    ``written`` are the parameters whose memory the program writes, as far as that is known (None: it is not; any may be).
    """

    name: str
    params: tuple[ParamSpec, ...]
    shape_vars: tuple[ShapeVarSource, ...] = ()
    result: str = ""  # dtype of the returned value, if the program returns one
    written: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "params": [[p.kind, p.dtype, list(p.shape)] for p in self.params],
            "shape_vars": [[s.name, s.param_index, s.dim_index] for s in self.shape_vars],
            **({"result": self.result} if self.result else {}),
            **({} if self.written is None else {"written": list(self.written)}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> KernelSpec:
        """Inverse of :meth:`to_json`."""
        return KernelSpec(
            data["name"],
            tuple(ParamSpec(kind, dtype, tuple(shape)) for kind, dtype, shape in data["params"]),
            tuple(ShapeVarSource(*s) for s in data["shape_vars"]),
            data.get("result", ""),
            None if data.get("written") is None else tuple(data["written"]),
        )


class ArgumentError(RelaxishError, ValueError):
    """An argument has the wrong shape, dtype or number for the function's signature."""


class ArgumentTypeError(RelaxishError, TypeError):
    """An argument is a value of another kind than the function's signature says."""


class MissingFunctionError(RelaxishError, AttributeError):
    """A module has no function of the name asked for."""


class UnknownFunctionError(RelaxishError, ValueError):
    """The machine has no function, or no inputs or outputs kept for it."""


def packed_entry(library: NativeLibrary, symbol: str, *, holds_lock: bool = False) -> Callable[[int], int]:
    """The ``i32 symbol(ptr)`` function as a Python callable taking an address.

    ``holds_lock`` is for short functions that call back: other threads of Python wait meanwhile.
    """
    return (_HOLDING_TYPE if holds_lock else _PACKED_TYPE)(library.address(symbol))


def scalar_bits(value: float, dtype: str) -> int:
    """A scalar argument as the signed 64-bit content of its slot."""
    if dtype.startswith(("float", "bfloat")):
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    number = int(value)
    if not -(1 << 63) <= number < (1 << 64):
        raise ValueError(f"scalar {number} does not fit in 64 bits")
    return number - (1 << 64) if number >= (1 << 63) else number


def scalar_value(bits: int, dtype: str) -> bool | int | float:
    """Python value of the signed 64-bit content of a slot."""
    if dtype.startswith(("float", "bfloat")):
        return float(struct.unpack("<d", struct.pack("<q", bits))[0])
    if dtype == "bool":
        return bool(bits)
    return bits + (1 << 64) if dtype == "uint64" and bits < 0 else bits


class NativeKernel:
    """A kernel bound to its machine code; call it with arrays in parameter order (outputs last).

    ``call`` trusts its arguments, ``guarded`` makes sure that arrays are what the kernel was compiled for (the way of the
    virtual machine), ``__call__`` checks everything and accepts NumPy and torch tensors as well: strided outputs are
    written through, and arguments that share memory with an output are read before it is written. ``holds_lock`` as for
    :func:`packed_entry`.
    """

    def __init__(
        self, spec: KernelSpec, library: NativeLibrary, messages: Sequence[str] = (), *, holds_lock: bool = False
    ) -> None:
        self.spec = spec
        self.messages = messages  # of the assertions, by error code from 1
        self.name = spec.name
        self.library = library
        self.entry = packed_entry(library, spec.name + PACKED_SUFFIX, holds_lock=holds_lock)
        self._slot_count = len(spec.params) + len(spec.shape_vars) + bool(spec.result)
        self._frames: list[tuple[Any, int]] = []
        self._scalars = [(i, p.dtype) for i, p in enumerate(spec.params) if p.kind != "tensor"]
        self._sizes = [(s.param_index, s.dim_index) for s in spec.shape_vars]
        self._all_tensors = not self._scalars and not self._sizes and not spec.result
        self._guard = Guard(spec, self.call, _HOST)
        self.guarded = self._guard.trusting

    def _new_frame(self) -> tuple[Any, int]:
        slots = (ctypes.c_int64 * max(1, self._slot_count))()
        return slots, ctypes.addressof(slots)

    def call(self, *args: Any) -> int | float | bool | None:
        """Run on trusted arguments; gives what the program returns, which for most is nothing."""
        frames = self._frames
        frame = frames.pop() if frames else self._new_frame()
        slots, address = frame
        if self._all_tensors:
            slots[:] = [a.ptr for a in args]
        else:
            values = list(args)
            for i, dtype in self._scalars:
                values[i] = scalar_bits(values[i], dtype)
            values = [getattr(v, "ptr", v) for v in values]
            values += [args[i].shape[axis] for i, axis in self._sizes]
            slots[:] = [*values, 0] if self.spec.result else values
        code = self.entry(address)
        result = scalar_value(slots[-1], self.spec.result) if self.spec.result else None
        frames.append(frame)
        if code:
            raise self.failed(code)
        return result

    def failed(self, code: int) -> BaseException:
        """The error that the code of a call stands for."""
        return failure(self.library, code, f"kernel {self.name}", self.messages)

    def __call__(self, *args: Any) -> object:
        return self._guard.call(args)

    def check(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as the kernel wants them, or an error naming the parameter that does not fit."""
        return check_arguments(self.spec, args, _HOST)


_HOST = Device.kDLCPU


def check_arguments(spec: KernelSpec, args: Sequence[Any], device_type: int | None = None) -> list[Any]:
    """Arguments as a function wants them, or an error naming the parameter that does not fit.

    Memory that the function writes is that of the arguments. Raises ArgumentError or ArgumentTypeError, and a ValueError
    for arguments that cannot be written so. ``device_type`` is the only kind of device whose memory will do.
    """
    return _Arguments(spec, args, device_type).values


class Guard:
    """Calls of ``run`` with arguments that fit its signature; what fitted in the last call is known by comparison."""

    def __init__(self, spec: KernelSpec, run: Callable[..., Any], device_type: int | None = None) -> None:
        self.spec = spec
        self.run = run
        self.device_type = device_type
        self.written = spec.written or ()
        self.count = len(spec.params)
        # Where shapes depend on values, these are compared each time.
        self.named = any(p.kind == "scalar" and p.shape for p in spec.params)
        self.last: tuple[tuple[int, Any, str, Device], ...] = ()
        self.sizes: dict[int, int] = {}  # bytes of the arrays in the last call, by place
        # A closure: as a function of a program it is called more often than anything else.
        self.trusting = self._make_trusting()

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the arguments are arrays like those of the last call, but for scalars, which are not looked at."""
        if len(args) != self.count or not self.last:
            return False
        for index, shape, dtype, device in self.last:
            arg = args[index]
            if arg.__class__ is not NDArray or arg.shape != shape or arg.dtype != dtype or arg.device is not device:
                return False
        return True

    def remember(self, args: Sequence[Any]) -> None:
        """The arguments fit."""
        if not self.named:
            self.sizes = {i: a.nbytes for i, a in enumerate(args) if a.__class__ is NDArray}
            self.last = tuple([(i, args[i].shape, args[i].dtype, args[i].device) for i in self.sizes])

    def _make_trusting(self) -> Callable[..., Any]:
        """``run`` for the arguments of programs: arrays, which may come from functions that are not known here."""
        spec, run, written, fits = self.spec, self.run, self.written, self.fits

        def trusting(*args: Any) -> object:
            if not fits(args):
                made = check_arguments(spec, args, self.device_type)
                if any(a is not b for a, b in zip(args, made, strict=True)):
                    return run(*made)
                self.remember(args)
            for index in written:
                view = args[index]._np
                if view is not None and not view.flags.writeable:
                    raise ReadOnlyError(f"{spec.name}: argument {index} is read-only, but the function writes it")
            return run(*args)

        trusting.spec = spec  # type: ignore[attr-defined]
        return trusting

    def call(self, args: Sequence[Any]) -> object:
        """``run`` for the arguments of users; what it writes to copies goes back to what they are copies of."""
        easy = [from_numpy(a) if a.__class__ is np.ndarray and is_shareable(a) else a for a in args]
        if self.fits(easy) and not any(easy[i].readonly for i in self.written) and not self._overlap(easy):
            return self.run(*easy)
        made = _Arguments(self.spec, args, self.device_type, write_back=True)
        self.remember(made.values)
        values = separate(made.values, self.written, self.spec.name)
        result = self.run(*values)
        for give_back in made.give_back:
            give_back()
        return result

    def _overlap(self, args: Sequence[Any]) -> bool:
        """Whether an array shares memory with one that is written."""
        sizes = self.sizes
        for w in self.written:
            begin = args[w].ptr
            end = begin + sizes[w]
            for i, size in sizes.items():
                other = args[i].ptr
                if i != w and other < end and begin < other + size:
                    return True
        return False


class _Arguments:
    """The arguments of one call, checked; and what is to be done after it."""

    def __init__(
        self, spec: KernelSpec, args: Sequence[Any], device_type: int | None, *, write_back: bool = False
    ) -> None:
        params = spec.params
        if len(args) != len(params):
            raise ArgumentError(
                f"Assert fail: num_args == {len(params)}, {spec.name}: num_args should be {len(params)}, "
                f"got {len(args)}"
            )
        self.spec = spec
        self.device_type = device_type
        self.write_back = write_back
        self.give_back: list[GiveBack] = []
        self.bound: dict[str, int] = {}
        self.values = [self._one(i, a, p) for i, (a, p) in enumerate(zip(args, params, strict=True))]
        self._check_expressions()

    def _one(self, index: int, value: object, param: ParamSpec) -> Any:
        where = f"{self.spec.name}: argument {index}"
        if param.kind == "scalar":
            return self._scalar(where, value, param)
        tensor = self._tensor(where, index, value)
        if tensor is None:
            raise ArgumentTypeError(f"{where}: expected a tensor, got {type(value).__name__}")
        if self.device_type is not None and tensor.device.device_type != self.device_type:
            raise ArgumentError(
                f"{where}: the tensor is on {tensor.device}, where the function cannot reach it; move it with .copyto"
            )
        if param.dtype == "handle":
            return tensor
        if tensor.dtype != param.dtype:
            raise ArgumentError(f"{where}: dtype is expected to be {param.dtype}, got {tensor.dtype}")
        if len(tensor.shape) != len(param.shape):
            raise ArgumentError(f"{where}: ndim is expected to equal {len(param.shape)}, got {len(tensor.shape)}")
        for axis, (have, want) in enumerate(zip(tensor.shape, param.shape, strict=True)):
            if isinstance(want, str):
                want = self.bound.setdefault(want, have) if want.isidentifier() else have
            if have != want:
                raise _wrong_extent(where, axis, have, want, tensor)
        return tensor

    def _tensor(self, where: str, index: int, value: object) -> NDArray | None:
        written = self.spec.written
        if written is None:
            # Nobody knows: memory is given back where it can be, and read-only memory may do.
            if value.__class__ is NDArray or not getattr(getattr(value, "flags", None), "writeable", True):
                return as_ndarray(value)
        elif index not in written:
            return as_ndarray(value)
        tensor, give_back = borrow(value, where, write_back=self.write_back)
        if give_back is not None:
            self.give_back.append(give_back)
        return tensor

    def _scalar(self, where: str, value: Any, param: ParamSpec) -> int | float:
        if isinstance(value, NDArray) or not isinstance(value, int | float):
            if not hasattr(value, "__index__") and not hasattr(value, "__float__"):
                raise ArgumentTypeError(f"{where}: expected a {param.dtype} scalar, got {type(value).__name__}")
        if param.shape and param.dtype.startswith(("int", "uint")):
            # A name that an earlier shape has must have this value, too.
            have = int(value)
            want = self.bound.setdefault(str(param.shape[0]), have)
            if have != want:
                raise ArgumentError(f"{where}: {param.shape[0]} is expected to be {want}, as in a shape, got {have}")
        return value

    def _check_expressions(self) -> None:
        """Compare the extents that are expressions; by now the values of all names are known."""
        for index, (tensor, param) in enumerate(zip(self.values, self.spec.params, strict=True)):
            if param.kind != "tensor" or param.dtype == "handle":
                continue
            for axis, text in enumerate(param.shape):
                if isinstance(text, str) and not text.isidentifier():
                    want = extent_of(text)(self.bound)
                    if want is not None and tensor.shape[axis] != want:
                        where = f"{self.spec.name}: argument {index}"
                        raise _wrong_extent(where, axis, tensor.shape[axis], want, tensor)


def _wrong_extent(where: str, axis: int, have: int, want: int | str, tensor: NDArray) -> ArgumentError:
    return ArgumentError(f"{where}: shape[{axis}] is expected to be {want}, got {have} (shape {tensor.shape})")


class PythonKernel:
    """A kernel run by a Python function on the same arguments (the interpreting mode); as :class:`NativeKernel`."""

    def __init__(self, spec: KernelSpec, function: Callable[..., Any]) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = function
        self._guard = Guard(spec, self.call, _HOST)
        self.guarded = self._guard.trusting

    def call(self, *args: Any) -> object:
        """Run on trusted arguments."""
        return self.function(*args)

    def __call__(self, *args: Any) -> object:
        return self._guard.call(args)

    def check(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as the kernel wants them, or an error naming the parameter that does not fit."""
        return check_arguments(self.spec, args, _HOST)
