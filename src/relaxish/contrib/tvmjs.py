"""Parameter folders that browsers and the machine's array cache read: ``ndarray-cache.json`` and shards of raw data.

>>> dump_ndarray_cache({"w": array}, "params")                          # doctest: +SKIP
>>> params, metadata = load_ndarray_cache("params", relaxish.cpu())     # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.device import Device
from ..runtime.arrays.ndarray import NDArray
from ..runtime.arrays.ndarray_cache import load_folder
from ..support.errors import RelaxishError

__all__ = ["dump_ndarray_cache", "load_ndarray_cache"]

_INDEX = "ndarray-cache.json"
_FORMATS = ("raw", "f32-to-bf16")


class _Shards:
    """Collects arrays into files of at most ``cap`` bytes; a larger array gets a file of its own."""

    def __init__(self, folder: Path, cap: int) -> None:
        self.folder, self.cap = folder, cap
        self.shards: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []
        self.data: list[bytes] = []
        self.size = 0

    def add(self, record: dict[str, Any], data: bytes) -> None:
        """One array."""
        if self.size and self.size + len(data) > self.cap:
            self.flush()
        self.pending.append({**record, "nbytes": len(data), "byteOffset": self.size})
        self.data.append(data)
        self.size += len(data)

    def flush(self) -> None:
        """Write the open file."""
        if not self.pending:
            return
        name, content = f"params_shard_{len(self.shards)}.bin", b"".join(self.data)
        (self.folder / name).write_bytes(content)
        self.shards.append(
            {
                "dataPath": name,
                "format": "raw-shard",
                "nbytes": len(content),
                "records": self.pending,
                "md5sum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            }
        )
        self.pending, self.data, self.size = [], [], 0


def _convert_f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers as bfloat16, rounded to nearest, ties to even; NaN stays NaN. Result: uint16."""
    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    return (np.where(np.isnan(value), bits, rounded) >> 16).astype(np.uint16)


def _encoded(value: Any, encode_format: str) -> tuple[str, bytes]:
    if encode_format == "f32-to-bf16" and value.dtype == np.float32:
        return "f32-to-bf16", _convert_f32_to_bf16(value).tobytes()
    return "raw", np.ascontiguousarray(value).tobytes()


def dump_ndarray_cache(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    cache_dir: str | os.PathLike[str],
    encode_format: str = "f32-to-bf16",
    meta_data: Mapping[str, Any] | None = None,
    shard_cap_mb: int = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """Write arrays to a folder.

    ``encode_format`` "f32-to-bf16" halves float32 arrays, "raw" keeps them. With ``update_if_exists`` arrays of a folder
    that are not in ``params`` stay. Raises ValueError for another format.
    """
    if encode_format not in _FORMATS:
        raise ValueError(f"Invalid encode_format {encode_format}; it is one of {', '.join(_FORMATS)}")
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {}
    metadata = dict(meta_data or {})
    if update_if_exists and (folder / _INDEX).exists():
        kept, old_metadata = load_folder(str(folder), Device(1))
        values.update(kept)
        metadata = {**old_metadata, **metadata}
    values.update(params.items() if isinstance(params, Mapping) else params)
    shards = _Shards(folder, shard_cap_mb << 20)
    for number, (name, value) in enumerate(values.items(), 1):
        host = value.numpy() if isinstance(value, NDArray) else np.asarray(value)
        form, data = _encoded(host, encode_format)
        dtype = value.dtype if isinstance(value, NDArray) else str(host.dtype)
        shards.add({"name": str(name), "shape": list(host.shape), "dtype": str(dtype), "format": form}, data)
        if show_progress:
            print(f"\r[{number}/{len(values)}] saving {name}", end="")
    shards.flush()
    if show_progress:
        print(f"\nAll finished, {len(shards.shards)} total shards committed, record saved to {folder / _INDEX}")
    (folder / _INDEX).write_text(json.dumps({"metadata": metadata, "records": shards.shards}, indent=4))


def load_ndarray_cache(cachepath: str | os.PathLike[str], device: Device) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """The arrays and metadata of a folder, given itself or its index file. Raises RelaxishError if it is none."""
    path = Path(cachepath)
    if not path.exists():
        raise RelaxishError(f"there is no array cache at {path}")
    return load_folder(str(path if path.is_dir() else path.parent), device)
