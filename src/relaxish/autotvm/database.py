"""Stores of measurements by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from .measure import MeasureInput, MeasureResult
from .record import decode, encode, measure_str_key
from .redis import RedisClient

__all__ = ["Database", "DummyDatabase", "RedisDatabase", "filter_inputs"]


class Database:
    """Subclass and define ``load`` and ``save``."""

    def load(self, inp: MeasureInput, get_all: bool = False) -> MeasureResult | list[MeasureResult] | None:
        """The latest result of an input, None if there is none; with ``get_all`` the list of all."""
        raise NotImplementedError

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result: besides those that are there (``extend``), or instead of them."""
        raise NotImplementedError


def filter_inputs(db: Database, measure_inputs: Iterable[MeasureInput], retry: bool = False) -> list[MeasureInput]:
    """The inputs that have no result yet; with ``retry`` also those that failed."""
    left = []
    for inp in measure_inputs:
        known = db.load(inp)
        if not isinstance(known, MeasureResult) or (retry and int(known.error_no) != 0):
            left.append(inp)
    return left


_MAGIC_SPLIT = "%"


class _Store(Protocol):
    """Where texts are kept by their keys."""

    def set(self, key: str, value: str, /) -> None:
        """Store a text."""

    def get(self, key: str, /) -> str | None:
        """The text of a key, None if there is none."""

    def keys(self) -> Iterable[str]:
        """All keys."""

    def flushdb(self) -> None:
        """Forget everything."""


class RedisDatabase(Database):
    """Results in a Redis server. Raises RelaxishError where none answers."""

    REDIS_PROD = 15
    REDIS_LOCA = 14
    REDIS_TEST = 13
    REDIS_NIGHT_TEMP = 12

    def __init__(self, db_index: int = REDIS_PROD, host: str = "127.0.0.1", port: int = 6379) -> None:
        self.db: _Store = RedisClient(host, port, db_index)

    def set(self, measure_str: str, measure_strs: str) -> None:
        """Store the text of a key."""
        self.db.set(measure_str, measure_strs)

    def get(self, measure_str: str) -> str | None:
        """The text of a key, None if there is none."""
        return self.db.get(measure_str)

    def load(self, inp: MeasureInput, get_all: bool = False) -> MeasureResult | list[MeasureResult] | None:
        stored = self.get(measure_str_key(inp))
        rows = [] if stored is None else [decode(row) for row in stored.split(_MAGIC_SPLIT + "\n") if row]
        results = [row[1] for row in rows if row is not None]
        if get_all:
            return results or None
        return max(results, key=lambda r: r.timestamp) if results else None

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        key = measure_str_key(inp)
        known = self.get(key) if extend else None
        row = encode(inp, res)
        self.set(key, row if known is None else f"{known}{_MAGIC_SPLIT}\n{row}")

    def filter(self, func: Callable[[MeasureInput, MeasureResult], bool]) -> list[tuple[MeasureInput, MeasureResult]]:
        """The measurements for which ``func(input, result)`` holds."""
        out = []
        for key in self.db.keys():
            for row in (self.get(key) or "").split(_MAGIC_SPLIT + "\n"):
                made = decode(row) if row else None
                if made is not None and func(*made):
                    out.append(made)
        return out

    def flush(self) -> None:
        """Forget everything."""
        self.db.flushdb()


class DummyDatabase(RedisDatabase):
    """Results in this process's memory."""

    def __init__(self, records: Sequence[tuple[MeasureInput, MeasureResult]] = ()) -> None:
        self.db = _Memory()
        for inp, res in records:
            self.save(inp, res, extend=True)


class _Memory:
    """Texts in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.get = self._texts.get
        self.set = self._texts.__setitem__
        self.keys = self._texts.keys
        self.flushdb = self._texts.clear
