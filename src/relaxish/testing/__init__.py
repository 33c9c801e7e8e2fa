"""Helpers for tests of user code: comparisons, parameterisation, before/after checks of passes."""

from .compare import assert_allclose, assert_pass, fixture, main, object_use_count, parameter, parameters
from .requires import requires_cuda, requires_gpu, requires_llvm, requires_package

__all__ = [
    "assert_allclose", "assert_pass", "fixture", "main", "object_use_count", "parameter", "parameters", "requires_cuda",
    "requires_gpu", "requires_llvm", "requires_package",
]  # fmt: skip
