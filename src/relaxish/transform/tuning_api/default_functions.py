"""Making candidates out of knobs, trying passes on traces, and picking the best."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.transform import Pass, PassContext, Sequential
from ...runtime.registry import register_func
from .primitives import Knob, Trace

__all__ = ["default_consider_eval_passes", "default_generate_candidate", "select_best_candidate"]


@register_func("relax.tuning_api.default_generate_candidate", override=True)
def default_generate_candidate(
    knobs: Sequence[Knob], trace: Trace, eval_passes: Sequence[Pass] | None = None
) -> list[Trace]:
    """All traces that add one choice of each knob whose condition holds, with ``eval_passes`` run on the results."""
    candidates = [trace]
    for knob in knobs:
        grown = []
        for candidate in candidates:
            for decision, choice in knob.choices.items():
                if choice.check_constr(candidate.out_mod):
                    new = candidate.deepcopy()
                    new.add(knob, decision)
                    grown.append(new)
        candidates = grown
    return default_consider_eval_passes(candidates, eval_passes) if eval_passes else candidates


@register_func("relax.tuning_api.default_consider_eval_passes", override=True)
def default_consider_eval_passes(
    init_candidates: Sequence[Trace], eval_passes: Sequence[Pass] | None = None
) -> list[Trace]:
    """The traces that the passes leave: each runs on a candidate's module with the candidate as the current trace, and
    a pass that tunes itself replaces that by the best trace it finds.
    """
    candidates = list(init_candidates)
    if not eval_passes:
        return candidates
    context = PassContext.current()
    found: list[Trace] = []
    for candidate in candidates:
        context.push_trace(candidate)
        Sequential(list(eval_passes))(candidate.out_mod)
        found.append(context.pop_trace())
    return found


def select_best_candidate(candidates: Sequence[Trace]) -> Trace | None:
    """The candidate of the smallest time, the first of several; None if there is none."""
    return min(candidates, key=lambda c: c.perf, default=None)
