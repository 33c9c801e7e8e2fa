"""A tracker and a server of this machine, for tests of what runs remotely.

>>> with LocalRPC(silent=True) as rpc:
...     rpc.tracker_key
'key'
"""

from __future__ import annotations

from typing import Any

from ...runtime.rpc import Server, Tracker

__all__ = ["LocalRPC"]


class LocalRPC:
    """A server that offers itself to a tracker, both at free ports, until the ``with`` statement ends."""

    tracker_host: str
    tracker_port: int
    tracker_key: str

    def __init__(self, tracker_key: str = "key", silent: bool = False, no_fork: bool = False) -> None:
        self.tracker = Tracker(silent=silent, port=9190, port_end=12345)
        self.tracker_host, self.tracker_port, self.tracker_key = self.tracker.host, self.tracker.port, tracker_key
        self.server = Server(
            host="127.0.0.1", is_proxy=False, tracker_addr=(self.tracker_host, self.tracker_port), key=tracker_key,
            silent=silent, no_fork=no_fork, port=9190, port_end=12345,
        )  # fmt: skip

    def __enter__(self) -> LocalRPC:
        return self

    def __exit__(self, *error: Any) -> None:
        self.server.terminate()
        self.tracker.terminate()
