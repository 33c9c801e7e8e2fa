"""ONNX operators that take indices from data: negative ones count from the end, those outside are errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.testing.fuzz.child import in_child  # noqa: E402

X = (5, 4)
# name: (shape of the indices, shape of the updates, the size indices stay below, attributes)
OPERATORS: dict[str, tuple[Any, ...]] = {
    "Gather": ((3,), None, 5, {"axis": 0}),
    "GatherElements": ((5, 3), None, 4, {"axis": 1}),
    "GatherND": ((3, 2), None, 4, {}),
    "ScatterElements": ((5, 2), (5, 2), 4, {"axis": 1}),
    "ScatterND": ((3, 1), (3, 4), 5, {}),
}


def _model(name: str, dynamic: bool) -> Any:
    index, update, _, attributes = OPERATORS[name]
    rows: Any = "n" if dynamic and name not in ("GatherElements", "ScatterElements") else X[0]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, X[1]]),
        helper.make_tensor_value_info("i", TensorProto.INT64, list(index)),
    ]
    if update is not None:
        inputs.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, list(update)))
    node = helper.make_node(name, [v.name for v in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], name, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _arguments(name: str, seed: int) -> list[np.ndarray]:
    index, update, size, _ = OPERATORS[name]
    rng = np.random.default_rng(seed)
    picks = rng.permuted(np.tile(np.arange(size), (index[0], 1)), axis=1)
    made = picks[:, : index[1]] if name == "ScatterElements" else rng.permutation(size)[:3].reshape(-1, 1)
    if update is None:
        made = rng.integers(0, size, index)
    made = np.where(
        rng.random(index) < 0.5, made.reshape(index) - (size if name != "GatherND" else 4), made.reshape(index)
    )
    args = [rng.standard_normal(X).astype("float32"), made.astype("int64")]
    return args if update is None else [*args, rng.standard_normal(update).astype("float32")]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_from_the_end_or_an_error(name: str, dynamic: bool) -> None:
    def work() -> list[str]:
        model = _model(name, dynamic)
        size = OPERATORS[name][2]
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        run = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())["main"]
        wrong = []
        for seed in range(4):
            args = _arguments(name, seed)
            if name == "GatherND":
                args[1] = np.where(args[1] < 0, args[1] + 4, args[1]) - np.array([5, 4]) * (args[1] < 0)
            named = dict(zip("xiu", args, strict=False))
            got, want = run(*args), session.run(None, named)[0]
            got = (got[0] if isinstance(got, (tuple, list)) else got).numpy()
            if not np.array_equal(got, want):
                wrong.append(f"seed {seed}")
        args = _arguments(name, 0)
        for value in (size + 1, -size - 2, 10**8, -(10**7), 2**31, -(2**63), 2**63 - 1, 2**62, 2**61 + 1):
            bad = [args[0], args[1].copy(), *args[2:]]
            bad[1].flat[1] = value
            try:
                run(*bad)
                wrong.append(f"nothing said of {value}")
            except IndexError as err:
                if "out of bounds" not in str(err):
                    wrong.append(f"{value}: {err}")
        return wrong

    assert in_child(work, 300) == []
