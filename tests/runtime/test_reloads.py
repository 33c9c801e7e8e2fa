"""Loading again and again: descriptors, threads, mappings and memory stay what they were."""

from __future__ import annotations

import gc
import os
import sys
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


@pytest.mark.parametrize("way", ["same", "written again", "archive", pytest.param("many", marks=pytest.mark.slow)])
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
