"""Pipelines: which passes run, in which order, for which target."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import transform
from .backend.common import stages
from .backend.common.libraries import library_passes
from .ir.module import IRModule, functions_of
from .ir.transform import Pass, PassContext, Sequential, module_pass
from .op.nn.attention import ATTENTION_KERNELS
from .relax.analysis.cleanup import keep_vouched_calls
from .target import Target
from .tir.function import PrimFunc
from .transform.decompose_ops import DecomposeOpsAsWritten
from .transform.equate_sizes import EquateSizes, LegalizeOpenSizes
from .transform.kernel_origins import (
    KernelsToOperators,
    has_origin,
    has_origins,
    remember_lowered,
    unlowered,
    unrecorded,
)
from .transform.placement import home_of, place
from .tir.transform.numerics.centered_variances import CenterVariances, exact_sums

__all__ = [
    "PIPELINE_MAP",
    "dataflow_lower_passes",
    "default_build_pipeline",
    "finalize_passes",
    "get_default_pipeline",
    "get_pipeline",
    "kernel_pipeline",
    "legalize_passes",
    "mixed_pipeline",
    "library_dispatch_passes",
    "register_pipeline",
    "static_shape_tuning_pipeline",
    "zero_pipeline",
]

_OPAQUE = 8
_ON_CPU = ("llvm", "c")
# The folder of backend/ that has the passes of a target kind.
_FAMILIES = {
    **dict.fromkeys(_ON_CPU, "cpu_generic"), "cuda": "cuda", "rocm": "rocm",
    **dict.fromkeys(("metal", "vulkan", "opencl", "webgpu"), "gpu_generic"),
}  # fmt: skip


def _pass(run: Callable[[IRModule, PassContext], IRModule], name: str) -> Pass:
    def keeping(mod: IRModule, ctx: PassContext) -> IRModule:
        with keep_vouched_calls():
            return run(mod, ctx)

    made: Pass = module_pass(keeping, opt_level=0, name=name)
    return made


def zero_pipeline(*, enable_warning: bool = False) -> Pass:
    """Legalise and fuse, then apply the current tuning database if there is one. The default of ``get_pipeline``."""

    def f_zero_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        passes: list[Pass] = [
            transform.LegalizeOps(ATTENTION_KERNELS, enable_warning=enable_warning),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ]
        mod = Sequential(passes)(mod)
        if _database_is_current():
            from .meta_schedule.passes import MetaScheduleApplyDatabase

            mod = MetaScheduleApplyDatabase(enable_warning=enable_warning)(mod)
        return mod

    return _pass(f_zero_pipeline, "zero_pipeline")


def as_operators(mod: IRModule) -> IRModule:
    """The graph of operators that a pipeline without a target made a module of kernels from; other modules as they are."""
    source = unlowered(mod)
    return KernelsToOperators()(source) if has_origins(source) else source


def _database_is_current() -> bool:
    """Whether a tuning database is in scope; if its layer was never loaded, none can be."""
    layer = sys.modules.get(f"{__package__}.meta_schedule.database")
    return layer is not None and layer.Database.current() is not None


def default_build_pipeline() -> Pass:
    """From any graph module to one the virtual machine runs; no fusion and no scheduling."""

    def f_default_build_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        from .backend.cuda.attention import DispatchAttention

        passes = [
            EquateSizes(),
            *stages.dispatch(),
            DispatchAttention(),
            transform.LegalizeOps(ATTENTION_KERNELS),
            LegalizeOpenSizes(ATTENTION_KERNELS),
            *stages.dataflow_lower(),
            *stages.finalize(cuda_graph=True),
        ]
        return remember_lowered(Sequential(passes)(mod), mod)

    return _pass(f_default_build_pipeline, "default_build_pipeline")


def pipeline_to_build(name: str, target: Target, mod: IRModule) -> Pass:
    """Passes of a build for the name of a pipeline.

    On CPUs that is the target's own for ``zero``, whose result has to be lowered, and for ``default`` where operators are
    all that there is: a build takes what these make back to operators, and so need not run them.
    """
    made = PIPELINE_MAP.get(name)
    ours = made is zero_pipeline or (name == "default" and made is default_build_pipeline)
    ours = ours and (name == "zero" or not any(functions_of(mod, PrimFunc)))
    return get_default_pipeline(target) if ours and target.kind.name in _ON_CPU else get_pipeline(name)


def static_shape_tuning_pipeline(
    total_trials: int,
    target: str | Target,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    tuning_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Pass:
    """Tune the kernels of a model of static shapes and apply what was found.

    A model of symbolic sizes is tuned for those of ``tuning_shapes``, by the names of the symbols: ``{"seq": [16, 64]}``,
    or ranges; calls of other sizes run kernels that are not tuned (see :class:`relaxish.relax.transform.SpecializeSizes`).

    With ``cpu_weight_prepack`` constant weights are brought into the layout that the best schedules want.
    """

    def f_tuning(mod: IRModule, ctx: PassContext) -> IRModule:
        before: list[Pass] = []
        after: list[Pass] = []
        cpu = _is_cpu(target)
        if cpu_weight_prepack:
            before = [transform.AttachAttrLayoutFreeBuffers()]
            after = [
                transform.SplitLayoutRewritePreproc(),
                transform.LiftTransformParams(),
                transform.FoldConstant(),
            ]
        from .meta_schedule.passes import (
            ApplyFasterOfDatabaseAndDefault,
            MetaScheduleApplyDatabase,
            MetaScheduleTuneIRMod,
        )

        if tuning_shapes:
            mod = transform.SpecializeSizes(tuning_shapes)(as_operators(mod))
        with stages.as_target(target):
            tuning = [MetaScheduleTuneIRMod({}, work_dir, total_trials, baselines=cpu)] if total_trials > 0 else []
            kernels = [transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(), zero_pipeline()]
            if cpu:  # those that a build would schedule
                kernels = [kernel_pipeline(target, prepack=False)]
            applied = ApplyFasterOfDatabaseAndDefault(work_dir=work_dir) if cpu else MetaScheduleApplyDatabase(work_dir)
            return Sequential(
                [
                    *kernels,
                    CenterVariances(for_device=not cpu),
                    *before,
                    *tuning,
                    applied,
                    *after,
                ]
            )(mod)

    return _pass(f_tuning, "static_shape_tuning_pipeline")


PIPELINE_MAP: dict[str, Callable[..., Pass]] = {
    "zero": zero_pipeline,
    "default": default_build_pipeline,
    "default_build": default_build_pipeline,
    "static_shape_tuning": static_shape_tuning_pipeline,
}


def get_pipeline(name: str = "zero", **kwargs: Any) -> Pass:
    """The pipeline registered as ``name``. Raises ValueError if there is none.

    >>> get_pipeline("zero")(mod)  # doctest: +SKIP
    """
    if name not in PIPELINE_MAP:
        raise ValueError(f"Unknown pre-built pipeline {name}, candidates are {sorted(PIPELINE_MAP)}")
    return PIPELINE_MAP[name](**kwargs)


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Decorator: make a function that returns a pass available as ``get_pipeline(name)``."""
    if name in PIPELINE_MAP:
        raise ValueError(f"Pipeline {name} has already been registered")

    def register(func: Callable[..., Pass]) -> Callable[..., Pass]:
        PIPELINE_MAP[name] = func
        return func

    return register


def _family(target: str | Target) -> Any:
    """The module with the passes of a target: ``backend.<family>.pipeline``. Raises ValueError where there is none."""
    made = stages.as_target(target)
    kind = getattr(made.kind, "name", str(made.kind))
    name = "adreno" if kind == "opencl" and "adreno" in made.keys else _FAMILIES.get(kind)
    if name is None:
        raise ValueError(f"Target {made} is not yet supported by relax pipelines; register one with register_pipeline.")
    return importlib.import_module(f"{__package__}.backend.{name}.pipeline")


def _is_cpu(target: str | Target) -> bool:
    return bool(_family(target).__name__.endswith("cpu_generic.pipeline"))


def library_dispatch_passes(target: str | Target) -> list[Pass]:
    """Passes that hand work to libraries and special kernels."""
    made: list[Pass] = _family(target).library_dispatch_passes(target)
    return made


def legalize_passes(target: str | Target) -> list[Pass]:
    """Passes from operators to fused (and on GPUs scheduled) kernels."""
    made: list[Pass] = _family(target).legalize_passes(target)
    return made


def dataflow_lower_passes(target: str | Target) -> list[Pass]:
    """Passes from dataflow form to explicit allocation."""
    made: list[Pass] = _family(target).dataflow_lower_passes(target)
    return made


def finalize_passes(target: str | Target) -> list[Pass]:
    """Passes from explicit allocation to what the virtual machine runs."""
    made: list[Pass] = _family(target).finalize_passes(target)
    return made


def _cpu_fast(target: Target) -> list[Pass]:
    """What makes the untuned CPU build fast: folded batch norms, blocked layouts, Winograd, attention as one
    kernel, native sets."""
    from .backend.set_ops import LowerSetOps
    from .dlight.cpu import FuseAttention, WinogradConv2D
    from .transform.aligned_columns import AlignColumns
    from .transform.channels_last_convolution import ChannelsLastConvolution
    from .transform.fold_batchnorm import CPUBatchnormFolding
    from .transform.coded_weights import CodedWeights
    from .transform.cpu_layout import CPULayoutPacking
    from .transform.integer_products import IntegerProducts
    from .transform.subpixel_convolution import SubPixelConvTranspose

    return [
        transform.CanonicalizeBindings(),
        IntegerProducts(target),
        CodedWeights(target),
        CPUBatchnormFolding(),
        DecomposeOpsAsWritten(),
        transform.CanonicalizeBindings(),
        # Weights that are computed from constants, decoded ones for example, are constants for what follows.
        transform.FoldConstant(),
        SubPixelConvTranspose(),
        ChannelsLastConvolution(target),
        CPULayoutPacking(target),
        AlignColumns(target),
        WinogradConv2D(target),
        FuseAttention(target),
        LowerSetOps(),
    ]


def _graph_passes(target: Target) -> list[Pass]:
    """What a family of GPUs does to the graph before operators become loops."""
    make = getattr(_family(target), "graph_passes", None)
    return [] if make is None else list(make())


def _default_cpu_schedule() -> list[Pass]:
    from .dlight import ApplyDefaultCPUSchedule

    return [ApplyDefaultCPUSchedule()]


def kernel_pipeline(target: str | Target, *, prepack: bool = True) -> Pass:
    """From a model to the fused kernels that the target's own pipeline schedules: what a tuner should work on.

    With ``prepack``, buffers that only ever hold constants are marked ``layout_free_buffers``, so that a tuned kernel
    may read them in an order of its own. Functions that carry a schedule are left as they are.
    """
    made = stages.as_target(target)
    if made.kind.name == "composite":
        return _kernels_of_several(made, prepack)
    cpu = _is_cpu(made)

    def f_kernels(mod: IRModule, ctx: PassContext) -> IRModule:
        head = _cpu_fast(made) if cpu else _graph_passes(made)
        libraries = [transform.CanonicalizeBindings(), *library_passes(made)] if made.libs else []
        mod = as_operators(mod) if cpu else mod
        with made, unrecorded():
            passes = [EquateSizes(), *libraries, *head, *library_dispatch_passes(made), *legalize_passes(made)]
            mod = Sequential(passes)(_frozen(mod))
            if cpu:
                mod = exact_sums(mod)
            if prepack and cpu and not _has_unbound_weights(mod):
                mod = transform.AttachAttrLayoutFreeBuffers()(mod)
        return mod

    return _pass(f_kernels, "kernel_pipeline")


def _kernels_of_several(composite: Target, prepack: bool) -> Pass:
    """The kernels of a model that is placed on several devices."""

    def f_kernels(mod: IRModule, ctx: PassContext) -> IRModule:
        placed, home = place(mod, composite), home_of(composite)
        if not placed.mixed:
            found: IRModule = kernel_pipeline(home, prepack=prepack)(placed.module)
            return found
        with home:
            return Sequential(_mixed_kernels(home, [p.target for p in placed.places]))(placed.module)

    return _pass(f_kernels, "kernel_pipeline")


def _frozen(mod: IRModule) -> IRModule:
    """Fusion takes functions that carry a schedule as opaque."""
    scheduled = {
        var: func.with_attr("op_pattern", _OPAQUE)
        for var, func in functions_of(mod, PrimFunc)
        if (func.attrs or {}).get("tir.is_scheduled")
    }
    if not scheduled:
        return mod
    out = mod.clone()
    out.update(scheduled)
    return out


def _has_unbound_weights(mod: IRModule) -> bool:
    """Weights given as parameters would be repacked in every call."""
    return any("num_input" in (func.attrs or {}) for func in mod.functions.values())


def _tuned_kernels() -> list[Pass]:
    """Apply the database in scope, and repack constant weights as its schedules want them."""
    from .meta_schedule.passes import ApplyFasterOfDatabaseAndDefault

    return [
        ApplyFasterOfDatabaseAndDefault(),
        transform.SplitLayoutRewritePreproc(),
        transform.FoldConstant(),
        transform.DeadCodeElimination(),
    ]


def _tuned_as_given() -> list[Pass]:
    """Kernels that the database in scope knows as they are given keep their tuned schedules."""
    from .meta_schedule.passes import ApplyFasterOfDatabaseAndDefault

    return [ApplyFasterOfDatabaseAndDefault(has_origin)]


def _mixed_kernels(home: Target, others: Sequence[Target]) -> list[Pass]:
    """From a placed model to fused kernels that say for which device they are; what is on none is for ``home``."""
    elsewhere = {t.kind.name: t for t in reversed(others) if t.kind != home.kind}
    return [
        EquateSizes(),
        transform.CanonicalizeBindings(),
        DecomposeOpsAsWritten(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
        *library_passes(home),
        *(p for target in elsewhere.values() for p in library_passes(target, home=False)),
        *stages.dispatch(),
        *stages.legalize(),
    ]


def mixed_pipeline(home: Target, others: Sequence[Target] = (), captures: bool = False) -> Pass:
    """From a model whose parts live on several devices, ``home`` and ``others``, to what the virtual machine runs.

    Kernels that the tuning database in scope knows get their tuned schedules, the others their default ones when they are
    built. ``captures`` lets runs of CUDA kernels be replayed as graphs.
    """

    def f_mixed(mod: IRModule, ctx: PassContext) -> IRModule:
        tuned: list[Pass] = []
        if _database_is_current():
            from .meta_schedule.passes import ApplyFasterOfDatabaseAndDefault

            tuned = [ApplyFasterOfDatabaseAndDefault()]
        with home:
            lowered = [*stages.dataflow_lower(), *stages.finalize(cuda_graph=captures)]
            return Sequential([*_mixed_kernels(home, others), *tuned, *lowered])(mod)

    return _pass(f_mixed, "mixed_pipeline")


def get_default_pipeline(target: str | Target) -> Pass:
    """The target's own pipeline, used by ``relaxish.build`` when none is named. Raises ValueError if unknown.

    Kernels that the tuning database in scope (``with database:``) knows get their tuned schedules, the others their
    default ones.
    """
    made = stages.as_target(target)
    cpu = _is_cpu(made)

    def default_pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        tuned = _database_is_current()
        with made:
            return Sequential(
                [
                    *(_tuned_as_given() if tuned and cpu and has_origins(mod) else []),
                    kernel_pipeline(made, prepack=tuned),
                    *(_tuned_kernels() if tuned else []),
                    *(_default_cpu_schedule() if cpu else []),
                    *dataflow_lower_passes(made),
                    *finalize_passes(made),
                ]
            )(mod)

    return _pass(default_pipeline, "default_pipeline")
