"""Parameters by name: a process-wide cache, the folder format it loads, and the ``vm.builtin`` functions on it.

A cache folder holds ``ndarray-cache.json`` and files of raw little-endian data; arrays may be stored as bfloat16
("f32-to-bf16") and are float32 again once loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import MalformedDataError, RelaxishError
from ...support.untrusted import anything, integer, list_of, malformed, mapping_of, optional, parse_json, record, text
from .container import Array
from ..device import Device
from .dtype import numpy_dtype
from ..kernels.kernel import ArgumentError
from ..caches.kv_state import builtin
from ..exports.manifest import file_name
from .ndarray import NDArray, array

__all__ = ["ParamModule", "load_folder"]

_SIZE = integer(0, 1 << 48)
_RECORD = record(
    {"name": text(), "shape": list_of(_SIZE, 64), "dtype": text(), "byteOffset": _SIZE, "nbytes": _SIZE},
    {"format": optional(text())},
)
_SHARD = record(
    {"dataPath": file_name, "nbytes": _SIZE, "records": list_of(_RECORD)},
    {"format": optional(text()), "md5sum": text("[0-9a-f]{32}")},
)
_LISTING = record({"records": list_of(_SHARD)}, {"metadata": optional(mapping_of(anything))})
_CACHE: dict[str, NDArray] = {}


@builtin("ndarray_cache.get")
def ndarray_cache_get(name: str) -> NDArray | None:
    """The array of that name; ``None`` if there is none."""
    return _CACHE.get(str(name))


@builtin("ndarray_cache.update")
def ndarray_cache_update(name: str, value: NDArray | np.ndarray[Any, Any], override: bool | int = False) -> None:
    """Add an array. Raises an error if the name is taken, unless ``override``."""
    if not override and name in _CACHE:
        raise ArgumentError(f"Name {name} already exists in the cache")
    _CACHE[str(name)] = value if isinstance(value, NDArray) else array(value)


@builtin("ndarray_cache.remove")
def ndarray_cache_remove(name: str) -> None:
    """Forget an array."""
    _CACHE.pop(str(name), None)


@builtin("ndarray_cache.clear")
def ndarray_cache_clear() -> None:
    """Forget all arrays."""
    _CACHE.clear()


@builtin("ndarray_cache.load")
def ndarray_cache_load(cache_path: str, device_type: int = 1, device_id: int = 0) -> None:
    """Add every array of a cache folder."""
    _CACHE.update(load_folder(cache_path, Device(int(device_type), int(device_id)))[0])


def load_folder(cache_path: str, device: Device) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """The arrays of a cache folder, and its metadata. Raises RelaxishError if something is missing or cut off."""
    root = Path(cache_path)
    index = root / "ndarray-cache.json"
    where = f"cannot load the array cache {cache_path}"
    with malformed(where):
        listing = parse_json(_contents(index, where), f"{where}: {index.name}", max_depth=100)
        checked = _LISTING(listing, f"{where}: {index.name}")
        arrays: dict[str, NDArray] = {}
        for shard in checked["records"]:
            path = root / shard["dataPath"]
            data = _contents(path, where)
            if len(data) != shard["nbytes"]:
                raise MalformedDataError(f"{path} has {len(data)} bytes instead of {shard['nbytes']}")
            if "md5sum" in shard and hashlib.md5(data, usedforsecurity=False).hexdigest() != shard["md5sum"]:
                raise MalformedDataError(f"{path} is damaged: its checksum is not that of the listing")
            for item in shard["records"]:
                end = item["byteOffset"] + item["nbytes"]
                if end > len(data):
                    raise MalformedDataError(f"{path}: the array {item['name']} ends at {end} of {len(data)} bytes")
                arrays[item["name"]] = array(_decode(data[item["byteOffset"] : end], item), device)
        return arrays, dict(checked.get("metadata") or {})


def _contents(path: Path, where: str) -> bytes:
    if path.exists() and not path.is_file():
        raise MalformedDataError(f"{where}: {path} is not a regular file")
    try:
        return path.read_bytes()
    except OSError as err:
        raise RelaxishError(f"{where}: {err}") from None


def _decode(data: bytes, record: dict[str, Any]) -> np.ndarray[Any, Any]:
    shape, dtype = tuple(record["shape"]), record["dtype"]
    if record.get("format") == "f32-to-bf16" and dtype == "float32":
        halves = np.frombuffer(data, np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)


def _named(name: str) -> NDArray:
    found = _CACHE.get(name)
    if found is None:
        raise ArgumentError(f"Cannot find parameter in cache: {name}")
    return found


def _prefixed(prefix: str, num_params: int) -> list[NDArray]:
    if num_params >= 0:
        return [_named(f"{prefix}_{i}") for i in range(num_params)]
    found: list[NDArray] = []
    while f"{prefix}_{len(found)}" in _CACHE:
        found.append(_CACHE[f"{prefix}_{len(found)}"])
    return found


class ParamModule:
    """Parameters as a module: ``module["get_params"]()`` gives them."""

    type_key = "param_module"

    def __init__(self, params: Sequence[NDArray]) -> None:
        self.params = Array(params)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """``get_params``. Raises AttributeError for any other name."""
        if name != "get_params":
            raise AttributeError(f"Module has no function '{name}'")
        return lambda: self.params

    __getitem__ = get_function


@builtin("param_array_from_cache")
def param_array_from_cache(prefix: str, num_params: int = -1) -> Array:
    """The arrays ``<prefix>_0``, ``<prefix>_1``, ...; -1: as many as there are."""
    return Array(_prefixed(prefix, int(num_params)))


@builtin("param_array_from_cache_by_name")
def param_array_from_cache_by_name(names: Sequence[str]) -> Array:
    """The arrays of these names."""
    return Array(_named(str(n)) for n in names)


@builtin("param_array_from_cache_by_name_unpacked")
def param_array_from_cache_by_name_unpacked(*names: str) -> Array:
    """The arrays of these names."""
    return param_array_from_cache_by_name(names)


@builtin("param_module_from_cache")
def param_module_from_cache(prefix: str, num_params: int = -1) -> ParamModule:
    """As :func:`param_array_from_cache`, as a module."""
    return ParamModule(_prefixed(prefix, int(num_params)))


@builtin("param_module_from_cache_by_name")
def param_module_from_cache_by_name(names: Sequence[str]) -> ParamModule:
    """As :func:`param_array_from_cache_by_name`, as a module."""
    return ParamModule([_named(str(n)) for n in names])
