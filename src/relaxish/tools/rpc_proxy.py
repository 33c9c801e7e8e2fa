"""Connect servers and clients: ``python -m relaxish.tools.rpc_proxy --host 127.0.0.1 --port 9090``."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.rpc import Proxy
from .rpc_arguments import host_and_port, listening_parser, run_until_interrupted, token_of

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = listening_parser("Connect RPC servers and clients that cannot reach one another.", 9090)
    parser.add_argument("--timeout-client", type=float, default=600, help="seconds that a client waits for its server")
    parser.add_argument("--timeout-server", type=float, default=600, help="seconds that a server waits for a client")
    parser.add_argument("--tracker", type=host_and_port, help="host:port of a tracker to offer the servers to")
    args = parser.parse_args(argv)
    proxy = Proxy(
        args.host, args.port, args.port_end, timeout_client=args.timeout_client, timeout_server=args.timeout_server,
        tracker_addr=args.tracker, token=token_of(args), insecure=args.insecure,
    )  # fmt: skip
    print(f"proxy on {proxy.host}:{proxy.port}", flush=True)
    run_until_interrupted(proxy.terminate)


if __name__ == "__main__":
    main()
