"""What the commands of remote procedure calls share: their arguments, and running until interrupted."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable

__all__ = ["host_and_port", "listening_parser", "run_until_interrupted"]


def listening_parser(description: str, port: int) -> argparse.ArgumentParser:
    """A parser with the address to listen on; ``port`` is the default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument(
        "--port-end", type=int, default=9199, help="the end of the range that is searched for a free port"
    )
    return parser


def host_and_port(text: str) -> tuple[str, int]:
    """The address that ``host:port`` says.

    >>> host_and_port("127.0.0.1:9190")
    ('127.0.0.1', 9190)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"expected host:port, not {text!r}")
    return host, int(port)


def run_until_interrupted(stop: Callable[[], object]) -> None:
    """Wait for Ctrl-C, then call ``stop``."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        stop()
