"""Products with matrices packed as eight 4-bit integers to a word and one scale for 32 elements, as decoders have them."""

from __future__ import annotations

import numpy as np

from relaxish import te, tir, topi

WORD, GROUP = 8, 32


def i64(*values):
    return [v if isinstance(v, tir.Var) else tir.IntImm("int64", v) for v in values]


def decoded(rows, columns, along_rows, name="dequantize"):
    """The packed matrix, its scales, and the (rows, columns) matrix they stand for.

    ``along_rows`` packs the elements of a row; otherwise those of a column, and the matrix is stored (columns, rows).
    """
    if along_rows:
        packed = te.placeholder(i64(rows, columns // WORD), dtype="uint32", name="W")
        scales = te.placeholder(i64(rows, columns // GROUP), dtype="float16", name="S")

        def element(i, j):
            word = tir.bitwise_and(
                tir.shift_right(packed[i, j // WORD], (j % WORD * 4).astype("uint32")), tir.const(15, "uint32")
            )
            return (word.astype("float16") - tir.const(7, "float16")) * scales[i, j // GROUP]

        return packed, scales, te.compute(i64(rows, columns), element, name=name)
    packed = te.placeholder(i64(columns // WORD, rows), dtype="uint32", name="W")
    scales = te.placeholder(i64(columns // GROUP, rows), dtype="float16", name="S")

    def transposed(j, i):
        word = tir.bitwise_and(
            tir.shift_right(packed[j // WORD, i], (j % WORD * 4).astype("uint32")), tir.const(15, "uint32")
        )
        return (word.astype("float16") - tir.const(7, "float16")) * scales[j // GROUP, i]

    return packed, scales, te.compute(i64(columns, rows), transposed, name=name)


def decoding_product(m, rows, columns, along_rows, epilogue=False):
    """``Y[0, m, s] = sum_r X[0, m, r] * W(s, r)``; without ``m`` the product has one row."""
    packed, scales, matrix = decoded(rows, columns, along_rows)
    x = te.placeholder(i64(1, 1 if m is None else m, columns), dtype="float16", name="X")
    r = te.reduce_axis((0, tir.IntImm("int64", columns)), name="r")
    y = te.compute(
        i64(1, 1 if m is None else m, rows),
        lambda b, i, j: te.sum(x[b, i, r] * (matrix[j, r] if along_rows else matrix[r, j]), axis=r),
        name="Y",
    )
    return te.create_prim_func([x, packed, scales, topi.nn.relu(y) if epilogue else y])


def decoding_data(rng, m, rows, columns, along_rows):
    """Operands, room for the result, and the result of NumPy."""
    shape = (rows, columns // WORD) if along_rows else (columns // WORD, rows)
    x = rng.standard_normal((1, m, columns)).astype("float16")
    packed = rng.integers(0, 2**32, shape, dtype="uint64").astype("uint32")
    scales = rng.uniform(0.05, 0.2, (rows, columns // GROUP) if along_rows else (columns // GROUP, rows)).astype(
        "float16"
    )
    words = packed if along_rows else packed.T
    digits = ((words[:, :, None] >> (np.arange(WORD, dtype="uint32") * 4)) & 15).reshape(rows, columns).astype(
        "float64"
    ) - 7
    matrix = digits * np.repeat(scales if along_rows else scales.T, GROUP, axis=1)
    return [x, packed, scales, np.empty((1, m, rows), "float16")], x.astype("float64") @ matrix.T
