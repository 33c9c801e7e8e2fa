"""What lanes and warps do together in emulation: shuffles, votes, masks, fragments, ``mma.sync``, ``ldmatrix``, atomics."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.emulator import DataRaceError, MisalignedAccessError
from relaxish.tir.tensor_intrin.mma_fragments import MMA
from relaxish.script import tir as T

rng = np.random.default_rng(12)
LANES = np.arange(32)
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def shuffled(call, lane, width, dtype="float32"):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(dtype, "global"), B: T.handle(dtype, "global")):
        a = T.decl_buffer((32,), dtype, data=A)
        b = T.decl_buffer((32,), dtype, data=B)
        tx = T.launch_thread("threadIdx.x", 32)
        b[tx] = call(T.uint32(0xFFFFFFFF), a[tx], lane, width, 32)

    return kernel


@pytest.mark.parametrize("width", [8, 32])
@pytest.mark.parametrize("how", ["shuffle", "up", "down"])
def test_shuffles(how, width):
    call = {"shuffle": T.tvm_warp_shuffle, "up": T.tvm_warp_shuffle_up, "down": T.tvm_warp_shuffle_down}[how]
    first, inside = LANES // width * width, LANES % width
    source = {
        "shuffle": first + 3,
        "up": np.where(inside >= 3, LANES - 3, LANES),
        "down": np.where(inside + 3 < width, LANES + 3, LANES),
    }[how]
    for dtype in ("float32", "float16", "int8", "float64", "bool"):
        a = rng.integers(0, 2 if dtype == "bool" else 100, 32).astype(dtype)
        b = np.zeros(32, dtype)
        launch(shuffled(call, 3, width, dtype), a, b, block=(32, 1, 1))
        np.testing.assert_array_equal(b, a[source])


def test_exclusive_or_and_halves_of_a_warp():
    """Both halves shuffle at one statement, each for itself."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("int32", "global")):
        a = T.decl_buffer((32,), "int32", data=A)
        b = T.decl_buffer((32,), "int32", data=B)
        tx = T.launch_thread("threadIdx.x", 32)
        if tx < 16:
            b[tx] = T.call_extern("int32", "__shfl_xor_sync", T.uint32(0xFFFF), a[tx], 1)
        else:
            b[tx] = T.call_extern("int32", "__shfl_xor_sync", T.uint32(0xFFFF0000), a[tx], 2)

    a, b = rng.integers(0, 100, 32).astype("int32"), np.zeros(32, "int32")
    launch(kernel, a, b, block=(32, 1, 1))
    np.testing.assert_array_equal(b, a[np.where(LANES < 16, LANES ^ 1, LANES ^ 2)])


def test_votes_and_active_lanes():
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), B: T.handle("uint32", "global")):
        a = T.decl_buffer((40,), "int32", data=A)
        b = T.decl_buffer((160,), "uint32", data=B)
        tx = T.launch_thread("threadIdx.x", 40)
        b[tx] = T.call_extern("uint32", "__ballot_sync", T.uint32(0xFFFFFFFF), a[tx] > 0)
        b[tx + 40] = T.cast(T.call_extern("int32", "__any_sync", T.uint32(0xFFFFFFFF), a[tx] > 0), "uint32")
        b[tx + 80] = T.cast(T.call_extern("int32", "__all_sync", T.uint32(0xFFFFFFFF), a[tx] > -1), "uint32")
        if a[tx] > 0:
            b[tx + 120] = T.tvm_warp_activemask()

    a, b = (np.arange(40) % 3 == 1).astype("int32"), np.zeros(160, "uint32")
    launch(kernel, a, b, block=(40, 1, 1))
    masks = [int(sum(1 << i for i in range(len(w)) if w[i])) for w in (a[:32], a[32:])]
    wanted = np.repeat(masks, [32, 8])
    np.testing.assert_array_equal(b[:40], wanted)
    assert (b[40:120] == 1).all()
    np.testing.assert_array_equal(b[120:], np.where(a > 0, wanted, 0))


@pytest.mark.parametrize("whole", [True, False])
def test_lanes_are_in_order_after_syncwarp(whole):
    """Without a barrier of the warp the exchange through shared memory is a race; other warps stay unordered."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int32", "global"), shift: T.int32):
        a = T.decl_buffer((64,), "int32", data=A)
        memory = T.allocate([64], "int32", "shared")
        s = T.decl_buffer((64,), "int32", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        s[tx] = tx
        if whole:
            T.tvm_storage_sync("warp")
        a[tx] = s[T.bitwise_xor(tx, shift)]

    a = np.zeros(64, "int32")
    if whole:
        launch(kernel, a, 5)
        np.testing.assert_array_equal(a, np.arange(64) ^ 5)
    with pytest.raises((DataRaceError, RuntimeError)):
        launch(kernel, a, 33 if whole else 5)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_atomic_updates(dtype):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(dtype, "global"), B: T.handle(dtype, "global"), C: T.handle(dtype, "global")):
        a = T.decl_buffer((256,), dtype, data=A)
        b = T.decl_buffer((4,), dtype, data=B)
        c = T.decl_buffer((256,), dtype, data=C)
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 64)
        c[bx * 64 + tx] = T.call_extern(dtype, "atomicAdd", T.address_of(b[tx % 2]), a[bx * 64 + tx])
        T.evaluate(T.call_extern(dtype, "atomicMax", T.address_of(b[2]), a[bx * 64 + tx]))
        T.evaluate(T.call_extern(dtype, "atomicMin", T.address_of(b[3]), a[bx * 64 + tx]))

    a, b, c = rng.integers(0, 9, 256).astype(dtype), np.zeros(4, dtype), np.zeros(256, dtype)
    b[2:] = 5
    launch(kernel, a, b, c, grid=(4, 1, 1))
    np.testing.assert_array_equal(b, [*a.reshape(128, 2).sum(axis=0), max(5, a.max()), min(5, a.min())])
    # What comes back is the value before.
    assert sorted(c[::2] + a[::2])[-1] == b[0] and (c[:2] == 0).all()


def fragments(m, n, k, in_dtype, out_dtype, a_layout, b_layout, c_layout):
    """One product of fragments, accumulated twice."""
    shape = f"{m}, {n}, {k}"
    a_stride, b_stride = (k if a_layout == "row_major" else m), (n if b_layout == "row_major" else k)
    c_stride = n if c_layout == "row_major" else m

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(in_dtype, "global"), B: T.handle(in_dtype, "global"), C: T.handle(out_dtype, "global")):
        tx = T.launch_thread("threadIdx.x", 32)
        fa = T.allocate([m * k], in_dtype, "wmma.matrix_a")
        fb = T.allocate([k * n], in_dtype, "wmma.matrix_b")
        fc = T.allocate([m * n], out_dtype, "wmma.accumulator")
        T.attr(fa, "fragment_shape", shape)
        T.attr(fb, "fragment_shape", shape)
        T.attr(fc, "fragment_shape", shape)
        T.tvm_fill_fragment(fc, m, n, k, 0, T.cast(0, out_dtype))
        pa = T.tvm_access_ptr(T.type_annotation(in_dtype), A, 0, m * k, 1)
        pb = T.tvm_access_ptr(T.type_annotation(in_dtype), B, 0, k * n, 1)
        pc = T.tvm_access_ptr(T.type_annotation(out_dtype), C, 0, m * n, 2)
        T.tvm_load_matrix_sync(fa, m, n, k, 0, pa, a_stride, a_layout)
        T.tvm_load_matrix_sync(fb, m, n, k, 0, pb, b_stride, b_layout)
        T.tvm_mma_sync(fc, 0, fa, 0, fb, 0, fc, 0)
        T.tvm_mma_sync(fc, 0, fa, 0, fb, 0, fc, 0)
        T.tvm_store_matrix_sync(fc, m, n, k, 0, pc, c_stride, c_layout)

    return kernel


def numbers(shape, dtype):
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -8, 8, shape).astype(dtype)
    return (rng.integers(-4, 5, shape) / 4).astype(NUMPY.get(dtype, dtype))


@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (8, 32, 16), (32, 8, 16)])
@pytest.mark.parametrize(
    "in_dtype, out_dtype",
    [("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("int8", "int32"), ("uint8", "int32")],
)
def test_fragments(m, n, k, in_dtype, out_dtype):
    for a_layout, b_layout, c_layout in (
        ("row_major",) * 3,
        ("col_major", "row_major", "col_major"),
        ("row_major", "col_major", "row_major"),
    ):
        a, b, c = numbers((m, k), in_dtype), numbers((k, n), in_dtype), np.zeros((m, n), out_dtype)
        held = [np.ascontiguousarray(x if lies == "row_major" else x.T) for x, lies in ((a, a_layout), (b, b_layout))]
        out = np.zeros((m, n) if c_layout == "row_major" else (n, m), out_dtype)
        launch(fragments(m, n, k, in_dtype, out_dtype, a_layout, b_layout, c_layout), *held, out, block=(32, 1, 1))
        c = out if c_layout == "row_major" else out.T
        np.testing.assert_array_equal(c, (2 * (a.astype("float64") @ b.astype("float64"))).astype(out_dtype))


def mma_kernel(name, shape, names, dtypes):
    a_count, b_count, c_count = shape.a_count, shape.b_count, shape.c_count
    a_dtype, b_dtype, c_dtype = dtypes

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(a_dtype, "global"), B: T.handle(b_dtype, "global"), C: T.handle(c_dtype, "global")):
        a = T.decl_buffer((32 * a_count,), a_dtype, data=A)
        b = T.decl_buffer((32 * b_count,), b_dtype, data=B)
        c = T.decl_buffer((32 * c_count,), c_dtype, data=C)
        tx = T.launch_thread("threadIdx.x", 32)
        ra = T.allocate([a_count], a_dtype, "local")
        rb = T.allocate([b_count], b_dtype, "local")
        rc = T.allocate([c_count], c_dtype, "local")
        va = T.decl_buffer((a_count,), a_dtype, data=ra, scope="local")
        vb = T.decl_buffer((b_count,), b_dtype, data=rb, scope="local")
        vc = T.decl_buffer((c_count,), c_dtype, data=rc, scope="local")
        for i in range(a_count):
            va[i] = a[tx * a_count + i]
        for i in range(b_count):
            vb[i] = b[tx * b_count + i]
        for i in range(c_count):
            vc[i] = c[tx * c_count + i]
        T.ptx_mma(c_dtype, name, "row", "col", names[0], names[1], names[2], ra, 0, rb, 0, rc, 0, False)
        for i in range(c_count):
            c[tx * c_count + i] = vc[i]

    return kernel


@pytest.mark.parametrize("name, bits, names, dtypes", [
    ("m16n8k8", 16, ("fp16", "fp16", "fp32"), ("float16", "float16", "float32")),
    ("m16n8k16", 16, ("fp16", "fp16", "fp16"), ("float16", "float16", "float16")),
    ("m16n8k16", 16, ("bf16", "bf16", "fp32"), ("bfloat16", "bfloat16", "float32")),
    ("m16n8k16", 8, ("int8", "int8", "int32"), ("int8", "int8", "int32")),
    ("m16n8k32", 8, ("int8", "uint8", "int32"), ("int8", "uint8", "int32")),
    ("m16n8k32", 8, ("e4m3", "e5m2", "fp32"), ("float8_e4m3fn", "float8_e5m2", "float32")),
    ("m16n8k8", 32, ("tf32", "tf32", "fp32"), ("float32", "float32", "float32")),
    ("m8n8k4", 64, ("fp64", "fp64", "fp64"), ("float64", "float64", "float64")),
])  # fmt: skip
def test_mma(name, bits, names, dtypes):
    shape = MMA[name, bits]
    a, b = numbers((shape.m, shape.k), dtypes[0]), numbers((shape.k, shape.n), dtypes[1])
    c = numbers((shape.m, shape.n), dtypes[2])
    held = []
    for matrix, count, at in ((a, shape.a_count, shape.a), (b, shape.b_count, shape.b), (c, shape.c_count, shape.c)):
        places = [at(lane, i) for lane in range(32) for i in range(count)]
        assert len(set(places)) == matrix.size
        held.append(np.array([matrix[p] for p in places], matrix.dtype))
    launch(mma_kernel(name, shape, names, dtypes), *held, block=(32, 1, 1))
    wanted = (c.astype("float64") + a.astype("float64") @ b.astype("float64")).astype(c.dtype)
    places = [shape.c(lane, i) for lane in range(32) for i in range(shape.c_count)]
    np.testing.assert_array_equal(held[2], [wanted[p] for p in places])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, transposed):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("float16", "global"), B: T.handle("float16", "global"), shift: T.int32):
        a = T.decl_buffer((256,), "float16", data=A)
        b = T.decl_buffer((64 * count,), "float16", data=B)
        memory = T.allocate([264], "float16", "shared")
        s = T.decl_buffer((264,), "float16", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        own = T.allocate([2 * count], "float16", "local")
        r = T.decl_buffer((2 * count,), "float16", data=own, scope="local")
        for i in range(8):
            s[tx * 8 + i] = a[tx * 8 + i]
        s[tx % 8 + 256] = T.float16(0)
        T.tvm_storage_sync("shared")
        T.ptx_ldmatrix("float16", transposed, count, ".b16", own, 0, memory, tx * 8 + shift)
        for i in range(2 * count):
            b[tx * 2 * count + i] = r[i]

    a, b = rng.standard_normal(256).astype("float16"), np.zeros(64 * count, "float16")
    launch(kernel, a, b, 0, block=(32, 1, 1))
    for matrix in range(count):
        tile = a.reshape(4, 8, 8)[matrix]
        tile = tile.T if transposed else tile
        got = b.reshape(32, count, 2)[:, matrix]
        np.testing.assert_array_equal(got, [tile[lane // 4, lane % 4 * 2 :][:2] for lane in range(32)])
    with pytest.raises(MisalignedAccessError):
        launch(kernel, a, b, 4, block=(32, 1, 1))


@pytest.mark.parametrize("signs", ["int8", "uint8"])
def test_dot_products(signs):
    out = "int32" if signs == "int8" else "uint32"

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(signs, "global"), B: T.handle(signs, "global"), C: T.handle(out, "global")):
        a = T.decl_buffer((128,), signs, data=A)
        b = T.decl_buffer((128,), signs, data=B)
        c = T.decl_buffer((32,), out, data=C)
        tx = T.launch_thread("threadIdx.x", 32)
        left = T.reinterpret(out, a[tx * 4 : tx * 4 + 4])
        right = T.reinterpret(out, b[tx * 4 : tx * 4 + 4])
        c[tx] = T.call_pure_extern(out, "__dp4a", left, right, c[tx])

    a, b = (rng.integers(-128 if signs == "int8" else 0, 127, 128).astype(signs) for _ in range(2))
    c = rng.integers(0, 99, 32).astype(out)
    wanted = c.astype("int64") + (a.astype("int64") * b.astype("int64")).reshape(32, 4).sum(axis=1)
    launch(kernel, a, b, c, block=(32, 1, 1))
    np.testing.assert_array_equal(c, wanted)
