"""Track servers: ``python -m relaxish.tools.rpc_tracker --host 127.0.0.1 --port 9190``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..runtime.rpc import Tracker
from .rpc_server import _until_interrupted

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = argparse.ArgumentParser(description="Track RPC servers.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=9190)
    parser.add_argument(
        "--port-end", type=int, default=9199, help="the end of the range that is searched for a free port"
    )
    parser.add_argument("--silent", action="store_true")
    args = parser.parse_args(argv)
    tracker = Tracker(args.host, args.port, args.port_end, silent=args.silent)
    print(f"tracking on {tracker.host}:{tracker.port}", flush=True)
    _until_interrupted(tracker.terminate)


if __name__ == "__main__":
    main()
