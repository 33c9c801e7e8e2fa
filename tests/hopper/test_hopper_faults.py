"""Faults put into lowered kernels: a wait, a fence, a commit taken away, too many registers; each is found and named."""

from __future__ import annotations

import numpy as np
import pytest
from test_hopper_tiles import SMALL, matrices, product, scheduled, values

from relaxish.backend.emulator import AsyncHazardError, DeadlockError, RegisterCountError
from relaxish.dlight.gpu.matmul_hopper import HopperConfig
from relaxish.ir.functor import Mutator
from relaxish.ir.op import Op
from relaxish.ir.prim import Call, IntImm
from relaxish.target import Target
from relaxish.testing import emulate_cuda
from relaxish.tir import Evaluate, SeqStmt
from relaxish.tir.transform.hopper.lower import lower_tiles

TARGET = Target("nvidia/nvidia-h100", host="llvm")


class _Edit(Mutator):
    """Replaces instructions of a name, those of some turns or all, by what ``change`` makes of their arguments."""

    def __init__(self, name, change, turns=None):
        self.name = "tir." + name
        self.change = change
        self.turns = turns
        self.seen = 0

    def visit_Evaluate(self, stmt):
        if getattr(getattr(stmt.value, "op", None), "name", "") != self.name:
            return stmt
        self.seen += 1
        if self.turns is not None and self.seen - 1 not in self.turns:
            return stmt
        return self.change(stmt)


def edited(func, name, change=lambda stmt: Evaluate(IntImm("int32", 0)), turns=None):
    """The function without some instructions, or with others."""
    edit = _Edit(name, change, turns)
    body = edit.visit(func.body)
    assert edit.seen > 0 and body is not func.body, f"no {name} to edit"
    return func.with_body(body)


def kernel(shape, config, **options):
    return lower_tiles(scheduled(product(*shape, **options), config))


def run(func):
    found = values(func)
    emulate_cuda(func, *found, target=TARGET, check=True)
    return found


def fails(func, error, words, statement, buffer=None):
    """The fault is found; the error says so, names the kernel, the statement and the buffer."""
    with pytest.raises(error, match=words) as caught:
        run(func)
    found = caught.value
    assert found.kernel == "main_kernel" and found.block is not None and found.thread is not None
    assert statement in found.statement + found.other_statement
    if buffer is not None:
        assert found.buffer == buffer
    return found


# Two tiles a block, written back through shared memory.
TURNS = HopperConfig(rows=64, columns=64, stages=2, warpgroups=1, persistent=2)
BULK = kernel((256, 128, 128), TURNS, tail="cast")
# Operands copied by threads.
THREADED = kernel((100, 77, 131), SMALL, tail="bias")


def test_as_lowered_they_are_right():
    for func, options in ((BULK, {}), (THREADED, {})):
        *inputs, output = run(func)
        wanted = matrices(**options)(*[x.astype("float64") for x in inputs]).astype(output.dtype)
        np.testing.assert_array_equal(wanted, output)


# -- products in flight ------------------------------------------------------------------------------------------------


def test_results_are_read_before_the_last_products_are_waited_for():
    # Of the waits in a kernel the last is the one before the results are written back.
    found = fails(
        edited(BULK, "ptx_wgmma_wait", turns=[1]),
        AsyncHazardError,
        "has not been waited for",
        "ptx_wgmma_ss",
        "results",
    )
    assert "results[" in found.statement and found.index is not None


def test_products_are_in_no_group():
    fails(edited(BULK, "ptx_wgmma_commit"), AsyncHazardError, r"closed \(commit\)", "ptx_wgmma_ss", "ring")
    short = kernel((64, 64, 64), HopperConfig(rows=64, columns=64, stages=2, warpgroups=1), tail="cast")
    fails(edited(short, "ptx_wgmma_commit"), AsyncHazardError, r"closed \(commit\)", "ptx_wgmma_ss", "results")


def test_operands_are_fetched_anew_while_products_read_them():
    """Without the wait in the loop a stage is released as soon as the next product is issued."""
    fails(
        edited(BULK, "ptx_wgmma_wait", turns=[0]), AsyncHazardError, "written while a product may still read", "ptx_wgmma_ss",
        "ring",
    )  # fmt: skip


def test_too_few_products_are_waited_for():
    def two(stmt):
        return Evaluate(Call(stmt.value.dtype, stmt.value.op, [IntImm("int32", 2)]))

    fails(
        edited(BULK, "ptx_wgmma_wait", two, turns=[0]),
        AsyncHazardError,
        "a product may still read",
        "ptx_tma_load",
        "ring",
    )


def test_first_product_has_no_fence():
    found = fails(
        edited(BULK, "ptx_wgmma_fence"), AsyncHazardError, "wgmma.fence before it for results", "ptx_wgmma_ss"
    )
    assert "there has been none" in str(found)


def test_results_of_the_last_tile_are_used_again_without_fence():
    """A fence before the first step of a block alone: what the write-back read is not in order with the next products."""

    class Hoist(Mutator):
        def visit_For(self, loop):
            if loop.loop_var.name != "turn" or "ptx_wgmma_ss" not in str(loop):
                return self.default_visit(loop)
            bare = _Edit("ptx_wgmma_fence", lambda stmt: Evaluate(IntImm("int32", 0))).visit(loop)
            return SeqStmt([Evaluate(Call("", Op.get("tir.ptx_wgmma_fence"), [])), bare])

    found = fails(BULK.with_body(Hoist().visit(BULK.body)), AsyncHazardError, "used otherwise since", "ptx_wgmma_ss")
    assert "results" in found.other_statement


# -- bulk stores -------------------------------------------------------------------------------------------------------


def test_write_back_of_an_odd_number_of_shared_tiles():
    """One shared tile for each result: the next result begins with the one that the last ended with."""
    fails(
        edited(BULK, "ptx_tma_store_wait", turns=[0]), AsyncHazardError, "while a bulk store may still read", "ptx_tma_store",
        "ring",
    )  # fmt: skip


def test_shared_tiles_are_filled_before_they_are_sent():
    config = HopperConfig(rows=64, columns=256, stages=2, warpgroups=1)
    func = kernel((64, 256, 64), config, tail="cast")
    run(func)
    fails(
        edited(func, "ptx_tma_store_wait", turns=[0]),
        AsyncHazardError,
        "a bulk store may still read",
        "ptx_tma_store",
        "ring",
    )


def test_stores_are_in_no_group():
    found = fails(edited(BULK, "ptx_tma_store_commit"), AsyncHazardError, "bulk store", "ptx_tma_store")
    assert found.buffer == "ring"
    one = kernel((64, 64, 64), HopperConfig(rows=64, columns=64, stages=2, warpgroups=1), tail="cast")
    fails(
        edited(one, "ptx_tma_store_commit"),
        AsyncHazardError,
        r"ends while a bulk store .* closed \(commit\)",
        "ptx_tma_store",
    )


def test_block_ends_before_its_results_have_left():
    one = kernel((64, 64, 64), HopperConfig(rows=64, columns=64, stages=2, warpgroups=1), tail="cast")
    run(one)
    fails(edited(one, "ptx_tma_store_wait"), AsyncHazardError, "ends while a bulk store", "ptx_tma_store")


def test_stores_without_proxy_fence():
    # The first fence is the one after the barriers are made.
    fails(
        edited(BULK, "ptx_fence_proxy_async", turns=[1]),
        AsyncHazardError,
        r"before a fence.proxy.async",
        "ptx_tma_store",
        "ring",
    )


def test_operands_of_threads_without_proxy_fence():
    fails(
        edited(THREADED, "ptx_fence_proxy_async", turns=[1]), AsyncHazardError, r"before a fence.proxy.async", "ptx_wgmma_ss",
        "ring",
    )  # fmt: skip


# -- registers ---------------------------------------------------------------------------------------------------------


def counts(func, decrease, increase):
    """With other numbers of registers for the producer and the consumers."""

    def change(stmt):
        count, up = stmt.value.args
        return Evaluate(
            Call(stmt.value.dtype, stmt.value.op, [IntImm("int32", increase if up.value else decrease), up])
        )

    return edited(func, "ptx_setmaxnreg", change)


@pytest.mark.parametrize("groups, right, wrong", [(2, (72, 216), (80, 216)), (3, (56, 152), (56, 160))])
def test_registers_are_oversubscribed(groups, right, wrong):
    """80 + 2 * 216 registers are more than the 3 * 168 that a block is launched with: the last warpgroup waits for ever."""
    func = kernel((191, 63, 63), HopperConfig(rows=64 * groups, columns=64, stages=2, warpgroups=groups), tail="bias")
    run(counts(func, *right))
    found = fails(
        counts(func, *wrong), DeadlockError, r"warpgroup \d waits for registers: it has \d+ a thread", "ptx_setmaxnreg"
    )
    assert found.thread[0] >= 128


@pytest.mark.parametrize("decrease, increase", [(70, 216), (16, 216), (72, 264), (176, 216), (72, 160)])
def test_numbers_of_registers_that_there_are_not(decrease, increase):
    func = kernel((191, 63, 63), HopperConfig(rows=128, columns=64, stages=2, warpgroups=2), tail="bias")
    fails(
        counts(func, decrease, increase), RegisterCountError, "has 168 registers a thread and cannot", "ptx_setmaxnreg"
    )


def test_registers_without_launch_bounds():
    class Unbound(Mutator):
        def visit_AttrStmt(self, stmt):
            return self.visit(stmt.body) if stmt.attr_key == "min_blocks_per_sm" else self.default_visit(stmt)

    func = kernel((191, 63, 63), HopperConfig(rows=128, columns=64, stages=2, warpgroups=2), tail="bias")
    fails(func.with_body(Unbound().visit(func.body)), RegisterCountError, "launch bounds", "ptx_setmaxnreg")
