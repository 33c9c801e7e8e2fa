"""What users do with a machine: messages of checks, saved functions, stateful calls, instruments, profiles, modules."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
import relaxish.relax.testing.vm  # registers the packed functions
from relaxish import relax
from relaxish.relax.testing.lib_comparator import LibCompareVMInstrument
from relaxish.runtime import (
    VirtualMachine,
    VMInstrumentReturnKind,
    cpu,
    get_global_func,
    load_module,
    nd,
    register_func,
)
from relaxish.runtime.profiling import Report
from relaxish.runtime.vm.module import VMModule
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

pytest.importorskip("llvmlite")


@I.ir_module
class Model:
    @R.function
    def static(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3,), "float32")) -> R.Tensor((2, 3), "float32"):
        y = R.add(x, w)
        z = R.nn.relu(y)
        return z

    @R.function
    def dynamic(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", "m"), "float32")) -> R.Tensor(
        ("n", "m"), "float32"
    ):
        n, m = T.int64(), T.int64()
        s = R.sum(x, axis=[1], keepdims=True)
        z = R.add(y, s)
        return z

    @R.function
    def kinds(
        t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Shape(["k"]), R.Prim("int64"))), f: R.Callable
    ) -> R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Shape(["k"]), R.Prim("int64"))):
        k = T.int64()
        return t

    @R.function
    def nested(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)
        return ((x, y), (y,))

    @R.function(pure=False)
    def packed(x: R.Tensor((2,), "float32")) -> R.Object:
        y = R.call_packed("test.vm.mul", x, x, sinfo_args=R.Tensor((2,), "float32"))
        z = R.call_packed(
            "test.vm.iface.tag", y, R.str("tag"), R.prim_value(7), R.dtype("int8"), R.shape([2, 3]), sinfo_args=R.Object
        )
        return z


X = np.array([[1, -2, 3], [4, 5, -6]], "float32")
W = np.array([1, 0, 1], "float32")


@pytest.fixture(scope="module", autouse=True)
def tag():
    register_func("test.vm.iface.tag", lambda *args: args, override=True)


@pytest.fixture(scope="module", params=["bytecode", "compiled", "interpret"])
def machine(request):
    return VirtualMachine(relaxish.build(Model, "llvm", exec_mode=request.param), cpu())


def message_of(call, kind):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, relaxish.TVMError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "args", "kind", "text"),
    [
        ("static", (X, 3), TypeError, "param[1], param=w, annotation=R.Tensor((3,), dtype=\"float32\"))  expect a Tensor"),
        ("static", (X[0], W), ValueError, "expect Tensor with ndim 2 but get 1"),
        ("static", (X.astype("int32"), W), ValueError, "expect Tensor with dtype float32 but get int32"),
        ("static", (X, np.zeros(4, "float32")), ValueError,
         "fn=static, loc=param[1], param=w, annotation=R.Tensor((3,), dtype=\"float32\"))  match_cast error, "
         " shape[0] mismatch to specified constant."),
        ("dynamic", (np.zeros((2, 4), "float32"), np.zeros((3, 5), "float32")), RuntimeError,
         "param=y, annotation=R.Tensor((n, m), dtype=\"float32\"))  match_cast error,  shape[0] mismatch to a previous "
         "populated value."),
        ("static", (X,), ValueError, "Invoking function static requires 2 inputs"),
        ("kinds", ((X[0, :2],), np.sin), ValueError, "expect a Tuple with 2 elements,  but get a Tuple with 1 elements."),
        ("kinds", (X, np.sin), TypeError, "expect a Tuple but get runtime.NDArray"),
        ("kinds", ((X[0, :2], (X, 3)), np.sin), TypeError, "expect a Shape but get runtime.NDArray"),
        ("kinds", ((X[0, :2], ((2,), X)), np.sin), TypeError, "expected dtype int64"),
        ("kinds", ((X[0, :2], ((2,), 3)), "f"), TypeError, "expect a Function but get runtime.String"),
    ],
)  # fmt: skip
def test_checks_name_the_parameter_and_the_mismatch(machine, name, args, kind, text):
    assert text in message_of(lambda: machine[name](*args), kind)


def test_unknown_functions(machine):
    with pytest.raises(AttributeError, match="Module has no function 'absent'"):
        machine["absent"]
    for call in (lambda: machine.set_input("absent"), lambda: machine.invoke_stateful("absent")):
        assert "Unknown function: absent" in message_of(call, ValueError)


def test_values_of_all_kinds_pass_through(machine):
    tensor = nd.array(np.array([1, 2], "float32"))
    result = machine["kinds"]((tensor, ((5,), 4)), lambda: 0)
    assert result[0] is tensor and result[1] == ((5,), 4)
    (a, b), (c,) = machine["nested"](np.array([1, 2], "float32"))
    assert a.numpy().tolist() == [1, 2] and b.numpy().tolist() == c.numpy().tolist() == [2, 4]
    product, text, number, dtype, shape = machine["packed"](np.array([3, 4], "float32"))
    assert product.numpy().tolist() == [9, 16]
    assert (text, number, dtype, tuple(shape)) == ("tag", 7, "int8", (2, 3))


def test_saved_functions(machine):
    machine.save_function("static", "saved", X, W)
    np.testing.assert_array_equal(machine["saved"]().numpy(), np.maximum(X + W, 0))
    machine.save_function("static", "saved", W, x=X, unused=3)
    np.testing.assert_array_equal(machine["saved"]().numpy(), np.maximum(X + W, 0))
    machine.save_function("static", "quiet", x=X, w=W, include_return=False)
    assert machine["quiet"]() is None
    with pytest.raises(AssertionError):
        machine.save_function("static", "short", x=X)
    assert machine.time_evaluator("saved", cpu(), number=2, repeat=3)().results[2] > 0


def test_stateful_calls_by_name(machine):
    machine["set_input"]("static", X, W)
    machine["invoke_stateful"]("static")
    np.testing.assert_array_equal(machine.get_outputs("static").numpy(), np.maximum(X + W, 0))
    assert machine.time_evaluator("invoke_stateful", cpu(), number=2, repeat=3)("static").results[2] > 0


def test_stateful_calls(machine):
    fresh = VirtualMachine(machine.executable, cpu())
    assert "No inputs set for stateful call of nested" in message_of(
        lambda: fresh.invoke_stateful("nested"), ValueError
    )
    assert "No output saved for call" in message_of(lambda: fresh.get_outputs("nested"), ValueError)
    assert "doesn't match the number" in message_of(lambda: fresh.set_input("nested"), RuntimeError)
    fresh.set_input("nested", x=np.array([1, 2], "float32"))
    fresh.invoke_stateful("nested")
    (a, b), (c,) = fresh.get_outputs("nested")
    assert b.numpy().tolist() == c.numpy().tolist() == [2, 4] and a.numpy().tolist() == [1, 2]
    arity, output = fresh.module["get_output_arity"], fresh.module["get_output"]
    assert [arity("nested"), arity("nested", 0), arity("nested", 1), arity("nested", 0, 1)] == [2, 2, 1, -1]
    assert output("nested", 0, 1).numpy().tolist() == [2, 4]
    with pytest.raises(IndexError):
        output("nested", 2)
    fresh.set_input("packed", np.array([1, 2], "float32"))
    fresh.invoke_stateful("packed")
    assert fresh.get_outputs("packed")[1] == "tag"


def test_the_machine_as_a_module(machine):
    module = machine.executable["vm_load_executable"]()
    assert isinstance(module, VMModule) and not module.implements_function("static")
    module["vm_initialization"](1, 0, VirtualMachine.POOLED_ALLOCATOR)
    np.testing.assert_array_equal(module["static"](X, W).numpy(), np.maximum(X + W, 0))
    assert module["get_function_arity"]("static") == 2
    assert module["get_function_param_name"]("static", 1) == "w"
    module["save_function"]("static", "kept", 1, X, W)
    np.testing.assert_array_equal(module["invoke_closure"](module["kept"]).numpy(), np.maximum(X + W, 0))
    assert not module.implements_function("profile") and not module.implements_function("absent")


def test_instruments_see_and_skip_calls():
    machine = VirtualMachine(relaxish.build(Model, "llvm"), cpu())
    seen = []

    def instrument(func, name, before_run, ret_value, *args):
        seen.append((name, before_run))
        return VMInstrumentReturnKind.SKIP_RUN if name == "test.vm.mul" else VMInstrumentReturnKind.NO_OP

    machine.set_instrument(instrument)
    result = machine["packed"](np.array([3, 4], "float32"))
    assert result[0] is None
    assert ("test.vm.mul", True) in seen and ("test.vm.mul", False) not in seen
    assert ("test.vm.iface.tag", True) in seen and ("test.vm.iface.tag", False) in seen


def test_kernels_are_compared_with_another_build(capsys):
    machine = VirtualMachine(relaxish.build(Model, "llvm"), cpu())

    class Reference:
        def get_function(self, name, query_imports=False):
            if "relu" not in name:
                raise AttributeError(name)

            def wrong(*args):
                args[-1][:] = np.full(args[-1].shape, self.value, "float32")

            return wrong

    machine.set_instrument(LibCompareVMInstrument(Reference(), cpu(), verbose=True))
    Reference.value = 1.0
    with pytest.raises(AssertionError):
        machine["static"](X, W)
    assert "Validating" in capsys.readouterr().out
    Reference.value = 2.0
    np.testing.assert_array_equal(machine["static"](np.full((2, 3), 1.0, "float32"), np.ones(3, "float32")).numpy(), 2)
    machine.set_instrument(None)
    np.testing.assert_array_equal(machine["static"](X, W).numpy(), np.maximum(X + W, 0))


def test_profiles():
    executable = relaxish.build(Model, "llvm")
    with pytest.raises(AttributeError, match="profile"):
        VirtualMachine(executable, cpu()).profile("static", X, W)
    report = VirtualMachine(executable, cpu(), profile=True).profile("static", X, W)
    names = [c["Name"] for c in report.calls]
    assert any("relu" in n for n in names)
    call = report.calls[names.index(next(n for n in names if "relu" in n))]
    assert (
        call["Duration (us)"].microseconds > 0
        and call["Count"].value == 1
        and "float32[2, 3]" in call["Argument Shapes"]
    )
    again = Report.from_json(report.json())
    assert again.calls == report.calls and again.device_metrics == report.device_metrics
    assert "relu" in again.table() and "relu" in again.csv()


def test_memory_configurations_and_devices():
    executable = relaxish.build(Model, "llvm")
    for config in (None, "naive", "pooled", {cpu(): "naive"}):
        machine = VirtualMachine(executable, cpu(), memory_cfg=config)
        np.testing.assert_array_equal(machine["static"](X, W).numpy(), np.maximum(X + W, 0))
    with pytest.raises(AssertionError):
        VirtualMachine(executable, cpu(), memory_cfg="other")


def test_several_cpu_devices():
    @I.ir_module
    class Devices:
        I.module_attrs({"attr": 10})
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((2, 3), "float32", "llvm:0"), y: R.Tensor((3, 4), "float32", "llvm:1")) -> R.Tensor(
            (2, 4), "float32", "llvm:1"
        ):
            with R.dataflow():
                a: R.Tensor((2, 3), "float32", "llvm:0") = R.add(x, x)
                b: R.Tensor((2, 3), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
                c: R.Tensor((2, 4), "float32", "llvm:1") = R.matmul(b, y)
                R.output(c)
            return c

    machine = VirtualMachine(relaxish.build(Devices, "llvm"), [cpu(0), cpu(1)])
    y = np.random.default_rng(0).random((3, 4), "float32")
    out = machine["main"](nd.array(X, cpu(0)), nd.array(y, cpu(1)))
    np.testing.assert_allclose(out.numpy(), 2 * X @ y, rtol=1e-5)


def test_export_and_load(tmp_path):
    executable = relaxish.build(Model, "llvm")
    path = str(tmp_path / "model.so")
    executable.export_library(path)
    loaded = load_module(path)
    assert loaded["as_text"]() == executable.as_text() and loaded.stats() == executable.stats()
    machine = VirtualMachine(loaded, cpu())
    assert "shape[0] mismatch" in message_of(lambda: machine["static"](X, np.zeros(4, "float32")), ValueError)
    np.testing.assert_array_equal(machine["static"](X, W).numpy(), np.maximum(X + W, 0))


def test_packed_functions_that_do_not_exist():
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")) -> R.Object:
        y = R.call_packed("test.vm.nobody.registered", x, sinfo_args=R.Object)
        return y

    executable = relaxish.build(relaxish.IRModule({"main": main}), "llvm")
    assert "Cannot find PackedFunc test.vm.nobody.registered" in message_of(
        lambda: VirtualMachine(executable, cpu()), RuntimeError
    )


def test_views_share_memory():
    view = get_global_func("runtime.TVMArrayCreateView")
    data = nd.array(np.arange(8, dtype="float32"))
    part = view(data, (2, 2), "float32", 8)
    assert part.numpy().tolist() == [[2, 3], [4, 5]]
    part[0, 0] = 9
    assert data.numpy()[2] == 9


def test_the_kernels_are_imported_modules():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo([4, 3], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    machine = VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    (kernels,) = machine.module.imported_modules
    assert kernels.implements_function("tir_exp") and not kernels.implements_function("main")
