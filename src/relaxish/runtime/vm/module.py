"""The machine seen as a module of functions by name: what ``vm.module[...]`` and a loaded executable offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .profiling import Report
from .benchmark import BenchmarkResult, time_evaluator
from ..device import Device
from ..kernels.kernel import MissingFunctionError

if TYPE_CHECKING:
    from ..bytecode.builtins import VMClosure
    from .executable import VMExecutable
    from .machine import VirtualMachine


class VMModule:
    """Functions of a virtual machine by name.

    Besides the functions of the program: ``vm_initialization(device_type, device_id, allocator, ...)`` makes the
    machine, ``invoke_closure``, ``save_function``, ``set_input``, ``invoke_stateful``, ``get_output``,
    ``get_output_arity``, ``get_function_arity``, ``get_function_param_name``, ``set_instrument`` and ``profile`` are
    the methods of :class:`VirtualMachine` with plain positional arguments.
    """

    type_key = "relax.VirtualMachine"

    def __init__(self, executable: VMExecutable, profile: bool = False, machine: VirtualMachine | None = None) -> None:
        self.executable = executable
        self._profile = profile
        self._machine = machine

    @property
    def machine(self) -> VirtualMachine:
        """The machine. Raises MissingFunctionError before ``vm_initialization``."""
        if self._machine is None:
            raise MissingFunctionError("the virtual machine is not initialised: call vm_initialization first")
        return self._machine

    @property
    def imported_modules(self) -> list[Any]:
        """The modules that hold the program's kernels."""
        return self.executable.imported_modules

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """A function by name. Raises AttributeError if there is none."""
        own = getattr(self, f"_do_{name}", None)
        if own is not None and (name != "profile" or self._profile):
            found: Callable[..., Any] = own
            return found
        return self.machine[name]

    __getitem__ = get_function

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether :meth:`get_function` finds it."""
        try:
            self.get_function(name)
        except MissingFunctionError:
            return False
        return True

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that times a function of the machine on the arguments it is given."""
        return time_evaluator(self.get_function(func_name), number, repeat, **options)

    def _do_vm_initialization(self, *settings: int) -> None:
        from .machine import VirtualMachine

        devices = [Device(*settings[i : i + 2]) for i in range(0, len(settings), 3)]
        kinds: dict[Any, Any] = dict(zip(devices, settings[2::3], strict=True))
        self._machine = VirtualMachine(self.executable, devices, kinds, self._profile)
        self._machine.module = self

    def _do_invoke_closure(self, closure: VMClosure, *args: Any) -> object:
        return self.machine.invoke_closure(closure, *args)

    def _do_save_function(self, func_name: str, saved_name: str, include_return: int, *args: Any) -> None:
        self.machine.save_function(func_name, saved_name, *args, include_return=bool(include_return))

    def _do_set_input(self, func_name: str, *args: Any) -> None:
        self.machine.set_input(func_name, *args)

    def _do_invoke_stateful(self, func_name: str) -> None:
        self.machine.invoke_stateful(func_name)

    def _do_get_output(self, func_name: str, *indices: int) -> object:
        return self.machine._output(func_name, *indices)

    def _do_get_output_arity(self, func_name: str, *indices: int) -> int:
        return self.machine._output_arity(func_name, *indices)

    def _do_get_function_arity(self, func_name: str) -> int:
        return len(self._param_names(func_name))

    def _do_get_function_param_name(self, func_name: str, index: int) -> str:
        return self._param_names(func_name)[index]

    def _param_names(self, func_name: str) -> tuple[str, ...]:
        from ..kernels.kernel import UnknownFunctionError

        for info in self.executable.functions:
            if info.is_vm and info.name == func_name:
                return info.param_names
        raise UnknownFunctionError(f"Unknown function: {func_name}")

    def _do_set_instrument(self, instrument: Callable[..., Any]) -> None:
        self.machine.set_instrument(instrument)

    def _do_profile(self, func_name: str, *args: Any) -> Report:
        return self.machine.profile(func_name, *args)
