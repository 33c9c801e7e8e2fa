"""Running scheduled GPU programs on the CPU in tests."""

from __future__ import annotations

from typing import Any

from ..backend.emulator import emulate
from ..ir.module import IRModule
from ..target.target import Target
from ..tir.function import PrimFunc

__all__ = ["emulate_cuda"]


def emulate_cuda(
    func_or_mod: IRModule | PrimFunc,
    *arrays: Any,
    target: Target | str = "nvidia/nvidia-a100",
    check: bool = True,
    **limits: Any,
) -> None:
    """Run a scheduled GPU program on the CPU, writing results into the arrays given.

    With ``check``, data races, accesses out of bounds, misaligned vectors, reads of shared memory nobody wrote,
    barriers in divergent branches and deadlocks raise an :class:`~relaxish.backend.emulator.EmulationError`
    that names kernel, buffer, index, block, thread and statement. ``limits`` are ``max_steps`` and ``shared_limit``.

    >>> import numpy as np
    >>> from relaxish import te
    >>> from relaxish.dlight import gpu
    >>> from relaxish.ir import IRModule
    >>> from relaxish.target import Target
    >>> a = te.placeholder((100,), name="A")
    >>> func = te.create_prim_func([a, te.compute((100,), lambda i: a[i] + 1)])
    >>> target = Target("nvidia/nvidia-a100")
    >>> scheduled = gpu.Fallback().apply(func, target, False).mod["main"]
    >>> x, y = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    >>> emulate_cuda(scheduled, x, y)
    >>> bool((y == x + 1).all())
    True
    """
    emulate(func_or_mod, *arrays, target=target, check=check, **limits)
