"""Compilation, checking and timing arguments of the autotuner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...target import Target
from ...tir import PrimFunc
from ..jit.kernel import JITKernel
from ..jit.options import CompileOptions
from ..profiler import TensorSupplyType

__all__ = ["CompileArgs", "ProfileArgs"]


@dataclass(frozen=True)
class CompileArgs:
    """Arguments of ``compile`` beside the program."""

    out_idx: int | Sequence[int] | None = None
    execution_backend: str | None = None
    target: str | Target | None = "auto"
    target_host: str | Target | None = None
    verbose: bool | None = None
    pass_configs: dict[Any, Any] | None = None

    def options(self, more: dict[Any, Any] | None = None) -> CompileOptions:
        """Checked options, with more options for passes."""
        configs = {**(self.pass_configs or {}), **(more or {})}
        return CompileOptions.make(
            self.out_idx, self.execution_backend, self.target, self.target_host, self.verbose, configs
        )

    def compile_program(self, program: PrimFunc) -> JITKernel:
        """The kernel of a program."""
        from ..jit import compile

        return compile(
            program,
            self.out_idx,
            self.execution_backend,
            self.target,
            self.target_host,
            self.verbose,
            self.pass_configs,
        )


@dataclass(frozen=True)
class ProfileArgs:
    """Arguments of checks and timing; ``warmup`` and ``rep`` are milliseconds, ``timeout`` seconds."""

    warmup: float = 25
    rep: float = 100
    timeout: float = 30
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    backend: str = "event"

    @property
    def programs(self) -> tuple[Any, Any, Any]:
        """The caller's own functions, which no key on disk can stand for."""
        return self.ref_prog, self.supply_prog, self.manual_check_prog

    def key(self) -> dict[str, Any]:
        """Timing arguments as plain data, without the programs."""
        plain = {name: value for name, value in asdict(self).items() if not name.endswith("_prog")}
        return {**plain, "supply_type": TensorSupplyType(self.supply_type).value}
