"""The simple key-value cache of ``nn.KVCache``: one growing array per cache, read as a view of its filled part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..kernels.kernel import ArgumentError
from ..arrays.ndarray import NDArray, empty
from ..registry import register_func

__all__ = ["AttentionKVCache"]


class AttentionKVCache:
    """Entries along the first axis of ``data``; ``fill_count`` of them are there, the rest is reserve.

    ``window_position`` is where :meth:`override` writes next.
    """

    def __init__(self, data: NDArray, fill_count: int) -> None:
        self.data = data
        self.fill_count = fill_count
        self.window_position = fill_count

    def _check_entries(self, value: NDArray) -> None:
        if tuple(value.shape[1:]) != tuple(self.data.shape[1:]) or str(value.dtype) != str(self.data.dtype):
            raise ArgumentError(
                f"the cache holds entries {tuple(self.data.shape[1:])} {self.data.dtype}, "
                f"not {tuple(value.shape[1:])} {value.dtype}"
            )

    def _reserve(self, count: int) -> None:
        if count > self.data.shape[0]:
            grown = empty((max(count, 2 * self.data.shape[0]), *self.data.shape[1:]), self.data.dtype)
            grown[: self.fill_count] = self.data.numpy()[: self.fill_count]
            self.data = grown

    def append(self, value: NDArray) -> None:
        """Add entries; the reserve at least doubles when it is used up. Raises ValueError for other entry shapes."""
        self._check_entries(value)
        needed = self.fill_count + value.shape[0]
        self._reserve(needed)
        self.data[self.fill_count : needed] = value.numpy()
        self.fill_count = needed

    def override(self, value: NDArray, limit: int, sinks: int = 0) -> None:
        """Add entries to a window of at most ``limit``: when it is full, the oldest go, except the first ``sinks``."""
        self._check_entries(value)
        count = value.shape[0]
        if not 0 <= sinks <= limit:
            raise ArgumentError(f"a window of {limit} entries cannot have {sinks} sinks")
        if count > limit - sinks:
            raise ArgumentError(f"{count} entries do not fit in a window of {limit} with {sinks} sinks")
        self._reserve(min(self.fill_count + count, limit))
        entries = value.numpy()
        head = min(count, limit - self.window_position)
        self.data[self.window_position : self.window_position + head] = entries[:head]
        self.fill_count = min(self.fill_count + count, limit)
        self.window_position = min(self.window_position + count, limit)
        if head < count:
            self.data[sinks : sinks + count - head] = entries[head:]
            self.window_position = sinks + count - head

    def clear(self) -> None:
        """Forget all entries."""
        self.fill_count = self.window_position = 0

    def pop(self, count: int) -> None:
        """Forget the last entries."""
        if not 0 <= count <= self.fill_count:
            raise ArgumentError(f"cannot drop {count} of {self.fill_count} entries")
        self.fill_count -= count
        self.window_position = min(self.window_position, self.fill_count)

    def view(self, shape: Sequence[int]) -> NDArray:
        """The filled part. Raises ValueError unless ``shape`` is its shape."""
        wanted = tuple(int(d) for d in shape)
        if wanted[:1] != (self.fill_count,):
            raise ArgumentError(f"Requested shape do not match the filled count: {wanted}, filled {self.fill_count}")
        for axis, (want, have) in enumerate(zip(wanted[1:], self.data.shape[1:], strict=False), 1):
            if want != have:
                raise ArgumentError(f"Dimension {axis} mismatch: {want} was asked for, the cache has {have}")
        if len(wanted) != len(self.data.shape):
            raise ArgumentError(f"the cache has {len(self.data.shape)} dimensions, but {wanted} was asked for")
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
    if tuple(init_data.shape[1:]) != tuple(data.shape[1:]) or count > min(init_data.shape[0], data.shape[0]):
        raise ArgumentError(
            f"a cache of shape {tuple(data.shape)} cannot begin with {count} entries of {tuple(init_data.shape)}"
        )
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
    cache.clear()
    cache.append(value)
    return cache


@_builtin("window_override")
def window_override(cache: AttentionKVCache, value: NDArray, max_cache_size: int) -> AttentionKVCache:
    """Add entries to a sliding window of at most ``max_cache_size`` entries."""
    cache.override(value, int(max_cache_size))
    return cache


@_builtin("window_override_with_sinks")
def window_override_with_sinks(
    cache: AttentionKVCache, value: NDArray, max_cache_size: int, num_attention_sinks: int
) -> AttentionKVCache:
    """As :func:`window_override`, but the first entries stay."""
    cache.override(value, int(max_cache_size), int(num_attention_sinks))
    return cache


@_builtin("view")
def view(cache: AttentionKVCache, shape: Sequence[int]) -> NDArray:
    """The filled part as a tensor."""
    return cache.view(shape)


@_builtin("array_clear")
def array_clear(caches: Sequence[AttentionKVCache]) -> None:
    """Empty all caches."""
    for cache in caches:
        cache.clear()


@_builtin("array_popn")
def array_popn(caches: Sequence[AttentionKVCache], n: int) -> None:
    """Drop the last ``n`` entries of every cache. Raises ValueError if there are fewer."""
    for cache in caches:
        cache.pop(int(n))
