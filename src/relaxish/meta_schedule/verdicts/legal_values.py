"""Legal values of the integer arguments of a program, for running it on random ones.

A table is read at an index that comes from data, rows begin where offsets say, something is divided by an argument:
random numbers would read outside of the table, or divide by zero. The program says what is legal: every index, loop
bound and divisor that data reaches is tried with values from small to large, and the widest range that stays inside is
taken.

>>> from relaxish.script import tir as T
>>> @T.prim_func
... def gather(table: T.Buffer((5, 4), "float32"), rows: T.Buffer((3,), "int32"), out: T.Buffer((3, 4), "float32")):
...     for i, j in T.grid(3, 4):
...         with T.block("out"):
...             vi, vj = T.axis.remap("SS", [i, j])
...             out[vi, vj] = table[rows[vi], vj]
>>> legal_values(gather)
{1: Values(low=0, high=5, ascending=False, free=False)}
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.op import op_name_of
from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor, post_order_visit
from ...ir.prim import BinaryOp, Call as TirCall
from ...tir import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc, Var
from ...ir.plain import plain

__all__ = ["Values", "legal_values"]

# Values of integers that are neither index nor divisor.
_USUAL = 8
_DEPTH = 6
_SAMPLES = 24


@dataclass(frozen=True)
class Values:
    """Integers from ``low`` up to, not including, ``high``; ``ascending`` ones begin with ``low``, end with
    ``high - 1`` and never fall, as offsets do. Where ``free``, nothing depends on the range."""

    low: int
    high: int
    ascending: bool = False
    free: bool = False


@dataclass
class _Uses:
    """What a function does with integers."""

    stored: dict[Buffer, list[Any]] = field(default_factory=dict)
    domains: dict[Var, tuple[Any, Any]] = field(default_factory=dict)
    bindings: dict[Var, Any] = field(default_factory=dict)
    indices: list[tuple[Any, Any]] = field(default_factory=list)
    bounds: list[Any] = field(default_factory=list)
    divisors: list[Any] = field(default_factory=list)
    shifts: list[Any] = field(default_factory=list)


class _Collector(Visitor):
    """Fills :class:`_Uses`; reductions' initial values are no data."""

    def __init__(self) -> None:
        self.uses = _Uses()

    def _access(self, node: BufferLoad | BufferStore) -> None:
        self.uses.indices += zip(node.indices, node.buffer.shape, strict=False)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self._access(node)
        self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self._access(node)
        if not dt.is_float(node.buffer.dtype):
            self.uses.stored.setdefault(node.buffer, []).append(node.value)
        self.default_visit(node)

    def visit_For(self, node: For) -> None:
        self.uses.domains[node.loop_var] = (node.min, node.extent)
        self.uses.bounds += [node.min, node.extent]
        self.default_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> None:
        for var, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self.uses.bindings[var.var] = value
        self.default_visit(node)

    def visit_Block(self, node: Block) -> None:
        # Regions repeat what the body says, more coarsely.
        if node.init is not None:
            self.visit(node.init)
        self.visit(node.body)

    def _division(self, node: BinaryOp) -> None:
        self.uses.divisors.append(node.b)
        self.default_visit(node)

    def visit_Call(self, node: TirCall) -> None:
        if op_name_of(node) in ("tir.shift_left", "tir.shift_right"):
            self.uses.shifts.append(node.args[1])
        self.default_visit(node)

    visit_Div = visit_Mod = visit_FloorDiv = visit_FloorMod = _division


class _Unknown(Exception):
    """An expression this module has no arithmetic for."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b if isinstance(a, float) else math.trunc(a / b) if b else 0,
    "Mod": lambda a, b: math.fmod(a, b) if b else 0,
    "FloorDiv": lambda a, b: a // b if b else 0,
    "FloorMod": lambda a, b: a % b if b else 0,
    "Min": min,
    "Max": max,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "And": lambda a, b: bool(a) and bool(b),
    "Or": lambda a, b: bool(a) or bool(b),
}
_CALLS: dict[str, Callable[..., Any]] = {
    "tir.shift_left": lambda a, b: int(a) << min(max(int(b), 0), 64),
    "tir.shift_right": lambda a, b: int(a) >> min(max(int(b), 0), 64),
    "tir.bitwise_and": lambda a, b: int(a) & int(b),
    "tir.bitwise_or": lambda a, b: int(a) | int(b),
    "tir.abs": abs,
    "tir.floor": math.floor,
    "tir.ceil": math.ceil,
    "tir.round": round,
    "tir.trunc": math.trunc,
}


class _Evaluator:
    """Numbers for expressions, given what loads and loop variables are."""

    def __init__(self, uses: _Uses, loads: Mapping[Buffer, Values], rng: random.Random, corner: int | None) -> None:
        self.uses = uses
        self.loads = loads
        self.rng = rng
        self.corner = corner  # 0: everything smallest, 1: largest, None: random
        self.known: dict[Any, Any] = {}

    def _pick(self, low: int, high: int) -> int:
        if high <= low:
            return low
        return low if self.corner == 0 else high - 1 if self.corner == 1 else self.rng.randrange(low, high)

    def _load(self, node: BufferLoad, depth: int) -> float:
        values = self.loads.get(node.buffer)
        if values is not None:
            # Offsets end with the size of what they divide, but a row begins before that.
            return self._pick(values.low, values.high)
        found = self.uses.stored.get(node.buffer)
        if not found or depth > _DEPTH:
            if dt.is_float(node.buffer.dtype):
                return self.rng.random()
            raise _Unknown
        return self(found[self.rng.randrange(len(found))], depth + 1)

    def _var(self, var: Var, depth: int) -> float:
        if var in self.uses.bindings:
            return self(self.uses.bindings[var], depth + 1)
        if var not in self.uses.domains or depth > 4 * _DEPTH:
            raise _Unknown
        start, extent = self.uses.domains[var]
        reached = [self.loads[b] for b in _loads_in((start, extent)) if b in self.loads]
        if reached:
            return self._pick(0, max(v.high for v in reached) - 1)
        low, count = int(self(start, depth + 1)), int(self(extent, depth + 1))
        return self._pick(low, low + count)

    def __call__(self, node: Any, depth: int = 0) -> float:
        if isinstance(node, (int, float, bool)):
            return node
        name = type(node).__name__
        if name in ("IntImm", "FloatImm"):
            return node.value
        match node:
            case BufferLoad():
                return self._load(node, depth)
            case Var():
                if node not in self.known:
                    self.known[node] = self._var(node, depth)
                return self.known[node]
        if name in _BINARY:
            return _BINARY[name](self(node.a, depth), self(node.b, depth))
        if name == "Not":
            return not self(node.a, depth)
        if name == "Cast":
            value = self(node.value, depth)
            return float(value) if dt.is_float(node.dtype) else int(value)
        if name == "Select":
            return self(node.true_value if self(node.condition, depth) else node.false_value, depth)
        if name == "Call":
            return self._call(node, depth)
        raise _Unknown

    def _call(self, node: TirCall, depth: int) -> float:
        op = op_name_of(node)
        if op in ("tir.if_then_else", "tir.likely"):
            if op == "tir.likely":
                return self(node.args[0], depth)
            return self(node.args[1] if self(node.args[0], depth) else node.args[2], depth)
        if op not in _CALLS:
            raise _Unknown
        return _CALLS[op](*(self(a, depth) for a in node.args))


def _loads_in(expr: PrimExpr | Sequence[PrimExpr]) -> list[Buffer]:
    found: list[Buffer] = []
    post_order_visit(expr, lambda n: found.append(n.buffer) if isinstance(n, BufferLoad) else None)
    return found


def _reached(expr: PrimExpr, uses: _Uses, arguments: Iterable[Buffer]) -> set[Buffer]:
    """The arguments whose contents have a say in an expression, through variables and other buffers."""
    wanted, found, seen = set(arguments), set[Buffer](), set[Any]()
    queue: list[Any] = [expr]

    def visit(node: Buffer | PrimExpr) -> None:
        more: list[Any] = []
        match node:
            case BufferLoad():
                if node.buffer in wanted:
                    found.add(node.buffer)
                elif node.buffer not in seen:
                    seen.add(node.buffer)
                    more = uses.stored.get(node.buffer, [])
            case Var() if node not in seen:
                seen.add(node)
                more = [*uses.domains.get(node, ()), *([uses.bindings[node]] if node in uses.bindings else [])]
        queue.extend(more)

    while queue:
        post_order_visit(queue.pop(), visit)
    return found


def _fits(expr: PrimExpr, extent: int, uses: _Uses, loads: Mapping[Buffer, Values]) -> bool:
    rng = random.Random(0)
    for sample in range(_SAMPLES):
        evaluator = _Evaluator(uses, loads, rng, sample if sample < 2 else None)
        try:
            value = evaluator(expr)
        except (_Unknown, ArithmeticError, ValueError, RecursionError):
            return False
        if not 0 <= value < extent:
            return False
    return True


def legal_values(func: PrimFunc) -> dict[int, Values]:
    """The range of each integer argument of a function, by the argument's position."""
    buffers = [func.buffer_map.get(p) for p in func.params]
    places = {b: i for i, b in enumerate(buffers) if b is not None and _is_integer(b.dtype)}
    if not places:
        return {}
    collector = _Collector()
    collector.visit(func.body)
    uses = collector.uses
    offsets = set().union(*(_direct(bound, uses, places) for bound in uses.bounds), set())
    divisors = set().union(*(_reached(x, uses, places) for x in uses.divisors), set())
    limits: list[tuple[Any, int, set[Buffer]]] = []
    for index, extent in uses.indices:
        reached = _reached(index, uses, places)
        if reached:
            # Where the extent is known only at run time, the first element is all that surely is there.
            limits.append((index, plain(extent) if _is_literal(extent) else 1, reached))
    shifts = set().union(*(_reached(x, uses, places) for x in uses.shifts), set())
    steps = {b: _steps(b, limits) for b in places}
    bound = divisors | offsets | shifts
    found = {b: Values(int(b in divisors), _USUAL, b in offsets, b not in bound and not steps[b]) for b in places}
    for buffer, highs in steps.items():
        if highs:
            found[buffer] = _with_high(found[buffer], highs.pop(0))
    for index, extent, reached in limits:
        while not _fits(index, extent, uses, found):
            shrinkable = [b for b in sorted(reached, key=places.__getitem__) if steps[b]]
            if not shrinkable:
                break
            widest = max(shrinkable, key=lambda b: found[b].high)
            found[widest] = _with_high(found[widest], steps[widest].pop(0))
    return {places[b]: values for b, values in found.items()}


def _is_integer(dtype: str) -> bool:
    return dtype != "bool" and (dt.is_int(dtype) or dtype.startswith("uint"))


def _is_literal(extent: PrimExpr) -> bool:
    return isinstance(plain(extent), int)


def _direct(bound: PrimExpr, uses: _Uses, places: Mapping[Buffer, int]) -> set[Buffer]:
    """Arguments that are offsets: what decides where a loop begins and ends, but is no table of other lengths."""
    return _reached(bound, uses, places) if _loads_in(bound) else set()


def _with_high(values: Values, high: int) -> Values:
    # Offsets may be as large as what they divide.
    high += values.ascending
    return Values(
        min(values.low, high - 1) if values.low == 0 else values.low, max(high, values.low + 1), values.ascending
    )


def _steps(buffer: Buffer, limits: Iterable[tuple[Any, int, set[Buffer]]]) -> list[int]:
    """The ends of ranges to try for a buffer that is an index, widest first; none for one that is not."""
    mine = {extent for _, extent, reached in limits if buffer in reached}
    if not mine:
        return []
    largest = min(max(mine), 1 << (dt.bits(buffer.dtype) - 1))
    smaller = itertools.takewhile(lambda x: x >= 1, (largest >> k for k in range(1, 40)))
    tried = {e - d for e in mine for d in range(3)} | {e // 2 for e in mine} | set(smaller) | {largest}
    return sorted((x for x in tried if 1 <= x <= largest), reverse=True)
