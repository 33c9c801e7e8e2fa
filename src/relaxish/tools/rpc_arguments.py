"""Shared parts of the RPC commands: their arguments, and running until interrupted."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path

from ..runtime.rpc import RPCError

__all__ = ["add_token", "host_and_port", "listening_parser", "run_until_interrupted", "token_of"]


def listening_parser(description: str, port: int) -> argparse.ArgumentParser:
    """A parser with the address to listen on; ``port`` is the default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument(
        "--port-end", type=int, default=9199, help="the end of the range that is searched for a free port"
    )
    add_token(parser)
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine without a token: anybody can run code here"
    )
    return parser


def add_token(parser: argparse.ArgumentParser) -> None:
    """The argument that names the file of the shared secret (secrets do not belong on a command line)."""
    parser.add_argument(
        "--token-file", help="a file with the secret that both sides share; RELAXISH_RPC_TOKEN holds the secret itself"
    )


def token_of(args: argparse.Namespace) -> str | None:
    """The secret in the file that was named. Raises RPCError if it cannot be read."""
    if args.token_file is None:
        return None
    try:
        return Path(args.token_file).read_text().strip()
    except OSError as error:
        raise RPCError(f"cannot read {args.token_file}: {error.strerror}") from None


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
