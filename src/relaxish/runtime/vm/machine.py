"""The virtual machine: a small loop over instructions, and a direct lane for static models."""

from __future__ import annotations

import enum
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, TYPE_CHECKING, cast

import numpy as np

from ...support import config
from ...support.errors import InternalError, RelaxishError
from ...support.log import get_logger
from ...support.sequences import of_kind
from ..bytecode import builtins as _builtin_functions
from ..devices import cache_flush, cuda_graph
from ..caches import kv_cache, paged_builtins, rnn_state, sampling
from ..arrays import ndarray_cache
from .benchmark import BenchmarkResult, HostTimer, time_evaluator
from ..bytecode.bound_plan import BoundPlan
from ..bytecode.builtins import VMClosure
from ..bytecode.device_plan import DevicePlan
from ..bytecode.known_sizes import DYNAMIC_CALL as _DYNAMIC_CALL, KnownSizes
from ..bytecode.instructions import VM_REGISTER, VOID_REGISTER, Arg, CallOp, FunctionInfo, GotoOp, RetOp
from ..arrays.container import ShapeTuple, type_key_of
from ..device import Clock, Device, cpu
from .executable import VMExecutable
from ..kernels.kernel import (
    PACKED_SUFFIX,
    ArgumentError,
    ArgumentTypeError,
    MissingFunctionError,
    NativeKernel,
    PythonKernel,
    UnknownFunctionError,
)
from ..arrays.memory import Allocator, get_allocator
from ..arrays.ndarray import NDArray, array, as_ndarray
from .profiling import CallRecord, Report, shapes_of
from ..bytecode.registers import check_function, registers_read
from ..registry import get_global_func
from ..bytecode.results import checked_result
from .module import VMModule

if TYPE_CHECKING:
    pass

_log = get_logger("vm")

# Importing these modules registers the builtins.
_BUILTIN_MODULES = (
    _builtin_functions, cache_flush, cuda_graph, kv_cache, ndarray_cache, paged_builtins, rnn_state, sampling
)  # fmt: skip

_CALL, _RET, _GOTO, _IF, _ENTER = range(5)
# A linked instruction: (opcode, destination or jump, function, argument getter, function name)
_Linked = tuple[int, int, Any, Any, str]


class VMInstrumentReturnKind(enum.IntEnum):
    """Answer of an instrument: run the call, or skip it."""

    NO_OP = 0
    SKIP_RUN = 1


class VMRecursionError(RelaxishError, RecursionError):
    """Functions of a program call one another without an end."""


def _too_deep(name: str, limit: int) -> VMRecursionError:
    return VMRecursionError(
        f"calls inside {name} are nested more than {limit:,} deep: does the recursion end? (The limit of calls between "
        f"functions is RELAXISH_VM_RECURSION_LIMIT, that of closures and watched calls is Python's.)"
    )


# Methods that are functions of the machine by their names, too, unless the program has functions of that name.
_STATEFUL = frozenset({"invoke_stateful", "save_function", "set_input"})


class VirtualMachine:
    """Runs an :class:`VMExecutable`.

    ``VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())["main"](x)`` is the whole use of it;
    :func:`relaxish.build` shows one.

    ``memory_cfg`` is "pooled" (default) or "naive", or a mapping from device to one of them. With ``profile=True`` each
    kernel is called by itself and :meth:`profile` can report on it.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __new__(cls, rt_mod: Any, device: Device | None = None, *args: Any, **kwargs: Any) -> Any:
        """For a module on the other side of an RPC session, a machine there."""
        remote = getattr(rt_mod, "remote_vm", None)
        return super().__new__(cls) if remote is None else remote(device)

    def __init__(
        self,
        rt_mod: Any,
        device: Device | Sequence[Device] | None = None,
        memory_cfg: str | Mapping[Device, str] | None = None,
        profile: bool = False,
    ) -> None:
        rt_mod = getattr(rt_mod, "executable", rt_mod)
        if not isinstance(rt_mod, VMExecutable):
            raise ValueError(f"Expect the rt_mod to be an runtime.Module, got {type(rt_mod).__name__}")
        self.executable = rt_mod
        self.devices = self._device_list(device)
        self._allocators = self._make_allocators(memory_cfg)
        self._profile_enabled = profile
        self._instrument: Callable[..., Any] | None = None
        self._records: list[CallRecord] | None = None
        self._timer: Any = None
        self._saved: dict[str, Callable[..., Any]] = {}
        self._inputs: dict[str, list[Any]] = {}
        self._outputs: dict[str, Any] = {}
        self._linked: dict[int, tuple[list[_Linked], list[Any]]] = {}
        self._moved_constants: dict[int, NDArray] = {}
        self._closures: dict[str, Callable[..., Any]] = {}
        self.random_draws: dict[int, int] = {}
        self._recursion_limit = config.VM_RECURSION_LIMIT.value
        self._infos = {f.name: i for i, f in enumerate(rt_mod.functions) if f.is_vm}
        self._callables = [self._resolve(i, f) for i, f in enumerate(rt_mod.functions)]
        self.module = VMModule(rt_mod, profile, self)

    @cached_property
    def random_entropy(self) -> int:
        """64 random bits that seed this machine's random numbers where a model gives no seed."""
        return secrets.randbits(64)

    @staticmethod
    def _device_list(device: Device | Sequence[Device] | None) -> list[Device]:
        devices: list[Any] = list(device) if isinstance(device, list | tuple) else [device]
        if not devices or not all(isinstance(d, Device) for d in devices):
            raise TypeError("dev is expected to be Device or List[Device]")
        if devices[-1].device_type != Device.kDLCPU:
            devices.append(cpu(0))  # shapes are computed on the host
        return devices

    def _make_allocators(self, memory_cfg: str | Mapping[Device, str] | None) -> list[Allocator]:
        kinds: Mapping[Any, Any] = {}
        default: Any = "pooled"
        match memory_cfg:
            case str():
                if memory_cfg not in ("naive", "pooled"):
                    raise AssertionError(f'memory_cfg must be "naive" or "pooled", got {memory_cfg!r}')
                default = memory_cfg
            case Mapping():
                kinds = memory_cfg
            case _ if memory_cfg is not None:
                raise TypeError(f"memory_cfg is expected be string or dictionary, but received {type(memory_cfg)}")
        return [self._make_allocator(d, kinds.get(d, default)) for d in self.devices]

    @classmethod
    def _make_allocator(cls, device: Device, kind: str) -> Allocator:
        if kind in ("naive", cls.NAIVE_ALLOCATOR):
            return Allocator(device, "naive")
        return get_allocator(device, "pooled")

    def allocator(self, device_index: int) -> Allocator:
        """The allocator of the ``device_index``-th device; -1 is the host."""
        return self._allocators[device_index]

    # ---- linking

    def _resolve(self, index: int, info: FunctionInfo) -> Callable[..., Any]:
        if info.is_vm:
            return VMClosure(info.name, lambda *args, _i=index: self._run(_i, args))
        if info.kind == "kernel":
            return self._kernel(info.name, quick=True)
        found: Callable[..., Any] | None = self.executable.external_function(info.name)
        if found is None:
            found = get_global_func(info.name, allow_missing=True)
        if found is None:
            raise InternalError(
                f"Error: Cannot find PackedFunc {info.name} in either Relax VM kernel library, or in the runtime "
                f"PackedFunc registry, or in global Relax functions of the VM executable"
            )
        return found

    def _kernel(self, name: str, *, quick: bool = False) -> Callable[..., Any]:
        """A kernel: for users, or (``quick``) for the arrays that programs pass."""
        executable = self.executable
        if name in executable.python_kernels:
            interpreted = PythonKernel(executable.kernels[name], executable.python_kernels[name])
            return interpreted.guarded if quick else interpreted
        for module in executable.device_modules:
            if name in module.programs:
                bound: Callable[..., Any] = module.bound_function(name) if quick else module.get_function(name)
                return bound
        library = executable.library_of(name + PACKED_SUFFIX)
        if library is None or name not in executable.kernels:
            raise RelaxishError(f"Cannot find PackedFunc {name} in the kernel library of the executable")
        native = NativeKernel(executable.kernels[name], library)
        return native.guarded if quick else native

    def _link(self, index: int) -> tuple[list[_Linked], list[Any]]:
        """Decode a function once. Immediates, constants and the machine itself become extra registers, so that
        fetching the arguments of a call is one C-level ``itemgetter``."""
        info = self.executable.functions[index]
        check_function(info, len(self.executable.constants), len(self.executable.functions))
        read = registers_read(info)
        extra: dict[tuple[Arg, bool], int] = {}
        template: list[Any] = [None] * (info.num_registers + 1)
        void = info.num_registers

        def place(arg: Arg, on_host: bool = False) -> int:
            if arg.kind == "r" and arg.value >= 0:
                return arg.value
            key = arg, on_host and arg.kind == "c"
            if key not in extra:
                extra[key] = len(template)
                template.append(self.executable.constants[arg.value] if key[1] else self._operand(arg))
            return extra[key]

        code: list[_Linked] = []
        for op in info.code:
            match op:
                case CallOp():
                    callee = self.executable.functions[op.func]
                    on_host = self._runs_on_host(callee, op.args)
                    getter = _getter([place(a, on_host) for a in op.args])
                    dst = op.dst if op.dst >= 0 else void
                    if callee.is_vm:
                        code.append((_ENTER, dst, op.func, getter, callee.name))
                    else:
                        function = self._callables[op.func]
                        if op.returns is not None and op.dst in read:
                            function = checked_result(function, callee.name, op.returns)
                        code.append((_CALL, dst, function, getter, callee.name))
                case RetOp():
                    code.append((_RET, op.reg if op.reg >= 0 else void, None, None, ""))
                case GotoOp():
                    code.append((_GOTO, op.offset, None, None, ""))
                case _:
                    code.append((_IF, op.false_offset, op.cond, None, ""))
        self._linked[index] = (code, template)
        return code, template

    def _runs_on_host(self, callee: FunctionInfo, args: Sequence[Arg]) -> bool:
        """Whether a call is one of a kernel in host code, whose constants are those of the host."""
        if callee.name == _DYNAMIC_CALL and args and args[0].kind == "f":
            callee = self.executable.functions[args[0].value]
        return callee.kind == "kernel" and not any(callee.name in m.programs for m in self.executable.device_modules)

    def _operand(self, arg: Arg) -> object:
        if arg.kind == "c":
            return self._constant(arg.value)
        if arg.kind == "f":
            return self._callables[arg.value]
        if arg.kind == "r":
            return {VM_REGISTER: self, VOID_REGISTER: None}[arg.value]
        return arg.value

    def _constant(self, index: int) -> object:
        """A constant of the executable, where its function runs: a tensor lives on the first device, or its own."""
        value = self.executable.constants[index]
        if not isinstance(value, NDArray):
            return value
        place = self.executable.constant_devices.get(index)
        device = self.devices[0] if place is None else Device(*place)
        if value.device == device:
            return value
        found = self._moved_constants.get(index)
        if found is None:
            found = self._moved_constants[index] = value.copyto(device)
        return found

    # ---- running

    def _enter(self, index: int, args: Sequence[Any]) -> tuple[list[_Linked], list[Any]]:
        """The code of a function, and a frame with its arguments."""
        code, template = self._linked.get(index) or self._link(index)
        info = self.executable.functions[index]
        if len(args) != len(info.param_names):
            raise ArgumentError(
                f"Invoking function {info.name} requires {len(info.param_names)} inputs "
                f"({', '.join(info.param_names)}) but only {len(args)} inputs are provided."
            )
        regs = template.copy()
        regs[: len(args)] = args
        return code, regs

    def _run(self, index: int, args: Sequence[Any]) -> object:
        code, regs = self._enter(index, args)
        if self._instrument is not None or self._records is not None:
            return self._run_watched(code, regs)
        # Calls between functions of the machine keep their own stack, so recursion is not limited by Python's.
        callers: list[tuple[list[_Linked], list[Any], int, int]] = []
        limit = self._recursion_limit
        pc = 0
        while True:
            op, a, func, getter, _ = code[pc]
            if op == _CALL:
                regs[a] = func(*getter(regs))
                pc += 1
            elif op == _RET:
                result = regs[a]
                if not callers:
                    return result
                code, regs, pc, a = callers.pop()
                regs[a] = result
            elif op == _GOTO:
                pc += a
            elif op == _IF:
                pc += 1 if regs[func] else a
            else:
                callers.append((code, regs, pc + 1, a))
                if len(callers) > limit:
                    raise _too_deep(self.executable.functions[index].name, limit)
                code, regs = self._enter(func, getter(regs))
                pc = 0

    def is_watched(self) -> bool:
        """Whether every call is looked at, by an instrument or the profiler."""
        return self._instrument is not None or self._records is not None

    def _run_watched(self, code: list[_Linked], regs: list[Any]) -> object:
        pc = 0
        while True:
            op, a, func, getter, name = code[pc]
            if op in (_CALL, _ENTER):
                callee = func if op == _CALL else self._callables[func]
                regs[a] = self._call_watched(callee, name, getter(regs))
                pc += 1
            elif op == _RET:
                return regs[a]
            elif op == _GOTO:
                pc += a
            else:
                pc += 1 if regs[func] else a

    def _name_of(self, func: object, otherwise: str) -> str:
        """The name of a kernel that an instruction is given to call with sizes."""
        pairs = zip(self._callables, self.executable.functions, strict=False)
        return next((info.name for known, info in pairs if known is func), otherwise)

    def _call_watched(self, func: Callable[..., Any], name: str, args: Sequence[Any]) -> object:
        instrument, records = self._instrument, self._records
        if instrument is not None and instrument(func, name, True, None, *args) == VMInstrumentReturnKind.SKIP_RUN:
            return None
        timer = self._timer_of(name)
        timer.start()
        result = func(*args)
        seconds = timer.stop()
        if records is not None and not isinstance(func, VMClosure):
            called = self._name_of(args[0], name) if name == _DYNAMIC_CALL else name
            records.append(CallRecord(called, seconds, str(self.devices[0]), shapes_of(args)))
        if instrument is not None:
            instrument(func, name, False, result, *args)
        return result

    def _timer_of(self, name: str) -> Clock:
        """The clock for a call: the device's for its kernels while profiling, else the host's."""
        if self._records is None or not any(name in m.programs for m in self.executable.device_modules):
            return HostTimer()
        if self._timer is None:
            self._timer = self.devices[0].api.timer(self.devices[0].device_id)
        return self._timer or HostTimer()

    def __getitem__(self, name: str) -> Callable[..., Any]:
        found = self._closures.get(name)
        if found is None:
            found = self._closures[name] = self._make_entry(name)
        return found

    def _make_entry(self, name: str) -> Callable[..., Any]:
        if name in self._saved:
            return self._saved[name]
        index = self._infos.get(name)
        if index is None:
            if name in self.executable.kernels:
                return self._kernel(name)
            if name in _STATEFUL:
                return cast("Callable[..., Any]", getattr(self, name))
            known = ", ".join(self._infos) or "none"
            raise MissingFunctionError(f"Module has no function '{name}' (functions: {known})")

        def run(args: Sequence[Any]) -> object:
            try:
                return self._run(index, args)
            except RecursionError as error:
                if isinstance(error, VMRecursionError):
                    raise
                raise _too_deep(name, sys.getrecursionlimit()) from None

        def call(*args: Any) -> object:
            return run([_to_value(a) for a in args])

        plan = self.executable.plans.get(name)
        if plan is not None and not self._profile_enabled and not self.executable.python_kernels:
            if self._instrument is None and self.executable.device_modules:
                return DevicePlan(plan, self.executable, self._allocators[0], self._constant, call).run
            if self._instrument is None:
                return BoundPlan(plan, self.executable, self._allocators[-1], call).run
        learned: list[KnownSizes | None] = []

        def call_again(*args: Any) -> object:
            """A call after the first may be one with sizes that are known."""
            values = [_to_value(a) for a in args]
            if index not in self._linked:
                return run(values)
            if not learned:
                learned.append(self._known_sizes(index, run))
            again = learned[0]
            return run(values) if again is None or self.is_watched() else again(values)

        return call_again

    def _known_sizes(self, index: int, run: Callable[[Sequence[Any]], object]) -> KnownSizes | None:
        """What calls a function again with sizes known from before; None for one that is not such a function."""
        executable, allocator = self.executable, self._allocators[-1]
        if self._profile_enabled or executable.python_kernels or executable.device_modules or allocator.kind == "naive":
            return None
        code, template = self._linked[index]
        *calls, last = code
        on_host = all(device == cpu(0) for device in self.devices)
        if not on_host or last[0] != _RET or any(step[0] != _CALL for step in calls):
            return None

        def native(name: str) -> NativeKernel | None:
            found = [self._kernel(name)] if name in executable.kernels else []
            return next(of_kind(found, NativeKernel), None)

        return KnownSizes([step[1:] for step in calls], last[1], template, native, allocator, run)

    def invoke_closure(self, closure: VMClosure, *args: Any) -> Any:
        """Call a closure value a function returned."""
        if not callable(closure):
            raise ArgumentTypeError(f"Function expects a closure or PackedFunc, got {type_key_of(closure)}")
        return closure(*[_to_value(a) for a in args])

    def save_function(
        self, func_name: str, saved_name: str, *args: Any, include_return: bool = True, **kwargs: Any
    ) -> None:
        """Bind arguments, by position or name, so that ``vm[saved_name]()`` takes none.

        A name saved before is bound anew. Without ``include_return`` the saved function returns ``None``.
        """
        bound = self._bind(func_name, args, kwargs)
        func = self[func_name]

        def saved(*more: Any) -> object:
            result = func(*more, *bound)
            return result if include_return else None

        self._saved[saved_name] = saved
        self._closures.pop(saved_name, None)

    def _bind(self, func_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments in order; those in ``kwargs`` go to their parameters, the others fill the rest.

        ``kwargs`` may hold more than the function's parameters.
        """
        if func_name not in self._infos:
            raise UnknownFunctionError(f"Unknown function: {func_name}")
        names = self.executable.functions[self._infos[func_name]].param_names
        if not kwargs:
            return [_to_tensor(a) for a in args]
        unused = [k for k in kwargs if k not in names]
        if unused:
            _log.warning("Keyword arguments %s are unused in %s", ", ".join(unused), func_name)
        given = len(args) + len(kwargs) - len(unused)
        if given != len(names):
            raise AssertionError(f"{func_name} requires {len(names)} inputs ({', '.join(names)}), got {given}")
        rest = iter(args)
        return [_to_tensor(kwargs[n] if n in kwargs else next(rest)) for n in names]

    # ---- stateful interface

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Remember the arguments for :meth:`invoke_stateful`."""
        bound = self._bind(func_name, args, kwargs)
        names = self.executable.functions[self._infos[func_name]].param_names
        if len(bound) != len(names):
            raise ArgumentError(
                f"The number of provided parameters doesn't match the number of arguments for {func_name}: "
                f"{len(bound)} given, {len(names)} needed ({', '.join(names)})"
            )
        self._inputs[func_name] = [self._on_first_device(value) for value in bound]

    def _on_first_device(self, value: object) -> object:
        """The value with its tensors on the machine's first device."""
        match value:
            case NDArray():
                return value if value.device == self.devices[0] else value.copyto(self.devices[0])
            case tuple() if not isinstance(value, ShapeTuple):
                return tuple(self._on_first_device(v) for v in value)
        return value

    def invoke_stateful(self, func_name: str) -> None:
        """Call a function on its remembered arguments and keep the result."""
        if func_name not in self._infos:
            raise UnknownFunctionError(f"Unknown function: {func_name}")
        if func_name not in self._inputs:
            raise UnknownFunctionError(
                f"No inputs set for stateful call of {func_name}; use `set_input` to set inputs first."
            )
        self._outputs[func_name] = self[func_name](*self._inputs[func_name])

    def get_outputs(self, func_name: str) -> Any:
        """The result :meth:`invoke_stateful` kept; tuples, also nested ones, are Python tuples."""
        return self._output(func_name)

    def _output(self, func_name: str, *indices: int) -> object:
        if func_name not in self._outputs:
            raise UnknownFunctionError(
                f'No output saved for call of "{func_name}"; use `invoke_stateful` to call it first.'
            )
        value = self._outputs[func_name]
        for index in indices:
            if _arity(value) < 0:
                raise ValueError("Attempted to index into an object that is not an ADT.")
            if index >= len(value):
                raise IndexError(f"Invalid index ({index} >= {len(value)}).")
            value = value[index]
        return value

    def _output_arity(self, func_name: str, *indices: int) -> int:
        """Number of fields of a kept result, or of a part of it; -1 if it is no tuple."""
        return _arity(self._output(func_name, *indices))

    # ---- watching

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Call ``instrument(func, name, before_run, ret, *args)`` before and after each call; it may return
        :class:`VMInstrumentReturnKind`. ``None`` removes it."""
        self._instrument = get_global_func(instrument) if isinstance(instrument, str) else instrument
        self._closures.clear()

    def time_evaluator(
        self,
        func_name: str,
        dev: Device | None = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times ``func_name`` on the arguments it is given."""
        return time_evaluator(
            self[func_name],
            number, repeat, min_repeat_ms, cooldown_interval_ms, repeats_to_cooldown, f_preproc,
            dev or self.devices[0],
        )  # fmt: skip

    def profile(self, func_name: str, *args: Any) -> Report:
        """Run once, timing every call the machine makes."""
        if not self._profile_enabled:
            raise MissingFunctionError("Module has no function 'profile': use VirtualMachine(..., profile=True)")
        func = self[func_name]
        func(*args)
        self._records = []
        try:
            self.devices[0].sync()
            timer = HostTimer()
            timer.start()
            func(*args)
            self.devices[0].sync()
            return Report.of_calls(self._records, timer.stop())
        finally:
            self._records = None


def _arity(value: object) -> int:
    return len(value) if isinstance(value, tuple | list) and not isinstance(value, ShapeTuple) else -1


def _to_tensor(value: object) -> object:
    """As :func:`_to_value`, and numbers become tensors of one element: what remote calls can carry."""
    match value:
        case bool() | int() | np.integer():
            return array(np.array(value, "int32"))
        case float() | np.floating():
            return array(np.array(value, value.dtype if isinstance(value, np.float16) else "float32"))
        case list() | tuple() if not isinstance(value, ShapeTuple):
            return tuple(_to_tensor(v) for v in value)
    made = _to_value(value)
    if made is value and not isinstance(value, NDArray | str | ShapeTuple) and not hasattr(value, "type_key"):
        if value is not None and not callable(value) and type(value).__module__ == "builtins":
            raise TypeError(f"Unsupported type: {type(value)}")
    return made


def _getter(indices: list[int]) -> Callable[[list[Any]], Sequence[Any]]:
    if not indices:
        return lambda regs: ()
    if len(indices) == 1:
        return itemgetter(slice(indices[0], indices[0] + 1))
    return itemgetter(*indices)


def _to_value(value: object) -> object:
    """A Python argument as a run-time value: tensors of other libraries are shared, lists become tuples."""
    match value:
        case NDArray() | str() | int() | float() | ShapeTuple() | None:
            return value
        case list() | tuple():
            if value and all(type(v) is int for v in value):
                return ShapeTuple(value)
            return tuple(_to_value(v) for v in value)
    tensor = as_ndarray(value)
    return value if tensor is None else tensor
