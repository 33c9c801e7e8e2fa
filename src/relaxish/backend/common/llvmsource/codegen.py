"""LLVM text through LLVM: optimised, and as assembly or object code of a device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from ....support.errors import RelaxishError

__all__ = ["assembly", "object_code"]


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    _initialize()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as err:
        raise RelaxishError(f"this LLVM makes no code for {triple}: {err}") from None
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")


def _optimized(text: str, machine: Any) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(f'target datalayout = "{machine.target_data}"\n{text}')
        module.verify()
    except RuntimeError as err:
        raise RelaxishError(f"the generated LLVM text is not valid: {err}") from None
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str, triple: str, cpu: str, features: str = "") -> str:
    """Assembly of LLVM text (for NVPTX: PTX)."""
    machine = _machine(triple, cpu, features)
    made: str = machine.emit_assembly(_optimized(text, machine))
    return made


def object_code(text: str, triple: str, cpu: str, features: str = "") -> bytes:
    """Object code of LLVM text."""
    machine = _machine(triple, cpu, features)
    made: bytes = machine.emit_object(_optimized(text, machine))
    return made
