"""Executable: anything that was compiled, and the wrapper that makes one of a module.

What ``relaxish.compile`` returns, for loop programs as for models, is an ``Executable``; ``Executable(module)`` wraps a
module of kernels.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Sequence
from typing import Any

from .executable import VMExecutable
from ..kernels.module import Module

__all__ = ["Executable"]


class Executable(abc.ABC):  # a class of classes: compiled things are registered with it
    """A compiled module: called like its entry function, with functions by name."""

    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self._jitted_mod: Module | None = None

    def jit(
        self,
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        force_recompile: bool = False,
        **kwargs: Any,
    ) -> Module:
        """The module, ready to run: the same one each time, unless a new one is asked for."""
        if self._jitted_mod is None or force_recompile:
            self._jitted_mod = self.mod.copy() if self._jitted_mod is not None else self.mod
        return self._jitted_mod

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.jit()[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.jit().entry_func(*args, **kwargs)

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., Any] | str | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Write a shared object and its manifest; load with :func:`relaxish.runtime.load_module`."""
        return self.mod.export_library(file_name, fcompile, addons, workspace_dir, **kwargs)


Executable.register(Module)
Executable.register(VMExecutable)
