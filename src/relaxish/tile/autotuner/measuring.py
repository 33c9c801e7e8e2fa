"""Configurations on the measuring engine: what is built, run and compared in its workers."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import IRModule
from ...ir import dtype as dt
from ...ir.transform import PassContext
from ...meta_schedule.arg_info import ArgInfo
from ...meta_schedule.builder.device_artifact import build_for_device, is_device_target
from ...meta_schedule.verdicts.judge import Verdict
from ...meta_schedule.measure import CheckFailedError
from ...meta_schedule.measure.status import status_of_task
from ...meta_schedule.runner import LocalRunner
from ...meta_schedule.runner.steps import is_host
from ...runtime import Device, cpu
from ...runtime.kernels.module import Module
from ...runtime.nvidia import providers
from ...target import Target
from ..jit.calling import to_numpy
from ..jit.kernel import KernelParam
from ..profiler.compare import difference
from ..profiler.profiler import listed
from ..profiler.supply import TensorSupplyType, as_tensor, supply_arrays
from .params import ProfileArgs

__all__ = ["Inputs", "ProgramValidator", "Supplied", "allocate", "build_config", "evaluate_on_host"]


# ---- arguments


class Supplied(ArgInfo):
    """One parameter of a kernel, and the array or number to run it with where the caller gave one."""

    def __init__(self, param: KernelParam, value: Any = None) -> None:
        self.param = param
        self.value = value

    @property
    def dtype(self) -> str:
        """The type of its numbers."""
        return self.param.dtype

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Its extents."""
        return self.param.shape

    def as_json(self) -> list[Any]:
        return ["TENSOR", self.param.dtype, list(self.param.shape)]


def allocate(kind: TensorSupplyType, device: Device, args_info: Sequence[Supplied], repeat: int = 1) -> list[Any]:
    """In the worker: sets of arguments, as the parameters want them, on the device if there is one."""
    made = []
    for _ in range(repeat):
        drawn = supply_arrays([i.param for i in args_info if i.value is None], kind)
        values = [drawn.pop(0) if i.value is None else _copied(i.value) for i in args_info]
        made.append(values if is_host(device) else [_placed(v, device) for v in values])
    return made


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _placed(value: Any, device: Device) -> object:
    from ...runtime import nd

    return nd.array(value, device) if isinstance(value, np.ndarray) else value


def _one_set(kind: TensorSupplyType, args_info: Sequence[Supplied], device_type: str) -> list[Any]:
    """In the worker: arguments on the host, outputs full of NaN or -1, so that what is not written shows."""
    return allocate(kind, cpu(), args_info)[0]


class Inputs:
    """The inputs of kernels: the caller's, those of the caller's program, or made up."""

    def __init__(self, args: ProfileArgs, given: Sequence[Any] | None) -> None:
        self.args = args
        self.given = None if given is None else list(given)
        self._last: tuple[Any, list[Any]] | None = None

    def infos(self, params: Sequence[KernelParam], out_idx: Sequence[int]) -> list[Supplied]:
        """The parameters with what is to be in them. Raises ValueError where the number of inputs is wrong."""
        inputs = self.tensors(params, out_idx) if self.given is not None or self.args.supply_prog is not None else None
        if inputs is None:
            return [Supplied(p) for p in params]
        places = [i for i in range(len(params)) if i not in out_idx]
        if len(inputs) != len(places):
            raise ValueError(f"the kernel has {len(places)} inputs, {len(inputs)} were given")
        values: list[Any] = [None] * len(params)
        for place, value in zip(places, inputs, strict=True):
            values[place] = value if params[place].is_scalar else to_numpy(value)
        sizes = _sizes(params, values)
        known = [
            KernelParam(p.dtype, tuple(sizes.get(d, d) if isinstance(d, str) else d for d in p.shape), p.is_scalar)
            for p in params
        ]
        return [Supplied(p, v) for p, v in zip(known, values, strict=True)]

    def tensors(self, params: Sequence[KernelParam], out_idx: Sequence[int]) -> list[Any]:
        """The inputs as the caller's programs take them."""
        if self.given is not None:
            return self.given
        key = tuple((p.dtype, p.shape) for p in params)
        program = self.args.supply_prog
        if program is None or self.args.cache_input_tensors:
            if self._last is not None and self._last[0] == key:
                return self._last[1]
        inputs = [p for i, p in enumerate(params) if i not in out_idx]
        if program is not None:
            made = list(program(inputs))
        else:
            drawn = supply_arrays(params, self.args.supply_type)
            made = [
                drawn[i] if params[i].is_scalar else as_tensor(drawn[i], None)
                for i in range(len(params))
                if i not in out_idx
            ]
        self._last = key, made
        return made


def _sizes(params: Sequence[KernelParam], values: Sequence[Any]) -> dict[str, int]:
    """What the names in shapes stand for, by the arrays given."""
    found: dict[str, int] = {}
    for param, value in zip(params, values, strict=True):
        if isinstance(value, np.ndarray):
            found.update({d: n for d, n in zip(param.shape, value.shape, strict=False) if isinstance(d, str)})
    return found


# ---- building and running, in the workers


def build_config(mod: IRModule, target: Target, params: dict[str, Any]) -> bytes:
    """The code of one configuration, as what runs it takes it."""
    with PassContext(opt_level=3, config=params["pass_configs"]):
        if is_device_target(target):
            return build_for_device(mod, target, params["provider"])
        from ...meta_schedule.builder.local_builder import default_build

        return default_build(mod, target)


def build_params(pass_configs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of :func:`build_config` beside program and target."""
    return {"pass_configs": pass_configs, "provider": providers.chosen()}


def evaluate_on_host(
    warmup: float, rep: float, limit: float | None, module: Module, device: Device, config: Any, sets: Any
) -> list[float]:
    """Seconds of a run: the mean over ``rep`` milliseconds, after ``warmup`` milliseconds of runs.

    A first run of more than ``limit`` seconds is the answer by itself.
    """
    from ...runtime.arrays.ndarray import from_numpy

    function: Any = module.entry_func
    call = function.call  # the arguments are ours: they need no check
    values = [from_numpy(v) if isinstance(v, np.ndarray) else v for v in sets[0]]
    call(*values)
    begin = time.perf_counter()
    call(*values)
    first = max(time.perf_counter() - begin, 1e-7)
    if limit is not None and first > limit:
        return [first]
    for _ in range(min(100_000, int(warmup / 1e3 / first))):
        call(*values)
    count = min(1_000_000, max(1, int(rep / 1e3 / first)))
    begin = time.perf_counter()
    for _ in range(count):
        call(*values)
    return [(time.perf_counter() - begin) / count]


# ---- right or wrong


class ProgramValidator:
    """Compares what a configuration computes with what the caller's program does, on the same inputs."""

    def __init__(self, args: ProfileArgs, inputs: Inputs, runner: LocalRunner) -> None:
        self.args = args
        self.inputs = inputs
        self.runner = runner
        self._expected: tuple[Any, list[Any]] | None = None

    def check(self, candidate: Any, program: Any, artifact: str | bytes, target: Target) -> Verdict:
        """Raises CheckFailedError where the program cannot be run."""
        infos: list[Supplied] = list(candidate.args_info)
        params, out_idx = candidate.payload["params"], candidate.payload["out_idx"]
        tensors = self.inputs.tensors(params, out_idx)
        values = iter(tensors)
        exact = [
            Supplied(i.param, _given(next(values), i.param))
            if place not in out_idx
            else Supplied(i.param, _blank(i.param))
            for place, i in enumerate(infos)
        ]
        wanted = list(out_idx) or list(range(len(params)))
        make = functools.partial(_one_set, self.args.supply_type, exact)
        done = self.runner.execute(artifact, make, wanted, str(target.kind.name))
        if not done.ok:
            raise CheckFailedError(status_of_task(done.status, building=False), f"{done.status}: {done.error}")
        return self._compare(done.value, tensors, params, out_idx)

    def _compare(
        self, got: list[Any], tensors: Sequence[Any], params: Sequence[KernelParam], out_idx: Sequence[int]
    ) -> Verdict:
        assert self.args.ref_prog is not None
        key = tuple((p.dtype, p.shape) for p in params), tuple(map(id, tensors))
        if self._expected is None or self._expected[0] != key:
            self._expected = key, listed(self.args.ref_prog(*tensors))
        expected = self._expected[1]
        if not out_idx:
            got = got[-len(expected) :]
        if len(got) != len(expected):
            return Verdict(False, f"it has {len(got)} outputs, the reference {len(expected)}")
        if self.args.manual_check_prog is not None:
            self.args.manual_check_prog([_like(a, b) for a, b in zip(got, expected, strict=True)], expected)
            return Verdict(True)
        for index, (a, b) in enumerate(zip(got, expected, strict=True)):
            args = self.args
            reason = difference(a, to_numpy(b), args.rtol, args.atol, args.max_mismatched_ratio)
            if reason:
                return Verdict(False, f"output {index}: {reason}")
        return Verdict(True)


def _given(value: Any, param: KernelParam) -> object:
    return value if param.is_scalar else to_numpy(value)


def _blank(param: KernelParam) -> np.ndarray[Any, Any]:
    """An output before it is written, with what no kernel computes."""
    shape = tuple(int(d) for d in param.shape)
    return np.full(shape, np.nan if dt.is_float(param.dtype) else 1).astype(dt.numpy_dtype(param.dtype))


def _like(array: np.ndarray[Any, Any], other: Any) -> object:
    """An array as the same kind of tensor as another."""
    return array if isinstance(other, np.ndarray) else as_tensor(array, None)
