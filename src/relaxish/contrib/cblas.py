"""Matrix products by the library behind NumPy, as external operators of tensor expressions.

>>> a, b = te.placeholder((4, 8)), te.placeholder((8, 2))  # doctest: +SKIP
>>> c = cblas.matmul(a, b)  # doctest: +SKIP
"""

from __future__ import annotations

import numpy as np

from .. import te, tir
from ..ir.expr import PrimExpr
from ..runtime.arrays.ndarray import NDArray
from ..runtime.registry import register_func

__all__ = ["batch_matmul", "matmul"]


def matmul(lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, tag: str = "") -> te.Tensor:
    """``lhs @ rhs`` of two matrices, each transposed if so said."""
    n = lhs.shape[1] if transa else lhs.shape[0]
    m = rhs.shape[0] if transb else rhs.shape[1]
    return _product("tvm.contrib.cblas.matmul", [n, m], lhs, rhs, transa, transb, tag)


def batch_matmul(
    lhs: te.Tensor,
    rhs: te.Tensor,
    transa: bool = False,
    transb: bool = False,
    iterative: bool = False,
    tag: str = "",
) -> te.Tensor:
    """:func:`matmul` for each matrix of a batch; ``iterative`` asks for one product after the other."""
    n = lhs.shape[2] if transa else lhs.shape[1]
    m = rhs.shape[1] if transb else rhs.shape[2]
    name = "tvm.contrib.cblas.batch_matmul_iterative" if iterative else "tvm.contrib.cblas.batch_matmul"
    return _product(name, [lhs.shape[0], n, m], lhs, rhs, transa, transb, tag)


def _product(
    name: str, shape: list[PrimExpr], lhs: te.Tensor, rhs: te.Tensor, transa: bool, transb: bool, tag: str
) -> te.Tensor:
    made: te.Tensor = te.extern(
        shape,
        [lhs, rhs],
        lambda ins, outs: tir.call_packed(name, ins[0], ins[1], outs[0], transa, transb),
        name="C",
        dtype=lhs.dtype,
        tag=tag,
    )
    return made


@register_func("tvm.contrib.cblas.matmul", override=True)
@register_func("tvm.contrib.cblas.batch_matmul", override=True)
@register_func("tvm.contrib.cblas.batch_matmul_iterative", override=True)
def _matmul(lhs: NDArray, rhs: NDArray, out: NDArray, transa: bool, transb: bool) -> None:
    a, b = (np.swapaxes(t.numpy(), -1, -2) if turned else t.numpy() for t, turned in ((lhs, transa), (rhs, transb)))
    out.copyfrom(np.matmul(a, b))
