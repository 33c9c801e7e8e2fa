"""Models whose weights stay parameters: what only decides an operator's form is read at import time all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

RANDOM = np.random.default_rng(61)
X = RANDOM.standard_normal((2, 3, 4)).astype("float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def node(kind: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attrs: Any) -> Any:
    return helper.make_node(kind, list(inputs), list(outputs), **attrs)


# Nodes, initializers, and how many of these are parameters after import.
CASES: dict[str, tuple[list[Any], dict[str, np.ndarray], int]] = {
    "unsqueeze": ([node("Unsqueeze", "x", "a")], {"a": ints(0)}, 0),
    "slice": ([node("Slice", "x", "s", "e", "a")], {"s": ints(1), "e": ints(3), "a": ints(1)}, 0),
    "pad": ([node("Pad", "x", "p")], {"p": ints(0, 1, 0, 0, 2, 1)}, 0),
    "tile": ([node("Tile", "x", "r")], {"r": ints(1, 2, 3)}, 0),
    "resize": (
        [node("Unsqueeze", "x", "a", outputs=("u",)), node("Resize", "u", "", "s")],
        {"a": ints(0), "s": np.array([1, 1, 2, 2], "float32")},
        0,
    ),
    "cumsum": ([node("CumSum", "x", "a")], {"a": np.array(1, "int64")}, 0),
    "topk": ([node("TopK", "x", "k", outputs=("y", "z"))], {"k": ints(2)}, 0),
    "reduce": ([node("ReduceSum", "x", "a")], {"a": ints(1)}, 0),
    "split": ([node("Split", "x", "s", outputs=("y", "z"), axis=1)], {"s": ints(1, 2)}, 0),
    "compress": ([node("Compress", "x", "c", axis=1)], {"c": np.array([True, False, True])}, 0),
    "reshape": ([node("Reshape", "x", "s")], {"s": ints(6, 4)}, 0),
    "expand": ([node("Expand", "x", "s")], {"s": ints(5, 2, 3, 4)}, 0),
    "range": (
        [node("Range", "a", "b", "c", outputs=("r",)), node("Add", "x", "r")],
        {"a": np.array(0, "float32"), "b": np.array(4, "float32"), "c": np.array(1, "float32")},
        0,
    ),
    "filled": (
        [node("ConstantOfShape", "s", outputs=("c",)), node("Add", "x", "c")],
        {"s": ints(2, 3, 4)},
        0,
    ),
    "product": ([node("MatMul", "x", "w")], {"w": RANDOM.standard_normal((4, 5)).astype("float32")}, 1),
    # Used as numbers first, then as a shape: the parameter stays for the numbers.
    "both": (
        [
            node("Cast", "s", outputs=("f",), to=1),
            node("Reshape", "x", "s", outputs=("r",)),
            node("Mul", "r", "f"),
        ],
        {"s": ints(4, 2, 3)},
        1,
    ),
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_settings_are_constants(name: str, keep: bool) -> None:
    nodes, weights, count = CASES[name]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", 1, X.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        initializer=[numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (expected, *_) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    mod = relax.frontend.onnx.from_onnx(model, keep_params_in_input=keep)
    mod, params = relax.frontend.detach_params(mod)
    arrays = params.get("main", [])
    assert len(arrays) == len(mod["main"].params) - 1 == (count if keep else 0)
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(X), *arrays)
    first = got[0] if isinstance(got, list | tuple) else got
    np.testing.assert_allclose(first.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_weights_are_neither_copied_nor_hashed() -> None:
    """The bytes that the import takes beside the model are those of the weights, once."""
    import tracemalloc

    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((1024, 1024)).astype("float32") for _ in range(4)]
    nodes, last = [], "x"
    for k in range(4):
        nodes.append(onnx.helper.make_node("MatMul", [last, f"w{k}"], [f"y{k}"]))
        last = f"y{k}"
    ends = [onnx.helper.make_tensor_value_info(n, 1, [1, 1024]) for n in ("x", last)]
    inits = [onnx.numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    size = sum(w.nbytes for w in weights)
    relax.frontend.onnx.from_onnx(model)  # what is loaded once does not count
    tracemalloc.start()
    try:
        module = relax.frontend.onnx.from_onnx(model)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * size, (peak, size)
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    x = rng.standard_normal((1, 1024)).astype("float32")
    want = x
    for w in weights:
        want = want @ w
    have = vm["main"](relaxish.nd.array(x)).numpy()
    np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-3 * float(np.abs(want).max()))
