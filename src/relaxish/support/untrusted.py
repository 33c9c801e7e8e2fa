"""Data from files and other processes: JSON within limits, and checks that say what is wrong where.

A *check* is a function ``check(value, where)`` that returns the value, or raises :class:`MalformedDataError` naming the
place. Small checks make larger ones:

>>> person = record({"name": text(), "age": integer(0, 150)}, optional={"pets": list_of(text())})
>>> person({"name": "Ada", "age": 36}, "person")["age"]
36
>>> person({"name": "Ada", "age": "old"}, "person")
Traceback (most recent call last):
    ...
relaxish.support.errors.MalformedDataError: person.age: expected an integer from 0 to 150, got 'old'
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from .errors import MalformedDataError, RelaxishError

__all__ = [
    "Check", "anything", "boolean", "integer", "json_depth", "list_of", "malformed", "mapping_of", "number", "one_of",
    "optional", "parse_json", "parse_plain_pickle", "record", "text", "tuple_of",
]  # fmt: skip

Check = Callable[[Any, str], Any]

MAX_DEPTH = 500
MAX_BYTES = 1 << 30
_SMALL = 1 << 18
_SAFE_RECURSION = 5_000
# Brackets inside of strings do not count. A string without end goes to the end, so that none is read twice.
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def json_depth(document: str) -> int:
    """Nesting depth of the lists and objects of a JSON text (of a text that is no JSON: some number)."""
    import numpy as np

    codes = np.frombuffer(_STRINGS.sub("", document).encode("utf-8", "replace"), np.uint8)
    steps = np.zeros(codes.size, np.int8)
    for opening in b"[{":
        steps += codes == opening
    for closing in b"]}":
        steps -= codes == closing
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


def parse_json(
    document: str | bytes | bytearray, what: str, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES
) -> Any:
    """The value of a JSON text. Raises MalformedDataError, naming ``what``, for anything else or beyond the limits."""
    if len(document) > max_bytes:
        raise MalformedDataError(f"{what}: {len(document)} bytes are more than the {max_bytes} allowed")
    try:
        decoded = document if isinstance(document, str) else bytes(document).decode()
        # The parser recurses, and stops at Python's recursion limit; where that was raised the stack may end first. In
        # large documents looking at the depth first would take a fifth of the time.
        look = len(decoded) <= _SMALL or sys.getrecursionlimit() > _SAFE_RECURSION
        # Only a text with that many brackets can be so deep, which is quick to see.
        many = look and decoded.count("[") + decoded.count("{") > max_depth
        if many and json_depth(decoded) > max_depth:
            raise MalformedDataError(f"{what}: lists and objects are nested deeper than {max_depth} levels")
        return json.loads(decoded)
    except MalformedDataError:
        raise
    except (ValueError, RecursionError, MemoryError) as err:
        raise MalformedDataError(f"{what}: not valid JSON ({err or type(err).__name__})") from None


class _PlainUnpickler(pickle.Unpickler):
    """Reads values of built-in types; nothing can be named, so that nothing can be called."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise MalformedDataError(f"it names {module}.{name}, and only plain data may be in it")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise MalformedDataError("it refers to something outside")


def parse_plain_pickle(data: bytes, what: str, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value of a pickle of plain data: numbers, texts, bytes, lists, tuples, objects with text keys.

    Raises MalformedDataError, naming ``what``, for anything else, whatever it would do when it is unpickled.

    >>> parse_plain_pickle(pickle.dumps({"a": [1, "b"]}), "a note")
    {'a': [1, 'b']}
    """
    if len(data) > max_bytes:
        raise MalformedDataError(f"{what}: {len(data)} bytes are more than the {max_bytes} allowed")
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except MalformedDataError as err:
        raise MalformedDataError(f"{what}: {err}") from None
    except (Exception, RecursionError, MemoryError) as err:
        raise MalformedDataError(f"{what}: not a pickle of plain data ({type(err).__name__})") from None


@contextlib.contextmanager
def malformed(what: str) -> Iterator[None]:
    """Turn what goes wrong inside while data is being read into MalformedDataError; errors of this package pass."""
    try:
        yield
    except RelaxishError:
        raise
    except (Exception, RecursionError, MemoryError) as err:
        text_of = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
        raise MalformedDataError(f"{what}: malformed ({text_of})") from err


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _refuse(where: str, expected: str, value: Any) -> MalformedDataError:
    return MalformedDataError(f"{where}: expected {expected}, got {_shown(value)}")


def anything(value: Any, where: str) -> object:
    """Any value."""
    return value


def boolean(value: bool, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _refuse(where, "true or false", value)
    return value


def integer(low: int = -(1 << 63), high: int = (1 << 63) - 1) -> Check:
    """An integer within bounds (a truth value is none)."""

    def check(value: int | str, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _refuse(where, f"an integer from {low} to {high}", value)
        return value

    return check


def number(value: Any, where: str) -> int | float:
    """An integer of 64 bits or a float."""
    if isinstance(value, float) or (type(value) is int and -(1 << 63) <= value < 1 << 64):
        return value
    raise _refuse(where, "a number", value)


def text(pattern: str = "", longest: int = 1 << 16) -> Check:
    """A string, of which all must match ``pattern`` if there is one."""
    compiled = re.compile(pattern, re.DOTALL) if pattern else None

    def check(value: int | str, where: str) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise _refuse(where, f"a string of at most {longest} characters", value)
        if compiled is not None and compiled.fullmatch(value) is None:
            raise _refuse(where, f"a string of the form {pattern}", value)
        return value

    return check


def one_of(*values: Any) -> Check:
    """One of some constants."""

    def check(value: int | str | None, where: str) -> object:
        if not any(type(value) is type(v) and value == v for v in values):
            raise _refuse(where, "one of " + ", ".join(map(repr, values)), value)
        return value

    return check


def optional(inner: Check) -> Check:
    """Null, or what ``inner`` allows."""
    return lambda value, where: None if value is None else inner(value, where)


def list_of(inner: Check, longest: int = 1 << 24) -> Check:
    """A list of equal things."""

    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > longest:
            raise _refuse(where, f"a list of at most {longest} items", value)
        return [inner(item, f"{where}[{i}]") for i, item in enumerate(value)]

    return check


def tuple_of(*inner: Check) -> Check:
    """A list of a fixed number of things."""

    def check(
        value: Sequence[int | str | Sequence[int | str | Sequence[int | str | None] | None] | None], where: str
    ) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(inner):
            raise _refuse(where, f"a list of {len(inner)} items", value)
        return [one(item, f"{where}[{i}]") for i, (one, item) in enumerate(zip(inner, value, strict=True))]

    return check


def mapping_of(inner: Check, key: Check | None = None) -> Check:
    """An object with equal things under free names."""

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(where, "an object", value)
        if key is not None:
            for name in value:
                key(name, f"{where}: a key")
        return {name: inner(item, f"{where}.{name}"[:200]) for name, item in value.items()}

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys and no others."""
    extra = dict(optional or {})

    def check(value: int | Mapping[str, Any], where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(where, "an object", value)
        _keys(value, required, extra, where)
        known = {**required, **extra}
        return {name: known[name](item, f"{where}.{name}") for name, item in value.items()}

    return check


def _keys(value: Mapping[str, Any], required: Mapping[str, Any], extra: Mapping[str, Any], where: str) -> None:
    missing: Sequence[str] = [name for name in required if name not in value]
    if missing:
        raise MalformedDataError(f"{where}: {', '.join(missing)} is missing")
    unknown = [name for name in value if name not in required and name not in extra]
    if unknown:
        raise MalformedDataError(f"{where}: unknown key {_shown(unknown[0])}")
