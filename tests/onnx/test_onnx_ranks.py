"""An If whose branches give tensors of different ranks: the rest of the graph says which one is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import onnx, reference

import relaxish
from relaxish.frontend.onnx import from_onnx
from relaxish.support.errors import OpNotImplemented, RelaxishError

_rng = np.random.default_rng(71)
helper = onnx.helper


def _float(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _squeezing(rest: list[Any], weights: dict[str, np.ndarray], outputs: list[str]) -> Any:
    """A model that drops its last axis if that has one element, and goes on with ``rest`` from "maybe"."""
    numbers = {"last": np.array([-1]), "one": np.array([1]), **weights}
    then = helper.make_graph(
        [helper.make_node("Squeeze", ["y", "last"], ["less"])], "then", [], [onnx.ValueInfoProto(name="less")]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["same"])], "other", [], [onnx.ValueInfoProto(name="same")]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Shape", ["y"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "last"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["single"]),
        helper.make_node("If", ["single"], ["maybe"], then_branch=then, else_branch=other),
        *rest,
    ]
    graph = helper.make_graph(
        nodes, "g", [_float("x", ["n", 8, "t"])], [onnx.ValueInfoProto(name=o) for o in outputs],
        [onnx.numpy_helper.from_array(v, k) for k, v in numbers.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _run(model: Any, x: np.ndarray) -> list[np.ndarray]:
    vm = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x))
    return [g.numpy() for g in got] if isinstance(got, (tuple, list)) else [got.numpy()]


def _lstm() -> Any:
    """As silero's voice detector: the squeezed rows are one step of an LSTM, and its state is used after that."""
    weights = {
        "w": _rng.standard_normal((1, 64, 8)).astype("float32"),
        "r": _rng.standard_normal((1, 64, 16)).astype("float32"),
        "zero": np.array([0]),
    }
    rest = [
        helper.make_node("Unsqueeze", ["maybe", "zero"], ["step"]),
        helper.make_node("LSTM", ["step", "w", "r"], ["all", "h", "c"], hidden_size=16),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("Mul", ["a", "c"], ["b"]),
    ]
    return _squeezing(rest, weights, ["b", "c"])


def test_the_rank_that_fits_is_taken_and_checked() -> None:
    model = _lstm()
    for batch in (1, 3):
        x = _rng.standard_normal((batch, 8, 1)).astype("float32")
        for got, want in zip(_run(model, x), reference(model, {"x": x}), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    with pytest.raises(RelaxishError, match="condition is False"):
        _run(model, _rng.standard_normal((2, 8, 3)).astype("float32"))


def test_either_rank_is_an_error_that_names_the_branches() -> None:
    model = _squeezing([helper.make_node("Neg", ["maybe"], ["out"])], {}, ["out"])
    with pytest.raises(OpNotImplemented, match=r"branches of 'maybe'.*different ranks"):
        from_onnx(model)
    x = _rng.standard_normal((2, 8, 3)).astype("float32")
    module = from_onnx(model, shape_dict={"x": [2, 8, 3]})
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    np.testing.assert_allclose(vm["main"](relaxish.nd.array(x)).numpy(), -np.maximum(x, 0))


def test_a_required_value_keeps_its_memory() -> None:
    """The checked value is the memory of the value before: nothing else may be put there while it is used."""
    weights = {f"w{k}": _rng.standard_normal((8, 8)).astype("float32") for k in range(3)}
    rest = [
        helper.make_node("Gemm", ["maybe", "w0"], ["a"]),
        helper.make_node("Gemm", ["a", "w1"], ["b"]),
        helper.make_node("Gemm", ["b", "w2"], ["c"]),
        helper.make_node("Sub", ["c", "maybe"], ["out"]),
        helper.make_node("Reshape", ["out", "flat"], ["whole"]),
    ]
    shape = {"flat": np.array([-1, 8])}
    lstm = {"w": _rng.standard_normal((1, 32, 8)).astype("float32"), "r": np.zeros((1, 32, 8), "float32")}
    rest += [
        helper.make_node("Unsqueeze", ["maybe", "zero"], ["step"]),  # an LSTM takes three axes only
        helper.make_node("LSTM", ["step", "w", "r"], ["", "h"], hidden_size=8),
        helper.make_node("Add", ["whole", "h"], ["sum"]),
    ]
    model = _squeezing(rest, {**weights, **shape, **lstm, "zero": np.array([0])}, ["sum"])
    x = _rng.standard_normal((5, 8, 1)).astype("float32")
    np.testing.assert_allclose(_run(model, x)[0], reference(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
