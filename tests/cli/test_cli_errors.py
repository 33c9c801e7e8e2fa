"""Every kind of bad input ends in one line on standard error and a non-zero status."""

from __future__ import annotations

import json


import numpy as np
import pytest

from relaxish import cli


def run(capsys, *args):
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(a) for a in args])
    captured = capsys.readouterr()
    code = caught.value.code
    return 0 if code is None else code, captured.out, captured.err


def fails(capsys, *args, status=1):
    """The one-line message of a failing command."""
    code, out, err = run(capsys, *args)
    assert code == status, (code, out, err)
    assert "Traceback" not in err and err.startswith("error: ") and err.count("\n") == 1, err
    return err


def test_help_and_version(capsys):
    code, out, _ = run(capsys)
    assert code == 0 and all(c in out for c in ("tune", "compile", "run", "bench", "opt", "db", "report", "info"))
    assert run(capsys, "--version")[1].startswith("relaxish")
    for name in ("tune", "compile", "run", "bench", "opt", "report", "info"):
        code, out, _ = run(capsys, name, "--help")
        assert code == 0 and "Usage" in out


def test_info(capsys):
    code, out, _ = run(capsys, "info")
    assert code == 0 and "RELAXISH_NUM_THREADS" in out and "llvm" in out
    assert "composite" in out and "Features of this processor" in out and "Tags" in out
    code, out, _ = run(capsys, "info", "--json")
    listed = json.loads(out)
    assert {"nvidia/jetson-nano", "aws/c4.4xlarge"} <= set(listed["tags"])
    assert all(name.startswith("has_") for name in listed["features"])


@pytest.mark.parametrize("command", ["tune", "compile", "run", "bench", "opt"])
def test_missing_empty_unknown_and_directory(capsys, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no such file" in fails(capsys, command, tmp_path / "no.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert "empty" in fails(capsys, command, tmp_path / "empty.onnx")
    (tmp_path / "model.docx").write_bytes(b"x")
    assert "not a model file" in fails(capsys, command, tmp_path / "model.docx")
    (tmp_path / "dir.onnx").mkdir()
    assert "directory" in fails(capsys, command, tmp_path / "dir.onnx")


def test_not_a_model(capsys, tmp_path):
    pytest.importorskip("onnx")
    path = tmp_path / "noise.onnx"
    path.write_bytes(bytes(range(256)) * 4)
    assert "not an ONNX model" in fails(capsys, "run", path)
    path = tmp_path / "noise.pt2"
    path.write_bytes(b"PK\x03\x04 nothing")
    pytest.importorskip("torch")
    assert "not an exported torch program" in fails(capsys, "run", path)
    path = tmp_path / "noise.py"
    path.write_text("def broken(:\n")
    assert "not Python" in fails(capsys, "opt", path)
    path.write_text("x = 1\n")
    assert "defines no IRModule" in fails(capsys, "opt", path)
    path.write_text("raise KeyError('boom')\n")
    assert "KeyError" in fails(capsys, "opt", path)
    path = tmp_path / "noise.so"
    path.write_bytes(b"\x7fELF")
    assert "manifest" in fails(capsys, "run", path)


def test_truncated_onnx(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g" * 40, [value], [out])
    data = helper.make_model(graph).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: len(data) // 2])
    assert "not an ONNX model, or truncated" in fails(capsys, "run", path)
    assert onnx.__version__


def test_unknown_target_and_bad_options(capsys, tmp_path):
    path = tmp_path / "m.py"
    path.write_text("x = 1\n")
    for command in ("compile", "run", "bench", "opt", "tune"):
        assert "unknown target 'toaster'" in fails(capsys, command, path, "--target", "toaster")
    assert "NAME=D0" in fails(capsys, "run", path, "--shape", "x:y", status=2)
    assert "No such command" in fails(capsys, "frobnicate", status=2)
    assert "trials" in fails(capsys, "tune", path, "--trials", "0", status=2)
    assert "Missing argument" in fails(capsys, "run", status=2)
    assert "must end in .so or .tar" in fails(capsys, "compile", path, "-o", tmp_path / "m.exe")


def test_unwritable_places(capsys, tmp_path):
    path = tmp_path / "m.py"
    path.write_text("x = 1\n")
    (tmp_path / "file").write_text("")
    assert "cannot use directory" in fails(capsys, "tune", path, "--work-dir", tmp_path / "file" / "logs")
    assert "cannot use directory" in fails(capsys, "compile", path, "-o", tmp_path / "file" / "m.so")
    assert "it is a directory" in fails(capsys, "run", path, "-o", tmp_path)


def test_databases(capsys, tmp_path):
    for args in (["db", "show"], ["report"]):
        assert "no tuning database here" in fails(capsys, *args, tmp_path)
    (tmp_path / "database_workload.json").write_text("[]\n")
    (tmp_path / "database_tuning_record.json").write_text('["nothing"]\n')
    assert "not a file that relaxish wrote" in fails(capsys, "report", tmp_path)


def test_input_checks():
    from relaxish.cli.common import check_input, load_inputs, parse_shapes
    from relaxish.runtime.bytecode.plan import TensorSpec
    from relaxish.support.errors import RelaxishError

    spec = TensorSpec("x", (2, -1), "float32")
    with pytest.raises(RelaxishError, match=r"'x' must have dtype float32, got float64"):
        check_input(spec, np.zeros((2, 3)))
    with pytest.raises(RelaxishError, match=r"'x' must have shape \[2, \?\], got \[3, 3\]"):
        check_input(spec, np.zeros((3, 3), "float32"))
    assert check_input(spec, np.zeros((2, 9), "float32")).shape == (2, 9)
    with pytest.raises(RelaxishError, match="cannot read input"):
        load_inputs(["nothing.npy"], [spec])
    with pytest.raises(RelaxishError, match="no value is given for input 'x'"):
        load_inputs([], [spec])
    assert parse_shapes(["a=1,2,3", "b:4x5", "c="]) == {"a": [1, 2, 3], "b": [4, 5], "c": []}
