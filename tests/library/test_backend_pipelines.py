"""The stages of the default pipelines: their passes and order."""

from __future__ import annotations

import pytest

from relaxish import relax
from relaxish.target import Target

CORE = ["LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR"]
LOWER = ["RewriteDataflowReshape", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite"]
END = [
    "LowerAllocTensor",
    "KillAfterLastUse",
    "LowerRuntimeBuiltin",
    "ComputePrimValue",
    "VMShapeLower",
    "AttachGlobalSymbol",
]
ADRENO = Target({"kind": "opencl", "keys": ["adreno", "opencl", "gpu"]})


@pytest.mark.parametrize(
    ("folder", "target", "dispatch", "legalize", "graph"),
    [
        ("cuda", "cuda", True, [*CORE, "ApplyDefaultSchedule"], True),
        ("rocm", "rocm", True, [*CORE, "ApplyDefaultSchedule"], False),
        ("gpu_generic", "metal", True, [*CORE, "ApplyDefaultSchedule"], False),
        ("gpu_generic", "vulkan", True, [*CORE, "ApplyDefaultSchedule"], False),
        ("cpu_generic", "llvm", False, CORE, False),
        ("adreno", ADRENO, False,
         ["DecomposeOpsForInference", "FoldConstant", *CORE, "DeadCodeElimination", "ApplyDefaultSchedule"], False),
    ],
)  # fmt: skip
def test_passes(folder, target, dispatch, legalize, graph):
    where = Target(target)
    wanted = {
        "library_dispatch_passes": ["DispatchSampling", "DispatchSortScan"] if dispatch else [],
        "legalize_passes": legalize,
        "dataflow_lower_passes": LOWER,
        "finalize_passes": ["StaticPlanBlockMemory", *(["RewriteCUDAGraph"] if graph else []), *END],
    }
    backend = getattr(relax.backend, folder)
    for stage, names in wanted.items():
        assert [p.info.name for p in getattr(backend, stage)(where)] == names
        assert [p.info.name for p in getattr(relax.pipeline, stage)(where)] == names
    assert callable(backend.get_default_pipeline(where))


def test_clml_is_offloaded_to():
    target = Target({"kind": "opencl", "keys": ["adreno", "clml", "opencl", "gpu"]})
    assert [p.info.name for p in relax.backend.adreno.library_dispatch_passes(target)] == ["OpenCLMLOffLoad"]


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="not yet supported"):
        relax.get_default_pipeline(Target("hexagon"))
