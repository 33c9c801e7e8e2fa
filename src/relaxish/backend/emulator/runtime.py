"""The emulator's runtime in this process: compiled once, its functions by address."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common.native_compile import NativeCode, native_compiler
from . import layout, native
from .program import ThreadProgram
from .switch_text import processor, switch_text

__all__ = ["compile_program", "runtime_addresses"]

# Of code that two threads compile at once, the one that no table keeps would be unloaded while kernels call it.
_COMPILING = threading.RLock()
_PARTS = ("clocks", "clusters", "copies", "fibers", "groups", "registers", "shadow", "sync", "tensor_copies")


def _source(part: str) -> str:
    module = importlib.import_module(f".runtime_code.{part}", __package__)
    assert module.__file__ is not None
    return Path(module.__file__).read_text()


@functools.lru_cache(maxsize=1)
def _runtime() -> tuple[NativeCode, Mapping[str, int]]:
    compiler = native_compiler()
    constants = {k: v for k, v in vars(layout).items() if isinstance(v, int)}
    texts = [native.translate_source(_source(part), constants) for part in _PARTS]
    text = "\n".join([native.declarations(), switch_text(processor(compiler.triple)), *texts])
    names = [line.split("@", 1)[1].split("(", 1)[0] for line in text.splitlines() if line.startswith("define ")]
    code = compiler.compile((), text, names, level=3)
    return code, code.addresses


def runtime_addresses() -> Mapping[str, int]:
    """Addresses of the runtime's functions."""
    with _COMPILING:
        return _runtime()[1]


_HELPERS: dict[str, NativeCode] = {}


def _helper_addresses(helpers: Mapping[str, Any]) -> dict[str, int]:
    """Addresses of helpers; those that this process has not used yet are compiled."""
    found = {}
    for symbol, make in helpers.items():
        if symbol not in _HELPERS:
            _HELPERS[symbol] = native_compiler().compile([(symbol, make())], imports=runtime_addresses(), level=2)
        found[symbol] = _HELPERS[symbol].addresses[symbol]
    return found


def compile_program(programs: Sequence[ThreadProgram], level: int) -> NativeCode:
    """Compile thread functions together."""
    helpers: dict[str, Any] = {}
    for program in programs:
        helpers.update(program.helpers)
    with _COMPILING:
        imports = {**runtime_addresses(), **_helper_addresses(helpers)}
        return native_compiler().compile([(p.name, p.func) for p in programs], imports=imports, level=level)
