"""Functions of symbolic sizes called again with sizes that they know, against NumPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.runtime import ndarray
from relaxish.runtime.bytecode.known_sizes import KnownSizes
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@I.ir_module
class Branches:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, "m"), "float32")
    ) -> R.Tuple(R.Tensor(("n", "m"), "float32"), R.Tensor(("n",), "float32"), R.Tensor(("n", 8), "float32"), R.Shape):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            a = R.nn.softmax(R.matmul(x, w))
            b = R.nn.softmax(R.matmul(y, w))
            c = R.cumsum(a, axis=1)
            d = R.sum(b, axis=[1])
            e = R.add(R.cumsum(b, axis=0), R.multiply(a, c))
            f = R.reshape(R.cumsum(R.reshape(x, (n * 8,)), axis=0), (n, 8))
            g = R.shape([n, m * 2])
            out = (e, d, f, g)
            R.output(out)
        return out


def expected(x: Any, y: Any, w: Any) -> tuple[Any, ...]:
    def softmax(v: Any) -> Any:
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    a, b = softmax(x @ w), softmax(y @ w)
    return b.cumsum(0) + a * a.cumsum(1), b.sum(1), x.reshape(-1).cumsum().reshape(x.shape)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls went by a list of kernels."""
    counts = [0]
    plain = KnownSizes._replayed

    def counting(self: Any, *args: Any) -> Any:
        counts[0] += 1
        return plain(self, *args)

    monkeypatch.setattr(KnownSizes, "_replayed", counting)
    return counts


def machine(mod: Any, **options: Any) -> Any:
    return relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu(), **options)


@pytest.fixture(scope="module")
def main() -> Any:
    return machine(Branches)["main"]


def some(rng: np.random.Generator, n: int, m: int) -> list[Any]:
    return [rng.standard_normal(s).astype("float32") for s in ((n, 8), (n, 8), (8, m))]


def check(main: Any, arrays: list[Any]) -> list[Any]:
    found = main(*[relaxish.nd.array(a) for a in arrays])
    for have, want in zip(found, expected(*arrays)):
        np.testing.assert_allclose(have.numpy(), want, rtol=2e-4, atol=2e-5)
    assert tuple(found[3]) == (arrays[0].shape[0], 2 * arrays[2].shape[1])
    return list(found)


def test_many_sizes_in_any_order(replays: list[int]) -> None:
    main, rng = machine(Branches)["main"], np.random.default_rng(0)
    sizes = [(n, m) for n in (1, 3, 40, 7) for m in (2, 17)]
    kept = []
    for _ in range(120):
        arrays = some(rng, *sizes[rng.integers(len(sizes))])
        kept.append((check(main, arrays), arrays))
    assert replays[0] > 60
    for found, arrays in kept:  # results are nobody else's
        for have, want in zip(found, expected(*arrays)):
            np.testing.assert_allclose(have.numpy(), want, rtol=2e-4, atol=2e-5)


def test_more_sizes_than_are_remembered(main: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(3):
        for n in range(1, 40):
            check(main, some(rng, n, 3))


def test_one_array_given_twice(main: Any) -> None:
    rng = np.random.default_rng(2)
    for k in range(6):
        x, y, w = some(rng, 5, 4)
        given = relaxish.nd.array(x)
        if k % 2:
            found = main(given, given, relaxish.nd.array(w))
            np.testing.assert_allclose(found[0].numpy(), expected(x, x, w)[0], rtol=2e-4, atol=2e-5)
        else:
            check(main, [x, y, w])


def test_wrong_arguments_stay_errors(main: Any) -> None:
    rng = np.random.default_rng(3)
    x, y, w = (relaxish.nd.array(a) for a in some(rng, 6, 4))
    for _ in range(3):
        main(x, y, w)
        with pytest.raises(ValueError, match="mismatch"):
            main(x, relaxish.nd.array(rng.standard_normal((5, 8)).astype("float32")), w)
        with pytest.raises(ValueError, match="dtype"):
            main(x, y, relaxish.nd.array(rng.standard_normal((8, 4))))
        for wrong in ((x, y), (x, y, w, w), (x, y, w, 3)):
            with pytest.raises(ValueError, match="inputs are provided"):
                main(*wrong)


def test_threads_at_one_time(main: Any) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for k in range(40):
                check(main, some(rng, 3 + (k + seed) % 3, 4))
        except BaseException as err:
            errors.append(err)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_bad_indices_are_errors_in_every_call(replays: list[int]) -> None:
    @I.ir_module
    class Rows:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                y = R.take(x, i, axis=0)
                R.output(y)
            return y

    main, x = machine(Rows)["main"], np.arange(12, dtype="float32").reshape(3, 4)
    for k in range(5):
        good = np.array([k % 3, 2 - k % 3])
        found = main(relaxish.nd.array(x), relaxish.nd.array(good))
        np.testing.assert_array_equal(found.numpy(), x[good])
        with pytest.raises(IndexError):
            main(relaxish.nd.array(x), relaxish.nd.array(np.array([0, 99])))
    assert replays[0] > 4


def test_an_argument_given_back(replays: list[int]) -> None:
    @I.ir_module
    class Back:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tuple(
            R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32")
        ):
            with R.dataflow():
                z = R.add(x, y)
                R.output(z)
            return (y, z)

    main, rng = machine(Back)["main"], np.random.default_rng(5)
    for _ in range(4):
        x, y = (relaxish.nd.array(rng.standard_normal(6).astype("float32")) for _ in range(2))
        back, total = main(x, y)
        assert back is y
        np.testing.assert_allclose(total.numpy(), x.numpy() + y.numpy())
    assert replays[0] == 1


@I.ir_module
class SizesAsData:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            sizes = R.astype(R.shape_to_tensor(R.shape([n, m + 1])), "float32")
            out = R.multiply(x, R.reshape(R.sum(sizes), (1, 1)))
            R.output(out)
        return out


def test_arrays_of_sizes(replays: list[int]) -> None:
    main, rng = machine(SizesAsData)["main"], np.random.default_rng(3)
    for n, m in [(2, 3), (4, 1), (2, 3), (4, 1), (2, 3), (4, 1), (1, 0), (2, 3)]:
        x = rng.standard_normal((n, m)).astype("float32")
        np.testing.assert_allclose(main(ndarray.array(x)).numpy(), x * (n + m + 1), rtol=1e-6)
    assert replays[0] >= 2


def test_writes_in_place_and_data_dependent_sizes_are_left_alone(replays: list[int]) -> None:
    @I.ir_module
    class Positions:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=2, dtype="int64"):
            with R.dataflow():
                y = R.nonzero(x)
                R.output(y)
            return y

    main, rng = machine(Positions)["main"], np.random.default_rng(6)
    for _ in range(5):
        x = (rng.random(9) > 0.5).astype("float32")
        np.testing.assert_array_equal(main(relaxish.nd.array(x)).numpy(), np.stack(np.nonzero(x)))
    assert replays[0] == 0


def test_instruments_see_every_call() -> None:
    vm, rng, names = machine(Branches), np.random.default_rng(7), []
    main = vm["main"]
    for _ in range(3):
        check(main, some(rng, 3, 4))
    vm.set_instrument(lambda func, name, before, ret, *args: names.append(name))
    check(main, some(rng, 3, 4))
    assert names
    vm.set_instrument(None)
    check(main, some(rng, 3, 4))


def test_no_memory_is_kept_by_the_naive_allocator(replays: list[int]) -> None:
    main, rng = machine(Branches, memory_cfg="naive")["main"], np.random.default_rng(8)
    for _ in range(4):
        check(main, some(rng, 3, 4))
    assert replays[0] == 0


def test_memory_between_kernels_is_shared() -> None:
    main, rng = machine(Branches)["main"], np.random.default_rng(9)
    before = ndarray.get_allocator().used_bytes()
    for _ in range(6):
        check(main, some(rng, 20, 6))
    assert ndarray.get_allocator().used_bytes() - before < 1 << 20
