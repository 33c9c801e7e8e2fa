"""CUDA kernels, one for each construct that code generation must print."""

from __future__ import annotations

from relaxish.script import tir as T

# ---- control ----------------------------------------------------------------------------------------------------------


@T.prim_func
def loops(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "loops"})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            total = T.decl_buffer((1,), "float32", scope="local")
            step = T.decl_buffer((1,), "int32", scope="local")
            total[0] = T.float32(0)
            step[0] = 1
            for i in T.serial(1, 5):
                total[0] = total[0] + A[bx * 32 + tx] * T.Cast("float32", i)
            for i in T.unroll(3):
                total[0] = total[0] * T.float32(0.5)
            while step[0] < 100:
                step[0] = step[0] * 2 + tx
            if tx % 2 == 0:
                B[bx * 32 + tx] = total[0]
            else:
                B[bx * 32 + tx] = T.Cast("float32", step[0])


@T.prim_func
def checked(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "checked"})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        with T.Assert(A[tx] >= T.float32(0), 'a "negative" number'):
            B[tx] = T.sqrt(A[tx])
        T.evaluate(T.call_extern("int32", "printf", "%d: %f\n", tx, T.Cast("float64", A[tx])))


@T.prim_func
def virtual_threads(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    T.func_attr({"global_symbol": "virtual_threads"})
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for vx in T.thread_binding(2, thread="vthread.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("B"):
                    i = T.axis.spatial(256, bx * 128 + vx * 64 + tx)
                    B[i] = A[i] + T.float32(1)


# ---- memory -----------------------------------------------------------------------------------------------------------


@T.prim_func
def static_shared(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "static_shared"})
    with T.block("root"):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("S"):
                i = T.axis.spatial(64, tx)
                S[i] = A[i]
            with T.block("B"):
                i = T.axis.spatial(64, tx)
                T.reads(S[0:64])
                B[i] = S[63 - i]


@T.prim_func
def dynamic_shared(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float16")):
    T.func_attr({"global_symbol": "dynamic_shared"})
    with T.block("root"):
        S = T.alloc_buffer((64,), "float32", scope="shared.dyn")
        H = T.alloc_buffer((64,), "float16", scope="shared.dyn")
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("S"):
                i = T.axis.spatial(64, tx)
                S[i] = A[i]
                H[i] = T.Cast("float16", A[i])
            with T.block("B"):
                i = T.axis.spatial(64, tx)
                T.reads(S[0:64], H[0:64])
                B[i] = T.Cast("float16", S[63 - i]) + H[63 - i]


@T.prim_func
def unaligned_vectors(
    A: T.Buffer((1026,), "float32"), B: T.Buffer((1024,), "float32"), C: T.Buffer((1024,), "float32")
):
    T.func_attr({"global_symbol": "unaligned_vectors"})
    for tx in T.thread_binding(256, thread="threadIdx.x"):
        for v in T.vectorized(4):
            with T.block("B"):
                i = T.axis.spatial(1024, tx * 4 + v)
                B[i] = A[i + 2]
        for v in T.vectorized(4):
            with T.block("C"):
                i = T.axis.spatial(1024, tx * 4 + v)
                C[i] = A[i + 1]


@T.prim_func
def strided_vectors(A: T.Buffer((512,), "float16"), B: T.Buffer((256,), "float16")):
    T.func_attr({"global_symbol": "strided_vectors"})
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        for v in T.vectorized(4):
            with T.block("B"):
                i = T.axis.spatial(256, tx * 4 + v)
                B[255 - i] = A[i * 2]


@T.prim_func
def wide_index(A: T.Buffer((T.int64(1) << T.int64(33),), "int8"), B: T.Buffer((T.int64(128),), "int8")):
    T.func_attr({"global_symbol": "wide_index"})
    for tx in T.thread_binding(T.int64(128), thread="threadIdx.x"):
        with T.block("B"):
            i = T.axis.spatial(T.int64(128), tx)
            B[i] = A[i * T.int64(67108864)]


@T.prim_func
def volatile_memory(a: T.handle("float32"), b: T.handle("float32")):
    T.func_attr({"global_symbol": "volatile_memory", "tir.noalias": True})
    A = T.match_buffer(a, (32,), "float32")
    B = T.match_buffer(b, (32,), "float32")
    tx = T.launch_thread("threadIdx.x", 32)
    S = T.allocate([32], "float32", "shared")
    with T.attr(S, "volatile_scope", 1):
        S_1 = T.decl_buffer((32,), "float32", data=S, scope="shared")
        S_1[tx] = A[tx]
        B[tx] = S_1[31 - tx]


@T.prim_func
def narrow_types(A: T.Buffer((256,), "int8"), B: T.Buffer((256,), "int4"), C: T.Buffer((256,), "uint4")):
    T.func_attr({"global_symbol": "narrow_types"})
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        for v in T.vectorized(8):
            with T.block("B"):
                i = T.axis.spatial(256, tx * 8 + v)
                B[i] = T.Cast("int4", A[i])
        for v in T.serial(8):
            with T.block("C"):
                i = T.axis.spatial(256, tx * 8 + v)
                C[i] = T.Cast("uint4", A[i])


@T.prim_func
def byte_products(A: T.Buffer((128,), "int8"), B: T.Buffer((128,), "int8"), C: T.Buffer((32,), "int32")):
    T.func_attr({"global_symbol": "byte_products"})
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        with T.block("C"):
            i = T.axis.spatial(32, tx)
            T.reads(A[i * 4 : i * 4 + 4], B[i * 4 : i * 4 + 4])
            C[i] = T.call_pure_extern(
                "int32",
                "__dp4a",
                T.reinterpret("int32", A[T.ramp(i * 4, 1, 4)]),
                T.reinterpret("int32", B[T.ramp(i * 4, 1, 4)]),
                0,
            )


@T.prim_func
def fixed_point(A: T.Buffer((128,), "int32"), B: T.Buffer((128,), "int32")):
    T.func_attr({"global_symbol": "fixed_point"})
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        for v in T.vectorized(4):
            with T.block("B"):
                i = T.axis.spatial(128, tx * 4 + v)
                B[i] = T.q_multiply_shift(A[i], 1395864371, 31, 2)


@T.prim_func
def table(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float16")):
    T.func_attr({"global_symbol": "table"})
    for tx in T.thread_binding(16, thread="threadIdx.x"):
        with T.allocate_const([1.0, 2.0, -3.0, 0.5], "float32", [4]) as c:
            weights = T.decl_buffer((4,), "float32", data=c)
            B[tx] = T.Cast("float16", A[tx] * weights[tx % 4])


@T.prim_func
def pointers(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "pointers"})
    for tx in T.thread_binding(15, thread="threadIdx.x"):
        p: T.handle("float32") = T.address_of(A[tx * 4])
        q: T.handle("float32") = T.address_of(A[tx * 4 + 2])
        P = T.decl_buffer((4,), "float32", data=p)
        Q = T.decl_buffer((4,), "float32", data=q)
        B[T.ramp(tx * 4, 1, 4)] = P[T.ramp(0, 1, 4)]
        C[T.ramp(tx * 4, 1, 4)] = Q[T.ramp(0, 1, 4)]


# ---- threads together -------------------------------------------------------------------------------------------------


@T.prim_func
def shuffles(A: T.Buffer((32,), "float32"), H: T.Buffer((32,), "float16"), B: T.Buffer((32,), "float32")):
    T.func_attr({"global_symbol": "shuffles"})
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        with T.block("B"):
            i = T.axis.spatial(32, tx)
            T.reads(A[i], H[i])
            mask: T.uint32 = T.tvm_warp_activemask()
            B[i] = (
                T.tvm_warp_shuffle(mask, A[i], 3, 32, 32)
                + T.tvm_warp_shuffle_up(mask, A[i], 1, 32, 32)
                + T.Cast("float32", T.tvm_warp_shuffle_down(mask, H[i], 1, 32, 32))
                + T.call_pure_extern("float32", "__shfl_xor_sync", mask, A[i], 16, 32)
                + T.Cast("float32", T.call_pure_extern("uint32", "__ballot_sync", mask, A[i] > T.float32(0)))
            )


@T.prim_func
def atomics(A: T.Buffer((1024,), "float32"), B: T.Buffer((1,), "float32"), C: T.Buffer((1,), "int32")):
    T.func_attr({"global_symbol": "atomics"})
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(256, thread="threadIdx.x"):
            with T.block("B"):
                i = T.axis.spatial(1024, bx * 256 + tx)
                T.reads(A[i])
                T.writes(B[0], C[0])
                T.evaluate(T.call_extern("float32", "atomicAdd", T.address_of(B[0]), A[i]))
                T.evaluate(T.call_extern("int32", "atomicMax", T.address_of(C[0]), T.Cast("int32", A[i])))


@T.prim_func
def warp_memory(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "warp_memory"})
    with T.block("root"):
        W = T.alloc_buffer((64,), "float32", scope="warp")
        for ty in T.thread_binding(2, thread="threadIdx.y"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("W"):
                    i = T.axis.spatial(64, ty * 32 + tx)
                    W[i] = A[i]
                with T.block("B"):
                    i = T.axis.spatial(64, ty * 32 + tx)
                    T.reads(W[0:64])
                    B[i] = W[i // 32 * 32 + (i % 32 + 1) % 32]


# ---- copies -----------------------------------------------------------------------------------------------------------


@T.prim_func
def copies(A: T.Buffer((4096,), "float16"), B: T.Buffer((4096,), "float16"), n: T.int32):
    T.func_attr({"global_symbol": "copies"})
    with T.block("root"):
        S = T.alloc_buffer((4096,), "float16", scope="shared")
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("S"):
                T.reads(A[0:4096])
                T.writes(S[0:4096])
                T.ptx_cp_async("float16", S.data, tx * 8, A.data, tx * 8, 16)
                T.ptx_cp_async("float16", S.data, 1024 + tx * 4, A.data, 1024 + tx * 4, 8)
                T.ptx_cp_async("float16", S.data, 2048 + tx * 2, A.data, 2048 + tx * 2, 4)
                T.ptx_cp_async("float16", S.data, 3072 + tx * 8, A.data, 3072 + tx * 8, 16, tx < n)
                T.ptx_commit_group()
                T.ptx_wait_group(0)
            with T.block("B"):
                T.reads(S[0:4096])
                T.writes(B[0:4096])
                T.tvm_storage_sync("shared")
                for i in T.serial(32):
                    B[tx * 32 + i] = S[tx * 32 + i]


@T.prim_func
def barriers(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    T.func_attr({"global_symbol": "barriers"})
    with T.block("root"):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("S"):
                T.reads(A[0:128])
                T.writes(S[0:128])
                T.create_barriers(2)
                T.ptx_init_barrier_thread_count(0, 128)
                T.tvm_storage_sync("shared")
                T.ptx_cp_async("float32", S.data, tx, A.data, tx, 4)
                T.ptx_cp_async_barrier(0)
                T.ptx_arrive_barrier(0)
                T.ptx_wait_barrier(0)
            with T.block("B"):
                T.reads(S[0:128])
                T.writes(B[0:128])
                B[tx] = S[127 - tx]


@T.prim_func
def bulk_copies(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    T.func_attr({"global_symbol": "bulk_copies"})
    with T.block("root"):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            with T.block("S"):
                T.reads(A[0:128])
                T.writes(S[0:128])
                T.create_barriers(1)
                T.ptx_init_barrier_thread_count(0, 1)
                T.tvm_storage_sync("shared")
                if tx == 0:
                    T.ptx_cp_async_bulk("float32", S.data, 0, A.data, 0, 512, 0)
                    T.ptx_arrive_barrier_expect_tx(0, 512)
                T.ptx_wait_barrier(0)
            with T.block("B"):
                T.reads(S[0:128])
                T.writes(B[0:128])
                B[tx] = S[127 - tx]


KERNELS = {
    f.attrs["global_symbol"]: f
    for f in (
        loops, checked, virtual_threads, static_shared, dynamic_shared, unaligned_vectors, strided_vectors, wide_index,
        volatile_memory, narrow_types, table, pointers, byte_products, fixed_point, shuffles, atomics, warp_memory, copies, barriers,
        bulk_copies,
    )
}  # fmt: skip
HOPPER = ("bulk_copies",)


# ---- tensor cores -----------------------------------------------------------------------------------------------------

# (shape, type of A, of B, of the result, elements of A, B and result that one thread holds)
PRODUCTS = (
    ("m8n8k4", "fp64", "fp64", "fp64", 1, 1, 2),
    ("m8n8k4", "fp16", "fp16", "fp32", 4, 4, 8),
    ("m8n8k4", "fp16", "fp16", "fp16", 4, 4, 8),
    ("m8n8k16", "int8", "int8", "int32", 4, 4, 2),
    ("m8n8k32", "int4", "int4", "int32", 8, 8, 2),
    ("m8n8k128", "int1", "int1", "int32", 1, 1, 2),
    ("m16n8k4", "tf32", "tf32", "fp32", 2, 1, 4),
    ("m16n8k8", "fp16", "fp16", "fp16", 4, 2, 4),
    ("m16n8k8", "fp16", "fp16", "fp32", 4, 2, 4),
    ("m16n8k8", "bf16", "bf16", "fp32", 4, 2, 4),
    ("m16n8k8", "tf32", "tf32", "fp32", 4, 2, 4),
    ("m16n8k16", "fp16", "fp16", "fp16", 8, 4, 4),
    ("m16n8k16", "fp16", "fp16", "fp32", 8, 4, 4),
    ("m16n8k16", "bf16", "bf16", "fp32", 8, 4, 4),
    ("m16n8k16", "int8", "int8", "int32", 8, 4, 4),
    ("m16n8k16", "uint8", "int8", "int32", 8, 4, 4),
    ("m16n8k32", "int8", "uint8", "int32", 16, 8, 4),
    ("m16n8k32", "int4", "int4", "int32", 16, 8, 4),
    ("m16n8k64", "uint4", "int4", "int32", 32, 16, 4),
    ("m16n8k256", "int1", "int1", "int32", 4, 2, 4),
)
PRODUCTS_SM_89 = (
    ("m16n8k32", "e4m3", "e4m3", "fp32", 16, 8, 4),
    ("m16n8k32", "e5m2", "e4m3", "fp32", 16, 8, 4),
)
SPARSE_PRODUCTS = (
    ("m16n8k16", "fp16", "fp16", "fp16", 4, 4, 4),
    ("m16n8k32", "fp16", "fp16", "fp32", 8, 8, 4),
    ("m16n8k32", "bf16", "bf16", "fp32", 8, 8, 4),
    ("m16n8k16", "tf32", "tf32", "fp32", 4, 4, 4),
    ("m16n8k64", "int8", "int8", "int32", 16, 16, 4),
)
_MEMORY = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8",
    "uint8": "uint8", "int4": "int4", "uint4": "uint4", "int32": "int32", "int1": "uint32", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}  # fmt: skip


def mma_kernel(product, sparse=False):
    """One warp: fragments from memory, ``mma.sync``, the result to memory."""
    shape, ta, tb, tc, a_count, b_count, c_count = product
    kind = "mma_sp" if sparse else "mma"
    name = f"{kind}_{shape}_{ta}_{tb}_{tc}"
    da, db, dc = (_MEMORY[t] for t in (ta, tb, tc))
    columns = "row" if shape == "m8n8k4" and ta == "fp16" else "col"

    @T.prim_func
    def kernel(
        A: T.Buffer((32 * a_count,), da),
        B: T.Buffer((32 * b_count,), db),
        C: T.Buffer((32 * c_count,), dc),
        E: T.Buffer((32,), "uint32"),
    ):
        T.func_attr({"global_symbol": name})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            a = T.decl_buffer((a_count,), da, scope="local")
            b = T.decl_buffer((b_count,), db, scope="local")
            c = T.decl_buffer((c_count,), dc, scope="local")
            e = T.decl_buffer((1,), "uint32", scope="local")
            for i in T.unroll(a_count):
                a[i] = A[tx * a_count + i]
            for i in T.unroll(b_count):
                b[i] = B[tx * b_count + i]
            for i in T.unroll(c_count):
                c[i] = T.Cast(dc, 0)
            e[0] = E[tx]
            if sparse:
                T.evaluate(T.ptx_mma_sp(
                    dc, shape, "row", "col", ta, tb, tc, a.data, 0, b.data, 0, c.data, 0, e.data, 0, 0, False
                ))  # fmt: skip
            else:
                T.evaluate(T.ptx_mma(dc, shape, "row", columns, ta, tb, tc, a.data, 0, b.data, 0, c.data, 0, False))
            for i in T.unroll(c_count):
                C[tx * c_count + i] = c[i]

    return kernel


def ldmatrix_kernel(dtype, count, transposed):
    """One warp: a tile from shared memory to registers, by rows or by columns."""
    name = f"ldmatrix_{dtype}_{count}_{'t' if transposed else 'n'}"
    size = 1 if dtype == "int8" else 2
    held = 16 if size == 1 and transposed else 4 * count // size
    total = 32 * 32 * count

    @T.prim_func
    def kernel(A: T.Buffer((total,), dtype), B: T.Buffer((32 * held,), dtype)):
        T.func_attr({"global_symbol": name})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            s = T.decl_buffer((total,), dtype, scope="shared")
            r = T.decl_buffer((held,), dtype, scope="local")
            for i in T.serial(32 * count):
                s[i * 32 + tx] = A[i * 32 + tx]
            T.tvm_storage_sync("shared")
            if transposed and size == 1:
                T.evaluate(T.ptx_ldmatrix(dtype, True, count, ".b16", r.data, 0, T.tvm_access_ptr(
                    T.type_annotation(dtype), s.data, 0, total, 1), 16))  # fmt: skip
            else:
                T.evaluate(T.ptx_ldmatrix(dtype, transposed, count, ".b16", r.data, 0, s.data, tx * 16 // size))
            for i in T.serial(held):
                B[tx * held + i] = r[i]

    return kernel


# (m, n, k, type of operands, type of the result)
FRAGMENTS = (
    (16, 16, 16, "float16", "float16"), (16, 16, 16, "float16", "float32"), (16, 16, 16, "bfloat16", "float32"),
    (16, 16, 16, "int8", "int32"), (16, 16, 16, "uint8", "int32"), (8, 32, 16, "float16", "float32"),
    (32, 8, 16, "float16", "float32"), (8, 32, 16, "int8", "int32"), (32, 8, 16, "bfloat16", "float32"),
    (16, 16, 8, "float32", "float32"), (8, 8, 4, "float64", "float64"), (8, 8, 32, "int4", "int32"),
    (8, 8, 32, "uint4", "int32"),
)  # fmt: skip


def wmma_kernel(m, n, k, operand, result):
    """One warp multiplies two tiles of global memory."""
    name = f"wmma_{m}_{n}_{k}_{operand}_{result}"

    @T.prim_func
    def kernel(A: T.Buffer((m * k,), operand), B: T.Buffer((k * n,), operand), C: T.Buffer((m * n,), result)):
        T.func_attr({"global_symbol": name})
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            a = T.decl_buffer((m * k,), operand, scope="wmma.matrix_a")
            b = T.decl_buffer((k * n,), operand, scope="wmma.matrix_b")
            c = T.decl_buffer((m * n,), result, scope="wmma.accumulator")
            T.tvm_fill_fragment(c.data, m, n, k, 0, T.float32(0))
            T.tvm_load_matrix_sync(
                a.data, m, n, k, 0, T.tvm_access_ptr(T.type_annotation(operand), A.data, 0, m * k, 1), k, "row_major"
            )
            T.tvm_load_matrix_sync(
                b.data, m, n, k, 0, T.tvm_access_ptr(T.type_annotation(operand), B.data, 0, k * n, 1), k, "col_major"
            )
            T.tvm_mma_sync(c.data, 0, a.data, 0, b.data, 0, c.data, 0)
            T.tvm_store_matrix_sync(
                c.data, m, n, k, 0, T.tvm_access_ptr(T.type_annotation(result), C.data, 0, m * n, 2), n, "row_major"
            )

    return kernel


def tensor_core_kernels(fp8=False):
    """All of them; ``fp8``: also those that need sm_89."""
    made = [mma_kernel(p) for p in (*PRODUCTS, *(PRODUCTS_SM_89 if fp8 else ()))]
    made += [mma_kernel(p, True) for p in SPARSE_PRODUCTS]
    made += [ldmatrix_kernel("float16", c, t) for c in (1, 2, 4) for t in (False, True)]
    made += [ldmatrix_kernel("int8", 4, t) for t in (False, True)]
    return {f.attrs["global_symbol"]: f for f in made + [wmma_kernel(*f) for f in FRAGMENTS]}
