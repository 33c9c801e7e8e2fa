"""Serve sessions: ``python -m relaxish.tools.rpc_server --host 127.0.0.1 --port 9091 --key board``.

What a session sends is run with this user's rights. Beyond this machine a server listens only with a token
(``--token-file``, ``RELAXISH_RPC_TOKEN``), which clients must know.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.rpc import Server
from .rpc_arguments import host_and_port, listening_parser, run_until_interrupted, token_of

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = listening_parser("Serve RPC sessions.", 9091)
    parser.add_argument("--tracker", type=host_and_port, help="host:port of a tracker to report to")
    parser.add_argument("--key", default="", help="what clients must ask for")
    parser.add_argument("--custom-addr", help="the address to report to the tracker")
    parser.add_argument("--load-library", help="shared libraries to load, with ':' between them")
    parser.add_argument("--timeout", type=float, help="seconds that a session may last")
    parser.add_argument("--silent", action="store_true")
    args = parser.parse_args(argv)
    server = Server(
        args.host, args.port, args.port_end, tracker_addr=args.tracker, key=args.key, load_library=args.load_library,
        custom_addr=args.custom_addr, silent=args.silent, timeout=args.timeout,
        token=token_of(args), insecure=args.insecure,
    )  # fmt: skip
    print(f"serving on {server.host}:{server.port}", flush=True)
    run_until_interrupted(server.terminate)


if __name__ == "__main__":
    main()
