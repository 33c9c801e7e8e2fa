"""Every operation of every type: the printed C++, run on the CPU, computes what the interpreter computes."""

from __future__ import annotations

import numpy as np
import pytest
from programs import cuda_elementwise as programs
from programs import cuda_on_host as host

import relaxish
from relaxish import interp
from relaxish.ir.dtype import numpy_dtype
from relaxish.target import Target

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not host.available(), reason="CUDA's headers and g++ are not installed"),
]
A100 = Target("nvidia/nvidia-a100", host="llvm")
N, THREADS = 256, 32
# Operands for which the operation is defined.
_POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "log1p", "pow")
_WITHIN_ONE = ("asin", "acos", "atanh")
_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-6, "float64": 1e-12}


def operands(name, dtypes, rng):
    """Inputs of a kernel."""
    made = []
    for position, dtype in enumerate(dtypes):
        kind = np.dtype(numpy_dtype(dtype))
        if programs.FLOATS.count(dtype):
            values = rng.uniform(-4, 4, N)
            if name in _POSITIVE:
                values = np.abs(values) + 0.1
            elif name in _WITHIN_ONE:
                values = values / 5
            elif name == "acosh":
                values = np.abs(values) + 1
            elif name in ("round", "nearbyint"):
                values = np.round(values * 2) / 2  # every second one lies between two integers
            if name.startswith("is") or name in ("min", "max"):
                values[::7], values[3::7], values[5::7] = np.nan, np.inf, -np.inf
            made.append(values.astype(kind))
        elif name in ("left", "right", "ldexp") and position == 1:
            made.append(rng.integers(0, 5, N).astype(kind))
        elif name.startswith(("floor", "trunc")) and position == 1:
            values = rng.integers(1, 9, N)
            made.append((values * (rng.integers(0, 2, N) * 2 - 1) if dtype.startswith("int") else values).astype(kind))
        else:
            low = -100 if dtype.startswith("int") else 0
            made.append(rng.integers(low, 101, N).astype(kind))
    return made


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("dtype", [*programs.FLOATS, *programs.INTEGERS])
def test_operations(dtype, vector, tmp_path):
    lanes = (16 // (8 if dtype.endswith("64") else 2)) if vector else 1
    mod = programs.module_of(dtype, lanes)
    source = relaxish.compile(mod, A100).imported_modules[0].get_source("cu")
    library = host.compiled(source, tmp_path)
    rng = np.random.default_rng(7)
    wrong = []
    for name, _, types in programs.operations(dtype):
        symbol = f"{name}_{dtype}_{lanes}"
        func = mod[symbol]
        inputs = operands(name, types, rng)
        out_dtype = func.buffer_map[func.params[-1]].dtype
        wanted, found = (np.zeros(N, numpy_dtype(out_dtype)) for _ in range(2))
        with np.errstate(all="ignore"):
            interp.run_prim_func(func, [*inputs, wanted])
        host.run(library, f"{symbol}_kernel", [*inputs, found], N // (THREADS * lanes), THREADS)
        a, b = (x.astype("float64") if dtype in programs.FLOATS else x for x in (found, wanted))
        tolerance = _TOLERANCE.get(dtype, 0)
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=a.dtype.kind == "f"):
            worst = int(np.argmax(~np.isclose(a, b, rtol=tolerance, atol=tolerance)))
            wrong.append(f"{name}: {[str(i[worst]) for i in inputs]} gives {found[worst]}, wanted {wanted[worst]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("lanes", [1, 4])
def test_casts(lanes, tmp_path):
    dtypes = [*programs.FLOATS, *programs.INTEGERS, "float8_e4m3fn", "float8_e5m2"]
    mod = programs.casts(lanes, dtypes)
    target = Target({"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024}, host="llvm")
    library = host.compiled(relaxish.compile(mod, target).imported_modules[0].get_source("cu"), tmp_path)
    rng = np.random.default_rng(3)
    for var, func in mod.functions.items():
        source, made = (numpy_dtype(func.buffer_map[p].dtype) for p in func.params)
        values = rng.integers(0, 100, N).astype("float64") + (0.4 if np.dtype(source).kind not in "iu" else 0)
        given = values.astype(source)
        wanted, found = np.zeros(N, made), np.zeros(N, made)
        interp.run_prim_func(func, [given, wanted])
        host.run(library, f"{var.name_hint}_kernel", [given, found], N // (THREADS * lanes), THREADS)
        np.testing.assert_array_equal(found.astype("float64"), wanted.astype("float64"), var.name_hint)
