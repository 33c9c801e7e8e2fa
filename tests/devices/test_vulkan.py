"""Vulkan: GLSL of all default schedules; SPIR-V of it where glslang is installed, validated where spirv-val is."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from programs.device_models import MODELS
from programs.gpu import CASES, typed_product

import relaxish
from relaxish import dlight
from relaxish.backend.vulkan.glslang import find_glslang
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

TARGET = Target({"kind": "vulkan", "max_shared_memory_per_block": 32768, "host": "llvm"})
needs_glslang = pytest.mark.skipif(find_glslang() is None, reason="glslang is not installed")


def check(module, tmp_path):
    """Every kernel's SPIR-V is valid, as far as there are tools to say so."""
    if find_glslang() is None:
        return
    for name in module.kernel_names:
        path = tmp_path / f"{name}.spv"
        path.write_bytes(module.get_binary(f"{name}.spv"))
        if shutil.which("spirv-val"):
            done = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", str(path)], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr


def built(rule, func):
    schedule = rule.apply(func.with_attr("global_symbol", "main"), TARGET, False)
    return relaxish.build(schedule.mod, target=TARGET).imported_modules[0]


@pytest.mark.parametrize("name", ["softmax, dynamic", "matmul, transposed", "transpose"])
def test_kernels(name, tmp_path):
    module = built(*CASES[name][:2])
    text = module.inspect_source()
    assert "#ifdef KERNEL_main_kernel" in text and "layout(local_size_x = " in text and "barrier();" in text
    check(module, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_all_kernels(name, tmp_path):
    check(built(*CASES[name][:2]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    made = relaxish.build(MODELS[name][0], TARGET)
    check(made.imported_modules[0].imported_modules[0], tmp_path)


@pytest.mark.parametrize("dtype, out", [("float16", "float16"), ("int8", "int32"), ("float64", "float64")])
def test_types(dtype, out, tmp_path):
    check(built(dlight.gpu.Matmul(), typed_product(32, 32, 32, dtype, out)), tmp_path)


def test_mathematics(tmp_path):
    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), M: T.Buffer((64,), "bool"), B: T.Buffer((64,), "int64")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            M[tx] = T.isnan(T.erf(A[tx])) or T.fmod(A[tx], T.float32(2)) > T.log10(A[tx])
            B[tx] = T.Cast("int64", T.reinterpret("int32", A[tx])) + T.if_then_else(
                M[tx], T.int64(1) << T.int64(40), T.int64(0)
            )

    check(relaxish.build(main, target=TARGET).imported_modules[0], tmp_path)


def test_without_glslang(monkeypatch):
    monkeypatch.setattr("relaxish.backend.vulkan.glslang.shutil.which", lambda _: None)
    with pytest.raises(RelaxishError, match="needs glslang"):
        built(*CASES["fallback"][:2]).get_binary("main_kernel.spv")
