"""SimplifyShapeArithmetic: divisions by symbolic sizes in programs."""

from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import tir as T
from relaxish.tir.transform.simplify.shape_arithmetic import SimplifyShapeArithmetic


def check(before, expected, truncate=False):
    made = SimplifyShapeArithmetic(truncate)(IRModule({"main": before}))["main"]
    assert_structural_equal(made.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_reshape():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n, t = T.int64(), T.int64()
        A = T.match_buffer(a, (n, t, T.int64(64)))
        B = T.match_buffer(b, (n, t, T.int64(4), T.int64(16)))
        for i, j, k, l in T.grid(n, t, T.int64(4), T.int64(16)):
            with T.block("B"):
                vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
                T.reads(
                    A[
                        (((vi * t + vj) * T.int64(4) + vk) * T.int64(16) + vl) // T.int64(64) // t % n,
                        (((vi * t + vj) * T.int64(4) + vk) * T.int64(16) + vl) // T.int64(64) % t,
                        vk * T.int64(16) + vl,
                    ]
                )
                T.writes(B[vi, vj, vk, vl])
                B[vi, vj, vk, vl] = A[
                    (((vi * t + vj) * T.int64(4) + vk) * T.int64(16) + vl) // T.int64(64) // t % n,
                    (((vi * t + vj) * T.int64(4) + vk) * T.int64(16) + vl) // T.int64(64) % t,
                    vk * T.int64(16) + vl,
                ]

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n, t = T.int64(), T.int64()
        A = T.match_buffer(a, (n, t, T.int64(64)))
        B = T.match_buffer(b, (n, t, T.int64(4), T.int64(16)))
        for i, j, k, l in T.grid(n, t, T.int64(4), T.int64(16)):
            with T.block("B"):
                vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
                T.reads(A[vi, vj, vk * T.int64(16) + vl])
                T.writes(B[vi, vj, vk, vl])
                B[vi, vj, vk, vl] = A[vi, vj, vk * T.int64(16) + vl]

    check(before, expected)


def test_flat_offsets_under_a_condition():
    @T.prim_func
    def before(a: T.handle, b: T.handle):
        n, h = T.int64(), T.int64()
        A = T.match_buffer(a, (n, h))
        B = T.match_buffer(b, (n * h,))
        for bx in range((n * h + T.int64(127)) // T.int64(128)):
            for tx in range(T.int64(128)):
                if bx * T.int64(128) + tx < n * h:
                    B[(bx * T.int64(128) + tx) // h * h + (bx * T.int64(128) + tx) % h] = A[
                        (bx * T.int64(128) + tx) // h, (bx * T.int64(128) + tx) % h
                    ]

    @T.prim_func
    def expected(a: T.handle, b: T.handle):
        n, h = T.int64(), T.int64()
        A = T.match_buffer(a, (n, h))
        B = T.match_buffer(b, (n * h,))
        for bx in range((n * h + T.int64(127)) // T.int64(128)):
            for tx in range(T.int64(128)):
                if bx * T.int64(128) + tx < n * h:
                    B[bx * T.int64(128) + tx] = A[
                        T.truncdiv(bx * T.int64(128) + tx, h), T.truncmod(bx * T.int64(128) + tx, h)
                    ]

    check(before, expected, truncate=True)


def test_signs_that_are_not_known_keep_their_floor():
    @T.prim_func
    def same(a: T.handle, b: T.handle, shift: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in range(n):
            B[i] = A[(i - shift) % n]

    check(same, same, truncate=True)


def test_constant_shapes_stay():
    @T.prim_func
    def same(A: T.Buffer((8, 6), "float32"), B: T.Buffer((48,), "float32"), n: T.int32):
        for i in range(48):
            B[i] = A[i // 6 % n, i % 6]

    check(same, same)
