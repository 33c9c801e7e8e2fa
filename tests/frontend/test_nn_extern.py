"""External functions in C++ as parts of a module."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from relaxish.frontend import nn
from relaxish.frontend.nn import spec
from relaxish.support.errors import RelaxishError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")

_CODE = """
#include "dlpack.h"
extern "C" int scaled_sum(DLTensor* a, DLTensor* b, double scale, DLTensor* out) {
  if (a->ndim != 1 || a->dtype.code != 2 || a->dtype.bits != 32) return 1;
  for (int64_t i = 0; i < a->shape[0]; ++i)
    ((float*)out->data)[i] = ((float*)a->data)[i] + scale * ((float*)b->data)[i];
  return 0;
}
"""


def like_first(a: nn.Tensor, b: nn.Tensor, scale: float) -> nn.Tensor:
    return nn.Tensor.placeholder(a.shape, a.dtype)


class Net(nn.Module):
    def __init__(self, code: str = _CODE) -> None:
        self.extern = nn.SourceModule({"scaled_sum": like_first}, code, "cpp")

    def forward(self, a: nn.Tensor, b: nn.Tensor) -> nn.Tensor:
        return nn.op.relu(self.extern["scaled_sum"](a, b, 0.5))


def described(dtype: str = "float32") -> dict[str, Any]:
    item = spec.Tensor([4], dtype)
    return {"forward": {"a": item, "b": item}}


def test_compiled_source_is_called() -> None:
    a, b = np.array([1, -2, 3, -4], "float32"), np.array([2, 2, -8, 2], "float32")
    got = Net().jit(described(), out_format="numpy")["forward"](a, b)
    np.testing.assert_allclose(got, np.maximum(a + 0.5 * b, 0))


def test_export_gives_the_external_modules_back() -> None:
    net = Net()
    mod, params, externs = net.export_tvm(described(), allow_extern=True)
    assert externs == [net.extern] and params == []
    assert "scaled_sum" in mod.script()
    with pytest.raises(ValueError, match="allow_extern"):
        net.export_tvm(described())


def test_failures_are_told() -> None:
    with pytest.raises(RelaxishError, match="compiling the external module failed"):
        Net("this is no C++").jit(described())
    model = Net().jit(described("float64"), out_format="numpy")
    with pytest.raises(RelaxishError, match="scaled_sum failed with code 1"):
        model["forward"](np.zeros(4), np.zeros(4))
