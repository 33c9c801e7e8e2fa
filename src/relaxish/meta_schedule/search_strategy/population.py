"""Placeholder until the vectorised pool below is in."""
from __future__ import annotations
from typing import Any
class VectorPool:
    """None yet."""
    examined = 0
    def __init__(self, *args: Any) -> None: ...
    def usable(self) -> bool:
        """No."""
        return False
    def search(self, *args: Any) -> Any:
        """Nothing."""
