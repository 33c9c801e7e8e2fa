"""Program facts for the features: its loops, and for each store its accesses in index normal form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...arith.affine import Affine, affine
from ...ir.dtype import is_float, nbytes
from ...ir.expr import PrimExpr
from ...tir import (
    Add,
    And,
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimFunc,
    Select,
    Sub,
    Var,
)
from ...tir import EQ, GE, GT, LE, LT, NE
from ..analysis.blocks import annotation
from ...ir.plain import plain_int
from ...ir.prim import const_int

__all__ = ["Access", "LoopInfo", "Program", "StoreInfo", "extract_program"]

# Slots of the arithmetic counters, floats first.
MAD, ADD_SUB, MUL, DIV_MOD, CMP, MATH, OTHER = range(7)
INT, BOOL_OP, SELECT_OP = 7, 14, 15

_SLOT = {
    Add: ADD_SUB,
    Sub: ADD_SUB,
    Mul: MUL,
    Div: DIV_MOD,
    Mod: DIV_MOD,
    FloorDiv: DIV_MOD,
    FloorMod: DIV_MOD,
    Max: CMP,
    Min: CMP,
    EQ: CMP,
    NE: CMP,
    LT: CMP,
    LE: CMP,
    GT: CMP,
    GE: CMP,
}
_INDEX_OPS = (Add, Sub, Mul, FloorDiv, FloorMod, Var)


@dataclass
class LoopInfo:
    """One loop; ``unroll`` is the pragma in force from here inwards, 0 for none; ``fixed``: whether its extent is a
    number."""

    var: Var
    extent: int
    kind: str = "serial"
    unroll: int = 0
    fixed: bool = True


@dataclass
class Access:
    """All accesses of one store to one buffer; ``kind`` 1 reads, 2 writes, 3 both."""

    buffer: Any
    kind: int
    indices: list[list[Affine[int]]]
    exprs: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return nbytes(self.buffer.dtype)

    def shape(self) -> list[int]:
        """Extents of the buffer, 1 where unknown."""
        return [const_int(x, 1) for x in self.buffer.shape]


@dataclass
class StoreInfo:
    """One store: the loops around it, its accesses, operation counts, and where its buffer is allocated.

    ``exprs`` are the indices whose arithmetic counts as they are written, in ``block_vars``, which ``bindings`` explains;
    ``tensorized`` says that a tensor intrinsic will take the store's place.
    """

    buffer: Any
    loops: list[int]
    accesses: list[Access]
    ops: list[float]
    index_forms: list[Affine[int]]
    alloc_loops: list[int] | None = None
    block: str = ""
    exprs: list[Any] = field(default_factory=list)
    bindings: Mapping[Var, Any] = field(default_factory=dict)
    block_vars: tuple[Var, ...] = ()
    tensorized: bool = False


@dataclass
class Program:
    """Loops by number and stores in program order."""

    loops: list[LoopInfo] = field(default_factory=list)
    stores: list[StoreInfo] = field(default_factory=list)
    allocs: dict[int, list[int]] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)


class _Counter:
    """Counts operations of a value; integer index arithmetic is handed over instead."""

    def __init__(self) -> None:
        self.ops = [0.0] * 16
        self.indices: list[Any] = []
        self.loads: list[BufferLoad] = []

    def visit(self, x: Any) -> None:
        if isinstance(x, (IntImm, FloatImm, str, int, float)) or x is None:
            return
        dtype = getattr(x, "dtype", "")
        if isinstance(x, _INDEX_OPS) and not is_float(dtype) and not self._has_load(x):
            self.indices.append(x)
            return
        if isinstance(x, BufferLoad):
            self.loads.append(x)
            for index in x.indices:
                self.visit(index)
            return
        slot = _SLOT.get(type(x))
        if slot is not None:
            operand = getattr(x.a, "dtype", dtype)
            self.ops[slot if is_float(operand) else slot + INT] += 1
        elif isinstance(x, (And, Or, Not)):
            self.ops[BOOL_OP] += 1
        elif isinstance(x, Select):
            self.ops[SELECT_OP] += 1
        elif isinstance(x, Call):
            self.ops[(MATH if _is_pure(x) else OTHER) + (0 if is_float(dtype) else INT)] += 1
        for child in x.iter_children():
            for item in child if isinstance(child, (tuple, list)) else (child,):
                if hasattr(item, "iter_children") and hasattr(item, "dtype"):
                    self.visit(item)

    def _has_load(self, x: PrimExpr) -> bool:
        match x:
            case BufferLoad() | Call():
                return True
            case Add() | Sub() | Mul() | FloorDiv() | FloorMod():
                return self._has_load(x.a) or self._has_load(x.b)
        return self._has_load(x.value) if isinstance(x, Cast) else not isinstance(x, (Var, IntImm))


def _is_pure(call: Call) -> bool:
    from ...tir.expr import CallEffectKind
    from ...tir.op import effect_of

    try:
        return effect_of(call) <= CallEffectKind.Pure
    except Exception:  # an operator without a declared effect
        return False


class _Extractor:
    def __init__(self) -> None:
        self.program = Program()
        self._block_name = ""
        self._block_vars: tuple[Var, ...] = ()
        self._tensorized = False

    def walk(self, stmt: Any, loops: list[int], bindings: dict[Var, Any]) -> None:
        match stmt:
            case For():
                self._loop(stmt, loops, bindings)
            case BlockRealize():
                self._block(stmt, loops, bindings)
            case BufferStore():
                self._store(stmt, loops, bindings)
            case LetStmt():
                self.walk(stmt.body, loops, {**bindings, stmt.var: affine(stmt.value, bindings)})
            case IfThenElse():
                self.walk(stmt.then_case, loops, bindings)
                if stmt.else_case is not None:
                    self.walk(stmt.else_case, loops, bindings)
            case _ if getattr(stmt, "seq", None) is not None:
                for item in stmt.seq:
                    self.walk(item, loops, bindings)
            case _ if getattr(stmt, "body", None) is not None:
                self.walk(stmt.body, loops, bindings)

    def _loop(self, stmt: For, loops: list[int], bindings: dict[Var, Any]) -> None:
        extent = const_int(stmt.extent)
        step = stmt.annotations.get("pragma_auto_unroll_max_step") if stmt.annotations else None
        unroll = plain_int(step) if step is not None else 0
        kind = {
            ForKind.SERIAL: "serial",
            ForKind.PARALLEL: "parallel",
            ForKind.VECTORIZED: "vectorized",
            ForKind.UNROLLED: "unrolled",
        }.get(stmt.kind, "")
        if stmt.thread_binding is not None:
            kind = stmt.thread_binding.thread_tag
        size = 1 if extent is None else extent
        self.program.loops.append(LoopInfo(stmt.loop_var, size, kind, unroll, extent is not None))
        self.walk(stmt.body, [*loops, len(self.program.loops) - 1], bindings)

    def _block(self, stmt: BlockRealize, loops: list[int], bindings: dict[Var, Any]) -> None:
        block: Block = stmt.block
        inner = dict(bindings)
        for iv, value in zip(block.iter_vars, stmt.iter_values, strict=True):
            inner[iv.var] = affine(value, bindings)
        for buffer in block.alloc_buffers:
            self.program.allocs[id(buffer)] = list(loops)
        self.program.blocks[block.name_hint] = list(loops)
        around = self._block_name, self._block_vars, self._tensorized
        self._block_name, self._block_vars = block.name_hint, tuple(iv.var for iv in block.iter_vars)
        self._tensorized = self._tensorized or bool(annotation(block, "meta_schedule.auto_tensorize"))
        if block.init is not None:
            self.walk(block.init, loops, inner)
        self.walk(block.body, loops, inner)
        self._block_name, self._block_vars, self._tensorized = around

    def _store(self, stmt: BufferStore, loops: list[int], bindings: dict[Var, Any]) -> None:
        if isinstance(stmt.value, (IntImm, FloatImm)):
            return
        counter = _Counter()
        counter.visit(stmt.value)
        written = [affine(i, bindings) for i in stmt.indices]
        accesses = {id(stmt.buffer): Access(stmt.buffer, 2, [written], [tuple(stmt.indices)])}
        for load in counter.loads:
            found = accesses.get(id(load.buffer))
            indices = [affine(i, bindings) for i in load.indices]
            if found is None:
                accesses[id(load.buffer)] = Access(load.buffer, 1, [indices], [tuple(load.indices)])
            elif found.kind == 2:
                found.kind = 3
            elif found.kind == 1:
                found.indices.append(indices)
                found.exprs.append(tuple(load.indices))
        forms = [affine(x, bindings) for x in counter.indices]
        self.program.stores.append(
            StoreInfo(
                stmt.buffer,
                list(loops),
                list(accesses.values()),
                counter.ops,
                forms,
                self.program.allocs.get(id(stmt.buffer)),
                self._block_name,
                counter.indices,
                bindings,
                self._block_vars,
                self._tensorized,
            )
        )


def extract_program(funcs: Iterable[PrimFunc]) -> Program:
    """Read functions, scheduled or lowered: blocks are opened and their axes replaced by what they are bound to."""
    extractor = _Extractor()
    for func in funcs:
        extractor.walk(func.body, [], {})
    return extractor.program
