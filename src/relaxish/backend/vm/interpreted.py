"""Kernels run by the reference interpreter in place of machine code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...ir.module import IRModule, functions_of
from ...ir.prim import const_int
from ...runtime.kernels.kernel import KernelSpec, ParamSpec
from ...runtime.arrays.ndarray import NDArray
from ...tir.function import PrimFunc
from ..common.signature import written_params
from .codegen import symbol_of


def signature_of(name: str, func: PrimFunc) -> KernelSpec:
    """Signature of a PrimFunc, without shape variables: the interpreter binds them itself."""
    params = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            params.append(ParamSpec("scalar", param.dtype))
        else:
            dims = tuple(const_int(d, str(d)) for d in buffer.shape)
            params.append(ParamSpec("tensor", buffer.dtype, dims))
    return KernelSpec(name, tuple(params), written=written_params(func))


def interpreted_kernels(mod: IRModule) -> Iterator[tuple[KernelSpec, Callable[..., Any]]]:
    """Signature and Python function of every PrimFunc of a module."""
    for var, func in functions_of(mod, PrimFunc):
        name = symbol_of(var, func)
        yield signature_of(name, func), _runner(func)


def _runner(func: PrimFunc) -> Callable[..., None]:
    def run(*args: Any) -> None:
        from ...interp import run_primfunc

        run_primfunc(func, *[a._host() if isinstance(a, NDArray) else a for a in args])

    return run
