"""Structure and sizes of workloads, by which similar ones are found; those that are there get them when next met."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("workloads", sa.Column("structure", sa.String(32)))
    op.add_column("workloads", sa.Column("sizes", sa.Text))
    op.create_index("ix_workloads_structure", "workloads", ["structure"])
