"""Stores of measurements by what was measured."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from ..support.errors import MissingExtraError
from .record import decode, encode, measure_str_key

__all__ = ["Database", "DummyDatabase", "RedisDatabase", "filter_inputs"]


class Database:
    """Subclass and define ``load`` and ``save``."""

    def load(self, inp: Any, get_all: bool = False) -> Any:
        """The latest result of an input, None if there is none; with ``get_all`` the list of all."""
        raise NotImplementedError

    def save(self, inp: Any, res: Any, extend: bool = False) -> None:
        """Keep a result: besides those that are there (``extend``), or instead of them."""
        raise NotImplementedError


def filter_inputs(db: Database, measure_inputs: Iterable[Any], retry: bool = False) -> list[Any]:
    """The inputs that have no result yet; with ``retry`` also those that failed."""
    left = []
    for inp in measure_inputs:
        known = db.load(inp)
        if known is None or (retry and int(known.error_no) != 0):
            left.append(inp)
    return left


_MAGIC_SPLIT = "%"


class RedisDatabase(Database):
    """Results in a Redis server. Raises MissingExtraError where its client is not installed."""

    REDIS_PROD = 15
    REDIS_LOCA = 14
    REDIS_TEST = 13
    REDIS_NIGHT_TEMP = 12

    def __init__(self, db_index: int = REDIS_PROD, host: str = "127.0.0.1", port: int = 6379) -> None:
        try:
            redis = importlib.import_module("redis")
        except ImportError as err:
            raise MissingExtraError("redis", "redis", "RedisDatabase") from err
        self.db: Any = redis.StrictRedis(host=host, port=port, db=db_index)
        if db_index != self.REDIS_PROD:
            self.db.config_set("maxmemory-policy", "noeviction")

    def set(self, measure_str: str, measure_strs: str) -> None:
        """Store the text of a key."""
        self.db.set(measure_str, measure_strs)

    def get(self, measure_str: str) -> str | None:
        """The text of a key, None if there is none."""
        found = self.db.get(measure_str)
        return found.decode() if isinstance(found, bytes) else found

    def load(self, inp: Any, get_all: bool = False) -> Any:
        stored = self.get(measure_str_key(inp))
        rows = [] if stored is None else [decode(row) for row in stored.split(_MAGIC_SPLIT + "\n") if row]
        results = [row[1] for row in rows if row is not None]
        if get_all:
            return results or None
        return max(results, key=lambda r: r.timestamp) if results else None

    def save(self, inp: Any, res: Any, extend: bool = False) -> None:
        key = measure_str_key(inp)
        known = self.get(key) if extend else None
        row = encode(inp, res)
        self.set(key, row if known is None else f"{known}{_MAGIC_SPLIT}\n{row}")

    def filter(self, func: Any) -> list[tuple[Any, Any]]:
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

    def __init__(self, records: Sequence[tuple[Any, Any]] = ()) -> None:
        self.db = _Memory()
        for inp, res in records:
            self.save(inp, res, extend=True)


class _Memory(dict[str, str]):
    """A dictionary with the calls of a Redis client that are used here."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def flushdb(self) -> None:
        self.clear()
