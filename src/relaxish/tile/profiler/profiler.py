"""The profiler of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime import Device
from ...support.errors import RelaxishError
from ..jit.calling import to_numpy
from .bench import do_bench
from .compare import difference
from .supply import TensorSupplyType, get_tensor_supply

if TYPE_CHECKING:
    from ..jit.kernel import JITKernel

__all__ = ["Profiler", "listed"]


class Profiler:
    """Times a kernel and compares it with programs that are right, on inputs of ``supply_type``."""

    def __init__(self, kernel: JITKernel, supply_type: TensorSupplyType = TensorSupplyType.Auto) -> None:
        self.kernel = kernel
        self.supply_type = TensorSupplyType(supply_type)

    @property
    def params(self) -> list[Any]:
        """All parameters of the kernel."""
        return self.kernel.params

    @property
    def result_idx(self) -> list[int]:
        """Indices of the outputs among the arguments."""
        return self.kernel.out_idx

    @property
    def func(self) -> JITKernel:
        """The kernel."""
        return self.kernel

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)

    def _get_inputs(self, with_output: bool = False) -> list[Any]:
        """Inputs of the kernel; with tensors for its outputs, too, if asked for."""
        supply = get_tensor_supply(self.supply_type, self.kernel.device)
        return [supply(p) for i, p in enumerate(self.params) if with_output or i not in self.result_idx]

    def _inputs(self, given: Sequence[Any] | None) -> list[Any]:
        return self._get_inputs() if given is None else list(given)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Call the kernel, or another function, once."""
        return (func or self.kernel)(*self._get_inputs())

    # ---- right or wrong

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare with a program that is right; AssertionError where more than ``max_mismatched_ratio`` of the numbers
        of an output differ by more than ``atol + rtol * |expected|``.

        A kernel without outputs is compared by what it leaves in the parameters that it writes.
        """
        inputs = self._inputs(input_tensors)
        expected = listed(reference_program(*[_copied(x) for x in inputs]))
        got = self._outputs(inputs)
        if len(got) != len(expected):
            raise AssertionError(f"the kernel gives {len(got)} outputs, the reference {len(expected)}")
        for index, (a, b) in enumerate(zip(got, expected, strict=True)):
            reason = difference(to_numpy(a), to_numpy(b), rtol, atol, max_mismatched_ratio)
            if reason:
                raise AssertionError(f"output {index} of {self.kernel.spec.name}: {reason}")

    def _outputs(self, inputs: Sequence[Any]) -> list[Any]:
        """What the kernel gives; without outputs, what it leaves in the parameters that it writes."""
        values = [_copied(x) for x in inputs]
        found = self.kernel(*values)
        if self.result_idx:
            return listed(found)
        written = self.kernel.spec.written
        return [values[i] for i in (range(len(values)) if written is None else written)]

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Have ``manual_check_prog(kernel's outputs, reference's outputs)`` compare; it raises where they differ."""
        if manual_check_prog is None:
            raise ValueError("give manual_check_prog, or use assert_allclose")
        inputs = self._inputs(input_tensors)
        expected = listed(reference_program(*[_copied(x) for x in inputs]))
        manual_check_prog(self._outputs(inputs), expected)

    def assert_consistent(self, repeat: int = 10) -> None:
        """Run several times on the same inputs; AssertionError where the outputs are not the same bits."""
        inputs = self._get_inputs()
        first = [to_numpy(x).copy() for x in self._outputs(inputs)]
        for run in range(repeat):
            again = [to_numpy(x) for x in self._outputs(inputs)]
            for index, (a, b) in enumerate(zip(first, again, strict=True)):
                if a.tobytes() != b.tobytes():
                    raise AssertionError(f"output {index} of {self.kernel.spec.name} is another in run {run + 2}")

    # ---- fast or slow

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        **kwargs: Any,
    ) -> Any:
        """Milliseconds of a call of the kernel, or of another function of the same inputs.

        ``warmup`` and ``rep`` are milliseconds, ``n_warmup`` and ``n_repeat`` calls. Of the kernel only the work is
        timed: outputs are allocated, and tensors of the host are on the device, before.
        """
        inputs = self._inputs(input_tensors)
        place = self.kernel.device
        options: dict[str, Any] = {
            "warmup": warmup, "rep": rep, "_n_warmup": n_warmup, "_n_repeat": n_repeat, "quantiles": quantiles,
            "backend": backend, "return_mode": return_mode, "device": place,
        }  # fmt: skip
        if func is not None and func is not self.kernel:
            return do_bench(lambda: func(*inputs, **kwargs), **options)
        caller = self.kernel.adapter
        values = caller.arguments(inputs)
        placed = values if place.device_type == Device.kDLCPU else [caller.placed(v) for v in values]
        return do_bench(lambda: caller.run(*placed), **options)


def listed(value: Any) -> list[Any]:
    """Results of a program as a list. Raises RelaxishError for nothing."""
    if value is None:
        raise RelaxishError("the reference returns nothing; let it return what the kernel is to compute")
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _copied(value: Any) -> Any:
    """The same numbers in other memory, so that a program may write to them."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if hasattr(value, "clone"):
        return value.clone()
    return value.copyto(value.device) if hasattr(value, "copyto") else value
