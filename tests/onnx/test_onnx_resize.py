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


@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric"])
@pytest.mark.parametrize(
    "held", [{"scales": [1.0, 1.0, 2.0, 1.0]}, {"sizes": [2, 3, 8, 5]}, {"scales": [1, 1, 1, 1.5]}]
)
@pytest.mark.parametrize("dims", [[2, 3, 4, 5], ["n", 3, 4, 5], ["n", 3, "h", "w"]])
def test_an_infinite_pixel_stays_within_its_row(dims, held, transform):
    """Along an axis of unchanged size there is nothing to mix: ONNX Runtime's finite and infinite values are ours."""
    [(kind, values)] = held.items()
    if kind == "sizes" and isinstance(dims[0], str):
        pytest.skip("sizes name the batch")
    if values[-1] == 1.5 and isinstance(dims[-1], str):
        pytest.skip("a fraction of a size that only the run knows")
    if values[-1] == 1.5 and transform == "half_pixel_symmetric":
        pytest.skip("its first and last places are whole but for rounding, which decides who is a neighbour")
    helper = onnx.helper
    given = ["x", "", "held"] if kind == "scales" else ["x", "", "", "held"]
    node = helper.make_node("Resize", given, ["y"], mode="linear", coordinate_transformation_mode=transform)
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(values, "float32" if kind == "scales" else "int64"), "held")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    x = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype("float32")
    x[0, 1, 2, 4], x[1, 0, 3, 1], x[1, 2, 0, 4] = np.inf, -np.inf, -np.inf
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [wanted] = session.run(None, {"x": x})
    machine = VirtualMachine(relaxish.build(from_onnx(model), "llvm"), cpu())
    made = machine["main"](relaxish.nd.array(x)).numpy()
    assert made.shape == wanted.shape
    said = ~np.isnan(wanted)  # it multiplies infinities with weights of zero
    np.testing.assert_allclose(made[said], wanted[said], rtol=1e-5, atol=1e-6)
