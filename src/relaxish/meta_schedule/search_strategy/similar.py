"""First candidates from the best schedules of similar workloads, their decisions adapted to the sizes of this one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...ir.plain import plain_int, plain_ints
from ...tir.schedule import Instruction, Trace
from ..database.database import mean_seconds
from .decisions import tile_table

if TYPE_CHECKING:
    from ..database import Database, TuningRecord
    from .search_task import SearchTask

__all__ = ["Seed", "similar_seeds", "trace_of_seed"]

Array = np.ndarray[Any, Any]
# Workloads asked, records taken of each, and tilings around those of each record.
_WORKLOADS, _RECORDS, _AROUND = 8, 4, 4
# Records of a workload that take so many times what its best one takes are no examples.
_NEAR_BEST = 1.5
# How much it counts that a tile's outermost factor differs, which takes up what the sizes differ by, and its innermost
# one, the width of vectors; others count 1.
_OUTERMOST, _INNERMOST = 0.25, 2.0
# Tilings so many factors of two from the one wished for are e times less likely.
_REACH = 1.5


class Seed(NamedTuple):
    """A candidate as plain data: the sketch, the decision of each of its sampling instructions, and the limit of its
    parallel loops (-1: as the sketch has it)."""

    sketch: int
    decisions: list[Any]
    parallel: int


def similar_seeds(
    context: SearchTask, spaces: Sequence[Trace], database: Database, rng: np.random.Generator
) -> list[Seed]:
    """Candidates made from the fastest records of similar workloads, the most promising first.

    Innermost factors stay what they were, as far as they divide the new sizes, and the outermost ones take up the rest;
    then come tilings whose factors grew in proportion, then random ones near both. None where the database knows
    nothing similar, or cannot be asked.
    """
    found: list[tuple[int, int, Seed]] = []
    for rank, record in enumerate(_records(context, database)):
        index = _sketch_of(spaces, record.trace)
        if index is None:
            continue
        for turn, decisions in enumerate(_adapted(spaces[index], record.trace, rng)):
            found.append((turn, rank, Seed(index, decisions, _parallel_limit(spaces[index], record.trace))))
    found.sort(key=lambda item: item[:2])
    return list({repr(seed): seed for _, _, seed in found}.values())


def trace_of_seed(space: Trace, seed: Seed) -> Trace:
    """The trace of a seed of a sketch."""
    decisions = dict(zip(_sampling(space), seed.decisions, strict=True))
    insts = list(space.insts)
    mark = _parallel_mark(space)
    if mark is not None and seed.parallel >= 0:
        insts[insts.index(mark)] = Instruction(mark.kind, [mark.inputs[0], seed.parallel], mark.attrs, mark.outputs)
    return Trace(insts, decisions)


def _records(context: SearchTask, database: Database) -> Iterator[TuningRecord]:
    """The best records of the nearest workloads, that of the next workload before the second best of the nearest."""
    assert context.mod is not None
    try:
        near = database.similar(context.mod, _WORKLOADS)
        best = [_best(context, database.ranked(workload)) for workload in near]
    except Exception as err:  # databases may be the user's, and answer some queries only
        context.logger.debug("no similar workloads: %s", err)
        return
    places = sorted((i + j, j, i) for i, records in enumerate(best) for j in range(len(records)))
    yield from (best[i][j] for _, j, i in places)


def _best(context: SearchTask, ranking: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The first records of a ranking for the same kind of device; where they were measured does not matter to what is
    tried."""
    kind = None if context.target is None else context.target.kind.name
    fit = (r for r in ranking if r.target is None or kind is None or r.target.kind.name == kind)
    found = list(itertools.islice(fit, _RECORDS))
    return [r for r in found if mean_seconds(r.run_secs) <= _NEAR_BEST * mean_seconds(found[0].run_secs)]


# ---- traces side by side


def _sampling(trace: Trace) -> list[Instruction]:
    return [inst for inst in trace.insts if inst.kind.name.startswith("Sample")]


def _sampling_kinds(trace: Trace) -> list[tuple[str, list[str]]]:
    """Kind and attributes of each sampling instruction; traces with equal lists have decisions of the same kinds."""
    return [(inst.kind.name, [str(x) for x in inst.attrs]) for inst in _sampling(trace)]


def _sketch_of(spaces: Sequence[Trace], trace: Trace) -> int | None:
    """The sketch that a trace of another workload is most like; None where none samples the same."""
    simple = trace.simplified(remove_postproc=True)
    wanted, kinds = _sampling_kinds(simple), Counter(inst.kind.name for inst in simple.insts)
    if any(inst not in simple.decisions for inst in _sampling(simple)):
        return None
    best: tuple[int, int] | None = None
    for index, space in enumerate(spaces):
        if _sampling_kinds(space) == wanted:
            mine = Counter(inst.kind.name for inst in space.insts)
            differ = sum(((mine - kinds) + (kinds - mine)).values())
            best = min(best or (differ, index), (differ, index))
    return None if best is None else best[1]


def _parallel_mark(trace: Trace) -> Instruction | None:
    marks = (i for i in trace.insts if i.kind.name == "Annotate" and i.attrs[0] == "meta_schedule.parallel")
    return next(marks, None)


def _parallel_limit(space: Trace, trace: Trace) -> int:
    """The limit of parallel loops in a trace, where it is less than that of the sketch."""
    mine, theirs = _parallel_mark(space), _parallel_mark(trace)
    if mine is None or theirs is None:
        return -1
    value = plain_int(theirs.inputs[1])
    return value if value < plain_int(mine.inputs[1]) else -1


# ---- decisions for other sizes


def _adapted(space: Trace, trace: Trace, rng: np.random.Generator) -> Iterator[list[Any]]:
    """Decisions of a trace for a sketch with the same sampling: as they were, in proportion, and around these."""
    simple = trace.simplified(remove_postproc=True)
    pairs = [
        (inst, space.decisions[inst], simple.decisions[old])
        for inst, old in zip(_sampling(space), _sampling(simple), strict=True)
    ]
    try:
        for grown in (False, True):
            yield [_decision(inst, own, theirs, grown, None) for inst, own, theirs in pairs]
        for turn in range(_AROUND):
            yield [_decision(inst, own, theirs, bool(turn % 2), rng) for inst, own, theirs in pairs]
    except ValueError:  # too many factorisations to look at
        return


def _decision(inst: Instruction, own: Any, theirs: Any, grown: bool, rng: np.random.Generator | None) -> Any:
    """A decision for the sketch, near ``theirs``; ``own`` is one that it has now, which tells the size of a loop."""
    if inst.kind.name not in ("SamplePerfectTile", "SamplePartitionedTile"):
        return plain_ints(theirs) if isinstance(theirs, (list, tuple)) else plain_int(theirs)
    old = np.array(plain_ints(theirs), dtype=np.float64)
    table = tile_table(inst, int(np.prod(plain_ints(own))))
    return [int(x) for x in table[_nearest(table, old, grown, rng)]]


def _nearest(table: Array, old: Array, grown: bool, rng: np.random.Generator | None) -> int:
    """Which factorisation is nearest to the old one, or a random one of those near it."""
    extent = float(np.prod(table[0]))
    wished, weight = np.log2(old), np.ones(len(old))
    weight[-1] = _INNERMOST
    if grown:
        wished = wished + (np.log2(extent) - wished.sum()) / len(old)
    else:
        wished[0] += np.log2(extent) - wished.sum()
        weight[0] = _OUTERMOST
    distance = np.abs(np.log2(table) - wished) @ weight
    # Vectors as wide as before, or whole multiples or parts of them, leave no rest.
    distance += np.minimum(table[:, -1] % old[-1], old[-1] % table[:, -1]) > 0
    if rng is None:
        return int(np.argmin(distance))
    likely = np.exp(-(distance - distance.min()) / _REACH)
    return int(rng.choice(len(table), p=likely / likely.sum()))
