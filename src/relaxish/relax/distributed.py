"""Tensors spread over a mesh of devices: the mesh, placements, and their struct info.

>>> mesh = DeviceMesh((2, 2), Range(0, 4))
>>> placement = Placement.from_text("S[0], R")
>>> str(placement)
'S[0], R'
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError
from ..ir.expr import Range
from ..ir.global_info import GlobalInfo
from ..ir.node import Node, field
from ..ir.source import Span
from ..ir.structural import structural_equal
from ..ir.types import Type
from ..support.entry_points import lazy_package
from .scalars import const_int
from .struct_info import BaseCheckResult, StructInfo, TensorStructInfo, as_struct_info
from .ty import ObjectType

if TYPE_CHECKING:
    from ..arith import Analyzer

__all__ = ["DTensorStructInfo", "DTensorType", "DeviceMesh", "Placement", "PlacementSpec", "device_mesh"]

#: ``relaxish.relax.distributed.transform`` is found through the table of public names.
__path__: list[str] = []


__getattr__, __dir__ = lazy_package(globals())


class DeviceMesh(GlobalInfo):
    """Devices in a grid of ``shape``, by their numbers: a sequence, or a range for consecutive ones.

    Raises ValueError if there are not as many devices as places.
    """

    shape: tuple[int, ...] = field(role="attr")
    device_ids: tuple[int, ...] = field(role="attr")
    device_range: Any = field(role="ignore")

    def __init__(self, shape: Sequence[int], device_ids: Sequence[int] | Range) -> None:
        self.shape = tuple(int(s) for s in shape)
        self.device_range = device_ids if isinstance(device_ids, Range) else None
        if isinstance(device_ids, Range):
            first, count = const_int(device_ids.min) or 0, const_int(device_ids.extent) or 0
            device_ids = range(first, first + count)
        self.device_ids = tuple(int(d) for d in device_ids)
        if math.prod(self.shape) != len(self.device_ids):
            raise CheckValueError(
                "The number of elements in device ids should be equal to the number of elements in the device mesh, "
                f"but the mesh has {math.prod(self.shape)} places and {len(self.device_ids)} devices are given"
            )

    @classmethod
    def _make(cls, **fields: Any) -> DeviceMesh:
        return cls(fields["shape"], fields["device_ids"])


def device_mesh(shape: Sequence[int], device_ids: Sequence[int] | Range) -> DeviceMesh:
    """A :class:`DeviceMesh`."""
    return DeviceMesh(shape, device_ids)


class PlacementSpec(Node):
    """Placement of a tensor along one axis of the mesh: split along ``axis`` (``S[axis]``) or copied (``R``)."""

    axis: int = field(role="attr")
    kind: str = field(role="attr")

    def __init__(self, axis: int, kind: str) -> None:
        self.axis = int(axis)
        self.kind = kind

    @staticmethod
    def sharding(axis: int) -> PlacementSpec:
        """Split along ``axis`` of the tensor."""
        return PlacementSpec(axis, "sharding")

    @staticmethod
    def replica() -> PlacementSpec:
        """The whole tensor everywhere."""
        return PlacementSpec(-1, "replica")

    def __str__(self) -> str:
        return f"S[{self.axis}]" if self.kind == "sharding" else "R"


class Placement(Node):
    """Placement of a tensor along each axis of the mesh."""

    dim_specs: tuple[PlacementSpec, ...] = field(role="attr")

    def __init__(self, dim_specs: Sequence[PlacementSpec]) -> None:
        self.dim_specs = tuple(dim_specs)

    @staticmethod
    def from_text(text: str) -> Placement:
        """A placement from text such as ``"S[0], R"``. Raises ValueError for other text."""
        specs = []
        for part in re.findall(r"S\s*\[\s*[0-9]+\s*\]|[^\s,]", text):
            if part == "R":
                specs.append(PlacementSpec.replica())
            elif len(part) > 1:
                specs.append(PlacementSpec.sharding(int(part[part.index("[") + 1 : -1])))
            else:
                raise CheckValueError(f"Invalid placement {text!r}: write S[axis] or R for each axis of the mesh")
        return Placement(specs)

    def __str__(self) -> str:
        return ", ".join(map(str, self.dim_specs))


class DTensorType(Type):
    """The legacy type of a tensor spread over devices: its rank (-1: unknown) and dtype."""

    ndim: int = field(role="attr", default=-1)
    dtype: str = field(role="attr", default="float32", conv=str)


class DTensorStructInfo(StructInfo):
    """A tensor, the mesh it is spread over, and how.

    Raises ValueError if the placement does not fit the mesh or the tensor.
    """

    tensor_sinfo: TensorStructInfo = field(role="child")
    device_mesh: DeviceMesh = field(role="child")
    placement: Placement = field(role="child")
    span: Any = field(role="ignore", default=None)

    def __init__(
        self,
        tensor_sinfo: TensorStructInfo,
        device_mesh: DeviceMesh | None = None,
        placement: Placement | str = "",
        span: Span | None = None,
    ) -> None:
        tensor_sinfo = as_struct_info(tensor_sinfo)  # type: ignore[assignment]
        device_mesh = DeviceMesh((), Range(0, 1)) if device_mesh is None else device_mesh
        placement = Placement.from_text(placement) if isinstance(placement, str) else placement
        if len(placement.dim_specs) != len(device_mesh.shape):
            raise ValueError("The device mesh and placement must have the same dimension size")
        for spec in placement.dim_specs:
            if spec.kind == "sharding" and spec.axis >= tensor_sinfo.ndim:
                raise ValueError("Sharding dimension should be smaller than tensor ndim")
        self.tensor_sinfo = tensor_sinfo
        self.device_mesh = device_mesh
        self.placement = placement
        self.span = span

    def _check(self, derived: DTensorStructInfo, analyzer: Analyzer | None) -> BaseCheckResult:
        # Those of another mesh or placement may still overlap.
        same = structural_equal(self.device_mesh, derived.device_mesh) and structural_equal(
            self.placement, derived.placement
        )
        overlap = BaseCheckResult.PASS if same else BaseCheckResult.FAIL_L1
        return min(self.tensor_sinfo.check(derived.tensor_sinfo, analyzer), overlap)

    @property
    def static_type(self) -> Type:
        """The type of any object."""
        return ObjectType()

    @property
    def dtype(self) -> str:
        """The tensor's dtype."""
        return self.tensor_sinfo.dtype

    @property
    def ndim(self) -> int:
        """The tensor's rank."""
        return self.tensor_sinfo.ndim
