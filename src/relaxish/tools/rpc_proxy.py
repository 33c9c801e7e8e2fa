"""Connect servers and clients: ``python -m relaxish.tools.rpc_proxy --host 127.0.0.1 --port 9090``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..runtime.rpc import Proxy
from .rpc_server import _address, _until_interrupted

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(description="Connect RPC servers and clients that cannot reach one another.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument(
        "--port-end", type=int, default=9199, help="the end of the range that is searched for a free port"
    )
    parser.add_argument("--timeout-client", type=float, default=600, help="seconds that a client waits for its server")
    parser.add_argument("--timeout-server", type=float, default=600, help="seconds that a server waits for a client")
    parser.add_argument("--tracker", type=_address, help="host:port of a tracker to offer the servers to")
    args = parser.parse_args(argv)
    proxy = Proxy(
        args.host, args.port, args.port_end, timeout_client=args.timeout_client, timeout_server=args.timeout_server,
        tracker_addr=args.tracker,
    )  # fmt: skip
    print(f"proxy on {proxy.host}:{proxy.port}", flush=True)
    _until_interrupted(proxy.terminate)


if __name__ == "__main__":
    main()
