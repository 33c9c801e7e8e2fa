"""Exported libraries obey ``RELAXISH_NUM_THREADS`` and a call, with our runtime and without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import relaxish
from relaxish import runtime
from relaxish.driver import build_tir
from relaxish.script import tir as T
from relaxish.support import config
from relaxish.support.errors import RelaxishError

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")


@T.prim_func
def halves(out: T.Buffer((512,), "int32")):
    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "halves"})
    for i in T.parallel(512):
        out[i] = out[i] + 1


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("threads") / "k.so"
    build_tir(halves, "llvm").export_library(str(path))
    return path


# A program that has the library and the C library, and nothing of ours.
_BARE = """
    import ctypes, os, sys
    library = ctypes.CDLL(sys.argv[1])
    out = (ctypes.c_int32 * 512)()
    slots = (ctypes.c_int64 * 1)(ctypes.addressof(out))
    def run():
        assert library.halves__packed(slots) == 0
        return len(os.listdir("/proc/self/task"))
    counts = [run()]
    for n in map(int, sys.argv[2:]):
        library.rx_set_num_threads(ctypes.c_int32(n))
        counts.append(run())
    assert all(v == len(counts) for v in out)
    print(*counts)
"""


def _bare(library: Path, *calls: int, **environment: str) -> list[int]:
    known = {k: v for k, v in os.environ.items() if not k.startswith("RELAXISH_")}
    command = [sys.executable, "-c", textwrap.dedent(_BARE), str(library), *map(str, calls)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**known, **environment}, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_environment_without_our_runtime(library: Path) -> None:
    for wanted in (1, 3, 5):
        assert _bare(library, RELAXISH_NUM_THREADS=str(wanted)) == [wanted]


@pytest.mark.parametrize("text", ["", "0", "-3", "many"])
def test_environment_that_says_nothing(library: Path, text: str) -> None:
    assert _bare(library, RELAXISH_NUM_THREADS=text) == [len(os.sched_getaffinity(0))]


def test_absurd_environment(library: Path) -> None:
    assert _bare(library, RELAXISH_NUM_THREADS="99999999999999") == [128]


def test_calls_without_our_runtime(library: Path) -> None:
    # Threads that have been started stay; they only sleep.
    assert _bare(library, 2, 4, 1, 6, RELAXISH_NUM_THREADS="1") == [1, 2, 4, 4, 6]


_OURS = """
    import os, sys
    import numpy as np
    from relaxish import runtime
    def run():
        k(out)
        return len(os.listdir("/proc/self/task")) - before
    before = len(os.listdir("/proc/self/task"))
    out = np.zeros(512, "int32")
    k = runtime.load_module(sys.argv[1])
    counts = [run()]
    runtime.set_num_threads(4)
    counts.append(run())
    k = runtime.load_module(sys.argv[2])   # loaded after the call
    before += counts[-1]
    counts.append(run())
    assert runtime.get_global_func("runtime.NumThreads")() == 4
    runtime.get_global_func("runtime.config_threadpool")(1, 6)
    counts.append(run())
    assert (out == 4).all() and "relaxish.backend" not in sys.modules
    print(*counts)
"""


def test_with_our_runtime(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"  # equal libraries are loaded once
    build_tir(halves.with_attr("global_symbol", "others"), "llvm").export_library(str(other))
    command = [sys.executable, "-c", textwrap.dedent(_OURS), str(library), str(other)]
    environment = {**os.environ, "RELAXISH_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "3", "3", "5"]  # besides the thread that calls


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_from_c(library: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(
        textwrap.dedent(
            """
            #include <stdint.h>
            #include <stdio.h>
            #include <dirent.h>
            int32_t halves(int32_t *out);
            void rx_set_num_threads(int32_t n);
            static int threads(void) {
                DIR *d = opendir("/proc/self/task");
                int n = 0;
                for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
                closedir(d);
                return n;
            }
            int main(void) {
                static int32_t out[512];
                halves(out);
                printf("%d ", threads());
                rx_set_num_threads(5);
                halves(out);
                printf("%d %d\\n", threads(), out[511]);
                return 0;
            }
            """
        )
    )
    program = str(tmp_path / "main")
    link = ["cc", str(tmp_path / "main.c"), str(library), f"-Wl,-rpath,{library.parent}", "-lpthread", "-lm"]
    subprocess.run([*link, "-o", program], check=True, timeout=120)
    environment = {**os.environ, "RELAXISH_NUM_THREADS": "3"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert done.stdout.split() == ["3", "5", "2"]


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "4"])
def test_bad_counts(count: object) -> None:
    with pytest.raises(RelaxishError, match="positive integer"):
        runtime.set_num_threads(count)  # type: ignore[arg-type]


def test_the_knob_follows() -> None:
    try:
        runtime.set_num_threads(3)
        assert relaxish.runtime.num_threads() == 3 and config.NUM_THREADS.value == 3
    finally:
        runtime.set_num_threads(None)
    assert not config.NUM_THREADS.is_set
