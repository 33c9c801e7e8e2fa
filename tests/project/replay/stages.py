"""The texts that a program goes through on its way to code: what the hashes of the replay are taken of.

Stages are named after what they show: ``graph`` (after the default graph pipeline), ``lowered`` (loop programs ready for
code generation), ``source`` (LLVM IR or the device language, with the host program). Nothing is compiled, so targets need
neither hardware nor toolkits.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from relaxish import Target
from relaxish.backend.llvm.compile import generate_text, prim_funcs_of
from relaxish.driver import lower_kernels
from relaxish.ir.module import IRModule
from relaxish.pipeline import get_default_pipeline
from relaxish.tir import PrimFunc
from relaxish.transform.field_readers import field_readers_to_builtins

__all__ = ["TARGETS", "Stage", "kernel_stages", "model_stages"]

#: Complete descriptions: nothing may come from the machine that runs the replay.
TARGETS = {
    "llvm": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512 -num-cores=2",
    "amx": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=2",
    "cuda": "nvidia/nvidia-a100",
    "hopper": "nvidia/nvidia-h100",
    "opencl": "opencl -max_num_threads=256",
    "metal": "metal",
    "c": "c",
}

#: Name of a stage, and its text.
Stage = tuple[str, str]


def kernel_stages(kernels: IRModule, where: str) -> Iterator[Stage]:
    """Lowered form and source of loop programs, with the default schedules of a target of ``TARGETS``."""
    target = Target(TARGETS[where])
    if target.kind.name in ("llvm", "c"):
        yield from _host_stages(kernels, target)
        return
    from relaxish.dlight import ApplyDefaultSchedule, default_gpu_rules

    with target:
        scheduled = ApplyDefaultSchedule(*default_gpu_rules(target))(kernels)
    yield "lowered", scheduled.script()
    module = import_module(f"relaxish.backend.{target.kind.name}.build").build_device(scheduled, target)
    yield "source", module.get_source()


def _host_stages(kernels: IRModule, target: Target) -> Iterator[Stage]:
    lowered = lower_kernels(kernels, target)
    yield "lowered", lowered.script()
    if target.kind.name == "c":
        from relaxish.backend.c.build import c_source

        yield "source", c_source(lowered)[0]
        return
    yield "source", generate_text(prim_funcs_of(lowered), target)[1]


def model_stages(module: IRModule, where: str) -> Iterator[Stage]:
    """Stages of a module of graph functions under the default pipeline of a target of ``TARGETS``."""
    target = Target(TARGETS[where])
    with target:
        graph = get_default_pipeline(target)(module)
    graph = field_readers_to_builtins(graph)
    yield "graph", graph.script()
    kernels = {g: f for g, f in graph.functions.items() if isinstance(f, PrimFunc)}
    on_host = {g: f for g, f in kernels.items() if "tir.is_host_func" in (f.attrs or {})}
    if on_host:
        yield from ((f"host {stage}", text) for stage, text in kernel_stages(IRModule(on_host), "llvm"))
    if len(on_host) < len(kernels):
        yield from kernel_stages(IRModule({g: f for g, f in kernels.items() if g not in on_host}), where)
