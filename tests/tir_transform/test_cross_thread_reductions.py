"""LowerCrossThreadReduction: which reductions are known, and what writes their result."""

import pytest

import relaxish
from relaxish import tir
from relaxish.ir import IRModule
from relaxish.script import tir as T


def smallest(position_first, value_first_in_init):
    """The smallest value of each row and where it is; the order of init and of the update may differ."""

    @T.prim_func(private=True)
    def func(
        index: T.Buffer((8, 128), "int32"),
        value: T.Buffer((8, 128), "float32"),
        where: T.Buffer((8,), "int32"),
        best: T.Buffer((8,), "float32"),
    ):
        for i, ko in T.grid(8, 4):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("smallest"):
                    vi = T.axis.spatial(8, i)
                    vk = T.axis.reduce(128, ko * 32 + ki)
                    with T.init():
                        if value_first_in_init:
                            best[vi] = T.max_value("float32")
                            where[vi] = -1
                        else:
                            where[vi] = -1
                            best[vi] = T.max_value("float32")
                    a: T.int32 = T.Select(best[vi] <= value[vi, vk], where[vi], index[vi, vk])
                    b: T.float32 = T.Select(best[vi] <= value[vi, vk], best[vi], value[vi, vk])
                    if position_first:
                        where[vi] = a
                        best[vi] = b
                    else:
                        best[vi] = b
                        where[vi] = a

    return func


def static(func):
    """Branches on constants of the test are gone."""
    return tir.transform.Simplify()(IRModule({"main": func}))


def lowered(mod):
    return tir.transform.LowerCrossThreadReduction()(mod)["main"].script()


@pytest.mark.parametrize(("position_first", "value_first_in_init"), [(True, False), (True, True), (False, False)])
def test_positions_and_values_are_told_apart(position_first, value_first_in_init):
    text = lowered(static(smallest(position_first, value_first_in_init)))
    assert "T.tvm_thread_allreduce(T.uint32(2), in_thread_where[0], in_thread_best[0], T.bool(True)" in text
    assert "where[vi] = cross_thread_where[0]" in text and "best[vi] = cross_thread_best[0]" in text


def test_the_writing_thread_comes_first():
    @T.prim_func(private=True)
    def func(A: T.Buffer((120, 64), "float32"), B: T.Buffer((120,), "float32")):
        for io in T.thread_binding(2, thread="blockIdx.x"):
            for ii in range(64):
                for k in T.thread_binding(64, thread="threadIdx.x"):
                    with T.block("B"):
                        vi = T.axis.spatial(120, io * 64 + ii)
                        vk = T.axis.reduce(64, k)
                        T.where(io * 64 + ii < 120)
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk]

    assert "T.where(k == 0 and io * 64 + ii < 120)" in lowered(IRModule({"main": func}))


def test_the_reading_thread_comes_first():
    """What reads a result that every thread has is done by the first of them."""

    @T.prim_func(private=True)
    def func(a: T.Buffer((64, 256), "float32"), b: T.Buffer((64,), "float32")):
        total = T.alloc_buffer((64,), scope="local")
        for j in T.thread_binding(2, thread="threadIdx.y"):
            for i in range(32):
                for k in T.thread_binding(256, thread="threadIdx.x"):
                    with T.block("sum"):
                        vi = T.axis.spatial(64, j * 32 + i)
                        vk = T.axis.reduce(256, k)
                        with T.init():
                            total[vi] = T.float32(0)
                        total[vi] = total[vi] + a[vi, vk]
                with T.block("add"):
                    vi = T.axis.spatial(64, j * 32 + i)
                    T.where(j * 32 + i < 63)
                    b[vi] = total[vi] + T.float32(1)

    assert "T.where(tx == 0 and j * 32 + i < 63)" in lowered(IRModule({"main": func}))


def test_blocks_of_threads_cannot_reduce_together():
    @T.prim_func(private=True)
    def func(A: T.Buffer((8, 128), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            for k in T.thread_binding(128, thread="blockIdx.x"):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]

    with pytest.raises(relaxish.TVMError, match="bound to blockIdx.x"):
        lowered(IRModule({"main": func}))
