"""Whole tuning runs without a device for shapes that leave little to tune: they end, and everything legal is built."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest

from relaxish import meta_schedule as ms
from relaxish import te, topi
from relaxish.meta_schedule.builder import BuilderResult, PyBuilder
from relaxish.meta_schedule.builder.device_artifact import build_for_device
from relaxish.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target


class HereBuilder(PyBuilder):
    """Builds in this process: what fails is raised."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.built = Path(folder), 0

    def build(self, build_inputs):
        results = []
        for x in build_inputs:
            self.built += 1
            path = self.folder / f"{self.built}.pkl"
            path.write_bytes(build_for_device(x.mod, x.target, "null"))
            results.append(BuilderResult(str(path), None))
        return results


class Known(PyRunnerFuture):
    def __init__(self, result):
        super().__init__()
        self._result = result

    def done(self):
        return True

    def result(self):
        return self._result


class PretendingRunner(PyRunner):
    """Every candidate takes what the model of the device says."""

    def run(self, runner_inputs):
        artifacts = [pickle.loads(Path(x.artifact_path).read_bytes()) for x in runner_inputs]
        return [Known(RunnerResult([max(a.simulated_seconds, 1e-7)], None)) for a in artifacts]


def reduced(op, dtype, *shape):
    x = te.placeholder(shape, dtype, name="X")
    return [x, op(x)]


def resized(shape, size):
    x = te.placeholder(shape, "float32", name="X")
    return [x, topi.image.resize2d(x, [0.0] * 4, size, layout="NCHW", method="linear")]


CASES = {
    "number": lambda: reduced(topi.exp, "float32"),
    "sum of everything": lambda: reduced(topi.sum, "float32", 16, 20),
    "sum of one": lambda: reduced(topi.sum, "float32", 1, 1),
    "place of the only": lambda: reduced(topi.argmax, "float32", 1, 1),
    "truth of everything": lambda: reduced(topi.all, "bool", 16, 20),
    "one product": lambda: te_workload.matmul(1, 1, 1, "float16", "float32"),
    "one row": lambda: te_workload.matmul(1, 33, 17, "float16", "float32"),
    "places by floats": lambda: resized((1, 2, 4, 4), [8, 6]),
    "constant": lambda: [topi.full((3, 5), "float32", 2.0)],
}


@pytest.mark.parametrize("target", ["nvidia/nvidia-a100", "nvidia/nvidia-h100"])
@pytest.mark.parametrize("name", list(CASES))
def test_tuning_ends(name, target):
    with tempfile.TemporaryDirectory() as folder:
        builder = HereBuilder(folder)
        database = ms.tune_tir(
            te.create_prim_func(CASES[name]()), Target(target), folder, max_trials_global=4, num_trials_per_iter=2,
            builder=builder, runner=PretendingRunner(), seed=3,
        )  # fmt: skip
        assert builder.built and len(database.get_all_tuning_records()) == builder.built
