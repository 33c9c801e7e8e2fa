"""Tuning by command: a small model tuned, looked at, compiled and run; the demo, shortened."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relaxish import cli

MODEL = """
import numpy as np
from relaxish import relax
from relaxish.script import ir as I, relax as R

@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor((16, 32), "float32"), w: R.Tensor((32, 32), "float32")) -> R.Tensor((16, 32), "float32"):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y

Module = relax.transform.BindParams("main", {"w": np.random.default_rng(1).standard_normal((32, 32)).astype("float32")})(Plain)
"""
WEIGHT = np.random.default_rng(1).standard_normal((32, 32)).astype("float32")


def run(capsys, *args):
    with pytest.raises(SystemExit) as caught:
        cli.main([str(a) for a in args])
    captured = capsys.readouterr()
    assert not caught.value.code, captured.err
    return captured.out


@pytest.mark.parametrize("budget", [["--trials", "4", "--batch", "2"], ["--minutes", "0.12", "--batch", "2"]])
def test_tune_look_compile_run(capsys, tmp_path, budget):
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    logs = tmp_path / "logs"
    out = run(capsys, "tune", model, "-w", logs, "--seed", "1", *budget)
    assert "tuned model" in out and (logs / "report.html").exists()
    rows = json.loads(run(capsys, "db", "show", logs, "--json"))
    assert len(rows) == 1 and rows[0]["records"] >= 1
    assert rows[0]["name"] in run(capsys, "db", "best", logs, rows[0]["hash"][:8])
    assert "1 of" in run(capsys, "db", "prune", logs, tmp_path / "pruned")
    x = np.random.default_rng(0).standard_normal((16, 32)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    for database in (logs, tmp_path / "pruned"):
        run(capsys, "compile", model, "-o", tmp_path / "m.so", "--db", database)
        run(capsys, "run", tmp_path / "m.so", "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npz")
        np.testing.assert_allclose(
            np.load(tmp_path / "y.npz")["output_0"], np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-4
        )


def test_sizes_of_a_symbolic_dimension_are_tuned(capsys, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(MODEL.replace("(16, 32)", '("n", 32)'))
    sizes = ["--tuning-shape", "n=8,16"]
    run(capsys, "tune", model, "-w", tmp_path / "logs", "--seed", "1", "--trials", "4", "--batch", "2", *sizes)
    assert len(json.loads(run(capsys, "db", "show", tmp_path / "logs", "--json"))) == 2
    run(capsys, "compile", model, "-o", tmp_path / "m.so", "--db", tmp_path / "logs", *sizes)
    for n in (8, 16, 5):
        x = np.random.default_rng(n).standard_normal((n, 32)).astype("float32")
        np.save(tmp_path / "x.npy", x)
        run(capsys, "run", tmp_path / "m.so", "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npz")
        have = np.load(tmp_path / "y.npz")["output_0"]
        np.testing.assert_allclose(have, np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-4)
    with pytest.raises(SystemExit):
        cli.main(["compile", str(model), "-o", str(tmp_path / "m.so"), "--tuning-shape", "k=8"])
    assert "no symbolic size k; it has n" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_shortened(capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    out = run(capsys, "demo", "--out", tmp_path, "--seconds", "3")
    result = json.loads((tmp_path / "result.json").read_text())
    assert max(result["errors"].values()) < 1e-4
    assert set(result["latency"]) == {"untuned", "tuned", "peer"}
    assert "ResNet-50" in out and "report.html" in out and (tmp_path / "report.html").exists()
    assert result["tuned vs untuned"] < 1.2


def test_tune_on_a_cluster_asks_for_its_builder_and_runner(capsys, tmp_path, monkeypatch):
    """The parts stand in for those of a cluster, which has tests of its own; the search is told of them, and they are ended."""
    from relaxish.cli import tune_command
    from relaxish.meta_schedule.builder import Builder
    from relaxish.meta_schedule.runner import Runner
    from relaxish.support.errors import RelaxishError

    asked, ended, given = [], [], {}

    class Part:
        def shutdown(self):
            ended.append(self)

    def create(*args, **options):
        asked.append((args, options))
        return Part()

    def tune(model, target, work_dir, trials, seconds, begin, options):
        given.update(options)
        raise RelaxishError("enough of that")

    monkeypatch.setattr(Runner, "create", staticmethod(create))
    monkeypatch.setattr(Builder, "create", staticmethod(create))
    monkeypatch.setattr(tune_command, "_tune", tune)
    model, logs = tmp_path / "model.py", tmp_path / "logs"
    model.write_text(MODEL)
    cluster = ["--cluster", "ray://head:10001", "--device-kind", "epyc", "--weight", "2"]
    with pytest.raises(SystemExit) as caught:
        cli.main(["tune", str(model), "-w", str(logs), *cluster])
    assert caught.value.code == 1 and "enough of that" in capsys.readouterr().err
    assert [args for args, _ in asked] == [("ray", "ray://head:10001")] * 2
    options = asked[0][1]
    assert options["device_kind"] == "epyc" and options["weight"] == 2.0 and options["gpu"] is False
    assert options["name"].endswith(str(logs)) and ended == [given["runner"]] and isinstance(given["builder"], Part)
    with pytest.raises(SystemExit) as caught:
        cli.main(["tune", str(model), "--device-kind", "epyc"])
    assert caught.value.code == 2 and "--cluster" in capsys.readouterr().err
