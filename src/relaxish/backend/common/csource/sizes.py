"""Element counts of a kernel's arrays."""

from __future__ import annotations


from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.prim import IntImm
from ....support.errors import RelaxishError
from ....tir.stmt import Allocate

__all__ = ["array_size"]

_MOST = 1 << 31


def array_size(stmt: Allocate, analyzer: Analyzer) -> int:
    """Elements of an allocation, vectors counted by their lanes; extents may be symbolic if they have a bound.

    Raises RelaxishError where they have none: memory of kernels is of constant size.
    """
    count = dt.lanes(stmt.dtype)
    for extent in stmt.extents:
        value = analyzer.simplify(extent)
        bound = int(value.value) if isinstance(value, IntImm) else int(analyzer.const_int_bound(value).max_value)
        if bound >= _MOST:
            raise RelaxishError(f"the array {stmt.buffer_var.name} of a kernel must have a constant size, not {extent}")
        count *= max(1, bound)
    return count
