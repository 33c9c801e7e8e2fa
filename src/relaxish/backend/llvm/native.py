"""This backend as the compiler that other backends use for code on the host (:mod:`..common.native_compile`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...target import Target
from ..common.native_compile import NativeCode, register_native_compiler
from . import cache, engine
from .module_gen import ModuleWriter, generate_function

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


register_native_compiler(HostCompiler)
