"""A node of a disco session: ``python -m relaxish.tools.disco_remote_socket_session HOST PORT WORKERS``.

:class:`relaxish.runtime.disco.SocketSession` at ``HOST:PORT`` counts on it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..runtime.disco.sockets import run_remote_node, run_socket_worker
from . import disco_worker as _functions_to_try

__all__ = ["main", "run_remote_node"]
_ = _functions_to_try


def main(argv: Sequence[str]) -> int:
    """Run until the session is over; 1 if the arguments are wrong."""
    if len(argv) == 6 and argv[0] == "--worker":
        host, *numbers = argv[1:]
        run_socket_worker(host, *map(int, numbers))
        return 0
    if len(argv) != 3:
        print(
            "usage: python -m relaxish.tools.disco_remote_socket_session <server_host> <server_port> <num_workers>",
            file=sys.stderr,
        )
        return 1
    run_remote_node(argv[0], int(argv[1]), int(argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
