"""The asking side of a session."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...support.child_process import check_may_start
from ..vm.benchmark import BenchmarkResult
from ..device import Attribute, Device, DeviceAPI, register_device_api
from ..arrays.ndarray import NDArray
from .serving import Serving
from .trust import HELLO_BYTES, HELLO_SECONDS, introduce, secret
from .wire import BytesChannel, Channel, RPCError, SocketChannel, Tagged, pack, receive, send

__all__ = ["LocalSession", "PopenSession", "RPCModule", "RPCSession", "connect", "session_process"]

_MASK = 128  # a remote device's type: 128 times the session's number, plus the type there
_COUNT = iter(range(1, 1 << 20))
_LOCK = threading.Lock()


class _RemoteMemory:
    """Memory of the other side, given back with the last array in it."""

    def __init__(self, session: RPCSession, address: int) -> None:
        self.session = session
        self.address = address

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.session.alive:
            self.session.forget("free_memory", self.address)


class _RemoteDevices(DeviceAPI):
    """Devices of one type on the other side."""

    def __init__(self, session: RPCSession, kind: int) -> None:
        self.session = session
        self.kind = kind

    def _tag(self, index: int) -> Tagged:
        return Tagged("device", type=self.kind, id=index)

    def exists(self, index: int) -> bool:
        """Whether it is there; it is not after the session's end."""
        return self.session.alive and bool(self.session.ask("device", self._tag(index), "exist"))

    def attribute(self, index: int, name: str) -> Attribute:
        """A property."""
        return self.session.ask("device", self._tag(index), name)

    def allocate(self, index: int, nbytes: int, alignment: int, mem_scope: str | None) -> tuple[int, object]:
        """Memory there."""
        address = int(self.session.ask("allocate", self._tag(index), nbytes))
        return address, _RemoteMemory(self.session, address)

    def copy(self, source: int, source_device: Device, target: int, target_device: Device, nbytes: int) -> None:
        """Over the wire, or within the other side."""
        import ctypes

        if source_device.device_type == Device.kDLCPU:
            self.session.ask("write", target, ctypes.string_at(source, nbytes))
        elif target_device.device_type == Device.kDLCPU:
            data = self.session.ask("read", source, nbytes)
            ctypes.memmove(target, data, nbytes)
        else:
            self.session.ask("copy", source, target, nbytes)

    def synchronize(self, index: int, stream: int | None = None) -> None:
        """Wait for its work."""
        self.session.ask("device", self._tag(index), "sync")


class RPCSession:
    """A session with a server: its files, functions, modules and devices. Get one from :func:`connect`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.RLock()
        self._number = next(_COUNT)
        self._to_forget: list[tuple[str, int]] = []
        self._keep: list[NDArray] = []  # copies of arguments, until the call has returned
        self.alive = True

    # ---- requests

    def ask(self, *request: Any) -> Any:
        """Send a request and wait for its answer. Raises RPCError, with the other side's message, if it failed."""
        with self._lock:
            if not self.alive:
                raise RPCError("the session is closed")
            while self._to_forget:
                self._exchange(list(self._to_forget.pop()))
            return self._exchange(list(request))

    def _exchange(self, request: list[Any]) -> Any:
        message = pack(request)
        try:
            answer = self._round_trip(message)
        except RPCError:
            self.alive = False
            raise
        if not isinstance(answer, list) or not answer:
            raise RPCError("an answer that cannot be understood")
        if answer[0] == "ok":
            return answer[1]
        if len(answer) != 4 or answer[0] != "error":
            raise RPCError("an answer that cannot be understood")
        _, name, message, trace = answer
        raise RPCError(f"{name}: {message}" + (f"\n\nOn the other side:\n{trace}" if trace else ""))

    def _round_trip(self, message: bytes) -> object:
        self._channel.write(message)
        return receive(self._channel)

    def forget(self, request: str, handle: int) -> None:
        """Free something with the next request: objects may die at any time, in any thread."""
        self._to_forget.append((request, handle))

    def close(self) -> None:
        """End the session."""
        with self._lock:
            if self.alive:
                self.alive = False
                try:
                    send(self._channel, ["bye"])
                except RPCError:
                    return  # gone already
                finally:
                    self._channel.close()

    def __enter__(self) -> RPCSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- values

    def outgoing(self, value: object) -> object:
        """An argument for the wire; arrays of this process are copied over first."""
        match value:
            case NDArray():
                owner = value.device.device_type // _MASK
                if owner != self._number:
                    if owner:
                        raise RPCError("an array of another session")
                    value = value.copyto(self.device("cpu"))
                    self._keep.append(value)
                return Tagged("array", address=value.ptr, shape=list(value.shape), dtype=value.dtype)
            case Device():
                return Tagged("device", type=value.device_type % _MASK, id=value.device_id)
            case RemoteObject():
                return Tagged("object", handle=value.handle)
            case list() | tuple() if type(value).__name__ != "ShapeTuple":
                return [self.outgoing(v) for v in value]
        return value

    def incoming(self, value: object) -> Any:
        """A result from the wire."""
        if isinstance(value, list):
            return [self.incoming(v) for v in value]
        if not isinstance(value, Tagged):
            return value
        fields = value.fields
        if value.kind == "array":
            device = self.device(int(fields["device"][0]), int(fields["device"][1]))
            owner = _RemoteMemory(self, int(fields["address"]))
            return NDArray(int(fields["address"]), tuple(fields["shape"]), fields["dtype"], device, owner)
        if value.kind == "object":
            return (RemoteFunction if fields["callable"] else RemoteObject)(self, int(fields["handle"]))
        raise RPCError(f"a value of unknown kind {value.kind!r}")

    def call(self, request: str, *args: Any) -> Any:
        """A request with arguments and a result of any kind."""
        with self._lock:
            try:
                return self.incoming(self.ask(request, *(self.outgoing(a) for a in args)))
            finally:
                self._keep.clear()

    # ---- what users call

    def get_function(self, name: str) -> RemoteFunction:
        """A global function of the server. Raises RPCError if there is none."""
        return RemoteFunction(self, int(self.ask("get_function", name)))

    system_lib = property(lambda self: self.get_function("runtime.SystemLib"))

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """A device of the server: use it for arrays (``nd.array(x, remote.device("cpu"))``)."""
        there = Device(dev_type, dev_id)
        kind = self._number * _MASK + there.device_type
        register_device_api(kind, lambda: _RemoteDevices(self, there.device_type))
        return Device(kind, there.device_id)

    def upload(self, data: str | bytes | bytearray | os.PathLike[str], target: str | None = None) -> None:
        """Send a file (with the files beside it that belong to it), or bytes with a name for them."""
        if isinstance(data, bytes | bytearray):
            if not target:
                raise ValueError("bytes need a target name")
            self.ask("upload", target, bytes(data))
            return
        path = Path(data)
        name = target or path.name
        self.ask("upload", name, path.read_bytes())
        if path.suffix == ".so":
            for suffix in (".json", ".safetensors"):
                beside = path.with_suffix(suffix)
                if beside.exists():
                    self.ask("upload", str(Path(name).with_suffix(suffix)), beside.read_bytes())

    def download(self, path: str) -> bytearray:
        """A file of the session's folder."""
        return bytearray(self.ask("download", path))

    def remove(self, path: str) -> None:
        """Delete an uploaded file."""
        self.ask("remove", path)

    def listdir(self, path: str = ".") -> str:
        """Names of files, with commas between them."""
        return ",".join(self.ask("listdir", path))

    def load_module(self, path: str) -> RPCModule:
        """Load an uploaded file."""
        handle, kind, entry = self.ask("load_module", path)
        return RPCModule(self, int(handle), kind, entry)


def _device_method(name: str) -> Callable[..., Device]:
    def method(self: RPCSession, dev_id: int = 0) -> Device:
        return self.device(name, dev_id)

    method.__name__ = name
    method.__doc__ = f"A {name} device of the server."
    return method


for _name in ("cpu", "cuda", "cl", "vulkan", "metal", "rocm", "ext_dev", "hexagon", "webgpu"):
    setattr(RPCSession, _name, _device_method("opencl" if _name == "cl" else _name))


class RemoteObject:
    """Something that lives on the other side."""

    def __init__(self, session: RPCSession, handle: int) -> None:
        self.session = session
        self.handle = handle

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.session.alive:
            self.session.forget("free", self.handle)


class RemoteFunction(RemoteObject):
    """A function of the other side. Raises RPCError, with its message, when it fails there."""

    def __call__(self, *args: Any) -> Any:
        return self.session.call("call", self.handle, *args)


class _Timed(RemoteObject):
    """An object on the other side whose functions can be timed there."""

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that runs ``func_name`` on the other side and times it with the clock there."""
        settings = {"number": number, "repeat": repeat, **options}

        def evaluate(*args: Any) -> BenchmarkResult:
            return BenchmarkResult(self.session.call("time", self.handle, func_name, dev, settings, list(args)))

        return evaluate


class RPCModule(_Timed):
    """A module loaded on the other side."""

    def __init__(self, session: RPCSession, handle: int, kind: str, entry_name: str | None) -> None:
        super().__init__(session, handle)
        self.kind = kind
        self.entry_name = entry_name

    type_key = "rpc"

    def get_function(self, name: str, query_imports: bool = False) -> RemoteFunction:
        """A function by name. Raises RPCError if there is none."""
        return RemoteFunction(self.session, int(self.session.ask("module_function", self.handle, name)))

    __getitem__ = get_function

    def __call__(self, *args: Any) -> Any:
        if self.entry_name is None:
            raise RPCError("the module has several functions; choose one by name")
        return self.get_function(self.entry_name)(*args)

    def remote_vm(self, devices: Device | Sequence[Device]) -> RemoteVM:
        """A virtual machine on the other side: what ``relax.VirtualMachine(module, remote.cpu())`` gives."""
        listed = [devices] if isinstance(devices, Device) else list(devices)
        return RemoteVM(self.session, int(self.session.call("virtual_machine", self.handle, listed)))


class RemoteVM(_Timed):
    """A virtual machine on the other side."""

    def __getitem__(self, name: str) -> RemoteFunction:
        return RemoteFunction(self.session, int(self.session.ask("vm_function", self.handle, name)))

    def _call(self, method: str, *args: Any) -> Any:
        return self.session.call("method", self.handle, method, *args)

    def set_input(self, func_name: str, *args: Any) -> None:
        """Inputs for :meth:`invoke_stateful`."""
        self._call("set_input", func_name, *args)

    def invoke_stateful(self, func_name: str) -> None:
        """Run on the inputs that were set."""
        self._call("invoke_stateful", func_name)

    def get_outputs(self, func_name: str) -> Any:
        """Result of the last call."""
        return self._call("get_outputs", func_name)


# ---- ways to get a session


def connect(
    url: str, port: int, key: str = "", session_timeout: float = 0, session_constructor_args: Sequence[Any] | None = None,
    enable_logging: bool = False, *, timeout: float | None = None, token: str | None = None,
) -> RPCSession:  # fmt: skip
    """A session with a server that has this ``key``, and the same ``token`` (``RELAXISH_RPC_TOKEN``) if it has one.

    The server ends it after ``session_timeout`` seconds (0: never); ``timeout`` limits the wait for each answer.  Raises
    RPCError if nobody listens there or the key is another.
    """
    try:
        sock = socket.create_connection((url, port), timeout=timeout or 10.0)
    except OSError as error:
        raise RPCError(f"cannot connect to {url}:{port}: {error}") from None
    sock.settimeout(timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel = SocketChannel(sock)
    try:
        own = secret(token)
        if own:
            channel.hurry(timeout or HELLO_SECONDS)
            introduce(channel, own)
            channel.hurry(None)
            sock.settimeout(timeout)
        send(channel, ["hello", key, float(session_timeout)])
        answer = receive(channel, HELLO_BYTES)  # of a proxy, when the server has come
        if answer != ["welcome"]:
            raise RPCError(str(answer[1]) if isinstance(answer, list) and len(answer) > 1 else "refused")
    except RPCError as error:
        channel.close()
        raise RPCError(f"{url}:{port}: {error}") from None
    session = RPCSession(channel)
    if session_constructor_args:
        name, *args = session_constructor_args
        session.get_function(name)(*args)
    return session


class LocalSession(RPCSession):
    """A session with this process: the interface of a remote one, for tests and tools."""

    def __init__(self) -> None:
        super().__init__(BytesChannel(b""))
        self._serving = Serving()

    def _round_trip(self, message: bytes) -> object:
        answer = self._serving.handle(receive(BytesChannel(message)))
        return receive(BytesChannel(pack(answer)))

    def close(self) -> None:
        """End the session."""
        if self.alive:
            self.alive = False
            self._serving.close()


def session_process(descriptor: int, binary: str | None = None) -> subprocess.Popen[bytes]:
    """A process that serves one session on an open socket."""
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from relaxish.support.child_process import end_with_parent\n"
        f"end_with_parent({os.getpid()})\n"
        "from relaxish.runtime.rpc.serving import serve_descriptor\n"
        "serve_descriptor(int(sys.argv[1]))"
    )
    check_may_start("an RPC session in a process of its own")
    command = [binary] if binary else [sys.executable, "-c", program]
    return subprocess.Popen([*command, str(descriptor)], pass_fds=[descriptor])


class PopenSession(RPCSession):
    """A session with a new process of this machine, which ends with it."""

    def __init__(self, binary: str | None = None) -> None:
        here, there = socket.socketpair()
        with there:
            self._process = session_process(there.fileno(), binary)
        super().__init__(SocketChannel(here))

    def close(self) -> None:
        """End the session and its process."""
        super().close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
