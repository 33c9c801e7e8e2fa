"""Libraries that a target asks for (``-libs=cublas,cudnn``): what of a model goes to them, and whether they are there.

A library that somebody brings along needs no entry here: patterns registered under its name and a code generator
``relax.ext.<name>`` are used in the same way.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.transform import Pass, PassContext, module_pass
from ...relax.analysis.variables import post_order_visit
from ...relax.expr import Function, is_call_of
from ...runtime.registry import get_global_func
from ...support.errors import RelaxishError
from ...support.host_cpu import host_triple
from ...support.sequences import of_kind
from ...target import Target
from ...target.libraries import LIBRARY_KINDS, fitting
from ...transform import FuseOpsByPattern, RunCodegen
from ..pattern_registry import get_patterns_with_prefix, only_on

__all__ = ["LIBRARIES", "library_passes"]

_SORTS = ("relax.sort", "relax.argsort", "relax.topk", "relax.cumsum")


@dataclass(frozen=True)
class Library:
    """A library with an entry: the pass over the graph ("module:function", in ``backend/``), what loads it
    ("module:function", in ``runtime/``), which raises MissingExtraError, and a code generator that others register."""

    partition: str = ""
    load: str = ""
    codegen: str = ""


LIBRARIES: dict[str, Library] = {
    "cublas": Library("cuda.cublas:partition_for_cublas", "nvidia.libs.cublaslt:library"),
    "cudnn": Library("cuda.cudnn:partition_for_cudnn", "nvidia.libs.cudnn:library"),
    "cutlass": Library("cuda.cutlass:partition_for_cutlass"),
    "thrust": Library(),
    "mkl": Library("cpu_generic.mkl:partition_for_mkl", "kernels.mkl:load_mkl"),
    "hipblas": Library("rocm.hipblas:partition_for_hipblas", codegen="hipblas"),
    "clml": Library("adreno.clml:OpenCLMLOffLoad", codegen="openclml"),
}
_PACKAGE = __package__.rpartition(".backend")[0]


def _named(layer: str, where: str) -> Callable[..., Any]:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"{_PACKAGE}.{layer}.{module}"), name)


def library_passes(target: Target, home: bool = True) -> list[Pass]:
    """For each library of the target, in the order given, a pass that hands it what it can do; none without ``libs``.

    Of a program for several devices they look at what lives on devices of the target's kind; and, where the target is its
    ``home``, at what lives on none in particular.

    Raises RelaxishError for a library that there is not, or that does not go with the kind of target, and MissingExtraError
    for one that is not installed where the program is to run on a machine like this one.
    """
    names = list(dict.fromkeys(target.libs))
    for name in names:
        _check(name, target)
    return [_pass_of(name, target.kind.name, home) for name in names]


def _check(name: str, target: Target) -> None:
    library = LIBRARIES.get(name)
    if library is None:
        if not get_patterns_with_prefix(name) or get_global_func(f"relax.ext.{name}", True) is None:
            raise RelaxishError(
                f"the target asks for the library {name}, which no extra of relaxish brings: known are "
                f"{', '.join(LIBRARIES)}; another needs patterns (register_patterns) and a function relax.ext.{name}"
            )
        return
    if not fitting([name], target.kind.name):
        kinds = " or ".join(LIBRARY_KINDS[name])
        raise RelaxishError(f"the library {name} is for targets of kind {kinds}, not {target.kind.name}")
    if library.codegen and get_global_func(f"relax.ext.{library.codegen}", True) is None:
        raise RelaxishError(
            f"the target asks for the library {name}, which no extra of relaxish brings: it needs a code generator of its "
            f"own, registered as relax.ext.{library.codegen}"
        )
    if library.load and _is_for_this_machine(target):
        _named("runtime", library.load)()


def _is_for_this_machine(target: Target) -> bool:
    """Whether what is built could run here; what a board has installed cannot be known from here."""
    host = target if target.get_target_device_type() == 1 else target.host
    triple = str(host.attrs.get("mtriple", "")) if host is not None else ""
    return not triple or triple.partition("-")[0] == host_triple().partition("-")[0]


def _pass_of(name: str, kind: str, home: bool) -> Pass:
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        with only_on(kind, home):
            return parted(mod)

    def parted(mod: IRModule) -> IRModule:
        if name == "thrust":
            _require_thrust(mod)
            return mod
        library = LIBRARIES.get(name)
        if library is None:
            found = FuseOpsByPattern(get_patterns_with_prefix(name), annotate_codegen=True)(mod)
        else:
            partition: Callable[..., Any] = _named("backend", library.partition)
            found = partition()(mod) if name == "clml" else partition(mod)
        if not any("Codegen" in (f.attrs or {}) for f in of_kind(found.functions.values(), Function)):
            return mod
        out: IRModule = RunCodegen(entry_functions=[v.name_hint for v in mod.functions])(found)
        return out

    made: Pass = module_pass(run, opt_level=0, name=f"library_{name}")
    return made


def _require_thrust(mod: IRModule) -> None:
    """What sorts or sums up needs the packed functions of Thrust."""
    needed: list[str] = []

    def note(expr: PrimExpr) -> None:
        if is_call_of(expr, *_SORTS):
            needed.append(expr.op.name)

    for func in of_kind(mod.functions.values(), Function):
        post_order_visit(func, note)
    for op in dict.fromkeys(needed):
        name = "tvm.contrib.thrust.sum_scan" if op == "relax.cumsum" else "tvm.contrib.thrust.sort"
        if get_global_func(name, True) is None:
            raise RelaxishError(
                f"the target asks for the library thrust, and {op} needs its packed function {name}, which no extra "
                "of relaxish brings; register it, or leave -libs=thrust out: then relaxish's own kernels sort"
            )
