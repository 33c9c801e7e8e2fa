"""From lowered PrimFuncs to something that runs: the backend's public face."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...ir.module import IRModule, functions_of
from ...runtime.kernels.kernel import KernelSpec
from ...runtime.exports.linking import ForeignLibrary, Linker, UnlinkedLibrary, is_foreign
from ...runtime.bytecode.plan import ExecutionPlan
from ...support import config
from ...target import Target
from . import cache, engine
from .entry import generate_entry
from .ltypes import kernel_symbol
from ..common.signature import kernel_spec
from .module_gen import generate_function
from .module_writer import ModuleWriter


@dataclass
class CompiledObject:
    """Object code with what callers must know: kernels by symbol, exported symbols, messages of error codes."""

    object_bytes: bytes
    kernels: dict[str, KernelSpec]
    llvm_text: str
    symbols: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    triple: str = ""
    from_cache: bool = False

    def assembly(self, target: Target | None = None) -> str:
        """The machine code as assembly text."""
        return engine.assembly_of(self.llvm_text, target or engine.host_target())


class JitLibrary:
    """A library living in this process; a ``NativeLibrary``."""

    def __init__(self, compiled: CompiledObject) -> None:
        self.compiled = compiled
        self.kernels = compiled.kernels
        self._keep, self._addresses = engine.session().load(compiled.object_bytes, compiled.symbols)

    def address(self, symbol: str) -> int:
        """The address of an exported symbol, or of one of the runtime's own; KeyError when there is none."""
        found = self._addresses.get(symbol)
        return engine.session().failures[symbol] if found is None else found


def prim_funcs_of(mod: IRModule) -> list[tuple[str, Any]]:
    """PrimFuncs of a module with their symbols, in a stable order."""
    from ...tir import PrimFunc

    out = []
    for gvar, func in functions_of(mod, PrimFunc):
        out.append((str((func.attrs or {}).get("global_symbol") or gvar.name_hint), func))
    return sorted(out, key=lambda item: item[0])


def generate_text(
    functions: Iterable[tuple[str, Any]], target: Target, plans: Sequence[ExecutionPlan] = ()
) -> tuple[ModuleWriter, str]:
    """LLVM text of lowered functions and model entries."""
    module = ModuleWriter(engine.code_features(target), target.vector_bits)
    for name, func in functions:
        generate_function(module, name, func)
    for plan in plans:
        generate_entry(module, plan)
    return module, module.text()


def compile_primfuncs(
    mod: IRModule, target: Target | str | None = None, plans: Sequence[ExecutionPlan] = ()
) -> CompiledObject:
    """Compile the lowered PrimFuncs of ``mod``, and one entry for each plan, to object code.

    Each PrimFunc ``f`` becomes ``i32 f(...)`` and ``i32 f__packed(ptr slots)``. Objects are kept in the disk cache.
    """
    target = Target(target) if target is not None else engine.host_target()
    functions = prim_funcs_of(mod)
    module, text = generate_text(functions, target, plans)
    triple = engine.triple_of(target)
    key = cache.key_of(text, triple, engine.feature_string(target), str(engine.optimisation_level(target)))
    body = cache.lookup(key)
    cached = body is not None
    if body is None:
        body = engine.compile_text(text, target)
        cache.store(key, body)
    _dump(key, text)
    kernels = {name: kernel_spec(name, func) for name, func in functions}
    symbols = [s for name in kernels for s in (kernel_symbol(name), name + "__packed")] + [
        plan.symbol for plan in plans
    ]
    return CompiledObject(body, kernels, text, symbols, [], triple, cached)


def _dump(key: str, text: str) -> None:
    folder = config.DUMP_DIR.value
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{key[:12]}.ll").write_text(text)


def jit_load(compiled: CompiledObject) -> JitLibrary:
    """Make compiled code callable in this process."""
    return JitLibrary(compiled)


def link_shared(path: str | Path, objects: Sequence[bytes], triple: str | None = None) -> None:
    """Write a shared library from objects; the thread pool is included."""
    target = engine.host_target() if triple is None else Target({"kind": "llvm", "mtriple": triple})
    engine.linker_of(target)(str(path), objects)


def linker_of(target: Target) -> Linker:
    """Linker of objects made for a target."""
    return engine.linker_of(target)


def library_of(compiled: CompiledObject) -> JitLibrary | ForeignLibrary | UnlinkedLibrary:
    """The code in this process, or what stands for it where it is another machine's or calls what is not here."""
    if is_foreign(compiled.triple):
        return ForeignLibrary(compiled.triple)
    try:
        return JitLibrary(compiled)
    except RuntimeError as err:
        if "materialize symbols" not in str(err):
            raise
        return UnlinkedLibrary(str(err))
