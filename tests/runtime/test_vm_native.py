"""Native kernels and entries: modules, plans, export and load, overhead."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from relaxish import runtime
from relaxish.runtime import Executable, KernelError, Module, VirtualMachine, cpu, load_module, nd
from relaxish.runtime.bytecode.exec_builder import ExecBuilder
from relaxish.support.errors import RelaxishError

sys.path.insert(0, str(Path(__file__).parent))
import c_kernels

pytestmark = pytest.mark.skipif(c_kernels.COMPILER is None, reason="no C compiler")
X = np.array([-1, 2, -3, 4], "float32")
BIAS = np.array([0.5, 0.5, 0.5, 0.5], "float32")


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return c_kernels.build(tmp_path_factory.mktemp("k"))


def build_executable(native, plan=True) -> Executable:
    library, data = native
    ib = ExecBuilder()
    for spec in c_kernels.SPECS.values():
        ib.add_kernel(spec)
    bias = ib.convert_constant(nd.array(BIAS))
    with ib.function("main", param_names=["x"]):
        ib.emit_call("vm.builtin.check_tensor_info", [ib.r(0), 1, "float32", "x:"])
        ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), (16,), 0, "uint8", "global"], ib.r(1))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(1), 0, (4,), "float32"], ib.r(2))
        ib.emit_call("add4", [ib.r(0), bias, ib.r(2)])
        ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), (16,), 0, "uint8", "global"], ib.r(3))
        ib.emit_call("vm.builtin.alloc_tensor", [ib.r(3), 0, (4,), "float32"], ib.r(4))
        ib.emit_call("relu4", [ib.r(2), ib.r(4)])
        ib.emit_ret(ib.r(4))
    ex = ib.get()
    ex.libraries = [library]
    ex.objects = [data]
    ex.linker = c_kernels.link
    if plan:
        ex.plans = {"main": c_kernels.PLAN}
    return ex


@pytest.mark.parametrize("plan", [False, True])
def test_both_lanes_agree(native, plan):
    vm = VirtualMachine(build_executable(native, plan), cpu())
    expected = np.maximum(X + BIAS, 0)
    main = vm["main"]
    assert main is vm["main"]
    for value in (X, nd.array(X)):
        np.testing.assert_array_equal(main(value).numpy(), expected)
    first, second = main(X), main(-X)
    np.testing.assert_array_equal(first.numpy(), expected)
    np.testing.assert_array_equal(second.numpy(), np.maximum(BIAS - X, 0))


@pytest.mark.parametrize("plan", [False, True])
def test_torch_in_and_out(native, plan):
    torch = pytest.importorskip("torch")
    vm = VirtualMachine(build_executable(native, plan), cpu())
    out = torch.from_dlpack(vm["main"](torch.from_numpy(X.copy())))
    assert out.tolist() == [0, 2.5, 0, 4.5]


@pytest.mark.parametrize(
    ("bad", "kind", "text"),
    [
        (np.zeros(4, "int32"), ValueError, "dtype float32"),
        (np.zeros((2, 2), "float32"), ValueError, "ndim 1"),
        (3, TypeError, "expect a Tensor"),
    ],
)
@pytest.mark.parametrize("plan", [False, True])
def test_messages_name_the_parameter(native, plan, bad, kind, text):
    vm = VirtualMachine(build_executable(native, plan), cpu())
    with pytest.raises(kind, match=text) as caught:
        vm["main"](bad)
    assert "x" in str(caught.value)


def test_wrong_shape_and_count(native):
    vm = VirtualMachine(build_executable(native), cpu())
    with pytest.raises(RuntimeError, match=r"shape\[0\] is expected to be 4, got 5"):
        vm["main"](np.zeros(5, "float32"))
    with pytest.raises(ValueError, match="requires 1 inputs"):
        vm["main"]()
    with pytest.raises(AttributeError, match="no function 'nope'"):
        vm["nope"]


def test_failing_kernel_is_named(native):
    ex = build_executable(native)
    kernel = Module(c_kernels.SPECS, native[0])["broken"]
    with pytest.raises(KernelError, match="broken failed with code 7"):
        kernel(X)
    from dataclasses import replace

    ex.plans["main"] = replace(c_kernels.PLAN, symbol="broken_entry")
    with pytest.raises(KernelError, match=r"kernel add4 \(call 0\) failed with code 7"):
        VirtualMachine(ex, cpu())["main"](X)


def test_module_of_kernels(native):
    mod = Module(c_kernels.SPECS, native[0])
    out = nd.empty((4,), "float32")
    mod["add4"](X, BIAS, out)
    np.testing.assert_array_equal(out.numpy(), X + BIAS)
    for n in (4, 7):
        x, y = np.arange(n, dtype="float32"), nd.empty((n,), "float32")
        mod["scale_n"](x, 2.5, y)
        np.testing.assert_allclose(y.numpy(), x * 2.5)
    with pytest.raises(ValueError, match=r"argument 2: shape\[0\] is expected to be 4, got 5"):
        mod["scale_n"](X, 1.0, nd.empty((5,), "float32"))
    with pytest.raises(RelaxishError, match="choose one by name"):
        mod(X)
    result = mod.time_evaluator("add4", cpu(), number=5, repeat=3)(X, BIAS, out)
    assert len(result.results) == 3 and result.min <= result.median <= result.max and "mean" in str(result)


@pytest.mark.parametrize("name", ["model.so", "model.tar"])
def test_export_and_load(native, tmp_path, name):
    ex = build_executable(native)
    path = str(tmp_path / name)
    ex.export_library(path)
    loaded = load_module(path)
    assert isinstance(loaded, Executable) and loaded.as_text() == ex.as_text()
    vm = VirtualMachine(loaded, cpu())
    np.testing.assert_array_equal(vm["main"](X).numpy(), np.maximum(X + BIAS, 0))
    assert loaded.plans == ex.plans


def test_export_kernels_and_load(native, tmp_path):
    mod = Module({"add4": c_kernels.SPECS["add4"]}, native[0], objects=[native[1]], linker=c_kernels.link)
    mod.export_library(str(tmp_path / "k.so"))
    out = nd.empty((4,), "float32")
    load_module(tmp_path / "k.so")(X, X, out)
    np.testing.assert_array_equal(out.numpy(), X + X)


def test_weights_are_plain_safetensors(native, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    build_executable(native).export_library(str(tmp_path / "m.so"))
    np.testing.assert_array_equal(safetensors.load_file(str(tmp_path / "m.safetensors"))["c0"], BIAS)


def test_damaged_exports_give_clear_errors(native, tmp_path):
    ex = build_executable(native)
    ex.export_library(str(tmp_path / "m.so"))
    for error in (RelaxishError, ValueError):
        with pytest.raises(error, match="cannot find file .*no such file"):
            load_module(tmp_path / "other.so")
    weights = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(weights[:-4])
    with pytest.raises(RelaxishError, match="truncated"):
        load_module(tmp_path / "m.so")
    (tmp_path / "m.json").write_text("{")
    with pytest.raises(RelaxishError, match="damaged"):
        load_module(tmp_path / "m.so")
    (tmp_path / "m.json").unlink()
    with pytest.raises(RelaxishError, match="manifest"):
        load_module(tmp_path / "m.so")
    with pytest.raises(RelaxishError, match="not a writable directory"):
        ex.export_library(str(tmp_path / "missing" / "m.so"))


def test_two_threads_share_a_model(native):
    vm = VirtualMachine(build_executable(native), cpu())
    main = vm["main"]
    wrong = []

    def work(k):
        x = np.full(4, k, "float32")
        for _ in range(500):
            if main(x).numpy()[0] != k + 0.5:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_instrument_profile_and_stateful(native):
    seen = []
    vm = VirtualMachine(build_executable(native), cpu())
    vm.set_instrument(lambda func, name, before, ret, *args: seen.append((name, before)))
    vm["main"](X)
    assert ("add4", True) in seen and ("relu4", False) in seen
    vm.set_instrument(
        lambda func, name, before, ret, *args: (
            runtime.VMInstrumentReturnKind.SKIP_RUN if name == "relu4" else runtime.VMInstrumentReturnKind.NO_OP
        )
    )
    vm["main"](X)
    vm.set_instrument(None)
    vm.save_function("main", "saved", X)
    assert vm["saved"]().numpy().tolist() == [0, 2.5, 0, 4.5]
    vm.set_input("main", x=X)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main").numpy().tolist() == [0, 2.5, 0, 4.5]
    with pytest.raises(RuntimeError, match="profile=True"):
        vm.profile("main", X)
    report = VirtualMachine(build_executable(native), cpu(), profile=True).profile("main", X)
    assert "add4" in str(report) and "float32[4]" in str(report) and "relu4" in report.csv()
    assert vm.time_evaluator("main", cpu(), number=3, repeat=2)(X).mean > 0


def test_call_overhead(native):
    vm = VirtualMachine(build_executable(native), cpu())
    main, x = vm["main"], nd.array(X)
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(1000):
            main(x)
        best = min(best, (time.perf_counter() - begin) / 1000)
    assert best < 5e-6, f"{best * 1e6:.2f} us"


def test_a_file_written_again_is_loaded_again(native, tmp_path):
    """The dynamic linker knows libraries by name; a second export to the same place must not give the first."""
    import relaxish
    from relaxish import te
    from relaxish.driver import build_tir
    from relaxish.runtime import load_module, nd

    def export(factor):
        a = te.placeholder((8,), "float32", "a")
        b = te.compute((8,), lambda i: a[i] * factor, "b")
        func = te.create_prim_func([a, b]).with_attr("global_symbol", f"times_{factor}")
        build_tir(relaxish.IRModule({f"times_{factor}": func}), "llvm").export_library(str(tmp_path / "m.so"))
        return load_module(str(tmp_path / "m.so"))

    loaded = [export(2), export(3)]
    for module, factor in zip(loaded, (2, 3)):
        out = nd.empty((8,), "float32")
        module[f"times_{factor}"](nd.array(np.ones(8, "float32")), out)
        np.testing.assert_array_equal(out.numpy(), factor)
