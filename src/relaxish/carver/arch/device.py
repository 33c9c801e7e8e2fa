"""The description of a device that tile policies ask: capacities, widths of transactions, ratios of bandwidths."""

from __future__ import annotations

from typing import Any

from ...ir.errors import CheckValueError
from ...support.sequences import of_kind
from ...target import Target

__all__ = ["TensorInstruction", "TileDevice", "target_of"]


class TensorInstruction:
    """A matrix instruction and the rows and columns of its result."""

    def __init__(self, name: str, shape: list[int]) -> None:
        self.name = name
        self.shape = shape

    def __repr__(self) -> str:
        return f"TensorInstruction({self.name!r}, {self.shape})"


class TileDevice:
    """Description of a device for policies; it is made from a target alone, the device need not be there.

    ``reg_cap``: 32-bit registers of a processor; ``smem_cap``: bytes of shared memory of a block; ``max_smem_usage``:
    bytes that the blocks of a processor have together; ``compute_max_core``: processors; ``warp_size``: threads that
    run in lockstep; ``sm_partition``: parts of a processor that issue instructions; ``transaction_size``: bytes of the
    smallest efficient [write, read]; ``bandwidth``: of [global, shared] memory, only their ratio matters;
    ``platform``, ``compute_capability``, ``l2_cache_size_bytes``.
    """

    reg_cap: int = 0
    smem_cap: int = 0
    max_smem_usage: int = 0
    compute_max_core: int = 0
    warp_size: int = 0
    sm_partition: int = 0
    platform: str = "unknown"
    compute_capability: str = "unknown"
    l2_cache_size_bytes: int = 0

    def __init__(self, target: Target | str | dict[str, Any]) -> None:
        self.target = target_of(target)
        self.name = self.target.tag or self.target.kind.name
        self.transaction_size: list[int] = [0, 0]
        self.bandwidth: list[int] = [0, 0]
        self.available_tensor_instructions: tuple[TensorInstruction, ...] | None = None

    def _instructions(self) -> tuple[TensorInstruction, ...]:
        return ()

    def get_avaliable_tensorintrin_shapes(self) -> list[list[int]]:
        """Rows and columns of each matrix instruction that tiles may be made of (spelled as in the field)."""
        self.available_tensor_instructions = self._instructions()
        return [list(each.shape) for each in self.available_tensor_instructions]

    def _require(self, *kinds: str) -> None:
        """Raises CheckValueError for a target of another kind."""
        if self.target.kind.name not in kinds:
            raise CheckValueError(
                f"{type(self).__name__} describes targets of kind {' or '.join(kinds)}, but got {str(self.target)!r}; "
                "use carver.arch.get_arch(target), which picks the class by the target's kind"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target})"


def target_of(target: Target | str | dict[str, Any]) -> Target:
    """The target of a device description: of a composition, its first device that is no CPU."""
    made = Target(target)
    devices = getattr(made, "devices", None) or made.attrs.get("devices") or ()
    leaves = list(devices.values() if hasattr(devices, "values") else devices)
    for leaf in of_kind(leaves, Target):
        if leaf.get_target_device_type() != 1:
            return target_of(leaf)
    return target_of(leaves[0]) if leaves and isinstance(leaves[0], Target) else made
