"""The models shipped with the onnx package: shipped and random weights, against the shipped outputs and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_MODELS = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()
_SOME_SLOW = [n if n == "squeezenet" else pytest.param(n, marks=pytest.mark.slow) for n in _MODELS]


def load(name: str) -> Any:
    return onnx.load(str(_FOLDER / f"light_{name}.onnx"))


def with_random_weights(model: Any) -> Any:
    """Weights made by ConstantOfShape become random ones that keep the scale of the activations."""
    rng = np.random.default_rng(3)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(v) for v in shapes[node.input[0]]]
        fan = int(np.prod(shape[1:]))
        data = rng.uniform(-1, 1, shape) * (3.0 / fan) ** 0.5 if len(shape) > 1 else rng.uniform(0.5, 1.5, shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data.astype("float32"), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def run_both(model: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What we compute, and what ONNX Runtime does."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {session.get_inputs()[0].name: x})[0]
    vm = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())
    return vm["main"](relaxish.nd.array(x)).numpy(), want


def input_of(model: Any) -> np.ndarray:
    weights = {t.name for t in model.graph.initializer}
    (entry,) = [v for v in model.graph.input if v.name not in weights]
    shape = [d.dim_value for d in entry.type.tensor_type.shape.dim]
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def close(got: np.ndarray, want: np.ndarray) -> None:
    scale = float(np.abs(want).max())
    assert np.isfinite(want).all() and scale > 0
    assert got.shape == want.shape and got.dtype == want.dtype
    assert float(np.abs(got - want).max()) <= 1e-4 * scale


@pytest.mark.parametrize("name", _MODELS)
def test_import(name: str) -> None:
    module = from_onnx(load(name))
    assert int(module["main"].attrs["num_input"]) == 1


@pytest.mark.parametrize("name", _SOME_SLOW)
def test_random_weights_against_onnxruntime(name: str) -> None:
    model = with_random_weights(load(name))
    got, want = run_both(model, input_of(model))
    assert float(want.std()) > 1e-6, "the comparison says nothing if all outputs are alike"
    close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("name", _MODELS)
def test_shipped_weights_against_onnxruntime_and_the_shipped_output(name: str) -> None:
    model = load(name)
    close(*run_both(model, input_of(model)))
    # The shipped output belongs to an input of ones.
    x = np.ones_like(input_of(model))
    got, want = run_both(model, x)
    close(got, want)
    shipped = onnx.numpy_helper.to_array(onnx.load_tensor(str(_FOLDER / f"light_{name}_output_0.pb")))
    close(got.reshape(shipped.shape), shipped)


def test_all_gaps_in_one_error() -> None:
    nodes = [onnx.helper.make_node(f"Unheard{k}", ["x"], [f"y{k}"]) for k in range(2)]
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = onnx.helper.make_tensor_value_info("y1", onnx.TensorProto.FLOAT, [1])
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [info], [out]))
    with pytest.warns(UserWarning), pytest.raises(OpNotImplemented, match="Unheard0, Unheard1"):
        from_onnx(model)
