"""The simple key-value cache of ``nn.KVCache``: one growing array per cache, read as a view of its filled part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .ndarray import NDArray, empty
from .registry import register_func

__all__ = ["AttentionKVCache"]


class AttentionKVCache:
    """Entries along the first axis of ``data``; ``fill_count`` of them are there, the rest is reserve."""

    def __init__(self, data: NDArray, fill_count: int) -> None:
        self.data = data
        self.fill_count = fill_count

    def append(self, value: NDArray) -> None:
        """Add entries; the reserve at least doubles when it is used up. Raises ValueError for other entry shapes."""
        if tuple(value.shape[1:]) != tuple(self.data.shape[1:]) or str(value.dtype) != str(self.data.dtype):
            raise ValueError(
                f"the cache holds entries {tuple(self.data.shape[1:])} {self.data.dtype}, "
                f"not {tuple(value.shape[1:])} {value.dtype}"
            )
        needed = self.fill_count + value.shape[0]
        if needed > self.data.shape[0]:
            grown = empty((max(needed, 2 * self.data.shape[0]), *self.data.shape[1:]), self.data.dtype)
            grown[: self.fill_count] = self.data.numpy()[: self.fill_count]
            self.data = grown
        self.data[self.fill_count : needed] = value.numpy()
        self.fill_count = needed

    def view(self, shape: Sequence[int]) -> NDArray:
        """The filled part. Raises ValueError unless ``shape`` is its shape."""
        wanted = tuple(int(d) for d in shape)
        if wanted != (self.fill_count, *self.data.shape[1:]):
            raise ValueError(f"the cache holds {(self.fill_count, *self.data.shape[1:])}, but {wanted} was asked for")
        return self.data._create_view(wanted)


def _builtin(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        register_func("vm.builtin.attention_kv_cache_" + name, func, override=True)
        return func

    return register


@_builtin("create")
def create(init_data: NDArray, reserve_shape: Sequence[int], init_fill_count: int) -> AttentionKVCache:
    """A cache with room for ``reserve_shape``; the first ``init_fill_count`` entries of ``init_data`` are filled in."""
    data = empty(tuple(int(d) for d in reserve_shape), init_data.dtype)
    count = init_data.shape[0] if init_fill_count < 0 else int(init_fill_count)
    if count:
        data[:count] = init_data.numpy()[:count]
    return AttentionKVCache(data, count)


@_builtin("append")
def append(cache: AttentionKVCache, value: NDArray) -> AttentionKVCache:
    """Add entries; gives the cache back."""
    cache.append(value)
    return cache


@_builtin("update")
def update(cache: AttentionKVCache, value: NDArray) -> AttentionKVCache:
    """Start over with ``value``."""
    cache.fill_count = 0
    cache.append(value)
    return cache


@_builtin("view")
def view(cache: AttentionKVCache, shape: Sequence[int]) -> NDArray:
    """The filled part as a tensor."""
    return cache.view(shape)


@_builtin("array_clear")
def array_clear(caches: Sequence[AttentionKVCache]) -> None:
    """Empty all caches."""
    for cache in caches:
        cache.fill_count = 0


@_builtin("array_popn")
def array_popn(caches: Sequence[AttentionKVCache], n: int) -> None:
    """Drop the last ``n`` entries of every cache. Raises ValueError if there are fewer."""
    for cache in caches:
        if n > cache.fill_count:
            raise ValueError(f"cannot drop {n} of {cache.fill_count} entries")
        cache.fill_count -= n
