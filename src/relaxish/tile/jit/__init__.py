"""Compiling tile programs: ``jit``, ``compile``, ``par_compile``, and the kernels they give."""

from .cache import cached, clear_cache
from .decorator import JITImpl, compile, jit, par_compile
from .kernel import JITKernel, KernelParam
from .options import CompileOptions

__all__ = [
    "CompileOptions", "JITImpl", "JITKernel", "KernelParam", "cached", "clear_cache", "compile", "jit", "par_compile",
]  # fmt: skip
