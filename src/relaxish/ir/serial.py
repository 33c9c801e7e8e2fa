"""JSON form of any IR value: a table of nodes in post order, so that shared nodes stay shared."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support.errors import MalformedDataError
from ..support.untrusted import malformed, parse_json
from .expr import PrimExpr
from .node import Node, node_class

__all__ = ["load_json", "save_json"]

_FORMAT = "relaxish-ir"
_VERSION = 1
_WHAT = "not a relaxish IR JSON document"
# Deeper programs than any that the passes can walk.
_MAX_DEPTH = 10_000
# Objects that are not nodes but know their JSON form, by tag: (type, save, load).
_FOREIGN: dict[str, tuple[type, Any, Any]] = {}


def register_foreign(tag: str, kind: type, save: Any, load: Any) -> None:
    """Make objects that are not nodes (targets) storable: ``save(obj)`` gives JSON, ``load`` takes it."""
    _FOREIGN[tag] = (kind, save, load)


# Objects that are not nodes but are shared as these are, by tag: (names of their parts, constructor from the parts).
_SHARED: dict[str, tuple[tuple[str, ...], Callable[..., object]]] = {}
_TAGS: dict[type, str] = {}


def register_shared(kind: type, parts: Sequence[str], make: Callable[..., object]) -> None:
    """Make objects of a class that is no node storable, with what refers to them and what they refer to.

    ``parts`` are attributes, ``make`` takes their values in order.
    """
    tag = f"{kind.__module__.split('.')[1]}.{kind.__name__}"
    _TAGS[kind] = tag
    _SHARED[tag] = (tuple(parts), make)


class _Saver:
    def __init__(self) -> None:
        self.table: list[Any] = []
        self.index: dict[int, int] = {}
        self.keep: list[object] = []

    def value(self, x: Any) -> object:
        if x is None or isinstance(x, (bool, int, str)):
            return int(x) if isinstance(x, int) and not isinstance(x, bool) else x
        match x:
            case float():
                return {"f": repr(x)}
            case Node():
                return {"n": self.node(x)}
        if type(x) in _TAGS:
            return {"n": self.shared(x, _TAGS[type(x)])}
        match x:
            case tuple() | list():
                return [self.value(v) for v in x]
            case dict():
                return {"d": [[self.value(k), self.value(v)] for k, v in x.items()]}
        for tag, (kind, save, _) in _FOREIGN.items():
            if isinstance(x, kind):
                return {"x": tag, "v": save(x)}
        array = x if isinstance(x, np.ndarray) else x.numpy() if hasattr(x, "numpy") else None
        if array is not None:
            raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            return {"a": raw, "t": str(array.dtype), "s": list(array.shape)}
        if isinstance(x, np.generic):
            return self.value(x.item())
        raise TypeError(f"cannot store a {type(x).__name__} in JSON")

    def node(self, node: Node) -> int:
        known = self.index.get(id(node))
        if known is not None:
            return known
        entry: dict[str, Any] = {"k": type(node)._type_key}
        for name in type(node)._fields:
            if name != "span":
                entry[name] = self.value(getattr(node, name))
        if isinstance(node, PrimExpr):
            entry["dtype"] = node.dtype
        info = getattr(node, "struct_info_", None)
        if info is not None and "struct_info_" not in entry and type(node)._is_var is False:
            entry["struct_info_"] = self.value(info)
        return self._entered(node, entry)

    def shared(self, x: object, tag: str) -> int:
        """The place of an object that is no node."""
        known = self.index.get(id(x))
        if known is not None:
            return known
        parts, _ = _SHARED[tag]
        return self._entered(x, {"k": tag, **{name: self.value(getattr(x, name)) for name in parts}})

    def _entered(self, x: object, entry: dict[str, Any]) -> int:
        self.index[id(x)] = len(self.table)
        self.keep.append(x)
        self.table.append(entry)
        return len(self.table) - 1


def save_json(node: object) -> str:
    """The JSON text of a node, list, dict or array; :func:`load_json` brings it back."""
    saver = _Saver()
    root = saver.value(node)
    return json.dumps({"format": _FORMAT, "version": _VERSION, "root": root, "nodes": saver.table})


class _Loader:
    def __init__(self, table: list[Any]) -> None:
        self.table = table
        self.made: list[Any] = []
        self.depths: list[int] = []
        self.below = 0  # depth of the deepest node that the present one refers to

    def value(self, x: Any) -> Any:
        if isinstance(x, list):
            return tuple(self.value(v) for v in x)
        if not isinstance(x, dict):
            return x
        if "n" in x:
            index = x["n"]
            if type(index) is not int or not 0 <= index < len(self.made):
                raise MalformedDataError(f"{_WHAT}: node {len(self.made)} refers to {index!r}, which is not before it")
            if self.depths[index] > self.below:
                self.below = self.depths[index]
            return self.made[index]
        if "f" in x:
            return float(x["f"])
        if "d" in x:
            return {self.value(k): self.value(v) for k, v in x["d"]}
        if "x" in x:
            return _FOREIGN[x["x"]][2](x["v"])
        from .dtype import numpy_dtype

        return np.frombuffer(base64.b64decode(x["a"]), dtype=numpy_dtype(x["t"])).reshape(x["s"]).copy()

    def run(self) -> None:
        for entry in self.table:
            self.below = 0
            if entry["k"] in _SHARED:
                parts, make = _SHARED[entry["k"]]
                self._made(make(*[self.value(entry[name]) for name in parts]))
                continue
            cls = node_class(entry["k"])
            # On some classes the struct info is a field like any other, on most a fact noted afterwards.
            noted = "struct_info_" in entry and "struct_info_" not in cls._fields
            fields = {k: self.value(v) for k, v in entry.items() if k != "k" and not (noted and k == "struct_info_")}
            if "dtype" in fields and "dtype" not in cls._fields and "dtype" not in _DTYPE_MAKERS.get(cls.__name__, ()):
                fields.pop("dtype")
            node: Any = cls._make(**fields)
            if noted:
                node.struct_info_ = self.value(entry["struct_info_"])
            self._made(node)

    def _made(self, node: object) -> None:
        if self.below >= _MAX_DEPTH:
            raise MalformedDataError(f"{_WHAT}: nodes are nested deeper than {_MAX_DEPTH} levels")
        self.made.append(node)
        self.depths.append(self.below + 1)


# Classes whose constructor takes the dtype although it is not a declared field.
_DTYPE_MAKERS = {name: ("dtype",) for name in ("IntImm", "FloatImm", "Cast", "Call")}


def load_json(json_str: str) -> Any:
    """Bring back what :func:`save_json` stored.

    Raises MalformedDataError, which is a ValueError, on text of another format or beyond its limits.
    """
    if not isinstance(json_str, (str, bytes, bytearray)):
        raise MalformedDataError(f"{_WHAT}: expected text, got {type(json_str).__name__}")
    data = parse_json(json_str, _WHAT)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise MalformedDataError(f"{_WHAT}: no format mark")
    if data.get("version") != _VERSION or not isinstance(data.get("nodes"), list) or "root" not in data:
        raise MalformedDataError(f"{_WHAT}: version {data.get('version')!r} is not supported, or parts are missing")
    with malformed(_WHAT):
        loader = _Loader(data["nodes"])
        loader.run()
        return loader.value(data["root"])
