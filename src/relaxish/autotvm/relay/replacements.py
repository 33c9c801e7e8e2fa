"""Replacements for names of Relay that have no counterpart of the same form."""

from __future__ import annotations

__all__ = ["instead", "missing"]

_TABLE = {
    "relay.nn": "use relaxish.relax.op.nn: relax.op.nn.conv2d(...)",
    "relay.testing": "build a network with relaxish.relax.frontend.nn, or import one (from_onnx, from_exported_program)",
    "relay.vm": "use relaxish.build(mod, target) and relaxish.VirtualMachine(lib, device)",
    "relay.create_executor": "use relaxish.build(mod, target) and relaxish.VirtualMachine(lib, device)",
    "relay.quantize": "quantise the model before it is imported; QDQ operators of ONNX are understood",
    "relay.TensorType": "use relaxish.relax.TensorStructInfo(shape, dtype)",
    "relay.frontend.from_pytorch": (
        "use relaxish.relax.frontend.torch.from_exported_program(torch.export.export(model, args))"
    ),
    "relay.frontend.from_tflite": "convert the model to ONNX (tf2onnx) and use relay.frontend.from_onnx",
    "relay.frontend.from_tensorflow": "convert the model to ONNX (tf2onnx) and use relay.frontend.from_onnx",
    "relay.frontend.from_keras": "convert the model to ONNX (tf2onnx) and use relay.frontend.from_onnx",
    "relay.frontend.from_mxnet": "convert the model to ONNX and use relay.frontend.from_onnx",
    "relay.frontend.from_caffe2": "convert the model to ONNX and use relay.frontend.from_onnx",
}


def instead(name: str) -> str:
    """One line about a name that is not there."""
    advice = _TABLE.get(name, "write the program with relaxish.relax (BlockBuilder or TVMScript)")
    return f"{name} is not available, the graph level is Relax: {advice}"


def missing(name: str) -> Exception:
    """The error to raise for a name: an ImportError where scripts are known to import it, so that they show its text."""
    return (ImportError if name in _TABLE else AttributeError)(instead(name))
