"""Draws by chance: their distribution, their seeds, and that every run gives new ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_node import Case

import relaxish
from relaxish.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore")


class Drawn:
    """A model of one node on a machine of its own."""

    def __init__(self, op: str, *inputs: np.ndarray, opset: int = 15, **attrs: Any) -> None:
        self.args = [relaxish.nd.array(x) for x in inputs]
        module = from_onnx(Case(op, list(inputs), opset=opset, **attrs).model())
        self.executable = relaxish.build(module, "llvm")
        self.vm = relaxish.VirtualMachine(self.executable, relaxish.cpu())

    def __call__(self) -> np.ndarray:
        return self.vm["main"](*self.args).numpy()

    def again(self) -> np.ndarray:
        """What a new machine draws first."""
        return relaxish.VirtualMachine(self.executable, relaxish.cpu())["main"](*self.args).numpy()


def moments(x: np.ndarray) -> tuple[float, float, float]:
    x = x.astype("float64")
    apart = x - x.mean()
    return x.mean(), x.std(), float((apart**3).mean())


@pytest.mark.parametrize("kind", [1, 11])
def test_normal_numbers(kind: int) -> None:
    x = Drawn("RandomNormal", shape=[200, 500], mean=2.0, scale=3.0, dtype=kind, seed=4.0)()
    mean, deviation, skew = moments(x)
    assert abs(mean - 2) < 0.05 and abs(deviation - 3) < 0.05 and abs(skew) < 1
    # As many within one, two and three deviations as there are of such numbers.
    within = [float((np.abs(x - 2) < 3 * k).mean()) for k in (1, 2, 3)]
    np.testing.assert_allclose(within, [0.6827, 0.9545, 0.9973], atol=0.005)
    rows = np.corrcoef(x[:2])[0, 1], np.corrcoef(x[0, :-1], x[0, 1:])[0, 1]
    assert max(map(abs, rows)) < 0.2


def test_equal_chances() -> None:
    x = Drawn("RandomUniformLike", np.zeros((300, 400), "float32"), low=-1.0, high=3.0)()
    assert x.shape == (300, 400) and x.min() >= -1 and x.max() < 3
    counts, _ = np.histogram(x, 16, (-1, 3))
    expected = x.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 50  # chi squared of 15 degrees: beyond it 1 in 80,000


def test_coins() -> None:
    chances = np.repeat(np.array([[0.0, 0.1, 0.5, 0.9, 1.0]], "float32"), 20000, 0)
    x = Drawn("Bernoulli", chances, dtype=6)()
    assert x.dtype == "int32" and set(np.unique(x)) <= {0, 1}
    np.testing.assert_allclose(x.mean(0), chances[0], atol=0.02)


def test_classes() -> None:
    chances = np.array([[0.5, 0.2, 0.3, 0.0], [0.05, 0.05, 0.8, 0.1]])
    with np.errstate(divide="ignore"):
        logits = np.log(chances).astype("float32")
    x = Drawn("Multinomial", logits, sample_size=30000, dtype=7)()
    assert x.shape == (2, 30000) and x.dtype == "int64"
    shares = np.stack([np.bincount(row, minlength=4) / 30000 for row in x])
    np.testing.assert_allclose(shares, chances, atol=0.015)
    assert shares[0, 3] == 0


def test_runs_differ_and_seeds_repeat() -> None:
    seeded = Drawn("RandomUniform", shape=[50], seed=7.0)
    first, second = seeded(), seeded()
    assert (first != second).mean() > 0.9
    np.testing.assert_array_equal(seeded.again(), first)
    other = Drawn("RandomUniform", shape=[50], seed=8.0)
    assert (other() != first).mean() > 0.9
    free = Drawn("RandomUniform", shape=[50])
    assert (free() != free.again()).mean() > 0.9


def test_two_nodes_differ() -> None:
    import onnx

    text = "() => (float[20] a, float[20] b) { a = RandomNormal<shape=[20], seed=1.0>() b = RandomNormal<shape=[20], seed=1.0>() }"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)
    vm = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())
    a, b = (x.numpy() for x in vm["main"]())
    assert (a != b).all()
