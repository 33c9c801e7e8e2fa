"""The cache of compiled objects spoiled: damaged, foreign and half-written entries, odd folders, many writers, full disks.

Programs that are built with such a cache must give the right numbers, as without one.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import relaxish
from faults.batches import run_cases
from faults.mutation import damaged_bytes
from relaxish.script import from_source
from relaxish.support import config
from relaxish.testing.fuzz.child import in_child

_X = np.random.default_rng(1).standard_normal(8).astype("float32")
_FACTORS = (2.0, 3.0, -5.0)


def _program(factor: float) -> Any:
    return from_source(
        f"""@T.prim_func
def f(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] * T.float32({factor})
"""
    )


def _wrong(factors: tuple[float, ...]) -> str:
    """Build the programs with the cache as it is, run them, and say what is not right."""
    for factor in factors:
        out = np.full(8, np.nan, "float32")
        relaxish.tir.build(_program(factor), "llvm")(_X, out)
        if not np.array_equal(out, _X * np.float32(factor)):
            return f"x * {factor} is {out}, not {_X * np.float32(factor)}"
    return ""


def _entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


class _Case:
    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.told = folder, rng, ""

    def run(self) -> str:
        ways: list[Callable[[], None]] = [
            self.damage,
            self.damage,
            self.foreign,
            self.odd,
            self.folders,
            self.full,
            self.writers,
        ]
        way = self.rng.choice(ways)
        self.told = way.__name__
        found = in_child(lambda: _wrong(_FACTORS), 25)  # fills the cache
        if found == "":
            if len(_entries(self.folder)) < len(_FACTORS):
                found = "nothing was kept"
            else:
                way()
                found = self._use()
        self.told += f": {found}"
        return "right" if found == "" else "wrong"

    def _use(self) -> str:
        if self.told != "full":
            return str(in_child(lambda: _wrong(_FACTORS), 25))

        def on_a_full_disk() -> str:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.rng.choice([0, 1, 100, 4000]),) * 2)
            return _wrong((*_FACTORS, 7.0))

        found = in_child(on_a_full_disk, 25)
        return str(found or in_child(lambda: _wrong((*_FACTORS, 7.0)), 25))

    def damage(self) -> None:
        for path in _entries(self.folder):
            if self.rng.random() < 0.8:
                path.write_bytes(damaged_bytes(path.read_bytes(), self.rng))

    def foreign(self) -> None:
        """Entries under names of others, whole as they are."""
        paths = _entries(self.folder)
        bodies = [p.read_bytes() for p in paths]
        for path, body in zip(paths, [*bodies[1:], bodies[0]]):
            path.write_bytes(body)

    def odd(self) -> None:
        """Folders, links, pipes and empty files where entries are due, and what a killed writer leaves."""
        for path in _entries(self.folder):
            kind = self.rng.randrange(6)
            (path.parent / f".new{kind}").write_bytes(path.read_bytes()[:50])
            path.unlink()
            if kind == 0:
                path.mkdir()
            elif kind == 1:
                path.symlink_to(self.rng.choice(["/dev/zero", "/dev/null", "/etc/passwd", path.name, "/"]))
            elif kind == 2:
                os.mkfifo(path)
            elif kind == 3:
                path.write_bytes(b"")
            elif kind == 4:
                path.mkdir()
                (path / "x").write_bytes(b"x")

    def folders(self) -> None:
        """Modes that let others in, or nobody; files where folders are due."""
        part = self.rng.choice([self.folder, self.folder / "objects", _entries(self.folder)[0].parent])
        kind = self.rng.randrange(3)
        if kind == 0:
            part.chmod(self.rng.choice([0o777, 0o755, 0o500, 0, 0o1777, 0o702, 0o300]))
            return
        shutil.rmtree(part)
        if kind == 1:
            part.write_bytes(b"no folder")
        else:
            part.symlink_to(self.rng.choice(["/", "/nowhere", str(self.folder.parent), part.name]))

    def full(self) -> None:
        """No room for new entries, nor for what is written over old ones."""
        self.rng.choice([lambda: None, self.damage, lambda: shutil.rmtree(self.folder)])()

    def writers(self) -> None:
        """Three processes that build the same programs at once, while this one spoils what they write."""
        shutil.rmtree(self.folder)
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if _wrong(_FACTORS) == "" else 2
                finally:
                    os._exit(status)
            children.append(child)
        ends: dict[int, int] = {}
        while len(ends) < len(children):
            for path in _entries(self.folder) if self.folder.exists() else []:
                try:
                    if self.rng.random() < 0.3:
                        path.write_bytes(damaged_bytes(path.read_bytes() + b"x", self.rng))
                except OSError:
                    continue  # replaced or renamed meanwhile
            for child in children:
                if child not in ends and (status := os.waitpid(child, os.WNOHANG))[0]:
                    ends[child] = os.waitstatus_to_exitcode(status[1])
            time.sleep(0.002)
        if any(ends.values()):
            raise RuntimeError(f"writers ended with {list(ends.values())}")


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Spoiled caches ``tried``: results ``right`` or ``wrong``, other errors ``lost``, ``crashed`` and ``hung``."""

    def one(number: int) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as place:
            case = _Case(Path(place) / "cache", random.Random(f"{seed} {number}"))
            with config.CACHE_DIR.override(Path(place) / "cache"), config.CACHE.override(True):
                try:
                    key = case.run()
                except Exception as error:  # whatever it is, the cache should not have let it through
                    return "lost", f"{case.told}: {type(error).__name__}: {error}"
        return key, case.told if key == "wrong" else ""

    return run_cases(one, ("right", "wrong", "lost"), budget_s, patience=60)
