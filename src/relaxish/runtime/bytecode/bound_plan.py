"""Calling a whole model through its native entry.

A :class:`ExecutionPlan` is bound once: constants and workspace go into the slot table, and a Python function is
*generated* for exactly this signature, so that a call costs one check per argument, one block per output, one foreign
call. Wrong arguments leave the fast lane and get a proper message.

The text of that function has nothing of the plan in it but how many things there are and their positions, counted here:
names, shapes, types, sizes and offsets are values it refers to. Plans come from files.
"""

from __future__ import annotations

import ctypes
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING

from ...support.errors import KernelError
from ..arrays.container import ShapeTuple, type_key_of
from ..device import _CPU0
from ..vm.executable import VMExecutable
from ..kernels.failures import RECORDED, failure
from ..kernels.kernel import ArgumentError, ArgumentTypeError, packed_entry
from ..arrays.memory import Allocator, Storage, aligned_bytes, size_class
from ..arrays.ndarray import NDArray, as_ndarray
from .plan import ExecutionPlan, Result, ResultTensor, ResultValue

if TYPE_CHECKING:
    pass


class BoundPlan:
    """A plan with memory attached; ``run(*args)`` calls it.

    Arguments that do not fit are given to ``explain``, which runs the function's own checks and so raises their error.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        executable: VMExecutable,
        allocator: Allocator,
        explain: Callable[..., Any] | None = None,
    ) -> None:
        self.plan = plan
        library = executable.library_of(plan.symbol)
        if library is None:
            raise KernelError(f"no library exports the entry {plan.symbol} of function {plan.name}")
        self._library = library  # the generated function may outlive the executable, its machine code must not go
        self._entry = packed_entry(library, plan.symbol)
        self._constants = executable.constants
        self._explain = explain
        self._allocator = allocator
        self._frames: list[Any] = []
        self._pid = os.getpid()
        self.run = self._generate()

    def _new_frame(self) -> tuple[Any, int, Any]:
        """A slot table with constants and workspace filled in; one for each thread inside the model at a time."""
        plan = self.plan
        slots = (ctypes.c_int64 * max(1, len(plan.slots)))()
        keep = []
        for i, slot in enumerate(plan.slots):
            if slot.kind == "constant":
                slots[i] = self._constants[slot.index].ptr
            elif slot.kind == "workspace":
                mem, slots[i] = aligned_bytes(slot.nbytes, 4096 if slot.nbytes >= 4096 else 64)
                keep.append(mem)
        return slots, ctypes.addressof(slots), keep

    def check(self, index: int, value: object, args: tuple[Any, ...]) -> NDArray:
        """The argument as an array of the right type, or an error naming it."""
        spec = self.plan.inputs[index]
        assert spec is not None
        tensor = as_ndarray(value)
        if tensor is None or tuple(tensor.shape) != spec.shape or tensor.dtype != spec.dtype:
            self._reject(index, value, args)
            raise ArgumentError(f"{self.plan.name}: parameter {index} ('{spec.name}') does not fit its annotation")
        if tensor.device.device_type != _CPU0.device_type:
            tensor = tensor.copyto(_CPU0)
        return tensor

    def _reject(self, index: int, value: object, args: tuple[Any, ...]) -> None:
        """Raise the error for an argument that does not fit: the function's own, else one of the same kind."""
        if self._explain is not None:
            self._explain(*args)
        spec = self.plan.inputs[index]
        assert spec is not None
        where = f"{self.plan.name}: parameter {index} ('{spec.name}')"
        tensor = as_ndarray(value)
        if tensor is None:
            raise ArgumentTypeError(f"{where}: expect a Tensor but get {type_key_of(value)}")
        if len(tensor.shape) != len(spec.shape):
            raise ArgumentError(f"{where}: expect Tensor with ndim {len(spec.shape)} but get {len(tensor.shape)}")
        if tensor.dtype != spec.dtype:
            raise ArgumentError(f"{where}: expect Tensor with dtype {spec.dtype} but get {tensor.dtype}")
        axis = next(i for i, (a, b) in enumerate(zip(tensor.shape, spec.shape, strict=True)) if a != b)
        raise ArgumentError(
            f"{where}: shape mismatch, shape[{axis}] is {tensor.shape[axis]} but {spec.shape[axis]} is expected "
            f"(shape {tuple(tensor.shape)}, expected {spec.shape})"
        )

    def fail(self, code: int) -> None:
        """Turn an error code of the entry into an error naming the kernel."""
        if code >= RECORDED:
            raise failure(self._library, code, self.plan.name)
        index = (code >> 8) - 1
        calls = self.plan.calls
        kernel = calls[index].kernel if 0 <= index < len(calls) else "?"
        raise KernelError(f"{self.plan.name}: kernel {kernel} (call {index}) failed with code {code & 255}")

    def wrong_count(self, args: tuple[Any, ...]) -> None:
        """Complain about the number of arguments."""
        names = ", ".join(s.name if s is not None else "?" for s in self.plan.inputs)
        raise ArgumentError(
            f"Invoking function {self.plan.name} requires {len(self.plan.inputs)} inputs ({names}) "
            f"but only {len(args)} inputs are provided."
            if len(args) < len(self.plan.inputs)
            else f"Invoking function {self.plan.name} requires {len(self.plan.inputs)} inputs ({names}) "
            f"but {len(args)} inputs are provided."
        )

    def _generate(self) -> Callable[..., Any]:
        plan = self.plan
        scope: dict[str, Any] = {
            "NDArray": NDArray,
            "Storage": Storage,
            "CPU": _CPU0,
            "check": self.check,
            "fail": self.fail,
            "frames": self._frames,
            "new_frame": self._new_frame,
            "entry": self._entry,
            "count": self.wrong_count,
            "alloc": self._allocator.fresh,
            "constants": self._constants,
        }
        names = [f"a{i}" for i in range(len(plan.inputs))]
        body = [f" if len(args) != {len(names)}: count(args)"]
        if names:
            body.append(f" {', '.join(names)}, = args")
        for i, spec in enumerate(plan.inputs):
            if spec is None:
                continue
            scope[f"S{i}"], scope[f"D{i}"] = spec.shape, spec.dtype
            test = (
                f"a{i}.__class__ is not NDArray or a{i}.shape != S{i} or a{i}.dtype != D{i} or a{i}.device is not CPU"
            )
            body.append(f" if {test}: a{i} = check({i}, a{i}, args)")
        body += self._output_lines(scope)
        body.append(" frame = frames.pop() if frames else new_frame()")
        body.append(" slots = frame[0]")
        body += self._slot_lines()
        body += [" code = entry(frame[1])", " frames.append(frame)", " if code: fail(code)"]
        body.append(" return " + self._result_text(plan.result, scope))
        source = "def run(*args):\n" + "\n".join(body) + "\n"
        exec(compile(source, "<native call of a model>", "exec"), scope)
        run: Callable[..., Any] = scope["run"]
        return run

    def _output_lines(self, scope: dict[str, Any]) -> list[str]:
        lines = []
        for i, slot in enumerate(self.plan.slots):
            if slot.kind != "output":
                continue
            free = self._allocator.free_list(slot.nbytes)
            scope[f"free{i}"], scope[f"size{i}"] = free, size_class(slot.nbytes)
            if free is None:
                lines.append(f" m{i}, p{i} = alloc(size{i})")
            else:
                # Another thread may take the last block between a test and the pop.
                lines += [
                    " try:",
                    f"  m{i}, p{i} = free{i}.pop()",
                    " except IndexError:",
                    f"  m{i}, p{i} = alloc(size{i})",
                ]
            lines.append(f" o{i} = Storage(m{i}, p{i}, size{i}, CPU, free{i})")
            lines.append(f" m{i} = None")
        return lines

    def _slot_lines(self) -> list[str]:
        values = []
        for i, slot in enumerate(self.plan.slots):
            if slot.kind == "input":
                values.append((i, f"a{self._position(slot.index, self.plan.inputs)}.ptr"))
            elif slot.kind == "output":
                values.append((i, f"p{i}"))
        if values and [i for i, _ in values] == list(range(len(values))) and len(values) > 2:
            return [f" slots[:{len(values)}] = ({', '.join(v for _, v in values)},)"]
        return [f" slots[{i}] = {v}" for i, v in values]

    @staticmethod
    def _position(index: int, items: Sequence[Any]) -> int:
        """An index into ``items`` as a plain integer. Raises KernelError for one that names nothing."""
        found = operator.index(index)
        if not 0 <= found < len(items):
            raise KernelError(f"the plan names item {found} of {len(items)}")
        return int(found)

    def _result_text(self, result: Result, scope: dict[str, Any]) -> str:
        if isinstance(result, tuple):
            return "(" + "".join(self._result_text(r, scope) + "," for r in result) + ")"
        name = f"V{len(scope)}"
        if isinstance(result, ResultValue):
            scope[name] = ShapeTuple(result.value) if result.kind == "shape" else result.value
            return name
        assert isinstance(result, ResultTensor)
        position = self._position(result.slot, self.plan.slots)
        slot = self.plan.slots[position]
        offset = operator.index(result.offset)
        shape, dtype = f"{name}_shape", f"{name}_dtype"
        scope[name], scope[shape], scope[dtype] = offset, result.shape, result.dtype
        if slot.kind == "output":
            address = f"p{position}" + (f" + {name}" if offset else "")
            return f"NDArray({address}, {shape}, {dtype}, CPU, o{position})"
        of_input = slot.kind == "input"
        index = self._position(slot.index, self.plan.inputs if of_input else self._constants)
        source = f"a{index}" if of_input else f"constants[{index}]"
        spec = self.plan.inputs[index] if of_input else self._constants[index]
        if spec is not None and tuple(spec.shape) == result.shape and spec.dtype == result.dtype and not offset:
            return source
        return f"{source}._create_view({shape}, {dtype}, {name})"
