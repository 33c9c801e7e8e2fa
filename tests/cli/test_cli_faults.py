"""All commands times all faults: one clear line on standard error, a non-zero status, no traceback, nothing on stdout."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from relaxish import cli
from relaxish.support.journal import Journal

SCRIPT = """
from relaxish.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y
"""

MODEL_COMMANDS = {
    "tune": ["tune", "{model}", "--work-dir", "{out}/logs", "--trials", "1"],
    "compile": ["compile", "{model}", "-o", "{out}/m.so"],
    "run": ["run", "{model}"],
    "bench": ["bench", "{model}", "--seconds", "0"],
    "opt": ["opt", "{model}"],
}
DATABASE_COMMANDS = {
    "db show": ["db", "show", "{db}"],
    "db best": ["db", "best", "{db}", "kernel"],
    "db prune": ["db", "prune", "{db}", "{out}/pruned"],
    "db merge": ["db", "merge", "{out}/merged", "{db}"],
    "report": ["report", "{db}", "-o", "{out}/r.html"],
    "compile --db": ["compile", "{good}", "-o", "{out}/m.so", "--db", "{db}"],
    "run --db": ["run", "{good}", "--db", "{db}"],
    "bench --db": ["bench", "{good}", "--seconds", "0", "--db", "{db}"],
}


def onnx_model(*nodes):
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = [helper.make_node(op, ["x"], ["y"], **attrs) for op, attrs in nodes]
    return helper.make_model(helper.make_graph(made, "g" * 64, [value], [out])).SerializeToString()


def _onnx_unknown(folder):
    (folder / "m.onnx").write_bytes(onnx_model(("NoSuchOperator", {})))
    return folder / "m.onnx"


def _onnx_truncated(folder):
    data = onnx_model(("Relu", {}))
    (folder / "m.onnx").write_bytes(data[: len(data) // 2])
    return folder / "m.onnx"


def _onnx_bad_attribute(folder):
    (folder / "m.onnx").write_bytes(onnx_model(("Transpose", {"perm": [0, 5]})))
    return folder / "m.onnx"


def _noise(name):
    def make(folder):
        (folder / name).write_bytes(bytes(range(256)) * 8)
        return folder / name

    return make


def _text(name, content):
    def make(folder):
        (folder / name).write_text(content)
        return folder / name

    return make


def _cut_pt2(folder):
    import zipfile

    whole = folder / "whole.zip"
    with zipfile.ZipFile(whole, "w") as file:
        file.writestr("archive/data", b"x" * 2000)
    (folder / "m.pt2").write_bytes(whole.read_bytes()[:900])
    return folder / "m.pt2"


def _wrong_pt2(folder):
    import zipfile

    with zipfile.ZipFile(folder / "m.pt2", "w") as file:
        file.writestr("archive/data", b"x" * 2000)
    return folder / "m.pt2"


def _pickled_pt2(folder):
    import pickle
    import zipfile

    with zipfile.ZipFile(folder / "m.pt2", "w") as file:
        file.writestr("archive/data/constants/custom_obj_0", pickle.dumps(object()))
    return folder / "m.pt2"


def _directory(folder):
    (folder / "dir.onnx").mkdir()
    return folder / "dir.onnx"


MODEL_FAULTS = {
    "missing": (lambda folder: folder / "no.onnx", "no such file"),
    "missing script": (lambda folder: folder / "no.py", "no such file"),
    "empty": (_text("m.onnx", ""), "the file is empty"),
    "empty script": (_text("m.py", ""), "the file is empty"),
    "directory": (_directory, "is a directory"),
    "unknown extension": (_text("m.docx", "x"), "not a model file"),
    "no extension": (_text("model", "x"), "not a model file"),
    "noise onnx": (_noise("m.onnx"), "not an ONNX model"),
    "text onnx": (_text("m.onnx", "hello"), "not an ONNX model"),
    "truncated onnx": (_onnx_truncated, "not an ONNX model, or truncated"),
    "unknown operator": (_onnx_unknown, "NoSuchOperator"),
    "bad attribute": (_onnx_bad_attribute, "m.onnx"),
    "noise pt2": (_noise("m.pt2"), "not an exported torch program"),
    "truncated pt2": (_cut_pt2, "not an exported torch program"),
    "wrong pt2": (_wrong_pt2, "not an exported torch program"),
    "pickled pt2": (_pickled_pt2, "--trust-pickle"),
    "noise script": (_noise("m.py"), "not Python"),
    "wrong syntax": (_text("m.py", "def broken(:\n"), "not Python"),
    "raises": (_text("m.py", "raise KeyError('boom')\n"), "KeyError"),
    "exits": (_text("m.py", "import sys\nsys.exit(0)\n"), "SystemExit"),
    "imports nothing there": (_text("m.py", "import no_such_module_xyz\n"), "no_such_module_xyz"),
    "no module": (_text("m.py", "x = 1\n"), "defines no IRModule"),
    "wrong program": (_text("m.py", SCRIPT.replace("R.nn.relu(x)", "R.matmul(x, x)")), "atmul"),
}
COMPILED_FAULTS = {
    "noise so": (_noise("m.so"), "manifest"),
    "noise tar": (_noise("m.tar"), "m.tar"),
    "empty so": (_text("m.so", ""), "the file is empty"),
}


@pytest.fixture
def fail(capsys, tmp_path, monkeypatch):
    """Runs a command that must fail; its message."""
    (tmp_path / "out").mkdir()
    (tmp_path / "good.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)

    def run(words, status=1, **names):
        places = {"out": tmp_path / "out", "good": tmp_path / "good.py", **names}
        with pytest.raises(SystemExit) as caught:
            cli.main([w.format(**places) for w in words])
        captured = capsys.readouterr()
        assert caught.value.code == status, (words, captured.err)
        assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
        assert "Traceback" not in captured.err and captured.out == ""
        return captured.err

    return run


@pytest.mark.parametrize("fault", MODEL_FAULTS)
@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_bad_models(fail, tmp_path, command, fault):
    make, message = MODEL_FAULTS[fault]
    if ".onnx" in str(fault) or "onnx" in fault:
        pytest.importorskip("onnx")
    if "pt2" in fault:
        pytest.importorskip("torch")
    assert message in fail(MODEL_COMMANDS[command], model=make(tmp_path))


@pytest.mark.parametrize("fault", COMPILED_FAULTS)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_bad_compiled_models(fail, tmp_path, command, fault):
    make, message = COMPILED_FAULTS[fault]
    assert message in fail(MODEL_COMMANDS[command], model=make(tmp_path))


# ---- databases


def _no_database(folder):
    folder.mkdir()


def _file_instead(folder):
    folder.write_text("x")


def _only_workloads(folder):
    folder.mkdir()
    Journal(folder / "database_workload.json").append({"hash": "0" * 16, "script": ""})


def _foreign_lines(folder):
    folder.mkdir()
    (folder / "database_workload.json").write_text("[]\n")
    (folder / "database_tuning_record.json").write_text('["nothing"]\n')


def _binary(folder):
    folder.mkdir()
    for name in ("database_workload.json", "database_tuning_record.json"):
        (folder / name).write_bytes(bytes(range(256)) * 4)


DATABASE_FAULTS = {
    "missing": lambda folder: None,
    "empty directory": _no_database,
    "a file": _file_instead,
    "no records": _only_workloads,
    "other lines": _foreign_lines,
    "binary": _binary,
}


@pytest.mark.parametrize("fault", DATABASE_FAULTS)
@pytest.mark.parametrize("command", DATABASE_COMMANDS)
def test_bad_databases(fail, tmp_path, command, fault):
    folder = tmp_path / "db"
    DATABASE_FAULTS[fault](folder)
    assert str(folder) in fail(DATABASE_COMMANDS[command], db=folder)


# ---- options and places


OPTION_FAULTS = [
    (["--shape", "x:y"], "NAME=D0", 2, ("tune", "compile", "run", "bench", "opt")),
    (["--shape", "x=-3"], "NAME=D0", 2, ("run",)),
    (["--target", "toaster"], "unknown target 'toaster'", 1, ("tune", "compile", "run", "bench", "opt")),
    (["--target", ""], "unknown target", 1, ("tune", "compile", "run", "bench", "opt")),
    (["--target", "cuda"], "cuda", 1, ("run",)),
    (["--target", "hexagon"], "hexagon", 1, ("compile", "run")),
    (["--no-such-option"], "No such option", 2, ("tune", "compile", "run", "bench", "opt")),
    (["--seed", "many"], "'many' is not a valid integer", 2, ("tune", "run", "bench")),
    (["--seed", "-1"], "-1", 2, ("tune", "run", "bench")),
    (["--trials", "0"], "0", 2, ("tune",)),
    (["--minutes", "-2"], "-2", 2, ("tune",)),
    (["--batch", "0"], "0", 2, ("tune",)),
    (["--op", "no_such_kernel"], "No tasks to tune", 1, ("tune",)),
    (["--seconds", "soon"], "not a valid float", 2, ("bench",)),
    (["--repeat", "-4"], "-4", 2, ("run",)),
    (["--function", "nope"], "no function 'nope'", 1, ("run",)),
    (["--pass", "NoSuchPass"], "unknown pass 'NoSuchPass'", 1, ("opt",)),
    (["--pass", "legalizeops"], "did you mean LegalizeOps", 1, ("opt",)),
    (["--pass", "LegalizeOps(x"], "literals", 1, ("opt",)),
    (["--pass", "LegalizeOps(1,2,3,4)"], "LegalizeOps", 1, ("opt",)),
    (["--input", "missing.npy"], "cannot read input", 1, ("run", "bench")),
    (["--input", "{noise}"], "cannot read input", 1, ("run", "bench")),
    (["--input", "y={array}"], "no input 'y'", 1, ("run", "bench")),
    (["--input", "{array}", "--input", "{array}"], "2 inputs are given", 1, ("run",)),
    (["--input", "{narrow}"], "must have shape [4, 8], got [4, 3]", 1, ("run", "bench")),
    (["--input", "{double}"], "must have dtype float32, got float64", 1, ("run", "bench")),
    (["--input", "{pickled}"], "cannot read input", 1, ("run",)),
    (["--json", "{file}/x.json"], "cannot use directory", 1, ("bench",)),
    (["-o", "{file}/x.so"], "cannot use directory", 1, ("compile", "run", "opt")),
    (["-o", "{out}"], "directory", 1, ("compile", "run", "opt")),
    (["-o", "{out}/m.exe"], "must end in .so or .tar", 1, ("compile",)),
    (["--work-dir", "{file}/logs"], "cannot use directory", 1, ("tune",)),
]  # fmt: skip


def _files(folder: Path) -> dict[str, Path]:
    made = {n: folder / f"{n}.npy" for n in ("array", "narrow", "double", "noise", "pickled")} | {
        "file": folder / "file"
    }
    np.save(made["array"], np.zeros((4, 8), "float32"))
    np.save(made["narrow"], np.zeros((4, 3), "float32"))
    np.save(made["double"], np.zeros((4, 8)))
    np.save(made["pickled"], np.array([{}], dtype=object), allow_pickle=True)
    made["noise"].write_bytes(b"\x93NUMPY nothing")
    made["file"].write_text("")
    return made


@pytest.mark.parametrize(
    "command, words, message, status",
    [(c, w, m, s) for w, m, s, commands in OPTION_FAULTS for c in commands],
    ids=lambda v: " ".join(v) if isinstance(v, list) else str(v),
)
def test_bad_options(fail, tmp_path, command, words, message, status):
    base = MODEL_COMMANDS[command]
    if "-o" in words and "-o" in base:
        base = base[: base.index("-o")]
    assert message in fail([*base, *words], status, model=tmp_path / "good.py", **_files(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", ["tune", "compile"])
def test_places_without_permission(fail, tmp_path, command):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    message = fail(MODEL_COMMANDS[command], model=tmp_path / "good.py", out=locked)
    assert "permission denied" in message.lower()


@pytest.mark.parametrize(
    "words, message",
    [
        (["frobnicate"], "No such command"),
        (["run"], "Missing argument"),
        (["db", "nothing"], "No such command"),
        (["db", "best"], "Missing argument"),
        (["demo", "--seconds", "-1"], "-1"),
        (["info", "more"], "unexpected extra argument"),
    ],
)
def test_bad_command_lines(fail, words, message):
    assert message in fail(words, 2)


def test_the_demo_needs_a_place(fail, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot use directory" in fail(["demo", "--out", str(tmp_path / "file" / "out")])
    assert "unknown target" in fail(["demo", "--target", "toaster"])
