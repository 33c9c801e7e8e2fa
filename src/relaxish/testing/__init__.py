"""Helpers for tests of user code: comparisons, parameterisation, requirements, before/after checks of passes."""

from ..support.entry_points import lazy_package
from .before_after import CompareBeforeAfter
from .conditions import *  # noqa: F403
from .conditions import __all__ as _conditions
from .compare import assert_allclose, assert_pass, fixture, main, object_use_count, parameter, parameters
from .emulation import emulate_cuda
from .fake_cuda import FakeCUDA, FakeImage, use_cuda_provider
from .features import *  # noqa: F403
from .features import __all__ as _features
from .numeric import assert_prim_expr_equal, check_bool_expr_is_true, check_numerical_grads, echo, nop
from .targets import device_enabled, enabled_targets, exclude_targets, known_failing_targets, parametrize_targets

__getattr__, __dir__ = lazy_package(globals())  # the classes of contracts need the layers they are about

__all__ = [
    "CompareBeforeAfter", "FakeCUDA", "FakeImage", "assert_allclose", "assert_pass", "assert_prim_expr_equal",
    "check_bool_expr_is_true", "check_numerical_grads", "device_enabled", "echo", "emulate_cuda",
    "enabled_targets",
    "exclude_targets", "fixture", "known_failing_targets", "main", "nop", "object_use_count", "parameter",
    "parameters", "parametrize_targets", "use_cuda_provider", *_conditions, *_features,
]  # fmt: skip
