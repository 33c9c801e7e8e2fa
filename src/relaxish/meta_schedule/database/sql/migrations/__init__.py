"""Bringing a database to the present schema, from whatever version of this package it is of (alembic)."""

from __future__ import annotations

import os

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from .....support.errors import DatabaseError, MissingExtraError
from ..engine import Connections
from ..schema import HEAD, METADATA

__all__ = ["prepare", "revision_of", "upgrade"]

_VERSION = sa.table("alembic_version", sa.column("version_num"))
# Those who make or change tables take turns.
_LOCK = 0x72656C61


def revision_of(connection: Connection) -> str | None:
    """The revision of the schema; None where there are no tables. Raises DatabaseError for tables of others."""
    names = set(sa.inspect(connection).get_table_names())
    if "alembic_version" in names and "records" in names:
        return str(connection.execute(sa.select(_VERSION.c.version_num)).scalar_one())
    if names:
        raise DatabaseError(f"a database of something else: it has the tables {', '.join(sorted(names)[:5])}")
    return None


def prepare(connections: Connections, create: bool) -> None:
    """Make the tables of a new database; of an existing one, see that this package can work with it.

    Raises DatabaseError for a database of another version, or for one that is not there and not to be made.
    """
    with connections.reading() as connection:
        found = revision_of(connection)
    if found is None:
        if not create or connections.readonly:
            raise DatabaseError(f"{connections.name}: there is no tuning database")
        with connections.writing() as connection:
            connections.lock(connection, _LOCK)
            found = revision_of(connection)
            if found is None:
                found = HEAD
                METADATA.create_all(connection)
                connection.exec_driver_sql(
                    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
                )
                connection.execute(sa.insert(_VERSION).values(version_num=HEAD))
    if found != HEAD:
        known = found in _revisions()
        advice = f"relaxish db upgrade {connections.name}" if known else "it takes a newer version of relaxish"
        raise DatabaseError(f"{connections.name}: has schema version {found}, this is version {HEAD}: {advice}")


def _revisions() -> list[str]:
    """The revisions this package knows, oldest first."""
    folder = os.path.join(os.path.dirname(__file__), "versions")
    return sorted(name[1:5] for name in os.listdir(folder) if name.startswith("v"))


def upgrade(connections: Connections) -> tuple[str, str]:
    """Bring an existing database to the present schema, all or nothing; the revisions before and after.

    Raises DatabaseError for what is no tuning database, or one of a newer version.
    """
    try:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.runtime.migration import MigrationContext, RevisionStep
        from alembic.script import ScriptDirectory
    except ImportError as err:
        raise MissingExtraError("db", "alembic", "changing the schema of a database") from err
    config = Config()
    config.set_main_option("script_location", os.path.dirname(__file__).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)

    def steps(revision: str, context: MigrationContext) -> list[RevisionStep]:
        return script._upgrade_revs("head", revision)

    with connections.writing() as connection:
        connections.lock(connection, _LOCK)
        before = revision_of(connection)
        if before is None:
            raise DatabaseError(f"{connections.name}: there is no tuning database")
        if before not in _revisions():
            raise DatabaseError(f"{connections.name}: has schema version {before}, which this version does not know")
        with EnvironmentContext(config, script) as environment:
            environment.configure(connection=connection, fn=steps, transactional_ddl=True)
            environment.run_migrations()
        after = revision_of(connection)
    return before, str(after)
