"""Mutated script, IR documents, traces, targets and lines of databases: a value or an error, and nothing is executed.

Programs are mutated by their syntax tree (expressions, statements, decorators, annotations, defaults, many of them ways
out of evaluators), documents by their structure, all of them also character by character. The answer may be a value or
an error of this package's classes. What opens a file for writing, starts a program, makes a folder or reaches the
network while text is read counts as ``accepted``.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faults.batches import run_cases
from faults.mutation import mutated_json, mutated_program, mutated_text, odd_value
from relaxish import te, tir
from relaxish import meta_schedule as ms
from relaxish.ir import load_json, save_json
from relaxish.meta_schedule.database import JSONDatabase, TuningRecord, Workload
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.schedule import Trace


@I.ir_module
class Module:
    @T.prim_func
    def rows(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("b"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Module
        y = R.call_tir(cls.rows, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return R.add(y, R.const([1.0, 2.0, 3.0, 4.0], "float32"))


def sample_trace() -> Trace:
    """A trace of ``Module["rows"]`` with a bit of everything that traces hold."""
    sch = tir.Schedule(Module["rows"], seed=1)
    block = sch.get_block("b")
    i, k = sch.get_loops(block)
    factors = sch.sample_perfect_tile(k, n=2, max_innermost_factor=8)
    outer, inner = sch.split(k, factors)
    sch.reorder(outer, i, inner)
    sch.annotate(i, "note", {"a": [1, 2]})
    sch.transform_layout(block, ("read", 0), lambda a, b: (b, a))
    sch.unroll(inner)
    return sch.trace


PROGRAMS = (
    """@T.prim_func
def f(a: T.handle, B: T.Buffer((16,), "float32"), n: T.int32):
    m = T.int64()
    A = T.match_buffer(a, (m, 4), "float32")
    T.func_attr({"tir.noalias": True, "target": T.target("llvm")})
    C = T.alloc_buffer((4,), "float32", scope="local")
    for i in T.thread_binding(4, thread="threadIdx.x"):
        for j in range(4):
            with T.block("c"):
                vi, vj = T.axis.remap("SR", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vi])
                T.block_attr({"script_parsing_detect_access": 1})
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + T.Select(A[vi, vj] > T.float32(0), A[vi, vj], T.max(A[vi, vj], T.float32(1)))
    if n > 2:
        B[n] = T.Cast("float32", n) * T.float32(2)
    else:
        T.evaluate(T.call_extern("int32", "nothing", B.data))
    while B[0] < T.float32(1):
        B[0] = B[0] + T.float32(1)
    assert n > 0, "positive"
""",
    """@I.ir_module
class Module:
    I.module_attrs({"a": 1})
    I.module_global_infos({"vdevice": [I.vdevice("llvm")]})

    @T.prim_func(private=True)
    def double(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        for i in T.vectorized(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tuple(R.Tensor((4,), "float32"), R.Shape(["n"]))) -> R.Object:
        n = T.int64()
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.double, (w[0],), out_sinfo=R.Tensor((4,), "float32"))
            b: R.Tensor((n, 4), "float32") = R.add(x, a)
            c = R.match_cast(R.reshape(b, R.shape([n * 4])), R.Tensor((n * 4,), "float32"))
            R.output(c)
        d = R.call_packed("f", c, R.prim_value(3), R.str("x"), sinfo_args=(R.Tensor((4,), "float32"),))
        if R.const(True, "bool"):
            e = R.layout_transform(x, index_map=lambda i, j: (j, i))
        else:
            e = R.layout_transform(x, index_map=T.index_map(lambda i, j: (j, i)))
        return (d, e)
""",
)


def tuned_workload() -> tuple[Workload, TuningRecord]:
    x = te.placeholder((4, 8), "float32", name="X")
    made = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] * 2.0, name="Y")])
    workload = Workload(ms.TuneContext(made).mod)
    sch = tir.Schedule(workload.mod)
    sch.split(sch.get_loops("Y")[1], [None, 4])
    shape = ms.arg_info.ArgInfo.from_entry_func(workload.mod)
    return workload, TuningRecord(sch.trace, workload, [1e-3], Target("llvm -num-cores=1"), shape)


class _Documents:
    """What is mutated, and who reads it."""

    def __init__(self) -> None:
        self.workload, record = tuned_workload()
        self.module = json.loads(save_json(Module))
        self.function = json.loads(save_json(Module["rows"]))
        self.trace = json.loads(json.dumps(sample_trace().as_json()))
        self.python = str(sample_trace())
        self.target = Target("cuda -arch=sm_80", host="llvm -mcpu=skylake-avx512 -mattr=+avx,+fma").export()
        self.record = json.loads(json.dumps(record.as_json()))
        self.line = json.loads(json.dumps(self.workload.as_json()))
        self.scripts = [*PROGRAMS, Module.script(show_meta=True), Module["rows"].script()]

    def draw(self, rng: random.Random) -> tuple[str, Any, Callable[[Any], Any]]:
        """(kind, input, reader)."""
        kind = rng.choice(["script"] * 6 + ["module", "function", "trace", "python", "target", "line", "record", "raw"])
        values = lambda: odd_value(rng)
        if kind == "script":
            text = rng.choice(self.scripts)
            return kind, mutated_program(text, rng) if rng.random() < 0.8 else mutated_text(text, rng), from_source
        if kind == "python":
            return kind, mutated_text(self.python, rng), self._python
        document = {**vars(self), "raw": self.module}[kind]
        if kind == "raw":
            text = json.dumps(rng.choice([self.module, self.trace, self.record]))
            return kind, mutated_text(text, rng), rng.choice([load_json, Trace.from_json, Target])
        made = mutated_json(document, rng.choice, values)
        if kind in ("module", "function"):
            return kind, json.dumps(made), load_json
        if kind == "trace":
            return kind, json.dumps(made), self._trace
        if kind == "target":
            return kind, rng.choice([made, json.dumps(made)]), Target
        if kind == "line":
            return kind, made, Workload.from_json
        return kind, made, lambda value: TuningRecord.from_json(value, self.workload)

    def _trace(self, text: str) -> Any:
        sch = tir.Schedule(Module["rows"], seed=1)
        Trace.apply_json_to_schedule(text, sch)
        return sch

    def _python(self, text: str) -> Any:
        sch = tir.Schedule(Module["rows"], seed=1)
        Trace.apply_python_to_schedule(text, sch)
        return sch


_SEEN: list[str] = []
_WATCHED = ("os.system", "os.exec", "os.posix_spawn", "os.mkdir", "os.remove", "os.rename", "subprocess.Popen", "ctypes.dlopen",
            "socket.connect", "socket.bind", "shutil.rmtree", "os.fork", "os.chmod")  # fmt: skip


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "ctypes.dlopen" and "libcuda" in str(arguments):
        return  # a target may ask for the properties of the device that is there
    if event in _WATCHED:
        _SEEN.append(f"{event}{arguments[:1]}")
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _SEEN.append(f"open {arguments[:2]}")


def attempt(documents: _Documents, seed: int, number: int) -> tuple[str, str]:
    """One input: how it ended, and what about it is wrong."""
    kind, given, read = documents.draw(random.Random(f"{seed} {number}"))
    _SEEN.clear()
    np.random.seed(0)
    key, told = "read", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(given)
    except RelaxishError:
        key = "refused"
    except BaseException as error:  # SystemExit and KeyboardInterrupt would be faults as well
        key, told = "lost", f"{type(error).__name__}: {str(error)[:300]}"
    left = os.listdir()
    if _SEEN or left:
        key, told = "accepted", f"{told} did {_SEEN[:3]} left {left}"
        for name in left:
            (os.rmdir if os.path.isdir(name) else os.unlink)(name)
    return key, told and f"{kind}: {told}\n{given if isinstance(given, str) else json.dumps(given)}"[:6000]


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Inputs ``tried``: ``read``, ``refused``, errors of another class (``lost``), side effects (``accepted``)."""
    documents = _Documents()
    before = os.getcwd()
    ready: list[bool] = []

    def one(number: int) -> tuple[str, str]:
        if not ready:  # in a child, which is this campaign's own
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            sys.dont_write_bytecode = True  # what a case imports first is no deed of its input
            sys.addaudithook(_watch)
            ready.append(True)
        return attempt(documents, seed, number)

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for text in documents.scripts:
                from_source(text)  # what is not mutated is read; this also imports what reading imports
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                JSONDatabase(work_dir=str(Path(folder))).commit_workload(documents.workload.mod)
            for name in os.listdir(folder):
                os.unlink(name)
            return run_cases(one, ("read", "refused", "lost", "accepted"), budget_s, patience=40)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    sys.addaudithook(_watch)
    print(attempt(_Documents(), int(sys.argv[1]), int(sys.argv[2])))
