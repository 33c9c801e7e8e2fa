"""Functions that builds leave in this process, by name."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import runtime
from relaxish.relax import transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@I.ir_module
class Doubles:
    I.module_attrs({"system_lib_prefix": "unit_"})

    @T.prim_func
    def unit_double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "unit_double"})
        for i in range(4):
            y[i] = x[i] * T.float32(2)


def _runs(function) -> None:
    x, y = relaxish.nd.array(np.arange(4, dtype="float32")), relaxish.nd.empty((4,), "float32")
    function(x, y)
    np.testing.assert_array_equal(y.numpy(), [0, 2, 4, 6])


def test_kernels_are_found_by_prefix(tmp_path):
    built = relaxish.compile(Doubles, target="llvm")
    library = runtime.system_lib("unit_")
    _runs(library["double"])
    _runs(library.get_function("unit_double"))
    assert library.implements_function("double") and not library.implements_function("triple")
    assert library is runtime.system_lib("unit_") and library.type_key == "library"
    with pytest.raises(AttributeError):
        library["triple"]
    path = str(tmp_path / "doubles.so")
    built.export_library(path)
    loaded = runtime.load_module(path)
    assert library["double"] is loaded["unit_double"]


def test_models_are_asked_for_or_marked():
    @I.ir_module
    class Model:
        I.module_attrs({"system_lib_prefix": "model_"})

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    attached = transform.AttachGlobalSymbol()(transform.LegalizeOps()(Model))
    assert attached["model_tir_exp"].attrs["global_symbol"] == "model_tir_exp"
    executable = relaxish.build(Model, "llvm", relax_pipeline="default_build")
    _ = relaxish.VirtualMachine(executable, relaxish.cpu())["main"](relaxish.nd.array(np.zeros(4, "float32")))
    x, y = relaxish.nd.array(np.zeros(4, "float32")), relaxish.nd.empty((4,), "float32")
    runtime.system_lib("model_")["tir_exp"](x, y)
    np.testing.assert_array_equal(y.numpy(), np.ones(4))

    plain = Model.without_attr("system_lib_prefix")
    relaxish.build(plain, "llvm", relax_pipeline="default_build")
    assert not runtime.system_lib("none_").implements_function("tir_exp")
    relaxish.build(plain, "llvm", relax_pipeline="default_build", system_lib=True)
    assert runtime.system_lib().implements_function("tir_exp")
