"""Pass-level tuning: choices, knobs, traces and candidates."""
# ruff: noqa: N805

from __future__ import annotations

import pytest

from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.relax.transform.tuning_api import (
    Choice,
    Knob,
    Trace,
    default_generate_candidate,
    get_trace,
    select_best_candidate,
)
from relaxish.runtime.registry import register_func
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        z = y
        return z


@register_func("tests.canonicalize", override=True)
def _canonicalize(mod):
    return transform.CanonicalizeBindings()(mod)


@register_func("tests.functions_at_most", override=True)
def _at_most(mod, count):
    return len(mod.functions) <= count


def test_choice():
    assert_structural_equal(Choice().apply_transform_func(Model), Model)
    assert Choice().check_constr(Model)
    choice = Choice("tests.canonicalize", [], "tests.functions_at_most", [0])
    assert not choice.check_constr(Model)
    again = Choice.from_json(choice.as_json())
    assert_structural_equal(again.apply_transform_func(Model), transform.CanonicalizeBindings()(Model))


def test_knob_and_trace():
    knob = Knob("clean", {"yes": Choice("tests.canonicalize"), "no": Choice()})
    assert knob.verify("yes") and not knob.verify("maybe")
    trace = Trace(Model)
    assert trace.size == 0 and get_trace(trace) is trace
    with pytest.raises(ValueError, match="maybe"):
        trace.add(knob, "maybe")
    trace.add(knob, "yes")
    assert trace.verify() and trace.decisions == ["yes"]
    assert_structural_equal(trace.out_mod, transform.CanonicalizeBindings()(Model))
    again = Trace.from_json(trace.as_json())
    assert_structural_equal(again.out_mod, trace.out_mod)
    with pytest.raises(ValueError, match="module"):
        Trace.from_json(trace.as_json(include_irmod=False))
    assert get_trace(Model["main"]).in_mod["main"] is not None
    with pytest.raises(ValueError):
        get_trace(3)


def test_candidates():
    knobs = [
        Knob("clean", [Choice("tests.canonicalize"), Choice()]),
        Knob("never", [Choice(None, None, "tests.functions_at_most", [0]), Choice(), Choice()]),
    ]
    candidates = default_generate_candidate(knobs, Trace(Model))
    assert [c.decisions for c in candidates] == [["0", "1"], ["0", "2"], ["1", "1"], ["1", "2"]]
    for perf, candidate in zip((3.0, 1.0, 2.0), candidates):
        candidate.set_perf(perf)
    assert select_best_candidate(candidates) is candidates[1]
    with pytest.raises(ValueError):
        select_best_candidate([Trace(Model)])


def test_trace_of_a_pass_context():
    trace = Trace(Model)
    with PassContext(trace=trace) as context:
        assert context.get_current_trace() is trace
        context.push_trace(Trace(Model))
        assert context.get_trace_stack_size() == 2
        context.pop_trace()
        assert context.get_current_trace() is trace


def test_relax_is_imported():
    assert relax.transform.tuning_api.Trace is Trace
