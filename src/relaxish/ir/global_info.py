"""Module-level information that functions refer to: virtual devices and the like."""

from __future__ import annotations

from typing import Any

from ..support.entry_points import load
from .node import Node, field

__all__ = ["DummyGlobalInfo", "GlobalInfo", "VDevice"]

# ``target`` installs the conversion of target strings and dictionaries.
TARGET_FROM: dict[str, Any] = {}


class GlobalInfo(Node):
    """Base of module-level information."""

    def __eq__(self, other: object) -> bool:
        from .structural import structural_equal

        return isinstance(other, GlobalInfo) and structural_equal(self, other)

    def __hash__(self) -> int:
        from .structural import structural_hash

        return structural_hash(self)


class DummyGlobalInfo(GlobalInfo):
    """Carries nothing; for tests."""


class VDevice(GlobalInfo):
    """A virtual device: a target, an id, and the memory scope of what lives on it."""

    target: Any = field(role="attr")
    vdevice_id: int = field(role="attr")
    memory_scope: str = field(role="attr")

    def __init__(self, target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> None:
        if isinstance(target, (str, dict)):
            if "convert" not in TARGET_FROM:
                load("targets")
            convert = TARGET_FROM.get("convert")
            target = convert(target) if convert is not None else target
        self.target = target
        self.vdevice_id = vdevice_id
        self.memory_scope = memory_scope
