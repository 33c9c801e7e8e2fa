"""The commands on a small script model: print, compile, run, time, and wrong inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from relaxish import cli

MODEL = """
from relaxish.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            h = R.matmul(x, w)
            y = R.nn.relu(h)
            R.output(y)
        return y
"""


def run(capsys, *args):
    with pytest.raises(SystemExit) as caught:
        cli.main([str(a) for a in args])
    captured = capsys.readouterr()
    return caught.value.code or 0, captured.out, captured.err


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_opt(capsys, model, tmp_path):
    code, out, err = run(capsys, "opt", model, "-p", "LegalizeOps", "--timing")
    assert code == 0 and "R.call_tir" in out and "LegalizeOps:" in err
    assert run(capsys, "opt", model, "-o", tmp_path / "out.py")[0] == 0
    assert "R.matmul" in (tmp_path / "out.py").read_text()
    page = tmp_path / "passes.html"
    assert run(capsys, "opt", model, "-p", "LegalizeOps", "-p", "FuseOps", "--html", page)[0] == 0
    text = page.read_text()
    assert "LegalizeOps" in text and "FuseOps" in text and "call_tir" in text and "src=" not in text
    fused = run(
        capsys, "opt", model, "-p", "LegalizeOps", "-p", "AnnotateTIROpPattern", "-p", "FuseOps{fuse_opt_level=1}"
    )
    assert fused[0] == 0 and "fused_" in fused[1]
    code, _, err = run(capsys, "opt", model, "-p", "legalizeops")
    assert code == 1 and "did you mean LegalizeOps" in err


def test_compile_then_run(capsys, model, tmp_path):
    code, out, err = run(capsys, "compile", model, "-o", tmp_path / "model.so")
    assert code == 0, err
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    w = np.random.default_rng(1).standard_normal((8, 8)).astype("float32")
    np.savez(tmp_path / "in.npz", x=x, w=w)
    np.save(tmp_path / "x.npy", x)
    code, out, err = run(
        capsys,
        "run",
        tmp_path / "model.so",
        "--input",
        tmp_path / "in.npz",
        "-o",
        tmp_path / "out.npz",
        "--profile",
        "--repeat",
        3,
    )
    assert code == 0, err
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["output_0"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
    assert "median" in out and "Percent" in out
    np.save(tmp_path / "bad.npy", x[:2])
    for files, message in (
        (["bad.npy", "x.npy"], "must have shape [4, 8], got [2, 8]"),
        (["x.npy"], "no value is given for input 'w'"),
        (["y=x.npy"], "no input 'y'"),
        (["missing.npy"], "cannot read input"),
    ):
        args = [a for f in files for a in ("--input", f"y={tmp_path}/x.npy" if f.startswith("y=") else tmp_path / f)]
        code, _, err = run(capsys, "run", tmp_path / "model.so", *args)
        assert code == 1 and message in err and err.count("\n") == 1
    np.save(tmp_path / "double.npy", x.astype("float64"))
    code, _, err = run(
        capsys, "run", tmp_path / "model.so", "--input", tmp_path / "double.npy", "--input", tmp_path / "x.npy"
    )
    assert code == 1 and "must have dtype float32, got float64" in err
    code, _, err = run(capsys, "compile", tmp_path / "model.so", "-o", tmp_path / "b.so")
    assert code == 1 and "compiled already" in err


def test_run_unknown_function_and_bench(capsys, model, tmp_path):
    code, _, err = run(capsys, "run", model, "--function", "nope")
    assert code == 1 and "no function 'nope'" in err
    code, out, err = run(capsys, "bench", model, "--seconds", "0.05", "--json", tmp_path / "b.json")
    assert code == 0, err
    assert "relaxish (untuned)" in out and json.loads((tmp_path / "b.json").read_text())["rows"][0]["calls"] >= 5


def test_onnx_unknown_operator(capsys, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("relaxish.frontend.onnx")
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("NoSuchOperator", ["x"], ["y"])], "g", [value], [out])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    code, _, err = run(capsys, "run", tmp_path / "m.onnx")
    assert code == 1 and "NoSuchOperator" in err and err.count("\n") == 1, err
    code, _, err = run(capsys, "run", tmp_path / "m.onnx", "--shape", "z=1")
    assert code == 1 and "no input 'z'" in err
