"""Sending keys and values from one paged cache to another: prefill in one place, decode in another.

The receiver makes room (``vm.builtin.kv_cache_disagg_prepare_recv``) and tells the sender where; the sender is told to send
a sequence there (``..._mark_send``), and each forward pass then copies what it has added. Where the field copies between
devices by NVSHMEM, this stand-in copies between caches of one process: a receiver has a number
(:func:`register_receiver`), which is the sender's ``recver_pe_offset``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ...support.errors import RelaxishError
from ..device import Device
from ..kernels.kernel import ArgumentError
from ..registry import register_func

if TYPE_CHECKING:
    from ..arrays.ndarray import NDArray
    from .paged_kv_cache import PagedKVCache

__all__ = ["Mark", "compressed", "expanded", "register_receiver", "send_marked"]

_RECEIVERS: WeakValueDictionary[int, PagedKVCache] = WeakValueDictionary()


@dataclass
class Mark:
    """A sequence that is being sent: its tokens from ``begin`` go to ``places``, the first ``sent`` of them have gone."""

    begin: int
    places: Any
    receiver: int
    sent: int = 0


@register_func("relaxish.kv_transfer.register_receiver", override=True)
def register_receiver(number: int, cache: PagedKVCache) -> None:
    """Let senders find a cache under a number, for as long as it lives."""
    _RECEIVERS[int(number)] = cache


def compressed(places: Sequence[int]) -> list[int]:
    """Places as (number of runs, begin, length, begin, length, ...).

    >>> compressed([4, 5, 6, 32, 33])
    [2, 4, 3, 32, 2]
    """
    runs: list[list[int]] = []
    for place in places:
        if runs and sum(runs[-1]) == place:
            runs[-1][1] += 1
        else:
            runs.append([int(place), 1])
    return [len(runs), *(n for run in runs for n in run)]


def expanded(description: Sequence[int]) -> np.ndarray[Any, Any]:
    """Array from the runs of :func:`compressed`. Raises ArgumentError for anything else.

    >>> expanded([2, 4, 3, 32, 2]).tolist()
    [4, 5, 6, 32, 33]
    """
    numbers = [int(n) for n in description]
    if not numbers or len(numbers) != 1 + 2 * numbers[0]:
        raise ArgumentError(f"a position map of {len(numbers)} numbers is not (count, begin, length, ...)")
    if min(numbers) < 0:
        raise ArgumentError(f"a position map has no negative numbers: {numbers}")
    runs = [np.arange(b, b + n) for b, n in zip(numbers[1::2], numbers[2::2], strict=True)]
    return np.concatenate(runs) if runs else np.zeros(0, np.int64)


def send_marked(cache: PagedKVCache, seq_id: int) -> None:
    """Send what a marked sequence has beyond what was sent. Raises RelaxishError if the receiver is gone."""
    mark = cache.marks.get(seq_id)
    sequence = cache.table.sequences.get(seq_id)
    if mark is None or sequence is None:
        return
    first, last = mark.begin + mark.sent, min(sequence.length, mark.begin + len(mark.places))
    if last <= first:
        return
    receiver = _RECEIVERS.get(mark.receiver)
    if receiver is None:
        raise RelaxishError(f"there is no cache with the number {mark.receiver} to send keys and values to")
    here = cache.table.positions(sequence, first, last)
    there = mark.places[mark.sent : mark.sent + last - first]
    for source, target in zip(cache.pages, receiver.pages, strict=True):
        _copy(source, target, here, there, cache.layout.page_size)
    mark.sent += last - first


def _copy(
    source: NDArray, target: NDArray, here: np.ndarray[Any, Any], there: np.ndarray[Any, Any], page_size: int
) -> None:
    """Copy tokens of one layer from their places to others."""
    if source.shape[1:] != target.shape[1:] or source.dtype != target.dtype:
        raise RelaxishError("the receiving cache was made for another model")
    if len(there) and int(np.max(there)) >= target.shape[0] * page_size:
        raise ArgumentError("a place outside of the receiving cache")
    taken, made = (a._host() if a.device.device_type == Device.kDLCPU else a.numpy() for a in (source, target))
    # Pages of heads are (page, key or value, head, slot, dimension), of latent vectors (page, slot, dimension).
    middle = (slice(None), slice(None)) if taken.ndim == 5 else ()
    made[(there // page_size, *middle, there % page_size)] = taken[(here // page_size, *middle, here % page_size)]
    if target.device.device_type != Device.kDLCPU:
        target.copyfrom(made)
