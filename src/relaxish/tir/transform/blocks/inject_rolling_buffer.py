"""InjectRollingBuffer: what one iteration computed and the next one needs again is kept, not computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.int_set import IntervalSet
from ....ir.expr import PrimExpr, Range
from ....ir.prim import GE, LT, FloorDiv, FloorMod, IntImm, Mul, Or, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AttrStmt, BufferRealize, BufferStore, For, IfThenElse, Stmt
from ..base import LoweringError, StmtExprMutator, call, FunctionRewrite
from ..simplify.convert_ssa import convert_body

_MARK = "rolling_buffer_scope"


@dataclass(frozen=True)
class _Rolling:
    """The axis along which a buffer rolls, its extent there, and how far iterations overlap along every axis."""

    axis: int
    extent: int
    overlaps: tuple[tuple[Var | None, int], ...]


class _Inject(StmtExprMutator):
    def __init__(self) -> None:
        self.loops: list[For] = []
        self.realizes: dict[Buffer, BufferRealize] = {}
        self.attrs: dict[Buffer, list[AttrStmt]] = {}
        self.rolling: dict[Buffer, _Rolling] = {}
        self.hoisted: dict[Var, list[BufferRealize]] = {}

    def visit_For(self, loop: For) -> Stmt:
        self.loops.append(loop)
        made: Any = self.default_visit(loop)
        self.loops.pop()
        for realize in self.hoisted.get(loop.loop_var, ()):
            # All that was said of the buffer where it was realized is now said around the loop.
            made = realize.with_fields(body=made)
            for attr in self.attrs[realize.buffer]:
                if attr.attr_key != _MARK:
                    made = attr.with_fields(body=made)
        return made

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        buffer = attr.node
        if not isinstance(buffer, Buffer):
            return self.default_visit(attr)
        self.attrs.setdefault(buffer, []).append(attr)
        if attr.attr_key == _MARK and B.as_int(attr.value):
            self._roll(buffer)
        made: Any = self.default_visit(attr)
        return made.body if buffer in self.rolling else made

    def visit_BufferRealize(self, stmt: BufferRealize) -> Stmt:
        self.realizes.setdefault(stmt.buffer, stmt)
        made: Any = self.default_visit(stmt)
        return made.body if stmt.buffer in self.rolling else made

    def _roll(self, buffer: Buffer) -> None:
        """Decide the axis of a marked buffer, and realize it around the loop of that axis."""
        realize = self.realizes.get(buffer)
        if realize is None:
            raise LoweringError("Rolling buffer injection failed: no BufferRealize found")
        overlaps = tuple(_overlap(bound) for bound in realize.bounds)
        sliding = [var for var, _ in overlaps]
        loop = next((x for x in self.loops if any(x.loop_var is v for v in sliding)), None)
        if loop is None:
            raise LoweringError("Rolling buffer injection failed: no rolling axis found")
        axis = next(i for i, v in enumerate(sliding) if v is loop.loop_var)
        extent = _constant(realize.bounds[axis].extent)
        self.rolling[buffer] = _Rolling(axis, extent, overlaps)
        zero = IntImm("int32", 0)
        sizes = [IntImm("int32", extent) if i == axis else n for i, n in enumerate(buffer.shape)]
        bounds = [Range.from_min_extent(zero, n) for n in sizes]
        self.hoisted.setdefault(loop.loop_var, []).append(realize.with_fields(bounds=tuple(bounds)))

    @staticmethod
    def _turned(info: _Rolling, indices: Sequence[PrimExpr]) -> tuple[Any, ...]:
        size = IntImm("int32", info.extent)
        return tuple(FloorMod(e, size) if i == info.axis else e for i, e in enumerate(indices))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made = self.default_visit(load)
        info = self.rolling.get(load.buffer)
        return made if info is None else made.with_fields(indices=self._turned(info, made.indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        made: Any = self.default_visit(store)
        info = self.rolling.get(store.buffer)
        if info is None:
            return made
        result = made.with_fields(indices=self._turned(info, made.indices))
        for (var, overlap), index in zip(info.overlaps, made.indices):
            if var is None or overlap <= 0:
                continue
            zero = B.const(var.dtype, 0)
            first = Analyzer().int_set(index, {var: IntervalSet(zero, zero)}).min_value
            fresh = Or(LT(var, B.const(var.dtype, 1)), GE(first, B.const(first.dtype, overlap)))
            result = IfThenElse(call("bool", "likely", fresh), result)
        return result


def _overlap(bound: Range) -> tuple[Var | None, int]:
    """The loop variable that moves a bound, and by how much more the bound is long than one step."""
    start: Any = bound.min
    divisor = 1
    if isinstance(start, FloorDiv):
        start, divisor = start.a, _constant(start.b)
    match start:
        case IntImm():
            return None, 0
        case Var():
            var, stride = start, 1
        case Mul() if isinstance(start.a, Var) and isinstance(start.b, IntImm):
            var, stride = start.a, start.b.value
        case _:
            raise LoweringError("Rolling buffer injection failed: the buffer striding is unsupported")
    return var, _constant(bound.extent) - -(-stride // divisor)


def _constant(e: PrimExpr) -> int:
    value = B.as_int(e)
    if value is None:
        raise LoweringError(f"Rolling buffer injection failed: the extent {e} is not constant")
    return value


def inject(func: PrimFunc) -> PrimFunc:
    """Roll the marked buffers of a function."""
    injector = _Inject()
    body = injector.visit(func.body)
    return func.with_body(convert_body(body)) if injector.rolling else func


class InjectRollingBuffer(FunctionRewrite):
    """Keep a window of a marked buffer over the iterations of the loop along which it slides.

    Before (each iteration ``i`` computes rows ``[i, i + 3)``)::

        for i in range(8):
            with T.realize(B[i:i + 3]):
                T.attr(B, "rolling_buffer_scope", True)
                for j in range(3): B[i + j] = A[i + j]
                C[i] = B[i] + B[i + 2]

    After: three rows that are used in turn; all but the first iteration compute only the row that is new::

        with T.realize(B[0:3]):
            for i in range(8):
                for j in range(3):
                    if T.likely(i < 1 or j >= 2): B[(i + j) % 3] = A[i + j]
                C[i] = B[i % 3] + B[(i + 2) % 3]

    The buffer rolls along the outermost loop that moves its bounds. Raises ValueError where a bound moves otherwise
    than by a multiple of one loop variable.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return inject(func)
