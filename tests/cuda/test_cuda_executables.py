"""Whole models on CUDA devices through the virtual machine: numbers in the emulator, behaviour on the fake."""

from __future__ import annotations

import gc
from functools import lru_cache

import numpy as np
import pytest
from programs.device_models import MODELS

import relaxish
from relaxish import relax
from relaxish.ir.transform import PassContext
from relaxish.runtime.kernels.kernel import ArgumentError
from relaxish.runtime.nvidia.errors import CUDAError
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target
from relaxish.testing import FakeCUDA, use_cuda_provider

H100 = Target("nvidia/nvidia-h100", host="llvm")
GRAPH = {"relax.backend.use_cuda_graph": True}


def built(mod, *, graph=False, **options):
    with PassContext(config=GRAPH if graph else {}):
        return relaxish.compile(mod, H100, relax_pipeline=relax.get_default_pipeline(H100), **options)


@lru_cache
def executable_of(name):
    """One build of a model for all tests that only run it."""
    return built(MODELS[name][0])


def machine(executable, **options):
    return relaxish.VirtualMachine(executable, relaxish.cuda(), **options)


def there(arrays):
    return [relaxish.nd.array(a, relaxish.cuda()) for a in arrays]


@pytest.fixture
def emulator():
    with use_cuda_provider("emulator") as driver:
        yield driver


@pytest.fixture
def fake():
    with use_cuda_provider(FakeCUDA(deferred=False)) as driver:
        yield driver


# ---- numbers


@pytest.mark.parametrize("name", MODELS)
def test_models(name, emulator):
    _, make_inputs, reference = MODELS[name]
    inputs = make_inputs(np.random.default_rng(0))
    out = machine(executable_of(name))["main"](*there(inputs))
    assert out.device is relaxish.cuda()
    np.testing.assert_allclose(out.numpy(), reference(*inputs), rtol=2e-4, atol=2e-5)


def test_dynamic_shapes(emulator):
    _, make_inputs, reference = MODELS["mlp"]
    vm = machine(executable_of("mlp"))
    for rows in (1, 3, 40):
        inputs = make_inputs(np.random.default_rng(rows), rows)
        np.testing.assert_allclose(vm["main"](*there(inputs)).numpy(), reference(*inputs), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("pipeline", ["zero", "default"])
def test_named_pipelines(pipeline, emulator):
    """Kernels that a pipeline leaves unscheduled get their default schedules."""
    mod, make_inputs, reference = MODELS["mlp"]
    if pipeline == "zero":
        mod = relaxish.get_pipeline("zero")(mod)
    executable = relaxish.build(mod, H100, relax_pipeline="default")
    inputs = make_inputs(np.random.default_rng(0))
    np.testing.assert_allclose(
        machine(executable)["main"](*there(inputs)).numpy(), reference(*inputs), rtol=2e-4, atol=2e-5
    )


def test_the_stateful_interface(emulator):
    _, make_inputs, reference = MODELS["cnn"]
    inputs = make_inputs(np.random.default_rng(0))
    vm = machine(executable_of("cnn"))
    vm.set_input("main", *inputs)  # arrays on the host are moved
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs("main").numpy(), reference(*inputs), rtol=2e-4, atol=2e-5)


def test_parameters_of_an_nn_module(emulator):
    from relaxish.frontend import nn

    class Block(nn.Module):
        def __init__(self):
            self.first, self.norm = nn.Linear(16, 24), nn.LayerNorm(24)

        def forward(self, x: nn.Tensor):
            return nn.op.silu(self.norm(self.first(x)))

    mod, params = Block().export_tvm(spec={"forward": {"x": nn.spec.Tensor(["batch", 16], "float32")}})
    rng = np.random.default_rng(0)
    values = [rng.standard_normal([int(d) for d in p.shape]).astype("float32") for _, p in params]
    x = rng.standard_normal((5, 16)).astype("float32")
    out = machine(built(mod))["forward"](*there([x, *values])).numpy()
    w, b, g, s = values
    h = x @ w.T + b
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5) * g + s
    np.testing.assert_allclose(out, h / (1 + np.exp(-h)), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_a_transformer_layer_from_onnx(emulator):
    """Attention with heads, a residual connection, normalisation and a feed-forward part; the batch is dynamic."""
    helper = pytest.importorskip("onnx.helper")
    from onnx import TensorProto, numpy_helper

    from relaxish.frontend.onnx import from_onnx

    rng = np.random.default_rng(0)
    weights = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "w1": (16, 32), "w2": (32, 16), "g": (16,), "b": (16,)}
    values = {n: (rng.standard_normal(s) * 0.3).astype("float32") for n, s in weights.items()}
    values |= {
        "shape": np.array([0, 6, 2, 8], "int64"),
        "merged": np.array([0, 6, 16], "int64"),
        "scale": np.float32(0.35),
    }
    node = helper.make_node
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"]), node("Reshape", [f"{name}0", "shape"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]  # fmt: skip
    nodes += [
        node("MatMul", ["q", "k"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"]), node("Softmax", ["s1"], ["s"], axis=-1),
        node("MatMul", ["s", "v"], ["a0"]), node("Transpose", ["a0"], ["a1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a1", "merged"], ["a"]), node("Add", ["a", "x"], ["r"]),
        node("LayerNormalization", ["r", "g", "b"], ["n"], axis=-1), node("MatMul", ["n", "w1"], ["h"]),
        node("Relu", ["h"], ["hr"]), node("MatMul", ["hr", "w2"], ["h2"]), node("Add", ["h2", "n"], ["y"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "layer", [info("x", TensorProto.FLOAT, ["batch", 6, 16])], [info("y", TensorProto.FLOAT, ["batch", 6, 16])],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in values.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = rng.standard_normal((3, 6, 16)).astype("float32")
    out = machine(built(from_onnx(model, keep_params_in_input=False)))["main"](*there([x])).numpy()

    def heads(name):
        return (x @ values["w" + name]).reshape(3, 6, 2, 8).transpose(0, 2, 1, 3)

    scores = heads("q") @ heads("k").transpose(0, 1, 3, 2) * 0.35
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = scores / scores.sum(-1, keepdims=True) @ heads("v")
    r = mixed.transpose(0, 2, 1, 3).reshape(3, 6, 16) + x
    n = (r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-5) * values["g"] + values["b"]
    np.testing.assert_allclose(out, np.maximum(n @ values["w1"], 0) @ values["w2"] + n, rtol=5e-4, atol=5e-5)


# ---- control flow, constants, devices


@I.ir_module
class WithConstant:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.add(x, R.const(np.array([1, 2, 3, 4], "float32")))
        return y


def test_constants_are_moved_once(emulator):
    executable = built(WithConstant)
    vm = machine(executable)
    x = np.ones(4, "float32")
    assert vm["main"](*there([x])).numpy().tolist() == [2, 3, 4, 5]
    assert len(vm._moved_constants) == 1
    vm["main"](*there([x]))
    assert executable.constants[next(iter(vm._moved_constants))].device is relaxish.cpu()


def test_arguments_on_the_host_are_refused(fake):
    with pytest.raises(ArgumentError, match=r"is on cpu\(0\), but the function runs on cuda\(0\).*R.to_vdevice"):
        machine(built(WithConstant))["main"](relaxish.nd.array(np.ones(4, "float32")))
    assert fake.launches == []


def test_branches_read_their_condition_from_the_device(emulator):
    @I.ir_module
    class Branch:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            if c:
                y = R.add(x, x)
            else:
                y = R.multiply(x, x)
            return y

    vm = machine(built(Branch))
    x = np.full(4, 3, "float32")
    for condition, expected in ((True, 6.0), (False, 9.0)):
        assert vm["main"](*there([np.array(condition), x])).numpy().tolist() == [expected] * 4


def test_two_devices_in_one_model(emulator):
    @I.ir_module
    class Mixed:
        I.module_global_infos({"vdevice": [I.vdevice({"kind": "cuda", "arch": "sm_90a"}, 0), I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor((2, 3), "float32", "cuda"), y: R.Tensor((3, 4), "float32", "cuda")) -> R.Tensor(
            (2, 4), "float32", "llvm"
        ):
            with R.dataflow():
                a = R.matmul(x, y)
                b: R.Tensor((2, 4), "float32", "llvm") = R.to_vdevice(a, "llvm")
                c = R.add(b, R.const(np.ones((2, 4), "float32")))
                R.output(c)
            return c

    executable = relaxish.build(Mixed, H100, relax_pipeline="default")
    vm = relaxish.VirtualMachine(executable, [relaxish.cuda(), relaxish.cpu()])
    x, y = np.ones((2, 3), "float32"), np.ones((3, 4), "float32")
    out = vm["main"](*there([x, y]))
    assert out.device is relaxish.cpu() and (out.numpy() == 4).all()


# ---- graphs


@lru_cache
def static_mlp():
    """(executable with graphs, inputs, reference) of a model without dynamic shapes whose weights stay in place."""
    mod, make_inputs, reference = MODELS["mlp"]
    static = relax.transform.BindSymbolicVars({"n": 7})(mod)
    static.update_func(static.get_global_var("main"), static["main"].with_attr("num_input", 1))
    return built(static, graph=True), make_inputs(np.random.default_rng(0)), reference


def test_a_graph_gives_the_same_numbers(emulator):
    executable, inputs, reference = static_mlp()
    vm = machine(executable)
    args = there(inputs)
    for step in range(3):
        args[0].copyfrom(inputs[0] + step)
        out = vm["main"](*args).numpy()
        np.testing.assert_allclose(out, reference(inputs[0] + step, *inputs[1:]), rtol=2e-4, atol=2e-5)


def test_a_graph_is_captured_once(fake):
    executable, inputs, _ = static_mlp()
    launched, captures = [], []
    launch_graph, begin = fake.launch_graph, fake.begin_capture
    fake.launch_graph = lambda graph, stream: (launched.append(stream), launch_graph(graph, stream))
    fake.begin_capture = lambda device, stream: (captures.append(stream), begin(device, stream))
    args = there(inputs)
    assert "cuda_graph.run_or_capture" in executable.as_text()
    vm = machine(executable)
    vm["main"](*args)
    first = len(fake.launches)
    vm["main"](*args)
    second = len(fake.launches) - first
    assert len(captures) == 1 and len(launched) == 1 and first == second
    other = machine(executable)
    other["main"](*args)
    assert len(captures) == 2


def test_a_region_that_overwrites_what_it_reads(emulator):
    """Memory is shared by values that do not live together, so a region may destroy its own input."""

    @I.ir_module
    class Chain:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            with R.dataflow():
                a = R.matmul(x, x)
                b = R.nn.softmax(a)
                c = R.matmul(b, b)
                d = R.nn.softmax(c)
                e = R.matmul(d, d)
                f = R.nn.softmax(e)
                g = R.matmul(f, f)
                R.output(g)
            return g

    def softmax(v):
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    vm, rng = machine(built(Chain, graph=True)), np.random.default_rng(0)
    for _ in range(3):
        x = rng.standard_normal((8, 8)).astype("float32")
        expected = x @ x
        for _ in range(3):
            s = softmax(expected)
            expected = s @ s
        np.testing.assert_allclose(vm["main"](*there([x])).numpy(), expected, rtol=1e-4, atol=1e-6)
    assert _kept_graphs(vm)


def test_memory_of_a_graph_is_its_own(fake):
    executable, inputs, _ = static_mlp()
    vm, args = machine(executable), there(inputs)
    vm["main"](*args)
    assert len(_kept_graphs(vm)) == 1
    held = fake.memory_info(0)[0]
    relaxish.runtime.arrays.memory.clear_memory_pools()
    vm["main"](*args)
    assert fake.memory_info(0)[0] >= held
    destroyed = []
    destroy = fake.destroy_graph
    fake.destroy_graph = lambda graph: (destroyed.append(graph), destroy(graph))
    del vm
    gc.collect()
    assert len(destroyed) == 1


def _kept_graphs(vm):
    from relaxish.runtime.devices.cuda_graph import _KEPT

    return list(_KEPT[vm].graphs)


def test_a_failed_capture_can_be_repeated(fake):
    executable, inputs, _ = static_mlp()
    vm, args = machine(executable), there(inputs)
    end, failures = fake.end_capture, [1]

    def end_capture(device, stream):
        graph = end(device, stream)
        if failures:
            failures.pop()
            raise CUDAError(901, "ending a capture")
        return graph

    fake.end_capture = end_capture
    with pytest.raises(CUDAError, match="STREAM_CAPTURE_INVALIDATED"):
        vm["main"](*args)
    assert relaxish.cuda().api.current_stream(0) == 0
    vm["main"](*args)
    assert _kept_graphs(vm)


# ---- looking at it


def test_profile_reads_the_clock_of_the_device(fake):
    make_inputs = MODELS["mlp"][1]
    fake.launch_ms = 2.0
    vm = machine(executable_of("mlp"), profile=True)
    report = vm.profile("main", *there(make_inputs(np.random.default_rng(0))))
    kernels = [c for c in report.calls if c["Name"] in vm.executable.device_modules[0].programs]
    assert len(kernels) >= 3
    assert all(c["Duration (us)"].microseconds == pytest.approx(2000.0) and c["Device"] == "cuda(0)" for c in kernels)
    measured = vm.time_evaluator("main", relaxish.cuda(), number=2)(*there(make_inputs(np.random.default_rng(0))))
    assert measured.mean == pytest.approx(2e-3 * len(kernels))


def test_modules_of_an_executable():
    executable = executable_of("mlp")
    (host,) = executable.imported_modules
    (device,) = host.imported_modules
    assert device.type_key == "cuda" and "__global__" in device.inspect_source()
    assert executable.kernels.keys() >= device.programs.keys()


@pytest.mark.parametrize("name", ["model.so", "model.tar"])
def test_export(name, emulator, tmp_path):
    _, make_inputs, reference = MODELS["mlp"]
    executable = executable_of("mlp")
    executable.device_modules[0].images["sm_90a"] = b"machine code"
    executable.export_library(tmp_path / name)
    loaded = relaxish.runtime.load_module(tmp_path / name)
    assert loaded.device_modules[0].images == {"sm_90a": b"machine code"}
    inputs = make_inputs(np.random.default_rng(0))
    np.testing.assert_allclose(
        machine(loaded)["main"](*there(inputs)).numpy(), reference(*inputs), rtol=2e-4, atol=2e-5
    )


# ---- large models: everything but the numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet"])
def test_large_models(name):
    pytest.importorskip("onnx")
    from relaxish.frontend.onnx import from_onnx
    from relaxish.tools.light_models import light_model

    mod = from_onnx(light_model(name))
    executable = built(mod)
    with use_cuda_provider("null") as driver:
        launched = []
        launch = driver.launch
        driver.launch = lambda function, *args, **options: (
            launched.append(function.name),
            launch(function, *args, **options),
        )
        infos = [p.struct_info for p in mod["main"].params]
        args = [relaxish.nd.empty([int(d) for d in i.shape.values], i.dtype, relaxish.cuda()) for i in infos]
        out = machine(executable)["main"](*args)
        result = mod["main"].ret_struct_info
    assert len(launched) > 20 and len(set(launched)) > 10
    assert out.shape == tuple(int(d) for d in result.shape.values) and out.dtype == result.dtype
