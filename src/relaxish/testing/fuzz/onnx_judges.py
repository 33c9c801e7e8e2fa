"""Running a case of one ONNX operator: ONNX Runtime and onnx.reference judge what a compiled model gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...support.errors import OpNotImplemented, RelaxishError
from ...support.sequences import as_list
from .onnx_operators import OperatorCase

__all__ = ["Verdict", "check_operator", "compiled_results", "difference", "judges"]

Arrays = list[Any]
_RTOL = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}
_ATOL = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-9}


@dataclass
class Verdict:
    """``status`` is right, wrong, refused (an error said the case is unsupported), illegal (no judge runs it, or
    both sides refuse it), or crashed (an error that is no refusal); ``reason`` says what was seen."""

    status: str
    reason: str = ""


def runtime_results(case: OperatorCase) -> Arrays:
    """Results of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        case.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, case.feeds()))


def reference_results(case: OperatorCase) -> Arrays:
    """Results of the standard's reference implementation."""
    import onnx.reference

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(onnx.reference.ReferenceEvaluator(case.model()).run(None, case.feeds()))


def judges(case: OperatorCase) -> list[Arrays]:
    """The results of every judge that runs the case, ONNX Runtime's first."""
    found: list[Arrays] = []
    for judge in (runtime_results, reference_results):
        try:
            found.append(judge(case))
        except Exception:  # whatever the judge raises, it has no opinion
            continue
    if len(found) == 2:
        found[1] = [_typed(value, like) for value, like in zip(found[1], found[0])]
    return found


def _typed(value: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The reference computes some integers in NumPy's own width: in that of the result, where overflow wraps."""
    value, kinds = np.asarray(value), {"i", "u"}
    width = getattr(getattr(like, "dtype", None), "kind", "")
    return value.astype(like.dtype) if value.dtype.kind in kinds and width in kinds else value


def compiled_results(case: OperatorCase, target: str = "llvm") -> Arrays:
    """Results of our compiled model."""
    from ...driver import build
    from ...frontend.onnx import from_onnx
    from ...runtime import VirtualMachine, cpu
    from ...runtime.arrays.ndarray import array

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = from_onnx(case.model())
    machine = VirtualMachine(build(module, target), cpu())
    feeds = case.feeds()
    got = machine["main"](*[array(feeds[p.name_hint]) for p in module["main"].params])
    return [_plain(g) for g in as_list(got)]


def _plain(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "numpy"):
        return value.numpy()
    return np.asarray(value) if isinstance(value, (int, float, bool)) else np.asarray(list(value), "int64")


def difference(got: Arrays, want: Arrays, case: OperatorCase) -> str:
    """Description of the difference, or an empty text."""
    if len(got) != len(want):
        return f"{len(got)} outputs instead of {len(want)}"
    for number, (have, expected) in enumerate(zip(got, want)):
        have, expected = np.asarray(have), np.asarray(expected)
        if have.shape != expected.shape:
            return f"output {number} has shape {have.shape} instead of {expected.shape}"
        if have.dtype != expected.dtype:
            return f"output {number} is {have.dtype} instead of {expected.dtype}"
        if not _same(have, expected, case):
            shown = [np.array2string(v, threshold=60, separator=",").replace("\n", "") for v in (have, expected)]
            return f"output {number} is {shown[0]} instead of {shown[1]}"
    return ""


def _same(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any], case: OperatorCase) -> bool:
    if have.dtype.kind != "f":
        return bool(np.array_equal(have, want))
    name = str(have.dtype)
    rtol = max(case.rtol or 0.0, _RTOL.get(name, 1e-2))
    atol = max(case.atol or 0.0, _ATOL.get(name, 1e-2))
    have, want = have.astype("float64"), want.astype("float64")
    nan = np.isnan(have) == np.isnan(want)
    infinite = np.isinf(have) | np.isinf(want)
    with np.errstate(all="ignore"):
        close = np.abs(have - want) <= atol + rtol * np.maximum(np.abs(have), np.abs(want))
    return bool(np.all(nan & (np.isnan(have) | np.where(infinite, have == want, close))))


def check_operator(case: OperatorCase, compiled: Callable[[OperatorCase], Arrays] = compiled_results) -> Verdict:
    """Compare our results with the judges': a case is wrong when no judge agrees with it."""
    opinions = judges(case)
    try:
        got = compiled(case)
    except (OpNotImplemented, NotImplementedError) as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    except Exception as error:  # the campaign goes on
        if not opinions:
            return Verdict("illegal", str(error))
        kind = "refused" if isinstance(error, RelaxishError) else "crashed"
        return Verdict(kind, f"{type(error).__name__}: {error}")
    if not opinions:
        return Verdict("illegal", "no judge runs it")
    found = [difference(got, want, case) for want in opinions]
    return Verdict("right") if not all(found) else Verdict("wrong", found[0])
