"""Track servers: ``python -m relaxish.tools.rpc_tracker --host 127.0.0.1 --port 9190``."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.rpc import Tracker
from .rpc_arguments import listening_parser, run_until_interrupted, token_of

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = listening_parser("Track RPC servers.", 9190)
    parser.add_argument("--silent", action="store_true")
    args = parser.parse_args(argv)
    tracker = Tracker(
        args.host, args.port, args.port_end, silent=args.silent, token=token_of(args), insecure=args.insecure
    )
    print(f"tracking on {tracker.host}:{tracker.port}", flush=True)
    run_until_interrupted(tracker.terminate)


if __name__ == "__main__":
    main()
