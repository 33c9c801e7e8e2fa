"""Linear models, trees and what goes before them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx_node import ours  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.support.errors import OpNotImplemented  # noqa: E402

#: What is tested here.
CLASSIC = (
    "ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier",
    "LinearRegressor", "Normalizer", "OneHotEncoder", "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
)  # fmt: skip

_rng = np.random.default_rng(41)


def model_of(op: str, kinds: list[int], width: int | None, inputs: int = 1, **attrs: Any) -> onnx.ModelProto:
    helper = onnx.helper
    names = [f"x{k}" for k in range(inputs)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(len(kinds))], domain="ai.onnx.ml", **attrs)
    made = [helper.make_tensor_value_info(n, 1, ["rows", width]) for n in names]
    outs = [helper.make_tensor_value_info(f"y{k}", kind, None) for k, kind in enumerate(kinds)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", made, outs), opset_imports=opsets, ir_version=8)


def agree(model: onnx.ModelProto, *given: np.ndarray) -> None:
    feeds = {f"x{k}": x for k, x in enumerate(given)}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for have, want in zip(ours(model, feeds), session.run(None, feeds), strict=True):
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


class Trees:
    """Random trees as the attributes of a node."""

    MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")

    def __init__(self, trees: int, depth: int, width: int, mixed: bool = True) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.leaves: list[tuple[int, int]] = []
        for tree in range(trees):
            self.count = 0
            self.grow(tree, depth, width, mixed)

    def grow(self, tree: int, depth: int, width: int, mixed: bool) -> int:
        own, self.count = self.count, self.count + 1
        row = len(self.rows)
        self.rows.append(())
        if depth == 0 or (_rng.uniform() < 0.2 and own):
            self.rows[row] = (tree, own, 0, "LEAF", 0.0, 0, 0)
            self.leaves.append((tree, own))
            return own
        yes, no = self.grow(tree, depth - 1, width, mixed), self.grow(tree, depth - 1, width, mixed)
        mode = str(_rng.choice(self.MODES)) if mixed else "BRANCH_LEQ"
        self.rows[row] = (
            tree,
            own,
            int(_rng.integers(width)),
            mode,
            float(np.round(_rng.standard_normal(), 1)),
            yes,
            no,
        )
        return own

    def attrs(self, prefix: str, results: int, only: int | None = None, positive: bool = False) -> dict[str, Any]:
        names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
        made: dict[str, Any] = {f"nodes_{n}": [r[k] for r in self.rows] for k, n in enumerate(names)}
        # Every leaf has a weight for every result: what is said of others differs between implementations.
        pairs = [(leaf, target) for leaf in self.leaves for target in ([only] if only is not None else range(results))]
        weights = _rng.uniform(0, 0.2, len(pairs)) if positive else _rng.standard_normal(len(pairs))
        return made | {
            f"{prefix}_treeids": [t for (t, _), _ in pairs],
            f"{prefix}_nodeids": [n for (_, n), _ in pairs],
            f"{prefix}_ids": [target for _, target in pairs],
            f"{prefix}_weights": [float(w) for w in weights],
        }


@pytest.mark.parametrize("how", ["SUM", "AVERAGE"])
@pytest.mark.parametrize("mixed", [False, True])
def test_regression_by_trees(how: str, mixed: bool) -> None:
    trees = Trees(7, 5, 6, mixed)
    attrs = trees.attrs("target", 3) | {"n_targets": 3, "aggregate_function": how, "base_values": [0.1, -0.2, 0.3]}
    x = np.round(f(40, 6), 1)  # many a value is a node's
    agree(model_of("TreeEnsembleRegressor", [1], 6, **attrs), x)


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_classes_by_trees(how: str) -> None:
    attrs = Trees(5, 4, 6).attrs("class", 3) | {"classlabels_int64s": [4, 7, 9], "post_transform": how}
    agree(model_of("TreeEnsembleClassifier", [7, 1], 6, **attrs), f(40, 6))


@pytest.mark.parametrize(("how", "positive"), [("NONE", True), ("LOGISTIC", False), ("NONE", False)])
def test_two_classes_by_trees(how: str, positive: bool) -> None:
    attrs = Trees(5, 4, 6).attrs("class", 1, only=0, positive=positive)
    attrs |= {"classlabels_int64s": [3, 8], "post_transform": how}
    agree(model_of("TreeEnsembleClassifier", [7, 1], 6, **attrs), f(40, 6))


def test_linear_models() -> None:
    weights, bias = [float(v) for v in f(12)], [0.5, -0.25, 0.75]
    agree(model_of("LinearRegressor", [1], 4, coefficients=weights, intercepts=bias, targets=3), f(9, 4))
    for how in ("NONE", "SOFTMAX", "LOGISTIC"):
        attrs = {"coefficients": weights, "intercepts": bias, "classlabels_ints": [5, 2, 8], "post_transform": how}
        agree(model_of("LinearClassifier", [7, 1], 4, **attrs), f(9, 4))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_what_goes_before(norm: str) -> None:
    agree(model_of("Normalizer", [1], 4, norm=norm), np.abs(f(5, 4)))
    agree(model_of("Scaler", [1], 4, offset=[1.0, 2.0, 0.5, -1.0], scale=[0.5, 2.0, 1.0, 3.0]), f(5, 4))
    agree(model_of("Binarizer", [1], 4, threshold=0.3), f(5, 4))
    holes = f(5, 4)
    holes[1, 2] = holes[3, 0] = np.nan
    filled = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    agree(model_of("Imputer", [1], 4, **filled), holes)


def test_names_are_an_error() -> None:
    attrs = Trees(1, 2, 3).attrs("class", 2) | {"classlabels_strings": ["a", "b"]}
    with pytest.raises(OpNotImplemented, match="named by strings"):
        from_onnx(model_of("TreeEnsembleClassifier", [8, 1], 3, **attrs))


def of_kinds(op: str, given: list[np.ndarray], out: int, **attrs: Any) -> onnx.ModelProto:
    """A model of one node whose inputs have these types."""
    helper = onnx.helper
    names = [f"x{k}" for k in range(len(given))]
    made = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, given)
    ]
    node = helper.make_node(op, names, ["y0"], domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "g", made, [helper.make_tensor_value_info("y0", out, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_features_and_labels() -> None:
    x, y = f(5, 4), f(5, 3)
    places = np.array([2, 0, 2])
    agree(of_kinds("ArrayFeatureExtractor", [x, places], 1), x, places)
    agree(of_kinds("FeatureVectorizer", [x, y], 1, inputdimensions=[4, 3]), x, y)
    numbers = _rng.integers(0, 6, (7,))
    agree(of_kinds("OneHotEncoder", [numbers], 1, cats_int64s=[0, 2, 4, 5], zeros=1), numbers)
    keys, values = [4, 1, 2, 9], [1.5, -2.0, 0.25, 3.0]
    numbers = _rng.integers(0, 10, (12,))
    encoder = of_kinds("LabelEncoder", [numbers], 1, keys_int64s=keys, values_floats=values, default_float=7.5)
    agree(encoder, numbers)
    back = np.array(values + [99.0], "float32")
    agree(of_kinds("LabelEncoder", [back], 7, keys_floats=values, values_int64s=keys, default_int64=-4), back)
