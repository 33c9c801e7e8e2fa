"""Calling a whole model on a device by its plan: nothing is decided between the launches of its kernels.

The calls go out one after another from here (runtime ``graph``), or from one function in machine code of the host
(runtime ``aot``), if the device module has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...support.errors import KernelError
from ..arrays.container import ShapeTuple
from ..device import Device
from ..kernels.kernel import KernelSpec
from ..arrays.memory import Allocator
from ..arrays.ndarray import NDArray
from .plan import ExecutionPlan, KernelCall, Result, ResultTensor, ResultValue
from .shape_text import extent_of

if TYPE_CHECKING:
    from ..vm.executable import VMExecutable

__all__ = ["DevicePlan"]

_Place = tuple[int, Any]  # an address, and what keeps the memory there


class DevicePlan:
    """A plan whose kernels are all in one device module; ``run(*args)`` calls it.

    Arguments that do not fit go to ``otherwise``, which runs the function's bytecode: it converts them or says what is
    wrong.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        executable: VMExecutable,
        allocator: Allocator,
        constant: Callable[[int], Any],
        otherwise: Callable[..., Any],
    ) -> None:
        self.plan = plan
        self.device: Device = allocator.device
        self._allocator = allocator
        self._constant = constant
        self._otherwise = otherwise
        needed = {call.kernel for call in plan.calls}
        module = next((m for m in executable.device_modules if needed <= set(m.programs)), None)
        if module is None:
            raise KernelError(f"the plan of {plan.name} calls kernels that no device module of the program has")
        self._module = module
        self._entry = module.native_entry(plan.symbol)
        self._calls = [] if self._entry is not None else [self._bound(call) for call in plan.calls]

    def _bound(self, call: KernelCall) -> tuple[Callable[..., Any], list[Any]]:
        """A kernel, and its operands: (slot, offset, shape, dtype) of tensors, values of scalars."""
        spec: KernelSpec = self._module.programs[call.kernel].spec
        sizes: dict[str, int] = {}
        for param, operand in zip(spec.params, call.operands, strict=False):
            if param.kind == "scalar" and param.shape:
                sizes[str(param.shape[0])] = int(operand.value)
        for source, operand in zip(spec.shape_vars, call.operands[len(spec.params) :], strict=True):
            sizes[source.name] = int(operand.value)
        operands: list[Any] = []
        for param, operand in zip(spec.params, call.operands, strict=False):
            if param.kind != "tensor":
                operands.append(operand.value)
                continue
            shape = [d if isinstance(d, int) else extent_of(d)(sizes) for d in param.shape]
            if None in shape:
                raise KernelError(f"{call.kernel}: the shape {param.shape} does not follow from its sizes")
            operands.append((operand.slot, operand.offset, tuple(shape), param.dtype))
        return self._module.bound_function(call.kernel), operands

    def run(self, *args: Any) -> object:
        """The results of the function, on the device."""
        inputs = self.plan.inputs
        if len(args) != len(inputs):
            return self._otherwise(*args)
        for arg, spec in zip(args, inputs):
            if spec is None or arg.__class__ is not NDArray or arg.device is not self.device:
                return self._otherwise(*args)
            if arg.shape != spec.shape or arg.dtype != spec.dtype:
                return self._otherwise(*args)
        places = [self._place(slot.kind, slot.index, slot.nbytes, args) for slot in self.plan.slots]
        if self._entry is not None:
            self._check(self._entry(self._module.runtime(self.device.device_id), [address for address, _ in places]))
        for function, operands in self._calls:
            function(*[self._operand(o, places) if o.__class__ is tuple else o for o in operands])
        return self._result(self.plan.result, places)

    def _place(self, kind: str, index: int, nbytes: int, args: Sequence[NDArray]) -> _Place:
        if kind == "input":
            return args[index].ptr, args[index]
        if kind == "constant":
            value = self._constant(index)
            return value.ptr, value
        storage = self._allocator.allocate(nbytes)
        return storage.ptr, storage

    def _operand(self, operand: tuple[int, int, tuple[int, ...], str], places: Sequence[_Place]) -> NDArray:
        slot, offset, shape, dtype = operand
        address, owner = places[slot]
        return NDArray(address + offset, shape, dtype, self.device, owner)

    def _check(self, code: int) -> None:
        if code:
            index = (code >> 8) - 1
            kernel = self.plan.calls[index].kernel if 0 <= index < len(self.plan.calls) else "?"
            raise KernelError(f"{self.plan.name}: kernel {kernel} (call {index}) failed with code {code & 255}")

    def _result(self, result: Result, places: Sequence[_Place]) -> object:
        match result:
            case tuple():
                return tuple(self._result(r, places) for r in result)
            case ResultValue():
                return ShapeTuple(result.value) if result.kind == "shape" else result.value
        assert isinstance(result, ResultTensor)
        address, owner = places[result.slot]
        whole = owner.__class__ is NDArray and not result.offset
        if whole and owner.shape == result.shape and owner.dtype == result.dtype:
            return owner
        return NDArray(address + result.offset, result.shape, result.dtype, self.device, owner)
