"""The run time on a real device: memory, streams, graphs, other libraries, other processes, and crashes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from programs.device_models import MODELS

import relaxish
from relaxish import meta_schedule as ms
from relaxish import relax, te, tir
from relaxish.ir.transform import PassContext
from relaxish.meta_schedule.builder import BuilderInput, LocalBuilder
from relaxish.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.runtime.nvidia.errors import DeviceMemoryError, NoCUDAError
from relaxish.target import Target

pytestmark = pytest.mark.gpu

TARGET = Target("nvidia/nvidia-h200", host="llvm")
MANY = 1 << 20


def scaled(count=MANY, past=0):
    """``Y = 2 X``; with ``past``, so far behind the end of ``X``."""
    x = te.placeholder((count,), "float32", name="X")
    func = te.create_prim_func([x, te.compute((count,), lambda i: x[i + past] * 2.0, name="Y")])
    sch = tir.Schedule(func.with_attr("global_symbol", "main"))
    block, thread = sch.split(sch.get_loops("Y")[0], [None, 64])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return sch.mod


def machine(name, **config):
    with PassContext(config=config):
        executable = relaxish.compile(MODELS[name][0], TARGET, relax_pipeline=relax.get_default_pipeline(TARGET))
    return relaxish.VirtualMachine(executable, relaxish.cuda())


def check(name, vm, seed):
    _, make_inputs, reference = MODELS[name]
    inputs = make_inputs(np.random.default_rng(seed))
    got = vm["main"](*[relaxish.nd.array(a, relaxish.cuda()) for a in inputs]).numpy()
    np.testing.assert_allclose(got, reference(*inputs), rtol=1e-3, atol=1e-4)


# ---- memory and streams


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "bool", "int64"])
def test_copies(gpu, dtype):
    source = (np.arange(3000).reshape(3, 1000) % 2).astype(numpy_dtype(dtype))
    there = relaxish.nd.array(source, gpu)
    assert there.dtype == dtype and (there.copyto(gpu).numpy() == source).all()


def test_a_full_device(gpu):
    array = relaxish.nd.array(np.arange(4.0), gpu)
    with pytest.raises(DeviceMemoryError, match="bytes are free"):
        relaxish.nd.empty((2 * gpu.total_global_memory,), "int8", gpu)
    assert array.numpy().tolist() == [0, 1, 2, 3]


def test_streams_and_threads(gpu):
    module = relaxish.compile(scaled(), TARGET)
    results = {}

    def work(seed):
        stream = gpu.create_raw_stream()
        gpu.set_raw_stream(stream)
        x = np.random.default_rng(seed).standard_normal(MANY).astype("float32")
        a, b = relaxish.nd.array(x, gpu), relaxish.nd.empty((MANY,), "float32", gpu)
        for _ in range(4):
            module(a, b)
            module(b, a)
        results[seed] = (a.numpy() == x * 256).all()
        gpu.set_raw_stream(0)
        gpu.free_raw_stream(stream)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


# ---- models


@pytest.mark.parametrize("name", MODELS)
def test_models(gpu, name):
    vm = machine(name)
    check(name, vm, 0)
    check(name, vm, 1)


@pytest.mark.parametrize("name", MODELS)
def test_models_as_graphs(gpu, name):
    vm = machine(name, **{"relax.backend.use_cuda_graph": True})
    for seed in range(3):
        check(name, vm, seed)


def test_exported_machine_code(gpu, tmp_path):
    executable = relaxish.compile(MODELS["mlp"][0], TARGET, relax_pipeline=relax.get_default_pipeline(TARGET))
    executable.export_library(tmp_path / "model.tar")
    loaded = relaxish.runtime.load_module(tmp_path / "model.tar")
    check("mlp", relaxish.VirtualMachine(loaded, gpu), 0)


def test_the_device_keeps_time(real_gpu):
    module = relaxish.compile(scaled(1 << 26), TARGET)
    a = relaxish.nd.empty((1 << 26,), "float32", real_gpu)
    seconds = module.time_evaluator("main", real_gpu, number=10)(a, a).mean
    rate = 2 * 4 * (1 << 26) / seconds
    assert 1e11 < rate < 2e13  # bytes a second: what devices of today move, and what none does


# ---- torch


def test_memory_is_shared_with_torch(real_gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    module = relaxish.compile(scaled(), TARGET)
    x = torch.randn(MANY, device="cuda")
    out = relaxish.nd.empty((MANY,), "float32", real_gpu)
    module(x, out)
    back = torch.from_dlpack(out)
    assert back.data_ptr() == out.ptr and relaxish.nd.from_dlpack(x).ptr == x.data_ptr()
    assert torch.equal(back, 2 * x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.ones(MANY, device="cuda")
        for _ in range(50):
            y = y * 1.0
        module(y, out)  # waits, on the device, for what torch still does on its stream
        assert torch.equal(torch.from_dlpack(out), 2 * y)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        narrow = torch.arange(8, device="cuda").to(dtype)
        assert relaxish.nd.from_dlpack(narrow).numpy().astype("float32").tolist() == list(range(8))


# ---- other processes


def measured(*mods):
    """(seconds or None, message) of candidates, as the search measures them."""
    builder, runner = (
        LocalBuilder(max_workers=1),
        LocalRunner(timeout_sec=60, evaluator_config=EvaluatorConfig(3, 2, 10)),
    )
    args = [ms.arg_info.TensorInfo("float32", (MANY,))] * 2
    try:
        built = [b.artifact_path for b in builder.build([BuilderInput(mod, TARGET) for mod in mods])]
        futures = runner.run([RunnerInput(artifact, "cuda", args) for artifact in built])
        return [(f.result().run_secs, f.result().error_msg) for f in futures]
    finally:
        builder.shutdown()
        runner.shutdown()


def test_candidates_are_measured_in_another_process(gpu):
    gpu.sync()
    ((seconds, message),) = measured(scaled())
    assert message is None and len(seconds) == 2 and all(1e-7 < s < 1 for s in seconds)


def test_a_crash_costs_one_candidate(real_gpu):
    good, crash, again = measured(scaled(), scaled(past=1 << 40), scaled())
    assert good[0] and again[0] and crash[0] is None
    assert "the device is lost" in crash[1] and "ILLEGAL_ADDRESS" in crash[1]
    real_gpu.sync()


def test_a_crash_says_what_to_do(real_gpu):
    code = (
        "from test_gpu_runtime import *\n"
        "module = relaxish.compile(scaled(past=1 << 40), TARGET)\n"
        "a = relaxish.nd.empty((MANY,), 'float32', relaxish.cuda())\n"
        "module(a, a)\n"
        "try:\n    relaxish.cuda().sync()\n"
        "except relaxish.runtime.nvidia.errors.CUDAError as error:\n"
        "    assert error.sticky and \"use_cuda_provider('emulator')\" in str(error), error\n"
        "else:\n    raise AssertionError('nothing happened')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_says_so(real_gpu):
    array = relaxish.nd.array(np.arange(4), real_gpu)
    child = os.fork()
    if child == 0:
        try:
            relaxish.nd.empty((4,), "float32", relaxish.cuda())
            os._exit(1)
        except NoCUDAError as error:
            os._exit(0 if "spawn" in str(error) else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert array.numpy().tolist() == [0, 1, 2, 3]
