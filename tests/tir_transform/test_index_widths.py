"""What depends on the width of an index keeps its value when the index gets another width."""

import numpy as np
import pytest

import relaxish
from relaxish import interp, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import from_source
from relaxish.script import tir as T


@T.prim_func
def zeros(C: T.Buffer((64,), "int32")):
    T.func_attr({"global_symbol": "main"})
    for i in range(T.int64(64)):
        C[i] = T.clz(i)


@T.prim_func
def zeros_narrow(C: T.Buffer((64,), "int32")):
    T.func_attr({"global_symbol": "main"})
    for i in range(64):
        C[i] = T.clz(i) - 32 + 64


@T.prim_func
def ones(C: T.Buffer((64,), "int64")):
    T.func_attr({"global_symbol": "main"})
    for i in range(T.int64(64)):
        C[i] = T.popcount(i - T.int64(5))


@T.prim_func
def foreign(C: T.Buffer((64,), "int64")):
    T.func_attr({"global_symbol": "main"})
    for i in range(T.int64(64)):
        C[i] = T.call_pure_extern("int64", "llabs", i - T.int64(9))


@pytest.mark.parametrize("narrow", [tir.transform.NarrowDataType(32), tir.transform.ForceNarrowIndexToInt32()])
def test_leading_zeros_are_those_of_the_wide_index(narrow):
    made = narrow(IRModule({"main": zeros}))["main"]
    assert_structural_equal(made, zeros_narrow)
    found = np.zeros(64, "int32")
    interp.run_prim_func(made, [found])
    np.testing.assert_array_equal(found, [64 - i.bit_length() for i in range(64)])


@pytest.mark.parametrize(
    ("func", "wanted"),
    [
        (zeros, [64 - i.bit_length() for i in range(64)]),
        (ones, [bin((i - 5) & (1 << 64) - 1).count("1") for i in range(64)]),
        (foreign, [abs(i - 9) for i in range(64)]),
    ],
)
def test_compiled_counts_and_foreign_calls(func, wanted):
    found = relaxish.nd.empty((64,), func.buffer_map[func.params[0]].dtype)
    relaxish.compile(func, target="llvm")(found)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_leading_zeros_are_counted_in_32_bits():
    assert [tir.clz(tir.Var("x", dtype)).dtype for dtype in ("int64", "uint32", "int32x4")] == [
        "int32", "int32", "int32x4",
    ]  # fmt: skip
    call = tir.call_intrin("int32", "tir.clz", tir.Var("x", "int64"))
    func = tir.PrimFunc([call.args[0]], tir.Evaluate(call))
    assert_structural_equal(from_source(func.script()), func)


def test_shapes_may_be_made_of_those_of_later_arguments():
    @T.prim_func
    def pairs(a: T.handle, b: T.handle):
        m = T.int64()
        A = T.match_buffer(a, (m * 2,))
        B = T.match_buffer(b, (m, 2))
        for i, j in T.grid(m, 2):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi * 2 + vj]

    assert_structural_equal(from_source(pairs.script()), pairs)
    renewed = tir.stmt_functor.renew_defs(pairs)
    assert_structural_equal(renewed, pairs)
    first, second = (renewed.buffer_map[p].shape[0] for p in renewed.params)
    assert first.a.same_as(second) and not second.same_as(pairs.buffer_map[pairs.params[1]].shape[0])
    a = np.random.default_rng(1).standard_normal(10).astype("float32")
    b = relaxish.nd.empty((5, 2))
    relaxish.compile(pairs, target="llvm")(relaxish.nd.array(a), b)
    np.testing.assert_array_equal(b.numpy(), a.reshape(5, 2))
    with pytest.raises(relaxish.TVMError, match="Invalid use of undefined variable"):

        @T.prim_func
        def unknown(a: T.handle):
            m = T.int64()
            A = T.match_buffer(a, (m * 2,))
            A[0] = T.float32(1)
