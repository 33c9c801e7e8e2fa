"""A compiled model: bytecode, constants, kernels, and plans of its static functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...support.entry_points import load
from ..bytecode import instructions as bytecode
from ..bytecode.instructions import FunctionInfo
from ..kernels.kernel import KernelSpec, NativeLibrary
from ..exports.manifest import CodeRequirements
from ..arrays.ndarray import NDArray, read_only
from ..bytecode.plan import ExecutionPlan


class VMExecutable:
    """Everything the virtual machine needs to run a model.

    Tensors among the ``constants`` are read-only. ``objects`` are the relocatable object files behind ``libraries``;
    they make :meth:`export_library` possible. ``python_kernels`` (the interpreting mode) take the place of machine code.
    """

    type_key = "relax.Executable"

    def __init__(
        self,
        functions: Sequence[FunctionInfo],
        constants: Sequence[Any] = (),
        *,
        kernels: Mapping[str, KernelSpec] | None = None,
        libraries: Sequence[NativeLibrary] = (),
        plans: Mapping[str, ExecutionPlan] | None = None,
        objects: Sequence[bytes] = (),
        python_kernels: Mapping[str, Callable[..., Any]] | None = None,
        linker: Callable[[str, Sequence[bytes]], None] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.functions = list(functions)
        # What a program returns or is given is no place to write to if it is a constant.
        self.constants = [read_only(c) if isinstance(c, NDArray) else c for c in constants]
        self.kernels = dict(kernels or {})
        self.libraries = list(libraries)
        self.plans = dict(plans or {})
        self.objects = list(objects)
        self.python_kernels = dict(python_kernels or {})
        self.linker = linker
        self.metadata = dict(metadata or {})
        self.external_modules: list[Any] = []
        # Modules of device kernels, and the (device type, index) of constants that do not live on the first device.
        self.device_modules: list[Any] = []
        self.constant_devices: dict[int, tuple[int, int]] = {}
        self.in_system_lib = False
        # What the machine code needs of a CPU; and where the program was built for several kinds of CPUs, all of its
        # versions, the most modest first.
        self.requirements = CodeRequirements()
        self.versions: list[VMExecutable] = []

    @property
    def mod(self) -> VMExecutable:
        """Itself; scripts write ``ex.mod``."""
        return self

    @property
    def imported_modules(self) -> list[Any]:
        """The module of the loop programs, and those of external code generators."""
        from ..kernels.module import Module

        library = self.libraries[0] if self.libraries else None
        own = []
        if library or self.device_modules:
            own.append(Module(self.kernels, library, objects=self.objects, linker=self.linker))
            for module in self.device_modules:
                own[0].import_module(module)
        return [*own, *self.external_modules]

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """As ``executable[name]``; with ``query_imports`` also a loop program. Raises AttributeError if there is none."""
        if query_imports:
            for module in self.imported_modules:
                if module.implements_function(name, True):
                    found: Callable[..., Any] = module.get_function(name, True)
                    return found
        return self[name]

    @property
    def function_names(self) -> list[str]:
        """Names of the bytecode functions."""
        return [f.name for f in self.functions if f.is_vm]

    def stats(self) -> str:
        """Two lines of text: what the constant pool holds, and the names of all functions."""
        shown = ", ".join(_constant_summary(c) for c in self.constants)
        names = ", ".join(f.name for f in self.functions)
        return (
            "Relax VM executable statistics:\n"
            f"  Constant pool (# {len(self.constants)}): [{shown}]\n"
            f"  Globals (#{len(self.functions)}): [{names}]\n"
        )

    def as_text(self) -> str:
        """The bytecode as text."""
        return bytecode.to_text(self.functions)

    def as_python(self) -> str:
        """The bytecode as a Python program building it."""
        return bytecode.to_python(self.functions)

    def jit(
        self,
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> VMExecutable:
        """Ready to run; kernels are compiled already, so this is the executable itself."""
        return self

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Write shared object, weights and manifest; load them again with :func:`relaxish.runtime.load_module`.

        A ``.tar`` file holds everything, the objects as well. ``fcompile(library, files, **kwargs)`` links in place of
        this machine's linker, for example ``contrib.cc.cross_compiler("aarch64-linux-gnu-gcc")``; ``addons`` are further
        files for it, and ``workspace_dir`` is where the objects are written. Raises RelaxishError if nothing can link for
        the machine that the code is for.
        """
        return load("runtime.export").export_executable(
            self, os.fspath(file_name), fcompile, addons, workspace_dir, **kwargs
        )

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A function of the executable itself (``stats``, ``as_text``, ``as_python``, ``vm_load_executable``,
        ``vm_profiler_load_executable``), or of a machine on the CPU."""
        from ..device import cpu
        from .machine import VirtualMachine
        from .module import VMModule

        if name in ("stats", "as_text", "as_python"):
            own: Callable[..., Any] = getattr(self, name)
            return own
        if name in ("vm_load_executable", "vm_profiler_load_executable"):
            return lambda: VMModule(self, "profiler" in name)
        return VirtualMachine(self, cpu())[name]

    def external_function(self, name: str) -> Callable[..., Any] | None:
        """A function of the modules that external code generators made; ``None`` if none has it."""
        for module in self.external_modules:
            getter = getattr(module, "get_function", None)
            if callable(module) and getattr(module, "__name__", None) == name:
                found: Callable[..., Any] = module
                return found
            if getter is None:
                continue
            if getattr(module, "implements_function", lambda *_: True)(name, True):
                made: Callable[..., Any] | None = getter(name, True)
                if made is not None:
                    return made
        return None

    def library_of(self, symbol: str) -> NativeLibrary | None:
        """The library that exports a symbol."""
        for library in self.libraries:
            try:
                library.address(symbol)
            except KeyError:
                continue
            return library
        return None


def _constant_summary(value: object) -> str:
    match value:
        case NDArray():
            return str(list(value.shape)) if value.shape else "scalar"
        case tuple() if all(isinstance(v, int) for v in value):
            return f"shapetuple{list(value)}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def constant_to_json(value: object) -> list[Any]:
    """A non-tensor constant as plain data."""
    match value:
        case tuple():
            kind = "shape" if all(isinstance(v, int) for v in value) else "tuple"
            return [kind, list(value) if kind == "shape" else [constant_to_json(v) for v in value]]
        case str():
            return ["string", value]
        case None:
            return ["null", None]
        case bool() | np.bool_():
            return ["bool", bool(value)]
        case int() | np.integer():
            return ["int", int(value)]
        case float() | np.floating():
            return ["float", float(value)]
    raise TypeError(f"a constant of type {type(value).__name__} cannot be exported")


def constant_from_json(data: Sequence[Any]) -> Any:
    """Inverse of :func:`constant_to_json`."""
    from ..arrays.container import ShapeTuple

    kind, value = data
    if kind == "shape":
        return ShapeTuple(value)
    if kind == "tuple":
        return tuple(constant_from_json(v) for v in value)
    return value
