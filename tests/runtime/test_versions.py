"""One exported file with versions of a program for several CPUs; what is loaded is the best this machine can run."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import runtime
from relaxish.runtime import load_module
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.elf import with_suffix
from relaxish.support.errors import RelaxishError
from relaxish.support.host_cpu import missing_features
from relaxish.target import Target
from relaxish.target.x86 import features_of_model

CPUS = ["x86-64", "x86-64-v3", "x86-64-v4"]
TARGET = Target({"kind": "llvm", "mcpu": CPUS})
WEIGHT = np.random.default_rng(1).standard_normal((64, 48)).astype("float32")
X = np.random.default_rng(2).standard_normal((8, 64)).astype("float32")

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or bool(missing_features(features_of_model("x86-64-v3") or ())),
    reason="needs an x86-64 CPU with AVX2 to tell versions apart",
)


def _can(cpu: str) -> bool:
    return not missing_features(features_of_model(cpu) or ())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((8, 64), "float32"), w: R.Tensor((64, 48), "float32")):
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            return R.nn.softmax(z)

    folder = tmp_path_factory.mktemp("versions")
    built = relaxish.build(Model, TARGET, params={"w": runtime.nd.array(WEIGHT)})
    assert len(built.versions) == 3 and built.versions[CPUS.index(_best())] is built
    np.testing.assert_allclose(_call(built), _expected(), rtol=1e-5)
    built.export_library(str(folder / "m.so"))
    built.export_library(str(folder / "m.tar"))
    return folder


def _best() -> str:
    return [c for c in CPUS if _can(c)][-1]


def _expected() -> np.ndarray:
    z = np.maximum(X @ WEIGHT, 0)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _call(executable) -> np.ndarray:
    return relaxish.VirtualMachine(executable, relaxish.cpu())["main"](X).numpy()


def test_targets_of_several_cpus() -> None:
    assert Target(str(TARGET)) == TARGET and Target(TARGET.export()) == TARGET
    assert [t.mcpu for t in TARGET.versions()] == CPUS and Target("llvm").versions() == [Target("llvm")]
    assert TARGET.llvm_features == Target("llvm -mcpu=x86-64").llvm_features
    with pytest.raises(RelaxishError):
        Target({"kind": "llvm", "mcpu": [3]})


@pytest.mark.parametrize("name", ["m.so", "m.tar"])
def test_the_best_is_taken(model: Path, name: str) -> None:
    loaded = load_module(model / name)
    assert f"-mcpu={_best()}" in loaded.requirements.target
    np.testing.assert_allclose(_call(loaded), _expected(), rtol=1e-5)


_LOAD = """
    import sys
    import numpy as np
    import relaxish
    loaded = relaxish.runtime.load_module(sys.argv[1])
    x = np.random.default_rng(2).standard_normal((8, 64)).astype("float32")
    np.save(sys.argv[2], relaxish.VirtualMachine(loaded, relaxish.cpu())["main"](x).numpy())
    print(loaded.requirements.target)
"""


@pytest.mark.parametrize(("hidden", "taken"), [("avx512", 1), ("avx2,avx512", 0), ("avx", 0), ("fma", 0)])
@pytest.mark.parametrize("name", ["m.so", "m.tar"])
def test_machines_with_fewer_features(model: Path, tmp_path: Path, name: str, hidden: str, taken: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_LOAD), str(model / name), str(tmp_path / "y.npy")]
    environment = {**os.environ, "RELAXISH_DISABLE_FEATURES": hidden}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1].endswith(f"-mcpu={CPUS[taken]}"), done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), _expected(), rtol=1e-5)


def test_weights_that_versions_share_are_stored_once(model: Path) -> None:
    manifest = json.loads((model / "m.json").read_text())
    assert [p["suffix"] for p in manifest["programs"]] == ["", ".v1", ".v2"]
    names = [c[1] for p in manifest["programs"] for c in p["constants"] if c[0] == "tensor"]
    stored = (model / "m.safetensors").stat().st_size
    assert len(set(names)) <= len(names) and stored < (len(set(names)) + 0.5) * WEIGHT.nbytes + 4096


def test_a_modest_version_has_no_instructions_of_others(model: Path) -> None:
    """What is compiled for plain x86-64 is what runs on machines without AVX: none of its features may be needed."""
    manifest = json.loads((model / "m.json").read_text())
    needs = [set(p["code"]["features"]) for p in manifest["programs"]]
    assert needs[0] <= {"sse", "sse2"} and "avx2" in needs[1] and "avx512f" in needs[2] and needs[1] < needs[2]


def test_the_thread_pool_is_for_any_cpu() -> None:
    """It is linked into every library, also into those for machines more modest than this one."""
    from relaxish.backend.llvm import engine, threadpool

    triple = "x86_64-unknown-linux-gnu"
    plain = Target({"kind": "llvm", "mtriple": triple, "mcpu": "x86-64"})
    assert engine.pool_object(triple) == engine.compile_text(threadpool.pool_text(triple), plain)


@T.prim_func
def axpy(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
    T.func_attr({"global_symbol": "axpy"})
    for i in range(1024):
        with T.block("b"):
            v = T.axis.spatial(1024, i)
            B[v] = A[v] * T.float32(2) + B[v]


def test_kernels(tmp_path: Path) -> None:
    built = relaxish.build(axpy, TARGET)
    built.export_library(str(tmp_path / "k.so"))
    a, b = (np.random.default_rng(s).standard_normal(1024).astype("float32") for s in (3, 4))
    for module in (built, load_module(tmp_path / "k.so"), *built.versions[: CPUS.index(_best()) + 1]):
        out = b.copy()
        module["axpy"](a, out)
        np.testing.assert_allclose(out, a * 2 + b, rtol=1e-6)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    addresses = {ctypes.cast(library[f"axpy{s}"], ctypes.c_void_p).value for s in ("", ".v1", ".v2")}
    assert len(addresses) == 3
    out = b.copy()
    assert library.axpy(ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(out.ctypes.data)) == 0
    np.testing.assert_allclose(out, a * 2 + b, rtol=1e-6)


def test_system_library(tmp_path: Path) -> None:
    mod = relaxish.ir.IRModule({"axpy": axpy}).with_attr("system_lib_prefix", "versions_")
    built = relaxish.build(mod, TARGET)
    assert built.in_system_lib and [v.in_system_lib for v in built.versions].count(True) == 1


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x01\x01" + bytes(100), b"\xcf\xfa\xed\xfe" + bytes(100)])
def test_objects_of_other_systems(data: bytes) -> None:
    with pytest.raises(RelaxishError, match="64-bit ELF"):
        with_suffix(data, ".v1")
