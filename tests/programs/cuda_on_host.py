"""Generated CUDA C++ without shared memory, run on the CPU by an ordinary C++ compiler: each thread is a loop iteration."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from relaxish.backend.cuda.compile.headers import candidates

_SHIM = r"""
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <math.h>
#include <string.h>
#include <cmath>
using std::isnan; using std::isinf; using std::isfinite;
static uint3 threadIdx, blockIdx;
static float __int_as_float(int x) { float r; memcpy(&r, &x, 4); return r; }
#undef __launch_bounds__
#define __launch_bounds__(...)
#define __expf expf
#define __exp10f exp10f
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static int __popc(unsigned int x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(unsigned int x) { return x ? __builtin_clz(x) : 32; }
static int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static __half __hfma(__half a, __half b, __half c) { return __half(fmaf(a, b, c)); }
static __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return __half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
static __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return __nv_bfloat16(fmaf(a, b, c)); }
static __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
#define ONE(name, f) static __half name(__half x) { return __half(f((float)x)); } \
  static __nv_bfloat16 name(__nv_bfloat16 x) { return __nv_bfloat16(f((float)x)); }
ONE(hlog, logf) ONE(hlog2, log2f) ONE(hlog10, log10f) ONE(hsqrt, sqrtf) ONE(hrsqrt, rsqrtf) ONE(hsin, sinf) ONE(hcos, cosf)
ONE(hfloor, floorf) ONE(hceil, ceilf) ONE(htrunc, truncf) ONE(hrint, nearbyintf)
"""
# The one instruction in these kernels that is written as such.
_EXP2 = re.compile(r'asm\("ex2\.approx[^;]*;" : "=f"\(r\) : "f"\(x\)\);')
_HEAD = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)')


@lru_cache(maxsize=1)
def include_folder() -> Path | None:
    """Where CUDA's headers are, with what an ordinary compiler needs besides (of nvidia-cuda-cccl)."""
    needed = ("cuda_fp16.h", "cuda_runtime.h", "nv/target")
    return next((p for p in candidates() if all((p / name).exists() for name in needed)), None)


def available() -> bool:
    """Whether there are headers and a compiler."""
    return include_folder() is not None and shutil.which("g++") is not None


def _driver(name: str, params: str) -> str:
    kinds = [p.replace("__restrict__", "").rsplit(" ", 1)[0].strip() for p in params.split(",")]
    args = ", ".join(f"({kind})args[{i}]" for i, kind in enumerate(kinds))
    return (
        f'extern "C" void run_{name}(void** args, int blocks, int threads) {{\n'
        "  for (int b = 0; b < blocks; ++b) for (int t = 0; t < threads; ++t) {\n"
        f"    blockIdx.x = b; threadIdx.x = t; {name}({args}); }} }}\n"
    )


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """A library with ``run_<kernel>(arrays, blocks, threads)`` for every kernel of the source."""
    drivers = "".join(_driver(name, params) for name, params in _HEAD.findall(source))
    path = folder / "kernels.cpp"
    path.write_text(_SHIM + _EXP2.sub("r = exp2f(x);", source) + drivers)
    library = path.with_suffix(".so")
    command = ["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", f"-I{include_folder()}"]
    done = subprocess.run([*command, str(path), "-o", str(library)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, kernel: str, arrays: list, blocks: int, threads: int) -> None:
    """Run one kernel on NumPy arrays; the last ones are written."""
    pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
    getattr(library, f"run_{kernel}")(pointers, blocks, threads)
