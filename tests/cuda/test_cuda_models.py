"""Whole models by the default CUDA pipeline: every kernel gets a schedule, CUDA source, and compiles where NVRTC is installed."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import pipeline, tir
from relaxish.backend.cuda.compile import nvrtc
from relaxish.ir import IRModule
from relaxish.ir.transform import Sequential
from relaxish.target import Target

pytest.importorskip("onnx")
A100 = Target("nvidia/nvidia-a100", host="llvm")
H100 = Target("nvidia/nvidia-h100", host="llvm")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50", "inception_v2"])
def test_every_kernel(name):
    from relaxish.frontend.onnx import from_onnx
    from relaxish.tools.light_models import light_model

    with A100:
        steps = [*pipeline.library_dispatch_passes(A100), *pipeline.legalize_passes(A100)]
        mod = Sequential(steps)(from_onnx(light_model(name)))
    kernels = {gv: f for gv, f in mod.functions.items() if isinstance(f, tir.PrimFunc)}
    assert kernels and all(f.attrs.get("tir.is_scheduled") for f in kernels.values())
    for gvar, func in kernels.items():
        built = relaxish.compile(IRModule({gvar: func.with_attr("global_symbol", gvar.name_hint)}), A100)
        source = built.imported_modules[0].get_source("cu")
        assert "__global__" in source
        if nvrtc.available():
            assert nvrtc.compile_cubin(source, "sm_80")[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
def test_half_precision_on_hopper():
    """Kernels of ResNet-50 in float16: they compile for sm_90a, nothing spills, and products are by warpgroups."""
    from relaxish.frontend.onnx import from_onnx
    from relaxish.relax.transform import ToMixedPrecision
    from relaxish.tools.light_models import light_model

    with H100:
        steps = [
            ToMixedPrecision(out_dtype="float16"),
            *pipeline.library_dispatch_passes(H100),
            *pipeline.legalize_passes(H100),
        ]
        mod = Sequential(steps)(from_onnx(light_model("resnet50")))
    jobs = []
    for gvar, func in mod.functions.items():
        if isinstance(func, tir.PrimFunc):
            built = relaxish.compile(IRModule({gvar: func.with_attr("global_symbol", gvar.name_hint)}), H100)
            jobs.append((built.imported_modules[0].get_source("cu"), "sm_90a"))
    assert all(isinstance(image, bytes) for image in nvrtc.compile_many(jobs))
    assert not [name for job in jobs for name, used in nvrtc.kernel_resources(*job).items() if used.spills]
    assert sum("wgmma" in source for source, _ in jobs) >= 10
