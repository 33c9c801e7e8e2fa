"""Optionals, and sequences that branches give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402
from onnx_node import ours  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

#: What is tested here.
OPTIONAL = {"Optional", "OptionalGetElement", "OptionalHasElement"}

_rng = np.random.default_rng(43)
X = _rng.standard_normal((3, 4)).astype("float32")


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def agree(model: onnx.ModelProto, **feeds: np.ndarray) -> None:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for have, want in zip(ours(model, feeds), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def tensor(name: str, kind: int = 1, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.filterwarnings("ignore")
def test_optionals_with_and_without_a_value() -> None:
    kind = helper.make_tensor_type_proto(1, [3, 4])
    nodes = [
        helper.make_node("Optional", ["x"], ["full"]),
        helper.make_node("Optional", [], ["none"], type=kind),
        helper.make_node("OptionalGetElement", ["full"], ["value"]),
        helper.make_node("Relu", ["value"], ["y"]),
        helper.make_node("OptionalHasElement", ["full"], ["yes"]),
        helper.make_node("OptionalHasElement", ["none"], ["no"]),
    ]
    outputs = [tensor("y", 1, [3, 4]), tensor("yes", 9, []), tensor("no", 9, [])]
    agree(model_of(nodes, [tensor("x", 1, [3, 4])], outputs), x=X)


def branching(lengths: tuple[int, int]) -> onnx.ModelProto:
    """A model whose condition, an input, decides between sequences of these lengths."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    graphs = []
    for name, operator, length in zip("ab", ("Relu", "Neg"), lengths):
        nodes = [helper.make_node(operator, ["x"], [f"{name}0"])]
        nodes += [helper.make_node("Add", [f"{name}{k}", "x"], [f"{name}{k + 1}"]) for k in range(length - 1)]
        nodes.append(helper.make_node("SequenceConstruct", [f"{name}{k}" for k in range(length)], [f"{name}s"]))
        graphs.append(helper.make_graph(nodes, name, [], [helper.make_value_info(f"{name}s", kind)]))
    nodes = [
        helper.make_node("If", ["c"], ["s"], then_branch=graphs[0], else_branch=graphs[1]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    return model_of(nodes, [tensor("c", 9, []), tensor("x", 1, ["n", 4])], [tensor("y")])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("taken", [True, False])
def test_sequences_of_branches(taken: bool) -> None:
    agree(branching((3, 3)), c=np.array(taken), x=X)


@pytest.mark.filterwarnings("ignore")
def test_sequences_of_other_lengths_are_an_error() -> None:
    with pytest.raises(OpNotImplemented, match="different lengths"):
        from_onnx(branching((3, 2)))


@pytest.mark.filterwarnings("ignore")
def test_strings_are_an_error() -> None:
    nodes = [helper.make_node("Equal", ["x", "x"], ["y"])]
    with pytest.raises(OpNotImplemented, match="strings are not supported"):
        from_onnx(model_of(nodes, [tensor("x", 8, [3])], [tensor("y", 9, [3])]))
    with pytest.raises(OpNotImplemented, match="StringConcat"):
        from_onnx(
            model_of([helper.make_node("StringConcat", ["x", "x"], ["y"])], [tensor("x", 8, [3])], [tensor("y", 8)])
        )
