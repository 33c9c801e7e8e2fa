"""Exchange of values between workers: one primitive, an all-gather of everybody's value.

All collective operations are built on it, so that workers that are threads and workers that are processes differ here
only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...support.errors import RelaxishError

__all__ = ["Links", "PeerLinks", "ThreadHub", "ThreadLinks"]


class Links(Protocol):
    """A worker's way to the others."""

    def exchange(self, members: Sequence[int], value: object) -> list[Any]:
        """Give ``value`` to the members, the caller among them; returns theirs, in the order of ``members``."""

    def abort(self) -> None:
        """Let others know that this worker has failed, so that they do not wait for it."""


class ThreadHub:
    """Meeting places of threads, one for each set of members."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[tuple[int, ...], tuple[threading.Barrier, dict[int, Any]]] = {}

    def place(self, members: Sequence[int]) -> tuple[threading.Barrier, dict[int, Any]]:
        """The barrier and the table of what was said, of exactly these members."""
        key = tuple(members)
        with self._lock:
            if key not in self._places or self._places[key][0].broken:
                self._places[key] = (threading.Barrier(len(key)), {})
            return self._places[key]

    def abort(self) -> None:
        """Wake all who wait, with an error: a worker has failed."""
        with self._lock:
            for barrier, _ in self._places.values():
                barrier.abort()


class ThreadLinks:
    """Exchange between the threads of one process: values are shared, not copied."""

    def __init__(self, hub: ThreadHub, me: int) -> None:
        self._hub = hub
        self._me = me

    def exchange(self, members: Sequence[int], value: object) -> list[Any]:
        """See :class:`Links`; raises threading.BrokenBarrierError if another member has failed."""
        barrier, said = self._hub.place(members)
        said[self._me] = value
        barrier.wait()
        heard = [said[m] for m in members]
        barrier.wait()  # nobody speaks again before all have heard
        return heard

    def abort(self) -> None:
        """See :class:`Links`."""
        self._hub.abort()


#: What a worker says that has failed.
_FAILED = "relaxish.runtime.disco: failed"


class PeerLinks:
    """Exchange between processes: one connection to each other worker."""

    def __init__(self, me: int, peers: Mapping[int, Any], pack: Callable[[Any], Any], unpack: Callable[[Any], Any]):
        self._me = me
        self._peers = peers
        self._pack = pack
        self._unpack = unpack

    def exchange(self, members: Sequence[int], value: object) -> list[Any]:
        """See :class:`Links`. One after another speaks and all others listen, so that no two wait for one another."""
        heard = []
        for speaker in members:
            if speaker != self._me:
                said = self._peers[speaker].recv()
                if isinstance(said, str) and said == _FAILED:
                    raise RelaxishError(f"worker {speaker} has failed")
                heard.append(self._unpack(said))
                continue
            for other in members:
                if other != self._me:
                    self._peers[other].send(self._pack(value))
            heard.append(value)
        return heard

    def abort(self) -> None:
        """See :class:`Links`."""
        for peer in self._peers.values():
            peer.send(_FAILED)
