"""Comparing each kernel call of a machine with the same function of another build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.device import Device
from ...runtime.arrays.memory import Storage
from ...runtime.arrays.ndarray import NDArray, array

__all__ = ["LibCompareVMInstrument"]


class LibCompareVMInstrument:
    """An instrument that repeats every kernel call with the function of that name in ``mod``, and compares outputs.

    ``mod`` has ``get_function``; ``device`` is where its functions run. Functions it lacks are skipped. Override
    :meth:`compare` for another measure, :meth:`skip_instrument` to leave calls out.

    >>> vm.set_instrument(LibCompareVMInstrument(reference, relaxish.cpu()))  # doctest: +SKIP
    """

    def __init__(self, mod: Any, device: Device, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5) -> None:
        self.mod = mod
        self.device = device
        self.verbose = verbose
        self.counter = 0
        self.rtol = rtol
        self.atol = atol
        self._inputs: list[NDArray] = []

    def compare(
        self, name: str, ref_args: Sequence[NDArray], new_args: Sequence[NDArray], ret_indices: Iterable[int]
    ) -> None:
        """Run the reference on ``ref_args`` and compare the arguments at ``ret_indices``."""
        self.mod.get_function(name, query_imports=True)(*ref_args)
        for index in ret_indices:
            np.testing.assert_allclose(
                new_args[index].numpy(), ref_args[index].numpy(), rtol=self.rtol, atol=self.atol, err_msg=name
            )

    def skip_instrument(self, func: Callable[..., Any], name: str, before_run: bool, ret_val: Any, *args: Any) -> bool:
        """Whether to leave a call out."""
        return False

    def __call__(
        self, func: Callable[..., Any], name: str, before_run: bool, ret_val: NDArray | Storage | None, *args: Any
    ) -> None:
        if name.startswith("vm.builtin.") or any(not isinstance(a, NDArray) for a in args):
            return
        if self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        if before_run:
            self._inputs = [array(a, self.device) for a in args]
            return
        try:
            self.mod.get_function(name, query_imports=True)
        except AttributeError:
            if self.verbose:
                print(f"Cannot find {name}, skip..")
            return
        if self.verbose:
            print(f"[{self.counter}] Validating {name}, shapes={[a.shape for a in args]}")
        self.counter += 1
        # Outputs come last: one, as a kernel has it.
        self.compare(name, self._inputs, args, (len(args) - 1,))
