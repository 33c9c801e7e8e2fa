"""Tasks of Relax modules, and their records as answers to ``relaxish.build``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TYPE_CHECKING

from ...ir import IRModule
from ...meta_schedule import extract_tasks
from ...meta_schedule.database import Database, TuningRecord, Workload
from ...meta_schedule.analysis.schedules import normalize_mod
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc, Schedule
from .kernel import instantiate, kernel_task, kernel_workload
from .task import Task

if TYPE_CHECKING:
    from .dispatcher import ApplyHistoryBest

__all__ = ["KernelDatabase", "extract_from_multiple_program", "extract_from_program", "kernel_database"]

_log = get_logger("autotvm")


def _wanted(ops: Iterable[Any] | None) -> list[str] | None:
    """The last parts of operators' names: ``relax.nn.conv2d``, its function, or the name itself."""
    if ops is None:
        return None
    names = [op if isinstance(op, str) else getattr(op, "name", None) or getattr(op, "__name__", None) for op in ops]
    return [str(n).rsplit(".", 1)[-1] for n in names]


def _kernels(mod: IRModule, params: Mapping[str, Any] | None, target: Target) -> IRModule:
    from ...pipeline import kernel_pipeline
    from ...transform import BindParams

    bound = BindParams("main", dict(params))(mod) if params else mod
    with target:
        made: IRModule = kernel_pipeline(target)(bound)
    return made


def extract_from_program(
    mod: IRModule,
    params: Mapping[str, Any] | None,
    target: Target | str,
    target_host: Target | str | None = None,
    ops: Iterable[Any] | None = None,
) -> list[Task]:
    """The tasks of a Relax module: its distinct kernels, legalised and fused as ``relaxish.build`` does.

    ``ops`` keeps the kernels of these operators (names, functions or ``Op`` objects). Kernels that cannot be tuned are
    left out with a warning.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[Any],
    params: Sequence[Mapping[str, Any] | None],
    target: Target | str,
    target_host: Target | str | None = None,
    ops: Iterable[Any] | None = None,
) -> list[Task]:
    """The distinct tasks of several modules, in the order in which they are first needed."""
    where = target if isinstance(target, Target) else Target(target)
    if target_host is not None:
        where = Target(where, target_host)
    wanted = _wanted(ops)
    tasks: dict[Any, Task] = {}
    for mod, bound in zip(mods, params, strict=True):
        module = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        for found in extract_tasks(_kernels(module, bound, where), where):
            if wanted is not None and not any(name in found.task_name for name in wanted):
                continue
            program = found.dispatched[0]
            func = next(of_kind(program.functions.values(), PrimFunc))
            if (func.attrs or {}).get("tir.is_scheduled"):
                continue
            key = kernel_workload(program)
            if key in tasks:
                continue
            try:
                tasks[key] = kernel_task(program, where)
            except Exception as error:  # whatever is wrong with one kernel, the others can be tuned
                _log.warning("the kernel %s cannot be tuned and is left out: %s", found.task_name, error)
    return list(tasks.values())


class KernelDatabase(Database):
    """Answers for kernels from the records of a dispatch context; what it does not know, the database outside does."""

    def __init__(self, context: ApplyHistoryBest) -> None:
        super().__init__()
        self.context = context
        self.outside = Database.current()
        self.known: dict[Any, TuningRecord | None] = {}
        self.verdicts: dict[Any, bool | None] = {}

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str = "main") -> TuningRecord | None:
        program = normalize_mod(mod)
        key = (kernel_workload(program), str(target))
        if key not in self.known:
            self.known[key] = self._record(program, target, key[0])
        found = self.known[key]
        if found is None and self.outside is not None:
            return self.outside.query_tuning_record(mod, target, workload_name)
        return found

    def _record(self, program: IRModule, target: Target, workload: tuple[Any, ...]) -> TuningRecord | None:
        config = self.context._query_inside(target, workload)
        if config is None:
            return None
        try:
            sch = instantiate(program, target, config)
        except Exception as error:  # of another version of the template, say
            _log.warning("the record of %s cannot be applied, the default schedule is used: %s", workload[0], error)
            return None
        assert sch.trace is not None
        return TuningRecord(sch.trace, Workload(program), [float(config.cost or 0.0)], target, [])

    def query_schedule(self, mod: IRModule, target: Target, workload_name: str = "main") -> Schedule | None:
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        sch = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(sch, remove_postproc=False)
        return sch

    def has_workload(self, mod: IRModule) -> bool:
        raise NotImplementedError("a dispatch context has no workloads of its own; query it")

    def commit_workload(self, mod: IRModule) -> Workload:
        if self.outside is None:
            raise RelaxishError("records are only read here; enter a database inside of this scope to tune")
        return self.outside.commit_workload(mod)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        if self.outside is None:
            raise RelaxishError("records are only read here; enter a database inside of this scope to tune")
        self.outside.commit_tuning_record(record)

    def commit_verdict(self, record: TuningRecord) -> None:
        """Verdicts hold as long as this scope."""

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        found = [r for r in self.known.values() if r is not None and r.workload.shash == workload.shash]
        return found[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return [r for r in self.known.values() if r is not None]

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())


def kernel_database(context: ApplyHistoryBest) -> KernelDatabase:
    """A database to enter, in whose scope builds use the configurations of a dispatch context."""
    return KernelDatabase(context)
