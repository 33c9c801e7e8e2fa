"""Models of one ONNX node, and what ONNX Runtime and relaxish make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import onnx.reference  # noqa: E402

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402

__all__ = ["Case", "ours", "reference"]


class Case:
    """One node: its inputs (constants are ``weights``), attributes, and the opset it is written for."""

    def __init__(
        self,
        op: str,
        inputs: list[Any],
        weights: list[int] | None = None,
        outputs: int = 1,
        opset: int = 18,
        domain: str = "",
        rtol: float = 1e-4,
        **attrs: Any,
    ) -> None:
        self.op, self.inputs, self.outputs, self.opset, self.attrs = op, inputs, outputs, opset, attrs
        self.weights = set(weights or ())
        self.domain, self.rtol = domain, rtol

    def model(self) -> Any:
        helper = onnx.helper
        names = [f"x{k}" if v is not None else "" for k, v in enumerate(self.inputs)]
        node = helper.make_node(
            self.op, names, [f"y{k}" for k in range(self.outputs)], domain=self.domain, **self.attrs
        )
        values = [(n, v) for n, v in zip(names, self.inputs) if v is not None]
        made = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, (n, v) in enumerate(values)
            if int(n[1:]) not in self.weights
        ]
        inits = [onnx.numpy_helper.from_array(v, n) for n, v in values if int(n[1:]) in self.weights]
        outs = [onnx.ValueInfoProto(name=f"y{k}") for k in range(self.outputs)]
        graph = helper.make_graph([node], "g", made, outs, inits)
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{k}": v for k, v in enumerate(self.inputs) if v is not None and k not in self.weights}


def reference(model: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
    try:
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception:  # ONNX Runtime lacks some type combinations; the reference has them
        return onnx.reference.ReferenceEvaluator(model).run(None, feeds)


def ours(model: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
    module = from_onnx(model)
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    args = [relaxish.nd.array(feeds[p.name_hint]) for p in module["main"].params]
    got = vm["main"](*args)
    return [g.numpy() for g in got] if isinstance(got, (tuple, list)) else [got.numpy()]
