"""Meshes, placements, struct infos of distributed tensors."""

from __future__ import annotations

import pytest

from relaxish import relax
from relaxish.ir import Range, structural_equal
from relaxish.relax.distributed import DeviceMesh, DTensorStructInfo, Placement, PlacementSpec, device_mesh

INFO = relax.TensorStructInfo((4, 8), "float32")


def test_mesh():
    assert structural_equal(DeviceMesh((2, 2), Range(0, 4)), device_mesh((2, 2), [0, 1, 2, 3]))
    assert not structural_equal(DeviceMesh((2, 2), Range(0, 4)), DeviceMesh((4,), Range(0, 4)))
    with pytest.raises(ValueError, match="number of elements"):
        DeviceMesh((2, 2), [0, 1])


def test_placement():
    placement = Placement.from_text("S[1], R")
    assert [s.kind for s in placement.dim_specs] == ["sharding", "replica"] and placement.dim_specs[0].axis == 1
    assert structural_equal(placement, Placement([PlacementSpec.sharding(1), PlacementSpec.replica()]))
    assert str(placement) == "S[1], R"
    with pytest.raises(ValueError):
        Placement.from_text("X")


def test_struct_info():
    mesh = DeviceMesh((2,), Range(0, 2))
    info = DTensorStructInfo(INFO, mesh, Placement.from_text("S[0]"))
    assert info.dtype == "float32" and info.ndim == 2
    assert structural_equal(info, DTensorStructInfo(INFO, mesh, Placement.from_text("S[0]")))
    assert not structural_equal(info, DTensorStructInfo(INFO, mesh, Placement.from_text("R")))
    with pytest.raises(ValueError):
        DTensorStructInfo(INFO, mesh, Placement.from_text("S[0], R"))
    with pytest.raises(ValueError):
        DTensorStructInfo(INFO, mesh, Placement.from_text("S[2]"))
