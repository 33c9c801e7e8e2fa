"""Log channels: ``get_logger("meta_schedule")`` is ``logging.getLogger("relaxish.meta_schedule")``.

Nothing is printed unless the application configures logging, or ``RELAXISH_LOG`` names levels:
``RELAXISH_LOG=debug`` for all, ``RELAXISH_LOG=vm=debug,meta_schedule=info`` by channel.
"""

from __future__ import annotations

import logging
import sys

from . import config
from .errors import RelaxishError

_ROOT = "relaxish"
_configured = False


def _level(text: str) -> int:
    level = logging.getLevelName(text.strip().upper())
    if not isinstance(level, int):
        raise RelaxishError(f"RELAXISH_LOG: unknown level {text!r} (debug, info, warning, error)")
    return level


def _configure() -> None:
    global _configured
    if _configured:
        return
    _configured = True
    root = logging.getLogger(_ROOT)
    root.addHandler(logging.NullHandler())
    setting = config.LOG.value
    if not setting:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s", "%H:%M:%S"))
    root.addHandler(handler)
    for part in setting.split(","):
        channel, equals, level = part.rpartition("=")
        logger = logging.getLogger(f"{_ROOT}.{channel.strip()}") if equals else root
        logger.setLevel(_level(level))


def get_logger(channel: str) -> logging.Logger:
    """The logger of a channel, named after its folder."""
    _configure()
    return logging.getLogger(f"{_ROOT}.{channel}")
