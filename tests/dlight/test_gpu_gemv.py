"""Matrix-vector rules on every kind of GPU: the scheduled programs against NumPy, and which programs a rule leaves."""

from __future__ import annotations

import numpy as np
import pytest
from programs.decoding import decoding_data, decoding_product
from programs.gpu import N, gemv, matmul, one_of_many

from relaxish import dlight, interp
from relaxish.target import Target

ADRENO = Target({"kind": "opencl", "device": "adreno"}, host="llvm -mtriple=aarch64-linux-android")
TARGETS = {
    "cuda": Target("nvidia/geforce-rtx-3090-ti"), "metal": Target("metal"), "rocm": Target("rocm"),
    "vulkan": Target({"kind": "vulkan", "max_shared_memory_per_block": 32768}), "adreno": ADRENO, "mali": Target({"kind": "opencl", "device": "mali"}),
    "opencl": Target("opencl"),
}  # fmt: skip
rng = np.random.default_rng(11)


def check(schedule, data, wanted):
    assert schedule is not None
    interp.run_prim_func(schedule.mod["main"], data)
    np.testing.assert_allclose(data[-1], wanted, rtol=2e-2, atol=0.2 if data[-1].dtype == np.float16 else 1e-3)


@pytest.mark.parametrize("name", TARGETS)
def test_gemv_on_every_target(name):
    func = gemv(96, 256, True)
    x, a = rng.standard_normal(256).astype("float32"), rng.standard_normal((96, 256)).astype("float32")
    schedule = dlight.gpu.GEMV().apply(func, TARGETS[name], False)
    check(schedule, [x, a, np.empty(96, "float32")], np.maximum(a @ x, 0))


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("name", ["cuda", "metal", "adreno"])
def test_decoding_along_rows(name, epilogue):
    func = decoding_product(None, 64, 256, True, epilogue)
    data, wanted = decoding_data(rng, 1, 64, 256, True)
    check(dlight.gpu.GEMV().apply(func, TARGETS[name], False), data, np.maximum(wanted, 0) if epilogue else wanted)


@pytest.mark.parametrize("rows, columns", [(128, 256), (256, 64)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_decoding_along_columns_on_adreno(rows, columns, epilogue):
    func = decoding_product(None, rows, columns, False, epilogue)
    data, wanted = decoding_data(rng, 1, rows, columns, False)
    check(dlight.gpu.GEMV().apply(func, ADRENO, False), data, np.maximum(wanted, 0) if epilogue else wanted)


@pytest.mark.parametrize("name", ["cuda", "metal", "rocm", "vulkan", "opencl"])
@pytest.mark.parametrize("bucket", [2, 4])
def test_low_batch(name, bucket):
    func = matmul(N, 64, 256, transposed=True)
    a, b = rng.standard_normal((7, 256)).astype("float32"), rng.standard_normal((64, 256)).astype("float32")
    schedule = dlight.gpu.LowBatchGEMV(bucket).apply(func, TARGETS[name], False)
    check(schedule, [a, b, np.empty((7, 64), "float32")], a @ b.T)


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("name", ["cuda", "metal"])
@pytest.mark.parametrize("along_rows", [False, True])
def test_low_batch_decoding(name, along_rows, epilogue):
    func = decoding_product(N, 128, 256, along_rows, epilogue)
    data, wanted = decoding_data(rng, 5, 128, 256, along_rows)
    schedule = dlight.gpu.LowBatchGEMV(4).apply(func, TARGETS[name], False)
    check(schedule, data, np.maximum(wanted, 0) if epilogue else wanted)


@pytest.mark.parametrize(
    "func",
    [matmul(16, 64, 256, True), matmul(N, 64, N, True), matmul(N, 64, 256), decoding_product(N, 64, 256, True)],
)
def test_what_low_batch_leaves(func):
    """A known batch, two unknown sides, a matrix read along its columns without decoding; decoding is taken."""
    taken = dlight.gpu.LowBatchGEMV(4).apply(func, TARGETS["cuda"], False)
    assert (taken is not None) == ("dequantize" in func.script())


def test_threads_of_a_known_product():
    schedule = dlight.gpu.GEMV().apply(gemv(4096, 1024), TARGETS["cuda"], False)
    text = schedule.mod["main"].script()
    assert 'T.thread_binding(T.int64(16), thread="threadIdx.y")' in text
    assert 'T.thread_binding(T.int64(32), thread="threadIdx.x")' in text


@pytest.mark.parametrize("name", ["cuda", "metal"])
def test_product_inside_of_a_block(name):
    """A block that has a row of thread blocks to itself keeps it; the product inside goes into columns and threads."""
    x, w = rng.standard_normal((1, 128)).astype("float32"), rng.standard_normal((5, 32, 128)).astype("float32")
    chosen = np.array([3, 1], "int32")
    schedule = dlight.gpu.GEMV().apply(one_of_many("blockIdx.y"), TARGETS[name], False)
    check(schedule, [x, w, chosen, np.empty((2, 32), "float32")], (w[chosen] @ x[0]))
    assert [loop.thread_binding.thread_tag for loop in _outer_loops(schedule)] == ["blockIdx.y"]


def _outer_loops(schedule):
    return [schedule.get(loop) for loop in schedule.get_loops(schedule.get_block("one"))]


def test_blocks_that_the_rule_does_not_enter():
    """Inside of ``blockIdx.x`` there is no place for the rule's own columns, in no threads at all it would be serial."""
    assert dlight.gpu.GEMV().apply(one_of_many("blockIdx.x"), TARGETS["cuda"], False) is None
    assert dlight.gpu.GEMV().apply(one_of_many(None), TARGETS["cuda"], False) is None


def test_a_word_of_one_vector_is_one_loop():
    """A loop as short as the vector is not split."""
    func = decoding_product(None, 128, 256, False, False)
    text = dlight.gpu.GEMV().apply(func, ADRENO, False).mod["main"].script()
    assert "T.vectorized(T.int64(8))" in text
    assert "fused_1_0_init in range(T.int64(1))" not in text and "fused_1_0 in range(T.int64(1))" not in text
