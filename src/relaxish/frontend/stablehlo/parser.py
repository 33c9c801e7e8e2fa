"""The text of a StableHLO function as a list of operations.

Only the forms that one function of tensors takes are read: operations in their short and their generic spelling, with
attributes, types and (for reductions) the region that says how two elements are combined.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ...ir.dtype import numpy_dtype
from ...support.errors import RelaxishError

__all__ = ["Function", "Operation", "TensorType", "parse_function"]

_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i1": "bool"}
_TYPE = re.compile(r"tensor<([^<>]*)>")
_NAME = re.compile(r"%[\w#:]+")


@dataclass(frozen=True)
class TensorType:
    """Shape (None where it is dynamic) and dtype."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass
class Operation:
    """One operation: ``text`` is everything between its operands and its type."""

    result: str
    name: str
    operands: list[str]
    text: str
    types: list[TensorType]
    region: list[Operation] = field(default_factory=list)

    def ints(self, key: str) -> list[int] | None:
        """A list of integers among the attributes: ``key = [1, 2]`` or ``key = array<i64: 1, 2>``."""
        found = re.search(rf"\b{key}\s*=\s*(?:\[([^\]]*)\]|array<i64(?::\s*([^>]*))?>)", self.text)
        if found is None:
            return None
        return [int(v) for v in re.findall(r"-?\d+", found.group(1) or found.group(2) or "")]

    def number(self, key: str, default: int) -> int:
        """One integer among the attributes."""
        found = re.search(rf"\b{key}\s*=\s*(-?\d+)", self.text)
        return default if found is None else int(found.group(1))


@dataclass
class Function:
    """The function: arguments with their types, operations, returned names."""

    arguments: list[tuple[str, TensorType]]
    operations: list[Operation]
    results: list[str]


def tensor_type(text: str) -> TensorType:
    """``2x3xf32`` as a type. Raises RelaxishError for element types without a counterpart."""
    *dims, element = text.split("x")
    if element in _DTYPES:
        dtype = _DTYPES[element]
    elif found := re.fullmatch(r"(u?)s?i(\d+)", element):
        dtype = f"{'uint' if found.group(1) else 'int'}{found.group(2)}"
    else:
        raise RelaxishError(f"StableHLO element type {element!r} has no counterpart")
    return TensorType(tuple(None if d == "?" else int(d) for d in dims), dtype)


def constant_of(operation: Operation) -> np.ndarray:
    """The array of a ``stablehlo.constant``."""
    kind = operation.types[-1]
    body = operation.text[operation.text.index("dense<") + len("dense<") : operation.text.rindex(">")].strip()
    shape = tuple(d or 0 for d in kind.shape)
    if body.startswith('"0x'):
        made = np.frombuffer(bytes.fromhex(body.strip('"')[2:]), numpy_dtype(kind.dtype))
        return made.reshape(shape) if made.size != 1 else np.full(shape, made[0])
    words = {"true": 1, "false": 0}
    values = [
        _number(v) if v not in words else words[v] for v in re.findall(r"true|false|0x[0-9A-Fa-f]+|[-+.\deE]+", body)
    ]
    array = np.array(values).astype(numpy_dtype(kind.dtype))
    return np.full(shape, array[0]) if array.size == 1 else array.reshape(shape)


def _number(text: str) -> float:
    if text.startswith("0x"):  # how infinities and not-a-numbers are spelled
        bits = {4: np.float16, 8: np.float32, 16: np.float64}[len(text) - 2]
        return float(np.frombuffer(int(text, 16).to_bytes((len(text) - 2) // 2, "little"), bits)[0])
    return float(text) if re.search(r"[.eE]", text) else int(text)


def parse_function(text: str) -> Function:
    """The function ``main``, else the first one. Raises RelaxishError if there is none."""
    headers = list(re.finditer(r"func\.func[^@\n]*@(\w+)\s*\((.*?)\)\s*(?:->[^\n]*)?\{[ \t]*\n", text, re.S))
    if not headers:
        raise RelaxishError("the StableHLO text has no function")
    header = next((h for h in headers if h.group(1) == "main"), headers[0])
    named = re.findall(r"(%\w+)\s*:\s*tensor<([^<>]*)>", header.group(2))
    lines = [line.split(" loc(")[0].strip() for line in text[header.end() :].splitlines()]
    operations, results, _ = _block(lines, 0)
    return Function([(n, tensor_type(t)) for n, t in named], operations, results)


def _block(lines: list[str], at: int) -> tuple[list[Operation], list[str], int]:
    """Operations up to the return of a block, what it returns, and the line after it."""
    operations: list[Operation] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if re.match(r"(func\.)?return\b|stablehlo\.return\b", line):
            return operations, _NAME.findall(line.split(" : ")[0]), at
        if not line or line.startswith(("^", "//", "}")):
            continue
        region: list[Operation] = []
        if line.endswith("({"):
            region, _, at = _block(lines, at)
            while not lines[at].startswith("})"):
                at += 1
            line, at = line[:-2] + " " + lines[at][2:], at + 1
        operations.append(_operation(line, region))
    return operations, [], at


def _operation(line: str, region: list[Operation]) -> Operation:
    found = re.match(r'(%[\w:]+)\s*=\s*"?([\w.]+)"?\s*(.*)$', line)
    if found is None:
        raise RelaxishError(f"cannot read the StableHLO line: {line}")
    result, name, rest = found.groups()
    body, _, kinds = rest.rpartition(" : ")
    if name == "stablehlo.constant":
        return Operation(result, name, [], body, [tensor_type(t) for t in _TYPE.findall(kinds)])
    operands = _NAME.findall(body)
    return Operation(result.split(":")[0], name, operands, body, [tensor_type(t) for t in _TYPE.findall(kinds)], region)
