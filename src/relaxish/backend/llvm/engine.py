"""LLVM itself, through llvmlite: text to object code, objects to a running library or a shared object.

Only this module loads llvmlite, and only when something is compiled or loaded.
"""

from __future__ import annotations
from types import ModuleType

import functools
import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ...runtime.kernels import packed_calls
from ...runtime.kernels.failures import FAIL, RECORD
from ...runtime.exports.linking import Linker, is_foreign
from ...runtime.exports.manifest import CodeRequirements
from ...runtime.kernels.thread_count import pool_loaded
from ...support import config
from ...support.errors import RelaxishError
from ...target import Target
from ...target.llvm_cpus import check_cpu
from . import threadpool

_LOCK = threading.RLock()
_INLINE_ASM = re.compile(r"\bcall\b[^\n]*\basm\b|^module asm", re.MULTILINE)


@functools.lru_cache(maxsize=1)
def binding() -> ModuleType:
    """llvmlite's binding, initialised."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    return llvm


def triple_of(target: Target) -> str:
    """The triple to compile for."""
    from ...target.cpu_features import arch_of
    from ...target.detect import host_triple

    given = target.attrs.get("mtriple")
    if given:
        return str(given)
    host = host_triple()
    arch = arch_of(target)
    return host if host.split("-")[0] == arch else "-".join([arch, *host.split("-")[1:]])


# Names that /proc/cpuinfo knows and LLVM does not: passing them on only makes LLVM print warnings.
_LLVM_X86 = frozenset(
    "adx aes amx-bf16 amx-complex amx-fp16 amx-int8 amx-tile avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd"
    " avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxifma"
    " avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 cldemote clflushopt clwb clzero cmpccxadd crc32 cx16 cx8"
    " enqcmd f16c fma fma4 fsgsbase fxsr gfni invpcid lzcnt mmx movbe movdir64b movdiri mwaitx pclmul pku popcnt"
    " prfchw rdpid rdrnd rdseed sahf serialize sha sse sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tbm vaes vpclmulqdq"
    " waitpkg wbnoinvd x87 xop xsave xsavec xsaveopt xsaves".split()
)


def feature_string(target: Target) -> str:
    """The target's features as LLVM takes them. Raises RelaxishError for a CPU that LLVM does not know."""
    check_cpu(target.mcpu, triple_of(target), "mtriple" in target.attrs)
    names = set(target.llvm_features)
    if triple_of(target).split("-")[0] in ("x86_64", "i686", "i386"):
        names |= {"lzcnt"} & ({"lzcnt"} if "abm" in names else set())
        names &= _LLVM_X86
    dropped = {n for n in config.DISABLE_FEATURES.value.split(",") if n}
    names = {n for n in names if not any(n.startswith(d) for d in dropped)}
    return ",".join("+" + n for n in sorted(names))


def code_features(target: Target) -> frozenset[str]:
    """The features code generation may use: the target's, less those the user disabled."""
    return frozenset(part[1:] for part in feature_string(target).split(",") if part)


# Features that stand for instructions LLVM emits only where they are asked for by name, which our code never does.
_NEVER_EMITTED = frozenset(
    "adx aes cldemote clflushopt clwb clzero crc32 cx8 enqcmd fsgsbase fxsr invpcid mmx movdir64b movdiri mwaitx pclmul"
    " pku prfchw rdpid rdrnd rdseed sahf serialize sha vaes vpclmulqdq waitpkg wbnoinvd x87 xsave xsavec xsaveopt"
    " xsaves".split()
)


def requirements(target: Target) -> CodeRequirements:
    """CPU features that code compiled for a target needs."""
    needed = sorted(code_features(target) - _NEVER_EMITTED)
    return CodeRequirements(str(target), triple_of(target), tuple(needed))


@functools.lru_cache(maxsize=8)
def _machine(triple: str, features: str, level: int) -> Any:
    llvm = binding()
    try:
        found = llvm.Target.from_triple(triple)
    except RuntimeError as err:
        raise RelaxishError(f"LLVM has no code generator for {triple}: {err}") from None
    return found.create_target_machine(features=features, opt=level, reloc="pic", codemodel="default")


@functools.lru_cache(maxsize=8)
def _pipeline(triple: str, features: str, level: int) -> tuple[Any, Any]:
    llvm = binding()
    builder = llvm.create_pass_builder(_machine(triple, features, level), llvm.create_pipeline_tuning_options(0))
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.add_aggressive_dce_pass()
    return builder, manager


def optimisation_level(target: Target) -> int:
    """Level of LLVM's code generator."""
    return int(target.attrs.get("opt-level", config.OPT_LEVEL.value))


def compile_text(text: str, target: Target) -> bytes:
    """An object file from LLVM text."""
    triple = triple_of(target)
    features, level = feature_string(target), optimisation_level(target)
    llvm = binding()
    with _LOCK:
        machine = _machine(triple, features, level)
        try:
            module = llvm.parse_assembly(text.replace('"TRIPLE"', f'"{triple}"', 1))
        except RuntimeError as err:
            raise RelaxishError(f"internal error: generated LLVM text is not valid: {err}") from None
        if is_foreign(triple) and _INLINE_ASM.search(text):
            raise RelaxishError(
                f"inline assembly cannot be compiled for {triple} here: LLVM reads that of its own machine alone"
            )
        module.data_layout = str(machine.target_data)
        if config.CHECK.value:
            module.verify()
        builder, manager = _pipeline(triple, features, level)
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)
        return bytes(machine.emit_object(module))


def assembly_of(text: str, target: Target) -> str:
    """The assembly that ``compile_text`` would encode, for people."""
    triple = triple_of(target)
    features, level = feature_string(target), optimisation_level(target)
    llvm = binding()
    with _LOCK:
        machine = _machine(triple, features, level)
        module = llvm.parse_assembly(text.replace('"TRIPLE"', f'"{triple}"', 1))
        builder, manager = _pipeline(triple, features, level)
        for function in module.functions:
            if not function.is_declaration:
                manager.run(function, builder)
        return str(machine.emit_assembly(module))


@functools.lru_cache(maxsize=1)
def host_target() -> Target:
    """The plain target of this machine."""
    return Target("llvm")


@functools.lru_cache(maxsize=4)
def pool_object(triple: str) -> bytes:
    """The thread pool as an object file, for any CPU of the triple: it goes into libraries for other machines."""
    target = Target({"kind": "llvm", "mtriple": triple, "mcpu": "generic"})
    return compile_text(threadpool.pool_text(triple), target)


class JitSession:
    """The process's JIT: one thread pool, any number of libraries."""

    def __init__(self) -> None:
        llvm = binding()
        target = host_target()
        machine = _machine(triple_of(target), feature_string(target), optimisation_level(target))
        # The older linker maps code and constants apart. Where gaps between many large libraries (torch with CUDA) take the
        # one and not the other, they lie more than 2 GB apart, and it ends the process.
        together = sys.platform != "win32"
        self.jit = llvm.create_lljit_compiler(machine, use_jit_link=together, suppress_errors=False)
        self.counter = 0
        self.trackers: list[Any] = []
        pool = (
            llvm.JITLibraryBuilder()
            .add_object_img(pool_object(triple_of(target)))
            .add_current_process()
            .export_symbol(threadpool.LAUNCH)
            .export_symbol(threadpool.SET_THREADS)
            .export_symbol(FAIL)
            .export_symbol(RECORD)
            .export_symbol(packed_calls.CALL)
            .export_symbol(packed_calls.SETTER)
            .link(self.jit, "rx_pool")
        )
        self.trackers.append(pool)
        self.launch = int(pool[threadpool.LAUNCH])
        self.set_threads_address = int(pool[threadpool.SET_THREADS])
        self.failures = {name: int(pool[name]) for name in (FAIL, RECORD)}
        self.call_packed = int(pool[packed_calls.CALL])
        packed_calls.serve(int(pool[packed_calls.SETTER]))

    def load(
        self, object_bytes: bytes, symbols: list[str], imports: Mapping[str, int] | None = None
    ) -> tuple[Any, dict[str, int]]:
        """Load an object; returns what keeps it alive and the addresses of its symbols.

        ``imports`` are addresses of what the object calls, besides the thread pool and the process's own symbols.
        """
        llvm = binding()
        self.counter += 1
        builder = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process()
        builder.import_symbol(threadpool.LAUNCH, self.launch)
        builder.import_symbol(FAIL, self.failures[FAIL])
        builder.import_symbol(packed_calls.CALL, self.call_packed)
        for symbol, address in (imports or {}).items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        tracker = builder.link(self.jit, f"rx_lib{self.counter}")
        return tracker, {symbol: int(tracker[symbol]) for symbol in symbols}


_SESSION: tuple[int, JitSession] | None = None


def session() -> JitSession:
    """The JIT session of this process."""
    global _SESSION
    with _LOCK:
        if _SESSION is None:
            _SESSION = (os.getpid(), JitSession())
            pool_loaded(_SESSION[1].set_threads_address)
            set_num_threads(None)
        return _SESSION[1]


def set_num_threads(count: int | None) -> None:
    """Threads of parallel loops in JIT-loaded libraries; None takes the configured number."""
    import ctypes

    from ...support.threads import num_threads

    setter = ctypes.CFUNCTYPE(None, ctypes.c_int32)(session().set_threads_address)
    setter(max(1, count if count is not None else num_threads()))


def linker_of(target: Target) -> Linker:
    """Linker of objects made for a target."""
    triple = triple_of(target)
    return Linker(triple, lambda: [pool_object(triple)])
