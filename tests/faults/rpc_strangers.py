"""Servers and trackers among strangers: malformed, deep and endless messages, silence, slowness, crowds, hang-ups.

Server and tracker run in this process, which is the campaign's own. After every stranger they must answer a good client,
and when the strangers have gone no descriptor and no thread may be left, and no thread may have died of an exception.
Everything happens on the loopback interface.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from relaxish import rpc
from relaxish.runtime.registry import register_func
from relaxish.runtime.rpc import server as server_module
from relaxish.runtime.rpc import tracker as tracker_module
from relaxish.runtime.rpc import trust, wire

HELLO_SECONDS = 1.0


def stranger(port: int) -> socket.socket:
    """A connection of somebody unknown."""
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def says_nothing_more(sock: socket.socket) -> bool:
    """Read until the other side hangs up; it may have something to say before."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def frame(text: bytes, blobs: tuple[bytes, ...] = ()) -> bytes:
    """A message of the right form around any text."""
    sizes = struct.pack(f"<{len(blobs)}Q", *(len(b) for b in blobs))
    return wire._HEAD.pack(wire._MAGIC, len(text), len(blobs)) + sizes + text + b"".join(blobs)


TEXTS = (
    b"", b"\xff\xfe", b"[1,", b"{}", b"null", b"[]", b'["hello"]', b'["hello", 3, 4]', b'["hello", ["x"], 0]',
    b'["hello", "x", "soon"]', b'["hello", "x", NaN]', b'["hello", "x", -1]', b'["hello", "x", 1e400]',
    b'["put"]', b'["put", [1], 2, "m", null]', b'["put", "k", "p", "m", null]', b'["put", "k", 99999999, "m", null]',
    b'["put", "k", 80, {"$": "map", "items": [[[1], 2]]}, 3]', b'["request", {"$": "x"}, 1]', b'["request", "k"]',
    b'["request", "k", 1e999]', b'["summary", 1]', b'[["summary"]]', b'[{"$": "bytes", "at": 7}]',
    b'[{"$": "bytes", "at": true}]', b'[{"$": "shape", "dims": ["x"]}]', b'[{"$": "float", "text": "x"}]',
    b'[{"$": 3}]', b'[{"$": "x", "kind": 1}]', b'["token"]', b'["token", 5]', b'["serve"]', b'["serve", 3]',
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 60_000 + b"]" * 60_000, b"1" * 60_000,
)  # fmt: skip


def malformed_frames(rng: random.Random, damaged: int = 40) -> Iterator[bytes]:
    """Messages that say too much, too little or nothing sensible, and good ones with bytes exchanged."""
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100)
    yield wire._HEAD.pack(wire._MAGIC, (1 << 64) - 1, 0)
    yield wire._HEAD.pack(wire._MAGIC, 10, (1 << 32) - 1)
    yield wire._HEAD.pack(wire._MAGIC, 4, 2) + struct.pack("<2Q", (1 << 64) - 1, (1 << 64) - 1) + b"null"
    for text in TEXTS:
        yield frame(text)
    for _ in range(damaged):
        good = bytearray(wire.pack(["hello", "test", 0.0, b"bytes", [1, {"a": 2}]]))
        for _ in range(rng.randrange(1, 6)):
            good[rng.randrange(len(good))] = rng.randrange(256)
        yield bytes(good[: rng.randrange(1, len(good) + 1)])


def _session_frames(rng: random.Random) -> bytes:
    """A greeting that is welcome, and then requests that are not."""
    requests: list[Any] = [
        ["call"], ["call", {"$": "object"}], [["x"]], ["method", 1, "__class__"], ["get", "nothing"], ["free", 10**30],
        ["copy", -1, 2**64], ["call", 7, [1]], [None], ["bye", 1], ["upload", "../x", b"y"], ["load_module", "/etc/passwd"],
        ["download", "../../etc/passwd"], ["remove", "/"], ["", ""], ["call", "x", *range(500)],
    ]  # fmt: skip
    body = b"".join(wire.pack(rng.choice(requests)) for _ in range(rng.randint(1, 6)))
    if rng.random() < 0.3:
        body += rng.choice(list(malformed_frames(rng, 3)))
    return wire.pack(["hello", "test", 0.0]) + body


class _Peers:
    """A server and a tracker, good clients for them, and strangers."""

    def __init__(self) -> None:
        register_func("test.strangers.seven", lambda: 7, override=True)
        for module in (server_module, tracker_module, trust):
            module.HELLO_SECONDS = HELLO_SECONDS
        self.server = rpc.Server(port=0, key="test", no_fork=True, silent=True)
        self.tracker = rpc.Tracker(port=0, silent=True)

    def work(self) -> bool:
        """Whether both still do theirs."""
        try:
            with rpc.connect("127.0.0.1", self.server.port, key="test", timeout=20) as session:
                if session.get_function("test.strangers.seven")() != 7:
                    return False
            client = rpc.connect_tracker("127.0.0.1", self.tracker.port)
            summary = client.summary()
            client.close()
        except (rpc.RPCError, OSError) as error:
            print(f"a good client is refused: {error}", file=sys.stderr, flush=True)
            return False
        return set(summary) == {"queue_info", "server_info"}

    def port(self, rng: random.Random) -> int:
        return rng.choice([self.server.port, self.tracker.port])

    def malformed(self, rng: random.Random) -> None:
        port = self.port(rng)
        for data in rng.sample(list(malformed_frames(rng)), 8):
            with stranger(port) as sock, contextlib.suppress(OSError):
                sock.sendall(data)
                if rng.random() < 0.7:
                    sock.shutdown(socket.SHUT_WR)
                    says_nothing_more(sock)

    def session(self, rng: random.Random) -> None:
        with stranger(self.server.port) as sock, contextlib.suppress(OSError):
            sock.sendall(_session_frames(rng))
            sock.shutdown(socket.SHUT_WR)
            says_nothing_more(sock)

    def silent(self, rng: random.Random) -> None:
        """Nothing, or a byte now and then: such a client is let go."""
        slow = rng.random() < 0.5
        data = iter(wire.pack(["hello", "x" * 1000, 0.0]))
        with stranger(self.port(rng)) as sock:
            sock.settimeout(0.2)
            for _ in range(100):
                try:
                    if slow:
                        sock.sendall(bytes([next(data)]))
                    if not sock.recv(1000):
                        return
                except TimeoutError:
                    continue
                except OSError:
                    return
        raise TimeoutError("a silent client is never let go")

    def crowd(self, rng: random.Random) -> None:
        port, crowd = self.port(rng), []
        try:
            for _ in range(rng.choice([50, 200, 300])):
                crowd.append(stranger(port))
        finally:
            for sock in crowd:
                sock.close()

    def reset(self, rng: random.Random) -> None:
        """Hang up hard in the middle of a message."""
        data = rng.choice([wire.pack(["request", "k", 1]), _session_frames(rng), wire.pack(["hello", "test", 0.0])])
        sock = stranger(self.port(rng))
        with contextlib.suppress(OSError):
            sock.sendall(data[: rng.randrange(1, len(data) + 1)])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def deaf(self, rng: random.Random) -> None:
        """Ask much and read nothing."""
        with stranger(self.tracker.port) as sock:
            sock.settimeout(0.3)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    sock.sendall(wire.pack(["summary"]) * 1000)

    def end(self) -> None:
        self.server.terminate()
        self.tracker.terminate()


def _usage() -> tuple[int, int]:
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return descriptors, threading.active_count()


def _settled(before: tuple[int, int], seconds: float = 15.0) -> tuple[int, int]:
    """What is in use once it has come down to what it was, or the time for that is up."""
    end = time.monotonic() + seconds
    while True:
        now = _usage()
        if time.monotonic() > end or (now[0] <= before[0] and now[1] <= before[1]):
            return now
        time.sleep(0.05)


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Strangers ``tried``: ``served`` a good client afterwards or not (``lost``), threads ``crashed``, ``hung``, ``leaked``.

    ``leaked`` counts descriptors and threads that are still there when all strangers have gone.
    """
    rng = random.Random(seed)
    figures: Counter[str] = Counter(tried=0, served=0, lost=0, crashed=0, hung=0, leaked=0)

    def died(what: Any) -> None:
        figures["crashed"] += 1
        print(f"thread: {type(what.exc_value).__name__}: {what.exc_value}", file=sys.stderr, flush=True)

    hook, threading.excepthook = threading.excepthook, died
    began = time.monotonic()
    try:
        peers = _Peers()
        peers.work()
        before = _settled((0, 0), 0.5)
        ways = [peers.malformed] * 3 + [peers.session] * 4 + [peers.silent, peers.crowd, peers.deaf] + [peers.reset] * 3
        while time.monotonic() - began < budget_s or not figures["tried"]:
            way = rng.choice(ways)
            figures["tried"] += 1
            try:
                way(rng)
            except OSError as error:
                figures["hung"] += 1
                print(f"{way.__name__}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            good = peers.work()
            figures["served" if good else "lost"] += 1
            if not good:
                print(f"after {way.__name__}", file=sys.stderr, flush=True)
        after = _settled(before)
        figures["leaked"] = max(0, after[0] - before[0]) + max(0, after[1] - before[1])
        if figures["leaked"]:
            print(f"{before} -> {after}: {threading.enumerate()}"[:3000], file=sys.stderr, flush=True)
        peers.end()
    finally:
        threading.excepthook = hook
    return dict(figures)
