"""The fuzzers there are, each as a :class:`~relaxish.testing.fuzz.runner.Kind`."""

from __future__ import annotations

from collections.abc import Callable

from .runner import Kind, Outcome

__all__ = ["KINDS", "schedules"]


def schedules(steps: int = 12) -> Kind:
    """Random programs under random schedules of ``steps`` steps."""
    from .cases import check_case, make_case, warm_up
    from .shrink import regression_test, shrink

    def attempt(number: int, *, alone: bool = False) -> Outcome:
        case, sch, failure = make_case(number, steps)
        if failure is None and sch is not None:
            failure = check_case(case, sch, apart=alone)
        done = tuple(case.steps)
        if failure is None:
            return Outcome("right", steps=done)
        if not alone:
            return Outcome(failure.stage, str(failure), steps=done)
        failure = shrink(failure)
        return Outcome(failure.stage, str(failure), regression_test(failure), done)

    return Kind("cases", attempt, lambda number: attempt(number, alone=True), warm_up)


def graphs() -> Kind:
    """Random ONNX graphs by every route."""
    from .differential import GraphFailure, check_graph, make_graph_case, regression_test, shrink_graph

    def attempt(number: int, *, alone: bool = False) -> Outcome:
        found = check_graph(make_graph_case(number), apart=alone)
        if not isinstance(found, GraphFailure):
            return Outcome(found)
        if not alone:
            return Outcome(found.stage, str(found))
        found = shrink_graph(found)
        return Outcome(found.stage, str(found), regression_test(found))

    def warm_up() -> None:
        import onnxruntime  # noqa: F401

        from ... import driver, pipeline, transform  # noqa: F401
        from ...frontend.onnx import from_onnx  # noqa: F401

    return Kind("graphs", attempt, lambda number: attempt(number, alone=True), warm_up)


def operators() -> Kind:
    """Single ONNX operators with special values."""
    from .onnx_operators import operator_case, operator_names

    names = operator_names()

    def attempt(number: int) -> Outcome:
        from .onnx_judges import check_operator

        name, seed = names[number % len(names)], number // len(names)
        case = operator_case(name, seed)
        verdict = check_operator(case)
        if verdict.status in ("right", "illegal"):
            return Outcome(verdict.status)
        return Outcome(verdict.status, f"{verdict.status}: {verdict.reason}\n{case}", _operator_test(name, seed))

    def warm_up() -> None:
        import onnxruntime  # noqa: F401

        from ... import driver  # noqa: F401
        from ...frontend.onnx import from_onnx  # noqa: F401

    return Kind("operators", attempt, attempt, warm_up)


def _operator_test(name: str, seed: int) -> str:
    """A test of one case of an operator; the case is what its name and number make."""
    return f'''"""Found by the fuzzer of single operators ({name}, number {seed})."""

from relaxish.testing.fuzz.onnx_judges import check_operator
from relaxish.testing.fuzz.onnx_operators import operator_case


def test_{"".join(c if c.isalnum() else "_" for c in name.lower())}_{seed}():
    verdict = check_operator(operator_case({name!r}, {seed}))
    assert verdict.status in ("right", "illegal"), verdict.reason
'''


def torch_programs() -> Kind:
    """Torch programs with views and writes in place."""
    from .torch_programs import Refused, check_program, make_program, regression_test, shrink_program

    def attempt(number: int, *, alone: bool = False) -> Outcome:
        try:
            failure = check_program(make_program(number))
        except Refused:
            return Outcome("refused")
        if failure is None:
            return Outcome("compared")
        if not alone:
            return Outcome(failure.stage, str(failure))
        failure = shrink_program(failure)
        return Outcome(failure.stage, str(failure), regression_test(failure))

    def warm_up() -> None:
        import torch  # noqa: F401

        from ... import driver  # noqa: F401
        from ...frontend.torch import from_exported_program  # noqa: F401

    return Kind("torch programs", attempt, lambda number: attempt(number, alone=True), warm_up)


def hostile_calls() -> Kind:
    """Calls of operators whose indices come from data, valid and hostile."""
    from .hostile import make_hostile_case, run_hostile_case

    def attempt(number: int) -> Outcome:
        name = make_hostile_case(number).name
        try:
            wrong = run_hostile_case(number)
        except Exception as err:  # whatever is raised is a finding
            wrong = [f"{type(err).__name__}: {err}"]
        return Outcome("wrong", f"case {number} ({name}): {wrong}") if wrong else Outcome("right")

    def warm_up() -> None:
        from ... import driver  # noqa: F401

    return Kind("hostile cases", attempt, attempt, warm_up)


KINDS: dict[str, Callable[[], Kind]] = {
    "schedule": schedules,
    "onnx": graphs,
    "onnx-operator": operators,
    "torch": torch_programs,
    "hostile": hostile_calls,
}
