"""What runs on the host around kernels: the generated Python text, and its execution on the fake driver."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import relaxish
from relaxish.backend.common.host_expr import HostExpr
from relaxish.backend.common.host_program import host_program_text
from relaxish.backend.common.signature import kernel_spec
from relaxish.runtime.devices.host_program import HostProgram, KernelInfo, trunc_div, trunc_mod
from relaxish.runtime import KernelError
from relaxish.runtime.kernels.kernel import ArgumentError
from relaxish.runtime.nvidia.errors import CUDAError
from relaxish.runtime.nvidia.module import TOOLS, CUDAModule
from relaxish.runtime.nvidia.simulated import Kernel
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.testing import FakeCUDA, use_cuda_provider

H100 = Target("nvidia/nvidia-h100", host="llvm")


@pytest.fixture
def fake():
    with use_cuda_provider(FakeCUDA(devices=2, deferred=False)) as driver:
        yield driver


@T.prim_func
def add_rows(var_a: T.handle, var_b: T.handle, var_c: T.handle, scale: T.float32):
    n, m = T.int64(), T.int64()
    a = T.match_buffer(var_a, (n, m))
    b = T.match_buffer(var_b, (n, m))
    c = T.match_buffer(var_c, (n, m))
    for i in T.thread_binding((n * m + T.int64(255)) // T.int64(256), thread="blockIdx.x"):
        for j in T.thread_binding(T.int64(256), thread="threadIdx.x"):
            with T.block("add"):
                v = T.axis.spatial(n * m, i * T.int64(256) + j)
                T.where(i * T.int64(256) + j < n * m)
                c[v // m, v % m] = a[v // m, v % m] * scale + b[v // m, v % m]


def compiled(func):
    return relaxish.compile(func, H100)


def text_of(module):
    return module.imported_modules[0].inspect_source("host")


def on_device(*arrays, index=0):
    return [relaxish.nd.array(a, relaxish.cuda(index)) for a in arrays]


def test_text():
    text = text_of(compiled(add_rows))
    assert text.splitlines()[0] == "def add_rows(rt, a, b, c, scale):"
    assert "n = a.shape[0]" in text and "m = a.shape[1]" in text
    assert "rt.launch('add_rows_kernel', (a.ptr, b.ptr, c.ptr, m, n, scale), " in text
    assert "// 256), 1, 1), (256, 1, 1), 0)" in text


def test_launch(fake):
    module, rng = compiled(add_rows), np.random.default_rng(0)
    arrays = on_device(*(rng.standard_normal((7, 90)).astype("float32") for _ in range(3)))
    module(*arrays, 2.5)
    (launch,) = fake.launches
    pointers = [("pointer", a.ptr) for a in arrays]
    assert launch.grid == (3, 1, 1) and launch.block == (256, 1, 1) and launch.shared == 0
    assert list(launch.args) == [*pointers, ("int64", 90), ("int64", 7), ("float32", 2.5)]


def test_each_device_has_its_kernels(fake):
    module = compiled(add_rows)
    for index in (1, 0, 1):
        module(*on_device(*(np.ones((2, 3), "float32"),) * 3, index=index), 1.0)
    assert [launch.device for launch in fake.launches] == [1, 0, 1]


def test_the_current_stream(fake):
    device, module = relaxish.cuda(), compiled(add_rows)
    arrays = on_device(*(np.ones((2, 3), "float32"),) * 3)
    stream = device.create_raw_stream()
    device.set_raw_stream(stream)
    module(*arrays, 1.0)
    device.set_raw_stream(0)
    module(*arrays, 1.0)
    assert [launch.stream for launch in fake.launches] == [stream, 0]


def test_nothing_to_do(fake):
    compiled(add_rows)(*on_device(*(np.ones((0, 3), "float32"),) * 3), 1.0)
    assert fake.launches == []


def test_torch_and_numpy_arguments_must_be_on_the_device(fake):
    module, good = compiled(add_rows), np.ones((2, 3), "float32")
    with pytest.raises(ArgumentError, match=r"add_rows: tensor argument 1 \(shape \(2, 3\)\) is on cpu\(0\).*copyto"):
        module(*on_device(good), good, *on_device(good), 1.0)
    other = on_device(good, index=1)
    with pytest.raises(ArgumentError, match=r"is on cuda\(1\), but the function runs on cuda\(0\)"):
        module(*on_device(good, good), *other, 1.0)
    with pytest.raises(ArgumentError, match=r"shape\[1\] is expected to be 3"):
        module(*on_device(good, np.ones((2, 4), "float32"), good), 1.0)
    assert fake.launches == []


def test_bare_kernels(fake):
    kernels = compiled(add_rows).imported_modules[0]
    a, b, c = on_device(*(np.ones((2, 3), "float32"),) * 3)
    kernels["add_rows_kernel"](a, b, c, 3, 2, 1.0, 1, 256)
    assert fake.launches[0].grid == (1, 1, 1) and fake.launches[0].block == (256, 1, 1)
    with pytest.raises(
        relaxish.TVMError, match=r"launched with \(pointer, pointer, pointer, int64, int64, float32, block"
    ):
        kernels["add_rows_kernel"](a, b, c)


def test_workspace_and_two_kernels(fake):
    @T.prim_func
    def twice(var_a: T.handle, var_c: T.handle):
        n = T.int64()
        a = T.match_buffer(var_a, (n,))
        c = T.match_buffer(var_c, (n,))
        b = T.alloc_buffer((n,))
        for i in T.thread_binding(n, thread="blockIdx.x"):
            with T.block("first"):
                v = T.axis.spatial(n, i)
                b[v] = a[v] + T.float32(1)
        for i in T.thread_binding(n, thread="blockIdx.x"):
            with T.block("second"):
                v = T.axis.spatial(n, i)
                c[v] = b[v] * T.float32(2)

    module = compiled(twice)
    assert "rt.allocate(n * 4)" in text_of(module)
    module(*on_device(np.ones(5, "float32"), np.ones(5, "float32")))
    first, second = fake.launches
    assert [first.kernel, second.kernel] == ["twice_kernel", "twice_kernel_1"]
    workspace = {v for k, v in first.args if k == "pointer"} & {v for k, v in second.args if k == "pointer"}
    assert len(workspace) == 1


def test_host_statements(fake):
    """Loops, branches, assertions, lets, workspace and packed calls, as lowering may leave them."""

    @T.prim_func
    def steps(var_a: T.handle, count: T.int32):
        n = T.int64()
        a = T.match_buffer(var_a, (n,), elem_offset=T.int64(0))
        assert count < 5, "not so many"
        half: T.int64 = T.truncdiv(n, T.int64(2)) + T.Cast("int64", count % 3)
        if count > 1:
            for k in range(count):
                room = T.allocate([n * T.int64(2)], "float32", "global")
                T.call_packed("kernel", a.data, room, half, k, T.max(T.Cast("int32", half), 1), 32)
        else:
            T.call_packed("tests.host_program", T.if_then_else(half > T.int64(3), 1, 2))

    infos = {"kernel": KernelInfo("kernel", ("pointer", "pointer", "int64", "int32"), ("blockIdx.x", "threadIdx.x"))}
    text = host_program_text("steps", steps, infos)
    program = HostProgram(kernel_spec("steps", steps), text)
    module = CUDAModule("", "sm_90a", infos.values(), [program])
    (array,) = on_device(np.ones(4, "float32"))
    module["steps"](array, 4)
    assert [launch.args[2:] for launch in fake.launches] == [(("int64", 3), ("int32", k)) for k in range(4)]
    assert {launch.grid for launch in fake.launches} == {(3, 1, 1)}
    with pytest.raises(KernelError, match="Assert fail: not so many"):
        module["steps"](array, 9)
    seen = []
    relaxish.register_func("tests.host_program", seen.append, override=True)
    module["steps"](array, 1)
    assert seen == [2]


@pytest.mark.parametrize(
    "make, value",
    [
        (lambda n: T.floordiv(n - 9, 4), -1), (lambda n: T.floormod(n - 9, 4), 2), (lambda n: T.truncdiv(n - 9, 2), -1),
        (lambda n: T.truncmod(n - 10, 4), -3), (lambda n: T.min(n, 3) + T.max(n, 3), 10),
        (lambda n: T.Select(n > 3, n, 0), 7), (lambda n: T.shift_left(n, 2) | 1, 29), (lambda n: T.bitwise_not(n), -8),
        (lambda n: T.Cast("float32", n) / T.float32(2), 3.5), (lambda n: T.Cast("int32", T.exp(T.Cast("float32", n))), 1096),
        (lambda n: T.Cast("uint8", n - 8), 255), (lambda n: T.And(n > 3, T.Not(n == 8)), True),
        (lambda n: T.likely(n != 7), False),
    ],
)  # fmt: skip
def test_expressions(make, value):
    from relaxish import tir

    n = tir.Var("n", "int32")
    text = HostExpr("test", {n: "n"}, lambda name: name).text(make(n))
    scope = {"n": 7, "math": __import__("math"), "trunc_div": trunc_div, "trunc_mod": trunc_mod}
    assert eval(text, scope) == value


def test_what_cannot_run_on_the_host():
    @T.prim_func
    def stores(var_a: T.handle):
        a = T.match_buffer(var_a, (4,))
        a[0] = T.float32(1)

    with pytest.raises(relaxish.TVMError, match="stores: a BufferStore cannot run on the host"):
        host_program_text("stores", stores, {})


def test_results_of_kernels(fake):
    """The fake's kernels are Python functions of their arguments."""

    def kernel(launch):
        (_, a), (_, b), (_, c), (_, m), (_, n), (_, scale) = launch.args
        of = lambda address: np.ctypeslib.as_array((ctypes.c_float * (m * n)).from_address(address))
        of(c)[:] = of(a) * np.float32(scale) + of(b)

    fake.kernels["add_rows_kernel"] = kernel
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 6)).astype("float32") for _ in range(2))
    there = on_device(a, b, np.zeros_like(a))
    compiled(add_rows)(*there, 3.0)
    np.testing.assert_allclose(there[2].numpy(), a * np.float32(3) + b)


@pytest.mark.parametrize("a, b", [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5)])
def test_truncating_division(a, b):
    assert trunc_div(a, b) == int(a / b) and trunc_mod(a, b) == a - b * int(a / b)


# ---- shared memory


def shared_user(count):
    @T.prim_func
    def through_shared(a: T.Buffer((count,), "float32"), b: T.Buffer((count,), "float32")):
        for i in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("root_1"):
                T.reads(a[0:count])
                T.writes(b[0:count])
                s = T.alloc_buffer((count,), scope="shared.dyn")
                for k in range(count // 128):
                    s[k * 128 + i] = a[k * 128 + i]
                for k in range(count // 128):
                    b[k * 128 + i] = s[k * 128 + i]

    return through_shared


@pytest.mark.parametrize("count", [1 << 10, 1 << 15])
def test_dynamic_shared_memory(fake, count):
    module = compiled(shared_user(count))
    data = on_device(np.ones(count, "float32"), np.ones(count, "float32"))
    module(*data)
    module(*data)
    assert [launch.shared for launch in fake.launches] == [4 * count] * 2


def test_too_much_shared_memory(fake):
    with pytest.raises(relaxish.TVMError, match="needs 262144 bytes of shared memory a block.* has 232448"):
        compiled(shared_user(1 << 16))(*on_device(*(np.ones(1 << 16, "float32"),) * 2))


# ---- faults


def test_an_image_that_does_not_load(fake):
    fake.fail("load_module", "INVALID_IMAGE")
    module, arrays = compiled(add_rows), on_device(*(np.ones((2, 3), "float32"),) * 3)
    with pytest.raises(CUDAError, match="loading a module failed: CUDA_ERROR_INVALID_IMAGE.*delete the cache"):
        module(*arrays, 1.0)
    module(*arrays, 1.0)  # the next attempt loads it
    assert len(fake.launches) == 1


def test_a_kernel_that_crashes():
    with use_cuda_provider(FakeCUDA()) as fake:
        module, arrays = compiled(add_rows), on_device(*(np.ones((2, 3), "float32"),) * 3)
        fake.fail("add_rows_kernel", "ILLEGAL_ADDRESS")
        module(*arrays, 1.0)  # only queued
        with pytest.raises(CUDAError, match="ILLEGAL_ADDRESS.*restart the process.*emulator"):
            relaxish.cuda().sync()
        with pytest.raises(
            CUDAError, match="launching add_rows_kernel.*the first failure was: running add_rows_kernel"
        ):
            module(*arrays, 1.0)
        with pytest.raises(CUDAError, match="ILLEGAL_ADDRESS"):
            arrays[0].numpy()
        del arrays  # memory of a lost context is gone; giving it back is no error


def test_too_many_registers(fake):
    fake.fail("add_rows_kernel", "LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(CUDAError, match="too many registers"):
        compiled(add_rows)(*on_device(*(np.ones((2, 3), "float32"),) * 3), 1.0)


# ---- modules


def test_host_and_device_functions_together(fake):
    @I.ir_module
    class Both:
        @T.prim_func
        def on_host(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            T.func_attr({"target": T.target("llvm"), "global_symbol": "on_host"})
            for i in range(4):
                with T.block("b"):
                    v = T.axis.spatial(4, i)
                    b[v] = a[v] * T.float32(2)

        @T.prim_func
        def on_gpu(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
            T.func_attr({"global_symbol": "on_gpu"})
            for i in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("b"):
                    v = T.axis.spatial(4, i)
                    b[v] = a[v] * T.float32(3)

    module = relaxish.compile(Both, H100)
    a, b = np.ones(4, "float32"), np.zeros(4, "float32")
    module["on_host"](a, b)
    assert b.tolist() == [2.0] * 4
    module["on_gpu"](*on_device(a, b))
    assert [launch.kernel for launch in fake.launches] == ["on_gpu_kernel"]


def test_sources(tmp_path):
    kernels = compiled(add_rows).imported_modules[0]
    assert kernels.type_key == "cuda" and kernels.kernel_names == ["add_rows_kernel"] and kernels.arch == "sm_90a"
    assert "__global__" in kernels.inspect_source() and kernels.inspect_source("host").startswith("def add_rows(rt")
    kernels.save(tmp_path / "kernels.cu")
    assert (tmp_path / "kernels.cu").read_text() == kernels.inspect_source("cu")
    with pytest.raises(relaxish.TVMError, match="no source of format 'cl'"):
        kernels.get_source("cl")


def test_time_evaluator_reads_the_clock_of_the_device(fake):
    fake.launch_ms = 0.25
    arrays = on_device(*(np.ones((2, 3), "float32"),) * 3)
    measured = compiled(add_rows).time_evaluator("add_rows", relaxish.cuda(), number=4, repeat=3)(*arrays, 1.0)
    assert measured.results == pytest.approx([0.25e-3] * 3)
    assert len(fake.launches) == 13


def test_caches_are_flushed_before_timing(fake):
    arrays, filled = on_device(*(np.ones((2, 3), "float32"),) * 3), []
    fill = fake.fill
    fake._devices[0].attributes["l2_cache_size_bytes"] = 4096
    fake.fill = lambda device, target, value, nbytes, stream=None: (
        filled.append(nbytes),
        fill(device, target, value, nbytes, stream),
    )
    timed = compiled(add_rows).time_evaluator(
        "add_rows", relaxish.cuda(), number=1, repeat=3, f_preproc="l2_cache_flush_cuda"
    )
    timed(*arrays, 1.0)
    assert filled == [8192] * 3


def test_timer(fake):
    fake.launch_ms = 3.0
    arrays = on_device(*(np.ones((2, 3), "float32"),) * 3)
    with relaxish.runtime.Timer(relaxish.cuda()) as timer:
        compiled(add_rows)(*arrays, 1.0)
    assert timer.elapsed == pytest.approx(3e-3)


@T.prim_func
def two_kernels(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")):
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.block("b"):
            v = T.axis.spatial(64, i)
            b[v] = a[v] + T.float32(1)
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.block("c"):
            v = T.axis.spatial(64, i)
            c[v] = b[v] * T.float32(2)


def test_kernels_compile_by_themselves(monkeypatch, tmp_path):
    """Machine code is made of each kernel's own source, when a device with real images needs it, and exported."""
    compiled_sources = []

    def compile_many(jobs):
        compiled_sources.extend(jobs)
        return [f"code {arch} {source.count('__global__')}".encode() for source, arch in jobs]

    monkeypatch.setitem(TOOLS, "cubins", compile_many)
    module = compiled(two_kernels).imported_modules[0]
    assert set(module.parts) == {"two_kernels_kernel", "two_kernels_kernel_1"}
    driver = FakeCUDA(deferred=False)
    driver.image_format = "cubin"
    driver.open_image = lambda device, image: (
        {n: Kernel(n, None) for n in module.infos} if image == b"code sm_90a 1" else {}
    )
    with use_cuda_provider(driver):
        arrays = on_device(*(np.ones(64, "float32"),) * 3)
        module["two_kernels"](*arrays)
        module["two_kernels"](*arrays)
        assert [launch.kernel for launch in driver.launches] == ["two_kernels_kernel", "two_kernels_kernel_1"] * 2
        assert len(compiled_sources) == 2 and sorted(module.images) == sorted(f"sm_90a/{n}" for n in module.infos)
        manifest, binaries = module.package()
        loaded = CUDAModule.from_json(manifest, binaries)
        assert loaded.images == module.images and loaded.parts == module.parts
        loaded["two_kernels"](*arrays)
        assert len(driver.launches) == 6 and len(compiled_sources) == 2
    older = FakeCUDA(deferred=False, attributes={"compute_capability_major": 8})
    older.image_format, older.open_image = "cubin", lambda device, image: {n: Kernel(n, None) for n in module.infos}
    with use_cuda_provider(older):
        loaded["two_kernels"](*on_device(*(np.ones(64, "float32"),) * 3))
    assert [arch for _, arch in compiled_sources[2:]] == ["sm_80"] * 2


def test_a_kernel_that_does_not_compile(monkeypatch):
    monkeypatch.setitem(TOOLS, "cubins", lambda jobs: [relaxish.TVMError("line 3: no such thing") for _ in jobs])
    driver = FakeCUDA(deferred=False)
    driver.image_format = "cubin"
    with use_cuda_provider(driver), pytest.raises(relaxish.TVMError, match="line 3: no such thing"):
        compiled(two_kernels)(*on_device(*(np.ones(64, "float32"),) * 3))


def test_export(fake, tmp_path):
    module = compiled(add_rows)
    module.imported_modules[0].images["sm_90a"] = b"machine code"
    for name in ("lib.so", "lib.tar"):
        module.export_library(tmp_path / name)
        loaded = relaxish.runtime.load_module(tmp_path / name)
        kernels = loaded.imported_modules[0]
        assert kernels.images == {"sm_90a": b"machine code"} and kernels.arch == "sm_90a"
        assert kernels.inspect_source() == module.imported_modules[0].inspect_source()
        before = len(fake.launches)
        loaded["add_rows"](*on_device(*(np.ones((2, 3), "float32"),) * 3), 1.0)
        assert len(fake.launches) == before + 1
    (tmp_path / "lib.so").write_bytes(b"PK damaged")
    with pytest.raises(relaxish.TVMError, match="damaged"):
        relaxish.runtime.load_module(tmp_path / "lib.so")
