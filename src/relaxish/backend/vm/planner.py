"""Static bytecode functions to flat execution plans.

The function is run once on *abstract* values: inputs of known shape, blocks of memory, tensors inside them. Builtins
that allocate, check, reshape or shuffle tuples happen here and now; kernel calls are written down. If anything depends
on run-time data, there is no plan, and :class:`NotPlannable` says why; the function then runs as bytecode.

Blocks that hold results become outputs. All others share one workspace: each block lives from the first to the last
kernel call that touches it, and blocks that never live together may overlap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...runtime.bytecode.builtins import MakeShapeCode, MatchShapeCode
from ...runtime.bytecode.instructions import VM_REGISTER, Arg, CallOp, FunctionInfo, RetOp
from ...runtime.arrays.container import ShapeTuple
from ...runtime.arrays.dtype import itemsize
from ...runtime.kernels.kernel import KernelSpec
from ...runtime.arrays.ndarray import NDArray
from ...support.sequences import of_kind
from ...runtime.bytecode.plan import ExecutionPlan, KernelCall, Operand, ResultTensor, ResultValue, Slot, TensorSpec

_ALIGN = 64


class NotPlannable(Exception):
    """Why a function has no flat plan."""


@dataclass(eq=False)
class _Block:
    """Memory: an input, a constant, or an allocation of ``nbytes``."""

    kind: str
    index: int = 0
    nbytes: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0
    slot: int = -1


@dataclass(eq=False)
class _Tensor:
    block: _Block
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        size = itemsize(self.dtype)
        for dim in self.shape:
            size *= dim
        return size


@dataclass
class _Heap:
    cells: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _FunctionRef:
    index: int


@dataclass
class _RecordedCall:
    kernel: str
    args: list[Any]


class _Machine:
    """Abstract execution of bytecode."""

    def __init__(
        self,
        functions: Sequence[FunctionInfo],
        constants: Sequence[Any],
        kernels: Mapping[str, KernelSpec],
        on_device: bool = False,
    ) -> None:
        self.functions = functions
        self.constants = constants
        self.kernels = kernels
        self.on_device = on_device
        self.calls: list[_RecordedCall] = []
        self.constant_blocks: dict[int, _Tensor] = {}
        self.depth = 0

    def run(self, info: FunctionInfo, args: Sequence[Any]) -> Any:
        if len(args) != len(info.param_names):
            raise NotPlannable(f"{info.name} is called with {len(args)} arguments")
        if self.depth > 64:
            raise NotPlannable(f"{info.name} is recursive")
        self.depth += 1
        registers: dict[int, Any] = dict(enumerate(args))
        for op in info.code:
            match op:
                case CallOp():
                    values = [self._operand(a, registers) for a in op.args]
                    registers[op.dst] = self._call(self.functions[op.func], values)
                case RetOp():
                    self.depth -= 1
                    return registers.get(op.reg)
                case _:
                    raise NotPlannable(f"{info.name} branches on run-time values")
        raise NotPlannable(f"{info.name} does not return")

    def _operand(self, arg: Arg, registers: Mapping[int, Any]) -> Any:
        if arg.kind == "r":
            return None if arg.value == VM_REGISTER else registers.get(arg.value)
        if arg.kind == "i":
            return arg.value
        if arg.kind == "f":
            return _FunctionRef(arg.value)
        value = self.constants[arg.value]
        if not isinstance(value, NDArray):
            return value
        found = self.constant_blocks.get(arg.value)
        if found is None:
            block = _Block("constant", arg.value, value.nbytes)
            found = self.constant_blocks[arg.value] = _Tensor(block, 0, tuple(value.shape), value.dtype)
        return found

    def _call(self, callee: FunctionInfo, args: list[Any]) -> Any:
        if callee.kind == "kernel":
            return self._record(callee.name, args)
        if callee.is_vm:
            return self.run(callee, args)
        builtin = _BUILTINS.get(callee.name)
        if builtin is None:
            raise NotPlannable(f"it calls {callee.name}")
        return builtin(self, args)

    def _record(self, name: str, args: list[Any]) -> None:
        spec = self.kernels.get(name)
        if spec is None:
            raise NotPlannable(f"kernel {name} " + ("runs on the host" if self.on_device else "has no known signature"))
        if len(args) != len(spec.params):
            raise NotPlannable(f"kernel {name} is called with {len(args)} arguments, it has {len(spec.params)}")
        index = len(self.calls)
        for place in spec.written or ():
            value = args[place]
            if isinstance(value, _Tensor) and value.block.kind != "alloc":
                # Whether an argument may be written is known when it is there; constants may not.
                raise NotPlannable(f"kernel {name} writes an argument or a constant of the function")
        for value, param in zip(args, spec.params, strict=True):
            if param.kind == "tensor":
                if not isinstance(value, _Tensor):
                    raise NotPlannable(f"kernel {name} gets a value that is not a static tensor")
                block = value.block
                block.first = index if block.first < 0 else block.first
                block.last = index
            elif not isinstance(value, bool | int | float):
                raise NotPlannable(f"kernel {name} gets a scalar known only at run time")
        self.calls.append(_RecordedCall(name, args))

    # ---- builtins on abstract values

    def _alloc_storage(self, args: list[Any]) -> _Block:
        shape = args[1]
        dtype = args[3] if len(args) > 3 else "uint8"
        scope = args[4] if len(args) > 4 else "global"
        dims = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(d, int) for d in dims) or scope not in ("global", ""):
            raise NotPlannable("it allocates memory of a size or scope known only at run time")
        if self.on_device and args[2] != 0:
            raise NotPlannable("it uses memory of several devices")
        nbytes = itemsize(dtype) if dtype else 1
        for dim in dims:
            nbytes *= dim
        return _Block("alloc", 0, nbytes)

    def _alloc_tensor(self, args: list[Any]) -> _Tensor:
        block, offset, shape, dtype = args[:4]
        if not isinstance(block, _Block) or not isinstance(offset, int) or not isinstance(shape, tuple):
            raise NotPlannable("it allocates a tensor of a shape known only at run time")
        return _Tensor(block, offset, tuple(shape), dtype)

    def _match_shape(self, args: list[Any]) -> None:
        value, heap, size = args[:3]
        shape = value.shape if isinstance(value, _Tensor) else value
        if not isinstance(shape, tuple) or len(shape) != size:
            raise NotPlannable("it checks a shape known only at run time")
        for axis in range(size):
            code, number = args[3 + 2 * axis], args[4 + 2 * axis]
            if code == MatchShapeCode.STORE_TO_HEAP:
                heap.cells[number] = shape[axis]
            elif code == MatchShapeCode.ASSERT_EQUAL_TO_IMM and shape[axis] != number:
                raise NotPlannable("a shape check always fails")
            elif code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD and heap.cells.get(number) != shape[axis]:
                raise NotPlannable("a shape check may fail")

    def _make_shape(self, args: list[Any]) -> ShapeTuple:
        heap, size = args[:2]
        dims = []
        for axis in range(size):
            code, number = args[2 + 2 * axis], args[3 + 2 * axis]
            if code == MakeShapeCode.LOAD_SHAPE and number not in heap.cells:
                raise NotPlannable("it computes a shape at run time")
            dims.append(number if code == MakeShapeCode.USE_IMM else heap.cells[number])
        return ShapeTuple(dims)

    def _reshape(self, args: list[Any]) -> _Tensor:
        source, shape = args
        if not isinstance(source, _Tensor) or not isinstance(shape, tuple):
            raise NotPlannable("it reshapes to a shape known only at run time")
        made = _Tensor(source.block, source.offset, tuple(shape), source.dtype)
        if made.nbytes != source.nbytes:
            raise NotPlannable(f"a reshape from {source.shape} to {made.shape} always fails")
        return made

    def _shape_of(self, args: list[Any]) -> ShapeTuple:
        if not isinstance(args[0], _Tensor):
            raise NotPlannable("it asks for a shape known only at run time")
        return ShapeTuple(args[0].shape)

    def _tuple_getitem(self, args: list[Any]) -> Any:
        if not isinstance(args[0], tuple):
            raise NotPlannable("it takes a field of a tuple known only at run time")
        return args[0][args[1]]

    def _call_tir_dyn(self, args: list[Any]) -> None:
        if not isinstance(args[0], _FunctionRef) or not isinstance(args[-1], tuple):
            raise NotPlannable("it calls a kernel with scalars known only at run time")
        self._call(self.functions[args[0].index], [*args[1:-1], *args[-1]])

    def _check_tensor(self, args: list[Any]) -> None:
        if not isinstance(args[0], _Tensor):
            raise NotPlannable("it checks a value known only at run time")
        ndim, dtype = args[1], args[2] if len(args) > 3 else ""
        if (ndim != -1 and ndim != len(args[0].shape)) or dtype not in ("", "void", args[0].dtype):
            raise NotPlannable("a tensor check always fails")


def _unsupported_check(machine: _Machine, args: list[Any]) -> None:
    raise NotPlannable("it takes arguments that are not tensors")


_BUILTINS: dict[str, Callable[[_Machine, list[Any]], Any]] = {
    "vm.builtin.alloc_storage": _Machine._alloc_storage,
    "vm.builtin.alloc_tensor": _Machine._alloc_tensor,
    "vm.builtin.alloc_shape_heap": lambda machine, args: _Heap(),
    "vm.builtin.match_shape": _Machine._match_shape,
    "vm.builtin.make_shape": _Machine._make_shape,
    "vm.builtin.check_tensor_info": _Machine._check_tensor,
    "vm.builtin.check_shape_info": _unsupported_check,
    "vm.builtin.check_tuple_info": _unsupported_check,
    "vm.builtin.reshape": _Machine._reshape,
    "vm.builtin.shape_of": _Machine._shape_of,
    "vm.builtin.copy": lambda machine, args: args[0],
    "vm.builtin.null_value": lambda machine, args: None,
    "vm.builtin.make_tuple": lambda machine, args: tuple(args),
    "vm.builtin.tuple_getitem": _Machine._tuple_getitem,
    "vm.builtin.call_tir_dyn": _Machine._call_tir_dyn,
}


def plan_function(
    name: str,
    functions: Sequence[FunctionInfo],
    constants: Sequence[Any],
    kernels: Mapping[str, KernelSpec],
    inputs: Sequence[TensorSpec],
    on_device: bool = False,
) -> ExecutionPlan:
    """The plan of a static function; raises :class:`NotPlannable` when it is not static.

    ``inputs`` gives the declared shape and dtype of each parameter. ``on_device``: the kernels are those of a device, where
    all memory is to be.
    """
    info = next((f for f in functions if f.is_vm and f.name == name), None)
    if info is None:
        raise NotPlannable(f"there is no function {name}")
    machine = _Machine(functions, constants, kernels, on_device)
    args = [_Tensor(_Block("input", i), 0, spec.shape, spec.dtype) for i, spec in enumerate(inputs)]
    result = machine.run(info, args)
    outputs: list[_Block] = []
    _collect_results(result, outputs)
    slots = _assign_slots(machine.calls, args, outputs)
    calls = tuple(_kernel_call(c, kernels[c.kernel]) for c in machine.calls)
    symbol = "__relaxish_entry_" + re.sub(r"\W", "_", name)
    return ExecutionPlan(name, symbol, tuple(inputs), tuple(slots), calls, _result(result))


def _collect_results(
    result: ShapeTuple | _Tensor | Sequence[ShapeTuple | _Tensor | Sequence[_Tensor]], outputs: list[_Block]
) -> None:
    match result:
        case tuple() if not isinstance(result, ShapeTuple):
            for item in result:
                _collect_results(item, outputs)
        case _Tensor():
            if result.block not in outputs:
                outputs.append(result.block)
        case _ if not isinstance(result, ShapeTuple | str | int | float | type(None)):
            raise NotPlannable("it returns a value that is not a tensor")


def _assign_slots(calls: Sequence[_RecordedCall], args: Sequence[_Tensor], results: Sequence[_Block]) -> list[Slot]:
    """Number the pointers (inputs, outputs, constants, workspace) and place the rest of the blocks in the workspace."""
    used: dict[int, _Block] = {id(b): b for b in results}
    for call in calls:
        for value in of_kind(call.args, _Tensor):
            used.setdefault(id(value.block), value.block)
    blocks = list(used.values())
    inputs = sorted((b for b in blocks if b.kind == "input"), key=lambda b: b.index)
    outputs = [b for b in blocks if b.kind == "alloc" and any(b is r for r in results)]
    constants = sorted((b for b in blocks if b.kind == "constant"), key=lambda b: b.index)
    scratch = [b for b in blocks if b.kind == "alloc" and not any(b is r for r in results)]
    slots: list[Slot] = []
    for block in inputs + outputs + constants:
        block.slot = len(slots)
        slots.append(Slot("output" if block.kind == "alloc" else block.kind, block.index, block.nbytes))
    total = _pack(scratch)
    for block in scratch:
        block.slot = len(slots)
    if scratch:
        slots.append(Slot("workspace", 0, total))
    return slots


def _pack(blocks: Sequence[_Block]) -> int:
    """Offsets of blocks so that those alive at the same time do not overlap; returns the bytes needed.

    Largest first, each at the lowest gap that fits: within a few percent of the lower bound on real models.
    """
    placed: list[_Block] = []
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        size = (block.nbytes + _ALIGN - 1) // _ALIGN * _ALIGN
        rivals = sorted((p for p in placed if p.first <= block.last and block.first <= p.last), key=lambda p: p.offset)
        offset = 0
        for rival in rivals:
            if offset + size <= rival.offset:
                break
            end = rival.offset + (rival.nbytes + _ALIGN - 1) // _ALIGN * _ALIGN
            offset = max(offset, end)
        block.offset = offset
        placed.append(block)
        total = max(total, offset + size)
    return total


def _kernel_call(call: _RecordedCall, spec: KernelSpec) -> KernelCall:
    operands = []
    for value, param in zip(call.args, spec.params, strict=True):
        if param.kind == "tensor":
            operands.append(Operand.pointer(value.block.slot, value.block.offset + value.offset))
        elif param.dtype.startswith(("float", "bfloat")):
            operands.append(Operand("float", value=float(value)))
        else:
            operands.append(Operand("int", value=int(value)))
    for source in spec.shape_vars:
        operands.append(Operand("int", value=call.args[source.param_index].shape[source.dim_index]))
    return KernelCall(call.kernel, tuple(operands))


def _result(result: ShapeTuple | _Tensor | Sequence[ShapeTuple | _Tensor | Sequence[_Tensor]]) -> Any:
    match result:
        case _Tensor():
            return ResultTensor(result.block.slot, result.offset, result.shape, result.dtype)
        case ShapeTuple():
            return ResultValue("shape", tuple(result))
        case tuple():
            return tuple(_result(r) for r in result)
        case None:
            return ResultValue("null")
    return ResultValue("string" if isinstance(result, str) else "prim", result)
