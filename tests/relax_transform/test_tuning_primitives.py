"""Pass-level tuning: choices, knobs, traces and candidates."""

from __future__ import annotations

import pytest

from relaxish import relax, transform
from relaxish.ir import assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.relax.transform.tuning_api import (
    Choice,
    JSONDatabase,
    Knob,
    Trace,
    TuningRecord,
    deepcopy_irmodule,
    default_consider_eval_passes,
    default_evaluate,
    default_generate_candidate,
    get_trace,
    select_best_candidate,
)
from relaxish.runtime.registry import register_func
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.target import Target


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
    for perf, candidate in zip((3.0, 1.0, 2.0, 4.0), candidates):
        candidate.set_perf(perf)
    assert select_best_candidate(candidates) is candidates[1]
    assert select_best_candidate([]) is None


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


def test_text():
    knob = Knob("clean", {"yes": Choice("tests.canonicalize"), "no": Choice()})
    assert str(knob).splitlines()[0] == "clean (# of choices: 2)" and "  - yes: " in str(knob)
    trace = Trace(Model, [knob, knob], ["no", "yes"])
    assert str(trace) == "Trace length: 2\n[1] clean: no\n[2] clean: yes\n"
    trace.set_perf(2.0)
    copy = trace.deepcopy()
    assert copy.perf == -1.0 and copy.decisions == ["no", "yes"]
    assert_structural_equal(deepcopy_irmodule(Model), Model)


def test_passes_replace_the_current_trace():
    @transform.module_pass(opt_level=0, traceable=True)
    def choose(mod, context):
        trace = context.pop_trace()
        trace = trace.deepcopy()
        out = trace.add(Knob("clean", {"yes": Choice("tests.canonicalize")}), "yes")
        context.push_trace(trace)
        return out

    with PassContext(trace=Trace(Model), make_traceable=[]) as context:
        (candidate,) = default_consider_eval_passes([Trace(Model)], [choose])
        assert candidate.decisions == ["yes"] and context.get_trace_stack_size() == 1


def test_database(tmp_path):
    database = JSONDatabase(work_dir=str(tmp_path))
    target, other = Target("llvm"), Target("llvm -mcpu=skylake")
    assert not database.has_workload(Model)
    workload = database.commit_workload(Model)
    assert database.has_workload(Model) and database.commit_workload(Model) is workload
    knob = Knob("clean", {"yes": Choice("tests.canonicalize"), "no": Choice()})
    for decision, seconds in (("no", [3.0, 5.0]), ("yes", [1.0])):
        database.commit_tuning_record(workload, target, TuningRecord(Trace(Model, [knob], [decision]), seconds))
    database.commit_measurement_record(workload, target, [2.0])
    database.commit_measurement_record(workload, target, [9.0])
    for each in (database, JSONDatabase(work_dir=str(tmp_path), allow_missing=False)):
        same = each.commit_workload(Model)
        assert each.has_measurement_record(same, target) and not each.has_measurement_record(same, other)
        assert each.get_measurement_record(same, target) == [2.0]
        assert each.has_tuning_record(same, target) and not each.has_tuning_record(same, other)
        assert [r.trace.decisions for r in each.get_top_k(same, target, 5)] == [["yes"], ["no"]]
        assert each.get_top_k(same, target, 1)[0].run_secs == [1.0] and each.get_top_k(same, target, 0) == []
    with pytest.raises(ValueError, match="work_dir"):
        JSONDatabase()


def test_a_bad_line_of_a_database_costs_itself_only(tmp_path):
    database, target = JSONDatabase(work_dir=str(tmp_path)), Target("llvm")
    workload = database.commit_workload(Model)
    knob = Knob("clean", {"yes": Choice("tests.canonicalize"), "no": Choice()})
    database.commit_tuning_record(workload, target, TuningRecord(Trace(Model, [knob], ["no"]), [3.0]))
    database.commit_measurement_record(workload, target, [2.0])
    for name in ("workload", "tuning_record", "measurement_record"):
        path = tmp_path / f"database_{name}.json"
        good = path.read_text()
        bad = ["{", "[]", '["x", "y"]', '[0, "llvm", [NaN]]', '[0, "toaster", [1.0]]', "[" * 5000, '[7, "llvm", [1.0]]']
        # Lines of workloads are numbered: what follows must not take another one's place.
        path.write_text(
            good + "\n".join(bad) + "\n" + good.replace("3.0", "NaN") if name != "workload" else good + "{\n"
        )
    again = JSONDatabase(work_dir=str(tmp_path))
    same = again.commit_workload(Model)
    assert [r.run_secs for r in again.get_top_k(same, target, 9)] == [[3.0]]
    assert again.get_measurement_record(same, target) == [2.0]


def test_evaluation_measures_each_module_once(tmp_path):
    candidates = [Trace(Model), Trace(Model)]
    with PassContext(tuning_api_database=JSONDatabase(work_dir=str(tmp_path))) as context:
        default_evaluate(candidates, "llvm")
        assert context.num_evals == 2
    assert 0 < candidates[0].perf < 1 and candidates[0].perf == candidates[1].perf


def test_the_current_trace_hears_of_passes():
    passes = transform.Sequential([transform.CanonicalizeBindings(), transform.DeadCodeElimination()])
    with PassContext(trace=Trace(Model)) as context:
        after = passes(Model)
        trace = context.get_current_trace()
        assert [knob.name for knob in trace.knobs][-2:] == ["CanonicalizeBindings", "DeadCodeElimination"]
        assert trace.out_mod is after and trace.in_mod is Model and context.get_trace_stack_size() == 1
    with PassContext(trace=Trace(Model), make_traceable=["DeadCodeElimination"]) as context:
        passes(Model)
        assert [knob.name for knob in context.trace.knobs] == ["DeadCodeElimination"]
    with PassContext(trace=Trace(Model), make_traceable=[]) as context:
        passes(Model)
        assert context.trace.size == 0
