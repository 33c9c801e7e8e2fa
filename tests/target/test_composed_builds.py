"""What composed targets do: placement, copies, programs built by themselves, several machines, runtimes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.backend.cuda.compile import nvrtc
from relaxish.meta_schedule.relax_integration import extract_tasks, tune_relax
from relaxish.pipeline import kernel_pipeline
from relaxish.runtime.disco import ProcessSession, ThreadedSession
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import MalformedDataError, RelaxishError
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

CUDA = {"kind": "cuda", "arch": "sm_80"}
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="exporting CUDA programs needs a CUDA compiler")
GPU, HOST = relaxish.cuda(0), relaxish.cpu(0)


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b


@I.ir_module
class Hinted:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.hint_on_device(b, relaxish.cpu(0))
            d = R.add(c, c)
            e = R.multiply(d, R.const(np.float32(0.5)))
            f = R.exp(e)
            R.output(f)
        return f


@I.ir_module
class Handwritten:
    @T.prim_func
    def threefold(x: T.Buffer((4, 5), "float32"), y: T.Buffer((4, 5), "float32")):
        T.func_attr({"tir.is_scheduled": 1})
        for i in T.parallel(4):
            for j in range(5):
                with T.block("b"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] * T.float32(3)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
        cls = Handwritten
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.call_tir(cls.threefold, (a,), R.Tensor((4, 5), "float32"))
            b2 = R.call_tir(cls.threefold, (b,), R.Tensor((4, 5), "float32"))
            c = R.nn.relu(b2)
            R.output(c)
        return c


@I.ir_module
class WithStrategy:
    @R.function(private=True)
    def inner(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 5), "float32")) -> R.Tensor(("n", 5), "float32"):
        R.func_attr({"Codegen": "strategy"})
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 5), "float32")):
        cls = WithStrategy
        y = cls.inner(x, w)
        z = R.add(y, y)
        return z


@pytest.fixture(autouse=True)
def _emulated():
    with use_cuda_provider("emulator"):
        yield


def _inputs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.normal(size=(4, 8)).astype("float32"), rng.normal(size=(8, 5)).astype("float32")


def _run(executable: Any, devices: list[Any]) -> Any:
    machine = relaxish.VirtualMachine(executable, devices)
    return machine["main"](*(relaxish.nd.array(a, devices[0]) for a in _inputs()))


def _product() -> np.ndarray:
    x, w = _inputs()
    return x @ w


@pytest.mark.parametrize(
    ("target", "devices"),
    [
        ([CUDA, "llvm"], [GPU]),
        ({"gpu": CUDA, "cpu": "llvm"}, [GPU]),
        (["llvm", CUDA], [HOST]),
        ({"kind": "composite", "host": "llvm", "vdevice0": CUDA}, [GPU]),
        ({"devices": [{"devices": [CUDA]}]}, [GPU]),
    ],
)
def test_what_has_no_device_runs_on_the_first(target: Any, devices: list[Any]) -> None:
    executable = relaxish.build(Plain, target)
    assert executable.metadata["devices"] == [[devices[0].device_type, 0]]
    out = _run(executable, devices)
    assert out.device == devices[0]
    np.testing.assert_allclose(out.numpy(), np.maximum(_product(), 0), rtol=1e-5, atol=1e-5)


def test_hints_divide_a_function_between_devices() -> None:
    executable = relaxish.build(Hinted, [CUDA, "llvm"])
    assert executable.metadata["devices"] == [[2, 0], [1, 0]]
    on_device = {name for module in executable.device_modules for name in module.programs}
    assert on_device
    assert set(executable.kernels) - on_device, "part of it is native code of the host"
    out = _run(executable, [GPU, HOST])
    assert out.device == HOST
    np.testing.assert_allclose(out.numpy(), np.exp(np.maximum(_product(), 0)), rtol=1e-4)


def test_a_kernel_that_the_first_device_cannot_run_goes_to_the_next_that_can() -> None:
    executable = relaxish.build(Handwritten, {"kind": "composite", "host": "llvm", "vdevice0": CUDA})
    assert "threefold" not in {name for module in executable.device_modules for name in module.programs}
    out = _run(executable, [GPU, HOST])
    assert out.device == GPU
    np.testing.assert_allclose(out.numpy(), np.maximum(9 * _product(), 0), rtol=1e-5, atol=1e-5)
    moves = [line for line in executable.as_text().splitlines() if "call  vm.builtin.to_device" in line]
    assert len(moves) == 2, "between two kernels of the host nothing is copied"


def test_annotations_of_the_module_are_mapped_to_the_devices_of_the_target() -> None:
    @I.ir_module
    class Annotated:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("cuda", 0)]})

        @R.function
        def main(x: R.Tensor((4, 8), "float32", "cuda"), w: R.Tensor((8, 5), "float32", "cuda")):
            with R.dataflow():
                a = R.matmul(x, w)
                b: R.Tensor((4, 5), "float32", "llvm") = R.to_vdevice(a, "llvm")
                c = R.nn.relu(b)
                R.output(c)
            return c

    out = _run(relaxish.build(Annotated, [CUDA, "llvm"]), [GPU, HOST])
    assert out.device == HOST
    np.testing.assert_allclose(out.numpy(), np.maximum(_product(), 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(RelaxishError, match=r"uses cuda:0, which the target does not have; it has vdevice0 \(llvm:0\)"):
        relaxish.build(Annotated, ["llvm"])


@needs_compiler
@pytest.mark.parametrize("inner", [{"runtime": "cuda-graph", "vdevice0": CUDA}, {"runtime": "vm", "vdevice0": "llvm"}])
def test_a_self_contained_device_is_one_opaque_function(inner: dict[str, Any], tmp_path: Any) -> None:
    target = {"host": "llvm", "devices": {"strategy": inner, "gpu": CUDA}, "runtime": "vm"}
    executable = relaxish.build(WithStrategy, target)
    assert [m.symbols for m in executable.external_modules] == [{"strategy_inner": "inner"}]
    expected = 2 * np.maximum(_product(), 0)
    np.testing.assert_allclose(_run(executable, [GPU]).numpy(), expected, rtol=1e-5, atol=1e-5)
    # Nothing of the inner function is in the outer program.
    names = {name for module in executable.device_modules for name in module.programs}
    assert names == {"add"}
    executable.export_library(tmp_path / "model.so")
    loaded = relaxish.runtime.load_module(tmp_path / "model.so")
    np.testing.assert_allclose(_run(loaded, [GPU]).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_part_of_a_function_may_be_placed_on_a_self_contained_device() -> None:
    strategy = {"kind": "composite", "runtime": "vm", "devices": ["llvm"]}

    @I.ir_module
    class Parts:
        I.module_global_infos(
            {
                "vdevice": [
                    I.vdevice("cuda", 0),
                    I.vdevice({"kind": "composite", "runtime": "vm", "devices": ["llvm"]}, 0),
                ]
            }
        )

        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 5), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b: R.Tensor(("n", 5), "float32", "composite") = R.to_vdevice(a, "composite")
                c: R.Tensor(("n", 5), "float32", "composite") = R.multiply(b, b)
                d: R.Tensor(("n", 5), "float32", "composite") = R.exp(c)
                e: R.Tensor(("n", 5), "float32", "cuda") = R.to_vdevice(d, "cuda")
                f = R.nn.relu(e)
                R.output(f)
            return f

    executable = relaxish.build(Parts, {"host": "llvm", "devices": {"gpu": CUDA, "strategy": strategy}})
    (inner,) = executable.external_modules
    assert len(inner.symbols) == 1
    assert not any("exp" in name for module in executable.device_modules for name in module.programs)
    out = _run(executable, [GPU, HOST])
    np.testing.assert_allclose(out.numpy(), np.maximum(np.exp(_product() ** 2), 0), rtol=1e-4)


@needs_compiler
def test_a_damaged_inner_program_is_found_out(tmp_path: Any) -> None:
    target = {"host": "llvm", "devices": {"strategy": {"runtime": "vm", "vdevice0": "llvm"}, "gpu": CUDA}}
    relaxish.build(WithStrategy, target).export_library(tmp_path / "model.so")
    archive = tmp_path / "model.nested0.tar"
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(MalformedDataError, match=r"nested0\.tar is truncated"):
        relaxish.runtime.load_module(tmp_path / "model.so")


def test_the_runtime_cuda_graph_captures() -> None:
    @I.ir_module
    class Chain:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.nn.softmax(w)
                b = R.cumsum(a, axis=0)
                c = R.matmul(x, b)
                R.output(c)
            return c

    plain = relaxish.build(Chain, "cuda -arch=sm_80")
    captured = relaxish.build(Chain, "cuda -arch=sm_80 -runtime=cuda-graph")
    assert "cuda_graph" not in plain.as_text()
    assert "cuda_graph.run_or_capture" in captured.as_text()
    np.testing.assert_allclose(_run(captured, [GPU]).numpy(), _run(plain, [GPU]).numpy(), rtol=1e-6)
    with pytest.raises(RelaxishError, match="needs an NVIDIA device"):
        relaxish.build(Chain, "llvm -runtime=cuda-graph")


@pytest.mark.parametrize("runtime", ["aot", "graph"])
def test_runtimes_of_one_native_call(runtime: str) -> None:
    executable = relaxish.build(Plain, f"llvm -runtime={runtime}")
    assert list(executable.plans) == ["main"]
    np.testing.assert_allclose(_run(executable, [HOST]).numpy(), np.maximum(_product(), 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(RelaxishError, match="needs functions of known shapes"):
        relaxish.build(WithStrategy, f"llvm -runtime={runtime}")


@I.ir_module
class Layers:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
        with R.dataflow():
            a = R.nn.relu(R.matmul(x, w))
            b = R.reshape(R.nn.softmax(a, axis=-1), (2, 10))
            c = R.sum(R.multiply(b, R.const(np.arange(20).reshape(2, 10).astype("float32"))), axis=1)
            R.output(a, c)
        return (a, (c, x))


def _layers() -> tuple[np.ndarray, np.ndarray]:
    a = np.maximum(_product(), 0)
    e = np.exp(a - a.max(-1, keepdims=True))
    b = (e / e.sum(-1, keepdims=True)).reshape(2, 10)
    return a, (b * np.arange(20).reshape(2, 10)).sum(1)


@pytest.mark.parametrize("runtime", ["aot", "graph"])
def test_plans_on_devices(runtime: str, tmp_path: Any) -> None:
    executable = relaxish.build(Layers, f"cuda -arch=sm_80 -runtime={runtime}")
    (plan,) = executable.plans.values()
    assert len(plan.calls) >= 3 and {s.kind for s in plan.slots} >= {"input", "output", "constant", "workspace"}
    programs = [executable]
    if nvrtc.available():
        executable.export_library(tmp_path / "model.so")
        programs.append(relaxish.runtime.load_module(tmp_path / "model.so"))
    with use_cuda_provider("emulator"):
        for program in programs:
            machine = relaxish.VirtualMachine(program, GPU)
            launches: list[Any] = []
            entry = program.device_modules[0].native_entry(plan.symbol)
            assert (entry is not None) == (runtime == "aot")
            bytecode = machine._run
            machine._run = lambda *args, launches=launches, run=bytecode: (launches.append(args), run(*args))[1]
            inputs = [relaxish.nd.array(a, GPU) for a in _inputs()]
            for _ in range(2):
                a, (c, x) = machine["main"](*inputs)
                for have, want in zip((a, c), _layers(), strict=True):
                    assert have.device == GPU
                    np.testing.assert_allclose(have.numpy(), want, rtol=1e-4, atol=1e-5)
                assert x is inputs[0]
            assert not launches  # no bytecode ran
            with pytest.raises(ValueError, match="requires 2 inputs"):
                machine["main"](inputs[0])
            with pytest.raises(ValueError, match="shape"):
                machine["main"](inputs[1], inputs[0])


@pytest.mark.parametrize("runtime", ["aot", "graph"])
def test_what_has_no_plan_on_devices(runtime: str) -> None:
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            return R.nn.relu(x)

    with pytest.raises(RelaxishError, match="main: parameter x has no static shape.*BindSymbolicVars"):
        relaxish.build(Dynamic, f"cuda -arch=sm_80 -runtime={runtime}")
    with pytest.raises(RelaxishError, match="main: .* of several devices|main: it calls"):
        relaxish.build(Hinted, {"host": "llvm", "vdevice0": CUDA, "vdevice1": "llvm", "runtime": runtime})


def test_target_host_is_the_host_of_the_build() -> None:
    executable = relaxish.build(Plain, "cuda -arch=sm_80", target_host="llvm -num-cores=2")
    assert "-num-cores=2" in executable.metadata["target"]


def test_loop_programs_for_a_composition() -> None:
    module = relaxish.build(relaxish.ir.IRModule({"threefold": Handwritten["threefold"]}), [CUDA, "llvm"])
    x, out = np.arange(20, dtype="float32").reshape(4, 5), np.empty((4, 5), "float32")
    module["threefold"](x, out)
    np.testing.assert_array_equal(out, 3 * x)


def test_loops_without_threads_are_for_the_processor() -> None:
    plain = Handwritten["threefold"].without_attr("tir.is_scheduled")
    module = relaxish.build(relaxish.ir.IRModule({"threefold": plain}), [CUDA, "llvm"])
    x, out = np.arange(20, dtype="float32").reshape(4, 5), np.empty((4, 5), "float32")
    module["threefold"](x, out)
    np.testing.assert_array_equal(out, 3 * x)


def test_each_kernel_is_tuned_for_its_device(tmp_path: Any) -> None:
    target = Target({"devices": [{**CUDA, "max_threads_per_block": 1024}, "llvm -num-cores=2"]})
    kernels = kernel_pipeline(target)(Hinted)
    tasks = extract_tasks(kernels, target)
    assert [t.target.kind.name for t in tasks] == ["cuda", "llvm"]
    with use_cuda_provider("null"):
        database = tune_relax(kernels, None, target, str(tmp_path), 4, max_trials_per_task=2, num_trials_per_iter=2)
    records = database.get_all_tuning_records()
    assert {r.target.kind.name for r in records} == {"cuda", "llvm"}
    assert all(r.run_secs and r.run_secs[0] < 1 for r in records)
    with database:
        executable = relaxish.build(Hinted, target)
    np.testing.assert_allclose(_run(executable, [GPU, HOST]).numpy(), np.exp(np.maximum(_product(), 0)), rtol=1e-4)


# ---- machines


def test_one_program_for_each_machine_and_a_manifest_for_sessions(tmp_path: Any) -> None:
    programs = relaxish.build(
        Plain, {"machine0": "llvm", "machine1": {"host": "llvm", "vdevice0": "llvm -num-cores=1"}}
    )
    assert list(programs) == ["machine0", "machine1"]
    assert programs.workers == {"machine0": 1, "machine1": 1}
    path = programs.export_library(tmp_path / "model.json")
    x, w = _inputs()
    for session in (ThreadedSession(2), ProcessSession(2)):
        main = session.load_vm_module(path)["main"]
        args = [session.broadcast(relaxish.nd.array(a)) for a in (x, w)]
        out = main(*args)
        for worker in range(2):
            found = out.debug_get_from_remote(worker)
            np.testing.assert_allclose(np.asarray(found.numpy()), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)
        session.shutdown()


def test_a_session_of_another_size_is_refused(tmp_path: Any) -> None:
    path = relaxish.build(Plain, {"machine0": "llvm", "machine1": "llvm"}).export_library(tmp_path / "model.json")
    session = ThreadedSession(3)
    with pytest.raises(RelaxishError, match="is for 2 workers .*and the session has 3"):
        session.load_vm_module(path)["main"]
        session.sync_worker_0()
    session.shutdown()


@needs_compiler
def test_gpus_of_a_machine_are_its_workers(tmp_path: Any) -> None:
    programs = relaxish.build(Plain, {"machines": {"a": {"host": "llvm", "devices": [CUDA, CUDA]}, "b": "llvm"}})
    assert programs.workers == {"a": 2, "b": 1}
    programs.export_library(tmp_path / "model.json")
    data = json.loads((tmp_path / "model.json").read_text())
    assert [(m["name"], m["file"]) for m in data["machines"]] == [("a", "model.a.tar"), ("b", "model.b.tar")]
    with pytest.raises(RelaxishError, match=r"ends in \.json"):
        programs.export_library(tmp_path / "model.so")


# ---- mistakes


def test_a_machine_inside_a_process_is_an_error() -> None:
    target = Target({"devices": [{"machine0": "llvm"}]})
    with pytest.raises(RelaxishError, match="machines cannot be part of one process"):
        relaxish.build(Plain, target)
    with pytest.raises(RelaxishError, match="the list of targets is empty"):
        relaxish.build(Plain, [])
