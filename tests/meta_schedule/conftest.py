"""A PostgreSQL server for the tests of databases."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class PostgresServer:
    """A server of this test session in a folder of its own, reached by a socket there; it does not run as root."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rxpg"))
        self._prefix, self._as = _lesser_user(self.folder)
        data = self.folder / "data"
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "--no-locale"]
        self._run("initdb", *options, "-D", str(data))
        # Tests end this process at most, not the machine: nothing need reach the disk.
        settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", f"unix_socket_directories={self.folder}"]
        log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(
            [*self._prefix, "postgres", "-D", str(data), *settings],
            stdout=log, stderr=log, cwd=self.folder, **self._as,
        )  # fmt: skip
        self._number = 0
        self._wait()

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self._prefix, *command], cwd=self.folder, capture_output=True, timeout=120, **self._as)
        if done.returncode:
            raise OSError(f"{command[0]}: {done.stderr.decode(errors='replace')}")

    def _wait(self) -> None:
        import psycopg

        for _ in range(600):
            try:
                psycopg.connect(f"host={self.folder} user=postgres dbname=postgres").close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None:
                    raise OSError((self.folder / "log").read_text()) from None
                time.sleep(0.05)
        raise OSError("PostgreSQL did not start")

    def fresh(self, folder: Path | None = None) -> str:
        """The URL of a new, empty database, its files in a folder of their own if one is given."""
        import psycopg

        self._number += 1
        name, place = f"tuning{self._number}", ""
        with psycopg.connect(f"host={self.folder} user=postgres dbname=postgres", autocommit=True) as connection:
            if folder is not None:
                (folder / name).mkdir()
                if os.getuid() == 0 and self._as:
                    os.chown(folder / name, self._as["user"], self._as["group"])
                connection.execute(f"CREATE TABLESPACE {name} LOCATION '{folder / name}'")
                place = f" TABLESPACE {name}"
            connection.execute(f"CREATE DATABASE {name}{place}")
        return f"postgresql://postgres@/tuning{self._number}?host={self.folder}"

    def stop(self) -> None:
        """End it and remove its folder."""
        self.process.send_signal(signal.SIGINT)  # which waits for no client
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _lesser_user(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """How to start a program as somebody else than root: what stands before it, and arguments of ``subprocess``."""
    if os.getuid() != 0:
        return [], {}
    user = next((pwd.getpwnam(name) for name in ("postgres", "nobody") if _known(name)), None)
    if user is None:
        raise OSError("PostgreSQL refuses to run as root and there is no other user")
    other: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    if _runs(["initdb", "--version"], **other):
        os.chown(folder, user.pw_uid, user.pw_gid)
        return [], other
    # Where only root may read the file system: root outside, the other user inside of a namespace.
    prefix = ["unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}"]
    if not _runs([*prefix, "initdb", "--version"]):
        raise OSError("PostgreSQL refuses to run as root and other users cannot run it")
    return prefix, {}


def _runs(command: list[str], **options: Any) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, **options).returncode == 0
    except OSError:
        return False


def _known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server; tests that want one are skipped where PostgreSQL is not installed."""
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    if not shutil.which("initdb") or not shutil.which("postgres"):
        pytest.skip("PostgreSQL is not installed")
    try:
        server = PostgresServer()
    except (OSError, subprocess.SubprocessError) as err:
        pytest.skip(f"PostgreSQL does not run here: {err}")
    yield server
    server.stop()
