"""Clusters along either side: blocks one below the other share columns, blocks side by side share rows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_hopper_emulation import TARGET, check
from test_hopper_tiles import convolution, im2col, matrices, product, scheduled, values

from relaxish import tir
from relaxish.backend.emulator import DataRaceError
from relaxish.dlight.gpu import MatmulHopper
from relaxish.carver.warpgroups import HopperConfig
from relaxish.support.errors import RelaxishError
from relaxish.testing import emulate_cuda
from relaxish.tir.stmt import Evaluate, IfThenElse
from relaxish.tir.transform.base import StmtExprMutator
from relaxish.tir.transform.hopper.tiles import HopperError
from relaxish.tir.transform.hopper.lower import bulk_operands, lower_tiles


def tiles(down, across, **options):
    usual = {"rows": 64, "columns": 32, "stages": 3, "warpgroups": 1, "persistent": 2 * down * across}
    return HopperConfig(cluster=down, cluster_columns=across, **{**usual, **options})


def masks(func):
    """The blocks that bulk loads send to, as the program says it: A's, then B's."""
    text = lower_tiles(func).script()
    found = re.findall(r"T\.ptx_tma_load\(.*?, (\w)_map, T\.address_of\(barriers\[.*?\]\), (.*?), ", text)
    return {name: mask for name, mask in found}, text


@pytest.mark.parametrize(
    "shape, options, config",
    [
        ((256, 128, 192), {"tail": "cast"}, tiles(1, 2)),
        ((256, 128, 192), {"tail": "bias"}, tiles(2, 2)),
        ((256, 128, 192), {"trans_a": True, "trans_b": False}, tiles(2, 2, persistent=0)),
        ((256, 256, 192), {"tail": "cast"}, tiles(1, 4, columns=64, stages=2)),
        ((256, 96, 256), {}, tiles(4, 1)),
        ((256, 128, 256), {"in_dtype": "float8_e4m3fn", "tail": "cast"}, tiles(4, 2, stages=2)),
        ((256, 128, 128), {"in_dtype": "int8", "out_dtype": "int32"}, tiles(2, 4, stages=2)),
        ((200, 120, 136), {"tail": "bias"}, tiles(2, 2)),  # edges of the result within a cluster
        ((256, 128, 128), {"batch": 2, "tail": "cast"}, tiles(2, 2, group=1)),
        ((256, 256, 128), {"tail": "bias"}, tiles(2, 2, rows=128, columns=64, warpgroups=2, epilogue=1)),
        ((384, 96, 128), {"tail": "cast"}, tiles(2, 1, rows=192, columns=96, warpgroups=3)),
    ],
)
def test_no_races(shape, options, config):
    func = product(*shape, **options)
    check(func, scheduled(func, config), matrices(**options))


def test_who_sends_to_whom():
    """Of 2 x 2 blocks, numbered downwards first, 0 and 2 share rows, 0 and 1 share columns."""
    func = product(256, 128, 192)
    assert masks(scheduled(func, tiles(1, 2)))[0] == {"A": "3", "B": "0"}
    assert masks(scheduled(func, tiles(2, 1)))[0] == {"A": "0", "B": "3"}
    _, text = masks(scheduled(func, tiles(2, 2)))
    found = set(re.findall(r"T\.shift_left\(\d, .*?\)", text))
    assert found == {"T.shift_left(5, block_x % 4 % 2)", "T.shift_left(3, block_x % 4 // 2 * 2)"}
    # Three of four blocks read what a block sends, with four warps each.
    assert re.search(r"ptx_mbarrier_init\(T\.address_of\(barriers\[.*?\]\), 12\)", text)


@pytest.mark.parametrize(
    "shape, config, wanted",
    [
        ((192, 128, 128), tiles(2, 2), {"A": "3", "B": "0"}),  # three rows of tiles
        ((256, 96, 128), tiles(2, 2), {"A": "0", "B": "3"}),
        ((192, 96, 128), tiles(2, 2), {"A": "0", "B": "0"}),
    ],
)
def test_sides_that_are_no_whole_clusters(shape, config, wanted):
    func = product(*shape, tail="cast")
    assert masks(scheduled(func, config))[0] == wanted
    check(func, scheduled(func, config), matrices())


def test_an_operand_by_threads_is_not_shared():
    """Rows of an image are copied by each block for itself; the weights of its columns are shared all the same."""
    case = (1, 16, 32, 64, 3, 1, 1)
    func = convolution(*case)
    made = scheduled(func, tiles(2, 2))
    assert masks(made)[0] == {"B": "3"}
    check(func, made, im2col(16, 3, 1, 1))


def test_large_clusters_are_refused():
    with pytest.raises(HopperError, match="4 x 4 blocks"):
        lower_tiles(scheduled(product(256, 128, 128), tiles(4, 4)))


class _FewerReaders(StmtExprMutator):
    """A program whose warps tell their own block only that they have read a tile, which then expects no others."""

    def __init__(self, keep):
        self.keep = keep

    def visit_IfThenElse(self, stmt):
        call = getattr(getattr(stmt, "then_case", None), "value", None)
        if getattr(getattr(call, "op", None), "name", "") == "tir.ptx_mbarrier_arrive" and len(call.args) == 2:
            return IfThenElse(self.keep(call.args[1]), stmt.then_case)
        return self.default_visit(stmt)

    def visit_Evaluate(self, stmt):
        if getattr(getattr(stmt.value, "op", None), "name", "") == "tir.ptx_mbarrier_init":
            barrier, count = stmt.value.args
            if int(count) == 12:
                return Evaluate(tir.Call(stmt.value.dtype, stmt.value.op, [barrier, tir.IntImm("int32", 8)]))
        return self.default_visit(stmt)


def test_every_reader_is_waited_for():
    """Where only those who share columns are waited for, a tile of rows is filled anew under a reader's eyes."""
    func = product(256, 128, 1024)
    lowered = lower_tiles(scheduled(func, tiles(2, 2, stages=2)))
    emulate_cuda(lowered, *values(func), target=TARGET, check=True)
    bx = None

    def find(node):
        nonlocal bx
        if isinstance(node, tir.AttrStmt) and getattr(node.node, "thread_tag", "") == "blockIdx.x":
            bx = node.node.var

    tir.stmt_functor.post_order_visit(lowered.body, find)
    keep = _FewerReaders(lambda lane: tir.all(lane < 4, (lane // 2).equal(bx % 4 // 2)))
    with pytest.raises((DataRaceError, RelaxishError)):
        emulate_cuda(lowered.with_body(keep.visit(lowered.body)), *values(func), target=TARGET, check=True)


def test_random_clusters():
    rng = np.random.default_rng(4)
    for _ in range(4):
        down, across = (int(x) for x in rng.choice([1, 2, 4], 2))
        if down * across > 8:
            across = 2
        columns, stages = int(rng.choice([32, 64, 96])), int(rng.integers(2, 5))
        sides = (64 * down * int(rng.integers(1, 3)) - int(rng.integers(0, 2)) * 8,
                 columns * across * int(rng.integers(1, 3)) - int(rng.integers(0, 2)) * 8, 64 * int(rng.integers(1, 5)))  # fmt: skip
        options = {"tail": str(rng.choice(["cast", "bias"])), "trans_b": bool(rng.integers(0, 2))}
        config = tiles(down, across, columns=columns, stages=stages, persistent=int(rng.choice([0, 1, 2])) * down * across,
                       group=int(rng.choice([1, 2, 4])), epilogue=int(rng.integers(0, 2)))  # fmt: skip
        func = product(*sides, **options)
        check(func, scheduled(func, config), matrices(**options))


def test_defaults_know_what_can_be_shared():
    """An image's rows come by threads: no default counts on sharing them."""
    made = MatmulHopper().apply(convolution(8, 28, 128, 128, 3, 1, 1), TARGET, False).mod["main"]
    assert bulk_operands(made) == (False, True)
    assert re.search(r'"hopper.cluster_columns": 1\b', made.script())
    assert bulk_operands(scheduled(product(256, 256, 128), tiles(1, 1))) == (True, True)
