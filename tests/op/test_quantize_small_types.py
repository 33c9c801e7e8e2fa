"""Quantisation to numbers of a few bits and to floats of a byte: for all, by channel, by block."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs.one_call import run

from relaxish import op
from relaxish.relax import BlockBuilder, TensorStructInfo, Var
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.support.errors import RelaxishError

KINDS = [
    "int8", "uint8", "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float4_e2m1fn",
]  # fmt: skip
# Shape of scale and zero point, and the axis, for data of 4 x 12.
GRAINS = {"all": ((), -1), "channel": ((4,), 0), "block": ((4, 3), 1), "element": ((4, 12), 1)}


def spread(table: Any, grain: str) -> Any:
    """Scale or zero point as one float32 for each element."""
    wide = table.astype("float32")
    return {"all": lambda: wide, "channel": lambda: wide[:, None], "block": lambda: np.repeat(wide, 4, 1)}.get(
        grain, lambda: wide
    )()


@pytest.mark.parametrize("grain", list(GRAINS))
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, grain: str) -> None:
    shape, axis = GRAINS[grain]
    rng = np.random.default_rng(KINDS.index(kind))
    made = numpy_dtype(kind)
    x = rng.uniform(-9, 9, (4, 12)).astype("float32")
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = 1e6, -1e6, np.inf, -np.inf
    scale = np.asarray(rng.choice([0.25, 0.5, 1, 2], shape), "float32")
    zero = np.asarray(rng.integers(0, 2, shape)).astype(made)
    limits = ml_dtypes.finfo(made) if "float" in kind else ml_dtypes.iinfo(made)
    steps = x / spread(scale, grain)
    steps = (steps if "float" in kind else np.round(steps)) + spread(zero, grain)
    want = np.clip(steps, float(limits.min), float(limits.max)).astype(made)
    got = run(lambda a, s, z: op.quantize(a, s, z, axis, kind), [x, scale, zero], None, {})
    np.testing.assert_array_equal(got, want.astype("float64"))
    back = run(lambda a, s, z: op.dequantize(a, s, z, axis, "float32"), [want, scale, zero], None, {})
    exact = (want.astype("float32") - spread(zero, grain)) * spread(scale, grain)
    np.testing.assert_array_equal(back.astype("float32"), exact)


def test_blocks_must_divide() -> None:
    def info(name: str, *shape: int, dtype: str = "float32") -> Var:
        return Var(name, TensorStructInfo(shape, dtype))

    for shape in ((4, 5), (3, 3), (4, 3, 1)):
        call = op.quantize(info("x", 4, 12), info("s", *shape), info("z", *shape, dtype="int4"), 1, "int4")
        with pytest.raises((RelaxishError, ValueError), match="blocks"):
            BlockBuilder().normalize(call)
