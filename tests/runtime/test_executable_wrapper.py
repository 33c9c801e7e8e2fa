"""Compiled modules under their common name."""

from __future__ import annotations

import numpy as np

import relaxish
from relaxish.runtime import Executable, VMExecutable, load_module
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@I.ir_module
class Adds:
    @T.prim_func
    def add(a: T.Buffer((5,), "float32"), b: T.Buffer((5,), "float32"), c: T.Buffer((5,), "float32")):
        T.func_attr({"global_symbol": "add"})
        for i in range(5):
            c[i] = a[i] + b[i]


def _runs(function) -> None:
    a, b = (relaxish.nd.array(np.full(5, v, "float32")) for v in (1, 2))
    c = relaxish.nd.empty((5,), "float32")
    function(a, b, c)
    assert c.numpy().tolist() == [3] * 5


def test_wrapper(tmp_path):
    built = relaxish.compile(Adds, target="llvm")
    assert isinstance(built, Executable)
    wrapped = Executable(built.mod)
    assert wrapped.mod is built.mod
    _runs(wrapped["add"])
    _runs(wrapped)
    first = wrapped.jit()
    assert wrapped.jit() is first and wrapped.jit(force_recompile=True) is not first
    _runs(wrapped.jit()["add"])
    path = str(tmp_path / "adds.so")
    wrapped.export_library(path)
    _runs(load_module(path)["add"])


def test_models_are_executables():
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = R.add(x, x)
            return y

    built = relaxish.compile(Model, target="llvm")
    assert isinstance(built, Executable) and isinstance(built, VMExecutable)
    assert not isinstance(3, Executable)
