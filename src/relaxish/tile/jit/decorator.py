"""``jit``: from functions that write programs to kernels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir import IRModule
from ...meta_schedule.measure import Candidate, MeasureEngine
from ...meta_schedule.runner import LocalRunner
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...target import Target
from ...tir import PrimFunc
from . import store
from .cache import _key, kernel_of, remember
from .kernel import JITKernel
from .options import CompileOptions, kernel_name
from .workers import end_workers, warm_builder, worker_count

__all__ = ["JITImpl", "compile", "jit", "par_compile"]

_log = get_logger("tile")


def compile(
    func: PrimFunc,
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    verbose: bool | None = None,
    pass_configs: dict[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> JITKernel:
    """Compile a program to a kernel, or find it among those compiled before.

    ``out_idx`` names the parameters that are outputs, by place, negative ones from the end. ``target`` is by default
    the one in scope, else a CUDA device of this machine, else its processor. Raises TypeError for what is no PrimFunc.
    """
    if not isinstance(func, PrimFunc):
        raise TypeError(f"compile takes a PrimFunc, not a {type(func).__name__}; call the factory of kernels first")
    options = CompileOptions.make(out_idx, execution_backend, target, target_host, verbose, pass_configs, compile_flags)
    return kernel_of(func, options)


def _compile_in_worker(mod: Any, target: Target, params: dict[str, Any]) -> str:
    """In a worker: compile, and put the kernel into a folder; its path."""
    from pathlib import Path

    (func,) = mod.functions.values()
    kernel = JITKernel(func, options=params["options"])
    kernel.save(Path(params["folder"]))
    store.seal(Path(params["folder"]))
    return str(params["folder"])


def par_compile(
    funcs: Iterable[PrimFunc],
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    verbose: bool | None = None,
    pass_configs: dict[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
    num_workers: int | None = None,
    ignore_error: bool = False,
) -> list[Any]:
    """Compile programs in worker processes, ``num_workers`` at a time; kernels in the order given.

    With ``ignore_error`` those that fail give None, else the first failure is a RelaxishError.
    """
    programs = list(funcs)
    options = CompileOptions.make(out_idx, execution_backend, target, target_host, verbose, pass_configs, compile_flags)
    return _compile_all(programs, options, num_workers, ignore_error)


def _compile_all(
    programs: Sequence[PrimFunc], options: CompileOptions, num_workers: int | None, ignore_error: bool
) -> list[Any]:
    import os
    import shutil
    import tempfile
    from pathlib import Path

    if store.is_emulated(options.target):  # its kernels cannot leave the process that compiles them
        return [_or_none(p, options, ignore_error) for p in programs]
    keys = [_key(p, options) for p in programs]
    paths = [store.entry_path("kernels", key, options.target) for key in keys]
    found = [store.find(path, lambda folder: JITKernel.load(folder, options)) for path in paths]
    todo = [i for i in range(len(programs)) if found[i] is None and keys.index(keys[i]) == i]
    workers = min(num_workers or worker_count(len(todo)), max(1, len(todo)))
    builder = warm_builder(_compile_in_worker, 600.0, workers)
    folder = tempfile.mkdtemp(prefix="relaxish-tile-")
    try:
        candidates = []
        for index in todo:
            place = os.path.join(folder, str(index))
            os.mkdir(place, 0o700)
            mod = IRModule({kernel_name(programs[index]): programs[index]})
            params = {"options": options, "folder": place}
            candidates.append(Candidate(functools.partial(_itself, mod), args_info=(), params=params))
        engine = MeasureEngine(options.target, builder, LocalRunner())
        for index, built in zip(todo, engine.build(candidates), strict=True):
            if built.artifact is None:
                message = f"the kernel {index} ({kernel_name(programs[index])}) cannot be compiled: {built.error}"
                if not ignore_error:
                    raise RelaxishError(message)
                _log.warning("%s", message)
                continue
            made = Path(str(built.artifact))
            store.put(paths[index], functools.partial(_copy_entry, made))
            kernel = JITKernel.load(made, options)
            kernel.settle(programs[index], paths[index])
            found[index] = kernel
    except BaseException:
        end_workers()  # what was begun is nobody's any more
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first = {key: kernel for key, kernel in zip(keys, found, strict=True) if kernel is not None}
    return [remember(key, first[key]) if key in first else None for key in keys]


def _itself(mod: IRModule) -> IRModule:
    return mod


def _or_none(program: PrimFunc, options: CompileOptions, ignore_error: bool) -> JITKernel | None:
    try:
        return kernel_of(program, options)
    except Exception as err:  # whatever the compiler says about it
        if not ignore_error:
            raise
        _log.warning("%s cannot be compiled: %s", kernel_name(program), err)
        return None


def _copy_entry(source: Any, target: Any) -> None:
    import shutil

    for path in source.iterdir():
        shutil.copy(path, target / path.name)


class JITImpl:
    """A factory of kernels: called with its arguments it writes a program, which is compiled once."""

    def __init__(self, func: Callable[..., Any], **options: Any) -> None:
        self.func = func
        self.signature = inspect.signature(func)
        self._options = options
        self._kernels: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, func)

    @functools.cached_property
    def options(self) -> CompileOptions:
        """Compile options of its kernels; the target is chosen when it is first asked for."""
        return CompileOptions.make(**self._options)

    def with_pass_configs(self, pass_configs: dict[Any, Any] | None) -> CompileOptions:
        """The options, with more options for passes."""
        if not pass_configs:
            return self.options
        given = {**(self._options.get("pass_configs") or {}), **pass_configs}
        return CompileOptions.make(**{**self._options, "pass_configs": given})

    def get_tir(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The program for some arguments. Raises TypeError if the factory gives something else."""
        made = self.func(*args, **kwargs)
        if not isinstance(made, PrimFunc):
            raise TypeError(
                f"the factory {self.func.__name__} must return a PrimFunc (the function under @T.prim_func), got "
                f"{type(made).__name__}"
            )
        return made

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for some arguments, compiled unless it was before."""
        kernel = kernel_of(self.get_tir(*args, **kwargs), self.options)
        return kernel

    def par_compile(
        self, configs: Iterable[Any], num_workers: int | None = None, ignore_error: bool = False
    ) -> list[Any]:
        """Kernels for several sets of arguments (each a tuple or a mapping), compiled in worker processes."""
        programs = [self.get_tir(**c) if hasattr(c, "keys") else self.get_tir(*c) for c in configs]
        return _compile_all(programs, self.options, num_workers, ignore_error)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The code of the kernel for some arguments."""
        return self(*args, **kwargs).get_kernel_source()

    def key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[object, ...] | None:
        """Hashable key of a set of arguments; None where arguments cannot be compared."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = tuple((name, _frozen(value)) for name, value in bound.arguments.items())
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        key = self.key(args, kwargs)
        found = self._kernels.get(key) if key is not None else None
        if found is None:
            found = self.compile(*args, **kwargs)
            if key is not None:
                self._kernels[key] = found
        return found


def _frozen(value: Any) -> tuple[object, ...]:
    match value:
        case list() | tuple():
            return (type(value).__name__, *map(_frozen, value))
        case dict():
            return ("dict", *((k, _frozen(v)) for k, v in sorted(value.items(), key=repr)))
    # 1, 1.0 and True are equal, and write different programs.
    return (type(value).__name__, value)


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: str | Target | None = "auto",
    target_host: str | Target | None = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: dict[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> Any:
    """Make a factory of programs a factory of kernels: ``@jit`` or ``@jit(out_idx=[-1])`` above a function that returns a
    PrimFunc.

    Each set of arguments is compiled once. With ``debug_root_path`` the code of kernels is written there.
    """

    def decorate(function: Callable[..., Any]) -> JITImpl:
        if isinstance(function, PrimFunc):
            raise TypeError("jit decorates a function that returns a PrimFunc; compile(...) takes the PrimFunc itself")
        impl = JITImpl(
            function, out_idx=out_idx, target=target, target_host=target_host, execution_backend=execution_backend,
            verbose=verbose, pass_configs=pass_configs, compile_flags=compile_flags,
        )  # fmt: skip
        return impl if debug_root_path is None else _Dumping(impl, debug_root_path)

    return decorate(func) if func is not None else decorate


class _Dumping(JITImpl):
    """A factory that also writes the code of its kernels to a folder."""

    def __init__(self, impl: JITImpl, folder: str) -> None:
        super().__init__(impl.func, **impl._options)
        self._folder = folder

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        from pathlib import Path

        kernel = super().compile(*args, **kwargs)
        folder = Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.func.__name__}.py").write_text(kernel.prim_func.script())
        (folder / f"{self.func.__name__}.kernel.txt").write_text(kernel.get_kernel_source())
        return kernel
