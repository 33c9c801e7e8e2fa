"""The same work again and again: descriptors, threads, processes, files and memory stay what they were.

Exported programs are loaded and dropped, programs built and dropped, storage of random sizes taken and given back, pools
of workers and servers started and ended, errors raised in between.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import relaxish
from relaxish import relax, rpc
from relaxish.runtime import cpu, load_module, nd
from relaxish.runtime.arrays.memory import Allocator
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import RelaxishError
from relaxish.support.workers import WorkerPool

_BYTES_ANYWAY = 24 << 20  # what allocators and caches of a process may still take after the warm-up
_BYTES_EACH = 3000  # and by each round


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, x))
            R.output(y)
        return y


def _usage() -> dict[str, int]:
    """What this process holds; nothing where /proc does not say."""
    gc.collect()
    if not os.path.isdir("/proc/self/fd"):
        return {"threads": threading.active_count()}
    children = [Path(f"/proc/self/task/{t}/children") for t in os.listdir("/proc/self/task")]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "processes": sum(len(c.read_text().split()) for c in children if c.exists()),
        "files": len(os.listdir(tempfile.gettempdir())),
        "bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


class _Rounds:
    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng, self.folder = rng, folder
        self.executable = relaxish.build(Model, "llvm")
        for name in ("m.so", "m.tar"):
            self.executable.export_library(str(folder / name))
        self.x = np.random.default_rng(2).standard_normal((64, 64)).astype("float32")
        self.want = np.maximum(self.x @ self.x, 0)
        self.allocator = Allocator(cpu())

    def _right(self, loaded: Any) -> None:
        machine = relax.VirtualMachine(loaded, cpu())
        np.testing.assert_allclose(machine["main"](self.x).numpy(), self.want, rtol=1e-3, atol=1e-3)
        with contextlib.suppress(RelaxishError):
            machine["main"](self.x[:3])

    def reload(self) -> None:
        name = self.rng.choice(["m.so", "m.so", "m.tar"])
        if self.rng.random() < 0.1:
            self.executable.export_library(str(self.folder / name))
        self._right(load_module(str(self.folder / name)))

    def damaged(self) -> None:
        """Loading fails half-way."""
        path = self.folder / "damaged.so"
        path.write_bytes((self.folder / "m.so").read_bytes()[: self.rng.randrange(5000)])
        path.with_suffix(".json").write_bytes(
            (self.folder / "m.json").read_bytes()[: self.rng.choice([50, -1, 1 << 30])]
        )
        with contextlib.suppress(RelaxishError):
            load_module(str(path))

    def build(self) -> None:
        rows, factor = self.rng.randrange(1, 40), self.rng.random()
        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo((rows, 64), "float32"))
        with bb.function("main", [x]):
            bb.emit_func_output(bb.emit(relax.op.multiply(x, relax.const(np.float32(factor)))))
        machine = relax.VirtualMachine(relaxish.build(bb.get(), "llvm"), cpu())
        part = np.resize(self.x, (rows, 64))
        np.testing.assert_allclose(machine["main"](part).numpy(), part * np.float32(factor), rtol=1e-6)

    def allocate(self) -> None:
        live, peak = [], 1
        for _ in range(200):
            live.append(self.allocator.allocate(self.rng.randrange(1, 1 << self.rng.randrange(6, 21))))
            peak = max(peak, sum(s.nbytes for s in live))
            if len(live) > self.rng.choice([1, 8, 30]):
                live.pop(self.rng.randrange(len(live)))
        live.clear()
        self.allocator.clear()
        n = self.rng.randrange(1, 100_000)
        assert (nd.array(np.full(n, n, "int64")).numpy() == n).all()

    def workers(self) -> None:
        pool = WorkerPool(2)
        try:
            assert sorted(r.value for r in pool.map(abs, [(-k,) for k in range(4)])) == [0, 1, 2, 3]
        finally:
            pool.shutdown()

    def server(self) -> None:
        server = rpc.Server(port=0, key="soak", no_fork=True, silent=True)
        try:
            with rpc.connect("127.0.0.1", server.port, key="soak") as session:
                assert session.listdir() == ""
        finally:
            server.terminate()


def _leaks(before: dict[str, int], after: dict[str, int], rounds: int) -> dict[str, int]:
    grown = {name: after[name] - before[name] for name in before}
    grown["bytes"] = max(0, grown.get("bytes", 0) - _BYTES_ANYWAY - _BYTES_EACH * rounds)
    return {name: value for name, value in grown.items() if value > 0}


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Rounds ``tried``, each with right results or ``wrong``; kinds of things that grew are ``leaked``."""
    end = time.monotonic() + budget_s
    rng = random.Random(seed)
    figures: Counter[str] = Counter(tried=0, wrong=0, leaked=0)
    with tempfile.TemporaryDirectory() as place, _temporary_files_in(Path(place) / "tmp"):
        rounds = _Rounds(Path(place), rng)
        cheap: list[Callable[[], None]] = [rounds.reload, rounds.damaged, rounds.allocate]
        dear: list[Callable[[], None]] = [rounds.server, rounds.build, rounds.workers]
        for way in cheap * 3 + dear:
            way()
        before = _usage()
        while time.monotonic() < end or not figures["tried"]:
            way = rng.choice(dear if rng.random() < 0.05 else cheap)
            figures["tried"] += 1
            figures[way.__name__] += 1
            try:
                way()
            except Exception as error:  # whatever it is, the round is not as it should be
                figures["wrong"] += 1
                print(f"{way.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        leaks = _settled(before, figures["tried"])
        figures["leaked"] = len(leaks)
        if leaks:
            print(f"grown: {leaks} since {before}; {threading.enumerate()}", file=sys.stderr, flush=True)
    return dict(figures)


def _settled(before: dict[str, int], rounds: int) -> dict[str, int]:
    """What is still too much after some seconds, in which threads and processes end."""
    end = time.monotonic() + 15
    while True:
        leaks = _leaks(before, _usage(), rounds)
        if not leaks or time.monotonic() > end:
            return leaks
        time.sleep(0.1)


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Any:
    """A folder of its own for temporary files, so that others' do not count."""
    folder.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
