"""Modules for devices: kernels as source that the device's own compiler builds, and the host programs that launch them.

``built["main"](a, b)`` runs where a driver for the device is there. Everywhere else the module can be looked at
(``built.imported_modules[0].inspect_source()``), and calling it raises an error that says what is missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
import os

from ...support import entry_points
from ...support.errors import RelaxishError
from ..device import Device
from ..bytecode.plan import ExecutionPlan
from .host_program import DeviceFunction, HostProgram, HostRuntime, KernelInfo
from ..kernels.kernel import KernelSpec, MissingFunctionError
from ..exports.linking import is_foreign
from ..kernels.module import Module

if TYPE_CHECKING:
    from .native_host import NativeHost

__all__ = ["DeviceModule"]


class DeviceModule(Module):
    """Device code of one target; ``module["name"](arrays...)`` runs a host program.

    ``sources`` are texts by format, the main one first; ``binaries`` is machine code by format. ``makers`` give further
    formats, which are made when they are first asked for.
    """

    is_device_module = True
    is_dso_exportable = False
    is_binary_serializable = True

    def __init__(
        self,
        type_key: str,
        device_type: int,
        sources: Mapping[str, str],
        kernels: Iterable[KernelInfo] = (),
        programs: Iterable[HostProgram] = (),
        *,
        binaries: Mapping[str, bytes] | None = None,
        makers: Mapping[str, Callable[[], str | bytes]] | None = None,
    ) -> None:
        self.programs = {p.name: p for p in programs}
        super().__init__({p.name: p.spec for p in self.programs.values()}, None, sources=sources, type_key=type_key)
        self.infos = {info.name: info for info in kernels}
        self.device_type = device_type
        self.binaries = dict(binaries or {})
        self._makers = dict(makers or {})
        self._runtimes: dict[int, HostRuntime] = {}
        # Compiles the host programs for the target's host; None where they are text alone.
        self.host_maker: Callable[..., Any] | None = None
        self.entries: list[ExecutionPlan] = []  # plans that get an entry in the machine code of the host
        self.native: NativeHost | None = None  # their machine code in this process, if there is any
        self.host_library: Any = None  # the library it was loaded with

    @functools.cached_property
    def host_code(self) -> Any:
        """The host programs as machine code of the target's host, compiled when first asked for; None if they cannot be."""
        return None if self.host_maker is None else self.host_maker(self.entries)

    def use_native_host(self) -> bool:
        """Let machine code take the place of the programs' texts in this process; whether there is any.

        What it does is the same. Launches from a program's text take less time here, where the launching is Python's.
        """
        native = self._native_host()
        if native is None:
            return False
        for name in native.programs:
            self.programs[name].run_natively(native.function(name))
        self._functions.clear()
        return True

    def native_entry(self, symbol: str) -> Callable[[HostRuntime, list[int]], int] | None:
        """The entry of a plan in machine code, called with a device's runtime and the slots; None if there is none."""
        native = self._native_host() if self.entries or self.host_library is not None else None
        return None if native is None else native.entry(symbol)

    def _native_host(self) -> NativeHost | None:
        """The machine code of the host programs in this process; None where there is none for it."""
        from .native_host import SUFFIX, NativeHost, bind, call_addresses

        if self.native is None and self.host_library is not None:
            self.native = bind(self, self.host_library)
        if self.native is None and self.host_code is not None and not is_foreign(self.host_code.linker.triple):
            specs = {name.removesuffix(SUFFIX): spec for name, spec in self.host_code.specs.items()}
            self.native = NativeHost(self.host_code.load(call_addresses()), specs, self.infos)
        return self.native

    @property
    def kernel_names(self) -> list[str]:
        """Names of the device kernels."""
        return sorted(self.infos)

    def get_source(self, fmt: str = "") -> str:
        """The kernels in a format (the main one if none is given), or "host": the text of the host programs."""
        if fmt == "host":
            return "\n".join(p.text for p in self.programs.values())
        self._make(fmt)
        return super().get_source(fmt)

    inspect_source = get_source

    def get_binary(self, fmt: str) -> bytes:
        """Machine code in a format. Raises RelaxishError for one that there is not."""
        self._make(fmt)
        if fmt not in self.binaries:
            raise RelaxishError(f"no machine code of format {fmt!r}; available: {', '.join(self.binaries) or 'none'}")
        return self.binaries[fmt]

    def _make(self, fmt: str) -> None:
        if fmt in self._makers:
            made = self._makers.pop(fmt)()
            if isinstance(made, bytes):
                self.binaries[fmt] = made
            else:
                self.sources[fmt] = made

    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write one of the sources or binaries; the ending of the name says which, unless ``fmt`` does."""
        form = fmt or str(file_name).rpartition(".")[2]
        self._make(form)
        if form not in self.binaries:
            super().save(file_name, form)
            return
        with open(file_name, "wb") as file:
            file.write(self.binaries[form])

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """A host program, on the device of its arguments."""
        found = self._functions.get(name)
        if found is None:
            if name not in self.programs:
                raise MissingFunctionError(f"Module has no function '{name}' (functions: {', '.join(self.programs)})")
            found = self._functions[name] = DeviceFunction(self.programs[name], self.runtime)
        return found

    def bound_function(self, name: str) -> Callable[..., Any]:
        """The function for the arrays of programs: the quick form of the virtual machine."""
        return DeviceFunction(self.programs[name], self.runtime).guarded

    def runtime(self, index: int) -> HostRuntime:
        """Device runtime that launches the programs. Raises RelaxishError where devices of this kind cannot be used."""
        found = self._runtimes.get(index)
        if found is None:
            hook = f"device_runtime.{self.type_key}"
            if not entry_points.available(hook):
                raise RelaxishError(
                    f"there is no runtime for {self.type_key} devices in this version: the module can be inspected and "
                    "its source saved, but not run"
                )
            found = self._runtimes[index] = entry_points.load(hook)(Device(self.device_type, index), self)
        return found

    def to_json(self) -> dict[str, Any]:
        """All but the binaries as plain data."""
        return {
            "type_key": self.type_key,
            "device_type": self.device_type,
            "sources": dict(self.sources),
            "kernels": [info.to_json() for info in self.infos.values()],
            "programs": [[p.spec.to_json(), p.text] for p in self.programs.values()],
        }

    def package(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Contents of an export: plain data, and binaries by name."""
        return self.to_json(), dict(self.binaries)

    @staticmethod
    def from_json(data: Mapping[str, Any], binaries: Mapping[str, bytes] | None = None) -> DeviceModule:
        """Inverse of :meth:`to_json`."""
        return DeviceModule(
            data["type_key"],
            data["device_type"],
            data["sources"],
            [KernelInfo.from_json(item) for item in data["kernels"]],
            [HostProgram(KernelSpec.from_json(spec), text) for spec, text in data["programs"]],
            binaries=binaries,
        )

    def __repr__(self) -> str:
        return f"DeviceModule({self.type_key}: {', '.join(self.kernel_names)})"
