"""Host programs as machine code: the same launches as from their text, and objects of the target's host."""

from __future__ import annotations

import tarfile
from typing import Any

import numpy as np
import pytest
from programs.device_models import MODELS

import relaxish
from relaxish.backend.cuda.compile import nvrtc
from relaxish.runtime.devices.module import DeviceModule
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.config import HOST_PROGRAMS
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

CUDA = Target("cuda -arch=sm_80")
AARCH64 = Target("cuda -arch=sm_87", host="llvm -mtriple=aarch64-linux-gnu")
BOARD = Target("opencl", host="llvm -mtriple=aarch64-linux-gnu")
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="exporting CUDA programs needs a CUDA compiler")


def _machine(elf: bytes) -> int:
    """The architecture that an ELF file is for."""
    assert elf[:4] == b"\x7fELF"
    return int.from_bytes(elf[18:20], "little")


@pytest.fixture(autouse=True)
def _emulated():
    with use_cuda_provider("emulator"):
        yield


def _run(executable: Any, inputs: list[np.ndarray]) -> Any:
    machine = relaxish.VirtualMachine(executable, relaxish.cuda())
    out = machine["main"](*(relaxish.nd.array(a, relaxish.cuda()) for a in inputs))
    return [o.numpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_give_the_same_numbers(name: str) -> None:
    mod, make_inputs, _ = MODELS[name]
    inputs = make_inputs(np.random.default_rng(5))
    expected = _run(relaxish.build(mod, CUDA), inputs)
    executable = relaxish.build(mod, CUDA)
    module = executable.device_modules[0]
    assert module.use_native_host()
    for found, wanted in zip(_run(executable, inputs), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert module.native is not None and module.native.served, "the numbers came by way of machine code"


@I.ir_module
class Sums:
    """Workspace, sizes that are only known when it is called, and scalars."""

    @T.prim_func
    def scaled(a: T.handle, b: T.handle, factor: T.float32, shift: T.int32):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for bx in T.thread_binding((n + 31) // 32, "blockIdx.x"):
            for tx in T.thread_binding(32, "threadIdx.x"):
                with T.block("b"):
                    v = T.axis.spatial(n, bx * 32 + tx)
                    T.where(bx * 32 + tx < n)
                    B[v] = A[v] * factor + T.Cast("float32", shift)


@pytest.mark.parametrize("count", [1, 31, 100])
def test_sizes_and_scalars(count: int) -> None:
    built = relaxish.build(Sums, CUDA)
    module = built.imported_modules[0]
    assert isinstance(module, DeviceModule)
    assert module.use_native_host()
    x = np.random.default_rng(count).normal(size=count).astype("float32")
    a, b = relaxish.nd.array(x, relaxish.cuda()), relaxish.nd.empty((count,), "float32", relaxish.cuda())
    module["scaled"](a, b, 2.5, -3)
    np.testing.assert_allclose(b.numpy(), x * np.float32(2.5) - 3, rtol=1e-6, atol=1e-6)


def test_tensor_maps_are_made_by_way_of_machine_code(monkeypatch: Any) -> None:
    @I.ir_module
    class Product:
        @R.function
        def main(x: R.Tensor((256, 128), "float16"), w: R.Tensor((128, 256), "float16")):
            with R.dataflow():
                y = R.matmul(x, w, out_dtype="float32")
                R.output(y)
            return y

    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(256, 128)).astype("float16"), rng.normal(size=(128, 256)).astype("float16")
    executable = relaxish.build(Product, Target("nvidia/nvidia-h100"))
    module = executable.device_modules[0]
    assert "rt.tensor_map" in module.get_source("host")
    (expected,) = _run(executable, [x, w])
    assert module.use_native_host()
    made: list[tuple[Any, ...]] = []
    encode = type(module.runtime(0)).tensor_map
    monkeypatch.setattr(type(module.runtime(0)), "tensor_map", lambda self, *a: made.append(a) or encode(self, *a))
    (found,) = _run(executable, [x, w])
    np.testing.assert_array_equal(found, expected)
    assert len(made) >= 2


def test_workspace_lives_until_the_call_is_over() -> None:
    @I.ir_module
    class Sorted:
        @R.function
        def main(x: R.Tensor((3, 40), "float32")):
            with R.dataflow():
                y = R.cumsum(x, axis=1)
                z = R.sort(y, axis=1)
                R.output(z)
            return z

    x = np.random.default_rng(0).normal(size=(3, 40)).astype("float32")
    executable = relaxish.build(Sorted, CUDA)
    assert executable.device_modules[0].use_native_host()
    (found,) = _run(executable, [x])
    np.testing.assert_allclose(found, np.sort(np.cumsum(x, axis=1), axis=1), rtol=1e-4, atol=1e-5)


def test_an_error_of_a_launch_is_raised_once_the_code_is_through(monkeypatch: Any) -> None:
    built = relaxish.build(Sums, CUDA)
    module = built.imported_modules[0]
    module.use_native_host()
    a = relaxish.nd.array(np.ones(4, "float32"), relaxish.cuda())

    def broken(*args: Any) -> None:
        raise RelaxishError("no such kernel today")

    monkeypatch.setattr(type(module.runtime(0)), "launch", broken)
    with pytest.raises(RelaxishError, match="no such kernel today"):
        module["scaled"](a, a, 1.0, 0)


def test_arguments_elsewhere_are_refused() -> None:
    executable = relaxish.build(Sums, CUDA)
    module = executable.imported_modules[0]
    module.use_native_host()
    there = relaxish.nd.array(np.ones(4, "float32"), relaxish.cuda())
    with pytest.raises(RelaxishError, match="move it with"):
        module["scaled"](relaxish.nd.array(np.ones(4, "float32")), there, 1.0, 0)


def test_programs_of_arrays_alone(monkeypatch: Any) -> None:
    """They pack their slots at once: the same numbers, refusals and errors of launches, and the next call is right again."""

    @I.ir_module
    class Added:
        @T.prim_func
        def add(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
            for bx in T.thread_binding(2, "blockIdx.x"):
                for tx in T.thread_binding(32, "threadIdx.x"):
                    with T.block("c"):
                        v = T.axis.spatial(64, bx * 32 + tx)
                        C[v] = A[v] + B[v]

    module = relaxish.build(Added, CUDA).imported_modules[0]
    assert module.use_native_host()
    x, y = np.random.default_rng(4).normal(size=(2, 64)).astype("float32")
    a, b = relaxish.nd.array(x, relaxish.cuda()), relaxish.nd.array(y, relaxish.cuda())
    c = relaxish.nd.empty((64,), "float32", relaxish.cuda())
    with pytest.raises(RelaxishError, match="move it with"):
        module["add"](a, relaxish.nd.array(y), c)
    runtime = type(module.runtime(0))
    launch = runtime.launch

    def broken(self: Any, *args: Any) -> None:
        raise RelaxishError("no such kernel today")

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "launch", broken)
        with pytest.raises(RelaxishError, match="no such kernel today"):
            module["add"](a, b, c)
    seen: list[Any] = []
    monkeypatch.setattr(runtime, "launch", lambda self, *args: seen.append(args) or launch(self, *args))
    for _ in range(3):
        module["add"](a, b, c)
        np.testing.assert_array_equal(c.numpy(), x + y)
    values = tuple(t.ptr for t in (a, b, c))
    assert [call[1:] for call in seen] == [(values, (2, 1, 1), (32, 1, 1), 0, (1, 1, 1))] * 3


@pytest.mark.slow
@needs_compiler
def test_exported_programs_have_their_hosts_code(tmp_path: Any) -> None:
    mod, make_inputs, _ = MODELS["mlp"]
    inputs = make_inputs(np.random.default_rng(5))
    executable = relaxish.build(mod, CUDA)
    expected = _run(executable, inputs)
    executable.export_library(tmp_path / "model.so")
    HOST_PROGRAMS.set("native")
    try:
        loaded = relaxish.runtime.load_module(tmp_path / "model.so")
    finally:
        HOST_PROGRAMS.reset()
    assert loaded.device_modules[0].native is not None
    for found, wanted in zip(_run(loaded, inputs), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


# ---- hosts of other architectures


def _static() -> Any:
    @I.ir_module
    class Products:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 5), "float32")):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                R.output(y)
            return y

    return Products


@pytest.mark.parametrize(
    "target",
    [
        BOARD,
        Target("llvm -mtriple=aarch64-linux-gnu"),
        pytest.param(AARCH64, marks=needs_compiler),
        pytest.param("nvidia/jetson-orin-nano:board", marks=needs_compiler),
    ],
)
def test_the_callers_linker_gets_objects_of_the_host(target: Any, tmp_path: Any) -> None:
    seen: list[int] = []

    def fcompile(path: str, files: list[str], **options: Any) -> None:
        assert options == {"options": ["-O1"]}
        for name in files:
            with open(name, "rb") as file:
                seen.append(_machine(file.read()))
        with open(files[0], "rb") as first, open(path, "wb") as out:
            out.write(first.read())

    path = tmp_path / "model.so"
    relaxish.build(_static(), target).export_library(path, fcompile=fcompile, options=["-O1"])
    assert set(seen) == {183}
    assert _machine(path.read_bytes()) == 183
    with pytest.raises(RelaxishError, match="aarch64"):
        relaxish.runtime.load_module(path)


@pytest.mark.parametrize("target", [BOARD, Target("llvm -mtriple=aarch64-linux-gnu")])
def test_without_a_linker_the_error_names_fcompile(target: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("relaxish.runtime.exports.linking._foreign_commands", lambda *_: [])
    executable = relaxish.build(_static(), target)
    with pytest.raises(RelaxishError, match=r"no linker for aarch64-linux-gnu .*export_library\(fcompile=.*\.tar"):
        executable.export_library(tmp_path / "model.so")
    assert list(tmp_path.iterdir()) == []
    executable.export_library(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive:
        objects = [n for n in archive.getnames() if n.endswith(".o")]
        assert len(objects) >= 2
        assert {_machine(archive.extractfile(n).read()) for n in objects} == {183}


def test_code_of_another_machine_is_not_run_here() -> None:
    executable = relaxish.build(_static(), "llvm -mtriple=aarch64-linux-gnu")
    with pytest.raises(RelaxishError, match="compiled for aarch64-linux-gnu, and this machine is"):
        relaxish.VirtualMachine(executable, relaxish.cpu())["main"](
            relaxish.nd.array(np.ones((4, 8), "float32")), relaxish.nd.array(np.ones((8, 5), "float32"))
        )


@pytest.mark.parametrize("triple", ["armv7l-linux-gnueabihf", "riscv64-unknown-linux-gnu", "powerpc64le-linux-gnu"])
def test_objects_of_further_architectures(triple: str, tmp_path: Any) -> None:
    relaxish.build(_static(), f"llvm -mtriple={triple}").export_library(tmp_path / "model.tar")
    machine = {"armv7l": 40, "riscv64": 243, "powerpc64le": 21}[triple.partition("-")[0]]
    with tarfile.open(tmp_path / "model.tar") as archive:
        assert {_machine(archive.extractfile(n).read()) for n in archive.getnames() if n.endswith(".o")} == {machine}


def test_an_archive_of_objects_is_linked_where_it_is_loaded(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("relaxish.runtime.exports.export.is_foreign", lambda triple: True)
    executable = relaxish.build(_static(), "llvm")
    executable.export_library(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive:
        assert "model.so" not in archive.getnames()
    loaded = relaxish.runtime.load_module(tmp_path / "model.tar")
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(4, 8)).astype("float32"), rng.normal(size=(8, 5)).astype("float32")
    out = relaxish.VirtualMachine(loaded, relaxish.cpu())["main"](relaxish.nd.array(x), relaxish.nd.array(w))
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
