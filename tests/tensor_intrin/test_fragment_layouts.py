"""The tables of register layouts: every record is whole, and what else says where elements are agrees with it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish.tir.tensor_intrin.mma_fragments import (
    MMA, MMA_SPARSE, first_result, warp_result, warpgroup_result,
)  # fmt: skip
from relaxish.tir.tensor_intrin.mma_layouts import (
    mma_32x8_to_shared_16x16_layout, shared_16x16_to_ldmatrix_32x8_layout,
)  # fmt: skip
from relaxish.tir.tensor_intrin.wgmma import result_place
from relaxish.tir.transform.tiles.layout import accumulator, operand_a

# Positions of lanes are written down by the tables, by layouts of whole tiles in digits, and in the public forms of the field.
HOMES = {
    "tir/tensor_intrin/mma_fragments.py", "tir/tensor_intrin/mma_layouts.py",
}  # fmt: skip


def places(position, count, lanes=32):
    """Where all elements are, by lane and number."""
    return np.array([[position(lane, i) for i in range(count)] for lane in range(lanes)])


def covers(found, rows, columns):
    """Whether each place of a matrix is there once."""
    return sorted(map(tuple, found.reshape(-1, 2).tolist())) == [(r, c) for r in range(rows) for c in range(columns)]


@pytest.mark.parametrize("name, bits", MMA)
def test_lanes_hold_every_element_once(name, bits):
    shape = MMA[name, bits]
    assert name == f"m{shape.m}n{shape.n}k{shape.k}"
    assert covers(places(shape.a, shape.a_count), shape.m, shape.k)
    assert covers(places(shape.b, shape.b_count), shape.k, shape.n)
    assert covers(places(shape.c, shape.c_count), shape.m, shape.n)


@pytest.mark.parametrize("name, bits", MMA_SPARSE)
def test_sparse_shapes_hold_half_of_the_left_operand(name, bits):
    shape = MMA_SPARSE[name, bits]
    held = shape.held
    assert name == f"m{held.m}n{held.n}k{2 * held.k}" and shape.b_count * 32 == 2 * held.k * held.n
    assert covers(places(held.a, held.a_count), held.m, held.k)


@pytest.mark.parametrize("name, bits", MMA)
def test_tiles_are_laid_out_as_the_instruction_has_them(name, bits):
    shape = MMA[name, bits]
    for layout, found in (
        (accumulator(shape.m, shape.n, 1, 1, shape.m), places(shape.c, shape.c_count)),
        (operand_a(shape.m, shape.k, 1, 1, shape.m, shape.run), places(shape.a, shape.a_count)),
    ):
        if layout.registers != found.shape[1]:  # one run is all that there is along k
            assert shape.k == 4 * shape.run and layout.registers > found.shape[1]
            continue
        row, column = found[..., 0], found[..., 1]
        np.testing.assert_array_equal(layout.owners()[row, column], np.arange(32)[:, None].repeat(found.shape[1], 1))
        np.testing.assert_array_equal(layout.places()[row, column], np.arange(found.shape[1])[None].repeat(32, 0))


def test_the_field_s_layouts_are_those_of_the_tables():
    shape = MMA["m16n8k16", 16]
    for lane in range(32):
        for i in range(8):
            row, column = mma_32x8_to_shared_16x16_layout(lane, i)
            assert shared_16x16_to_ldmatrix_32x8_layout(row, column) == (lane, i)
            part_row, part_column = shape.c(lane, i % 4)
            assert (row, column) == (part_row, part_column + i // 4 * 8)


@pytest.mark.parametrize("columns", [8, 64, 256])
def test_warpgroups_hold_every_result_once(columns):
    found = places(warpgroup_result, columns // 2, 128)
    assert covers(found, 64, columns)
    for thread in range(128):
        for i in range(columns // 2):
            assert result_place(*warpgroup_result(thread, i)) == (thread, i)
            row, column = warp_result(thread % 32, i)
            assert warpgroup_result(thread, i) == (thread // 32 * 16 + row, column)
        of_warp, of_lane, column = first_result(thread)
        assert warpgroup_result(thread, 0) == (of_warp + of_lane, column)


def test_no_other_file_says_where_lanes_hold_elements():
    """``lane % 4 * 2``, the column of a pair, stands for them all."""
    source = Path(relaxish.__file__).parent
    pair = re.compile(r"\b(lane|thread|tx)\b\)? % 4\)? \* 2 ?\+")
    found = {p.relative_to(source).as_posix() for p in source.rglob("*.py") if pair.search(p.read_text())}
    assert found <= HOMES and "tir/tensor_intrin/mma_fragments.py" in found
