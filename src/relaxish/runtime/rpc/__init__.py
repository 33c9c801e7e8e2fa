"""Running functions in another process or on another machine.

    server = rpc.Server(key="board")                       # there: python -m relaxish.tools.rpc_server
    remote = rpc.connect("127.0.0.1", server.port, key="board")
    remote.upload("model.so")
    module = remote.load_module("model.so")
    x = nd.array(data, remote.cpu())
    module["main"](x, out)

A server runs what it is sent. With ``token="..."`` (or ``RELAXISH_RPC_TOKEN``) on both sides only those who know the
secret get in; without one servers, trackers and proxies listen to this machine only, unless told to be ``insecure``. What
goes over the wire is data (no pickles), not encrypted, and every message says how long it is and is refused beyond a limit.
"""

from __future__ import annotations

from .client import LocalSession, PopenSession, RPCModule, RPCSession, connect
from .proxy import Proxy
from .server import Server
from .tracker import Tracker
from .tracker_session import TrackerSession, connect_tracker
from .wire import RPCError

__all__ = [
    "LocalSession",
    "PopenSession",
    "Proxy",
    "RPCError",
    "RPCModule",
    "RPCSession",
    "Server",
    "Tracker",
    "TrackerSession",
    "connect",
    "connect_tracker",
]
