"""Connection to the database: addresses, transactions, and the errors of both."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from ....support.errors import DatabaseError, MissingExtraError

__all__ = ["Connections", "address_of"]

# How long a writer waits for others, which each hold the lock for some milliseconds.
_PATIENCE_SECONDS = 60.0
_MAGIC = b"SQLite format 3\x00"


def address_of(where: str | os.PathLike[str]) -> sa.URL:
    """The address of a database: an URL as it is, a path as that of an SQLite file.

    >>> str(address_of("logs/tuning.sqlite")), address_of("postgresql://lab/tuning").drivername
    ('sqlite:///logs/tuning.sqlite', 'postgresql+psycopg')
    """
    text = os.fspath(where)
    if "://" not in text:
        return sa.URL.create("sqlite", database=text)
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError as err:
        raise DatabaseError(f"{text!r} is no address of a database: {err}") from None
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise DatabaseError(f"{text}: databases are sqlite files or postgresql servers, not {kind}")
    if kind == "sqlite" and (not url.database or url.database == ":memory:"):
        raise DatabaseError("an SQL database is a file or a server; MemoryDatabase lives in memory")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


class Connections:
    """Connections to one database, for any thread; a forked process gets its own.

    Writers take turns: a transaction that writes holds the lock from its beginning, so that none has to be repeated.
    """

    def __init__(self, where: str | os.PathLike[str], readonly: bool = False) -> None:
        self.url = address_of(where)
        self.name = self.url.database or "" if self.is_file else self.url.render_as_string(hide_password=True)
        self.readonly = readonly
        self._engine: Engine | None = None
        self._pid = os.getpid()

    @property
    def is_file(self) -> bool:
        """Whether this is an SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def engine(self) -> Engine:
        """The pool of connections of this process."""
        if self._engine is not None and self._pid != os.getpid():
            # The parent's connections are the parent's; closing them here would end them there.
            self._engine.dispose(close=False)
            self._engine = None
        if self._engine is None:
            self._pid = os.getpid()
            self._engine = self._file_engine() if self.is_file else self._server_engine()
        return self._engine

    def _server_engine(self) -> Engine:
        try:
            return sa.create_engine(self.url, pool_pre_ping=True, pool_size=8)
        except ImportError as err:
            raise MissingExtraError("postgres", "psycopg", "a database on a PostgreSQL server") from err

    def _file_engine(self) -> Engine:
        _check_file(self.name)

        def connect() -> sqlite3.Connection:
            mode = "ro" if self.readonly else "rwc"
            path = os.path.abspath(self.name).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            made = sqlite3.connect(
                f"file:{path}?mode={mode}", uri=True, timeout=_PATIENCE_SECONDS, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            try:
                _prepare(made, self.readonly)
            except BaseException:
                made.close()
                raise
            return made

        engine = sa.create_engine(self.url, creator=connect, poolclass=sa.QueuePool, pool_size=8, max_overflow=64)
        sa.event.listen(engine, "begin", _begin)
        return engine

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database. Raises DatabaseError where it cannot be read."""
        with self._told("read"), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self, durable: bool = True) -> Iterator[Connection]:
        """A transaction that writes all or nothing; unless ``durable``, a machine that fails may forget it.

        Raises DatabaseError where it cannot be written.
        """
        if self.readonly:
            raise DatabaseError(f"database {self.name} was opened read-only")
        with self._told("write to"), self.engine.connect() as connection:
            connection = connection.execution_options(relaxish_writes="full" if durable else "normal")
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, sqlite3.Error, sa.exc.TimeoutError) as err:
            cause = getattr(err, "orig", None) or err
            reason = " ".join(str(cause).split()) or type(cause).__name__
            raise DatabaseError(f"cannot {what} database {self.name}: {reason}") from err

    def flush(self) -> None:
        """Make durable what was written without being so."""
        if self.is_file and not self.readonly:
            # A commit that syncs takes all before it along; this one changes nothing but has a page to write.
            with self.writing() as connection:
                version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
                connection.exec_driver_sql(f"PRAGMA user_version = {int(version)}")

    def lock(self, connection: Connection, number: int) -> None:
        """Hold other writers off what ``number`` stands for until the transaction ends; files are locked as a whole."""
        if not self.is_file:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        if self._engine is not None and self._pid == os.getpid():
            self._engine.dispose()
        self._engine = None


def _check_file(path: str) -> None:
    """Refuse what is no SQLite file before anything is written there."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DatabaseError(f"cannot open database {path}: there is no folder {folder}")
    if os.path.isdir(path):
        raise DatabaseError(f"cannot open database {path}: it is a folder")
    try:
        with open(path, "rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as err:
        raise DatabaseError(f"cannot open database {path}: {err.strerror}") from err
    if start and start != _MAGIC:
        raise DatabaseError(f"{path}: is damaged, or not an SQLite database")


def _prepare(connection: sqlite3.Connection, readonly: bool) -> None:
    """Settings of a fresh connection."""
    run = connection.execute
    run(f"PRAGMA busy_timeout = {int(_PATIENCE_SECONDS * 1000)}")
    run("PRAGMA foreign_keys = ON")
    run("PRAGMA cache_size = -65536")
    if readonly:
        return
    end = time.monotonic() + _PATIENCE_SECONDS
    while run("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            run("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:  # several that open a new file: this one change does not wait for its turn
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    options: Any = connection.get_execution_options()
    durability = options.get("relaxish_writes")
    if durability is None:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous = {durability}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
