"""``VirtualDevice``: where an expression is to be computed or stored, as far as planning has decided."""

from __future__ import annotations

from dataclasses import dataclass

from .target import Target


@dataclass(frozen=True)
class VirtualDevice:
    """A device type and number, the target that makes its code, and a memory scope; each may still be open."""

    device_type: int = -1
    virtual_device_id: int = -1
    target: Target | None = None
    memory_scope: str = ""
