"""The stages that default pipelines are made of: lists of passes that users splice into pipelines of their own."""

from __future__ import annotations

from collections.abc import Callable

from ... import dlight, transform
from ...ir.module import IRModule
from ...ir.transform import Pass, PassContext, Sequential, module_pass
from ...op.nn.attention import ATTENTION_KERNELS
from ...relax.analysis.cleanup import keep_vouched_calls
from ...target import Target
from ...tir.transform.numerics.centered_variances import exact_sums
from ...transform.equate_sizes import LegalizeOpenSizes
from ..dispatch_sampling import DispatchSampling
from ..dispatch_sort_scan import DispatchSortScan

__all__ = [
    "as_target",
    "dataflow_lower",
    "dispatch",
    "finalize",
    "gpu_schedules",
    "legalize",
    "pipeline_of",
    "with_wide_sums",
]

#: Makes the passes of one stage for a target.
Stage = Callable[[Target], list[Pass]]


def as_target(target: str | Target) -> Target:
    """The target of that name."""
    return target if isinstance(target, Target) else Target(target)


def dispatch() -> list[Pass]:
    """Special kernels for sampling, sorting and scans."""
    return [DispatchSampling(), DispatchSortScan()]


def legalize() -> list[Pass]:
    """From operators to fused kernels."""
    return [
        Sequential(
            [transform.LegalizeOps(ATTENTION_KERNELS), LegalizeOpenSizes(ATTENTION_KERNELS)], name="LegalizeOps"
        ),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
    ]


def gpu_schedules(target: Target) -> list[Pass]:
    """A schedule for every kernel that has none."""
    return [with_wide_sums(dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(target), simplify_shapes=True))]


def with_wide_sums(schedules: Pass) -> Pass:
    """The pass, given kernels that keep sums of narrow floats in float32 and variances without cancellation.

    Schedules must know the memory and the steps that this takes.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        scheduled: IRModule = schedules(exact_sums(mod, for_device=True))
        return scheduled

    made: Pass = module_pass(run, opt_level=0, name=schedules.info.name)
    return made


def dataflow_lower() -> list[Pass]:
    """From dataflow form to explicit allocation."""
    return [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]


def finalize(*, cuda_graph: bool) -> list[Pass]:
    """From explicit allocation to what the virtual machine runs."""
    graph = [transform.RewriteCUDAGraph()] if cuda_graph else []
    return [
        transform.StaticPlanBlockMemory(),
        *graph,
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]


def pipeline_of(target: str | Target, *stages: Stage) -> Pass:
    """The stages one after the other, in the scope of the target."""
    where = as_target(target)

    def _pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        with where, keep_vouched_calls():
            return Sequential([p for stage in stages for p in stage(where)])(mod)

    made: Pass = module_pass(_pipeline, opt_level=0, name="_pipeline")
    return made
