"""Timing the tensor programs of a model, and the scripts extracted from it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relaxish.dlight import benchmark as bench
from relaxish.meta_schedule.runner import EvaluatorConfig
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T

QUICK = EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)


@I.ir_module
class Model:
    @T.prim_func(private=True)
    def scale(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(8)))
        B = T.match_buffer(b, (n, T.int64(8)))
        for i, j in T.grid(n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(3)

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        y = R.call_tir(Model.scale, (x,), out_sinfo=R.Tensor((n, 8), "float32"))
        z = R.call_tir(Model.scale, (y,), out_sinfo=R.Tensor((n, 8), "float32"))
        return z


def test_what_is_called():
    calls, variables = bench.extract_all_func_info_from_relax(Model)
    (records,) = calls[Model.get_global_var("main")].values()
    assert [count for _, count in records] == [2] and len(records[0][0]) == 2
    assert variables[Model.get_global_var("main")] == {"n": "int64"}


def test_benchmark():
    shapes, median, deviation = bench.benchmark(
        Model["scale"], [(("n", 8), "float32"), (("n", 8), "float32")], {"n": 5}, "llvm", evaluator_config=QUICK
    )
    assert shapes == [((5, 8), "float32")] * 2
    assert median > 0 and deviation >= 0


def test_tables(capsys):
    bench.benchmark_relax_func(Model, "main", sample_number=1, target="llvm", evaluator_config=QUICK)
    assert "PrimFuncs in main" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no Relax function"):
        bench.benchmark_relax_func(Model, "other")
    with pytest.raises(ValueError, match="no column"):
        bench.print_results([{"a": 1}], sort_by="b")


def test_extracted_script_runs(tmp_path):
    bench.extract_from_relax(Model, "model", str(tmp_path))
    text = (tmp_path / "main_scale.py").read_text()
    assert "WEIGHT = 2" in text
    quick = tmp_path / "quick.py"
    quick.write_text(text.replace("SAMPLE_NUMBER = 5", "SAMPLE_NUMBER = 1"))
    done = subprocess.run([sys.executable, str(quick)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "scale" in done.stdout


def test_refusals():
    with pytest.raises(TypeError, match="float32"):
        bench.default_dym_var_sample_func({"n": "float32"})
    with pytest.raises(NotImplementedError):
        bench.extract_prim_func("m", "main", "scale", Model["scale"], [], {}, 1, target="metal")
