"""Compile options of a kernel: target, outputs, pass options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.transform import PassContext
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...target import Target
from ...tir import PrimFunc
from ...ir.plain import plain_str

__all__ = ["CompileOptions", "known_pass_configs", "resolve_out_idx", "resolve_target"]

_log = get_logger("tile")
# The field's names for ways of calling a kernel; here there is one.
_BACKENDS = ("auto", "cython", "ctypes", "dlpack", "tvm_ffi", "nvrtc", "torch", "cutedsl")
_DROPPED: set[str] = set()


def resolve_target(target: str | Target | None, target_host: str | Target | None = None) -> Target:
    """The target asked for; ``"auto"`` and None stand for the one in scope, else a CUDA device of this machine, else
    its processor."""
    found: Target | None
    if target is None or (isinstance(target, str) and target == "auto"):
        found = Target.current(allow_none=True) or _own_device() or Target("llvm")
    else:
        found = target if isinstance(target, Target) else Target(target)
    return found if target_host is None else Target(found, host=target_host)


def _own_device() -> Target | None:
    from ...runtime import cuda

    try:
        return Target.from_device(cuda(0)) if cuda(0).exist else None
    except (RelaxishError, RuntimeError, ValueError):
        return None


def known_pass_configs(pass_configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The options that passes here have; those of other compilers' passes (``tl.``) are left out, which is said once."""
    found: dict[str, Any] = {}
    for key, value in (pass_configs or {}).items():
        name = plain_str(key)
        if name.startswith("tl."):
            if name not in _DROPPED:
                _DROPPED.add(name)
                _log.warning("the pass option %s has no meaning here and is left out", name)
        else:
            found[name] = value
    return found


def resolve_out_idx(out_idx: int | Sequence[int] | None, count: int) -> list[int]:
    """The places of outputs among ``count`` parameters, none negative. Raises ValueError for one that is not there."""
    given = [] if out_idx is None else [out_idx] if isinstance(out_idx, int) else list(out_idx)
    found = []
    for index in given:
        if not isinstance(index, int) or not -count <= index < count:
            raise ValueError(f"out_idx {index} is not among the {count} parameters of the kernel")
        found.append(index % count)
    if len(set(found)) != len(found):
        raise ValueError(f"out_idx names a parameter twice: {given}")
    return found


@dataclass(frozen=True)
class CompileOptions:
    """Compile options of a kernel. ``key()`` tells options apart."""

    target: Target
    out_idx: int | Sequence[int] | None = None
    pass_configs: dict[str, Any] = field(default_factory=dict)
    execution_backend: str = "auto"
    verbose: bool = False

    @staticmethod
    def make(
        out_idx: int | Sequence[int] | None = None,
        execution_backend: str | None = None,
        target: str | Target | None = None,
        target_host: str | Target | None = None,
        verbose: bool | None = None,
        pass_configs: Mapping[Any, Any] | None = None,
        compile_flags: Sequence[str] | str | None = None,
    ) -> CompileOptions:
        """Checked options. Raises ValueError for an unknown backend, RelaxishError for flags nobody takes."""
        if execution_backend is not None and execution_backend not in _BACKENDS:
            raise ValueError(f"unknown execution backend {execution_backend!r}; expected one of {', '.join(_BACKENDS)}")
        if compile_flags:
            raise RelaxishError(
                f"compile_flags {compile_flags!r}: kernels are not compiled by a program that takes flags; use "
                "pass_configs, or the options of the target"
            )
        configs = known_pass_configs(pass_configs)
        PassContext(config=configs)  # says now what is wrong with them
        return CompileOptions(
            resolve_target(target, target_host), out_idx, configs, execution_backend or "auto", bool(verbose)
        )

    def key(self) -> list[Any]:
        """Plain data that tells one way of compiling from another."""
        out_idx = self.out_idx if self.out_idx is None or isinstance(self.out_idx, int) else list(self.out_idx)
        configs = {name: repr(value) for name, value in sorted(self.pass_configs.items())}
        return [str(self.target), str(self.target.host), out_idx, configs]


def kernel_name(func: PrimFunc) -> str:
    """Name of the kernel in compiled code."""
    return str((func.attrs or {}).get("global_symbol") or "main")
