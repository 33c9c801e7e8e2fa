"""The fuzzer of torch programs: a few programs each time, many when there is time, and proof that it can fail."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from relaxish.frontend.torch import exported_program  # noqa: E402
from relaxish.testing.fuzz.torch_programs import (  # noqa: E402
    Refused,
    TorchProgram,
    check_program,
    make_program,
    shrink_program,
)


def test_programs_are_determined_by_their_number():
    assert make_program(5) == make_program(5) != make_program(6)


def compared(numbers) -> int:
    """How many programs there was something to compare of; none may fail."""
    count = 0
    for number in numbers:
        try:
            failure = check_program(make_program(number))
        except Refused:
            continue
        assert failure is None, str(shrink_program(failure))
        count += 1
    return count


def test_a_few_programs():
    assert compared(range(900_000, 900_006)) >= 3


@pytest.mark.slow
def test_many_programs():
    assert compared(range(910_000, 910_150)) >= 50


def test_dropped_writes_are_found(monkeypatch):
    monkeypatch.setattr(exported_program, "functional", lambda program, known=(): program)
    program = TorchProgram(0, ("t0 = a * 2", "t1 = b + 1", "t0[:, 1].add_(b[:, 0])"), ("t1", "t0"))
    failure = check_program(program)
    assert failure is not None and failure.stage == "wrong"
    assert shrink_program(failure).program.statements == ("t0 = a * 2", "t0[:, 1].add_(b[:, 0])")
