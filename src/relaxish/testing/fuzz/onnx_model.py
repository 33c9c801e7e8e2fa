"""ONNX models, inputs and reference results of random graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from .onnx_graphs import Array, Dim, Graph, Value

if TYPE_CHECKING:
    import onnx

__all__ = ["draw_inputs", "exact_outputs", "other_sizes", "peer_outputs", "to_model"]


def _declared(dim: Dim, sizes: Mapping[str, int], dynamic: bool) -> int | str:
    if not dynamic or dim.fixed:
        return dim.value(sizes)
    return " + ".join([f"{f}*{n}" if f != 1 else n for n, f in dim.terms] + ([str(dim.const)] if dim.const else []))


def to_model(graph: Graph, outputs: Sequence[Value], *, dynamic: bool, double: bool = False) -> onnx.ModelProto:
    """The ``onnx.ModelProto`` of a graph; ``double`` computes all floats in 64 bits."""
    from onnx import helper, numpy_helper

    def elem(dtype: str) -> int:
        wide = "float64" if double and dtype == "float32" else dtype
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(wide)))

    def info(name: str, dtype: str, shape: Sequence[Dim]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, elem(dtype), [_declared(d, graph.sizes, dynamic) for d in shape])

    nodes = []
    onnx_half = helper.np_dtype_to_tensor_dtype(np.dtype("float16"))
    for op, read, written, attrs in graph.nodes:
        kept = dict(attrs)
        if op == "Cast" and kept["to"] != onnx_half:
            kept["to"] = elem(str(helper.tensor_dtype_to_np_dtype(kept["to"])))
        nodes.append(helper.make_node(op, read, written, name=written[0], **kept))
    weights = []
    for name, array in graph.initializers.items():
        wide = array.astype("float64") if double and array.dtype == np.float32 else array
        weights.append(numpy_helper.from_array(np.ascontiguousarray(wide).reshape(array.shape), name))
    made = helper.make_graph(
        nodes,
        f"graph_{graph.number}",
        [info(i.name, i.dtype, i.shape) for i in graph.inputs],
        [helper.make_tensor_value_info(o.name, elem(o.dtype), None) for o in outputs],
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=8)


_INTEGER_RANGES = {"int64": (-3, 4), "int32": (-3, 4), "int8": (-3, 4), "uint8": (0, 5), "bool": (0, 2)}
_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], "float32")


def draw_inputs(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Random inputs for given sizes; one in seven graphs gets NaN, infinities and signed zeros among them."""
    rng = np.random.default_rng([graph.number, seed])
    drawn = {}
    for given in graph.inputs:
        shape = [d.value(sizes) for d in given.shape]
        if given.dtype == "float32":
            if given.kind == "whole":
                values = rng.integers(-4, 5, shape).astype("float32")
            else:
                values = np.clip(rng.standard_normal(shape), -4, 4).astype("float32")
            if graph.special and given.kind == "real":
                values = np.where(rng.random(shape) < 0.1, rng.choice(_SPECIAL, shape), values).astype("float32")
        else:
            values = rng.integers(*_INTEGER_RANGES[given.dtype], shape).astype(given.dtype)
        drawn[given.name] = np.ascontiguousarray(values).reshape(shape)
    return drawn


def other_sizes(graph: Graph, seed: int) -> dict[str, int]:
    """Other values of the named sizes, for a model of dynamic shapes; empty dimensions stay empty."""
    rng = np.random.default_rng([graph.number, 77, seed])
    return {n: 0 if s == 0 else max(1, s + int(rng.integers(-1, 4))) for n, s in graph.sizes.items()}


def peer_outputs(model: Any, inputs: Mapping[str, Array]) -> list[Array] | None:
    """ONNX Runtime's results without graph rewrites, None if it refuses the model or its inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found: list[Array] = session.run(None, dict(inputs))
    except Exception:  # a refusal may have any class
        return None
    return found


def exact_outputs(model: Any, inputs: Mapping[str, Array]) -> list[Array] | None:
    """Results in 64-bit floats by ONNX's own reference, None if it cannot run the model."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc]
        """Inference, as every version of the operator means it; the reference of some takes statistics of its input."""

        op_domain = ""

        def _run(self, x: Array, *params: Array, epsilon: float = 1e-5, **_: Any) -> tuple[Array]:
            scale, bias, mean, variance = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in params)
            return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)

    wide = {n: a.astype("float64") if a.dtype == np.float32 else a for n, a in inputs.items()}
    try:
        with np.errstate(all="ignore"):
            found: list[Array] = ReferenceEvaluator(model, new_ops=[BatchNormalization]).run(None, wide)
    except Exception:  # a refusal may have any class
        return None
    return [np.asarray(f) for f in found]
