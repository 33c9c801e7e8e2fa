"""Mutators, postprocs and rules of users in the vectorised search, with a column form of their own or without."""

import numpy as np
import pytest
from gpu_workloads import CONTEXTS
from search_workloads import WORKLOADS
from test_vector_search import Trained, context_of

from relaxish import meta_schedule as ms
from relaxish import te
from relaxish.meta_schedule.defaults import default_rules
from relaxish.meta_schedule.search_strategy import replay
from relaxish.meta_schedule.search_strategy.population import VectorPool, VectorSketch
from relaxish.meta_schedule.testing import te_workload


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


class Narrow(ms.postproc.PyPostproc):
    """Refuses innermost factors above 8 of the first tile; on rows, too."""

    def __init__(self):
        self.asked = 0

    def apply(self, sch):
        self.asked += 1
        tiles = [d for i, d in sch.trace.decisions.items() if i.kind.name == "SamplePerfectTile"]
        return int(tiles[0][-1]) <= 8

    def on_columns(self, program):
        tile = program.columns.tiles[0]
        program.admit(self, lambda rows: rows[:, tile.at + tile.count - 1] <= 8)
        return True


def test_the_verdict_of_an_own_postproc_on_rows_is_granted(monkeypatch):
    postproc = Narrow()
    pool = pool_with(ByColumns(), postproc)
    variant = pool.variants(1)[0]
    table = variant.sketch.table
    rows = variant.sample(np.random.default_rng(5), 200)
    tile = table.tiles[0]
    assert len(rows) >= 100 and rows[:, tile.at + tile.count - 1].max() == 8
    every = table.sample(np.random.default_rng(5), 400)
    flags = variant.valid(every)
    assert flags.any() and not flags.all()
    monkeypatch.setattr(replay, "CHECK", False)
    postproc.asked = 0
    for row in every[:40]:
        trace = table.to_trace(row, variant.locations)
        granted = pool.granted(trace)
        assert granted == ((postproc,) if variant.valid(row[None])[0] else ())
        assert (replay.apply_trace(pool.context, trace, 1, None, granted) is not None) == bool(granted)
    assert postproc.asked == 40 - flags[:40].sum()


class Stricter(Narrow):
    """Another verdict on programs, and no column form of its own."""

    def apply(self, sch):
        return False


def test_an_inherited_column_form_is_not_that_of_another_verdict():
    pool = pool_with(ByColumns(), Stricter())
    variant = pool.variants(1)[0]
    assert not variant.compiled.verdicts
    row = variant.sample(np.random.default_rng(0), 1)[0]
    assert pool.granted(variant.sketch.table.to_trace(row, variant.locations)) == ()


class ByTracesAgain(ByColumns):
    """Overrides the change of traces only."""

    def apply(self, trace, rand=None):
        self.calls += 1
        return None


def test_an_inherited_column_form_is_not_that_of_another_mutator():
    mutator = ByTracesAgain()
    pool = pool_with(mutator)
    variant = pool.variants(1)[0]
    rows = variant.sample(np.random.default_rng(0), 5)
    made, _ = pool._mutated(variant, rows.copy(), 1.0)
    assert mutator.calls == 5 and (made == rows).all()


def same_features(sketch, variant, count=12):
    rng = np.random.default_rng(3)
    rows = variant.sample(rng, count)
    assert len(rows)
    fast = variant.features(rows)
    for k, row in enumerate(rows):
        slow = sketch.replayed_features(row, variant.locations)
        np.testing.assert_allclose(np.stack([b[k] for b in fast]), slow, rtol=1e-4, atol=1e-3, err_msg=str(row))
    return rows


@pytest.mark.parametrize("name", ["matmul", "elementwise"])
def test_a_space_without_parallel_loops_keeps_its_formulas(name):
    context = context_of(WORKLOADS[name]())
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    left = [p for p in context.space_generator.postprocs if type(p).__name__ != "RewriteParallelVectorizeUnroll"]
    assert len(left) < len(context.space_generator.postprocs)
    context.space_generator.postprocs = left
    sketch = VectorSketch(context, spaces[0])
    variant = sketch.variant(sketch.all_locations()[0])
    assert variant is not None, sketch.refused
    same_features(sketch, variant)


class OwnTiles(ms.schedule_rule.PyScheduleRule):
    """Tiles each product by sampled factors, in an order and with a step of its own."""

    def apply(self, sch, block):
        if len(sch.get_loops(block)) != 3:
            return [sch]
        i, j, k = sch.get_loops(block)
        (i0, i1), (j0, j1) = (sch.split(x, sch.sample_perfect_tile(x, 2, 16)) for x in (i, j))
        step = sch.sample_categorical([2, 4, 8, 16], [0.25] * 4)
        k0, k1 = sch.split(k, [None, step])
        sch.reorder(i0, j0, k0, i1, k1, j1)
        depth = sch.sample_categorical([16, 64, 512], [1 / 3] * 3)
        sch.annotate(k0, "pragma_of_its_own", depth)
        return [sch]


def test_an_own_rule_with_sampled_steps_is_vectorised():
    func = te.create_prim_func(te_workload.matmul(64, 96, 128))
    space = ms.space_generator.PostOrderApply(
        sch_rules=[OwnTiles(), *default_rules("llvm")[-2:]], postprocs="llvm", mutator_probs="llvm"
    )
    context = ms.TuneContext(
        func, target="llvm -num-cores=4", space_generator=space, search_strategy="evolutionary", rand_state=2
    )
    pool = VectorPool(context, [s.trace.simplified(True) for s in context.generate_design_space()])
    assert pool.usable() and not pool.left_out, pool.reason
    pool.learn()
    variant = pool.variants(1)[0]
    table = variant.sketch.table
    assert len(table.structural) == 2
    rows = same_features(variant.sketch, variant)
    assert all(len(np.unique(rows[:, table.categories[i].at])) > 1 for i in table.structural)
    strategy = ms.search_strategy.EvolutionarySearch(genetic_num_iters=1)
    strategy._cost_model, strategy._measured = Trained(seed=1), set()
    ranked, _ = pool.search(strategy, [], 16)
    assert ranked and pool.examined > 1000


def test_a_gpu_space_without_shared_copies_or_unrolling_keeps_its_formulas():
    tuning = CONTEXTS["matmul_relu"]()
    dropped = ("RewriteCooperativeFetch", "RewriteParallelVectorizeUnroll", "VerifyGPUCode")
    own = tuning.space_generator
    own.postprocs = [p for p in own.postprocs if type(p).__name__ not in dropped]
    sketch = VectorSketch(tuning, tuning.generate_design_space()[0].trace.simplified(True))
    variant = sketch.variant(())
    assert variant is not None, sketch.refused
    rows = same_features(sketch, variant, 6)
    assert not variant.compiled.verdicts and variant.compiled.granted(own.postprocs) == ()
    assert (variant.compiled.estimate(rows) > 0).all()
