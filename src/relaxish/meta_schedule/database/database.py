"""Workloads, tuning records, and what every database can do with them."""

from __future__ import annotations

import base64
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir import IRModule
from ...support import config
from ...support.entry_points import load
from ...support.errors import MalformedDataError
from ...support.untrusted import malformed
from ...target import Target
from ...tir import Schedule
from ...tir.schedule import Trace
from ..analysis.shapes import Shape, shape_of
from ..arg_info import ArgInfo
from ..measure.status import MeasureStatus
from ..verdicts.module_equality import ModuleEquality
from ..utils import MethodNotDefinedError

if TYPE_CHECKING:
    from ..search_strategy.candidate import MeasureCandidate

__all__ = ["Database", "PyDatabase", "TuningRecord", "Workload", "hardware_fingerprint", "mean_seconds"]

INVALID_SECONDS = 1e10
_KINDS = ("json", "memory", "ordered_union", "sql", "union")


@functools.lru_cache(maxsize=1)
def hardware_fingerprint() -> str:
    """A short name of this machine's processor: results are only compared where it is the same."""
    import hashlib
    import platform

    from ...target.detect import cache_sizes, host_features

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    digest = hashlib.sha256(repr((model, sorted(host_features()), cache_sizes())).encode()).hexdigest()[:12]
    return f"{model} [{digest}]"


class Seconds(float):
    """A time of a record: a number, which scripts may also take out of a box.

    >>> Seconds(0.5).value
    0.5
    """

    __slots__ = ()

    @property
    def value(self) -> float:
        """The plain number."""
        return float(self)


def mean_seconds(run_secs: Sequence[float] | None) -> float:
    """The figure records are ranked by."""
    return sum(run_secs) / len(run_secs) if run_secs else INVALID_SECONDS


class Workload:
    """A module to tune, with its structural hash."""

    def __init__(self, mod: IRModule, shash: int | None = None) -> None:
        self.mod = mod
        self.shash = ModuleEquality("structural").hash(mod) if shash is None else shash

    @property
    def key(self) -> str:
        """The hash as hexadecimal text, the workload's name in files."""
        return f"{self.shash & 0xFFFFFFFFFFFFFFFF:016x}"

    @functools.cached_property
    def shape(self) -> Shape:
        """Structure and sizes of the program, by which similar workloads are found."""
        return shape_of(self.mod)

    def as_json(self) -> list[Any]:
        """``[hash, base64 of the JSON graph]``."""
        from ...ir import save_json

        graph = base64.b64encode(save_json(self.mod).encode()).decode()
        return [str(self.shash & 0xFFFFFFFFFFFFFFFF), graph]

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> Workload:
        """The workload :meth:`as_json` wrote. Raises MalformedDataError for anything else."""
        from ...ir import load_json

        with malformed("a workload"):
            _, graph = json_obj
            mod = load_json(base64.b64decode(graph).decode())
            if not isinstance(mod, IRModule):
                raise MalformedDataError(f"a workload is an IRModule, not {type(mod).__name__}")
            return Workload(mod)


class TuningRecord:
    """One measured candidate: its trace, times, target and arguments; a failure is a record with ``error_msg``.

    ``stage`` says where it failed and ``status`` how, ``predicted`` is the cost model's score before the measurement, ``again`` marks the
    second measurement of a winner together with the verdict on its results.
    """

    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: Target | None = None,
        args_info: Sequence[ArgInfo] | None = None,
        *,
        error_msg: str | None = None,
        valid: bool | None = None,
        hardware: str | None = None,
        stage: str | None = None,
        predicted: float | None = None,
        time: float | None = None,
        again: bool = False,
        status: MeasureStatus | None = None,
    ) -> None:
        self.trace = trace
        self.workload = workload
        self.run_secs: list[float] | None = None if run_secs is None else [Seconds(x) for x in run_secs]
        self.target = target
        self.args_info = None if args_info is None else list(args_info)
        self.error_msg = error_msg
        self.numerically_valid = valid
        self.hardware = hardware if hardware is not None else hardware_fingerprint()
        self.stage = stage
        self.predicted = predicted
        self.time = time
        self.again = again
        self._status = status

    @property
    def status(self) -> MeasureStatus:
        """Outcome of the measurement; records of others that only have a text say less."""
        if self._status is not None and not self._status.ok:
            return self._status
        if self.error_msg and self.numerically_valid is not True and not self.again:
            return MeasureStatus.COMPILE if self.stage == "build" else MeasureStatus.RUNTIME
        return MeasureStatus.WRONG_ANSWER if self.numerically_valid is False else MeasureStatus.OK

    def is_valid(self) -> bool:
        """Whether the record may win: it has a non-empty trace, believable times, and was not found wrong."""
        if not self.trace.insts or self.numerically_valid is False or not self.run_secs:
            return False
        if self.error_msg and self.numerically_valid is None:
            return False
        return all(0 <= x < INVALID_SECONDS for x in self.run_secs)

    def as_measure_candidate(self) -> MeasureCandidate:
        """The candidate this record came from, its trace applied again."""
        from ..search_strategy import MeasureCandidate

        sch = Schedule(self.workload.mod, debug_mask="none")
        self.trace.apply_to_schedule(sch, remove_postproc=False)
        return MeasureCandidate(sch, self.args_info or [])

    def as_json(self) -> list[Any]:
        """``[trace, run_secs, target, args_info]``."""
        return [
            self.trace.as_json(remove_postproc=False),
            self.run_secs,
            None if self.target is None else self.target.export(),
            None if self.args_info is None else [a.as_json() for a in self.args_info],
        ]

    def notes(self) -> dict[str, Any]:
        """Further fields of a line of a database file; keys without a value are left out."""
        found = {
            "hardware": self.hardware,
            "error": self.error_msg[-2000:] if self.error_msg else None,
            "stage": self.stage,
            "status": None if self.status.ok else self.status.value,
            "valid": self.numerically_valid,
            "predicted": self.predicted,
            "time": self.time,
            "again": self.again or None,
        }
        return {key: value for key, value in found.items() if value is not None}

    @staticmethod
    def from_json(json_obj: Sequence[Any], workload: Workload, notes: Mapping[str, Any] | None = None) -> TuningRecord:
        """The record :meth:`as_json` wrote; its trace may be made already. Raises MalformedDataError for anything else."""
        with malformed("a tuning record"):
            trace, run_secs, target, args_info = json_obj
            notes = notes or {}
            return TuningRecord(
                trace if isinstance(trace, Trace) else Trace.from_json(trace),
                workload,
                run_secs,
                None if target is None else Target(target),
                None if args_info is None else [ArgInfo.from_json(a) for a in args_info],
                error_msg=notes.get("error"),
                valid=notes.get("valid"),
                hardware=notes.get("hardware", ""),
                stage=notes.get("stage"),
                predicted=notes.get("predicted"),
                time=notes.get("time"),
                again=bool(notes.get("again")),
                status=MeasureStatus.parse(notes.get("status")),
            )


_SCOPES = threading.local()


def _stack() -> list[Database]:
    if not hasattr(_SCOPES, "stack"):
        _SCOPES.stack = []
    stack: list[Database] = _SCOPES.stack
    return stack


class Database:
    """Stores workloads and records; subclass and define the six storage methods.

    Used as a scope, ``with database:`` makes it ``Database.current()``, which builds and passes consult.
    """

    #: Whether it may be used in several threads, and whether what is committed can be read by another process.
    thread_safe = False
    persistent = False

    def __init__(self, module_equality: str = "structural") -> None:
        self.module_equality = ModuleEquality(module_equality)

    # ---- storage, to be defined

    def has_workload(self, mod: IRModule) -> bool:
        """Whether the workload was committed."""
        raise MethodNotDefinedError(self, "has_workload")

    def commit_workload(self, mod: IRModule) -> Workload:
        """Store a workload, or find the equal one already there."""
        raise MethodNotDefinedError(self, "commit_workload")

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Store a record; durable once this returns."""
        raise MethodNotDefinedError(self, "commit_tuning_record")

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest valid records of a workload, best first."""
        raise MethodNotDefinedError(self, "get_top_k")

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Every record, failures included."""
        raise MethodNotDefinedError(self, "get_all_tuning_records")

    def __len__(self) -> int:
        raise NotImplementedError

    # ---- derived

    def ranked(self, workload: Workload) -> Iterable[TuningRecord]:
        """The valid records of a workload, best first; made one at a time where that is cheaper."""
        return self.get_top_k(workload, 1 << 30)

    def commit_verdict(self, record: TuningRecord) -> None:
        """Remember what ``record`` says of every measurement of its trace: whether it is right, and newer times.

        Databases of others keep the verdict in the record itself.
        """

    def commit_tuning_records(self, records: Iterable[TuningRecord]) -> None:
        """Store several records."""
        for record in records:
            self.commit_tuning_record(record)

    def commit_soon(self, record: TuningRecord) -> None:
        """Store a record so that it survives this process; :meth:`flush` makes it durable."""
        self.commit_tuning_record(record)

    def flush(self) -> None:
        """Make everything committed durable."""

    def hold(self, record: TuningRecord) -> bool:
        """Keep a record in memory that could not be written, until there is room; False where that cannot be done."""
        return False

    @property
    def unwritten(self) -> int:
        """Number of records in memory that could not be written."""
        return 0

    def left_out(self) -> dict[str, int]:
        """Number of records of other machines, by machine; queries pass them over unless they are asked for."""
        return {}

    def commit_named(self, mod: IRModule, name: str) -> Workload:
        """Store a workload under a name for people, where names are kept."""
        return self.commit_workload(mod)

    def add_baseline(self, workload: Workload, seconds: Sequence[float], best: float | None) -> None:
        """Note what the default schedule of a workload takes, and the best record of the same race; the last counts."""
        _BASELINES.setdefault(self, {})[workload.key] = list(seconds), best

    def baselines(self) -> dict[str, tuple[list[float], float | None]]:
        """The notes of :meth:`add_baseline` that were made on this machine, by ``Workload.key``."""
        return _BASELINES.get(self, {})

    def begin_run(
        self, target: Target | None, settings: Mapping[str, Any], weights: Mapping[Workload, float], model: str = ""
    ) -> None:
        """A tuning run begins; records committed from now on are of it. Databases that know of runs remember it."""

    def end_run(self, status: str, costs: Iterable[tuple[Workload | None, str, float, int]] = ()) -> None:
        """The run ended: ``finished`` or ``failed``; ``costs`` are workload, phase, seconds and how often."""

    def workloads(self) -> list[Workload]:
        """The distinct workloads that have records."""
        seen: list[Workload] = []
        for record in self.get_all_tuning_records():
            if not any(record.workload is w or self.module_equality.equal(record.workload.mod, w.mod) for w in seen):
                seen.append(record.workload)
        return seen

    def records_of(self, workload: Workload) -> list[TuningRecord]:
        """Every record of one workload, failures included, in the order committed."""
        return [r for r in self.get_all_tuning_records() if self.module_equality.equal(r.workload.mod, workload.mod)]

    def similar(self, mod: IRModule, count: int = 8) -> list[Workload]:
        """Other workloads with records whose heaviest blocks differ from a program's by their sizes only, nearest first.

        What is computed before and after that block may differ.
        """
        return nearest(mod, {r.workload.key: r.workload for r in self.get_all_tuning_records()}.values(), count)

    def query_tuning_record(self, mod: IRModule, target: Target, workload_name: str = "main") -> TuningRecord | None:
        """The best record for a module on a target that computes the right thing, checked now if nobody did before.

        Records of other machines are left out; see ``RELAXISH_ANY_HARDWARE`` and ``RELAXISH_UNCHECKED_RECORDS``.
        """
        if not self.has_workload(mod):
            return None
        return load("trust").first_trusted(self, self.ranked(self.commit_workload(mod)), target)

    def query_schedule(self, mod: IRModule, target: Target, workload_name: str = "main") -> Schedule | None:
        """The best record's trace applied to ``mod``."""
        record = self.query_tuning_record(mod, target, workload_name)
        # Whoever defines the query above may not have checked.
        if record is None or not load("trust").is_trusted(self, record, target):
            return None
        sch = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(sch, remove_postproc=False)
        return sch

    def query_ir_module(self, mod: IRModule, target: Target, workload_name: str = "main") -> IRModule | None:
        """The best schedule's module."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(
        self, mod: IRModule, target: Target, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Schedule | IRModule | TuningRecord | None:
        """``kind``: ``schedule``, ``record`` or ``ir_module``."""
        table: dict[str, Callable[..., Any]] = {
            "schedule": self.query_schedule,
            "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }
        if kind not in table:
            raise ValueError(f"unknown query kind {kind!r}; expected one of {sorted(table)}")
        result: Schedule | IRModule | TuningRecord | None = table[kind](mod, target, workload_name)
        return result

    def dump_pruned(self, destination: Database) -> None:
        """Copy the best record of each workload, for each machine, into another database.

        Records that are found wrong are passed over; one that cannot be checked here is copied as it is.
        """
        best: list[TuningRecord] = []
        for workload in self.workloads():
            machines: set[str] = set()
            for record in self.ranked(workload):
                place = "" if is_here(record) else record.hardware
                if place not in machines and load("trust").verdict_on(self, record).valid is not False:
                    machines.add(place)
                    best.append(record)
        for record in best:
            destination.commit_tuning_record(
                TuningRecord(
                    record.trace,
                    destination.commit_workload(record.workload.mod),
                    record.run_secs,
                    record.target,
                    record.args_info,
                    valid=record.numerically_valid,
                    hardware=record.hardware,
                )
            )

    def __enter__(self) -> Database:
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack().remove(self)

    @staticmethod
    def current() -> Database | None:
        """The innermost database in scope."""
        stack = _stack()
        return stack[-1] if stack else None

    @staticmethod
    def create(kind: str | Callable[..., Any] = "json", *args: Any, **kwargs: Any) -> Database:
        """``json`` | ``memory`` | ``sql`` | ``union`` | ``ordered_union`` | an URL | a schedule function."""
        if callable(kind):
            kind, args = "schedule_fn", (kind, *args)
        elif "://" in kind:
            kind, args = "sql", (kind, *args)
        elif kind not in _KINDS:
            raise ValueError(f"unknown database kind {kind!r}; expected one of {sorted(_KINDS)} or a function")
        made: Database = load(f"database.{kind}")(*args, **kwargs)
        return made


PyDatabase = Database
# What databases that keep no baselines were told; subclasses of others need not call a constructor.
_BASELINES: weakref.WeakKeyDictionary[Database, dict[str, tuple[list[float], float | None]]] = (
    weakref.WeakKeyDictionary()
)


def _same_device(lhs: Target, rhs: Target) -> bool:
    """Whether a result for one target serves the other: kind and instruction set must agree."""
    if lhs.kind.name != rhs.kind.name:
        return False
    for key in ("mcpu", "arch", "mattr"):
        a, b = lhs.attrs.get(key), rhs.attrs.get(key)
        if a and b and a != b:
            return False
    return True


def is_here(record: TuningRecord) -> bool:
    """Whether a record's times mean something on this machine.

    Those without a note of where they were measured count, and so do those for devices, whose target names them.
    """
    if not record.hardware or (record.target is not None and "gpu" in record.target.keys):
        return True
    return record.hardware == hardware_fingerprint()


def is_for(record: TuningRecord, target: Target | None) -> bool:
    """Whether a record is for a target, and of this machine unless others are asked for."""
    if not config.ANY_HARDWARE.value and not is_here(record):
        return False
    return record.target is None or target is None or _same_device(record.target, target)


def nearest(mod: IRModule, workloads: Iterable[Workload], count: int) -> list[Workload]:
    """The workloads of a program's structure, but for itself, those of the nearest sizes first."""
    mine = Workload(mod)
    if not mine.shape.structure:
        return []
    others = [w for w in workloads if w.shape.structure == mine.shape.structure and w.key != mine.key]
    return sorted(others, key=lambda w: mine.shape.distance(w.shape.sizes))[:count]


def verdict_key(record: TuningRecord) -> tuple[int, int]:
    """Key of verdicts: the whole trace and the target."""
    from .record_index import compact, key_of

    target = None if record.target is None else record.target.export()
    return key_of(compact(record.trace.as_json(remove_postproc=False)), compact(target))


def rank(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The valid records, fastest first, ties in the order given."""
    return sorted((r for r in records if r.is_valid()), key=lambda r: mean_seconds(r.run_secs))


def top_of(ranking: Iterable[TuningRecord], top_k: int) -> list[TuningRecord]:
    """The first ``top_k`` of a ranking that were measured on this machine, or anywhere if that is asked for."""
    if top_k < 0:
        raise ValueError("top_k must not be negative")
    anywhere = config.ANY_HARDWARE.value
    return list(itertools.islice((r for r in ranking if anywhere or is_here(r)), top_k))
