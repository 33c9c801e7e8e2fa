"""Features of scheduled programs for cost models: what each loop is like, and what it touches.

A program is read as a *structure* (loops, annotations, accesses), which schedules that only differ in sizes share, and
*quantities* (lengths, strides, how often memory is reused). Rows are assembled from both, for one program or for many
at a time; :mod:`.quantities` gives the quantities of many configurations as columns, without making their programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..arith.affine import affine
from ..ir import IRModule
from ..ir.expr import PrimExpr
from ..ir.functor import Visitor
from ..ir.prim import Add, BinaryOp, Mul, Sub, Var, const_int
from ..meta_schedule.analysis.blocks import places
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from ..te.schedule import Schedule
from ..te.tensor import Tensor
from ..tir import For, ForKind, IntImm, PrimFunc
from ..tir.buffer import Buffer
from ..tir.expr import BufferLoad
from ..tir.stmt import BufferStore

__all__ = ["Program", "Structure", "assemble", "curve_rows", "get_buffer_curve_sample_flatten", "get_itervar_feature",
    "get_itervar_feature_flatten", "itervar_rows", "read_program"]  # fmt: skip

Array = np.ndarray[Any, Any]
#: One-hot places of annotations.
_MARKS = (
    "serial", "parallel", "vectorized", "unrolled", "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y",
    "threadIdx.z", "vthread", "vthread.x", "vthread.y", "vthread.z", "tensorized", "pragma", "auto_unroll", "explicit_unroll",
    "software_pipeline", "other",
)  # fmt: skip
_PER_LOOP, _PER_TOUCH = 3, 6
_POINTS = 20
_KINDS = {
    ForKind.SERIAL: "serial", ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorized", ForKind.UNROLLED: "unrolled",
}  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """One loop: its depth, the place of its annotation, operations below it, and the accesses it surrounds."""

    nest: int
    mark: int
    parallel: bool
    arith: tuple[int, int, int]
    accesses: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """Common structure of programs that differ only in sizes."""

    loops: tuple[Loop, ...]
    chains: tuple[tuple[int, ...], ...]  # the loops around each access, outermost first

    @property
    def width(self) -> int:
        """Number of quantities of such programs."""
        return sum(_PER_LOOP + _PER_TOUCH * len(loop.accesses) for loop in self.loops)


@dataclass
class Program:
    """Structure and quantities of one program."""

    structure: Structure
    quantities: Array


class _Body(Visitor):
    """Operations and accesses of a block's body."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0]
        self.accesses: list[tuple[Any, tuple[Any, ...]]] = []

    def _binary(self, node: BinaryOp, place: int) -> None:
        self.counts[place] += 1
        self.visit(node.a)
        self.visit(node.b)

    def visit_Add(self, node: Add | Sub) -> None:
        self._binary(node, 0)

    visit_Sub = visit_Add

    def visit_Mul(self, node: Mul) -> None:
        self._binary(node, 1)

    def visit_Div(self, node: BinaryOp) -> None:
        self._binary(node, 2)

    visit_Mod = visit_FloorDiv = visit_FloorMod = visit_Div

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.accesses.append((node.buffer, tuple(node.indices)))

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.accesses.append((node.buffer, tuple(node.indices)))
        self.visit(node.value)


def _mark(loop: For) -> int:
    if loop.kind == ForKind.THREAD_BINDING:
        tag = loop.thread_binding.thread_tag if loop.thread_binding is not None else "other"
        return _MARKS.index(tag) if tag in _MARKS else _MARKS.index("other")
    return _MARKS.index(_KINDS.get(loop.kind, "other"))


def _extent(loop: For) -> int:
    if not isinstance(loop.extent, IntImm):
        raise RelaxishError(f"the extent of loop {loop.loop_var.name} is not constant")
    return int(loop.extent.value)


def _stride(buffer: Buffer, indices: tuple[Any, ...], var: Var, bindings: Mapping[Var, PrimExpr]) -> int:
    total, weight = 0, 1
    for dim, index in zip(reversed(buffer.shape), reversed(indices), strict=True):
        total += abs(affine(index, bindings).step(var)) * weight
        weight *= const_int(dim, 1)
    return total


def read_program(mod: IRModule) -> Program:
    """Structure and quantities of a scheduled program. Raises RelaxishError for extents that are not constant."""
    func = next(of_kind(mod.functions.values(), PrimFunc)) if isinstance(mod, IRModule) else mod
    order: dict[Any, int] = {}
    nodes: list[For] = []
    depth: list[int] = []
    counts: list[list[int]] = []
    around: list[list[int]] = []
    chains: list[tuple[int, ...]] = []
    moved: dict[tuple[int, int], int] = {}
    for place in places(func):
        if place.scope is None or not place.loops and not place.realize.block.iter_vars:
            continue
        chain = []
        for nest, loop in enumerate(place.loops):
            if loop not in order:
                order[loop] = len(nodes)
                nodes.append(loop)
                depth.append(nest)
                counts.append([0, 0, 0])
                around.append([])
            chain.append(order[loop])
        body = _Body()
        body.visit(place.realize.block.body)
        bindings = dict(
            zip((iv.var for iv in place.realize.block.iter_vars), place.realize.iter_values, strict=True)
        )  # fmt: skip
        for number in chain:
            counts[number] = [a + b for a, b in zip(counts[number], body.counts, strict=True)]
        for buffer, indices in body.accesses:
            access = len(chains)
            chains.append(tuple(chain))
            for number in chain:
                around[number].append(access)
                one = _extent(nodes[number]) == 1
                moved[number, access] = 0 if one else _stride(buffer, indices, nodes[number].loop_var, bindings)
    loops = tuple(
        Loop(depth[i], _mark(n), _mark(n) >= 4 or n.kind == ForKind.PARALLEL, tuple(counts[i]), tuple(around[i]))  # type: ignore[arg-type]
        for i, n in enumerate(nodes)
    )
    structure = Structure(loops, tuple(chains))
    lengths = [_extent(n) for n in nodes]
    return Program(structure, _quantities(structure, lengths, moved))


def _quantities(structure: Structure, lengths: list[int], moved: dict[tuple[int, int], int]) -> Array:
    out: list[float] = []
    for number, loop in enumerate(structure.loops):
        first = structure.chains[loop.accesses[0]] if loop.accesses else (number,)
        place = first.index(number)
        topdown = prod(lengths[i] for i in first[: place + 1])
        below = [prod(lengths[i] for i in c[c.index(number) :]) for c in (structure.chains[a] for a in loop.accesses)]
        out += [lengths[number], topdown, max(below, default=1)]
        for access in loop.accesses:
            chain = structure.chains[access]
            inner = chain[chain.index(number) :]
            steps = [i for i in inner if moved[i, access]]
            still = [i for i in inner if not moved[i, access]]
            stride = moved[number, access]
            out += [
                stride,
                stride * lengths[number],
                prod(lengths[i] for i in steps),
                prod(lengths[i] for i in still),
                prod(lengths[i] for i in steps if structure.loops[i].parallel),
                prod(lengths[i] for i in still if structure.loops[i].parallel),
            ]
    return np.array(out, dtype=np.float64)


def _log(values: Array) -> Array:
    scaled: Array = np.sign(values) * np.log2(np.abs(values) + 1.0)
    return scaled


def assemble(structure: Structure, quantities: Array, kind: str) -> Array:
    """``[rows, features]`` float32 of programs of one structure; ``kind`` is "itervar" or "curve"."""
    rows = itervar_rows(structure, quantities) if kind == "itervar" else curve_rows(structure, quantities)
    return rows.astype(np.float32)


def itervar_rows(structure: Structure, quantities: Array) -> Array:
    """For each loop: length, depth, product of the lengths down to it and below it, annotation, operations, touches."""
    count = len(quantities)
    parts: list[Array] = []
    at = 0
    for loop in structure.loops:
        own = _log(quantities[:, at : at + _PER_LOOP])
        at += _PER_LOOP
        fixed = np.zeros((count, len(_MARKS) + 3))
        fixed[:, loop.mark] = 1.0
        fixed[:, len(_MARKS) :] = _log(np.array(loop.arith, dtype=np.float64))
        parts += [own[:, :1], np.full((count, 1), float(loop.nest)), own[:, 1:], fixed]
        width = _PER_TOUCH * len(loop.accesses)
        parts.append(_log(quantities[:, at : at + width]))
        at += width
    return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0))


def curve_rows(structure: Structure, quantities: Array) -> Array:
    """For each access three curves at 20 points: its reuse and its elements over the work below, and its reuse over
    its elements; all in powers of two."""
    count = len(quantities)
    points = np.arange(_POINTS, dtype=np.float64)
    curves: list[Array] = []
    places = _touch_places(structure)
    logs = np.log2(np.maximum(quantities, 1.0))
    for access, chain in enumerate(structure.chains):
        if not chain:
            continue
        starts = [places[number, access] for number in chain]
        work = np.stack([logs[:, places[number, -1] + 2] for number in chain], axis=1)
        size = np.stack([logs[:, s + 2] for s in starts], axis=1)
        reuse = np.stack([logs[:, s + 3] for s in starts], axis=1)
        for over, value in ((work, reuse), (work, size), (size, reuse)):
            reached = over[:, :, None] <= points[None, None, :]
            curves.append(np.where(reached, value[:, :, None], 0.0).max(axis=1))
    return np.concatenate(curves, axis=1) if curves else np.zeros((count, 0))


def _touch_places(structure: Structure) -> dict[tuple[int, int], int]:
    """Where the quantities of a loop (access -1), and of an access in it, begin."""
    found: dict[tuple[int, int], int] = {}
    at = 0
    for number, loop in enumerate(structure.loops):
        found[number, -1] = at
        at += _PER_LOOP
        for access in loop.accesses:
            found[number, access] = at
            at += _PER_TOUCH
    return found


# ---- of one schedule, under the field's names


def _program(sch: Any, args: Sequence[Tensor]) -> Program:
    from .task.task import program_of

    return read_program(program_of(sch, args))


def get_itervar_feature_flatten(sch: Schedule, args: Sequence[Tensor], take_log: bool = True) -> Array:
    """One row: the features of all loops of a schedule, one after another."""
    program = _program(sch, args)
    if not take_log:
        return program.quantities.astype(np.float32)
    return assemble(program.structure, program.quantities[None, :], "itervar")[0]


def get_itervar_feature(sch: Schedule, args: Sequence[Tensor], take_log: bool = False) -> list[list[float]]:
    """For each loop a list of its quantities: length, topdown, bottomup, then six of each access."""
    program = _program(sch, args)
    values = _log(program.quantities) if take_log else program.quantities
    out, at = [], 0
    for loop in program.structure.loops:
        width = _PER_LOOP + _PER_TOUCH * len(loop.accesses)
        out.append([float(v) for v in values[at : at + width]])
        at += width
    return out


def get_buffer_curve_sample_flatten(sch: Schedule, args: Sequence[Tensor], sample_n: int = _POINTS) -> Array:
    """One row: the curves of all accesses of a schedule at their first ``sample_n`` points."""
    program = _program(sch, args)
    row = assemble(program.structure, program.quantities[None, :], "curve")[0]
    return row.reshape(-1, _POINTS)[:, :sample_n].reshape(-1)
