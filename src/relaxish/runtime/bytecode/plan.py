"""The flat form of a static model: which kernels run on which memory, with nothing left to decide.

A plan is what the one native entry of a model is generated from, and what the virtual machine binds to call it. All
memory a run touches is named by *slots*: pointers of inputs, outputs, constants, and one workspace. The entry
``i32 symbol(ptr slots)`` gets the slot table and calls the kernels one after another (through their direct symbols, not
the packed ones); it returns 0, or ``((call index + 1) << 8) | (code & 255)`` of the first kernel that failed, or the
code itself where a kernel left a record of its failure (:mod:`.failures`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One entry of the pointer table.

    ``kind`` is "input" (``index``-th argument of the function), "constant" (``index``-th constant of the executable),
    "output" (a fresh block of ``nbytes``) or "workspace" (scratch of ``nbytes``, kept between calls).
    """

    kind: str
    index: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class Operand:
    """One kernel argument.

    ``kind`` "ptr": pointer in slot ``slot`` plus ``offset`` bytes; "int" or "float": the immediate ``value``
    (passed as i64 or double); "word": the integer that slot ``slot`` holds (made for entries on devices, never stored).
    """

    kind: str
    slot: int = 0
    offset: int = 0
    value: float | int = 0

    @staticmethod
    def pointer(slot: int, offset: int = 0) -> Operand:
        """A pointer operand."""
        return Operand("ptr", slot, offset)


@dataclass(frozen=True)
class KernelCall:
    """One call: operands in the kernel's parameter order, then one "int" for each of its free shape variables."""

    kernel: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of an argument; ``name`` is for messages."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ResultTensor:
    """A returned tensor: memory of a slot at a byte offset. A slot of kind "input" or "constant" returns an alias."""

    slot: int
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ResultValue:
    """A returned value that is not a tensor: ``kind`` is "shape", "prim", "string" or "null"."""

    kind: str
    value: Any = None


# A result is a ResultTensor, a ResultValue, or a tuple of results.
Result = Any


@dataclass(frozen=True)
class ExecutionPlan:
    """A whole function as straight-line kernel calls."""

    name: str
    symbol: str
    inputs: tuple[TensorSpec | None, ...]
    slots: tuple[Slot, ...]
    calls: tuple[KernelCall, ...]
    result: Result
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Plain data for the manifest of an exported model."""
        return {
            "name": self.name,
            "symbol": self.symbol,
            "inputs": [None if t is None else [t.name, list(t.shape), t.dtype] for t in self.inputs],
            "slots": [[s.kind, s.index, s.nbytes] for s in self.slots],
            "calls": [[c.kernel, [[o.kind, o.slot, o.offset, o.value] for o in c.operands]] for c in self.calls],
            "result": _result_to_json(self.result),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> ExecutionPlan:
        """Inverse of :meth:`to_json`."""
        return ExecutionPlan(
            data["name"],
            data["symbol"],
            tuple(None if t is None else TensorSpec(t[0], tuple(t[1]), t[2]) for t in data["inputs"]),
            tuple(Slot(*s) for s in data["slots"]),
            tuple(KernelCall(name, tuple(Operand(*o) for o in operands)) for name, operands in data["calls"]),
            _result_from_json(data["result"]),
        )


def _result_to_json(result: Result) -> object:
    match result:
        case tuple():
            return {"tuple": [_result_to_json(r) for r in result]}
        case ResultTensor():
            return {"tensor": [result.slot, result.offset, list(result.shape), result.dtype]}
    value = list(result.value) if result.kind == "shape" else result.value
    return {"value": [result.kind, value]}


def _result_from_json(data: Any) -> Result:
    if "tuple" in data:
        return tuple(_result_from_json(r) for r in data["tuple"])
    if "tensor" in data:
        slot, offset, shape, dtype = data["tensor"]
        return ResultTensor(slot, offset, tuple(shape), dtype)
    kind, value = data["value"]
    return ResultValue(kind, tuple(value) if kind == "shape" else value)
