"""Random programs under random schedules: a short run by default, two minutes in the long suite."""

from __future__ import annotations

import random

import pytest

from relaxish.ir import assert_structural_equal
from relaxish.testing.fuzz import STEPS, Case, Failure, fuzz, make_case, random_program, regression_test, shrink
from relaxish.testing.fuzz.cases import check_program, parse
from relaxish.tir.schedule import Schedule


def run(seconds, first):
    report = fuzz(seconds, first)
    assert not report.failures, str(report)
    return report


def test_a_few_cases():
    report = run(6.0, 0)
    assert report.cases > 3


@pytest.mark.slow
def test_two_minutes():
    report = run(120.0, 1_000)
    missing = set(STEPS) - set(report.steps)
    assert len(missing) < 6, f"steps that never took effect: {sorted(missing)}"


def test_cases_are_repeatable():
    one, first, _ = make_case(17)
    two, second, _ = make_case(17)
    assert one.program == two.program
    assert one.trace.as_python() == two.trace.as_python()
    assert first.mod.script() == second.mod.script()


def test_programs_parse():
    for number in range(20):
        func = parse(random_program(random.Random(number)))
        assert_structural_equal(parse(func.script()), func)


def test_a_failure_is_shrunk_to_the_step_that_causes_it():
    program = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] + 1.0
"""
    sch = Schedule(parse(program))
    block = sch.get_block("B")
    (loop,) = sch.get_loops(block)
    outer, inner = sch.split(loop, [None, 3], disable_predication=True)  # runs past the end
    sch.annotate(outer, "note", 1)
    sch.unroll(inner)
    assert check_program(parse(program), sch.mod["main"]) is not None
    small = shrink(Failure(Case(0, program, sch.trace), "interpret", "?"))
    kinds = [inst.kind.name for inst in small.case.trace.insts]
    assert kinds == ["GetBlock", "GetLoops", "Split"]
    text = regression_test(small)
    assert "def test_case_0" in text and "disable_predication=True" in text
    compile(text, "regression", "exec")
