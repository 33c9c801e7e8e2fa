"""Status of a tracker: ``python -m relaxish.tools.query_rpc_tracker --host 127.0.0.1 --port 9190``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..runtime.rpc import connect_tracker
from .rpc_arguments import add_token, token_of

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Print servers and queues."""
    parser = argparse.ArgumentParser(description="Query an RPC tracker.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9190)
    add_token(parser)
    args = parser.parse_args(argv)
    session = connect_tracker(args.host, args.port, token=token_of(args))
    print(f"Tracker address {args.host}:{args.port}\n")
    print(session.text_summary())
    session.close()


if __name__ == "__main__":
    main()
