"""Host programs: the Python text that a device function's host part became, and what it calls.

A :class:`HostProgram` is text and signature. Bound to a :class:`HostRuntime` of a device it runs: it reads shapes,
allocates workspace, and launches kernels. The text may come from a file, so it is data until :mod:`.host_text` has found
it to be of the small language that host programs are written in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

from ...support.errors import KernelError, RelaxishError
from ..device import Device
from ..bytecode.shape_text import trunc_div
from .host_text import compile_host_text
from ..kernels.kernel import ArgumentError, Guard, KernelSpec, check_arguments
from ..arrays.memory import Storage, get_allocator
from ..arrays.ndarray import NDArray
from ..registry import get_global_func

__all__ = ["DeviceFunction", "HostProgram", "HostRuntime", "KernelInfo"]


@dataclass(frozen=True)
class KernelInfo:
    """A kernel's parameters ("pointer", "tensor_map" or a dtype each), and the launch parameters that follow them."""

    name: str
    kinds: tuple[str, ...]
    launch_params: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """Plain data."""
        return [self.name, list(self.kinds), list(self.launch_params)]

    @staticmethod
    def from_json(data: list[Any]) -> KernelInfo:
        """Inverse of :meth:`to_json`."""
        return KernelInfo(data[0], tuple(data[1]), tuple(data[2]))


class HostRuntime:
    """Device operations of host programs. Backends define :meth:`launch` (and :meth:`tensor_map` if devices have such
    copies)."""

    def __init__(self, device: Device, programs: Mapping[str, HostProgram]) -> None:
        self.device = device
        self._programs = programs
        self._allocator = get_allocator(device)

    def launch(
        self,
        name: str,
        values: tuple[Any, ...],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        cluster: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        """Run a kernel on the current stream."""
        raise NotImplementedError

    def tensor_map(
        self,
        address: int,
        dtype: str,
        dims: tuple[int, ...],
        strides: tuple[int, ...],
        box: tuple[int, ...],
        *rest: Any,
    ) -> object:
        """A tensor map for a kernel's argument."""
        raise RelaxishError(f"{self.device} has no tensor maps")

    def allocate(self, nbytes: int) -> Storage:
        """Workspace; it lives as long as the program keeps it."""
        return self._allocator.allocate(nbytes)

    def array(self, address: int, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Memory as an array, for packed functions."""
        return NDArray(address, tuple(shape), dtype, self.device, self)

    @staticmethod
    def packed(name: str, *args: Any) -> object:
        """Call a registered function."""
        return get_global_func(name)(*args)

    def call(self, name: str, *args: Any) -> object:
        """Call another host program."""
        return self._programs[name].function(self, *args)

    @staticmethod
    def fail(message: str) -> NoReturn:
        """An assertion of the program does not hold."""
        raise KernelError(f"Assert fail: {message}")

    def misplaced(self, name: str, *tensors: NDArray) -> NoReturn:
        """Complain about arguments on other devices."""
        index, tensor = next((i, t) for i, t in enumerate(tensors) if t.device != self.device)
        raise ArgumentError(
            f"{name}: tensor argument {index} (shape {tensor.shape}) is on {tensor.device}, but the function runs on "
            f"{self.device}; move it with .copyto({self.device}), or by R.to_vdevice in the model"
        )


@overload
def trunc_mod(a: int, b: int) -> int: ...
@overload
def trunc_mod(a: float, b: float) -> float: ...
def trunc_mod(a: float, b: float) -> float:
    """The remainder with the sign of the dividend."""
    if isinstance(a, float) or isinstance(b, float):
        return math.fmod(a, b)
    return a - b * trunc_div(a, b)


class HostProgram:
    """A host function: its signature and text; compiled at first use."""

    def __init__(self, spec: KernelSpec, text: str) -> None:
        self.spec = spec
        self.name = spec.name
        self.text = text
        self._function: Callable[..., Any] | None = None

    def run_natively(self, function: Callable[..., Any]) -> None:
        """Let machine code that does the same take the place of the text."""
        self._function = function

    @property
    def function(self) -> Callable[..., Any]:
        """The function: the runtime, then the arguments."""
        if self._function is None:
            names = {"math": math, "trunc_div": trunc_div, "trunc_mod": trunc_mod}
            self._function = compile_host_text(self.name, self.text, names)
        return self._function


class DeviceFunction:
    """A function of a device module, called with arrays of the device (outputs last).

    ``call`` trusts the number and types of its arguments (the virtual machine has checked them), ``__call__`` checks
    everything and takes tensors of other libraries as well. The device is that of the first tensor.
    """

    def __init__(self, program: HostProgram, runtime_of: Callable[[int], HostRuntime]) -> None:
        self.program = program
        self.spec = program.spec
        self.name = program.name
        self._runtime_of = runtime_of
        self._first = next((i for i, p in enumerate(program.spec.params) if p.kind == "tensor"), None)
        self.call = self._make_call()
        self._guard = Guard(program.spec, self.call)
        self.guarded = self._guard.trusting

    def _make_call(self) -> Callable[..., Any]:
        run, first, runtime_of = self.program.function, self._first, self._runtime_of

        def call(*args: Any) -> object:
            return run(runtime_of(0 if first is None else args[first].device.device_id), *args)

        return call

    def __call__(self, *args: Any) -> object:
        return self._guard.call(args)

    def check(self, args: Sequence[Any]) -> list[Any]:
        """Arguments as the function wants them, or an error naming the parameter that does not fit."""
        return check_arguments(self.spec, args)
