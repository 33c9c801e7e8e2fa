"""Scripts in the style of users of Apache TVM v0.20 run unchanged by ``python -m relaxish.compat``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relaxish
from relaxish import compat

SCRIPTS = Path(__file__).parent / "scripts"
LONG = {"llm_paged_cache", "onnx_and_torch", "rpc_runner", "tune_conv_net"}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(
    "name",
    [pytest.param(p.stem, marks=[pytest.mark.slow] if p.stem in LONG else []) for p in sorted(SCRIPTS.glob("*.py"))],
)
def test_script(name: str, in_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "onnx_and_torch":
        pytest.importorskip("torch")
        pytest.importorskip("onnx")
    with compat.installed():
        assert compat.main([str(SCRIPTS / f"{name}.py")]) == 0
    assert capsys.readouterr().out.strip().splitlines()


def test_the_names_are_the_very_modules() -> None:
    with compat.installed():
        import tvm
        import tvm.relax.op as op
        import tvm.relax.op.nn
        from tvm.relax.dpl.pattern import is_op, wildcard
        from tvm.script import ir as I
        from tvm.script.parser import relax as R

        assert tvm.__version__ == "0.20.0" != relaxish.__version__
        assert tvm.relax is relaxish.relax and op is relaxish.relax.op and tvm.relax.op.nn is relaxish.relax.op.nn
        assert I is relaxish.script.ir and R is relaxish.script.relax or R.function is relaxish.script.relax.function
        assert is_op is relaxish.relax.dpl.is_op and wildcard is relaxish.relax.dpl.wildcard
        # Importing by another name leaves a module's own name and place alone.
        assert op.__name__ == op.__spec__.name == "relaxish.op"
        assert tvm.target.Target("llvm") == relaxish.target.Target("llvm")
        with pytest.raises(ModuleNotFoundError, match="tvm.nothing_of_the_kind"):
            import tvm.nothing_of_the_kind
        with pytest.raises(AttributeError):
            tvm.nothing_of_the_kind
    assert "tvm" not in sys.modules and not [n for n in sys.modules if n.startswith("tvm.")]


def test_the_real_package_is_not_mixed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", type(sys)("tvm"))
    with pytest.raises(relaxish.support.errors.RelaxishError, match="imported already"):
        compat.install()


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relaxish.compat", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_command_line(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import tvm\nNAME = tvm.__name__\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, helper\nprint(helper.NAME, __name__, *sys.argv[1:])\nsys.exit(int(sys.argv[1]))\n")
    done = _run(str(script), "3", "--flag", cwd=tmp_path.parent)
    assert (done.returncode, done.stdout.split()) == (3, ["tvm", "__main__", "3", "--flag"]), done.stderr
    done = _run("-m", "script", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["tvm", "__main__", "0"]), done.stderr


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert compat.main([]) == 2
    assert compat.main(["--help"]) == 0
    assert compat.main(["/no/such/script.py"]) == 2
    shown = capsys.readouterr()
    assert "usage" in shown.out and "there is no script" in shown.err
    assert "tvm" not in sys.modules
