"""CUDA source of scheduled programs: what it must contain, and that it compiles where a compiler is installed."""

from __future__ import annotations

import pytest
from programs.gpu import CASES, N, typed_product

import relaxish
from relaxish import dlight
from relaxish.backend.cuda.compile import nvrtc
from relaxish.backend.cuda.codegen.types import constant, type_name
from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

A100 = Target("nvidia/nvidia-a100", host="llvm")
PROGRAMS = {name: (rule, func) for name, (rule, func, _) in CASES.items()}
PROGRAMS["tensor cores"] = (dlight.gpu.Matmul(), typed_product(128, 128, 128, "float16", "float32"))
PROGRAMS["tensor cores, dynamic"] = (dlight.gpu.Matmul(), typed_product(N, 128, 128, "float16", "float16"))
PROGRAMS["integer tensor cores"] = (dlight.gpu.Matmul(), typed_product(128, 128, 128, "int8", "int32"))


def built(name):
    rule, func = PROGRAMS[name]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), A100, False)
    return relaxish.compile(schedule.mod, A100)


@pytest.mark.parametrize("name", PROGRAMS)
def test_source(name):
    module = built(name)
    kernels = module.imported_modules[0]
    source = kernels.inspect_source()
    assert kernels.type_key == "cuda" and kernels.kernel_names == ["main_kernel"]
    assert 'extern "C" __global__ void __launch_bounds__(' in source and "main_kernel(" in source
    assert source.count("{") == source.count("}")
    if "tensor" in name:
        assert "nvcuda::wmma::mma_sync(" in source and "#include <mma.h>" in source


@pytest.mark.parametrize("name", ["softmax", "matmul", "gemv"])
def test_threads_meet_at_barriers(name):
    assert "__syncthreads();" in built(name).imported_modules[0].get_source("cu")


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.available(), reason="the extra 'cuda' is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles(name, arch):
    source = built(name).imported_modules[0].get_source("cu")
    assert nvrtc.compile_cubin(source, arch)[:4] == b"\x7fELF"


def test_vector_types_and_casts():
    @T.prim_func
    def convert(A: T.Buffer((256,), "float16"), B: T.Buffer((256,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("B"):
                    i = T.axis.spatial(256, tx * 4 + v)
                    B[i] = T.max(T.Cast("float32", A[i]), T.float32(0)) * T.float32(0.5)

    source = relaxish.compile(convert, A100).imported_modules[0].inspect_source()
    assert "Vec<__half, 4>" in source and "vcast<float>" in source and "#include <cuda_fp16.h>" in source


def test_outside_of_threads():
    @T.prim_func
    def plain(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]

    with pytest.raises((RelaxishError, RuntimeError), match="(?i)memory|thread"):
        relaxish.compile(IRModule({"main": plain}), A100)


@pytest.mark.parametrize(
    "dtype, text", [("float32x4", "Vec<float, 4>"), ("int64", "long long"), ("float8_e4m3fn", "__nv_fp8_e4m3")]
)
def test_type_names(dtype, text):
    assert type_name(dtype) == text


def test_unknown_type():
    with pytest.raises(RelaxishError, match="int3"):
        type_name("int3")


@pytest.mark.parametrize(
    "value, dtype, text",
    [
        (1, "int32", "1"), (-2, "int64", "(-2LL)"), (True, "bool", "true"), (0.5, "float32", "0.5f"),
        (float("-inf"), "float32", "(-__int_as_float(0x7f800000))"), (2.0, "float16", "(__half)(2.0f)"),
    ],
)  # fmt: skip
def test_constants(value, dtype, text):
    assert constant(value, dtype) == text
