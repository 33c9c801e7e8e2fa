"""Mutators of users in the vectorised search: by columns, or by traces where they have no column form."""

import numpy as np
import pytest
from search_workloads import WORKLOADS
from test_vector_search import Trained, context_of

from relaxish import meta_schedule as ms
from relaxish.meta_schedule.search_strategy.population import VectorPool


class ByTraces(ms.mutator.PyMutator):
    """Sets every sampled unroll depth to the last choice, in traces."""

    def __init__(self):
        self.calls = 0

    def apply(self, trace, rand=None):
        self.calls += 1
        unroll = [i for i in trace.decisions if i.kind.name == "SampleCategorical"]
        for inst in unroll:
            trace = trace.with_decision(inst, LAST, remove_postproc=True)
        return trace


class ByColumns(ByTraces):
    """The same on columns."""

    def on_columns(self, columns, rng, rows):
        rows[:, columns.categories[columns.unroll].at] = LAST
        return True


class NotOfTheSketch(ByTraces):
    """Drops an instruction, so that the trace is of another sketch."""

    def apply(self, trace, rand=None):
        self.calls += 1
        last = trace.insts[-1]
        return type(trace)(trace.insts[:-1], {k: v for k, v in trace.decisions.items() if k is not last})


LAST = 3


class Picky(ms.postproc.PyPostproc):
    """Refuses every other program that it is shown."""

    def __init__(self):
        self.refused = self.admitted = 0

    def apply(self, sch):
        fine = self.admitted < self.refused
        self.admitted += fine
        self.refused += not fine
        return fine


def pool_with(mutator, *postprocs):
    context = context_of(WORKLOADS["matmul"]())
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    context.space_generator.mutator_probs = {mutator: 1.0}
    context.space_generator.postprocs = [*context.space_generator.postprocs, *postprocs]
    pool = VectorPool(context, spaces)
    assert pool.usable() and not pool.left_out, pool.reason
    pool.learn()
    return pool


@pytest.mark.parametrize("kind", [ByTraces, ByColumns])
def test_the_change_of_an_own_mutator_reaches_the_rows(kind):
    mutator = kind()
    pool = pool_with(mutator)
    variant = pool.variants(1)[0]
    table = variant.sketch.table
    assert len(table.categories[table.unroll].values) == LAST + 1
    rows = variant.sample(np.random.default_rng(0), 20)
    column = table.categories[table.unroll].at
    assert (rows[:, column] != LAST).any()
    made, moved = pool._mutated(variant, rows.copy(), 1.0)
    assert not len(moved) and len(made) == len(rows)
    assert (made[:, column] == LAST).all()
    others = np.arange(rows.shape[1]) != column
    assert (made[:, others] == rows[:, others]).all()
    assert (mutator.calls > 0) == (kind is ByTraces)


def test_a_trace_that_is_no_row_leaves_the_row_as_it_was():
    mutator = NotOfTheSketch()
    pool = pool_with(mutator)
    variant = pool.variants(1)[0]
    rows = variant.sample(np.random.default_rng(0), 5)
    made, _ = pool._mutated(variant, rows.copy(), 1.0)
    assert mutator.calls == 5 and (made == rows).all()


def test_a_round_with_an_own_mutator_is_vectorised():
    mutator = ByTraces()
    pool = pool_with(mutator)
    strategy = ms.search_strategy.EvolutionarySearch(genetic_num_iters=1)
    strategy._cost_model, strategy._measured = Trained(seed=1), set()
    ranked, _ = pool.search(strategy, [], 16)
    assert ranked and mutator.calls > 0
    assert pool.examined > 100 * mutator.calls


def test_an_own_postproc_that_refuses_half_keeps_the_formulas():
    postproc = Picky()
    pool = pool_with(ByColumns(), postproc)
    assert postproc.refused and postproc.admitted
    assert pool.variants(1) and not any(sketch.refused for sketch in pool.sketches)
