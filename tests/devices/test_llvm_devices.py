"""PTX and AMD code objects through LLVM, and what the same text computes on this processor."""

from __future__ import annotations

import ctypes
import ctypes.util
import shutil
import subprocess
from itertools import product

import llvmlite.binding as llvm
import numpy as np
import pytest
from programs.gpu import CASES, typed_product

import relaxish
from relaxish import dlight
from relaxish.backend.common.device_split import split_host_device
from relaxish.backend.common.llvmsource import Dialect, device_text
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

NVPTX = Target({"kind": "nvptx", "mcpu": "sm_80", "host": "llvm"})
ROCM = Target({"kind": "rocm", "mcpu": "gfx90a", "host": "llvm"})
QUICK = ("rows", "softmax", "gemv, dynamic columns", "rms norm")


def built(name, target):
    if name == "half":
        rule, func = dlight.gpu.Matmul(), typed_product(32, 32, 32, "float16", "float16")
    else:
        rule, func, _ = CASES[name]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), target, False)
    return relaxish.build(schedule.mod, target=target).imported_modules[0]


def check_ptx(name, tmp_path):
    module = built(name, NVPTX)
    text = module.inspect_source()
    assert (
        ".entry main_kernel" in text and ".target sm_80" in text and "define ptx_kernel" in module.inspect_source("ll")
    )
    if shutil.which("nvcc"):
        path = tmp_path / "kernels.ptx"
        path.write_text(text)
        command = ["nvcc", "-cubin", "-arch=sm_80", str(path), "-o", str(tmp_path / "kernels.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[:2000]
    return text


@pytest.mark.parametrize("name", QUICK)
def test_ptx(name, tmp_path):
    text = check_ptx(name, tmp_path)
    if name == "softmax":
        assert "ex2.approx" in text
    if name == "rms norm":
        assert "bar.sync" in text or "barrier.sync" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in QUICK] + ["half"])
def test_all_ptx(name, tmp_path):
    check_ptx(name, tmp_path)


@pytest.mark.parametrize("name", QUICK)
def test_code_objects(name):
    module = built(name, ROCM)
    assert module.get_binary("o")[:4] == b"\x7fELF"
    text = module.inspect_source("s")
    assert "main_kernel" in text and "s_endpgm" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in QUICK] + ["half"])
def test_all_code_objects(name):
    assert built(name, ROCM).get_binary("o")[:4] == b"\x7fELF"


def test_matrix_instructions():
    """An AMD matrix instruction by its LLVM name, in both forms."""

    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), C: T.Buffer((64, 4), "float32")):
        T.func_attr({"global_symbol": "main"})
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            C[tx, 0:4] = T.call_llvm_pure_intrin(
                "float32x4", "llvm.amdgcn.mfma.f32.16x16x4f32", A[tx], A[tx], C[tx, 0:4], 0, 0, 0
            )

    module = relaxish.build(main, target=ROCM).imported_modules[0]
    assert "__builtin_amdgcn_mfma_f32_16x16x4f32(" in module.inspect_source("hip")
    assert "v_mfma_f32_16x16x4" in module.inspect_source("s")


def test_launches_go_to_the_cuda_driver():
    """A driver that takes machine code is given PTX; the null driver shows that the host program runs."""
    from relaxish.testing import use_cuda_provider

    rule, func, shapes = CASES["rows, dynamic"]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), NVPTX, False)
    with use_cuda_provider("null"):
        device = relaxish.cuda(0)
        module = relaxish.build(schedule.mod, target=NVPTX)
        module["main"](*[relaxish.nd.array(np.zeros(s, "float32"), device) for s in shapes])
        device.sync()


def test_shuffles(tmp_path):
    @T.prim_func
    def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float16"), C: T.Buffer((32,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            with T.block(""):
                m = T.tvm_warp_activemask()
                below = T.tvm_warp_shuffle_down(m, A[tx], 1, 16, 32)
                half = T.tvm_warp_shuffle_up(m, B[tx], 2, 32, 32)
                C[tx] = below + T.Cast("float32", half) + T.tvm_warp_shuffle(m, A[tx], tx % 8, 8, 32)

    text = relaxish.build(main, target=NVPTX).imported_modules[0].inspect_source()
    assert all(f"shfl.sync.{mode}.b32" in text for mode in ("down", "up", "idx"))


def test_unknown_chip_is_an_error():
    from relaxish.backend.common.llvmsource import assembly

    with pytest.raises(RelaxishError, match="makes no code"):
        assembly("", "no-such-device", "")


# -- what the text computes: the same writer, with the processor as the device and one thread after the other ---------


class Processor(Dialect):
    name = "processor"
    triple = llvm.get_process_triple()
    spaces = {"global": 0, "shared": 0, "shared.dyn": 0, "local": 0}

    def thread_index(self, w, tag):
        w.declared.setdefault(tag, f"@{tag} = global i32 0")
        return w.value(f"load i32, ptr @{tag}")

    def barrier(self, w, scope):
        raise AssertionError("threads run one after the other here")


def run(func, arrays, grid, block):
    """Run the only kernel of a scheduled program, whose threads must not wait for each other."""
    _, device = split_host_device(relaxish.IRModule({"main": func.with_attr("global_symbol", "main")}), NVPTX)
    (kernel,) = device.functions.values()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(ctypes.util.find_library("m"))
    features = llvm.get_host_cpu_features().flatten()  # among them those that convert halves
    machine = llvm.Target.from_default_triple().create_target_machine(features=features, codemodel="large")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(device_text(device, Processor())), machine)
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(engine.get_function_address("main_kernel"))
    placed = [relaxish.nd.array(a) for a in arrays]  # aligned, as device memory is
    by_name = {p.name: a for p, a in zip(func.buffer_map.values(), placed)}
    ordered = [by_name[p.name] for p in kernel.params]
    places = {t: engine.get_global_value_address(t) for t in ("threadIdx.x", "blockIdx.x")}
    cells = {t: ctypes.c_int32.from_address(a) for t, a in places.items() if a}
    for b, t in product(range(grid), range(block)):
        for tag, value in (("blockIdx.x", b), ("threadIdx.x", t)):
            if tag in cells:
                cells[tag].value = value
        entry(*[a.ptr for a in ordered])
    for array, made in zip(arrays, placed):
        array[...] = made.numpy()


def threads(func, count):
    schedule = relaxish.tir.Schedule(func)
    for block in schedule.get_child_blocks(schedule.get_block("root")):
        schedule.bind(schedule.fuse(*schedule.get_loops(block)), "threadIdx.x")
    return schedule.mod["main"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("function, reference", [
    ("exp", np.exp), ("log", np.log), ("tanh", np.tanh), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("sqrt", np.sqrt),
    ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sinh", np.sinh), ("log1p", np.log1p), ("floor", np.floor), ("erf", None),
    ("exp10", lambda x: 10**x), ("sin", np.sin), ("tan", np.tan), ("round", np.rint), ("atan", lambda x: np.arctan(x * 4)),
    ("asin", lambda x: np.arcsin(x * 0.9)), ("acos", lambda x: np.arccos(x * 0.9)), ("asinh", np.arcsinh),
    ("acosh", lambda x: np.arccosh(x + 1)), ("atanh", lambda x: np.arctanh(x * 0.9)),
])  # fmt: skip
def test_mathematics(function, reference, dtype):
    operator = getattr(T, function)
    scale, shift = {"atan": (4, 0), "acosh": (1, 1)}.get(
        function, (0.9 if function in ("asin", "acos", "atanh") else 1, 0)
    )

    @T.prim_func
    def main(A: T.Buffer((32,), dtype), B: T.Buffer((32,), dtype)):
        for i in range(32):
            with T.block("B"):
                v = T.axis.spatial(32, i)
                B[v] = operator(A[v] * T.Cast(dtype, scale) + T.Cast(dtype, shift))

    if reference is None:
        from math import erf

        reference = np.vectorize(erf)
    a = (np.random.default_rng(0).random(32) + 0.1).clip(0, 1).astype(dtype)
    got = np.zeros_like(a)
    run(threads(main, 32), [a, got], 1, 32)
    exact = 5e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(got.astype("float64"), reference(a.astype("float64")), rtol=exact, atol=exact)


@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 16])
def test_vectors(lanes):
    n = 8 * lanes

    @T.prim_func
    def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "int32"), C: T.Buffer((n,), "bool")):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            for v in T.vectorized(lanes):
                with T.block("B"):
                    i = T.axis.spatial(n, tx * lanes + v)
                    B[i] = T.Cast("int32", T.max(A[n - 1 - i], T.float32(0)) * T.float32(7)) % 3 - i
            for v in T.vectorized(lanes):
                with T.block("C"):
                    i = T.axis.spatial(n, tx * lanes + v)
                    C[i] = T.Select(A[i] > T.float32(0.5), B[i] < 0, not (A[i] == T.float32(0)))

    a = np.random.default_rng(lanes).standard_normal(n).astype("float32")
    b, c = np.zeros(n, "int32"), np.zeros(n, bool)
    run(main, [a, b, c], 1, 8)
    want = (np.maximum(a[::-1], 0) * np.float32(7)).astype("int32") % 3 - np.arange(n)
    np.testing.assert_array_equal(b, want)
    np.testing.assert_array_equal(c, np.where(a > 0.5, want < 0, a != 0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_integers(dtype):
    @T.prim_func
    def main(
        A: T.Buffer((40,), dtype), B: T.Buffer((40,), dtype), C: T.Buffer((40,), dtype), D: T.Buffer((40,), "float32")
    ):
        for i in range(40):
            with T.block("C"):
                v = T.axis.spatial(40, i)
                C[v] = (
                    T.min(A[v] * B[v], A[v] // T.Cast(dtype, 3))
                    + (B[v] & T.Cast(dtype, 15))
                    - (A[v] >> T.Cast(dtype, 2))
                )
                D[v] = T.Cast("float32", A[v])

    rng = np.random.default_rng(2)
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, 40, dtype=dtype, endpoint=True) for _ in range(2))
    c, d = np.zeros(40, dtype), np.zeros(40, "float32")
    run(threads(main, 40), [a, b, c, d], 1, 40)
    three, fifteen, two = (np.array(x, dtype) for x in (3, 15, 2))
    np.testing.assert_array_equal(c, np.minimum(a * b, a // three) + (b & fifteen) - (a >> two))
    np.testing.assert_array_equal(d, a.astype("float32"))


def test_guarded_reads_and_loops():
    """Reads behind a condition are not made when it does not hold: the first would be far outside."""

    @T.prim_func
    def main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            C[tx] = T.float32(0)
            for k in range(4):
                if tx + k < 16:
                    C[tx] = C[tx] + T.if_then_else(A[tx] >= 0, B[A[tx]], T.float32(k))
                else:
                    C[tx] = C[tx] - T.float32(1)

    rng = np.random.default_rng(0)
    a = rng.integers(0, 16, 16, dtype="int32")
    a[::3] = -(1 << 30)
    b, c = rng.standard_normal(16).astype("float32"), np.zeros(16, "float32")
    run(main, [a, b, c], 1, 16)
    want = np.zeros(16, "float32")
    for t, k in product(range(16), range(4)):
        want[t] += (b[a[t]] if a[t] >= 0 else k) if t + k < 16 else -1
    np.testing.assert_allclose(c, want, rtol=1e-5)


def test_default_schedule_without_barriers():
    rule, func, shapes = CASES["fallback"]
    schedule = rule.apply(func.with_attr("global_symbol", "main"), NVPTX, False)
    a, got = np.random.default_rng(0).standard_normal(shapes[0]).astype("float32"), np.zeros(shapes[1], "float32")
    run(schedule.mod["main"], [a, got], -(-a.size // 1024), 1024)
    np.testing.assert_allclose(got, np.maximum(a + a, 0), rtol=1e-6)
