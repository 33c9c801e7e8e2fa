"""Whole models by the default CUDA pipeline: every kernel gets a schedule, CUDA source, and compiles where NVRTC is installed."""

from __future__ import annotations

import pytest

import relaxish
from relaxish import pipeline, tir
from relaxish.backend.cuda import nvrtc
from relaxish.ir import IRModule
from relaxish.ir.transform import Sequential
from relaxish.target import Target

pytest.importorskip("onnx")
A100 = Target("nvidia/nvidia-a100", host="llvm")


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
