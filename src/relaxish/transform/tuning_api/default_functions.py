"""Making candidates out of knobs, trying passes on traces, and picking the best."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.transform import Pass, PassContext
from .primitives import Knob, Trace

__all__ = ["default_consider_eval_passes", "default_generate_candidate", "select_best_candidate"]


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


def default_consider_eval_passes(init_candidates: Sequence[Trace], eval_passes: Sequence[Pass] | None) -> list[Trace]:
    """The traces with every pass run on their modules; a pass that tunes itself may add decisions."""
    candidates = list(init_candidates)
    for each in eval_passes or ():
        context = PassContext.current()
        for candidate in candidates:
            with PassContext(
                opt_level=context.opt_level, config=dict(context.config), trace=candidate, make_traceable=[]
            ):
                candidate.set_out_mod(each(candidate.out_mod))
    return candidates


def select_best_candidate(candidates: Sequence[Trace]) -> Trace:
    """The candidate of the smallest measured time. Raises ValueError if none was measured."""
    measured = [c for c in candidates if c.perf != -1.0]
    if not measured:
        raise ValueError("no candidate has been measured")
    return min(measured, key=lambda c: c.perf)
