"""Writing bytecode by hand (and what the code generator writes it with)."""

from __future__ import annotations

import contextlib
import enum
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...support.errors import InternalError, RelaxishError
from .instructions import VM_REGISTER, VOID_REGISTER, Arg, CallOp, Declared, FunctionInfo, GotoOp, IfOp, RetOp
from ..arrays.container import convert
from ..vm.executable import VMExecutable
from ..kernels.kernel import KernelSpec, NativeLibrary
from ..arrays.ndarray import NDArray
from .plan import ExecutionPlan
from .registers import check_function, renumber_registers


class SpecialReg(enum.IntEnum):
    """Registers that are no place in a frame."""

    VOID_ARG = VOID_REGISTER
    VM_STATE = VM_REGISTER


class VMFuncKind(enum.IntEnum):
    """Kind of an entry of the function table."""

    PACKED_FUNC = 0
    VM_FUNC = 1


_KIND_NAMES = {VMFuncKind.PACKED_FUNC: "packed", VMFuncKind.VM_FUNC: "vm"}


class ExecBuilder:
    """Builds an :class:`VMExecutable` instruction by instruction.

    >>> ib = ExecBuilder()
    >>> with ib.function("main", num_inputs=2):
    ...     ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
    ...     ib.emit_ret(ib.r(2))
    >>> ex = ib.get()
    """

    def __init__(self) -> None:
        self.functions: list[FunctionInfo] = []
        self.constants: list[Any] = []
        self.constant_devices: dict[int, tuple[int, int]] = {}
        self.kernels: dict[str, KernelSpec] = {}
        self.libraries: list[NativeLibrary] = []
        self.python_kernels: dict[str, Callable[..., Any]] = {}
        self.plans: dict[str, ExecutionPlan] = {}
        self._index: dict[str, int] = {}
        self._constant_index: dict[Any, int] = {}
        self._current: FunctionInfo | None = None
        self._max_register = -1

    # ---- operands

    def r(self, idx: int) -> Arg:
        """A register."""
        return Arg("r", int(idx))

    def imm(self, value: int) -> Arg:
        """An integer immediate."""
        return Arg("i", int(value))

    def c(self, idx: int) -> Arg:
        """A constant by index."""
        return Arg("c", int(idx))

    def f(self, name: str) -> Arg:
        """A function as a value."""
        return Arg("f", self.get_function(name))

    def void_arg(self) -> Arg:
        """No destination."""
        return Arg("r", VOID_REGISTER)

    def vm_state(self) -> Arg:
        """The machine itself, for builtins that need it."""
        return Arg("r", VM_REGISTER)

    def convert_constant(self, const: object, place: tuple[int, int] | None = None) -> Arg:
        """Put a value into the constant pool (equal values share an entry).

        ``place`` is the (device type, index) a tensor shall live on; without one that is the machine's first device.
        """
        value = convert(const)
        key: Any = id(value)
        match value:
            case str() | int() | float() | tuple() | None:
                key = type(value).__name__, value
            case NDArray():
                key = value.dtype, value.shape, zlib.crc32(_bytes_of(value).data), place
                twin = self._constant_index.get(key)
                if twin is not None and not np.array_equal(_bytes_of(self.constants[twin]), _bytes_of(value)):
                    key = id(value)
        try:
            found = self._constant_index.get(key)
        except TypeError:
            key, found = id(value), None
        if found is None:
            found = self._constant_index[key] = len(self.constants)
            self.constants.append(value)
            if place is not None:
                self.constant_devices[found] = place
        return Arg("c", found)

    # ---- functions

    def declare_function(self, func_name: str, kind: str | VMFuncKind = "packed") -> int:
        """The index of a function, declared now or later ("packed", "vm", "vmtir" or "kernel")."""
        if isinstance(kind, VMFuncKind):
            kind = _KIND_NAMES[kind]
        index = self._index.get(func_name)
        if index is None:
            index = self._index[func_name] = len(self.functions)
            self.functions.append(FunctionInfo(kind, func_name))
        elif kind != "packed" and not self.functions[index].is_vm:
            self.functions[index].kind = kind
        return index

    def get_function(self, func_name: str) -> int:
        """The index of a function; declares a packed one if it is new."""
        return self.declare_function(func_name)

    def add_kernel(self, spec: KernelSpec, python: Callable[..., Any] | None = None) -> None:
        """Announce a loop program, optionally with a Python function to run in its place."""
        self.declare_function(spec.name, "kernel")
        self.kernels[spec.name] = spec
        if python is not None:
            self.python_kernels[spec.name] = python

    @contextlib.contextmanager
    def function(
        self,
        func_name: str,
        num_inputs: int | None = 0,
        param_names: Sequence[str] | None = None,
    ) -> Iterator[ExecBuilder]:
        """Open a bytecode function."""
        if self._current is not None:
            raise RelaxishError(f"function {self._current.name} is still open")
        info = self.functions[self.declare_function(func_name, "vm")]
        if info.code:
            raise InternalError(f"Function {func_name} already defined")
        names = param_names if param_names is not None else [f"%{i}" for i in range(num_inputs or 0)]
        info.param_names = tuple(names)
        self._current = info
        self._max_register = len(names) - 1
        try:
            yield self
        finally:
            self._current = None
            info.num_registers = self._max_register + 1

    # ---- instructions

    def _function(self) -> FunctionInfo:
        if self._current is None:
            raise ValueError("emit should happen in a function scope")
        return self._current

    def _use(self, *args: Arg) -> None:
        for arg in args:
            if arg.kind == "r":
                self._max_register = max(self._max_register, arg.value)

    def _as_arg(self, value: object) -> Arg:
        if isinstance(value, Arg):
            return value
        return self.imm(value) if type(value) is int else self.convert_constant(value)

    @staticmethod
    def _as_register(value: Arg | int) -> Arg:
        return value if isinstance(value, Arg) else Arg("r", int(value))

    def emit_call(
        self,
        name: str | Arg,
        args: Sequence[Any] | None = None,
        dst: Arg | None = None,
        ret: Mapping[str, Any] | None = None,
        *,
        returns: Declared | None = None,
    ) -> None:
        """``dst = name(*args)``; arguments that are not operands become constants.

        ``returns`` is what the result is declared to be; it is compared when the machine runs.
        """
        operands = tuple(self._as_arg(a) for a in args or ())
        index = name.value if isinstance(name, Arg) else self.get_function(name)
        target = self._as_register(dst) if dst is not None else self.void_arg()
        self._use(target, *operands)
        self._function().code.append(CallOp(target.value, index, operands, returns))

    def emit_ret(self, result: Arg) -> None:
        """Return a register (a constant is loaded first)."""
        function = self._function()
        if result.kind != "r":
            target = self.r(self._max_register + 1)
            self.emit_call("vm.builtin.copy", [result], target)
            result = target
        self._use(result)
        function.code.append(RetOp(result.value))

    def emit_goto(self, pc_offset: int) -> None:
        """Jump."""
        self._function().code.append(GotoOp(int(pc_offset)))

    def emit_if(self, cond: Arg, false_offset: int) -> None:
        """Go on if the register is true, else jump."""
        self._use(cond)
        self._function().code.append(IfOp(cond.value, int(false_offset)))

    def position(self) -> int:
        """Index of the next instruction of the open function."""
        return len(self._function().code)

    def patch(self, position: int, instruction: GotoOp | IfOp) -> None:
        """Replace a jump whose target is known by now."""
        self._function().code[position] = instruction

    def get(self) -> VMExecutable:
        """The finished executable, after checking it; registers are numbered in the order of their definition."""
        for function in self.functions:
            if function.is_vm:
                check_function(function, len(self.constants), len(self.functions))
                renumber_registers(function)
        made = VMExecutable(
            self.functions,
            self.constants,
            kernels=self.kernels,
            libraries=self.libraries,
            plans=self.plans,
            python_kernels=self.python_kernels,
        )
        made.constant_devices = dict(self.constant_devices)
        return made


def _bytes_of(value: NDArray) -> np.ndarray[Any, Any]:
    return np.asarray(value).reshape(-1).view(np.uint8)
