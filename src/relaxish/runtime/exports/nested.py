"""Programs inside a program: what was built for a device with a runtime of its own, called as opaque functions.

The outer program calls a symbol with the inputs and then the arrays for the results, as it calls any library. Inputs are
copied to where the inner program runs, and its results from there, where the two are not on one device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...support.errors import RelaxishError
from ..device import Device
from ..vm.executable import VMExecutable
from ..kernels.kernel import MissingFunctionError
from ..arrays.ndarray import NDArray

__all__ = ["NestedModule"]


class NestedModule:
    """Functions of an executable by the symbols that its caller knows them by; ``devices`` are those it runs on."""

    is_runnable = True
    is_dso_exportable = False
    is_binary_serializable = True
    is_device_module = False
    type_key = "nested"

    def __init__(
        self, name: str, executable: VMExecutable, symbols: Mapping[str, str], devices: Sequence[Sequence[int]]
    ) -> None:
        self.name = name
        self.executable = executable
        self.symbols = dict(symbols)
        self.devices = [(int(kind), int(index)) for kind, index in devices]
        self.imported_modules: list[Any] = []
        self.packages: list[Any] = []
        self._local = threading.local()

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that symbol."""
        return name in self.symbols

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., None]:
        """A function by its symbol. Raises AttributeError if there is none."""
        if name not in self.symbols:
            raise MissingFunctionError(f"Module has no function '{name}' (functions: {', '.join(self.symbols)})")
        inner = self.symbols[name]

        def run(*args: NDArray) -> None:
            machine = self._machine()
            count = len(machine.executable_params(inner))
            device = Device(*self.devices[0])
            inputs = [a if a.device == device else a.copyto(device) for a in args[:count]]
            results = machine[inner](*inputs)
            found = [results] if isinstance(results, NDArray) else list(results)
            if len(found) != len(args) - count:
                raise RelaxishError(f"{name} has {len(found)} results, and {len(args) - count} arrays for them")
            for result, out in zip(found, args[count:], strict=True):
                result.copyto(out)

        return run

    __getitem__ = get_function

    def _machine(self) -> _Machine:
        """The machine of this thread, started at the first call."""
        machine = getattr(self._local, "machine", None)
        if machine is None:
            machine = self._local.machine = _Machine(self.executable, [Device(*d) for d in self.devices])
        return machine

    def to_manifest(self) -> dict[str, Any]:
        """Manifest entries of the inner program besides its file."""
        return {
            "type_key": self.type_key,
            "programs": {symbol: {"function": inner} for symbol, inner in self.symbols.items()},
            "constants": [],
            "place": self.name,
            "runs_on": [list(d) for d in self.devices],
        }

    def tensors(self) -> dict[str, NDArray]:
        """None: the constants are the inner program's."""
        return {}

    def __repr__(self) -> str:
        return f"NestedModule({self.name}: {', '.join(self.symbols)})"


class _Machine:
    """A virtual machine, and how many arguments its functions take."""

    def __init__(self, executable: VMExecutable, devices: list[Device]) -> None:
        from ..vm.machine import VirtualMachine

        self._machine = VirtualMachine(executable, devices)
        self._params = {f.name: f.param_names for f in executable.functions if f.is_vm}

    def executable_params(self, name: str) -> tuple[str, ...]:
        """The parameters of a function."""
        return tuple(self._params[name])

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._machine[name]
