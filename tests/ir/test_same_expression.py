"""Free variables and buffers are equal to themselves only; compilers compare to the last bit."""

from __future__ import annotations

import pytest

from relaxish import tir
from relaxish.ir import Range, assert_structural_equal, structural_equal, structural_hash
from relaxish.ir.structural import same_expression
from relaxish.script import tir as T
from relaxish.tir.analysis import expr_deep_equal

A, B = tir.decl_buffer((4, 5), "float32", name="A"), tir.decl_buffer((4, 5), "float32", name="A")
i, j = tir.Var("i", "int32"), tir.Var("i", "int32")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (A[i, 0], B[i, 0]),
        (A[i, 0] > 0.0, B[i, 0] > 0.0),
        (tir.BufferStore(A, A[i, 0], [i, 1]), tir.BufferStore(A, B[i, 0], [i, 1])),
        (tir.BufferStore(A, tir.const(1.0, "float32"), [i, 1]), tir.BufferStore(B, tir.const(1.0, "float32"), [i, 1])),
        (tir.BufferRegion(A, [Range(0, 4), Range(0, 5)]), tir.BufferRegion(B, [Range(0, 4), Range(0, 5)])),
        (i + 1, j + 1),
        (A, B),
    ],
)
def test_free_things_pair_up_only_when_asked(left, right):
    assert structural_equal(left, left) and same_expression(left, left)
    assert not structural_equal(left, right)
    assert not same_expression(left, right)
    assert (
        structural_equal(left, right, map_free_vars=True)
        or isinstance(left, tir.BufferStore)
        and left.buffer is right.buffer
    )
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        assert_structural_equal(left, right)


def test_declared_buffers_pair_up():
    def program():
        @T.prim_func(private=True)
        def main(a: T.handle, X: T.Buffer((4,), "float32")):
            n = T.int32()
            Y = T.match_buffer(a, (n,), "float32", strides=[2])
            Z = T.alloc_buffer((4,), "float32")
            W = T.decl_buffer((2, 2), "float32", data=Z.data)
            for k in range(4):
                with T.block("b"):
                    v = T.axis.spatial(4, k)
                    T.reads(X[v])
                    T.writes(Z[v])
                    C = T.match_buffer(Z[v], (), offset_factor=1)
                    C[()] = X[v] + Y[n - 1] + W[0, 1]

        return main

    assert_structural_equal(program(), program())
    assert structural_hash(program()) == structural_hash(program())


def test_the_pairing_is_one_to_one():
    both = (A[i, 0] + A[i, 1], A[i, 0] + B[i, 1])
    assert not structural_equal(*both, map_free_vars=True)
    assert not structural_equal(*both[::-1], map_free_vars=True)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1e-10, 2e-10), (3e-11, -4e-11)])
def test_constants_are_compared_to_the_last_bit(numbers):
    x = tir.Var("x", "float64")
    left, right = (x * tir.const(n, "float64") for n in numbers)
    assert structural_equal(left, right)
    assert not same_expression(left, right) and not expr_deep_equal(left, right)
    assert same_expression(left, x * tir.const(numbers[0], "float64"))
    nan = tir.const(float("nan"), "float64")
    assert same_expression(x + nan, x + nan)


def test_views_of_one_memory_are_the_same_if_declared_alike():
    pointer = tir.decl_buffer((20,), "float32").data
    views = [tir.decl_buffer((20,), "float32", data=pointer, elem_offset=offset) for offset in (0, 0, 1)]
    assert same_expression(views[0][i], views[1][i])
    assert not same_expression(views[0][i], views[2][i])
    assert not expr_deep_equal(A[i, 0], B[i, 0])
