"""A model that ran in threads goes on working in a forked child, and the thread count follows knob and affinity."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import relaxish
from relaxish.runtime import VirtualMachine, cpu
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((256, 256), "float32"), w: R.Tensor((256, 256), "float32")) -> R.Tensor((256, 256), "float32"):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y


X = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")


def build():
    executable = relaxish.build(Model, "llvm -num-cores=2")
    return VirtualMachine(executable, cpu())["main"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_survive_fork():
    run = build()
    want = run(X, X).numpy()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        good = b"n"
        try:
            results = [run(X, X).numpy() for _ in range(3)]
            good = b"y" if all(np.array_equal(r, want) for r in results) else b"n"
        finally:
            os.write(writer, good)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer == b"y"
    np.testing.assert_array_equal(run(X, X).numpy(), want)


_SCRIPT = """
import os, sys
if sys.argv[1] == "affinity":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
from relaxish.support.threads import num_threads
print(num_threads(), num_threads(3))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
@pytest.mark.parametrize(
    "mode, environment, answer",
    [
        ("affinity", {}, "1 3"),
        ("knob", {"RELAXISH_NUM_THREADS": "5"}, "5 5"),
        ("affinity", {"RELAXISH_NUM_THREADS": "2"}, "2 2"),
    ],
)
def test_thread_count(mode, environment, answer):
    plain = {k: v for k, v in os.environ.items() if k != "RELAXISH_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, mode], env={**plain, **environment}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == answer
