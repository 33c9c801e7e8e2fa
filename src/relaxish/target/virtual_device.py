"""``VirtualDevice``: where an expression is to be computed or stored, as far as planning has decided."""

from __future__ import annotations

from ..runtime.device import Device, device as device_by_name
from .target import Target


class VirtualDevice:
    """A device, the target that makes its code, and a memory scope; each may still be open (-1, -1, None, "").

    >>> VirtualDevice("cuda").device_type
    2
    """

    __slots__ = ("device_type", "memory_scope", "target", "virtual_device_id")

    def __init__(
        self, device: Device | str | None = None, target: Target | str | None = None, memory_scope: str = ""
    ) -> None:
        """Raise ValueError for a target that makes code of another type of device."""
        found = device_by_name(device) if isinstance(device, str) else device
        self.device_type: int = -1 if found is None else found.device_type
        self.virtual_device_id: int = -1 if found is None else found.device_id
        self.target: Target | None = None if target is None else Target(target)
        self.memory_scope = memory_scope
        made = None if self.target is None else self.target.get_target_device_type()
        if found is not None and made is not None and made != self.device_type:
            raise ValueError(f"the target {self.target} makes no code for {found}; leave one of the two out")

    def _fields(self) -> tuple[int, int, Target | None, str]:
        return self.device_type, self.virtual_device_id, self.target, self.memory_scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualDevice) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        kind, index, target, scope = self._fields()
        return f"VirtualDevice(device_type={kind}, virtual_device_id={index}, target={target}, memory_scope={scope!r})"
