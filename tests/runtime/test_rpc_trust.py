"""Servers, trackers and proxies among strangers: tokens, malformed and endless messages, silence, crowds."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time

import pytest

from faults.rpc_strangers import frame, malformed_frames, says_nothing_more, stranger
from relaxish import rpc
from relaxish.runtime.registry import register_func
from relaxish.runtime.rpc import server as server_module
from relaxish.runtime.rpc import tracker as tracker_module
from relaxish.runtime.rpc import trust, wire
from relaxish.support import config

TOKEN = "0123456789abcdef-secret"


@pytest.fixture(autouse=True)
def no_traceback_in_a_thread(monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    yield
    assert not seen, [str(s.exc_value) for s in seen]


@pytest.fixture
def impatient(monkeypatch):
    """Strangers have a second to say who they are."""
    for module in (server_module, tracker_module, trust):
        monkeypatch.setattr(module, "HELLO_SECONDS", 1.0)


@pytest.fixture(params=["server", "tracker", "proxy"])
def listening(request, impatient):
    if request.param == "server":
        made = rpc.Server(port=0, key="test", no_fork=True, silent=True)
    elif request.param == "tracker":
        made = rpc.Tracker(port=0, silent=True)
    else:
        made = rpc.Proxy("127.0.0.1", 0, timeout_client=0.1)
    yield made
    made.terminate()


def works(made):
    """Whether it still does its work."""
    register_func("test.trust.seven", lambda: 7, override=True)
    if isinstance(made, rpc.Server):
        with rpc.connect("127.0.0.1", made.port, key="test") as session:
            return session.get_function("test.trust.seven")() == 7
    if isinstance(made, rpc.Tracker):
        client = rpc.connect_tracker("127.0.0.1", made.port)
        summary = client.summary()
        client.close()
        return set(summary) == {"queue_info", "server_info"}
    with pytest.raises(rpc.RPCError, match="no server of the key"):
        rpc.connect("127.0.0.1", made.port, key="nobody")
    return True


def test_malformed_messages(listening):
    for data in malformed_frames(random.Random(4)):
        with stranger(listening.port) as sock:
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # hung up on before the end
            assert says_nothing_more(sock)
    assert works(listening)


def test_strangers_who_say_nothing_or_little_are_let_go(listening):
    silent, slow = stranger(listening.port), stranger(listening.port)
    data = wire.pack(["hello", "x" * 1000, 0.0])
    began = time.monotonic()
    with silent, slow:
        for byte in data:
            try:
                slow.sendall(bytes([byte]))
            except ConnectionError:
                break
            time.sleep(0.05)
            if time.monotonic() - began > 15:
                pytest.fail("a client may send a byte at a time, as long as it likes")
        assert says_nothing_more(silent)
    assert works(listening)


def test_a_thousand_strangers(listening):
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[0] < 4096 and limit[1] < 4096:
        pytest.skip("too few descriptors for the strangers themselves")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit[0], 4096), limit[1]))
    crowd = []
    try:
        for n in range(1000):
            crowd.append(stranger(listening.port))
            if n % 100 == 50:
                assert works(listening)
        assert works(listening)
    finally:
        for sock in crowd:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert works(listening)


def test_clients_that_do_not_read_hold_up_nobody(impatient):
    tracker = rpc.Tracker(port=0, silent=True)
    try:
        keys = [rpc.connect_tracker("127.0.0.1", tracker.port) for _ in range(3)]
        with stranger(tracker.port) as deaf:
            deaf.settimeout(0.5)
            ask = wire.pack(["summary"])
            try:
                while True:
                    deaf.sendall(ask * 1000)
            except (TimeoutError, ConnectionError):
                pass
            began = time.monotonic()
            assert works(tracker) and time.monotonic() - began < 3
        for key in keys:
            key.close()
    finally:
        tracker.terminate()


def test_sessions_are_limited():
    server = rpc.Server(port=0, silent=True, no_fork=True, max_sessions=2)
    try:
        first, second = (rpc.connect("127.0.0.1", server.port) for _ in range(2))
        with pytest.raises(rpc.RPCError, match="as many sessions as it can"):
            rpc.connect("127.0.0.1", server.port)
        first.close()
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            try:
                rpc.connect("127.0.0.1", server.port).close()
                break
            except rpc.RPCError:
                time.sleep(0.02)
        else:
            pytest.fail("a session that has ended makes no room")
        second.close()
    finally:
        server.terminate()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_listening_beyond_this_machine_needs_a_token(host, monkeypatch):
    monkeypatch.delenv(config.RPC_TOKEN.env, raising=False)
    for make in (
        lambda **more: rpc.Server(host, 0, silent=True, **more),
        lambda **more: rpc.Tracker(host, 0, silent=True, **more),
        lambda **more: rpc.Proxy(host, 0, **more),
    ):
        with pytest.raises(rpc.RPCError, match="RELAXISH_RPC_TOKEN"):
            make()
        with pytest.raises(rpc.RPCError, match="at least 16"):
            make(token="short")
        if host != "::":
            make(token=TOKEN).terminate()
            make(insecure=True).terminate()
    from relaxish.runtime import disco

    with pytest.raises(rpc.RPCError, match="RELAXISH_RPC_TOKEN"):
        disco.SocketSession(1, 1, 1, host, 0)
    assert trust.is_loopback("127.0.0.1") and trust.is_loopback("localhost") and trust.is_loopback("127.3.2.1")


def test_tokens():
    register_func("test.trust.seven", lambda: 7, override=True)
    server = rpc.Server(port=0, key="k", silent=True, no_fork=True, token=TOKEN)
    open_server = rpc.Server(port=0, key="k", silent=True, no_fork=True)
    try:
        with rpc.connect("127.0.0.1", server.port, key="k", token=TOKEN) as session:
            assert session.get_function("test.trust.seven")() == 7
        for wrong, reason in ((None, "a token is needed"), ("x" * 20, "does not know the token")):
            with pytest.raises(rpc.RPCError, match=reason):
                rpc.connect("127.0.0.1", server.port, key="k", token=wrong)
        with pytest.raises(rpc.RPCError, match="this side has no token"):
            rpc.connect("127.0.0.1", open_server.port, key="k", token=TOKEN)
        with config.RPC_TOKEN.override(TOKEN), rpc.connect("127.0.0.1", server.port, key="k") as session:
            assert session.get_function("test.trust.seven")() == 7
    finally:
        server.terminate()
        open_server.terminate()


def test_the_token_does_not_go_over_the_wire_and_proofs_are_worth_nothing_again():
    server = rpc.Server(port=0, key="k", silent=True, no_fork=True, token=TOKEN)
    sent = []

    class Spy(wire.SocketChannel):
        def write(self, data):
            sent.append(data)
            super().write(data)

    try:
        channel = Spy(stranger(server.port))
        trust.introduce(channel, TOKEN.encode())
        wire.send(channel, ["hello", "k", 0.0])
        assert wire.receive(channel) == ["welcome"]
        wire.send(channel, ["bye"])
        channel.close()
        assert len(sent) == 4 and not any(TOKEN.encode() in data for data in sent)
        with stranger(server.port) as again:
            for data in sent[:3]:
                again.sendall(data)
            replay = wire.SocketChannel(again)
            assert wire.receive(replay)[0] == "token"
            assert wire.receive(replay) == ["refused", "the token is another"]
            assert says_nothing_more(again)
    finally:
        server.terminate()


def test_tokens_of_trackers_and_proxies():
    register_func("test.trust.seven", lambda: 7, override=True)
    tracker = rpc.Tracker(port=0, silent=True, token=TOKEN)
    proxy = rpc.Proxy("127.0.0.1", 0, token=TOKEN, timeout_client=10)
    options = {"key": "k", "no_fork": True, "silent": True, "token": TOKEN}
    servers = [
        rpc.Server(port=0, tracker_addr=("127.0.0.1", tracker.port), **options),
        rpc.Server("127.0.0.1", proxy.port, is_proxy=True, **options),
    ]
    try:
        with pytest.raises(rpc.RPCError):
            rpc.connect_tracker("127.0.0.1", tracker.port).summary()
        with pytest.raises(rpc.RPCError):
            rpc.connect("127.0.0.1", proxy.port, key="k")
        client = rpc.connect_tracker("127.0.0.1", tracker.port, token=TOKEN)
        with client.request("k") as session:
            assert session.get_function("test.trust.seven")() == 7
        with rpc.connect("127.0.0.1", proxy.port, key="k", token=TOKEN) as session:
            assert session.get_function("test.trust.seven")() == 7
        client.close()
    finally:
        for each in (*servers, proxy, tracker):
            each.terminate()


def test_a_server_finds_its_tracker_again(monkeypatch):
    from relaxish.runtime.rpc import tracker_session

    monkeypatch.setattr(tracker_session, "_PAUSE", 0.1)
    tracker = rpc.Tracker(port=0, silent=True)
    server = rpc.Server(port=0, key="k", silent=True, no_fork=True, tracker_addr=("127.0.0.1", tracker.port))
    try:
        tracker.terminate()
        tracker = rpc.Tracker(port=tracker.port, port_end=tracker.port + 1, silent=True)
        with rpc.connect_tracker("127.0.0.1", tracker.port).request("k") as session:
            assert session.listdir() == ""
    finally:
        server.terminate()
        tracker.terminate()


def test_clients_that_have_gone_do_not_take_their_server_along():
    tracker = rpc.Tracker(port=0, silent=True)
    server = None
    try:
        for _ in range(5):
            gone = stranger(tracker.port)
            gone.sendall(wire.pack(["request", "k", 1]))
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        server = rpc.Server(port=0, key="k", silent=True, no_fork=True, tracker_addr=("127.0.0.1", tracker.port))
        with rpc.connect_tracker("127.0.0.1", tracker.port).request("k") as session:
            assert session.listdir() == ""
    finally:
        if server is not None:
            server.terminate()
        tracker.terminate()


def test_answers_of_a_hostile_server():
    def serve(listener, answers):
        for answer in answers:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(answer)
                says_nothing_more(sock)

    answers = [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(50),
        frame(b"[" * 90_000),
        frame(b'"x"'),
        frame(b"[]"),
        frame(b'["a"]'),
    ]
    answers += [wire.pack(["welcome"]) + frame(text) for text in (b"[]", b"3", b'["error"]', b'["what", 1, 2, 3]')]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, answers), daemon=True)
        thread.start()
        for _ in answers:
            with pytest.raises(rpc.RPCError):
                session = rpc.connect("127.0.0.1", listener.getsockname()[1], timeout=1)
                try:
                    session.listdir()
                finally:
                    session.close()
        thread.join(timeout=10)


def test_results_that_cannot_be_sent_are_errors():
    server = rpc.Server(port=0, silent=True, no_fork=True)
    endless = []
    endless.append(endless)
    deep = []
    for _ in range(5000):
        deep = [deep]
    register_func("test.trust.endless", lambda: endless, override=True)
    register_func("test.trust.deep", lambda: deep, override=True)
    register_func("test.trust.seven", lambda: 7, override=True)
    try:
        with rpc.connect("127.0.0.1", server.port) as session:
            for name in ("endless", "deep"):
                with pytest.raises(rpc.RPCError):
                    session.get_function(f"test.trust.{name}")()
            assert session.get_function("test.trust.seven")() == 7
            for request in (["call"], ["call", {"$": "object"}], [["x"]], ["method", 1, "__class__"]):
                with pytest.raises(rpc.RPCError):
                    session.ask(*request)
            assert session.get_function("test.trust.seven")() == 7
    finally:
        server.terminate()
