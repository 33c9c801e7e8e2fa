"""Elements of 4 bits, and products of sparse operands, in emulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.emulator import DataRaceError, EmulationError, MisalignedAccessError, OutOfBoundsError
from relaxish.tir.tensor_intrin.mma_fragments import MMA, MMA_SPARSE
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError

rng = np.random.default_rng(12)


def packed(values):
    """Two to a byte, the lower half first."""
    flat = np.asarray(values).reshape(-1).astype("int64") & 15
    return (flat[::2] | flat[1::2] << 4).astype("uint8")


def nibbles(data, dtype):
    flat = np.stack([data & 15, data >> 4], -1).reshape(-1).astype("int32")
    return np.where(flat > 7, flat - 16, flat) if dtype == "int4" else flat


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_elements_of_four_bits(dtype, check):
    """Neighbours in a byte are written by different threads; vectors of eight; local and shared memory."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle(dtype, "global"), B: T.handle(dtype, "global"), C: T.handle("int32", "global")):
        a = T.decl_buffer((512,), dtype, data=A)
        b = T.decl_buffer((512,), dtype, data=B)
        c = T.decl_buffer((64,), "int32", data=C)
        memory = T.allocate([512], dtype, "shared")
        s = T.decl_buffer((512,), dtype, data=memory, scope="shared")
        own = T.allocate([9], dtype, "local")
        r = T.decl_buffer((9,), dtype, data=own, scope="local")
        tx = T.launch_thread("threadIdx.x", 64)
        s[tx * 8 : tx * 8 + 8] = a[tx * 8 : tx * 8 + 8]
        T.tvm_storage_sync("shared")
        for i in range(8):
            r[i + 1] = s[511 - (i * 64 + tx)]
        c[tx] = 0
        for i in range(8):
            b[i * 64 + tx] = r[i + 1]
            c[tx] = c[tx] + T.cast(r[i + 1], "int32")

    values = rng.integers(-8, 8, 512) if dtype == "int4" else rng.integers(0, 16, 512)
    b, c = np.zeros(256, "uint8"), np.zeros(64, "int32")
    launch(kernel, packed(values), b, c, check=check)
    np.testing.assert_array_equal(nibbles(b, dtype), values[::-1])
    np.testing.assert_array_equal(c, values[::-1].reshape(8, 64).sum(0))


def shifted(by, vector=False, barrier=True):
    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int4", "global")):
        a = T.decl_buffer((64,), "int4", data=A)
        memory = T.allocate([64], "int4", "shared")
        s = T.decl_buffer((64,), "int4", data=memory, scope="shared")
        tx = T.launch_thread("threadIdx.x", 32)
        if vector:
            s[tx * 2 + by : tx * 2 + by + 2] = a[tx * 2 : tx * 2 + 2]
        else:
            s[tx + by] = T.cast(tx % 8, "int4")
            if barrier:
                T.tvm_storage_sync("shared")
            a[tx] = s[31 + by - tx]

    return kernel


def test_faults_at_elements_of_four_bits():
    def run(func):
        launch(func, np.zeros(32, "uint8"), block=(32, 1, 1))

    run(shifted(32))
    with pytest.raises(OutOfBoundsError) as caught:
        run(shifted(33))
    assert caught.value.index == 64 and caught.value.buffer == "s"
    with pytest.raises(MisalignedAccessError):
        run(shifted(1, vector=True))
    with pytest.raises(EmulationError) as caught:
        run(shifted(0, barrier=False))
    assert caught.value.buffer == "s"

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int4", "global")):
        a = T.decl_buffer((64,), "int4", data=A)
        tx = T.launch_thread("threadIdx.x", 32)
        a[tx // 2] = T.cast(tx % 8, "int4")

    with pytest.raises(DataRaceError, match=r"a\[0\]"):
        run(kernel)


WIDE = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}
NUMPY = {"bf16": ml_dtypes.bfloat16, "fp16": "float16", "tf32": "float32", "fp32": "float32"}


def lanes_of(matrix, count, at, dtype):
    """What each lane holds, as memory."""
    made = np.array([[matrix[at(lane, i)] for i in range(count)] for lane in range(32)])
    return packed(made) if dtype in ("int4", "uint4") else made.astype(NUMPY.get(dtype, dtype))


def product_kernel(shape, types, counts, sparse=None):
    ta, tb, tc = types
    (da, db, dc), (a_count, b_count, c_count) = [WIDE.get(t, t) for t in types], counts

    @T.prim_func(check_well_formed=False)
    def kernel(
        A: T.handle(da, "global"), B: T.handle(db, "global"), C: T.handle(dc, "global"), E: T.handle("uint32", "global")
    ):
        ga = T.decl_buffer((32 * a_count,), da, data=A)
        gb = T.decl_buffer((32 * b_count,), db, data=B)
        gc = T.decl_buffer((32 * c_count,), dc, data=C)
        ge = T.decl_buffer((32,), "uint32", data=E)
        a = T.decl_buffer((a_count,), da, scope="local")
        b = T.decl_buffer((b_count,), db, scope="local")
        c = T.decl_buffer((c_count,), dc, scope="local")
        e = T.decl_buffer((1,), "uint32", scope="local")
        tx = T.launch_thread("threadIdx.x", 32)
        for i in range(a_count):
            a[i] = ga[tx * a_count + i]
        for i in range(b_count):
            b[i] = gb[tx * b_count + i]
        for i in range(c_count):
            c[i] = gc[tx * c_count + i]
        e[0] = ge[tx]
        if sparse is None:
            T.ptx_mma(dc, shape, "row", "col", ta, tb, tc, a.data, 0, b.data, 0, c.data, 0, False)
        else:
            T.ptx_mma_sp(dc, shape, "row", "col", ta, tb, tc, a.data, 0, b.data, 0, c.data, 0, e.data, 0, sparse, False)
        for i in range(c_count):
            gc[tx * c_count + i] = c[i]

    return kernel


def small(dtype, shape):
    if dtype == "uint4":
        return rng.integers(0, 16, shape)
    return rng.integers(-8, 8, shape) if "int" in dtype else rng.integers(-8, 9, shape) / 4


@pytest.mark.parametrize(
    "name, types",
    [
        ("m8n8k32", ("int4", "int4")),
        ("m16n8k32", ("int4", "uint4")),
        ("m16n8k64", ("uint4", "int4")),
        ("m16n8k64", ("int4",) * 2),
    ],
)
def test_products_of_four_bits(name, types):
    shape = MMA[name, 4]
    a, b, c = (
        small(types[0], (shape.m, shape.k)),
        small(types[1], (shape.k, shape.n)),
        small("int32", (shape.m, shape.n)),
    )
    counts = (shape.a_count, shape.b_count, shape.c_count)
    held = [
        lanes_of(x, count, at, kind)
        for x, count, at, kind in zip((a, b, c), counts, (shape.a, shape.b, shape.c), (*types, "int32"), strict=True)
    ]
    launch(product_kernel(name, (*types, "int32"), counts), *held, np.zeros(32, "uint32"), block=(32, 1, 1))
    np.testing.assert_array_equal(held[2], lanes_of(c + a @ b, shape.c_count, shape.c, "int32"))


def sparse_operand(dtype, rows, k, chunk):
    """A matrix with half of its elements, the elements that there are, and four bits for each chunk."""
    whole, left = np.zeros((rows, k)), np.zeros((rows, k // 2))
    bits = np.zeros((rows, k // chunk), "int64")
    values = small(dtype, (rows, k // 2))
    for row in range(rows):
        for at in range(k // chunk):
            if chunk == 2:
                chosen = rng.integers(2)
                places, bits[row, at] = [chosen], (4, 14)[chosen]
            else:
                first, second = sorted(rng.choice(4, 2, replace=False))
                bits[row, at] = first | second << 2
                wide = chunk // 4
                places = [p * wide + i for p in (first, second) for i in range(wide)]
            for i, place in enumerate(places):
                left[row, at * chunk // 2 + i] = whole[row, at * chunk + place] = values[row, at * chunk // 2 + i]
    return whole, left, bits


def metadata(bits, narrow, threads, selector):
    """Words of all lanes, by the figures of the PTX manual: who does not take part holds nonsense."""
    words = rng.integers(0, 1 << 32, 32)
    for group in range(8):
        first = 4 * group + selector * threads
        for thread in range(threads):
            if narrow:  # 4 chunks of two rows
                parts = [bits[row, 4 * thread + i] for row in (group, group + 8) for i in range(4)]
            else:  # 8 chunks of one row
                parts = [bits[group + 8 * (thread % 2), thread // 2 * 8 + i] for i in range(8)]
            words[first + thread] = sum(int(p) << 4 * i for i, p in enumerate(parts))
    return words.astype("uint32")


@pytest.mark.parametrize(
    "name, types, threads",
    [
        ("m16n8k16", ("fp16", "fp16", "fp16"), 1), ("m16n8k16", ("bf16", "bf16", "fp32"), 1), ("m16n8k32", ("fp16", "fp16", "fp32"), 2),
        ("m16n8k8", ("tf32", "tf32", "fp32"), 1), ("m16n8k16", ("tf32", "tf32", "fp32"), 2),
        ("m16n8k32", ("int8", "int8", "int32"), 2), ("m16n8k64", ("int8", "int8", "int32"), 4),
        ("m16n8k64", ("int4", "uint4", "int32"), 2), ("m16n8k128", ("int4", "int4", "int32"), 4),
    ],
)  # fmt: skip
def test_sparse_products(name, types, threads):
    bits_of = {"fp16": 16, "bf16": 16, "tf32": 32, "int8": 8, "int4": 4}[types[0]]
    sparse = MMA_SPARSE[name, bits_of]
    held, k = sparse.held, int(name.split("k")[1])
    chunk = {32: 2, 4: 8}.get(bits_of, 4)
    counts = (held.a_count, sparse.b_count, held.c_count)
    for selector in range(4 // threads):
        whole, left, bits = sparse_operand(types[0], 16, k, chunk)
        b, c = small(types[1], (k, 8)), small("int32" if "int" in types[2] else types[2], (16, 8))
        arrays = [
            lanes_of(left, counts[0], held.a, types[0]), lanes_of(b, counts[1], held.b, types[1]),
            lanes_of(c, counts[2], held.c, types[2]),
        ]  # fmt: skip
        kernel = product_kernel(name, types, counts, selector)
        words = metadata(bits, bits_of >= 16, threads, selector)
        launch(kernel, *arrays, words, block=(32, 1, 1))
        np.testing.assert_array_equal(arrays[2], lanes_of(c + whole @ b, counts[2], held.c, types[2]))
        words[selector * threads] = 0x55555555
        with pytest.raises(EmulationError, match="bits 0101") as caught:
            launch(kernel, *arrays, words, block=(32, 1, 1))
        assert "ptx_mma_sp" in caught.value.statement
    with pytest.raises(RelaxishError, match="no sparsity selector"):
        launch(product_kernel(name, types, counts, 4 // threads), *arrays, words, block=(32, 1, 1))


def test_fragments_of_four_bits():
    """``wmma`` of 8 x 8 x 32: fragments from memory with two elements to a byte."""

    @T.prim_func(check_well_formed=False)
    def kernel(A: T.handle("int4", "global"), B: T.handle("int4", "global"), C: T.handle("int32", "global")):
        a = T.decl_buffer((256,), "int4", scope="wmma.matrix_a")
        b = T.decl_buffer((256,), "int4", scope="wmma.matrix_b")
        c = T.decl_buffer((64,), "int32", scope="wmma.accumulator")
        tx = T.launch_thread("threadIdx.x", 32)
        with T.attr(a.data, "fragment_shape", "8, 8, 32"):
            with T.attr(b.data, "fragment_shape", "8, 8, 32"):
                with T.attr(c.data, "fragment_shape", "8, 8, 32"):
                    T.tvm_fill_fragment(c.data, 8, 8, 32, 0, T.float32(0))
                    T.tvm_load_matrix_sync(
                        a.data, 8, 8, 32, 0, T.tvm_access_ptr(T.type_annotation("int4"), A, 0, 256, 1), 32, "row_major"
                    )
                    T.tvm_load_matrix_sync(
                        b.data, 8, 8, 32, 0, T.tvm_access_ptr(T.type_annotation("int4"), B, 0, 256, 1), 32, "col_major"
                    )
                    T.tvm_mma_sync(c.data, 0, a.data, 0, b.data, 0, c.data, 0)
                    T.tvm_store_matrix_sync(
                        c.data, 8, 8, 32, 0, T.tvm_access_ptr(T.type_annotation("int32"), C, 0, 64, 2), 8, "row_major"
                    )

    a, b, c = rng.integers(-8, 8, (8, 32)), rng.integers(-8, 8, (8, 32)), np.zeros((8, 8), "int32")
    launch(kernel, packed(a), packed(b), c, block=(32, 1, 1))
    np.testing.assert_array_equal(c, a @ b.T)
