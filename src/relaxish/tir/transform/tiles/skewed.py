"""Loops whose statements run in stages and in an order that the program chose (``T.Pipelined(order=, stage=, group=, sync=)``).

A statement of stage ``s`` runs turn ``t - s`` of the loop while others are at turn ``t``. Tiles that a stage writes for a later
one have a copy for each turn between them. What comes from global memory for a later stage is copied asynchronously where the
architecture can; statements of a group are waited for together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....ir.expr import PrimExpr
from ....ir.prim import LT, Max, Var, const, const_int
from ...buffer import Buffer
from ...functor import renew_defs, substitute
from ...stmt import BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt, stmt_list
from ..base import call, seq
from .barriers import barrier
from .infer import plain_dims
from .names import GROUP, ORDER, SHARED, STAGE, STAGES, SYNC
from .program import TileLoweringError, accesses, as_int, loads_of, nest_of, stores_of

if TYPE_CHECKING:
    from .gpu import GpuKernel

__all__ = ["Plan", "commit_copies", "is_skewed", "stage_count", "wait_for_copies"]


def commit_copies() -> Stmt:
    """Close the group of asynchronous copies issued since the last such statement."""
    return Evaluate(call("", "ptx_commit_group"))


def wait_for_copies(groups: int) -> Stmt:
    """Wait until at most so many groups, the last ones, are under way."""
    return Evaluate(call("", "ptx_wait_group", const(groups, "int32")))


def is_skewed(loop: For) -> bool:
    """Whether a loop says itself how its statements are to overlap."""
    return any(key in loop.annotations for key in (ORDER, STAGE, GROUP, SYNC))


def stage_count(loop: For) -> int:
    """The ``num_stages`` of a loop."""
    return as_int(loop.annotations.get(STAGES, 0), "num_stages")


def _numbers(loop: For, key: str) -> list[int]:
    return [as_int(e, key) for e in loop.annotations[key]]


def _fail(message: str) -> None:
    raise TileLoweringError(f"T.Pipelined: {message}")


@dataclass
class Plan:
    """Overlap of the statements ``items`` of a loop: their stages, the order in a turn, the group of each copy that
    runs ahead (statement -> group), and the statements before which the block waits for itself."""

    items: list[Stmt]
    stage: list[int]
    order: list[int]
    ahead: dict[int, int] = field(default_factory=dict)
    waits: set[int] = field(default_factory=set)
    versions: dict[Buffer, int] = field(default_factory=dict)

    @staticmethod
    def of(loop: For, runs_ahead: Sequence[int], kernel_body: Stmt, copies_ahead: bool) -> Plan:
        """The plan of a loop whose statements ``runs_ahead`` copy what depends on nothing it computes.

        Raises TileLoweringError for numbers that fit no statements, and for orders that change results.
        """
        items = stmt_list(loop.body)
        stage = _stages(loop, items, runs_ahead)
        order = _order(loop, items)
        made = Plan(items, stage, order)
        made._check(loop, kernel_body)
        if copies_ahead:
            made._group(loop, [n for n in runs_ahead if made._is_ahead(n)])
        if SYNC in loop.annotations:
            for pair in loop.annotations[SYNC]:
                first, second = (as_int(e, "sync") for e in pair)
                if not (0 <= first < len(items) and 0 <= second < len(items)):
                    _fail(f"sync=[[{first}, {second}]] names statements of {len(items)}")
                made.waits.add(second)
        return made

    @property
    def last(self) -> int:
        """The highest stage."""
        return max(self.stage)

    @property
    def groups(self) -> int:
        """Groups of copies in a turn."""
        return max(self.ahead.values(), default=-1) + 1

    def commits_after(self, number: int) -> list[int]:
        """The groups whose last copy, in the order of a turn, a statement is."""
        places = {n: p for p, n in enumerate(self.order)}
        last: dict[int, int] = {}
        for n, group in self.ahead.items():
            if group not in last or places[n] > places[last[group]]:
                last[group] = n
        return [g for g, n in last.items() if n == number]

    # -- what may be

    def _is_ahead(self, number: int) -> bool:
        """Whether a copy is for later stages only."""
        store: Any = nest.body if (nest := nest_of(self.items[number])) is not None else None
        users = [n for n, item in enumerate(self.items) if any(x.buffer is store.buffer for x in loads_of(item))]
        return bool(users) and all(self.stage[n] > self.stage[number] for n in users)

    def _group(self, loop: For, copies: list[int]) -> None:
        given = [[as_int(e, "group") for e in part] for part in loop.annotations.get(GROUP, ())]
        seen = [n for part in given for n in part]
        if len(set(seen)) < len(seen) or any(not 0 <= n < len(self.items) for n in seen):
            _fail(f"group={given} names each of the {len(self.items)} statements at most once")
        parts = [[n for n in part if n in copies] for part in given]
        parts.append([n for n in copies if n not in seen])
        places = {n: p for p, n in enumerate(self.order)}
        # Groups are numbered as they are committed.
        parts = sorted((p for p in parts if p), key=lambda p: max(places[n] for n in p))
        self.ahead = {n: g for g, part in enumerate(parts) for n in part}

    def _check(self, loop: For, kernel_body: Stmt) -> None:
        places = {n: p for p, n in enumerate(self.order)}
        touched: dict[Any, list[tuple[int, bool, bool]]] = {}
        buffers: dict[Any, Buffer] = {}
        for n, item in enumerate(self.items):
            stored, loaded = ({x.buffer.data: x.buffer for x in found} for found in (stores_of(item), loads_of(item)))
            for data, buffer in {**stored, **loaded}.items():
                buffers[data] = buffer
                touched.setdefault(data, []).append((n, data in stored, data in loaded))
        for data, uses in touched.items():
            if not any(written for _, written, _ in uses):
                continue
            name = buffers[data].name
            for at, (one, writes, _) in enumerate(uses):
                for other, writes_too, _ in uses[at + 1 :]:
                    if not (writes or writes_too):
                        continue
                    if self.stage[one] > self.stage[other]:
                        _fail(f"statement {other} is in stage {self.stage[other]} and needs {name} as statement {one} leaves it, which is "
                              f"in stage {self.stage[one]}: stages of later statements are not smaller")  # fmt: skip
                    if self.stage[one] == self.stage[other] and places[one] > places[other]:
                        _fail(
                            f"statements {one} and {other} both use {name} in stage {self.stage[one]}, and order= exchanges them"
                        )
            if len({self.stage[n] for n, _, _ in uses}) > 1:
                self.versions[buffers[data]] = self._versions(buffers[data], uses, loop, kernel_body)

    def _versions(self, buffer: Buffer, uses: list[tuple[int, bool, bool]], loop: For, kernel_body: Stmt) -> int:
        """How many turns' tiles there are of a buffer that goes from stage to stage."""
        name, (first, _, reads_first) = buffer.name, uses[0]
        writers = [n for n, writes, _ in uses if writes]
        why = ""
        if buffer.scope() not in SHARED:
            why = f"lies in {buffer.scope() or 'global'} memory; tiles that wait for a later stage lie in shared memory"
        elif reads_first or {self.stage[n] for n in writers} != {self.stage[first]}:
            why = "is also written by later stages, or carries values from turn to turn"
        elif not _fills(self.items[first], buffer):
            why = "is not wholly written by its first statement"
        elif _count(buffer, kernel_body) != _count(buffer, loop.body):
            why = "is used outside of the loop, too"
        if why:
            _fail(
                f"{name} goes from stage {self.stage[first]} to stage {max(self.stage[n] for n, _, _ in uses)}, but {why}"
            )
        return max(self.stage[n] for n, _, _ in uses) - self.stage[first] + 1

    # -- lowering

    def lower(self, kernel: GpuKernel, loop: For, copy: Any) -> Stmt:
        """The loop: turns before all stages are at work, those in which they are, and those after."""
        return _Turns(self, kernel, loop, copy).lower()


def _stages(loop: For, items: list[Stmt], runs_ahead: Sequence[int]) -> list[int]:
    if STAGE not in loop.annotations:
        last = max(0, stage_count(loop) - 1)
        return [0 if n in runs_ahead else last for n in range(len(items))]
    stage = _numbers(loop, STAGE)
    if len(stage) != len(items) or min(stage) < 0:
        _fail(f"stage={stage} needs a number from 0 for each of the loop's {len(items)} statements")
    return [s - min(stage) for s in stage]


def _order(loop: For, items: list[Stmt]) -> list[int]:
    """Statements in the order of a turn."""
    if ORDER not in loop.annotations:
        return list(range(len(items)))
    order = _numbers(loop, ORDER)
    if len(order) != len(items) or len(set(order)) < len(order):
        _fail(f"order={order} needs a place of its own for each of the loop's {len(items)} statements")
    return sorted(range(len(items)), key=lambda n: order[n])


def _count(buffer: Buffer, stmt: Stmt) -> int:
    return sum(1 for x in accesses(stmt) if x.buffer.data is buffer.data)


def _fills(item: Stmt, buffer: Buffer) -> bool:
    """Whether a statement writes all of a buffer, whatever is in it."""
    nest = nest_of(item)
    if nest is None or not isinstance(nest.body, BufferStore) or nest.body.buffer is not buffer:
        return False
    dims = plain_dims(nest.body.indices, nest.loops, buffer.shape)
    sizes = [as_int(e, "a size") for e in buffer.shape]
    return dims is not None and all(d < 0 or nest.extents[d] == size for d, size in zip(dims, sizes, strict=True))


class _Turns:
    """The turns of one loop."""

    def __init__(self, plan: Plan, kernel: GpuKernel, loop: For, copy: Any) -> None:
        self.plan = plan
        self.kernel = kernel
        self.loop = loop
        self.copy = copy
        self.dtype = loop.loop_var.dtype

    def lower(self) -> Stmt:
        """All turns, in order."""
        plan, count = self.plan, self.loop.extent
        known = const_int(count)
        made: list[Stmt] = []
        for t in range(plan.last):
            made += self._turn(const(t, self.dtype), t, known)
        if known is None or known > plan.last:
            turn = Var(self.loop.loop_var.name, self.dtype)
            body = self._turn(turn + plan.last, None, None)
            made.append(For(turn, const(0, self.dtype), count - plan.last, ForKind.SERIAL, seq(body)))
        if known is not None:
            for t in range(max(known, plan.last), known + plan.last):
                made += self._turn(const(t, self.dtype), t, known)
        else:
            begin = Max(count, const(plan.last, self.dtype))
            for after in range(plan.last):
                made += self._turn(begin + after, None, None, True)
        if plan.ahead:
            made.append(wait_for_copies(0))
        return seq(made)

    def _turn(self, turn: PrimExpr, number: int | None, count: int | None, last: bool = False) -> list[Stmt]:
        """One turn. ``number``: which, where it is one before all stages are at work, or after; ``count``: turns of the loop, if
        known; ``last``: one after the others of a loop of unknown length."""
        plan = self.plan
        made: list[Stmt] = []
        waited = -(1 << 30)
        commits = 0
        for n in plan.order:
            stage = plan.stage[n]
            inside = number is None or (number >= stage and (count is None or number - stage < count))
            if inside:
                guard: PrimExpr | None = None
                if last or (number is not None and count is None):
                    guard = LT(turn - stage, self.loop.extent)
                needed = self._needed(n)
                before: list[Stmt] = []
                if needed is not None and needed > waited:
                    before = [wait_for_copies(commits - needed - 1), barrier()]
                    waited = needed if guard is None else waited
                elif n in plan.waits:
                    before = [barrier()]
                body = seq([*before, self._statement(n, turn - stage)])
                made.append(body if guard is None else IfThenElse(guard, body))
            for _ in plan.commits_after(n):
                made.append(commit_copies())
                commits += 1
        return made

    def _needed(self, number: int) -> int | None:
        """The last group of copies that a statement waits for, counted from the first of this turn."""
        plan = self.plan
        reads = {x.buffer for x in loads_of(plan.items[number])}
        found = [
            (plan.stage[n] - plan.stage[number]) * plan.groups + group
            for n, group in plan.ahead.items() if any(s.buffer in reads for s in stores_of(plan.items[n]))
        ]  # fmt: skip
        return max(found, default=None)

    def _statement(self, number: int, turn: PrimExpr) -> Stmt:
        kernel, plan = self.kernel, self.plan
        for buffer, versions in plan.versions.items():
            kernel.memory.turns[buffer] = turn % versions
        values = {self.loop.loop_var: self.loop.min + turn}
        nest = nest_of(plan.items[number])
        if number in plan.ahead and nest is not None:
            made: Stmt = self.copy(nest, values, ())
        else:
            made = kernel.visit(renew_defs(substitute(plan.items[number], values)))
        for buffer in plan.versions:
            kernel.memory.turns.pop(buffer, None)
        return made
