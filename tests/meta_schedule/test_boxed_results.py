"""What scripts take out of records, features and messages."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from relaxish import meta_schedule as ms
from relaxish import tir
from relaxish.ir import IRModule
from relaxish.runtime import NDArray
from relaxish.script import tir as T
from relaxish.target import Target


@T.prim_func
def add(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)


def test_times_of_records_are_numbers_in_boxes() -> None:
    trace = tir.Schedule(add).trace
    assert trace is not None
    record = ms.database.TuningRecord(trace, ms.database.Workload(IRModule({"main": add})), [0.5, 2], Target("llvm"))
    assert record.run_secs == [0.5, 2.0] and [s.value for s in record.run_secs] == [0.5, 2.0]
    assert json.dumps(record.as_json()[1]) == "[0.5, 2.0]"


@pytest.mark.parametrize("kind", ["per-store-feature", "random"])
def test_features_are_arrays(kind: str) -> None:
    extractor = ms.feature_extractor.FeatureExtractor.create(kind)
    context = ms.TuneContext(add, target="llvm")
    candidate = ms.MeasureCandidate(tir.Schedule(add), [])
    (found,) = extractor.extract_from(context, [candidate])
    assert isinstance(found, NDArray) and found.numpy().ndim == 2
    model = ms.cost_model.XGBModel(num_warmup_samples=1, extractor=extractor)
    assert np.isfinite(model.predict(context, [candidate])).all()


def _fail(*_: Any) -> Any:
    raise ValueError("this cannot be built")


def _sleep(*_: Any) -> Any:
    time.sleep(60)


def test_messages_say_what_happened() -> None:
    given = [ms.builder.BuilderInput(IRModule({"main": add}), Target("llvm"))]
    failed = ms.builder.LocalBuilder(f_build=_fail).build(given)[0].error_msg
    assert failed is not None
    assert failed.startswith("LocalBuilder: An exception occurred\n") and "this cannot be built" in failed
    late = ms.builder.LocalBuilder(timeout_sec=1, f_build=_sleep).build(given)[0].error_msg
    assert late is not None and late.startswith("LocalBuilder: Timeout, killed after")


def test_programs_of_dot_products_are_those_registered() -> None:
    from relaxish.ir import assert_structural_equal
    from relaxish.tir.tensor_intrin import x86

    found = tir.TensorIntrin.get(x86.VNNI_DOT_16x4_INTRIN)
    assert_structural_equal(x86.dot_product_16x4_u8i8i32_desc, found.desc)
    assert_structural_equal(x86.dot_product_16x4_u8i8i32_vnni, found.impl)
    with pytest.raises(AttributeError):
        _ = x86.dot_product_of_nothing
