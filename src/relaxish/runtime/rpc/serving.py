"""The serving side of one session: a folder for files, a table of objects, and the requests."""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...support.errors import RelaxishError
from ...support.files import replace_file
from ..device import Device, cpu
from ..exports.export import load_module
from ..arrays.ndarray import NDArray, empty
from ..registry import get_global_func
from .wire import Channel, RPCError, SocketChannel, Tagged, receive, send

__all__ = ["Serving", "serve", "serve_descriptor"]


class Serving:
    """State of a session: its objects die with it. ``requests`` are methods named ``do_<request>``."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="relaxish-rpc-")
        self.objects: dict[int, Any] = {}
        self.buffers: dict[int, NDArray] = {}  # by address
        self._uses: dict[int, int] = {}  # how many times the other side was told of an address
        self._next = 1

    def close(self) -> None:
        """Forget everything, files too."""
        self.objects.clear()
        self.buffers.clear()
        self._folder.cleanup()

    def handle(self, request: object) -> list[Any]:
        """The answer to a request: ["ok", value] or ["error", class name, message, trace]."""
        try:
            if not isinstance(request, list) or not request or not isinstance(request[0], str):
                raise RPCError("a request without a name")
            method: Callable[..., Any] | None = getattr(self, f"do_{request[0]}", None)
            if method is None:
                raise RPCError(f"unknown request {request[0]!r}")
            return ["ok", method(*request[1:])]
        # Whatever a called function raises is for the client to know; the session goes on.
        except Exception as error:
            return ["error", type(error).__name__, str(error), traceback.format_exc()]

    # ---- values

    def _note(self, value: object) -> int:
        handle, self._next = self._next, self._next + 1
        self.objects[handle] = value
        return handle

    def _object(self, handle: int) -> Any:
        if handle not in self.objects:
            raise RPCError(f"there is no object {handle!r} in this session")
        return self.objects[handle]

    def outgoing(self, value: object) -> object:
        """A result for the wire: arrays and other objects stay here, their names go out."""
        match value:
            case NDArray():
                self._hold(value)
                fields = {"address": value.ptr, "shape": list(value.shape), "dtype": value.dtype}
                return Tagged("array", **fields, device=[value.device.device_type, value.device.device_id])
            case list() | tuple() if type(value).__name__ != "ShapeTuple":
                return [self.outgoing(v) for v in value]
            case None | bool() | int() | float() | str() | bytes() | bytearray() | tuple():
                return value
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            return value.item()
        return Tagged("object", handle=self._note(value), callable=callable(value), kind_name=type(value).__name__)

    def incoming(self, value: object) -> Any:
        """An argument from the wire."""
        if isinstance(value, list):
            return [self.incoming(v) for v in value]
        if not isinstance(value, Tagged):
            return value
        if value.kind == "array":
            return self._array(value.fields)
        if value.kind == "object":
            return self._object(value.fields["handle"])
        if value.kind == "device":
            return Device(int(value.fields["type"]), int(value.fields["id"]))
        raise RPCError(f"a value of unknown kind {value.kind!r}")

    def _array(self, fields: dict[str, Any]) -> NDArray:
        """An array inside memory of this session. Raises RPCError for addresses outside of it."""
        address, shape, dtype = int(fields["address"]), [int(d) for d in fields["shape"]], str(fields["dtype"])
        for base, buffer in self.buffers.items():
            if base <= address < base + max(buffer.nbytes, 1) and min(shape, default=0) >= 0:
                if address == base and tuple(shape) == buffer.shape and dtype == buffer.dtype:
                    return buffer
                # A view that is longer than its memory is refused.
                return buffer._create_view((buffer.nbytes,), "uint8")._create_view(shape, dtype, address - base)
        raise RPCError("an array outside of this session's memory")

    # ---- functions and modules

    def do_get_function(self, name: str) -> int:
        """A global function."""
        found = get_global_func(name, allow_missing=True)
        if found is None:
            raise RelaxishError(f"Cannot find global function {name}")
        return self._note(found)

    def do_module_function(self, handle: int, name: str) -> int:
        """A function of a module."""
        return self._note(self._object(handle).get_function(name))

    def do_call(self, handle: int, *args: Any) -> object:
        """Call a function."""
        return self.outgoing(self._object(handle)(*(self.incoming(a) for a in args)))

    def do_method(self, handle: int, name: str, *args: Any) -> object:
        """Call one of the methods that remote objects are known by."""
        if name not in ("set_input", "invoke_stateful", "get_outputs", "get_output_arity", "entry_name"):
            raise RPCError(f"method {name!r} cannot be called from outside")
        return self.outgoing(getattr(self._object(handle), name)(*(self.incoming(a) for a in args)))

    def do_time(self, handle: int, name: str, device: Device, options: dict[str, Any], args: list[Any]) -> list[float]:
        """Time a function of a module."""
        timed = self._object(handle).time_evaluator(name, self.incoming(device), **options)
        return [float(r) for r in timed(*(self.incoming(a) for a in args)).results]

    def do_load_module(self, name: str) -> list[Any]:
        """Load an uploaded file."""
        module = load_module(self._path(name))
        return [self._note(module), type(module).__name__, getattr(module, "entry_name", None)]

    def do_virtual_machine(self, handle: int, devices: list[Any]) -> int:
        """A machine for a loaded executable."""
        from ..vm.machine import VirtualMachine

        return self._note(VirtualMachine(self._object(handle), [self.incoming(d) for d in devices]))

    def do_vm_function(self, handle: int, name: str) -> int:
        """A function of a machine."""
        return self._note(self._object(handle)[name])

    def do_free(self, handle: int) -> None:
        """Forget an object."""
        self.objects.pop(handle, None)

    # ---- memory

    def do_allocate(self, device: Device, nbytes: int) -> int:
        """Memory on a device; its address."""
        made = empty((int(nbytes),), "uint8", self.incoming(device))
        self._hold(made)
        return made.ptr

    def _hold(self, array: NDArray) -> None:
        self.buffers.setdefault(array.ptr, array)
        self._uses[array.ptr] = self._uses.get(array.ptr, 0) + 1

    def do_free_memory(self, address: int) -> None:
        """Give memory back, when the other side has as often said so as it was told of it."""
        left = self._uses.get(address, 0) - 1
        self._uses[address] = left
        if left <= 0:
            self._uses.pop(address, None)
            self.buffers.pop(address, None)

    def _bytes_at(self, address: int, nbytes: int) -> NDArray:
        return self._array({"address": address, "shape": [nbytes], "dtype": "uint8"})

    def do_write(self, address: int, data: bytes) -> None:
        """Overwrite memory."""
        import numpy as np

        self._bytes_at(address, len(data)).copyfrom(np.frombuffer(data, "uint8"))

    def do_read(self, address: int, nbytes: int) -> bytes:
        """Read memory."""
        out: bytes = self._bytes_at(address, int(nbytes)).numpy().tobytes()
        return out

    def do_copy(self, source: int, target: int, nbytes: int) -> None:
        """Copy within this side."""
        self._bytes_at(source, int(nbytes)).copyto(self._bytes_at(target, int(nbytes)))

    def do_device(self, device: Device, what: str) -> object:
        """A property of a device; "exist"; or wait for it ("sync")."""
        found = self.incoming(device)
        if what == "sync":
            found.sync()
            return None
        return found.exist if what == "exist" else found._attribute(what)

    # ---- files

    def _path(self, name: str) -> Path:
        """A file of the session's folder. Raises RPCError for one outside."""
        root = Path(self._folder.name).resolve()
        found = (root / name).resolve()
        if found != root and root not in found.parents:
            raise RPCError(f"{name} is outside of the session's folder")
        return found

    def do_upload(self, name: str, data: bytes) -> None:
        """Write a file; what was there before stays whole for who has it open."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)

    def do_download(self, name: str) -> bytes:
        """Read a file."""
        return self._path(name).read_bytes()

    def do_remove(self, name: str) -> None:
        """Delete a file."""
        self._path(name).unlink(missing_ok=True)

    def do_listdir(self, name: str) -> list[str]:
        """Entries of a folder."""
        return sorted(os.listdir(self._path(name)))


def serve(channel: Channel) -> None:
    """Answer requests until the other side hangs up."""
    serving = Serving()
    cpu()
    try:
        while True:
            request = receive(channel)
            if request == ["bye"]:
                return
            answer = serving.handle(request)
            try:
                send(channel, answer)
            except RPCError as error:
                if answer[0] != "ok":
                    raise
                send(channel, ["error", "RPCError", str(error), ""])
    except RPCError:
        return  # the other side is gone, or not ours
    finally:
        serving.close()
        channel.close()


def serve_descriptor(descriptor: int) -> None:
    """Serve one session on an open socket of this process."""
    serve(SocketChannel(socket.socket(fileno=descriptor)))
