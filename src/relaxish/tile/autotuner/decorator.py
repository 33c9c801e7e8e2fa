"""``autotune``: a factory of kernels that chooses its own configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..jit import JITImpl, JITKernel
from ..jit.decorator import _frozen
from ..profiler import TensorSupplyType
from .inputs import get_autotune_inputs
from .tuner import AutoTuner

__all__ = ["AutoTuneImpl", "autotune"]


class AutoTuneImpl:
    """A factory of kernels that is tuned once for each set of its other arguments."""

    def __init__(
        self, impl: JITImpl, configs: Any, profile: dict[str, Any], early_stop: tuple[bool, float],
        do_not_specialize: Sequence[str],
    ) -> None:  # fmt: skip
        self.jit_impl = impl
        self.configs = configs
        self.profile = profile
        self.early_stop = early_stop
        self.do_not_specialize = tuple(do_not_specialize)
        unknown = sorted(set(self.do_not_specialize) - set(impl.signature.parameters))
        if unknown:
            raise ValueError(f"do_not_specialize names no parameter of {impl.func.__name__}: {', '.join(unknown)}")
        self._kernels: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, impl.func)

    def get_tunner(self) -> AutoTuner:
        """A tuner with the settings of the decorator."""
        return AutoTuner(self.jit_impl, self.configs).set_profile_args(**self.profile)

    def _tuned(self, kwargs: dict[str, Any]) -> bool:
        """Whether the caller chose a configuration: every parameter that is tuned has a value."""
        if callable(self.configs) or not self.configs:
            return False
        names = {k for c in self.configs for k in c} - {"pass_configs"}
        return bool(names) and names <= set(kwargs)

    def _key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[object, ...] | None:
        bound = self.jit_impl.signature.bind_partial(*args, **kwargs)
        chosen = {k: v for k, v in bound.arguments.items() if k not in self.do_not_specialize}
        key = tuple(sorted((k, _frozen(v)) for k, v in chosen.items()))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel of the fastest configuration for these arguments; of the caller's, where all is chosen."""
        if self._tuned(kwargs):
            return self.jit_impl(*args, **kwargs)
        key = self._key(args, kwargs)
        # What was found on inputs of the caller's is not for others.
        known = None if key is None or get_autotune_inputs() is not None else self._kernels.get(key)
        if known is None:
            stop, factor = self.early_stop
            tuner = self.get_tunner().set_kernel_parameters(args, kwargs)
            known = tuner.run(early_stop=stop, early_stop_factor=factor).kernel
            assert known is not None
            if key is not None and get_autotune_inputs() is None:
                self._kernels[key] = known
        return known


def autotune(
    func: Callable[..., Any] | JITImpl | None = None,
    *,
    configs: Any,
    warmup: float = 25,
    rep: float = 100,
    timeout: float = 100,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[..., Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: Sequence[str] | None = None,
    early_stop: bool = False,
    early_stop_factor: float = 2.0,
) -> Any:
    """Above ``@jit``: choose among ``configs`` (mappings of parameters, or a function of the arguments that gives them)
    the fastest, once for each set of the other arguments.

    The settings are those of ``AutoTuner.set_profile_args``. Arguments named by ``do_not_specialize`` do not cause
    tuning anew. Raises TypeError where it is not above ``@jit``.
    """
    profile = {
        "warmup": warmup, "rep": rep, "timeout": timeout, "supply_type": supply_type, "ref_prog": ref_prog,
        "supply_prog": supply_prog, "rtol": rtol, "atol": atol, "max_mismatched_ratio": max_mismatched_ratio,
        "skip_check": skip_check, "manual_check_prog": manual_check_prog, "cache_input_tensors": cache_input_tensors,
    }  # fmt: skip

    def decorate(function: Any) -> AutoTuneImpl:
        if not isinstance(function, JITImpl):
            raise TypeError("autotune stands above jit: @autotune(configs=...) on the line before @jit(out_idx=...)")
        return AutoTuneImpl(function, configs, profile, (early_stop, early_stop_factor), do_not_specialize or ())

    return decorate(func) if func is not None else decorate
