"""Dropout is the identity of inference; where a model asks for training, the importer says so."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxish
from relaxish.frontend.onnx import from_onnx


def _model(training: object, ratio: float | None) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    weights = []
    if ratio is not None:
        weights.append(numpy_helper.from_array(np.array(ratio, "float32"), "r"))
    names = ["x", "r" if ratio is not None else ""]
    if training == "asked":
        inputs.append(helper.make_tensor_value_info("t", TensorProto.BOOL, []))
        names.append("t")
    elif training is not None:
        weights.append(numpy_helper.from_array(np.array(training), "t"))
        names.append("t")
    node = helper.make_node("Dropout", names, ["y", "mask"])
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])]
    graph = helper.make_graph([node], "dropout", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("training", "ratio", "told"),
    [(None, 0.5, 0), (False, 0.5, 0), (True, 0.5, 1), (True, None, 1), (True, 0.0, 0), ("asked", 0.3, 1)],
)
def test_training_is_not_taken_for_inference_in_silence(training, ratio, told):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mod = from_onnx(_model(training, ratio))
    assert sum("Dropout in training mode" in str(w.message) for w in seen) == told
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    flag = [relaxish.nd.array(np.array(True))] if training == "asked" else []
    np.testing.assert_array_equal(vm["main"](relaxish.nd.array(x), *flag).numpy(), x)
