"""The fuzzer of torch programs: a few programs each time, many when there is time, and proof that it can fail."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from relaxish.frontend.torch import exported_program  # noqa: E402
from relaxish.testing.fuzz import torch_programs  # noqa: E402
from relaxish.testing.fuzz.torch_programs import TorchProgram, check_program, make_program, shrink_program  # noqa: E402


def test_programs_are_determined_by_their_number():
    assert make_program(5) == make_program(5) != make_program(6)


def test_a_few_programs():
    compared, _, failures = torch_programs.run(900_000, 6, 60.0, lambda failure: None)
    assert not failures, "\n".join(map(str, failures))
    assert compared >= 3


@pytest.mark.slow
def test_many_programs():
    compared, _, failures = torch_programs.run(910_000, 150, 600.0, lambda failure: None)
    assert not failures, "\n".join(map(str, failures))
    assert compared >= 50


def test_dropped_writes_are_found(monkeypatch):
    monkeypatch.setattr(exported_program, "functional", lambda program, known=(): program)
    program = TorchProgram(0, ("t0 = a * 2", "t1 = b + 1", "t0[:, 1].add_(b[:, 0])"), ("t1", "t0"))
    failure = check_program(program)
    assert failure is not None and failure.stage == "wrong"
    assert shrink_program(failure).program.statements == ("t0 = a * 2", "t0[:, 1].add_(b[:, 0])")
