"""Files that are replaced, not overwritten: whoever has the old one open or mapped keeps it whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .errors import RelaxishError

__all__ = ["replace_file"]


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` where ``path`` is, once all of it is written. Raises RelaxishError if it cannot be."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as err:
        temporary.unlink(missing_ok=True)
        raise RelaxishError(f"cannot write {path}: {err.strerror}") from None
