"""The tables. ``HEAD`` is the revision they are at; a change of them is a migration, see ``migrations``.

A record is small: the instructions of its trace are one row of ``sketches`` for all candidates of a sketch, its target and
its machine are rows of their own. ``seconds`` is what records are ranked by, NULL where one may not win. What is
known of a trace whenever it was measured (is it right?) is in ``verdicts``, and in each of its records as well.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "HEAD",
    "METADATA",
    "baselines",
    "costs",
    "hardware",
    "model_workloads",
    "models",
    "records",
    "runs",
    "sketches",
    "targets",
    "verdicts",
    "workloads",
]

HEAD = "0002"

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite numbers rows by itself only in a column declared INTEGER.
_ID = BigInteger().with_variant(Integer(), "sqlite")


def _number() -> Column[int]:
    return Column("id", _ID, primary_key=True, autoincrement=True)


def _of(table: str, null: bool = True) -> Column[int]:
    """A reference to a row of another table."""
    return Column(f"{table.removesuffix('s')}_id", _ID, ForeignKey(f"{table}.id"), nullable=null)


#: Machines by ``hardware_fingerprint()``; ``facts`` is a JSON object of whatever else is known of one.
hardware = Table(
    "hardware", METADATA, _number(),
    Column("name", Text, nullable=False, unique=True),
    Column("facts", Text),
    Column("seen", Float),
)  # fmt: skip

#: Targets as JSON text; ``device`` where times do not depend on the machine around.
targets = Table(
    "targets", METADATA, _number(),
    Column("digest", String(32), nullable=False, unique=True),
    Column("text", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("device", Boolean, nullable=False),
)  # fmt: skip

#: Programs to tune. Programs that differ under one hash have different ``slot``s. ``structure`` names programs whose
#: heaviest blocks differ by their sizes only, which ``sizes`` lists (JSON), so that schedules of similar ones are found.
workloads = Table(
    "workloads", METADATA, _number(),
    Column("hash", String(16), nullable=False),
    Column("slot", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("graph", Text, nullable=False),
    Column("script", Text, nullable=False),
    Column("created", Float),
    Column("structure", String(32)),
    Column("sizes", Text),
    UniqueConstraint("hash", "slot"),
    Index("ix_workloads_structure", "structure"),
)  # fmt: skip

#: The instructions of traces (JSON), without the decisions.
sketches = Table(
    "sketches", METADATA, _number(),
    Column("digest", String(32), nullable=False, unique=True),
    Column("instructions", Text, nullable=False),
)  # fmt: skip

#: Whole models, and how often each calls its workloads.
models = Table(
    "models", METADATA, _number(),
    Column("digest", String(32), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("created", Float),
)  # fmt: skip

model_workloads = Table(
    "model_workloads", METADATA,
    Column("model_id", _ID, ForeignKey("models.id"), primary_key=True),
    Column("workload_id", _ID, ForeignKey("workloads.id"), primary_key=True),
    Column("weight", Float, nullable=False),
)  # fmt: skip

#: Tuning runs. ``status``: running, finished, failed; ``heartbeat`` is when a run last said that it goes on.
runs = Table(
    "runs", METADATA, _number(),
    Column("key", String(32), nullable=False, unique=True),
    _of("models"),
    _of("targets"),
    Column("hardware_id", _ID, ForeignKey("hardware.id")),
    Column("settings", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("heartbeat", Float),
    Column("ended", Float),
    Column("process", Text),
)  # fmt: skip

#: Measurements. ``trace_key`` tells traces of a workload and target apart; times are JSON lists of seconds.
records = Table(
    "records", METADATA, _number(),
    _of("workloads", null=False),
    _of("targets", null=False),
    Column("sketch_id", _ID, ForeignKey("sketches.id"), nullable=False),
    Column("hardware_id", _ID, ForeignKey("hardware.id")),
    _of("runs"),
    Column("trace_key", BigInteger, nullable=False),
    Column("decisions", Text, nullable=False),
    Column("run_secs", Text),
    Column("seconds", Float),
    Column("args_info", Text),
    Column("error", Text),
    Column("stage", Text),
    Column("status", Text),
    Column("valid", Boolean),
    Column("predicted", Float),
    Column("time", Float),
    # Answers "the fastest of a workload", and holds all that choosing among them needs.
    Index("ix_records_ranking", "workload_id", "seconds", "id"),
    Index("ix_records_trace", "workload_id", "trace_key"),
    Index("ix_records_place", "hardware_id", "target_id"),
    Index("ix_records_run_id", "run_id"),
)  # fmt: skip

#: What checks found out about traces, with the times of the last one.
verdicts = Table(
    "verdicts", METADATA, _number(),
    _of("workloads", null=False),
    _of("targets", null=False),
    Column("trace_key", BigInteger, nullable=False),
    Column("valid", Boolean, nullable=False),
    Column("reason", Text),
    Column("run_secs", Text),
    Column("time", Float),
    UniqueConstraint("workload_id", "target_id", "trace_key"),
)  # fmt: skip

#: What default schedules take, and the best record of the same race; the last row of a workload and machine counts.
baselines = Table(
    "baselines", METADATA, _number(),
    _of("workloads", null=False),
    Column("hardware_id", _ID, ForeignKey("hardware.id")),
    Column("run_secs", Text, nullable=False),
    Column("best", Float),
    Column("time", Float),
    Index("ix_baselines_workload_id", "workload_id"),
)  # fmt: skip

#: Where the time of runs went: ``seconds`` of a ``phase`` (search, build, run, check, ...), ``count`` times.
costs = Table(
    "costs", METADATA, _number(),
    _of("runs", null=False),
    _of("workloads"),
    Column("phase", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("count", Integer, nullable=False),
    Index("ix_costs_run_id", "run_id"),
)  # fmt: skip
