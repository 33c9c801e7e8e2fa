"""Padding shared memory so that the threads of a warp use different banks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr

from ....ir.functor import Visitor
from ....ir.prim import Add, FloorDiv, FloorMod, IntImm, Mul, NE, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import Block, BufferStore, Evaluate, For, ForKind, Stmt
from ..base import StmtExprMutator, StmtExprVisitor, is_call

_BANKS = 32
_LARGEST = 0.25
Term = tuple[int, int]
"""The number of values of a term, and their distance."""


class _Terms(Visitor):
    """An index as a sum of terms; ``found`` is None where it is none."""

    def __init__(self, extents: dict[Any, int]) -> None:
        self.extents = extents

    def of(self, e: PrimExpr) -> list[Term] | None:
        """The terms of an index."""
        match e:
            case IntImm():
                return []
            case Var():
                extent = self.extents.get(e)
                return None if extent is None else [(extent, 1)] if extent > 1 else []
            case Add():
                left, right = self.of(e.a), self.of(e.b)
                return None if left is None or right is None else self._sum([*left, *right])
            case Mul() | FloorDiv() | FloorMod():
                factor = B.as_int(e.b)
                inner = self.of(e.a) if factor is not None else None
                if inner is None or factor is None:
                    return None
                if type(e) is Mul:
                    return [(extent, scale * factor) for extent, scale in inner]
                return self._quotient(inner, factor) if type(e) is FloorDiv else self._remainder(inner, factor)
        return None

    @staticmethod
    def _sum(terms: list[Term]) -> list[Term]:
        out = terms[:1]
        for extent, scale in terms:
            last = out[-1]
            if extent * scale == last[1]:
                out[-1] = (last[0] * extent, scale)
        return out

    @staticmethod
    def _quotient(terms: list[Term], factor: int) -> list[Term] | None:
        out: list[Term] = []
        for extent, scale in terms:
            if scale >= factor:
                if scale % factor:
                    return None
                out.append((extent, scale // factor))
            elif scale * extent > factor:
                if scale * extent % factor:
                    return None
                out.append((extent * scale // factor, 1))
        return out

    @staticmethod
    def _remainder(terms: list[Term], factor: int) -> list[Term] | None:
        out: list[Term] = []
        for extent, scale in terms:
            if scale < factor:
                if factor % scale:
                    return None
                out.append((min(extent, factor // scale), scale))
        return out


def _values(terms: list[Term]) -> list[int]:
    """All values of a sum of terms, once for each combination."""
    out = [0]
    for extent, scale in terms:
        out = [base + step * scale for base in out for step in range(extent)]
    return out


class BankPadding:
    """Collects how warps access shared memory, then pads the buffers."""

    def __init__(self) -> None:
        self.spaces: dict[Buffer, list[list[list[int]]]] = {}
        self.least: dict[Buffer, int] = {}
        self.padded: dict[Buffer, Buffer] = {}

    def at_least(self, buffer: Buffer, elements: int) -> None:
        """Pad by multiples of at least ``elements``."""
        self.least[buffer] = max(elements, self.least.get(buffer, 1))

    def analyze(self, stmt: Stmt, outer_loops: list[For], threads: dict[str, int]) -> None:
        """Note the accesses of a typical warp in a copy."""
        warp: dict[str, int] = {}
        count = 1
        for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            extent = threads.get(tag, 1)
            if count * extent >= _BANKS:
                warp[tag] = _BANKS // count
                break
            warp[tag] = extent
            count *= extent
        _Accesses(self, warp, {loop.loop_var: loop.min for loop in outer_loops}).visit(stmt)

    def pad(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """The buffers with strides that spread accesses over the banks."""
        out = []
        for buffer in buffers:
            spaces = self.spaces.get(buffer)
            if buffer.scope().startswith("shared") and spaces:
                self.padded[buffer] = buffer.with_fields(strides=self._strides(buffer, spaces))
                buffer = self.padded[buffer]
            out.append(buffer)
        return tuple(out)

    def _strides(self, buffer: Buffer, spaces: list[list[list[int]]]) -> tuple[Any, ...]:
        from ....ir import dtype as dt

        bits = dt.bits(buffer.dtype)
        row = _BANKS * 32 // bits
        lower = [space[-1] for space in spaces]
        stride, strides = 1, [1]
        for k in reversed(range(len(buffer.shape) - 1)):
            plain = stride * int(buffer.shape[k + 1])  # type: ignore[call-overload]
            widest = min(int(_LARGEST * plain), row)
            choices = range(0, widest + 1, self.least.get(buffer, 1))
            pad = min(choices, key=lambda p: self._conflict(spaces, lower, k, (plain + p) % row, bits))
            for i, space in enumerate(spaces):
                if space[k]:
                    step = (plain + pad) % row
                    lower[i] = [(a * step + b) * bits % row for a in space[k] for b in lower[i]]
            stride = plain + pad
            strides.append(stride)
        return tuple(IntImm("int32", s) for s in reversed(strides))

    @staticmethod
    def _conflict(spaces: list[list[list[int]]], lower: list[list[int]], k: int, step: int, bits: int) -> int:
        """How many threads meet in one bank at worst."""
        worst = 0
        for space, low in zip(spaces, lower):
            banks = [0] * _BANKS
            for a in space[k]:
                for b in low:
                    banks[(a * step + b) * bits // 32 % _BANKS] += 1
            worst = max(worst, *banks)
        return worst

    def rewrite(self, stmt: Stmt) -> Stmt:
        """The program with padded buffers."""
        return _Padded(self.padded).visit(stmt) if self.padded else stmt


class _Accesses(StmtExprVisitor):
    def __init__(self, owner: BankPadding, warp: dict[str, int], fixed: dict[Any, Any]) -> None:
        self.owner = owner
        self.warp = warp
        self.fixed = fixed
        self.extents: dict[Any, int] = {}
        self.vector: For | None = None

    def visit_For(self, loop: For) -> None:
        binding = loop.thread_binding
        if binding is not None:
            self.extents[loop.loop_var] = self.warp.get(binding.thread_tag, 1)
        else:
            self.fixed[loop.loop_var] = loop.min
        saved = self.vector
        if loop.kind == ForKind.VECTORIZED:
            self.vector = loop
        self.default_visit(loop)
        self.vector = saved
        if binding is None:
            self.fixed.pop(loop.loop_var, None)

    def _note(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
        if not buffer.scope().startswith("shared"):
            return
        analyzer = Analyzer()
        terms = _Terms(self.extents)
        space = []
        for index in indices:
            found = terms.of(analyzer.simplify(substitute(index, self.fixed)))
            space.append([] if found is None else _values(found))
        self.owner.spaces.setdefault(buffer, []).append(space)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._note(store.buffer, store.indices)
        if store.buffer.scope().startswith("shared") and self.vector is not None:
            var, last = self.vector.loop_var, store.indices[-1]
            ends = [substitute(last, {var: IntImm(var.dtype, v)}) for v in (0, 1)]
            step = substitute(ends[1] - ends[0], self.fixed)
            if not Analyzer().can_prove(NE(step, B.const(step.dtype, 1))):
                self.owner.at_least(store.buffer, B.as_int(self.vector.extent) or 1)
        self.visit(store.value)
        self.visit(store.indices)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self._note(load.buffer, load.indices)
        self.visit(load.indices)

    def visit_Block(self, block: Block) -> None:
        call = block.body.value if isinstance(block.body, Evaluate) else None
        if not is_call(call, "tvm_load_matrix_sync", "tvm_store_matrix_sync"):
            return
        for match in block.match_buffers:
            indices = []
            for i, r in enumerate(match.source.region):
                var = Var(f"region{i}", "int32")
                self.extents[var] = B.as_int(r.extent) or 1
                indices.append(r.min + var)
            self._note(match.source.buffer, indices)


class _Padded(StmtExprMutator):
    def __init__(self, buffers: dict[Buffer, Buffer]) -> None:
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


__all__ = ["BankPadding"]
