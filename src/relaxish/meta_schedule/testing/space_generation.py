"""Sketches of a program, and comparing them with expected ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import IRModule, structural_equal
from ...target import Target
from ...tir import PrimFunc, Schedule
from ...tir.schedule import Trace
from ..schedule_rule import ScheduleRule
from ..tune_context import TuneContext

__all__ = ["check_sketches", "generate_design_space", "get_rules", "print_sketches", "structural_equal_no_gs"]


def get_rules(kind: str, types: type | tuple[type, ...]) -> list[ScheduleRule]:
    """The default rules of a kind that are of the given types."""
    return [rule for rule in ScheduleRule.create(kind) if isinstance(rule, types)]


def generate_design_space(
    kind: str,
    mod: IRModule | PrimFunc,
    target: Target,
    types: type[ScheduleRule] | tuple[type[ScheduleRule], ...],
    sch_rules: Sequence[ScheduleRule] | None = None,
) -> list[Schedule]:
    """The sketches some of the rules give."""
    from ..space_generator import PostOrderApply

    rules = get_rules(kind, types) if sch_rules is None else list(sch_rules)
    context = TuneContext(
        mod,
        target=target,
        space_generator=PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={}),
        task_name="test",
    )
    return context.generate_design_space()


def structural_equal_no_gs(mod1: IRModule, mod2: IRModule) -> bool:
    """Structural equality apart from the functions' symbols."""

    def plain(mod: IRModule) -> IRModule:
        functions = {}
        for gv, func in mod.functions.items():
            name = "main" if len(mod.functions) == 1 else gv.name_hint
            functions[name] = func.without_attr("global_symbol") if isinstance(func, PrimFunc) else func
        return IRModule(functions)

    return structural_equal(plain(mod1), plain(mod2))


def check_sketches(
    mod: IRModule | PrimFunc,
    sketches: Sequence[Schedule],
    expected_mods: Sequence[Any],
    expected_decisions: Sequence[Sequence[tuple[str, Any]]],
    *,
    debug_mask: str | int = "all",
) -> None:
    """Demand that, with the given decisions, the sketches are the expected modules, in any order."""
    if len(sketches) != len(expected_mods):
        raise AssertionError(f"{len(sketches)} sketches, {len(expected_mods)} expected")
    expected = [x if isinstance(x, IRModule) else IRModule({"main": x}) for x in expected_mods]
    left = list(sketches)
    for number, (want, decisions) in enumerate(zip(expected, expected_decisions, strict=True)):
        for sketch in left:
            assert sketch.trace is not None
            trace = _with_decisions(sketch.trace, decisions)
            if trace is None:
                continue
            sch = Schedule(mod, debug_mask=debug_mask)
            trace.apply_to_schedule(sch, remove_postproc=False)
            if structural_equal_no_gs(want, sch.mod):
                left.remove(sketch)
                break
        else:
            raise AssertionError(f"expected sketch #{number} is not among the generated ones")


def _with_decisions(trace: Trace, decisions: Sequence[tuple[str, Any]]) -> Trace | None:
    sampled = [i for i in trace.insts if i in trace.decisions]
    if len(sampled) != len(decisions):
        return None
    if any(i.kind.name != kind for i, (kind, _) in zip(sampled, decisions, strict=True)):
        return None
    return Trace(trace.insts, {i: d for i, (_, d) in zip(sampled, decisions, strict=True)})


def print_sketches(sketches: Sequence[Schedule]) -> None:
    """Print modules and decisions, as a start for a test."""
    for number, sketch in enumerate(sketches):
        print(f"#### sketch {number}")
        sketch.mod.show()
        assert sketch.trace is not None
        print([(i.kind.name, sketch.trace.decisions[i]) for i in sketch.trace.insts if i in sketch.trace.decisions])
