"""The models shipped with the onnx package, against ONNX Runtime, with random weights."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

_FOLDER = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
_MODELS = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()


def with_random_weights(model: Any) -> Any:
    """Weights made by ConstantOfShape become random ones of sane scale."""
    rng = np.random.default_rng(3)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(v) for v in shapes[node.input[0]]]
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        data = rng.uniform(-1, 1, shape) * (3.0 / fan) ** 0.5 if len(shape) > 1 else rng.uniform(0.5, 1.5, shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data.astype("float32"), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def load(name: str) -> Any:
    return onnx.load(os.path.join(_FOLDER, f"light_{name}.onnx"))


@pytest.mark.parametrize("name", _MODELS)
def test_import(name: str) -> None:
    module = from_onnx(load(name))
    assert int(module["main"].attrs["num_input"]) == 1


@pytest.mark.parametrize("name", [n if n == "squeezenet" else pytest.param(n, marks=pytest.mark.slow) for n in _MODELS])
def test_against_onnxruntime(name: str) -> None:
    model = with_random_weights(load(name))
    module = from_onnx(model)
    shape = [int(d) for d in module["main"].params[0].struct_info.shape.values]
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {session.get_inputs()[0].name: x})[0]
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))


def test_all_gaps_in_one_error() -> None:
    nodes = [onnx.helper.make_node(f"Unheard{k}", ["x"], [f"y{k}"]) for k in range(2)]
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = onnx.helper.make_tensor_value_info("y1", onnx.TensorProto.FLOAT, [1])
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [info], [out]))
    with pytest.warns(UserWarning), pytest.raises(OpNotImplemented, match="Unheard0, Unheard1"):
        from_onnx(model)
