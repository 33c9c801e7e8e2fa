"""Kernels that were compiled before, in this process or on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...ir import save_json
from ...ir.structural import structural_hash
from ...support.log import get_logger
from ...target import Target
from ...tir import PrimFunc
from . import store
from .kernel import JITKernel
from .options import CompileOptions, kernel_name

__all__ = ["cached", "clear_cache", "kernel_of"]

_log = get_logger("tile")
_MOST = 1024
_KERNELS: OrderedDict[str, JITKernel] = OrderedDict()
_LOCK = threading.Lock()


def _key(func: PrimFunc, options: CompileOptions) -> str:
    return store.key_of("kernel", kernel_name(func), structural_hash(func), save_json(func), options.key())


def kernel_of(func: PrimFunc, options: CompileOptions) -> JITKernel:
    """A kernel, compiled unless it was before."""
    key = _key(func, options)
    with _LOCK:
        found = _KERNELS.get(key)
        if found is not None:
            _KERNELS.move_to_end(key)
            return found
    path = store.entry_path("kernels", key, options.target)
    made: JITKernel | None = store.find(path, lambda folder: JITKernel.load(folder, options))
    if made is None:
        made = JITKernel(func, options=options)
        if options.verbose:
            _log.info("compiled %s for %s", kernel_name(func), options.target)
        store.put(path, made.save)
    elif options.verbose:
        _log.info("%s comes from the cache", kernel_name(func))
    return remember(key, made)


def remember(key: str, kernel: JITKernel) -> JITKernel:
    """Keep a kernel in this process; the one of another thread that was quicker stays."""
    with _LOCK:
        kernel = _KERNELS.setdefault(key, kernel)
        _KERNELS.move_to_end(key)
        while len(_KERNELS) > _MOST:
            _KERNELS.popitem(last=False)
    return kernel


def cached(
    func: PrimFunc,
    out_idx: int | Sequence[int] | None = None,
    *args: Any,
    target: str | Target | None = "auto",
    target_host: str | Target | None = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: dict[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> JITKernel:
    """The kernel of a program, compiled unless it was before, by any process of this user.

    ``args`` are those of the factory that made the program; the program itself says all that matters.
    """
    options = CompileOptions.make(out_idx, execution_backend, target, target_host, verbose, pass_configs, compile_flags)
    return kernel_of(func, options)


def clear_cache() -> None:
    """Forget the kernels of this process, and remove those on disk."""
    import shutil

    with _LOCK:
        _KERNELS.clear()
    path = store.entry_path("kernels", "none")
    for folder in (path.parent, path.parent.parent / "autotuner") if path is not None else ():
        if Path(folder).is_dir():
            shutil.rmtree(folder, ignore_errors=True)
