"""Sizes that the model computes with: types and ranks are those of the model, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.runtime import cpu  # noqa: E402

_NODE = onnx.helper.make_node


def _check(nodes: list[Any], weights: dict[str, Any], kind: str, dims: list[int | str], shape: tuple[int, ...]) -> None:
    to = onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        nodes,
        "sizes",
        [onnx.helper.make_tensor_value_info("x", to(np.dtype("float32")), dims)],
        [onnx.helper.make_tensor_value_info("y", to(np.dtype(kind)), None)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    x = np.random.default_rng(3).standard_normal(shape).astype("float32")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [want] = session.run(None, {"x": x})
    machine = relaxish.relax.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), cpu())
    have = machine["main"](x).numpy()
    assert have.dtype == want.dtype == kind and have.shape == want.shape
    np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("dims", [[3, 5], ["n", 5], ["n", "m"]])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_sizes_have_the_type_that_they_are_cast_to(dims, kind):
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    _check([_NODE("Shape", ["x"], ["s"]), _NODE("Cast", ["s"], ["y"], to=to)], {}, kind, dims, (3, 5))
    nodes = [
        _NODE("Shape", ["x"], ["s"]),
        _NODE("Cast", ["s"], ["c"], to=to),
        _NODE("Gather", ["c", "place"], ["g"]),
        _NODE("Mul", ["g", "two"], ["y"]),
    ]
    _check(nodes, {"place": np.int64(1), "two": np.array(2, kind)}, kind, dims, (3, 5))


@pytest.mark.parametrize("dims", [[3, 2, 4], ["n", 2, 4]])
def test_choosing_sizes_by_a_table_broadcasts(dims):
    nodes = [
        _NODE("Shape", ["x"], ["s"]),
        _NODE("Neg", ["s"], ["t"]),
        _NODE("Where", ["mask", "s", "t"], ["y"]),
    ]
    mask = np.array([[True, False, True], [False, False, True]])
    _check(nodes, {"mask": mask}, "int64", dims, (3, 2, 4))
    _check(nodes, {"mask": mask[0]}, "int64", dims, (3, 2, 4))
