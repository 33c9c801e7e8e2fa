"""Kernels of one's own in tensor programs: ``T.call_kernel`` with CUDA C++ source.

Before and after (the module gets the attribute ``external_mods``)::

    T.call_kernel(source, [(4,), (64,)], A.data, n, kernel_name="scale")
    T.call_packed("scale", A.data, n, 4, 64)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.prim import const
from ...runtime.devices.host_program import KernelInfo
from ...runtime.nvidia.module import CUDAModule
from ...runtime.registry import register_func
from ...script.ir_builder.ir import module_get_attr, module_set_attr
from ...script.ir_builder.tir import KERNEL_HOOKS
from ...support.sequences import as_list
from ...target import Target
from ...tir import Buffer
from ...tir.op import call_packed

__all__ = ["call_kernel", "source_module"]

_DEFAULT_ARCH = "sm_80"
_LONGEST_PATH = 1024
_AXES = "xyz"


def call_kernel(kernel: Any, launch_args: Sequence[int | Sequence[int]], *args: Any, **kwargs: Any) -> PrimExpr:
    """The call of an external kernel, whose module joins those of the program that is being built.

    Raises ValueError for what is no source, for a missing ``kernel_name``, and for launch sizes that are none.
    """
    if not isinstance(kernel, str):
        name = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
        raise ValueError(f"Unsupported kernel type: {name}")
    symbol = kwargs.get("kernel_name")
    if not symbol:
        raise ValueError("T.call_kernel needs kernel_name=, the function of the source to launch")
    params, sizes = _launch(launch_args)
    values = [_argument(a) for a in args]
    kinds = tuple("pointer" if v.dtype == "handle" else v.dtype for v in values)
    before = list(module_get_attr("external_mods") or ())
    if not any(m.implements_function(symbol) for m in before):
        module = source_module(_source(kernel), str(symbol), kinds, params)
        module_set_attr("external_mods", [*before, module], True)
    return call_packed(symbol, *values, *sizes)


def source_module(
    source: str, name: str, kinds: Sequence[str], launch_params: Sequence[str], arch: str = ""
) -> CUDAModule:
    """A device module with one kernel of given source; programs find the kernel by its name as a packed function too."""
    target = Target.current(allow_none=True)
    chosen = arch or str((target.attrs if target is not None else {}).get("arch", _DEFAULT_ARCH))
    info = KernelInfo(name, tuple(kinds), tuple(launch_params))
    module = CUDAModule(source, chosen, [info])
    register_func(name, module.get_function(name), override=True)
    return module


def _source(kernel: str) -> str:
    """Source text, also of a file that is named."""
    if len(kernel) <= _LONGEST_PATH and "\n" not in kernel and Path(kernel).is_file():
        return Path(kernel).read_text()
    return kernel


def _launch(launch_args: Sequence[int | Sequence[int]]) -> tuple[list[str], list[Any]]:
    """(names, values) of the launch sizes."""
    parts = list(launch_args)
    if len(parts) not in (2, 3):
        raise ValueError(
            "launch_args are the sizes of the grid and of the block, and the bytes of dynamic shared memory"
        )
    names, values = [], []
    for tag, part in zip(("blockIdx", "threadIdx"), parts, strict=False):
        sizes = as_list(part)
        if not 1 <= len(sizes) <= len(_AXES):
            raise ValueError(f"{tag} has one to three sizes, not {len(sizes)}")
        names += [f"{tag}.{axis}" for axis in _AXES[: len(sizes)]]
        values += sizes
    if len(parts) == 3:
        names.append("tir.use_dyn_shared_memory")
        values += as_list(parts[2])[:1]
    return names, values


def _argument(value: PrimExpr) -> PrimExpr:
    match value:
        case Buffer():
            return value.data
        case bool() | int() | float():
            return const(value, "int32" if isinstance(value, int) else "float32")
    return value


KERNEL_HOOKS["call_kernel"] = call_kernel
