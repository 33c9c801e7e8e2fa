"""This backend as the compiler that other backends use for code on the host (:mod:`..common.native_compile`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.bytecode.plan import ExecutionPlan
from ...runtime.kernels.kernel import PACKED_SUFFIX, NativeLibrary
from ...runtime.devices.native_host import HostCode
from ...target import Target
from ..common.native_compile import NativeCode, register_native_compiler
from ..common.signature import kernel_spec
from . import cache, engine
from .compile import generate_text
from .module_gen import generate_function
from .module_writer import ModuleWriter

__all__ = ["HostCompiler"]


class _Code:
    """Loaded code and what keeps it there."""

    def __init__(self, keep: Any, addresses: dict[str, int]) -> None:
        self.keep = keep
        self.addresses: Mapping[str, int] = addresses


class HostCompiler:
    """Compiles for this process's processor."""

    def __init__(self) -> None:
        self.triple = engine.triple_of(engine.host_target())

    def compile(
        self,
        functions: Sequence[tuple[str, Any]],
        text: str = "",
        exports: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
        level: int = 2,
    ) -> NativeCode:
        """Compile lowered functions and LLVM text, and load them; objects are kept in the disk cache."""
        host = engine.host_target()
        target = Target({**host.export(), "opt-level": level})
        # What runs so has checks of its own, and nobody to tell of an error.
        module = ModuleWriter(engine.code_features(host), host.vector_bits, raises=False, checked=False)
        for name, func in functions:
            generate_function(module, name, func)
        whole = f"{module.text()}\n{text}"
        key = cache.key_of(whole, self.triple, engine.feature_string(host), f"native {level}")
        body = cache.lookup(key)
        if body is None:
            body = engine.compile_text(whole, target)
            cache.store(key, body)
        wanted = [name for name, _ in functions] + list(exports)
        return _Code(*engine.session().load(body, wanted, imports))

    def host_code(
        self, functions: Sequence[tuple[str, Any]], target: Target, table: str, plans: Sequence[ExecutionPlan] = ()
    ) -> HostCode:
        """Host programs of devices, and entries that call them, as an object for a target; LLVM text as another."""
        kernels = {name: kernel_spec(name, func) for name, func in functions}
        # A few integers are computed: code for any processor of the triple is as good.
        generic = Target({"kind": "llvm", "mtriple": engine.triple_of(target), "mcpu": "generic"})
        body = self._object(generate_text(functions, generic, plans)[1], generic)
        whole = f'target triple = "TRIPLE"\n{table}'
        entries = [plan.symbol for plan in plans]

        def load(imports: Mapping[str, int]) -> NativeLibrary:
            symbols = [name + PACKED_SUFFIX for name in kernels] + entries
            return _Loaded(*engine.session().load(body, symbols, imports))

        return HostCode(body, kernels, self._object(whole, generic), engine.linker_of(target), load, tuple(entries))

    @staticmethod
    def _object(text: str, target: Target) -> bytes:
        level = str(engine.optimisation_level(target))
        key = cache.key_of(text, engine.triple_of(target), engine.feature_string(target), level)
        body = cache.lookup(key)
        if body is None:
            body = engine.compile_text(text, target)
            cache.store(key, body)
        return body


class _Loaded:
    """A library in this process."""

    def __init__(self, keep: Any, addresses: dict[str, int]) -> None:
        self.keep = keep
        self._addresses = addresses

    def address(self, symbol: str) -> int:
        """The address of a symbol, or of one of the runtime's own; KeyError when there is none."""
        found = self._addresses.get(symbol)
        return engine.session().failures[symbol] if found is None else found


register_native_compiler(HostCompiler)
