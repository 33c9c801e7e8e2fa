"""Compiled loop programs without a graph around them: what building an ``IRModule`` of PrimFuncs returns."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...support.entry_points import lazy_package, load
from ...support.errors import RelaxishError
from ..vm.benchmark import BenchmarkResult, time_evaluator
from ..device import Device
from .kernel import KernelSpec, MissingFunctionError, NativeKernel, NativeLibrary, PythonKernel
from ..exports.manifest import CodeRequirements


class Module:
    """Kernels by name, called in destination-passing style: ``mod(a, b, out)``, ``mod["matmul"](a, b, out)``."""

    def __init__(
        self,
        kernels: Mapping[str, KernelSpec],
        library: NativeLibrary | None,
        *,
        entry_name: str | None = None,
        objects: Sequence[bytes] = (),
        linker: Callable[[str, Sequence[bytes]], None] | None = None,
        sources: Mapping[str, str] | None = None,
        type_key: str = "llvm",
        python_kernels: Mapping[str, Callable[..., Any]] | None = None,
        messages: Sequence[str] = (),
    ) -> None:
        self.messages = tuple(messages)
        self.kernels = dict(kernels)
        self.library = library
        self.objects = list(objects)
        self.linker = linker
        self.sources = dict(sources or {})
        self.type_key = type_key
        self.python_kernels = dict(python_kernels or {})
        self.imported_modules: list[Module] = []
        self.in_system_lib = False
        self.requirements = CodeRequirements()  # what the machine code needs of a CPU
        self.versions: list[Module] = []  # of a module built for several kinds of CPUs, the most modest first
        self.entry_name = entry_name or self._guess_entry()
        self._functions: dict[str, Callable[..., Any]] = {}

    def _guess_entry(self) -> str | None:
        if len(self.kernels) == 1:
            return next(iter(self.kernels))
        return next((n for n in ("main", "__tvm_main__", "default_function") if n in self.kernels), None)

    @property
    def format(self) -> str:
        """Default format of :meth:`save`."""
        return "o" if self.objects else ""

    @property
    def handle(self) -> int:
        """A number that identifies the module."""
        return id(self)

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write the object code (".o") or one of the sources (".ll", ...). Raises RelaxishError for other formats."""
        form = fmt or os.path.splitext(os.fspath(file_name))[1].removeprefix(".") or self.format
        if form == "o" and self.objects:
            data = self.objects[0]
        elif form in self.sources:
            data = self.sources[form].encode()
        else:
            known = [*(["o"] if self.objects else []), *self.sources]
            raise RelaxishError(f"a module of kind {self.type_key} cannot be saved as {form!r}; known: {known}")
        with open(file_name, "wb") as file:
            file.write(data)

    is_runnable = True
    is_dso_exportable = True
    is_binary_serializable = False
    is_device_module = False

    @property
    def mod(self) -> Module:
        """Itself."""
        return self

    def jit(
        self,
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> Module:
        """Ready to run: the machine code is there, so this is the module itself, or a copy of it."""
        return self.copy() if force_recompile else self

    def copy(self) -> Module:
        """Another module of the same kernels."""
        return copy.copy(self)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The kernel of that name."""
        found = self._functions.get(name)
        if found is not None:
            return found
        if name in self.python_kernels:
            found = PythonKernel(self.kernels[name], self.python_kernels[name])
        elif (device := self._device_module_of(name)) is not None:
            return device.get_function(name)
        elif name in self.kernels and self.library is not None:
            found = NativeKernel(self.kernels[name], self.library, self.messages)
        elif query_imports:
            for module in self.imported_modules:
                if module.implements_function(name, True):
                    return module.get_function(name, True)
        if found is None:
            raise MissingFunctionError(f"Module has no function '{name}' (functions: {', '.join(self.kernels)})")
        self._functions[name] = found
        return found

    def _device_module_of(self, name: str) -> Module | None:
        """The imported module of device kernels that one of this module's functions is in."""
        if name not in self.kernels:
            return None
        return next((m for m in self.imported_modules if m.is_device_module and name in m.kernels), None)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a kernel of that name."""
        return name in self.kernels or (
            query_imports and any(m.implements_function(name, True) for m in self.imported_modules)
        )

    def import_module(self, module: Module) -> None:
        """Add another module that name look-ups may fall back to."""
        self.imported_modules.append(module)

    def add_device_module(self, module: Module) -> None:
        """Import a module of device kernels whose host programs are functions of this module."""
        self.import_module(module)
        self.kernels.update(module.kernels)
        self.entry_name = self.entry_name or self._guess_entry()

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if not isinstance(name, str):
            raise ValueError("Can only take string as function name")
        return self.get_function(name)

    @property
    def entry_func(self) -> Callable[..., Any]:
        """The function :meth:`__call__` runs."""
        if self.entry_name is None:
            raise RelaxishError(f"the module has several functions; choose one by name: {', '.join(self.kernels)}")
        return self.get_function(self.entry_name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    def get_source(self, fmt: str = "") -> str:
        """Generated code, as "ll" (default), "asm", ... where the backend kept it."""
        if not fmt:
            return next(iter(self.sources.values()), "")
        if fmt not in self.sources:
            raise RelaxishError(f"no source of format {fmt!r}; available: {', '.join(self.sources) or 'none'}")
        return self.sources[fmt]

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times a kernel on the arguments it is given."""
        func: Any = self.entry_func if func_name == "__tvm_main__" else self.get_function(func_name)

        def evaluate(*args: Any) -> BenchmarkResult:
            # Check once; the timed loop then runs on trusted arguments.
            check = getattr(func, "check", None)
            checked = list(args) if check is None else check(args)
            run = func if check is None else func.call
            timed = time_evaluator(
                run, number, repeat, min_repeat_ms, cooldown_interval_ms, repeats_to_cooldown, f_preproc, dev
            )
            return timed(*checked)

        return evaluate

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Write a shared object and its manifest; load with :func:`relaxish.runtime.load_module`.

        The options are those of :meth:`relaxish.runtime.VMExecutable.export_library`.
        """
        return load("runtime.export").export_module(
            self, os.fspath(file_name), fcompile, addons, workspace_dir, **kwargs
        )

    def __repr__(self) -> str:
        return f"Module({self.type_key}: {', '.join(self.kernels)})"


__getattr__, __dir__ = lazy_package(globals())  # what loads modules is elsewhere
