"""Fewer steps that still fail, and the regression test they make."""

from __future__ import annotations

from typing import Any

from ...support.errors import ScheduleError
from ...tir.schedule import Instruction, Schedule, Trace
from .cases import Case, Failure, check_program, parse

__all__ = ["regression_test", "shrink"]


def _without(trace: Trace, index: int) -> Trace:
    """The trace without one instruction and all that use what it gave."""
    gone: set[Any] = set()
    kept: list[Instruction] = []
    for position, inst in enumerate(trace.insts):
        if position == index or _uses(inst.inputs, gone):
            gone.update(inst.outputs)
        else:
            kept.append(inst)
    known = set(kept)
    return Trace(kept, {i: d for i, d in trace.decisions.items() if i in known})


def _uses(value: Any, gone: set[Any]) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_uses(v, gone) for v in value)
    try:
        return value in gone
    except TypeError:
        return False


def _still_fails(case: Case, trace: Trace, stage: str) -> str | None:
    """The reason when the trace fails at the same stage."""
    before = parse(case.program)
    sch = Schedule(before, debug_mask="all")
    try:
        trace.apply_to_schedule(sch)
    except ScheduleError:
        return None
    except Exception as err:  # the very kind of failure that is looked for
        return f"{type(err).__name__}: {err}" if stage == "schedule" else None
    if stage == "schedule":
        return None
    found = check_program(before, sch.mod["main"], case.number)
    return found[1] if found is not None and found[0] == stage else None


def shrink(failure: Failure, rounds: int = 4) -> Failure:
    """Drop steps as long as the rest fails in the same place."""
    if failure.stage not in ("interpret", "compile"):
        return failure
    case, best, reason = failure.case, failure.case.trace, failure.reason
    for _ in range(rounds):
        before = len(best.insts)
        for index in reversed(range(len(best.insts))):
            if index >= len(best.insts):
                continue
            smaller = _without(best, index).simplified(remove_postproc=False)
            if len(smaller.insts) >= len(best.insts):
                continue
            why = _still_fails(case, smaller, failure.stage)
            if why is not None:
                best, reason = smaller, why
        if len(best.insts) == before:
            break
    return Failure(Case(case.number, case.program, best, case.steps), failure.stage, reason)


def regression_test(failure: Failure) -> str:
    """A test file that holds the failing program and schedule."""
    program = "\n".join("    " + line for line in failure.case.program.rstrip().splitlines())
    lines = "\n".join("    " + line for line in failure.case.trace.as_python())
    intrinsics = "fuzz." in lines
    imports = "from relaxish.testing.fuzz.intrinsics import register_intrinsics\n" if intrinsics else ""
    register = "    register_intrinsics()\n" if intrinsics else ""
    return f'''"""Found by the fuzzer (case {failure.case.number}), at '{failure.stage}': {failure.reason.splitlines()[0]}"""

from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
{imports}from relaxish.tir.schedule import Schedule


def test_case_{failure.case.number}():
{program}

{register}    sch = Schedule(main, debug_mask="all")
{lines}
    assert check_program(main, sch.mod["main"], {failure.case.number}) is None
'''
