"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table("hardware",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("facts", sa.Text),
        sa.Column("seen", sa.Float),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hardware")),
        sa.UniqueConstraint("name", name=op.f("uq_hardware_name"))
    )  # fmt: skip
    op.create_table("models",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.Float),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("digest", name=op.f("uq_models_digest"))
    )  # fmt: skip
    op.create_table("sketches",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("instructions", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sketches")),
        sa.UniqueConstraint("digest", name=op.f("uq_sketches_digest"))
    )  # fmt: skip
    op.create_table("targets",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("device", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_targets")),
        sa.UniqueConstraint("digest", name=op.f("uq_targets_digest"))
    )  # fmt: skip
    op.create_table("workloads",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("hash", sa.String(16), nullable=False),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("graph", sa.Text, nullable=False),
        sa.Column("script", sa.Text, nullable=False),
        sa.Column("created", sa.Float),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
        sa.UniqueConstraint("hash", "slot", name=op.f("uq_workloads_hash_slot"))
    )  # fmt: skip
    _make_measurements()


def _make_measurements() -> None:
    op.create_table("baselines",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("workload_id", _ID, nullable=False),
        sa.Column("hardware_id", _ID),
        sa.Column("run_secs", sa.Text, nullable=False),
        sa.Column("best", sa.Float),
        sa.Column("time", sa.Float),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name=op.f("fk_baselines_hardware_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_baselines_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baselines"))
    )  # fmt: skip
    op.create_index("ix_baselines_workload_id", "baselines", ["workload_id"])
    op.create_table("model_workloads",
        sa.Column("model_id", _ID, nullable=False),
        sa.Column("workload_id", _ID, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_workloads_model_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_model_workloads_workload_id")),
        sa.PrimaryKeyConstraint("model_id", "workload_id", name=op.f("pk_model_workloads"))
    )  # fmt: skip
    op.create_table("runs",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("model_id", _ID),
        sa.Column("target_id", _ID),
        sa.Column("hardware_id", _ID),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("heartbeat", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("process", sa.Text),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name=op.f("fk_runs_hardware_id")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_runs_model_id")),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name=op.f("fk_runs_target_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("key", name=op.f("uq_runs_key"))
    )  # fmt: skip
    op.create_table("verdicts",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("workload_id", _ID, nullable=False),
        sa.Column("target_id", _ID, nullable=False),
        sa.Column("trace_key", sa.BigInteger, nullable=False),
        sa.Column("valid", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("run_secs", sa.Text),
        sa.Column("time", sa.Float),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name=op.f("fk_verdicts_target_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_verdicts_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
        sa.UniqueConstraint("workload_id", "target_id", "trace_key", name=op.f("uq_verdicts_workload_id_target_id_trace_key"))
    )  # fmt: skip
    _make_records()


def _make_records() -> None:
    op.create_table("costs",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("workload_id", _ID),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_costs_run_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_costs_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_costs"))
    )  # fmt: skip
    op.create_index("ix_costs_run_id", "costs", ["run_id"])
    op.create_table("records",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("workload_id", _ID, nullable=False),
        sa.Column("target_id", _ID, nullable=False),
        sa.Column("sketch_id", _ID, nullable=False),
        sa.Column("hardware_id", _ID),
        sa.Column("run_id", _ID),
        sa.Column("trace_key", sa.BigInteger, nullable=False),
        sa.Column("decisions", sa.Text, nullable=False),
        sa.Column("run_secs", sa.Text),
        sa.Column("seconds", sa.Float),
        sa.Column("args_info", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("stage", sa.Text),
        sa.Column("status", sa.Text),
        sa.Column("valid", sa.Boolean),
        sa.Column("predicted", sa.Float),
        sa.Column("time", sa.Float),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name=op.f("fk_records_hardware_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_records_run_id")),
        sa.ForeignKeyConstraint(["sketch_id"], ["sketches.id"], name=op.f("fk_records_sketch_id")),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name=op.f("fk_records_target_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_records_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_records"))
    )  # fmt: skip
    op.create_index("ix_records_place", "records", ["hardware_id", "target_id"])
    op.create_index("ix_records_ranking", "records", ["workload_id", "seconds", "id"])
    op.create_index("ix_records_run_id", "records", ["run_id"])
    op.create_index("ix_records_trace", "records", ["workload_id", "trace_key"])
