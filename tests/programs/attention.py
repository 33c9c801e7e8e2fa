"""Attention as graph programs."""

from __future__ import annotations

from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Stacked:
    """Attention whose query, key and value are one tensor, one behind the other along the last axis."""

    @R.function
    def main(qkv: R.Tensor((2, 16, 192), "float16")):
        with R.dataflow():
            parts = R.split(qkv, 3, axis=2)
            q = R.reshape(parts[0], (2, 16, 4, 16))
            k = R.reshape(parts[1], (2, 16, 4, 16))
            v = R.reshape(parts[2], (2, 16, 4, 16))
            out = R.nn.attention(q, k, v)
            R.output(out)
        return out
