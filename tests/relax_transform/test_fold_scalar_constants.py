"""FoldConstant on constants without axes."""

from __future__ import annotations

import numpy as np

from relaxish import relax
from relaxish.relax.transform import FoldConstant
from relaxish.script import ir as I
from relaxish.script import relax as R


def test_scalars_keep_their_rank():
    @I.ir_module
    class Before:
        @R.function
        def main() -> R.Tensor((3,), "float32"):
            with R.dataflow():
                chosen = R.where(R.const([True, False, True], "bool"), R.const(2.0, "float32"), R.const(5.0, "float32"))
                R.output(chosen)
            return chosen

    folded = FoldConstant()(Before)["main"].body.body
    assert isinstance(folded, relax.Constant)
    assert np.array_equal(folded.data.numpy(), np.array([2, 5, 2], "float32"))
