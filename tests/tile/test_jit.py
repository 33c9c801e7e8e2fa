"""Compiling kernels, calling them, finding them again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from tile_kernels import bound_add, dynamic_add, matmul, scaled_add, two_outputs

from relaxish import nd, tile
from relaxish.runtime.nvidia import providers
from relaxish.support import config
from relaxish.support.errors import MalformedDataError, RelaxishError
from relaxish.tile.jit import JITImpl, cache, store

TARGET = "llvm -num-cores=1"


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    cache._KERNELS.clear()
    with config.CACHE_DIR.override(tmp_path / "cache"):
        yield tmp_path / "cache"
    cache._KERNELS.clear()


def rand(*shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("kind", ["numpy", "torch", "relaxish"])
def test_outputs_are_of_the_inputs_kind(kind):
    kernel = tile.compile(scaled_add(32), out_idx=-1, target=TARGET)
    a, b = rand(32), rand(32, seed=1)
    make = {"numpy": lambda x: x, "torch": torch.from_numpy, "relaxish": nd.array}[kind]
    got = kernel(make(a), make(b))
    assert type(got) is type(make(a))
    np.testing.assert_allclose(got if kind == "numpy" else got.numpy(), a * 2 + b, rtol=1e-6)


@pytest.mark.parametrize("out_idx", [[0, 3], [0, -1], [3, 0]])
def test_several_outputs_are_a_list_in_the_order_asked_for(out_idx):
    kernel = tile.compile(two_outputs(16), out_idx=out_idx, target=TARGET)
    a, b = rand(16), rand(16, seed=1)
    got = kernel(a, b)
    expected = {0: a + b, 3: a - b}
    assert isinstance(got, list) and kernel.out_idx == [i % 4 for i in out_idx]
    for index, value in zip(kernel.out_idx, got, strict=True):
        np.testing.assert_allclose(value, expected[index], rtol=1e-6)


def test_without_outputs_all_parameters_are_given():
    kernel = tile.compile(scaled_add(16), target=TARGET)
    a, b, c = rand(16), rand(16, seed=1), np.full(16, np.nan, "float32")
    assert kernel(a, b, c) is None
    np.testing.assert_allclose(c, a * 2 + b, rtol=1e-6)


def test_inputs_by_name():
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    a, b = rand(16), rand(16, seed=1)
    np.testing.assert_array_equal(kernel(a, B=b), kernel(B=b, A=a))
    with pytest.raises(ValueError, match="expected the inputs A, B"):
        kernel(a=a, b=b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda a: (a,), "Expected 3 inputs, got 2 with 1 inputs and 1 outputs"),
        (lambda a: (a, a.astype("float64")), "input 1: dtype is expected to be float32, got float64"),
        (lambda a: (a, a[:8]), r"input 1: shape\[0\] is expected to be 16, got 8"),
        (lambda a: (a, a.reshape(4, 4)), "input 1: expected 1 dimensions"),
        (lambda a: (a, np.zeros(32, "float32")[::2]), "input 1: the tensor is not contiguous"),
        (lambda a: (a, torch.zeros(32)[::2]), "input 1: the tensor is not contiguous"),
        (lambda a: (a, [1.0] * 16), "input 1: expected a tensor"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments, message):
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    with pytest.raises(ValueError, match=message):
        kernel(*arguments(rand(16)))


@pytest.mark.parametrize("out_idx", [3, -4, [0, 0], [0, -3], ["C"]])
def test_outputs_that_are_not_there(out_idx):
    with pytest.raises(ValueError, match="out_idx"):
        tile.compile(scaled_add(16), out_idx=out_idx, target=TARGET)


@pytest.mark.parametrize("n", [1, 7, 64])
def test_extents_that_are_known_when_called(n):
    kernel = tile.compile(dynamic_add(), out_idx=-1, target=TARGET)
    a, b = rand(n), rand(n, seed=1)
    got = kernel(a, b)
    assert got.shape == (n,)
    np.testing.assert_allclose(got, a + b, rtol=1e-6)
    with pytest.raises(ValueError, match=r"input 1: shape\[0\]"):
        kernel(a, rand(n + 1))


def test_a_tile_program(own_cache):
    kernel = tile.compile(matmul(96, 64, 80), out_idx=-1, target=TARGET)
    a, b = rand(96, 80), rand(64, 80, seed=1)
    np.testing.assert_allclose(kernel(a, b), a @ b.T, rtol=1e-4, atol=1e-4)
    got = kernel(torch.from_numpy(a), torch.from_numpy(b))
    torch.testing.assert_close(got, torch.from_numpy(a @ b.T), rtol=1e-4, atol=1e-4)


def test_jit_compiles_once_for_each_set_of_arguments():
    seen = []

    @tile.jit(out_idx=[-1], target=TARGET)
    def factory(n, factor=2.0):
        seen.append((n, factor))
        return scaled_add(n, factor)

    first = factory(16)
    assert factory(16) is first and factory(n=16, factor=2.0) is first and len(seen) == 1
    other = factory(16, 3.0)
    assert other is not first and factory(16, 3) is not None
    a, b = rand(16), rand(16, seed=1)
    np.testing.assert_allclose(other(a, b), a * 3 + b, rtol=1e-6)
    assert "C" in factory.get_tir(16).script() and factory.get_kernel_source(16) == first.get_kernel_source()


def test_jit_without_parentheses():
    @tile.jit
    def factory(n):
        """A kernel."""
        return scaled_add(n)

    assert isinstance(factory, JITImpl) and factory.__doc__ == "A kernel."
    c = np.zeros(8, "float32")
    factory(8)(rand(8), rand(8), c)
    assert c.any()


def test_what_is_no_factory():
    with pytest.raises(TypeError, match="jit decorates a function that returns a PrimFunc"):
        tile.jit(scaled_add(8))
    with pytest.raises(TypeError, match="must return a PrimFunc"):
        tile.jit(lambda: 7)()
    with pytest.raises(TypeError, match="compile takes a PrimFunc"):
        tile.compile(lambda: 7)
    with pytest.raises(ValueError, match="unknown execution backend"):
        tile.compile(scaled_add(8), execution_backend="gcc")
    with pytest.raises(RelaxishError, match="compile_flags"):
        tile.compile(scaled_add(8), compile_flags=["-O3"])
    with pytest.raises(AttributeError, match="Invalid config option"):
        tile.compile(scaled_add(8), pass_configs={"no.such.option": 1})


def test_options_of_other_compilers_are_left_out(caplog):
    kernel = tile.compile(scaled_add(8), out_idx=-1, target=TARGET, pass_configs={"tl.disable_tma_lower": True})
    assert kernel.options.pass_configs == {} and "has no meaning here" in caplog.text
    kernel = tile.compile(scaled_add(8), out_idx=-1, target=TARGET, pass_configs={"tir.disable_vectorize": True})
    assert kernel.options.pass_configs == {"tir.disable_vectorize": True}


def test_kernels_are_found_on_disk(own_cache, monkeypatch):
    first = tile.compile(matmul(32, 32, 32), out_idx=-1, target=TARGET)
    cache._KERNELS.clear()
    from relaxish.tile.jit import kernel as module

    monkeypatch.setattr(module, "build_module", lambda *args: pytest.fail("compiled again"))
    again = tile.compile(matmul(32, 32, 32), out_idx=-1, target=TARGET)
    a, b = rand(32, 32), rand(32, 32, seed=1)
    np.testing.assert_array_equal(again(a, b), first(a, b))
    assert again.get_kernel_source() == first.get_kernel_source()
    assert again.prim_func.script() == first.prim_func.script() and again.params == first.params


def test_a_kernel_from_disk_can_be_written_again(own_cache, tmp_path):
    from relaxish.runtime import load_module
    from relaxish.tile.jit import JITKernel

    tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    cache._KERNELS.clear()
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    a, b, c = rand(16), rand(16, seed=1), np.zeros(16, "float32")
    load_module(kernel.export_library(str(tmp_path / "mine.so")))(a, b, c)
    np.testing.assert_allclose(c, a * 2 + b, rtol=1e-6)
    (tmp_path / "copy").mkdir()
    kernel.save(tmp_path / "copy")
    again = JITKernel.load(tmp_path / "copy", kernel.options)
    np.testing.assert_array_equal(again(a, b), c)
    assert again.prim_func.script() == kernel.prim_func.script()


@pytest.mark.parametrize("different", ["program", "target", "pass_configs"])
def test_what_differs_is_another_entry(own_cache, different):
    tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    options = {"target": "llvm -num-cores=2"} if different == "target" else {"target": TARGET}
    if different == "pass_configs":
        options["pass_configs"] = {"tir.disable_vectorize": True}
    tile.compile(scaled_add(16, 3.0 if different == "program" else 2.0), out_idx=-1, **options)
    assert len([p for p in (own_cache / "tile" / "kernels").iterdir()]) == 2


def damaged(folder, how):
    if how == "torn":
        data = (folder / "kernel.so").read_bytes()
        (folder / "kernel.so").write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data = bytearray((folder / "function.pkl").read_bytes())
        data[len(data) // 2] ^= 1
        (folder / "function.pkl").write_bytes(data)
    elif how == "missing":
        (folder / "out_idx.json").unlink()
    elif how == "more":
        (folder / "extra.so").write_bytes(b"")
    elif how == "no sums":
        (folder / "checksums.json").write_text("{")
    else:
        (folder / "kernel.so").unlink()
        (folder / "kernel.so").symlink_to("/bin/true")


@pytest.mark.parametrize("how", ["torn", "flipped", "missing", "more", "no sums", "link"])
def test_a_damaged_entry_is_made_again(own_cache, how, caplog):
    tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    (folder,) = (own_cache / "tile" / "kernels").iterdir()
    damaged(folder, how)
    cache._KERNELS.clear()
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    a, b = rand(16), rand(16, seed=1)
    np.testing.assert_allclose(kernel(a, b), a * 2 + b, rtol=1e-6)
    assert "is made again" in caplog.text
    store.verify(folder)


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def test_stored_programs_run_nothing(own_cache, tmp_path, monkeypatch):
    import pickle

    monkeypatch.chdir(tmp_path)
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    (folder,) = (own_cache / "tile" / "kernels").iterdir()
    for value in (Evil(), {"format": "relaxish-primfunc-1", "program": Evil()}, [1], {"format": "relaxish-primfunc-1"}):
        (folder / "function.pkl").write_bytes(pickle.dumps(value))
        store.seal(folder)
        cache._KERNELS.clear()
        kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
        with pytest.raises(MalformedDataError, match="function.pkl"):
            _ = kernel.prim_func
    assert not (tmp_path / "evil").exists()


def test_a_cache_that_others_can_write_to_is_not_used(own_cache):
    folder = own_cache / "tile" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    assert kernel(rand(16), rand(16)).shape == (16,) and not list(folder.iterdir())


def test_the_cache_can_be_off(own_cache):
    with config.TILE_DISABLE_CACHE.override(True):
        tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    assert not (own_cache / "tile").exists()


def test_threads_get_one_kernel(own_cache):
    made = []
    program = scaled_add(64)
    threads = [
        threading.Thread(target=lambda: made.append(tile.compile(program, out_idx=-1, target=TARGET))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and len({id(k) for k in made}) == 1
    assert len(list((own_cache / "tile" / "kernels").iterdir())) == 1


@pytest.mark.slow
def test_several_processes_write_one_entry(own_cache):
    code = (
        "import numpy as np; from relaxish import tile; from tile_kernels import scaled_add;"
        f"k = tile.compile(scaled_add(48), out_idx=-1, target={TARGET!r});"
        "a = np.ones(48, 'float32'); assert (k(a, a) == 3).all()"
    )
    env = {**os.environ, "RELAXISH_CACHE_DIR": str(own_cache)}
    env["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    processes = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(3)]
    assert [p.wait() for p in processes] == [0, 0, 0]
    (folder,) = (own_cache / "tile" / "kernels").iterdir()
    store.verify(folder)


def test_par_compile_in_order(own_cache):
    programs = [scaled_add(16, f) for f in (1.0, 2.0, 3.0, 2.0)]
    kernels = tile.par_compile(programs, out_idx=-1, target=TARGET, num_workers=2)
    a, b = rand(16), rand(16, seed=1)
    for kernel, factor in zip(kernels, (1, 2, 3, 2), strict=True):
        np.testing.assert_allclose(kernel(a, b), a * factor + b, rtol=1e-6)
    assert kernels[1] is kernels[3] and len(list((own_cache / "tile" / "kernels").iterdir())) == 3
    assert tile.compile(scaled_add(16, 3.0), out_idx=-1, target=TARGET) is kernels[2]
    assert "C" in kernels[0].prim_func.script()


def test_par_compile_of_what_cannot_be_compiled():
    from relaxish.script import tir as S

    @S.prim_func
    def bad(A: S.Buffer((4,), "float32")):
        for i in range(4):
            with S.block("A"):
                vi = S.axis.spatial(4, i)
                A[vi] = S.call_extern("float32", "no_such_function_at_all", A[vi])

    programs = [scaled_add(16), bad]
    with pytest.raises(RelaxishError, match="the kernel 1 .* cannot be compiled"):
        tile.par_compile(programs, target=TARGET, num_workers=1)
    kernels = tile.par_compile(programs, target=TARGET, num_workers=1, ignore_error=True)
    assert kernels[0] is not None and kernels[1] is None


def test_par_compile_of_a_factory():
    @tile.jit(out_idx=-1, target=TARGET)
    def factory(n, factor=2.0):
        return scaled_add(n, factor)

    with config.TILE_DISABLE_CACHE.override(True):
        kernels = factory.par_compile([{"n": 8, "factor": 5.0}, (4,)], num_workers=2)
    assert all("define" in k.get_kernel_source() for k in kernels)
    ones = np.ones(8, "float32")
    np.testing.assert_allclose(kernels[0](ones, ones), 6)
    np.testing.assert_allclose(kernels[1](ones[:4], ones[:4]), 3)


def test_code_and_files(tmp_path, capsys):
    kernel = tile.compile(scaled_add(16), out_idx=-1, target=TARGET)
    assert "define" in kernel.get_kernel_source() and kernel.get_host_source() == ""
    kernel.show_source()
    assert "define" in capsys.readouterr().out
    kernel.export_sources(kernel_path=str(tmp_path / "a" / "kernel.ll"))
    assert (tmp_path / "a" / "kernel.ll").read_text() == kernel.get_kernel_source()
    path = kernel.export_library(str(tmp_path / "kernel.so"))
    from relaxish.runtime import load_module

    c = np.zeros(16, "float32")
    load_module(path)(rand(16), rand(16), c)
    assert c.any()
    for wrong in (lambda: kernel.show_ptx(), lambda: kernel.show_sass(), lambda: kernel.n_regs):
        with pytest.raises(RelaxishError, match="NVIDIA"):
            wrong()
    with pytest.raises(ValueError, match="show_source takes"):
        kernel.show_source("all")


@pytest.mark.parametrize("arch", ["sm_70", "sm_80"])
def test_a_tile_program_for_a_device(own_cache, arch):
    with providers.use("emulator"):
        for _ in range(2):
            # Emulated kernels are compiled anew: nothing of them is kept.
            cache._KERNELS.clear()
            program = matmul(32, 32, 32, 32, 32, 16, dtype="float16")
            kernel = tile.compile(program, out_idx=-1, target=f"cuda -arch={arch}")
            a, b = rand(32, 32, dtype="float16"), rand(32, 32, seed=1, dtype="float16")
            wanted = a.astype("float32") @ b.astype("float32").T
            np.testing.assert_allclose(kernel(a, b).astype("float32"), wanted, rtol=1e-2, atol=5e-2)
        both = tile.par_compile([program, bound_add(64)], out_idx=-1, target=f"cuda -arch={arch}")
        np.testing.assert_array_equal(both[0](a, b), kernel(a, b))
    assert not list(own_cache.glob("tile/kernels/*"))


def test_what_cannot_be_written_is_compiled_all_the_same(own_cache, monkeypatch, caplog):
    from relaxish.runtime.module import Module

    def no_tool(*args, **kwargs):
        raise RelaxishError("nvcc does not know this device")

    monkeypatch.setattr(Module, "export_library", no_tool)
    assert tile.compile(scaled_add(16), out_idx=-1, target=TARGET)(rand(16), rand(16)).shape == (16,)
    assert "nvcc does not know this device" in caplog.text and not list(own_cache.glob("tile/kernels/*"))


def test_a_kernel_for_a_device(tmp_path):
    """Through the emulator: arrays of the host go to the device and back."""
    with providers.use("emulator"):
        kernel = tile.compile(bound_add(64), out_idx=-1, target="nvidia/geforce-rtx-3090")
        a, b = rand(64), rand(64, seed=1)
        np.testing.assert_allclose(kernel(a, b), a + b, rtol=1e-6)
        got = kernel(torch.from_numpy(a), torch.from_numpy(b))
        np.testing.assert_allclose(got.numpy(), a + b, rtol=1e-6)
        c = np.zeros(64, "float32")
        tile.compile(bound_add(64), target="nvidia/geforce-rtx-3090")(a, b, c)
        np.testing.assert_allclose(c, a + b, rtol=1e-6)
        assert "__global__" in kernel.get_kernel_source() and kernel.get_host_source()


def test_debug_folder(tmp_path):
    @tile.jit(out_idx=-1, target=TARGET, debug_root_path=str(tmp_path / "debug"))
    def doubled(n):
        return scaled_add(n)

    doubled(8)
    assert "def main" in (tmp_path / "debug" / "doubled.py").read_text()
    assert "define" in (tmp_path / "debug" / "doubled.kernel.txt").read_text()
