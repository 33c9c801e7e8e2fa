"""The two halves of a build, for tools that put their own steps between them: code generation and linking.

>>> from relaxish import relax
>>> builder = relax.ExecBuilder()
>>> tir_mod = relax.vm_build._vmcodegen(builder, mod, exec_mode="bytecode")  # doctest: +SKIP
>>> ex = relax.vm_build._vmlink(builder, "llvm", tir_mod)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .backend.vm import ExecBuilder, generate
from .backend.vm.tir_codegen import PREFIX, generate_tir
from .driver import Pipeline, _registered, build, link_kernels, resolve_target
from .ir.module import IRModule, functions_of
from .relax.expr import Function
from .runtime.vm.executable import VMExecutable
from .target import Target
from .tir.function import PrimFunc

__all__ = ["VMExecutable", "build"]


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Emit the graph functions of a lowered module into ``builder``; what remains to be compiled is returned.

    "bytecode" leaves the loop programs; "compiled" adds one ``__vmtir__<name>`` for each graph function. Raises
    ValueError for another ``exec_mode``.
    """
    if exec_mode == "bytecode":
        generate(mod, builder)
        return IRModule(_kernels_of(mod), mod.attrs, mod.global_infos)
    if exec_mode == "compiled":
        out = generate_tir(mod, builder)
        generate(mod, builder, native=True)
        return out
    raise ValueError(f"Unknown exec_mode {exec_mode}")


def _kernels_of(mod: IRModule) -> dict[Any, Any]:
    return {var: func for var, func in mod.functions.items() if not isinstance(func, Function)}


def _vmlink(
    builder: ExecBuilder,
    target: str | Target | None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | Pipeline | None = "default",
    ext_libs: Sequence[Any] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compile the loop programs and put them, the bytecode and external modules into one executable."""
    graph = tir_mod if tir_mod is not None else IRModule({})
    where = resolve_target(target)
    kernels = IRModule(
        {var: func for var, func in functions_of(graph, PrimFunc) if not var.name_hint.startswith(PREFIX)},
        graph.attrs,
    )
    executable = link_kernels(builder, graph, kernels, where, tir_pipeline)
    executable.external_modules.extend(ext_libs or ())
    return _registered(executable, graph, system_lib)
