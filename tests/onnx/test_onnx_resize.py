"""Resizing by a factor of one, against ONNX Runtime: nothing is mixed, so that infinities stay where they are."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.runtime import VirtualMachine, cpu  # noqa: E402


@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("name", "held"), [("scales", np.ones(4, "float32")), ("sizes", np.array([2, 3, 4, 5]))])
@pytest.mark.parametrize("dims", [[2, 3, 4, 5], ["n", 3, 4, 5]])
def test_a_resize_to_the_same_size_changes_nothing(dims, name, held, mode, transform):
    if name == "sizes" and isinstance(dims[0], str):
        pytest.skip("sizes name the batch")
    given = ["x", "", "held"] if name == "scales" else ["x", "", "", "held"]
    helper = onnx.helper
    node = helper.make_node("Resize", given, ["r"], mode=mode, coordinate_transformation_mode=transform)
    graph = helper.make_graph(
        [node, helper.make_node("Neg", ["r"], ["y"])],
        "resize",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(held, "held")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.random.default_rng(4).standard_normal((2, 3, 4, 5)).astype("float32")
    x[0, 1, 2, 3], x[1, 0, 0, 0], x[1, 2, 3, 4] = np.inf, np.nan, -np.inf
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [wanted] = session.run(None, {"x": x})
    machine = VirtualMachine(relaxish.build(from_onnx(model), "llvm"), cpu())
    made = machine["main"](relaxish.nd.array(x)).numpy()
    np.testing.assert_array_equal(made, -x)
    np.testing.assert_array_equal(wanted, -x)
