"""Source for devices that are not here: every kernel of the models prints, and compiles where a compiler can be had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from programs.device_models import MODELS
from programs.gpu import CASES, typed_product

import relaxish
from relaxish import dlight
from relaxish.runtime import enabled
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

SHIMS = Path(__file__).parent / "shims"
TARGETS = {
    "opencl": Target("opencl", host="llvm"),
    "rocm": Target({"kind": "rocm", "mcpu": "gfx90a", "host": "llvm"}),
    "metal": Target("metal", host="llvm"),
    "webgpu": Target("webgpu", host="llvm"),
}
MARKS = {
    "opencl": ["__kernel", "get_group_id(0)", "__local float", "barrier(CLK_LOCAL_MEM_FENCE)"],
    "rocm": ["__global__", "__launch_bounds__(", "__shared__", "__syncthreads()"],
    "metal": ["kernel void", "[[buffer(0)]]", "threadgroup float", "threadgroup_barrier(mem_flags::mem_threadgroup)"],
    "webgpu": ["@compute @workgroup_size(", "var<storage, read_write>", "var<workgroup>", "workgroupBarrier()"],
}


def source_of(kind, rule, func):
    target = TARGETS[kind]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), target, False)
    built = relaxish.build(schedule.mod, target=target)
    device = built.imported_modules[0]
    assert device.type_key == kind and device.kernel_names == ["main_kernel"]
    return device.inspect_source()


def check_compiles(kind, text, tmp_path):
    """Skips nothing: where there is no compiler, printing was the test."""
    path = tmp_path / "kernels.txt"
    path.write_text(text)
    if kind == "metal" and shutil.which("g++"):
        command = ["g++", "-std=c++17", "-x", "c++", "-w", "-fsyntax-only", f"-I{SHIMS}", str(path)]
    elif kind == "rocm" and shutil.which("clang"):
        options = ["-x", "hip", "-std=c++17", "-fcuda-is-device", "-fsyntax-only", "-I", str(SHIMS)]
        command = ["clang", "-cc1", "-triple", "amdgcn-amd-amdhsa", "-target-cpu", "gfx90a", *options, str(path)]
    else:
        return
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", ["softmax", "rms norm", "gemv, tall"])
def test_kernels(kind, name, tmp_path):
    rule, func, _ = CASES[name]
    text = source_of(kind, rule, func)
    assert text.count("{") == text.count("}")
    for mark in MARKS[kind]:
        assert mark in text
    check_compiles(kind, text, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_all_kernels(kind, name, tmp_path):
    rule, func, _ = CASES[name]
    check_compiles(kind, source_of(kind, rule, func), tmp_path)


@pytest.mark.parametrize("kind", ["rocm", "metal", "webgpu"])
def test_halves(kind, tmp_path):
    text = source_of(kind, dlight.gpu.Matmul(), typed_product(32, 32, 32, "float16", "float16"))
    assert {"rocm": "_Float16", "metal": "half", "webgpu": "enable f16;"}[kind] in text
    check_compiles(kind, text, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_models(kind, name, tmp_path):
    built = relaxish.build(MODELS[name][0], TARGETS[kind])
    check_compiles(kind, built.imported_modules[0].imported_modules[0].inspect_source(), tmp_path)


@pytest.mark.parametrize("kind", ["rocm", "metal", "webgpu"])
def test_running_needs_a_device(kind):
    assert not enabled(kind)

    @T.prim_func
    def main(A: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            A[tx] = T.float32(0)

    built = relaxish.build(main, target=TARGETS[kind])
    with pytest.raises(RelaxishError, match=f"no runtime for {kind} devices"):
        built.imported_modules[0].runtime(0)
    with pytest.raises(RelaxishError):
        relaxish.nd.array([1.0], relaxish.device(kind, 0))


@pytest.mark.parametrize("kind", TARGETS)
def test_shuffles(kind, tmp_path):
    @T.prim_func
    def main(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block(""):
                m = T.tvm_warp_activemask()
                near = T.tvm_warp_shuffle_down(m, A[tx], 1, 16, 32) + T.tvm_warp_shuffle_up(m, A[tx], 2, 32, 32)
                C[tx] = near + T.tvm_warp_shuffle(m, A[tx], tx % 8, 8, 32)

    text = relaxish.build(main, target=TARGETS[kind]).imported_modules[0].inspect_source()
    assert {"opencl": "warp_shuffle_up(", "rocm": "__shfl_up(", "metal": "simd_shuffle(", "webgpu": "subgroupShuffle("}[
        kind
    ] in text
    check_compiles(kind, text, tmp_path)


def test_names_that_are_keywords():
    @T.prim_func
    def main(half: T.Buffer((64,), "float32"), fn: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            fn[tx] = half[tx]

    for kind, target in TARGETS.items():
        text = relaxish.build(main, target=target).imported_modules[0].inspect_source()
        assert ("half_1" in text) == (kind in ("opencl", "metal", "rocm")) and ("fn_1" in text) == (kind == "webgpu")


def test_wgsl_has_no_small_integers():
    @T.prim_func
    def main(A: T.Buffer((64,), "int8")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            A[tx] = T.int8(0)

    with pytest.raises(RelaxishError, match="WGSL has no type for int8"):
        relaxish.build(main, target=TARGETS["webgpu"])


def test_computation_outside_of_threads():
    @T.prim_func
    def main(A: T.Buffer((64,), "float32")):
        for i in range(64):
            A[i] = T.float32(0)

    with pytest.raises(RuntimeError, match="(?i)memory"):
        relaxish.build(main, target=TARGETS["opencl"])
