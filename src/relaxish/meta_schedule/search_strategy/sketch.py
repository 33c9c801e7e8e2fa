"""A sketch as columns of decisions, and its structural variants compiled to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...target import Target
from ...ir.module import IRModule
from ...support.errors import RelaxishError
from ...tir import PrimFunc, Schedule
from ...tir.schedule import ScheduleError, Trace
from ...tir.schedule.instruction import Instruction
from ...tir.schedule.trace import DecisionProvider
from ..feature_extractor.program import Program, extract_program
from ..feature_extractor.repeated import Repeated
from ..mutator.mutator import compute_locations, parallel_limits
from ..analysis.schedules import schedule_for_tuning
from ..postproc.postproc import Postproc
from .column_program import ColumnProgram
from .decisions import DecisionTable
from .device_reading import DeviceReading, replay
from .device_variant import DeviceVariant
from .examples import ExampleChooser, Examples, Lesson
from .fitting import Environment, Unfit
from .locations import LocationMask, LoopRow, loops_of_location
from .program_shape import Reading, read_program
from .variant import CompiledVariant
from ...ir.plain import plain_int
from ...support.sequences import of_kind

if TYPE_CHECKING:
    from .search_task import SearchTask

__all__ = ["VectorSketch", "VectorVariant"]

Array = np.ndarray[Any, Any]
EXAMPLES, LOCATION_SAMPLES = 12, 8
# Programs for GPUs have more numbers to be told apart: a few more examples.
DEVICE_EXAMPLES = 16
# Programs that formulas are checked on, which are examples more where these are wrong; of so many rows, so often.
CHECKS, CHECKED, LESSONS = 4, 1024, 4
# Programs to read the versions of pipelined tiles off: they follow from the annotations, the same for all.
_LOWERED = 2
# What keeps a program from being read or made: everything else is a bug and is raised.
REFUSALS = (Unfit, RelaxishError, ValueError)


class VectorVariant:
    """A sketch with its compute locations fixed; without formulas (and perhaps locations) it still names candidates."""

    def __init__(self, sketch: VectorSketch, locations: tuple[int, ...], compiled: ColumnProgram | None = None) -> None:
        self.sketch = sketch
        self.locations = locations
        self.compiled = compiled

    def valid(self, matrix: Array) -> Array:
        """Mask of the rows that are candidates of this variant: in others a location is no loop and the schedule moves
        on, or a GPU cannot launch the program."""
        return np.ones(len(matrix), dtype=bool) if self.compiled is None else self.compiled.valid(matrix)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """At most ``count`` random valid rows."""
        return (self.sketch.table if self.compiled is None else self.compiled).sample(rng, count)

    def features(self, matrix: Array) -> list[Array]:
        """Feature matrices of valid rows of decisions."""
        return [block.expanded() for block in self.feature_rows(matrix)]

    def feature_rows(self, matrix: Array) -> list[Repeated]:
        """As :meth:`features`, equal rows perhaps only once."""
        assert self.compiled is not None, "a variant without formulas"
        return self.compiled.feature_rows(matrix)


class VectorSketch:
    """A sketch, its decision columns, and the variants compiled so far.

    What is learnt about it draws from random streams named by ``seed``, so that it does not matter when it is learnt.
    """

    def __init__(self, context: SearchTask, trace: Trace, seed: Sequence[int] = (0,)) -> None:
        self.context = context
        self.seed = tuple(seed)
        sch = schedule_for_tuning(self._mod, 1)
        trace.apply_to_schedule(sch, remove_postproc=True)
        assert sch.trace is not None
        own = sch.trace.simplified(remove_postproc=True)
        marks = [i for i in own.insts if i.kind.name == "Annotate" and i.attrs[0] == "meta_schedule.parallel"]
        top = plain_int(marks[0].inputs[1]) if marks else -1
        limits = parallel_limits(sch.mod, top) if marks else [-1]
        if top > 0:
            limits = sorted({*limits, *(1 << k for k in range(top.bit_length()))})
        self.table = DecisionTable(own, [x for x in limits if x <= top] or limits)
        self.gpu = context.target is not None and "gpu" in context.target.keys
        if not self.gpu and self.table.fetches:
            raise Unfit("a copy that threads share, on a CPU")
        self.variants: dict[tuple[int, ...], VectorVariant] = {}
        self.refused: dict[tuple[int, ...], str] = {}
        self._combinations: list[tuple[int, ...]] | None = None
        self._learnt: Examples[DeviceReading] | None = None

    @property
    def _target(self) -> Target:
        assert self.context.target is not None
        return self.context.target

    @property
    def _mod(self) -> IRModule:
        assert self.context.mod is not None
        return self.context.mod

    def all_locations(self) -> list[tuple[int, ...]]:
        """Combinations of compute locations, in the order they are to be tried."""
        if self._combinations is None:
            self._combinations = self._find_locations()
        return self._combinations

    def _find_locations(self) -> list[tuple[int, ...]]:
        """Combinations seen to be legal for some tile sizes, in random order."""
        if not self.table.locations:
            return [()]
        choices: list[set[int]] = [set() for _ in self.table.locations]
        taken: list[tuple[int, ...]] = []
        rng = np.random.default_rng([*self.seed, 0])
        for row in self.table.sample(rng, LOCATION_SAMPLES):
            sch = schedule_for_tuning(self._mod, int(rng.integers(1, 1 << 30)))
            self.table.to_trace(row, ()).apply_to_schedule(
                sch, remove_postproc=True, decision_provider=_collect(sch, iter(choices))
            )
            taken.append(_taken(sch))
        # One location is chosen freely; of several, each depends on those before.
        combos = sorted((x,) for x in choices[0]) if len(choices) == 1 else sorted(set(taken))
        return [combos[i] for i in rng.permutation(len(combos))]

    def variant(self, locations: tuple[int, ...]) -> VectorVariant | None:
        """The compiled variant, None where it cannot be vectorised (the log says why)."""
        found = self.variants.get(locations)
        if found is None and locations not in self.refused:
            try:
                examples = DEVICE_EXAMPLES if self.gpu else EXAMPLES
                try:
                    found = self._compile(locations, examples)
                except Unfit:
                    # Too few examples can agree with a wrong formula by chance.
                    found = self._compile(locations, 2 * examples)
                self.variants[locations] = found
            except REFUSALS as err:
                reason = str(err).strip().splitlines()[0] if str(err).strip() else ""
                self.refused[locations] = f"{type(err).__name__}: {reason}"
                self.context.logger.info(
                    "not vectorised for compute locations %s: %s", locations, self.refused[locations]
                )
        return found

    # ---- learning a variant from examples

    def _compile(self, locations: tuple[int, ...], count: int) -> VectorVariant:
        """Formulas from at least ``count`` examples, checked on others."""
        if self.gpu and locations:
            raise Unfit("sampled compute locations on a GPU")
        rng = np.random.default_rng([*self.seed, count, *(2 + x for x in locations)])
        lesson = (self._device_lesson if self.gpu else self._host_lesson)(locations, self._fewest(count), rng)
        for _ in range(LESSONS):
            compiled = lesson.program(self.table, self.seed)
            made = VectorVariant(self, locations, compiled)
            rows = self.table.sample(rng, CHECKED)
            checks = CHECKS * (1 + self.gpu) * (3 if compiled.tables else 1)
            wrong = self._wrong(made, rows[compiled.regular(compiled.environment(rows))][:checks])
            if not wrong:
                break
            for row in wrong:
                lesson.examples.add(row)
        else:
            raise Unfit("features differ from those of the program")
        if self._learnt is not None:
            self._learn_versions(self._learnt, compiled)
        return made

    def _host_lesson(
        self, locations: tuple[int, ...], count: int, rng: np.random.Generator
    ) -> Lesson[Reading, CompiledVariant]:
        table, width = self.table, self.table.num_tile_columns
        chooser = ExampleChooser(table, rng)
        choices = self._choices(rng, count)
        seen: list[list[LoopRow]] = []

        def read(row: Array) -> tuple[Reading | None, Mapping[Hashable, bool]]:
            reading, loops = self.read(row, locations)
            seen.append(loops)
            if reading is None:
                return None, {}
            facts: dict[Hashable, bool] = {i: loop.fixed for i, loop in enumerate(reading.program.loops)}
            return reading if all(facts.values()) else None, facts

        known: Examples[Reading] = Examples(chooser, read)

        def mask() -> LocationMask:
            return LocationMask(locations, seen, table.tile_ranges, np.array(known.tried)[:, :width])

        def gather() -> None:
            narrowed = False
            while len(known.rows) < (count // 2 if known.parted else count):
                row = known.chooser.next()
                if row is None and known.chooser is chooser and narrowed:
                    # Few rows have these locations: they are looked for among many.
                    rows = table.sample(rng, 4 * CHECKED)
                    known.chooser = ExampleChooser(table, rng, rows[mask()(Environment(rows[:, :width]))])
                    continue
                if row is None:
                    raise Unfit(f"only {len(known.rows)} random candidates have these compute locations")
                if known.add(self._chosen(row, choices, len(known.rows))):
                    known.chooser.accept()
                if not narrowed and len(known.tried) >= count and len(known.rows) < count:
                    chooser.keep(mask()(Environment(chooser.pool[:, :width])))
                    narrowed = True

        def program() -> CompiledVariant:
            placed = mask() if any(x >= 0 for x in locations) else None
            examples = np.array(known.rows)
            process = self._process(examples[0], locations)
            return CompiledVariant(
                known.readings, examples, table, placed, self._postprocs, process, known.tried, known.facts()
            )

        return Lesson(known, gather, program)

    def _device_lesson(
        self, locations: tuple[int, ...], count: int, rng: np.random.Generator
    ) -> Lesson[DeviceReading, DeviceVariant]:
        """As :meth:`_host_lesson` for GPUs, where locations are never sampled, but categories shape the program."""
        if self._learnt is None:
            self._learnt = Examples(
                ExampleChooser(self.table, np.random.default_rng([*self.seed, 7])), self._read_device
            )
        known = self._learnt
        choices = self._choices(np.random.default_rng([*self.seed, count]), count)

        def gather() -> None:
            refused = 0
            while len(known.rows) < (count // 2 if known.parted else count) and refused < count:
                row = known.chooser.next()
                if row is None:
                    break  # fewer candidates than examples wanted: then these are all
                if known.add(self._chosen(row, choices, len(known.rows))):
                    known.chooser.accept()
                else:
                    refused += 1
            if not known.rows:
                raise Unfit("no random candidate is a program")

        def program() -> DeviceVariant:
            rows = np.array(known.rows)
            return DeviceVariant(
                known.readings, rows, self.table, self._target, self._postprocs, known.tried, known.facts()
            )

        return Lesson(known, gather, program)

    def _read_device(self, row: Array) -> tuple[DeviceReading | None, Mapping[Hashable, bool]]:
        try:
            reading, numbers = replay(schedule_for_tuning(self._mod, 1), self.table.to_trace(row, ()))
        except ScheduleError:
            return None, {}  # a primitive refuses some tilings
        return reading, dict(enumerate(numbers))

    def _learn_versions(self, known: Examples[DeviceReading], compiled: ColumnProgram) -> None:
        """How many versions of its tiles a software pipeline keeps."""
        if known.readings[0].pipelined and known.readings[0].shared:
            compiled.learn_versions(*self._some_allocated(np.array(known.rows), compiled))

    def _choices(self, rng: np.random.Generator, count: int) -> dict[int, Array]:
        """By column of a category on which the program depends, its choice in each of ``count`` examples: every one is
        seen at least twice, and no two categories go together."""
        categories = [self.table.categories[i] for i in self.table.structural]
        return {c.at: rng.permutation(np.arange(count) % len(c.values)) for c in categories}

    @staticmethod
    def _chosen(row: Array, choices: dict[int, Array], number: int) -> Array:
        """A row as the example ``number``."""
        row = row.copy()
        for column, chosen in choices.items():
            row[column] = chosen[number]
        return row

    def _fewest(self, count: int) -> int:
        """As many examples as ``count``, or more that each choice of a category needs to be seen twice."""
        return max([count, *(2 * len(self.table.categories[i].values) for i in self.table.structural)])

    def _some_allocated(self, rows: Array, compiled: ColumnProgram) -> tuple[Array, list[dict[str, int]]]:
        """The first rows that can be lowered, with the elements of the buffers of each when limits are checked."""
        last = next((p for p, flags in compiled.verdicts.items() if flags == compiled.launchable), None)
        chosen: list[Array] = []
        allocated: list[dict[str, int]] = []
        for row in rows:
            sizes = self._allocated(row, last)
            if sizes:
                chosen.append(row)
                allocated.append(sizes)
            if len(chosen) == _LOWERED:
                break
        if not chosen:
            raise Unfit("no program of the sketch can be lowered")
        return np.array(chosen), allocated

    def _allocated(self, row: Array, last: Postproc | None) -> dict[str, int]:
        """Elements of every buffer in the lowered program of a row, as the postproc ``last`` is given it."""
        from ..postproc.verify_gpu import allocated_elements

        sch = self.processed(row, (), last)
        return allocated_elements(sch.mod, self._target)

    def _wrong(self, made: VectorVariant, checks: Array) -> list[Array]:
        """The rows whose features are not those of their programs."""
        if not len(checks):
            raise Unfit("no candidates left to check the formulas on")
        fast, found = made.features(checks), []
        for k, row in enumerate(checks):
            try:
                slow = self.replayed_features(row, made.locations)
            except ScheduleError:
                if self.gpu:
                    continue  # a primitive refuses this tiling, which is no matter of features
                raise
            mine = np.stack([block[k] for block in fast])
            if mine.shape != slow.shape or not np.allclose(mine, slow, rtol=1e-4, atol=1e-3):
                found.append(row)
        return found

    def read(self, row: Array, locations: tuple[int, ...]) -> tuple[Reading | None, list[LoopRow]]:
        """The program of one row before postprocs, None where a location moved; and the loops locations had to choose
        from, up to the first that moved."""
        sch = schedule_for_tuning(self._mod, 1)
        seen: list[LoopRow] = []

        def watch(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> object:
            if inst.kind.name == "SampleComputeLocation":
                if _taken(sch) != locations[: len(seen)]:
                    raise _MovedError
                seen.append(loops_of_location(sch, inputs[0]))
            return decision

        try:
            self.table.to_trace(row, locations).apply_to_schedule(sch, remove_postproc=True, decision_provider=watch)
        except _MovedError:
            return None, seen
        if _taken(sch) != locations:
            return None, seen
        return read_program(sch.mod), seen

    def replayed_features(self, row: Array, locations: tuple[int, ...]) -> Array:
        """Features by way of the program, weight layouts left as they are (they do not depend on decisions)."""
        from ..feature_extractor import module_features

        return module_features(self.processed(row, locations).mod, self.gpu)

    def _process(self, example: Array, locations: tuple[int, ...]) -> Callable[[Array, float, float], Program]:
        """A function giving the processed program of a row told by its tiles, parallel limit and unroll depth."""

        def process(tiles: Array, parallel: float, unroll: float) -> Program:
            row = example.copy()
            row[: len(tiles)] = tiles
            row[self.table.parallel_column] = int(parallel)
            sch = self.processed(row, locations)
            return extract_program(of_kind(sch.mod.functions.values(), PrimFunc))

        return process

    @property
    def _postprocs(self) -> Sequence[Postproc]:
        assert self.context.space_generator is not None
        return self.context.space_generator.postprocs or []

    def processed(self, row: Array, locations: tuple[int, ...], last: Postproc | None = None) -> Schedule:
        """The program of one row after the postprocs that change what features see, up to ``last``."""
        sch = schedule_for_tuning(self._mod, 1)
        self.table.to_trace(row, locations).apply_to_schedule(sch, remove_postproc=True)
        sch.enter_postproc()
        for postproc in self._postprocs:
            if postproc is last:
                break
            if not postproc.changes_features:
                continue
            before = sch.mod
            # One that only looks and refuses tells nothing of features: it is asked again before a row is measured.
            if not postproc.apply(sch) and sch.mod is not before:
                raise Unfit(f"{type(postproc).__name__} refuses some candidates after changing them")
        return sch


class _MovedError(Exception):
    """A compute location was not legal; the rest of the program is of no interest."""


def _taken(sch: Schedule) -> tuple[int, ...]:
    trace = sch.trace
    assert trace is not None
    return tuple(int(trace.decisions[i]) for i in trace.insts if i.kind.name == "SampleComputeLocation")


def _collect(sch: Schedule, choices: Iterator[set[int]]) -> DecisionProvider:
    def watch(inst: Instruction, inputs: Sequence[Any], attrs: Sequence[Any], decision: Any) -> object:
        if inst.kind.name == "SampleComputeLocation":
            next(choices).update(compute_locations(sch, inputs[0]))
            return None
        return decision

    return watch
