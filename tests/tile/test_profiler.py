"""Inputs, times and comparisons of kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tile_kernels import dynamic_add, scaled_add

from relaxish import tile
from relaxish.tile.jit.kernel import KernelParam
from relaxish.tile.profiler import TensorSupplyType, do_bench, get_tensor_supply, supply_arrays
from relaxish.tile.profiler.compare import difference

TARGET = "llvm -num-cores=1"
S = TensorSupplyType


@pytest.fixture(scope="module")
def kernel():
    return tile.compile(scaled_add(64), out_idx=-1, target=TARGET)


def drawn(kind, dtype, n=4000):
    (array,) = supply_arrays([KernelParam(dtype, (n,))], kind)
    return array


def test_numbers_of_the_words_are_the_fields():
    assert [S(i).name for i in range(1, 8)] == ["Integer", "Uniform", "Normal", "Randn", "Zero", "One", "Auto"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_supplies_of_floats(dtype):
    assert set(np.unique(drawn(S.Integer, dtype).astype("float32"))) == {-2, -1, 0, 1, 2}
    for kind in (S.Uniform, S.Auto):
        found = drawn(kind, dtype).astype("float64")
        assert -1 <= found.min() < -0.9 and 0.9 < found.max() <= 1 and abs(found.mean()) < 0.05
    for kind in (S.Normal, S.Randn):
        found = drawn(kind, dtype).astype("float64")
        assert abs(found.mean()) < 0.1 and abs(found.std() - 1) < 0.1
    assert (drawn(S.Zero, dtype) == 0).all() and (drawn(S.One, dtype) == 1).all()


@pytest.mark.parametrize("kind", [S.Integer, S.Auto, S.Uniform, S.Normal])
def test_supplies_of_whole_numbers(kind):
    assert set(np.unique(drawn(kind, "int8"))) == {-2, -1, 0, 1, 2}
    assert set(np.unique(drawn(kind, "uint8"))) == {0, 1, 2}
    assert set(np.unique(drawn(kind, "bool"))) == {False, True}


def test_supplied_tensors_are_torchs_where_torch_is_used():
    supply = get_tensor_supply(S.Integer)
    made = supply(KernelParam("float16", (3, 4)))
    assert made.dtype == torch.float16 and tuple(made.shape) == (3, 4)
    assert supply(KernelParam("int32", (), True)) == 1


def test_shapes_that_are_not_known_cannot_be_supplied():
    kernel = tile.compile(dynamic_add(), out_idx=-1, target=TARGET)
    with pytest.raises(ValueError, match="give input_tensors"):
        kernel.get_profiler().run_once()
    a = np.ones(12, "float32")
    kernel.get_profiler().assert_allclose(lambda a, b: a + b, input_tensors=[a, a])
    assert kernel.get_profiler().do_bench(input_tensors=[a, a], rep=1, warmup=1) > 0


def test_a_right_kernel_passes_and_a_wrong_one_does_not(kernel):
    profiler = kernel.get_profiler()
    profiler.assert_allclose(lambda a, b: a * 2 + b)
    with pytest.raises(AssertionError, match="output 0 of main: .* numbers .* differ, the first at"):
        profiler.assert_allclose(lambda a, b: a * 2.2 + b, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError, match="gives 1 outputs, the reference 2"):
        profiler.assert_allclose(lambda a, b: (a, b))


def test_a_share_of_the_numbers_may_differ(kernel):
    def almost(a, b):
        found = (a * 2 + b).clone()
        found[:3] += 1
        return found

    profiler = kernel.get_profiler(TensorSupplyType.Integer)
    profiler.assert_allclose(almost, max_mismatched_ratio=3 / 64)
    with pytest.raises(AssertionError, match="3 of 64 numbers"):
        profiler.assert_allclose(almost, max_mismatched_ratio=2.9 / 64)


def test_a_kernel_without_outputs_is_compared_by_what_it_writes():
    kernel = tile.compile(scaled_add(64), target=TARGET)
    kernel.get_profiler().assert_allclose(lambda a, b, c: a * 2 + b)
    with pytest.raises(AssertionError):
        kernel.get_profiler().assert_allclose(lambda a, b, c: c)


def test_a_reference_that_writes_to_its_inputs_disturbs_nothing(kernel):
    def writes(a, b):
        a *= 2
        a += b
        return a

    kernel.get_profiler().assert_allclose(writes)


def test_nothing_is_no_reference(kernel):
    with pytest.raises(RuntimeError, match="the reference returns nothing"):
        kernel.get_profiler().assert_allclose(lambda a, b: None)


def test_the_caller_may_compare(kernel):
    seen = []
    kernel.get_profiler().manual_assert_close(
        lambda a, b: a * 2 + b, manual_check_prog=lambda x, y: seen.append((x, y))
    )
    ((got, expected),) = seen
    torch.testing.assert_close(got[0], expected[0])
    with pytest.raises(ValueError, match="manual_check_prog"):
        kernel.get_profiler().manual_assert_close(lambda a, b: a)


def test_runs_agree(kernel):
    kernel.get_profiler().assert_consistent(repeat=3)

    class Drifts:
        spec, params, out_idx, device = kernel.spec, kernel.params, kernel.out_idx, kernel.device
        runs = 0

        def __call__(self, *args):
            self.runs += 1
            return kernel(*args) + (self.runs > 2)

    profiler = kernel.get_profiler()
    profiler.kernel = Drifts()
    with pytest.raises(AssertionError, match="output 0 of main is another in run 3"):
        profiler.assert_consistent(repeat=3)


def test_times_are_milliseconds_of_a_call(kernel):
    profiler = kernel.get_profiler()
    for mode in ("mean", "min", "max", "median"):
        assert 0 < profiler.do_bench(return_mode=mode, warmup=1, rep=5) < 100
    low, high = profiler.do_bench(quantiles=[0.0, 1.0], warmup=1, rep=5)
    assert 0 < low <= high
    assert isinstance(profiler.do_bench(quantiles=[0.5], warmup=1, rep=5), float)
    with pytest.raises(ValueError, match="return_mode 'best'"):
        profiler.do_bench(return_mode="best")
    with pytest.raises(ValueError, match="backend 'sundial'"):
        profiler.do_bench(backend="sundial")


@pytest.mark.parametrize(("n_warmup", "n_repeat"), [(1, 1), (3, 7)])
def test_numbers_of_calls_can_be_given(n_warmup, n_repeat):
    calls = []
    do_bench(lambda: calls.append(0), _n_warmup=n_warmup, _n_repeat=n_repeat)
    assert len(calls) == 1 + 5 + n_warmup + n_repeat


def test_sleeping_takes_its_time(kernel):
    import time

    assert 4.9 < do_bench(lambda: time.sleep(0.005), warmup=5, rep=20, return_mode="min") < 100
    found = kernel.get_profiler().do_bench(func=lambda a, b: time.sleep(0.003), warmup=1, rep=10, return_mode="min")
    assert 2.9 < found < 100


@pytest.mark.parametrize(
    ("got", "expected", "wrong"),
    [
        ([1.0, np.nan], [1.0, np.nan], False), ([1.0, np.nan], [1.0, 2.0], True), ([np.inf], [np.inf], False),
        ([np.inf], [-np.inf], True), ([1.0], [1.005], False), ([1.0], [1.1], True), ([], [], False), ([[1.0]], [1.0], True),
    ],
)  # fmt: skip
def test_arrays_are_compared(got, expected, wrong):
    found = difference(np.array(got), np.array(expected), 1e-2, 0.0, 0.0)
    assert bool(found) == wrong


def test_large_whole_numbers_are_compared_exactly():
    a = np.array([2**62], "int64")
    assert difference(a, a + 1, 0.0, 0.0, 0.0) and not difference(a, a.copy(), 0.0, 0.0, 0.0)
