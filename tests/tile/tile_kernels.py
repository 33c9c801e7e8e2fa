"""Kernels that several tests of tile programs use."""

from __future__ import annotations

from relaxish.script import tir as S
from relaxish.tile import language as T


def scaled_add(n, factor=2.0, dtype="float32"):
    """c = a * factor + b, as an ordinary PrimFunc."""

    @S.prim_func
    def main(A: S.Buffer((n,), dtype), B: S.Buffer((n,), dtype), C: S.Buffer((n,), dtype)):
        for i in range(n):
            with S.block("C"):
                vi = S.axis.spatial(n, i)
                C[vi] = A[vi] * S.Cast(dtype, factor) + B[vi]

    return main


def matmul(M, N, K, block_M=32, block_N=32, block_K=32, num_stages=0, thread_num=128, dtype="float32"):
    """C = A @ B^T as a tile program."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=thread_num) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def dynamic_add(dtype="float32"):
    """c = a + b of any length."""

    @S.prim_func
    def main(a: S.handle, b: S.handle, c: S.handle):
        n = S.int64()
        A = S.match_buffer(a, (n,), dtype)
        B = S.match_buffer(b, (n,), dtype)
        C = S.match_buffer(c, (n,), dtype)
        for i in range(n):
            with S.block("C"):
                vi = S.axis.spatial(n, i)
                C[vi] = A[vi] + B[vi]

    return main


def two_outputs(n):
    """The sum and the difference."""

    @S.prim_func
    def main(
        P: S.Buffer((n,), "float32"),
        A: S.Buffer((n,), "float32"),
        B: S.Buffer((n,), "float32"),
        Q: S.Buffer((n,), "float32"),
    ):
        for i in range(n):
            with S.block("P"):
                vi = S.axis.spatial(n, i)
                P[vi] = A[vi] + B[vi]
        for i in range(n):
            with S.block("Q"):
                vi = S.axis.spatial(n, i)
                Q[vi] = A[vi] - B[vi]

    return main


def bound_add(n, threads=16, dtype="float32"):
    """c = a + b by threads of a GPU."""

    @S.prim_func
    def main(A: S.Buffer((n,), dtype), B: S.Buffer((n,), dtype), C: S.Buffer((n,), dtype)):
        for i in S.thread_binding(n // threads, thread="blockIdx.x"):
            for j in S.thread_binding(threads, thread="threadIdx.x"):
                with S.block("C"):
                    vi = S.axis.spatial(n, i * threads + j)
                    C[vi] = A[vi] + B[vi]

    return main
