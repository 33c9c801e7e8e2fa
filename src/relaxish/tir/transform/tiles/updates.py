"""Statements inside of parallel loops, and updates ``out = f(out, x)``: what CPUs and GPUs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.functor import Mutator
from ....ir.expr import PrimExpr
from ....ir import dtype as dt
from ....ir.prim import Cast, StringImm, const
from ....ir.structural import same_expression
from ...expr import BufferLoad
from ...stmt import BlockRealize, BufferStore, Evaluate, For, IfThenElse, SeqStmt, Stmt
from ..base import call, seq
from .arch import Arch
from .names import ATOMIC, FRAGMENT, VAR
from .nests import serial_loops
from ....ir.prim import uncast
from .program import Nest, TileLoweringError, nest_of, opened

__all__ = ["ACQUIRES", "RELEASES", "InParallel", "Updates", "atomic_update", "element_of", "joined", "update_on"]

_PRIVATE = ("local", VAR, FRAGMENT)
RELEASES = ("release", "acq_rel", "seq_cst")
"""Orders by which others that see the update see what was written before it."""
ACQUIRES = ("acquire", "consume", "acq_rel", "seq_cst")
"""Orders by which what is read after it is not older."""


def joined(store: BufferStore, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """An update's operation on other operands."""
    value: Any = store.value
    # max, min, + and the bitwise calls all have two operands, the first of which is the result so far.
    made: PrimExpr = value.with_fields(args=(left, right)) if hasattr(value, "args") else type(value)(left, right)
    return made


def element_of(store: BufferStore) -> PrimExpr:
    """Operand of the reduction besides its result."""
    value: Any = store.value
    made: PrimExpr = value.args[1] if hasattr(value, "args") else value.b
    return made


class Updates(Mutator):
    """Atomic updates in one thread's statements; ``update`` makes one of (kind, body)."""

    def __init__(self, update: Callable[[str, Stmt], Stmt]) -> None:
        super().__init__()
        self.update = update

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        if ATOMIC not in node.block.annotations:
            made: Stmt = self.default_visit(node)
            return made
        body, _ = opened(node)
        return self.update(str(node.block.annotations[ATOMIC]), body)


class InParallel(Updates):
    """Statements inside of a parallel loop: operators do not stand there, atomic updates, prints and loops do.

    ``loops`` makes the loops of a parallel loop inside.
    """

    def __init__(self, update: Callable[[str, Stmt], Stmt], loops: Callable[[Nest], Stmt]) -> None:
        super().__init__(update)
        self.loops = loops

    def visit_For(self, node: For) -> Stmt:
        found = nest_of(node)
        if found is None:
            plain = {k: v for k, v in node.annotations.items() if not k.startswith("tile.")}
            return self.default_visit(node).with_fields(annotations=plain)
        if found.op == "print":
            return serial_loops(found.loops, found.body)
        if found.op != "parallel":
            raise TileLoweringError(
                f"T.{found.op} stands inside of T.Parallel: the whole block runs it, not one iteration"
            )
        return self.loops(found)


_NAMES = {
    "add": "atomicAdd", "max": "atomicMax", "min": "atomicMin", "and": "atomicAnd", "or": "atomicOr", "xor": "atomicXor",
    "exch": "atomicExch",
}  # fmt: skip
Refusal = Callable[[str, str], str]
"""Why (kind of update, type) is none that a device has; nothing where it has."""


def atomic_update(kind: str, body: Stmt, refused: Refusal, fence: Stmt | None = None) -> Stmt:
    """An atomic update as one instruction. ``kind``: add, max, ..., load, and what it orders (``"exch:release"``).

    ``fence`` is what makes memory accesses before and after visible in order. Raises TileLoweringError for what ``refused``.
    """
    how, _, order = kind.partition(":")
    made: Stmt = _AtomicUpdates(how, refused).visit(body)
    if fence is None:
        return made
    return seq([*[fence] * (order in RELEASES), made, *[fence] * (order in ACQUIRES)])


# Types that CUDA's atomic functions take -> the compute capability that has them; bits are of integers only, and extremes of
# floats are found by compare-and-swap.
_CUDA_TYPES = {
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "uint64": 0,
    "float32": 0,
    "float64": 60,
    "float16": 70,
    "bfloat16": 80,
}


def update_on(arch: Arch, kind: str, body: Stmt) -> Stmt:
    """An atomic update of one thread of a GPU. Raises TileLoweringError."""

    def refused(how: str, dtype: str) -> str:
        integer = dt.is_int(dtype) or dt.is_uint(dtype)
        known = (
            dtype in _CUDA_TYPES
            and (integer or how in ("add", "exch", "max", "min"))
            and (how != "exch" or dt.bits(dtype) >= 32)
        )
        level = _CUDA_TYPES.get(dtype, 0)
        if arch.atomics and known and arch.level >= level:
            return ""
        return f"{arch.name} has no such instruction" + (f", sm_{level} has" if arch.atomics and known else "")

    return atomic_update(kind, body, refused, Evaluate(call("", "call_extern", StringImm("__threadfence"))))


class _AtomicUpdates(Mutator):
    """Stores that update an element as one instruction."""

    def __init__(self, how: str, refused: Refusal) -> None:
        super().__init__()
        self.how = how
        self.refused = refused

    def visit_SeqStmt(self, node: SeqStmt) -> Stmt:
        """The value before goes to a variable first: the instruction gives it."""
        first = node.seq[0]
        if len(node.seq) == 2 and isinstance(first, BufferStore) and first.buffer.scope() in ("local", VAR):
            update: Any = self.visit(node.seq[1])
            guarded = update
            while isinstance(guarded, IfThenElse):
                guarded = guarded.then_case
            stored = first.with_fields(value=guarded.value)
            return stored if guarded is update else IfThenElse(update.condition, stored)
        return self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        if node.buffer.scope() in _PRIVATE:
            return node.with_fields(value=self.visit(node.value)) if self.how == "load" else node
        operand = uncast(node.value)
        if self.how != "exch" and _is_element(operand, node):
            # An update that was found to change nothing.
            return Evaluate(self.visit(operand))
        if self.how != "exch":
            parts = operand.args if hasattr(operand, "args") else (operand.a, operand.b)
            operand = next((p for p in parts if not _is_element(p, node)), parts[1])
        dtype = node.buffer.dtype
        return Evaluate(self._call(self.how, BufferLoad(node.buffer, node.indices), _as(dtype, operand)))

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        # What changes nothing gives what is there: adding -0.0 (0.0 would change -0.0), or 0.
        return self._call("add", node, const(-0.0 if dt.is_float(node.dtype) else 0, node.dtype))

    def _call(self, how: str, place: BufferLoad, operand: PrimExpr) -> PrimExpr:
        why = self.refused(how, place.dtype)
        if why:
            raise TileLoweringError(
                f"T.atomic_{'store' if self.how == 'exch' else self.how} on {place.dtype} {place.buffer.name}: {why}; reduce into "
                "memory of each block and join it in a second kernel"
            )
        address = call("handle", "address_of", place)
        made: PrimExpr = call(place.dtype, "call_extern", StringImm(_NAMES[how]), address, operand)
        return made


def _as(dtype: str, e: PrimExpr) -> PrimExpr:
    return e if e.dtype == dtype else Cast(dtype, e)


def _is_element(e: PrimExpr, store: BufferStore) -> bool:
    e = uncast(e)
    return (
        isinstance(e, BufferLoad)
        and e.buffer is store.buffer
        and all(same_expression(a, b) for a, b in zip(e.indices, store.indices, strict=True))
    )
