"""Matrix products as tensor programs, for tests of instructions that multiply matrices."""

from __future__ import annotations

from relaxish import te
from relaxish.ir.dtype import numpy_dtype


def product(m, n, k, in_dtype, out_dtype, trans_a=False, trans_b=False):
    """``C[m, n] = A B`` with operands widened to ``out_dtype``; transposed ones are stored with axes exchanged."""
    a = te.placeholder((k, m) if trans_a else (m, k), name="A", dtype=in_dtype)
    b = te.placeholder((n, k) if trans_b else (k, n), name="B", dtype=in_dtype)
    r = te.reduce_axis((0, k), name="r")

    def element(i, j):
        left, right = a[(r, i) if trans_a else (i, r)], b[(j, r) if trans_b else (r, j)]
        if in_dtype != out_dtype:
            left, right = left.astype(out_dtype), right.astype(out_dtype)
        return te.sum(left * right, axis=r)

    return te.create_prim_func([a, b, te.compute((m, n), element, name="C")])


def packed_product(m, n, k, a_type, b_type, c_type, pack, bias=False):
    """``C[m, n] = A[m, k] B[k / pack, n, k % pack]``, and with ``bias`` ``E = C + D[n]``."""
    a = te.placeholder((m, k), a_type, name="A")
    b = te.placeholder((k // pack, n, pack), b_type, name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, axis].astype(c_type) * b[axis // pack, j, axis % pack].astype(c_type), axis=axis),
        name="C",
    )
    if not bias:
        return te.create_prim_func([a, b, c])
    d = te.placeholder((n,), c_type, name="D")
    return te.create_prim_func([a, b, d, te.compute((m, n), lambda i, j: c[i, j] + d[j], name="E")])


def random_values(rng, shape, dtype):
    """Normal floats, or integers over the whole range of 8 bits."""
    if dtype in ("bfloat16", "float32"):
        return rng.standard_normal(shape).astype("float32").astype(numpy_dtype(dtype))
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    return rng.integers(low, high, shape).astype(dtype)
