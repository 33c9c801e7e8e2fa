"""Sessions with servers on this machine: files, functions, modules, arrays, errors, trackers."""

from __future__ import annotations

import contextlib
import socket
import threading

import numpy as np
import pytest

import relaxish
from relaxish import nd, relax, rpc
from relaxish.runtime.registry import register_func
from relaxish.runtime.rpc import wire
from relaxish.runtime.rpc.serving import Serving
from relaxish.script import ir as I
from relaxish.script import relax as R


@pytest.fixture(scope="module")
def server():
    made = rpc.Server(port=0, key="test", no_fork=True, silent=True)
    yield made
    made.terminate()


@pytest.fixture
def remote(server):
    with rpc.connect("127.0.0.1", server.port, key="test") as session:
        yield session


@pytest.fixture(params=["socket", "local"])
def session(request, server):
    made = rpc.LocalSession() if request.param == "local" else rpc.connect("127.0.0.1", server.port, key="test")
    yield made
    made.close()


def test_functions(session):
    register_func("test.rpc.join", lambda a, b, scale: f"{a}-{b}-{scale}", override=True)
    assert session.get_function("test.rpc.join")("x", 3, 0.5) == "x-3-0.5"
    register_func("test.rpc.echo", lambda *args: args, override=True)
    echoed = session.get_function("test.rpc.echo")(
        None, True, float("inf"), [1, ["a"]], b"\0\1", relaxish.runtime.ShapeTuple([2, 3])
    )
    assert echoed[:5] == [None, True, float("inf"), [1, ["a"]], b"\0\1"] and list(echoed[5]) == [2, 3]
    with pytest.raises(rpc.RPCError, match="Cannot find global function"):
        session.get_function("test.rpc.nothing")


def test_errors_come_with_their_message_and_the_session_goes_on(session):
    def fails(what):
        raise KeyError(what)

    register_func("test.rpc.fails", fails, override=True)
    with pytest.raises(rpc.RPCError, match="KeyError.*milk(.|\n)*On the other side"):
        session.get_function("test.rpc.fails")("milk")
    with pytest.raises(rpc.RPCError, match="cannot be sent"):
        session.get_function("test.rpc.fails")(object())


def test_arrays_live_there(session):
    device = session.cpu()
    assert device.exist and device != relaxish.cpu()
    x = np.arange(6, dtype="float32").reshape(2, 3)
    there = nd.array(x, device)
    assert there.device == device and there.shape == (2, 3)
    np.testing.assert_array_equal(there.numpy(), x)
    register_func("test.rpc.double", lambda a, out: out.copyfrom(a.numpy() * 2), override=True)
    out = nd.empty((2, 3), "float32", device)
    double = session.get_function("test.rpc.double")
    double(there, out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)
    double(nd.array(x + 1), out)  # an array of this side goes over first
    np.testing.assert_array_equal(out.numpy(), 2 * (x + 1))
    register_func(
        "test.rpc.make", lambda n: (nd.array(np.ones(n, "int64")), [nd.array(np.zeros(2, "int8"))]), override=True
    )
    ones, (zeros,) = session.get_function("test.rpc.make")(3)
    assert ones.device == device and ones.numpy().tolist() == [1, 1, 1] and zeros.dtype == "int8"
    register_func("test.rpc.same", lambda a: a, override=True)
    again = session.get_function("test.rpc.same")(out)
    del out
    np.testing.assert_array_equal(again.numpy(), 2 * (x + 1))


def test_pools_can_be_cleared_after_a_session(server):
    with rpc.connect("127.0.0.1", server.port, key="test") as session:
        device = session.cpu()
        assert nd.array(np.arange(3), device).numpy().tolist() == [0, 1, 2] and device.exist
    assert not device.exist
    relaxish.get_global_func("vm.builtin.memory_manager.clear")()


def test_files(session):
    session.upload(b"hello", "greetings/first.txt")
    assert session.listdir("greetings") == "first.txt"
    assert session.download("greetings/first.txt") == b"hello"
    session.remove("greetings/first.txt")
    assert session.listdir("greetings") == ""
    for outside in ("../x", "/etc/hosts"):
        with pytest.raises(rpc.RPCError, match="outside"):
            session.download(outside)


def test_uploads_leave_what_is_open_whole():
    """A library that runs must not change under its threads."""
    serving = Serving()
    serving.do_upload("lib/k.so", b"old")
    with open(serving._path("lib/k.so"), "rb") as held:
        serving.do_upload("lib/k.so", b"newer")
        assert held.read() == b"old"
    assert serving.do_download("lib/k.so") == b"newer" and serving.do_listdir("lib") == ["k.so"]
    serving.close()


def test_memory_outside_of_the_session_is_refused(session):
    mine = nd.array(np.zeros(4, "float32"))
    with pytest.raises(rpc.RPCError, match="outside of this session"):
        session.ask("read", mine.ptr, 16)
    there = nd.empty((4,), "float32", session.cpu())
    with pytest.raises(rpc.RPCError, match="only contains 16 bytes"):
        session.ask("read", there.ptr, 1 << 20)
    with pytest.raises(rpc.RPCError, match="outside of this session"):
        session.ask("read", there.ptr, -1)


@I.ir_module
class Twice:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y


def test_models(remote, tmp_path):
    pytest.importorskip("llvmlite")
    path = tmp_path / "twice.so"
    relaxish.build(Twice, target="llvm").export_library(str(path))
    remote.upload(path)
    module = remote.load_module("twice.so")
    vm = relax.VirtualMachine(module, remote.cpu())
    x = nd.array(np.arange(4, dtype="float32"), remote.cpu())
    np.testing.assert_array_equal(vm["main"](x).numpy(), [0, 2, 4, 6])
    vm.set_input("main", x)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main").numpy(), [0, 2, 4, 6])
    timed = vm.time_evaluator("main", remote.cpu(), number=2, repeat=3)(x)
    assert len(timed.results) == 3 and timed.mean > 0


def test_kernels(remote, tmp_path):
    pytest.importorskip("llvmlite")
    from relaxish.script import tir as T

    @T.prim_func
    def add_one(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                b[vi] = a[vi] + T.float32(1)

    path = tmp_path / "add.tar"
    relaxish.compile(add_one, target="llvm").export_library(str(path))
    remote.upload(path)
    module = remote.load_module("add.tar")
    a, b = nd.array(np.arange(8, dtype="float32"), remote.cpu()), nd.empty((8,), "float32", remote.cpu())
    module["main" if module.entry_name is None else module.entry_name](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(8) + 1)
    assert module.time_evaluator(module.entry_name, remote.cpu(), number=3)(a, b).mean > 0


def test_a_process_of_its_own():
    with rpc.PopenSession() as session:
        x = nd.array(np.arange(3, dtype="int32"), session.cpu())
        assert x.numpy().tolist() == [0, 1, 2]
        pid = session._process.pid
    assert session._process.poll() is not None and pid


def test_a_session_in_a_process_ends_in_time():
    server = rpc.Server(port=0, silent=True)
    try:
        session = rpc.connect("127.0.0.1", server.port, session_timeout=0.5)
        waiting = threading.Event()
        with pytest.raises(rpc.RPCError):
            for _ in range(100):
                session.listdir()
                waiting.wait(0.1)
        assert not session.alive
    finally:
        server.terminate()


def test_wrong_keys_and_wrong_clients(server):
    with pytest.raises(rpc.RPCError, match="key 'other' is not the server's"):
        rpc.connect("127.0.0.1", server.port, key="other")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(64))
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""  # hung up on
    gone = rpc.Server(port=0, silent=True, no_fork=True)
    gone.terminate()
    with pytest.raises(rpc.RPCError, match="cannot connect"):
        rpc.connect("127.0.0.1", gone.port)


def test_messages_say_how_long_they_are():
    here, there = socket.socketpair()
    with here, there:
        channel = wire.SocketChannel(there)
        here.sendall(wire.pack(["a", {"k": 1.5}, b"xyz"]))
        assert wire.receive(channel) == ["a", {"k": 1.5}, b"xyz"]
        here.sendall(wire._HEAD.pack(wire._MAGIC, 1 << 40, 0))
        with pytest.raises(rpc.RPCError, match="refused"):
            wire.receive(channel)
        text = b'[{"$": "bytes", "at": 3}]'
        here.sendall(wire._HEAD.pack(wire._MAGIC, len(text), 0) + text)
        with pytest.raises(rpc.RPCError, match="does not have"):
            wire.receive(channel)
        text = b"[1,"
        here.sendall(wire._HEAD.pack(wire._MAGIC, len(text), 0) + text)
        with pytest.raises(rpc.RPCError, match="damaged"):
            wire.receive(channel)


def test_trackers():
    register_func("test.rpc.join", lambda a, b, scale: f"{a}-{b}-{scale}", override=True)
    tracker = rpc.Tracker(port=0, silent=True)
    servers = [
        rpc.Server(port=0, key="board", tracker_addr=("127.0.0.1", tracker.port), no_fork=True, silent=True)
        for _ in range(2)
    ]
    try:
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        assert client.summary()["queue_info"] == {"board": {"free": 2, "pending": 0}}
        first, second = client.request("board"), client.request("board")
        assert first.listdir() == second.listdir() == ""
        assert client.summary()["queue_info"] == {}
        waiting = rpc.connect_tracker("127.0.0.1", tracker.port)
        got = []
        thread = threading.Thread(target=lambda: got.append(waiting.request("board", priority=3).listdir()))
        thread.start()
        first.close()  # its server is free again
        thread.join(timeout=10)
        assert got == [""]
        second.close()
        assert (
            client.request_and_run("board", lambda session: session.get_function("test.rpc.join")("a", 1, 2)) == "a-1-2"
        )
        assert "board" in client.text_summary()
        with pytest.raises(rpc.RPCError, match="after 2 tries"):
            client.request_and_run("board", lambda session: session.get_function("test.rpc.nothing"))
    finally:
        for server in servers:
            server.terminate()
        tracker.terminate()


@contextlib.contextmanager
def behind_a_proxy(*keys, **options):
    """A proxy and a server for each key."""
    proxy = rpc.Proxy("127.0.0.1", 0, **options)
    servers = [rpc.Server("127.0.0.1", proxy.port, is_proxy=True, key=key, no_fork=True, silent=True) for key in keys]
    yield proxy
    for each in (proxy, *servers):
        each.terminate()


def test_a_proxy_joins_servers_and_clients():
    register_func("test.rpc.twice", lambda x: 2 * x, override=True)
    with behind_a_proxy("one", "two", timeout_client=5) as proxy:
        for key in ("two", "one", "two"):  # a server comes again after a session
            with rpc.connect("127.0.0.1", proxy.port, key=key) as session:
                assert session.get_function("test.rpc.twice")(21) == 42
                x = nd.array(np.arange(70000, dtype="float32"), session.cpu())
                np.testing.assert_array_equal(x.numpy(), np.arange(70000))
        with pytest.raises(rpc.RPCError, match="No such file|cannot"):
            with rpc.connect("127.0.0.1", proxy.port, key="one") as session:
                session.load_module("nothing.so")


def test_a_proxy_refuses_clients_whose_server_does_not_come():
    with behind_a_proxy("one", timeout_client=0.2) as proxy:
        with pytest.raises(rpc.RPCError, match="no server of the key 'three'"):
            rpc.connect("127.0.0.1", proxy.port, key="three")
    with pytest.raises(rpc.RPCError, match="web browsers"):
        rpc.Proxy("127.0.0.1", 0, web_port=8888)


def test_a_proxy_offers_its_servers_to_a_tracker():
    register_func("test.rpc.twice", lambda x: 2 * x, override=True)
    tracker = rpc.Tracker(port=0, silent=True)
    with behind_a_proxy("board", tracker_addr=("127.0.0.1", tracker.port), timeout_client=5):
        client = rpc.connect_tracker("127.0.0.1", tracker.port)
        for _ in range(2):
            with client.request("board", session_timeout=10) as session:
                assert session.get_function("test.rpc.twice")(4) == 8
        client.close()
    tracker.terminate()
