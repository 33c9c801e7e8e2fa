"""The libraries that relaxish is measured against, each as a function without arguments that runs a model once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["onnxruntime_run", "openvino_run"]

Run = Callable[[], Any]


def onnxruntime_run(path: Path, inputs: Sequence[np.ndarray], cores: int) -> Run:
    """A session of ONNX Runtime on ``cores`` threads."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = cores
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {given.name: array for given, array in zip(session.get_inputs(), inputs)}
    return lambda: session.run(None, feed)


def openvino_run(path: Path, inputs: Sequence[np.ndarray], cores: int) -> Run:
    """A request of OpenVINO on ``cores`` threads, in the precision of the model; ImportError without the package."""
    import openvino as ov

    core = ov.Core()
    options = {"INFERENCE_NUM_THREADS": cores, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(str(path)), "CPU", options)
    request = compiled.create_infer_request()
    arrays = [np.ascontiguousarray(array) for array in inputs]
    return lambda: request.infer(arrays)
