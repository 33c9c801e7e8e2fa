"""Loading again and again: descriptors, threads, mappings and memory stay what they were."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.runtime import cpu, load_module
from relaxish.script import ir as I
from relaxish.script import relax as R

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts what /proc says")


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, x))
            R.output(y)
        return y


def usage():
    gc.collect()
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps, resident


@pytest.mark.parametrize(
    "way", ["written again", *(pytest.param(way, marks=pytest.mark.slow) for way in ("same", "archive", "many"))]
)
def test_reloads_take_nothing(tmp_path, way, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    executable = relaxish.build(Model, "llvm")
    path = tmp_path / ("model.tar" if way == "archive" else "model.so")
    executable.export_library(str(path))
    x = np.random.default_rng(2).standard_normal((64, 64)).astype("float32")
    want = np.maximum(x @ x, 0)

    def once():
        if way == "written again":
            executable.export_library(str(path))
        machine = relax.VirtualMachine(load_module(str(path)), cpu())
        np.testing.assert_allclose(machine["main"](x).numpy(), want, rtol=1e-3, atol=1e-3)

    for _ in range(10):
        once()
    before = usage()
    count = 10_000 if way == "many" else 60
    for _ in range(count):
        once()
    after = usage()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 20  # the allocator of the process maps and unmaps as it likes
    assert after[3] - before[3] < (8 << 20) + 1000 * count
    del executable
    gc.collect()
    assert not [f for f in os.listdir(tmp_path) if f.startswith("relaxish")]


def test_another_library_in_the_same_place_is_another_one(tmp_path):
    from relaxish.script import tir as T

    def of(number):
        @T.prim_func
        def fill(a: T.Buffer((4,), "int32")):
            for i in range(4):
                with T.block("b"):
                    v = T.axis.spatial(4, i)
                    a[v] = T.int32(number)

        return relaxish.tir.build(fill, "llvm")

    path = tmp_path / "fill.so"
    kept = []
    for number in (3, 5, 3, 8):
        of(number).export_library(str(path))
        kept.append((number, load_module(str(path))))
        for expected, module in kept:
            out = np.zeros(4, "int32")
            module(out)
            assert (out == expected).all()


SPOILED = """
    import sys
    from pathlib import Path

    import numpy as np
    from relaxish import runtime

    path, other, way = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    module = runtime.load_module(path)
    runtime.set_num_threads(3)
    out = np.zeros(4096, "int32")
    module(out)  # its threads run in the library, and wait there
    whole = path.read_bytes()
    data = {"shorter": b"", "longer": whole + whole, "other": other.read_bytes()}.get(way, bytes(len(whole)))
    with open(path, "r+b") as file:  # in place
        file.truncate(0)
        file.write(data)
    runtime.set_num_threads(2)
    module(out)
    runtime.set_num_threads(4)
    module(out)
    path.with_suffix(".json").unlink()
    path.unlink()
    runtime.set_num_threads(None)
    module(out)
    assert (out == 4).all()
    print("whole")
"""


@pytest.mark.parametrize("way", ["shorter", "longer", "other", "zeros"])
def test_a_library_written_again_in_place_runs_as_it_was_loaded(tmp_path, way):
    from relaxish.script import tir as T

    def count(name, step):
        @T.prim_func
        def body(out: T.Buffer((4096,), "int32")):
            T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": name})
            for i in T.parallel(4096):
                out[i] = out[i] + step

        return relaxish.tir.build(body, "llvm")

    count("plain", 1).export_library(str(tmp_path / "k.so"))
    count("another_name", 77).export_library(str(tmp_path / "other.so"))
    command = [sys.executable, "-c", textwrap.dedent(SPOILED), *(str(tmp_path / n) for n in ("k.so", "other.so")), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "whole", (done.returncode, done.stderr[-2000:])


def test_libraries_without_files_in_memory(tmp_path, monkeypatch):
    """Where there are none, a copy in a folder does; where there is no room for that, the file itself."""
    from relaxish.script import tir as T

    def of(number):
        @T.prim_func
        def fill(a: T.Buffer((4,), "int32")):
            for i in range(4):
                with T.block("b"):
                    v = T.axis.spatial(4, i)
                    a[v] = T.int32(number)

        return relaxish.tir.build(fill, "llvm")

    for number, missing in ((31, "memfd_create"), (32, "tempdir")):
        if missing == "memfd_create":
            monkeypatch.delattr(os, missing)
        path = tmp_path / f"fill{number}.so"
        of(number).export_library(str(path))
        if missing == "tempdir":
            monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
        module = load_module(str(path))
        out = np.zeros(4, "int32")
        module(out)
        assert (out == number).all()
