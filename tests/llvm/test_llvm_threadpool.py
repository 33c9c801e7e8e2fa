"""The thread pool: every iteration runs once, from many threads, nested, and after a fork."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from relaxish.driver import build_tir
from relaxish.script import tir as T


@T.prim_func
def count(out: T.Buffer((1000,), "int32")):
    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
    for i in T.parallel(1000):
        out[i] = out[i] + 1


@T.prim_func
def many_regions(out: T.Buffer((7,), "int32")):
    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
    for _ in range(3000):
        for i in T.parallel(7):
            out[i] = out[i] + 1


@pytest.fixture(scope="module")
def run() -> Any:
    return build_tir(count, "llvm -num-cores 2")


def test_each_iteration_once(run: Any) -> None:
    out = np.zeros(1000, "int32")
    for _ in range(50):
        run(out)
    assert (out == 50).all()


def test_many_short_regions() -> None:
    out = np.zeros(7, "int32")
    build_tir(many_regions, "llvm -num-cores 2")(out)
    assert (out == 3000).all()


def test_from_many_threads(run: Any) -> None:
    outs = [np.zeros(1000, "int32") for _ in range(4)]
    threads = [threading.Thread(target=lambda o=o: [run(o) for _ in range(50)]) for o in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all((o == 50).all() for o in outs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_fork(run: Any) -> None:
    run(np.zeros(1000, "int32"))
    child = os.fork()
    if child == 0:
        out = np.zeros(1000, "int32")
        for _ in range(20):
            run(out)
        os._exit(0 if (out == 20).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
