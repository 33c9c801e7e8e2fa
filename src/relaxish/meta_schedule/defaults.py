"""The rules, postprocs and mutators each kind of target gets when the user names none."""

from __future__ import annotations

from typing import Any

from ..target.target import Target
from ..tir.tensor_intrin import mma_m16n8k8
from ..tir.tensor_intrin.wmma import get_wmma_intrin_group
from . import mutator as mu
from . import postproc as pp
from .schedule_rule.add_rfactor import AddRFactor
from .schedule_rule.auto_bind import AutoBind
from .schedule_rule.cross_thread_reduction import CrossThreadReduction
from .schedule_rule.hopper import MultiLevelTilingHopper
from .schedule_rule.inline import ApplyCustomRule, AutoInline, InlineConstantScalars
from .schedule_rule.multi_level_tiling import MultiLevelTiling, MultiLevelTilingWithIntrin, ReuseType
from .schedule_rule.root_rules import ParallelizeVectorizeUnroll, RandomComputeLocation
from .schedule_rule.schedule_rule import ScheduleRule
from .schedule_rule.tensor_core import MultiLevelTilingTensorCore
from .schedule_rule.wide_vector import MultiLevelTilingWideVector

__all__ = ["CPU_KINDS", "default_rules", "kind_of_target", "rules_for_target"]

CPU_KINDS = ("llvm", "vnni", "avx512", "asimd", "dotprod", "hexagon")
_INTRINSICS = {
    "vnni": ["dot_16x4_vnni"],
    "avx512": ["dot_16x4_avx512"],
    "asimd": ["dot_4x4_i8i8s32_neon"],
    "dotprod": ["dot_4x4_i8i8s32_sdot", "dot_4x4_u8u8u32_udot", "dot_4x4_u8u8i32_hdot"],
}


def kind_of_target(target: Target) -> str:
    """The rule kind a target selects by its features."""
    name = target.kind.name
    if name == "llvm":
        features = target.llvm_features
        if "avx512vnni" in features or "avxvnni" in features:
            return "vnni"
        if "avx512f" in features and "avx512bw" in features:
            return "avx512"
        if target.features.has_dotprod:
            return "dotprod"
        if target.features.has_asimd:
            return "asimd"
        return "llvm"
    if name == "hexagon":
        return "hexagon"
    if name == "c":
        raise ValueError(
            "targets of kind 'c' have no default search space; give sch_rules, postprocs and mutator_probs"
        )
    if name == "cuda":
        arch = str(target.attrs.get("arch", ""))
        digits = "".join(c for c in arch.partition("sm_")[2] if c.isdigit())
        return "cuda-tensorcore" if digits and int(digits) >= 75 else "cuda"
    if name in ("rocm", "vulkan", "metal", "opencl", "webgpu", "nvptx"):
        return "cuda"
    raise ValueError(f"no default search space for targets of kind {name!r}")


def _auto_inline_cpu() -> AutoInline:
    return AutoInline(
        into_producer=False,
        into_consumer=True,
        inline_const_tensor=True,
        disallow_if_then_else=True,
        require_injective=True,
        require_ordered=True,
        disallow_op=["tir.exp"],
    )


def _auto_inline_gpu() -> AutoInline:
    return AutoInline(
        into_producer=True,
        into_consumer=True,
        inline_const_tensor=True,
        disallow_if_then_else=False,
        require_injective=False,
        require_ordered=False,
        disallow_op=None,
    )


def auto_inline_of(target: Target) -> AutoInline:
    """The inlining rule that targets of this kind use by default."""
    return _auto_inline_cpu() if target.kind.name in CPU_KINDS else _auto_inline_gpu()


def _known(name: str) -> bool:
    from ..tir import TensorIntrin

    return TensorIntrin.get(name, allow_missing=True) is not None


def _cpu(kind: str) -> list[ScheduleRule]:
    arm = kind in ("asimd", "dotprod")
    jobs, inner = (8, 32) if arm else (16, 64)
    write = ReuseType("may", (1, 2), "global")
    steps = [0, 8, 32, 256] if arm else [0, 16, 64, 512]
    tensorized: list[ScheduleRule] = [
        MultiLevelTilingWithIntrin(name, "SSRSRS", None, inner, None, None, write)
        for name in _INTRINSICS.get(kind, ())
        if _known(name)
    ]
    return [
        ApplyCustomRule(),
        InlineConstantScalars(),
        _auto_inline_cpu(),
        AddRFactor(max_jobs_per_core=jobs, max_innermost_factor=inner),
        *tensorized,
        MultiLevelTiling("SSRSRS", None, inner, None, None, write),
        ParallelizeVectorizeUnroll(jobs, 32 if arm else 64, steps, True),
        RandomComputeLocation(),
    ]


def _cuda() -> list[ScheduleRule]:
    return [
        ApplyCustomRule(),
        MultiLevelTiling(
            "SSSRRSRS",
            ["blockIdx.x", "vthread.x", "threadIdx.x"],
            64,
            [1, 2, 3, 4, 8, 16],
            ReuseType("must", (4,), "shared"),
            ReuseType("must", (3,), "local"),
        ),
        InlineConstantScalars(),
        _auto_inline_gpu(),
        CrossThreadReduction(thread_extents=[4, 8, 16, 32, 64, 128, 256, 512]),
        ParallelizeVectorizeUnroll(-1, -1, [0, 16, 64, 512, 1024], True),
        AutoBind(max_threadblocks=256, thread_extents=[32, 64, 128, 256, 512, 1024]),
    ]


def _hexagon() -> list[ScheduleRule]:
    return [
        ApplyCustomRule(),
        InlineConstantScalars(),
        _auto_inline_cpu(),
        MultiLevelTilingWideVector("SRSRS", 1024, 128, None, ReuseType("may", (1, 2), "global")),
        ParallelizeVectorizeUnroll(16, 128, [0, 16, 64, 512], True),
    ]


def _cuda_tensor_core() -> list[ScheduleRule]:
    binds = ["blockIdx.y", "blockIdx.x", "threadIdx.y"]
    lengths, read = [1, 2, 3, 4, 8, 16], ReuseType("must", (4,), "shared.dyn")
    wmma = [
        get_wmma_intrin_group("shared.dyn", "shared.dyn", in_dtype, out_dtype, trans_b)
        for in_dtype, out_dtype in (("float16", "float32"), ("float16", "float16"), ("int8", "int32"))
        for trans_b in (False, True)
    ]
    mma = [mma_m16n8k8.get_mma_intrin_group("global", out_dtype) for out_dtype in ("float16", "float32")]
    return [
        ApplyCustomRule(),
        MultiLevelTilingTensorCore(
            wmma, "SSSRRSRS", binds, 4, lengths, read, ReuseType("must", (2,), "shared.dyn"), False
        ),
        MultiLevelTilingTensorCore(mma, "SSSRRSRS", binds, 4, lengths, read, ReuseType("no", (), ""), True),
        *_cuda()[1:],
    ]


def default_rules(kind: str) -> list[ScheduleRule]:
    """The schedule rules of one kind of target, in the order in which they are applied."""
    if kind in ("llvm", "vnni", "avx512", "asimd", "dotprod"):
        return _cpu(kind)
    if kind == "cuda":
        return _cuda()
    if kind == "hexagon":
        return _hexagon()
    if kind == "cuda-tensorcore":
        return _cuda_tensor_core()
    raise ValueError(f"unknown rule kind {kind!r}")


def rules_for_target(target: Target) -> list[ScheduleRule]:
    """The rules of a target's kind; Hopper GPUs try its own tensor cores before those of all GPUs."""
    kind = kind_of_target(target)
    rules = default_rules(kind)
    if kind == "cuda-tensorcore" and str(target.attrs.get("arch", "")) == "sm_90a":
        rules.insert(1, MultiLevelTilingHopper())
    return rules


def default_postprocs(kind: str) -> list[Any]:
    """The postprocessors of one kind of target, in the order in which they are applied."""
    if kind in ("cuda", "cuda-tensorcore"):
        found = [
            pp.DisallowDynamicLoop(),
            pp.RewriteCooperativeFetch(),
            pp.RewriteUnboundBlock(256),
            pp.RewriteParallelVectorizeUnroll(),
            pp.RewriteReductionBlock(),
            pp.VerifyGPUCode(),
        ]
        return [*found, pp.RewriteTensorize(vectorize_init_loop=False)] if kind == "cuda-tensorcore" else found
    if kind not in CPU_KINDS:
        raise ValueError(f"unknown postproc kind {kind!r}")
    tensorize = [pp.RewriteTensorize(vectorize_init_loop=True)] if kind in _INTRINSICS else []
    found = [
        pp.DisallowDynamicLoop(),
        pp.RewriteParallelVectorizeUnroll(),
        pp.RewriteReductionBlock(),
        *tensorize,
        pp.RewriteLayout(),
    ]
    return [*found, pp.VerifyVTCMLimit()] if kind == "hexagon" else found


def default_mutators(kind: str) -> dict[Any, float]:
    """The mutators of one kind of target, with the probability of each."""
    if kind in CPU_KINDS:
        return {
            mu.MutateTileSize(): 0.9,
            mu.MutateComputeLocation(): 0.05,
            mu.MutateUnroll(): 0.03,
            mu.MutateParallel(max_jobs_per_core=16): 0.02,
        }
    return {mu.MutateTileSize(): 0.9, mu.MutateUnroll(): 0.08, mu.MutateThreadBinding(): 0.02}
