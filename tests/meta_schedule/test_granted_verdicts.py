"""Candidates that the mask of a sketch admits are not verified once more, unless somebody wants to know."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import pytest
from gpu_workloads import CONTEXTS

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.postproc import Postproc, PyPostproc, VerifyGPUCode
from relaxish.meta_schedule.search_strategy import replay
from relaxish.meta_schedule.search_strategy.population import VectorPool
from relaxish.meta_schedule.search_strategy.replay import apply_trace
from relaxish.meta_schedule.testing import te_workload
from relaxish.target import Target


@functools.cache
def pool() -> tuple[Any, VectorPool]:
    tuning = CONTEXTS["matmul"]()
    return tuning, VectorPool(tuning, [s.trace.simplified(True) for s in tuning.generate_design_space()])


def verifier() -> Postproc:
    return next(p for p in pool()[0].space_generator.postprocs if isinstance(p, VerifyGPUCode))


def traces(valid: bool) -> list[Any]:
    _, found = pool()
    sketch = found.sketches[0]
    rows = sketch.table.sample(np.random.default_rng(3), 256)
    rows = rows[sketch.variants[()].valid(rows) == valid]
    return [sketch.table.to_trace(row, ()) for row in rows[:3]]


def test_the_mask_is_asked_for_each_trace() -> None:
    _, found = pool()
    assert [found.granted(t) for t in traces(True)] == [(verifier(),)] * 3
    assert [found.granted(t) for t in traces(False)] == [()] * 3


def test_a_trace_with_open_decisions_is_not_admitted() -> None:
    """Random rows of a sketch leave compute locations to be sampled when they are replayed."""
    _, found = pool()
    trace = traces(True)[0]
    first = next(inst for inst in trace.insts if inst in trace.decisions)
    del trace.decisions[first]
    assert not found.granted(trace)


def test_a_cpu_search_with_compute_locations_goes_on() -> None:
    """Its candidates have no verdict to be granted, and locations that are sampled only when they are replayed."""
    func = te.create_prim_func(te_workload.conv2d_nhwc(1, 16, 16, 8, 16, 3, 1, 1))
    tuning = ms.TuneContext(
        func,
        target=Target("llvm -num-cores=1"),
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        rand_state=3,
    )
    found = VectorPool(tuning, [s.trace.simplified(True) for s in tuning.generate_design_space()])
    located = [s for s in found.sketches if s.table.locations]
    assert located
    for sketch in located:
        row = sketch.table.sample(np.random.default_rng(1), 1)[0]
        trace = sketch.table.to_trace(row, ())
        assert sketch.table.from_trace(trace) is None and not found.granted(trace)


def test_programs_of_other_postprocs_are_always_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(PyPostproc):
        def apply(self, sch: Any) -> bool:
            return True

    tuning, found = pool()
    monkeypatch.setattr(tuning.space_generator, "postprocs", [*tuning.space_generator.postprocs, Own()])
    assert not found.granted(traces(True)[0])


def test_granted_postprocs_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning, _ = pool()
    asked: list[Postproc] = []
    monkeypatch.setattr(VerifyGPUCode, "apply", lambda self, sch: bool(asked.append(self)))
    monkeypatch.setattr(replay, "CHECK", False)
    trace = traces(True)[0]
    assert apply_trace(tuning, trace, 1, None, (verifier(),)) is not None
    assert not asked
    failures: dict[str, int] = {}
    assert apply_trace(tuning, trace, 1, failures) is None
    assert len(asked) == 1
    assert failures == {"VerifyGPUCode": 1}


def test_a_disagreement_is_reported_when_checking(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tuning, _ = pool()
    monkeypatch.setattr(VerifyGPUCode, "apply", lambda self, sch: False)
    monkeypatch.setattr(replay, "CHECK", True)
    monkeypatch.setattr(tuning, "logger", logging.getLogger("granted"))
    with caplog.at_level(logging.WARNING, "granted"):
        assert apply_trace(tuning, traces(True)[0], 1, None, (verifier(),)) is None
    assert "VerifyGPUCode refuses what it was known to admit" in caplog.text
