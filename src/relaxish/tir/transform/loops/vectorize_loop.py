"""VectorizeLoop: loops marked vectorized become vector operations.

Before: ``for i in T.vectorized(8): A[i] = B[i] + 1.0``.
After: ``A[T.Ramp(0, 1, 8)] = B[T.Ramp(0, 1, 8)] + T.Broadcast(1.0, 8)``.  What has no vector form stays a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.op import op_name_of
from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import substitute
from ....ir import dtype as dt
from ....ir.expr import ExprLike, PrimExpr, as_expr
from ....ir.functor import all_nodes
from ....ir.prim import (
    Add, BinaryOp, Broadcast, Call, Cast, IntImm, Let, Mul, Not, Ramp, Select, Shuffle, StringImm, Sub, Var, const_int,
)  # fmt: skip
from ....support.sequences import of_kind
from ...expr import BufferLoad
from ...limits import MAX_LANES, lanes_of_loops, too_many_lanes
from ...stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip
from ....target import Target
from ....target.codegen import llvm_get_intrinsic_name
from ...buffer import Buffer
from ...function import PrimFunc
from ...intrinsics import LLVM_LANEWISE, named
from ..base import (
    LoweringError,
    SeqMutator,
    StmtExprVisitor,
    call,
    config,
    flatten_seq,
    is_call,
    FunctionRewrite,
)
from .vector_memory import OwnCopies, predicated

_VECTOR_CALLS = frozenset(named(lambda record: record.lanewise))


def _operands_from(e: Call) -> int | None:
    """Where the operands of a call begin that is computed lane by lane; None where it is not."""
    if op_name_of(e).removeprefix("tir.") in _VECTOR_CALLS:
        return 0
    if not is_call(e, "call_llvm_pure_intrin"):
        return None
    first = e.args[0]
    name = first.value if isinstance(first, StringImm) else llvm_get_intrinsic_name(int(first.value))
    if name.removeprefix("llvm.") not in LLVM_LANEWISE:
        return None
    # An old form carries the number of overloading arguments first.
    return 2 if isinstance(e.args[1], IntImm) and e.args[1].dtype == "uint32" else 1


class NeedsScalar(Exception):
    """A statement has no vector form."""


def _lanes(e: PrimExpr) -> int:
    return dt.lanes(e.dtype)


def _widest(*exprs: Any) -> int:
    """The lanes of the widest operand; scalable vectors (negative: a factor of vscale) are wider than all others."""
    counts = [_lanes(e) for e in exprs]
    return min(counts) if min(counts) < 0 else max(counts)


def spread(e: PrimExpr, lanes: int) -> PrimExpr:
    """``e`` with ``lanes`` lanes."""
    have = _lanes(e)
    if have == lanes:
        return e
    if type(e) is Broadcast and have > 0 and lanes > 0 and lanes % have == 0:
        return Broadcast(e.value, lanes)
    if have != 1:
        raise NeedsScalar(f"cannot spread {have} lanes to {lanes}")
    return Broadcast(e, lanes if lanes > 0 else Mul(call("int32", "vscale"), IntImm("int32", -lanes)))


def _reads(e: PrimExpr, buffer: Buffer) -> bool:
    class Find(StmtExprVisitor):
        found = False

        def visit_BufferLoad(self, load: BufferLoad) -> None:
            self.found = self.found or load.buffer is buffer

    find = Find()
    find.visit(e)
    return find.found


def _element(vector: PrimExpr, index: int) -> PrimExpr:
    return Shuffle([vector], [IntImm("int32", index)])


class _Vectorizer(SeqMutator):
    """Rewrites the body of one vectorized loop; expressions that do not depend on its variable stay scalar.

    ``masks`` allows accesses under a condition that differs between lanes to carry it as a predicate.
    """

    def __init__(self, var: Var, lanes: ExprLike, masks: bool = False) -> None:
        self.var = var
        self.lanes = lanes
        self.masks = masks
        self.analyzer = Analyzer()
        self.ramp = Ramp(B.const(var.dtype, 0), B.const(var.dtype, 1), lanes)
        self.lets: dict[Var, Any] = {}

    # -- expressions ---------------------------------------------------------------------------------------

    def visit_Var(self, e: Var) -> PrimExpr:
        if e is self.var:
            return self.ramp
        return self.lets.get(e, e)

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        lanes = _widest(a, b)
        if type(e) in (Add, Sub) and lanes != 1:
            if type(a) is Ramp and _lanes(b) == 1:
                return Ramp(B.BUILDERS[type(e)](a.base, b), a.stride, a.lanes)
            if type(b) is Ramp and _lanes(a) == 1:
                if type(e) is Add:
                    return Ramp(B.add(a, b.base), b.stride, b.lanes)
                return Ramp(B.sub(a, b.base), B.sub(B.const(b.stride.dtype, 0), b.stride), b.lanes)
        if type(e) is Mul and lanes != 1:
            if type(a) is Ramp and _lanes(b) == 1 and self._positive(b):
                return Ramp(B.mul(a.base, b), B.mul(a.stride, b), a.lanes)
            if type(b) is Ramp and _lanes(a) == 1 and self._positive(a):
                return Ramp(B.mul(b.base, a), B.mul(b.stride, a), b.lanes)
        if type(e) in (Add, Sub):
            return B.BUILDERS[type(e)](spread(a, lanes), spread(b, lanes))
        return type(e)(spread(a, lanes), spread(b, lanes))

    def _positive(self, e: PrimExpr) -> bool:
        return self.analyzer.can_prove_greater_equal(e, 1)

    def visit_Not(self, e: Not) -> PrimExpr:
        a = self.visit(e.a)
        return e if a is e.a else Not(a)

    def visit_Select(self, e: Select) -> PrimExpr:
        cond, a, b = self.visit(e.condition), self.visit(e.true_value), self.visit(e.false_value)
        if cond is e.condition and a is e.true_value and b is e.false_value:
            return e
        lanes = _widest(cond, a, b)
        return Select(spread(cond, lanes), spread(a, lanes), spread(b, lanes))

    def visit_Cast(self, e: Cast) -> PrimExpr:
        value = self.visit(e.value)
        if value is e.value:
            return e
        return Cast(dt.with_lanes(dt.element_of(e.dtype), _lanes(value)), value)

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        base, stride = self.visit(e.base), self.visit(e.stride)
        if base is e.base and stride is e.stride:
            return e
        inner, width = self._fixed_lanes(e)
        if isinstance(base, Ramp) and _lanes(stride) == 1:
            if B.is_zero(B.sub(base.stride, B.mul(stride, B.const(stride.dtype, inner)))):
                return Ramp(base.base, stride, inner * width)
        lanes = _widest(base, stride)
        pieces = [
            Ramp(_element(spread(base, lanes), i), _element(spread(stride, lanes), i), inner) for i in range(lanes)
        ]
        return Shuffle(pieces, [IntImm("int32", i) for i in range(lanes * inner)])

    def visit_Broadcast(self, e: Broadcast) -> PrimExpr:
        value = self.visit(e.value)
        if value is e.value:
            return e
        inner, width = self._fixed_lanes(e)
        if type(value) is Broadcast:
            return Broadcast(value.value, inner * width)
        raise NeedsScalar("a vector inside a vectorized loop")

    def _fixed_lanes(self, e: PrimExpr) -> tuple[int, int]:
        """The lanes of a vector and of the loop. Raises LoweringError where one of them is a factor of vscale."""
        lanes = _lanes(e)
        if not isinstance(self.lanes, int) or lanes < 0:
            raise LoweringError("Creating scalable vectors from existing vectors is not supported.")
        return lanes, self.lanes

    def visit_Call(self, e: Call) -> PrimExpr:
        name = op_name_of(e)
        if name == "tir.if_then_else":
            return self._if_then_else(e)
        if name in ("tir.texture2d_load", "tir.texture2d_store"):
            return self._texture(e)
        if name == "tir.check_index":
            return self._check_index(e)
        args = tuple(self.visit(a) for a in e.args)
        if all(a is b for a, b in zip(args, e.args)):
            return e
        fixed = _operands_from(e)
        if fixed is None:
            raise NeedsScalar(f"{name or e.op} has no vector form")
        lanes = _widest(*args)
        dtype = dt.with_lanes(dt.element_of(e.dtype), lanes)
        return Call(dtype, e.op, (*args[:fixed], *(spread(a, lanes) for a in args[fixed:])), e.annotations)

    def _check_index(self, e: Call) -> PrimExpr:
        """Lanes may have indices of their own; what they must stay below is the same for all."""
        value, *rest = (self.visit(a) for a in e.args)
        if any(a is not b for a, b in zip(rest, e.args[1:])):
            raise NeedsScalar("a range of indices that differs between lanes")
        if value is e.args[0]:
            return e
        if not all(B.is_zero(a) for a in e.args[1:3]):
            raise NeedsScalar("a range of indices that begins elsewhere in each lane")
        return Call(dt.with_lanes(dt.element_of(e.dtype), _lanes(value)), e.op, (value, *rest), e.annotations)

    def _texture(self, e: Call) -> PrimExpr:
        """Texels are vectors themselves: only the last argument takes the lanes."""
        last = self.visit(e.args[-1])
        lanes = 4 if is_call(e, "texture2d_load") else _lanes(last)
        return Call(dt.with_lanes(dt.element_of(e.dtype), lanes), e.op, (*e.args[:-1], last), e.annotations)

    def _if_then_else(self, e: Call) -> PrimExpr:
        cond = self.visit(e.args[0])
        if _lanes(cond) != 1:
            # Lanes may take different branches, and the branch not taken may not even be readable.
            raise NeedsScalar("a condition that differs between lanes")
        a, b = self.visit(e.args[1]), self.visit(e.args[2])
        if cond is e.args[0] and a is e.args[1] and b is e.args[2]:
            return e
        lanes = _widest(a, b)
        return Call(dt.with_lanes(dt.element_of(e.dtype), lanes), e.op, (cond, spread(a, lanes), spread(b, lanes)))

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        indices = self._indices(e.indices)
        if indices is None:
            return e
        if e.predicate is not None:
            raise NeedsScalar("a predicated access")
        return BufferLoad(e.buffer, indices)

    def _indices(self, indices: Sequence[PrimExpr]) -> list[Any] | None:
        """Vector indices; None if nothing depends on the loop."""
        made = [self.visit(i) for i in indices]
        if all(a is b for a, b in zip(made, indices)):
            return None
        if any(_lanes(i) < 0 for i in made[:-1]):
            raise LoweringError("Only the last index can be scalable.")
        return made

    def visit_Let(self, e: Let) -> PrimExpr:
        value = self.visit(e.value)
        if value is not e.value:
            fresh = Var(e.var.name, value.dtype)
            self.lets[e.var] = fresh
            return Let(fresh, value, self.visit(e.body))
        body = self.visit(e.body)
        return e if body is e.body else Let(e.var, value, body)

    # -- statements ----------------------------------------------------------------------------------------

    def visit_Stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case While():
                raise LoweringError("A while loop inside a vectorized loop not supported.")
            case AssertStmt():
                raise NeedsScalar("an assertion in a vectorized loop")
        return self.default_visit(stmt)

    def statement(self, stmt: Stmt) -> Stmt:
        """The vector form of ``stmt``, or a scalar loop around it."""
        try:
            return self.visit(stmt)
        except NeedsScalar:
            return self.scalar(stmt)

    def scalar(self, stmt: Stmt) -> Stmt:
        """A serial loop over the lanes."""
        if self.lets:
            raise NeedsScalar("depends on vector values outside")
        fresh = Var(self.var.name + "_s", self.var.dtype)
        body = substitute(stmt, {self.var: fresh})
        return For(fresh, B.const(fresh.dtype, 0), self._extent(fresh.dtype), ForKind.SERIAL, body)

    def _extent(self, dtype: str) -> PrimExpr:
        return B.const(dtype, self.lanes) if isinstance(self.lanes, int) else B.cast(dtype, as_expr(self.lanes))

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        made = [self.statement(s) for s in stmt.seq]
        return stmt if all(a is b for a, b in zip(made, stmt.seq)) else flatten_seq(made)

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        indices = self._indices(stmt.indices)
        value = self.visit(stmt.value)
        if indices is None and value is stmt.value:
            return stmt
        if stmt.predicate is not None:
            raise NeedsScalar("a predicated access")
        if indices is None and _reads(stmt.value, stmt.buffer):
            raise NeedsScalar("an update of one place by all lanes")
        indices = list(stmt.indices) if indices is None else indices
        element = dt.lanes(stmt.buffer.dtype)
        if not indices or indices[-1].dtype == "bool":
            raise NeedsScalar("all lanes store to one place")
        last = _lanes(indices[-1])
        if last < 0 and element != 1:
            raise LoweringError("Vectorizing over scalable buffer elements is not supported in vectorizer.")
        outer = element
        for index in indices[:-1]:
            outer *= _lanes(index)
        wide = _lanes(value)
        if last < 0 or wide < 0:
            total = min(outer * last, wide)
        else:
            total = max(outer * last, wide)
        if total % outer:
            raise LoweringError(f"a store of {total} lanes cannot be divided over {outer} places")
        indices[-1] = spread(indices[-1], total // outer)
        return BufferStore(stmt.buffer, spread(value, total), indices, None, span=stmt.span)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        cond = self.visit(stmt.condition)
        if _lanes(cond) != 1:
            masked = None
            if self.masks and stmt.else_case is None:
                masked = predicated(self.statement(stmt.then_case), cond)
            if masked is not None:
                return masked
            raise NeedsScalar("a condition that differs between lanes")
        then = self.statement(stmt.then_case)
        other = None if stmt.else_case is None else self.statement(stmt.else_case)
        if cond is stmt.condition and then is stmt.then_case and other is stmt.else_case:
            return stmt
        return IfThenElse(cond, then, other, span=stmt.span)

    def visit_For(self, loop: For) -> Stmt:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        if low is not loop.min or extent is not loop.extent:
            raise NeedsScalar("loop bounds that differ between lanes")
        body = self.statement(loop.body)
        return loop if body is loop.body else loop.with_fields(body=body)

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        value = self.visit(stmt.value)
        if value is stmt.value:
            body = self.statement(stmt.body)
            return stmt if body is stmt.body else stmt.with_fields(body=body)
        fresh = Var(stmt.var.name, value.dtype)
        self.lets[stmt.var] = fresh
        try:
            return LetStmt(fresh, value, self.visit(stmt.body))
        finally:
            del self.lets[stmt.var]

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        value = self.visit(stmt.value)
        if value is stmt.value:
            return stmt
        raise NeedsScalar("an effect for each lane")

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        value = self.visit(stmt.value)
        if value is not stmt.value:
            raise NeedsScalar("an attribute that differs between lanes")
        body = self.statement(stmt.body)
        return stmt if body is stmt.body else stmt.with_fields(body=body)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        extents = [self.visit(e) for e in stmt.extents]
        condition = self.visit(stmt.condition)
        if any(_lanes(e) != 1 for e in (*extents, condition)):
            raise NeedsScalar("an allocation whose size differs between lanes")
        # Each iteration has memory of its own: one copy for each lane, side by side.
        extents[-1] = extents[-1] * self.lanes
        body = self.statement(OwnCopies(stmt.buffer_var, self.var, self.lanes).visit(stmt.body))
        return Allocate(stmt.buffer_var, stmt.dtype, tuple(extents), condition, body, stmt.annotations)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        body = self.statement(stmt.body)
        return stmt if body is stmt.body else stmt.with_fields(body=body)


def _is_scalable(extent: PrimExpr) -> bool:
    """Whether an extent is ``vscale`` or a multiple of it."""
    parts = (extent.a, extent.b) if type(extent) is Mul else (extent,)
    return any(is_call(p, "vscale") for p in parts)


def _has_scalable_vectors(target: Target | None) -> bool:
    return target is not None and any("sve" in str(f) or "sme" in str(f) for f in target.mattr)


def _buffer_predicates(target: Target | None) -> bool:
    """Whether accesses may be masked: as the pass context says, or where the target has scalable vectors."""
    chosen = config("tir.enable_buffer_level_predication", None)
    return _has_scalable_vectors(target) if chosen is None else bool(chosen)


class _Loops(SeqMutator):
    def __init__(self, enabled: bool, target: Target | None) -> None:
        self.enabled = enabled
        self.target = target
        self.analyzer = Analyzer()

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "target" or not isinstance(attr.node, Target):
            return self.default_visit(attr)
        around, self.target = self.target, attr.node
        try:
            return self.default_visit(attr)
        finally:
            self.target = around

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind != ForKind.VECTORIZED:
            return self.default_visit(loop)
        if not self.enabled:
            return self.visit(loop.with_fields(kind=ForKind.SERIAL))
        extent = loop.extent
        constant = const_int(extent, 0) >= 1
        if not constant and not (_is_scalable(extent) and _has_scalable_vectors(self.target)):
            target = "(nullptr)" if self.target is None else self.target
            raise LoweringError(f"Failed to vectorize loop with extent {extent} for target {target}")
        body = self.visit(loop.body)
        if B.is_one(extent):
            return substitute(body, {loop.loop_var: loop.min})
        if not B.is_zero(loop.min):
            body = substitute(body, {loop.loop_var: B.add(loop.loop_var, loop.min)})
        masks = _buffer_predicates(self.target)
        vectorizer = _Vectorizer(loop.loop_var, const_int(extent, extent), masks)
        return vectorizer.statement(body)


def _longest(stmt: Stmt) -> str:
    """The name of the vectorized loop with most iterations."""
    loops = (node for node in of_kind(all_nodes(stmt), For) if node.kind == ForKind.VECTORIZED)
    return max((loop.extent.value, loop.loop_var.name) for loop in loops if isinstance(loop.extent, IntImm))[1]


def vectorize(stmt: Stmt, enabled: bool = True, target: Target | None = None) -> Stmt:
    """Vectorize all marked loops of a statement. Raises LoweringError for vectors of absurd lengths."""
    if enabled and (lanes := lanes_of_loops(stmt)) > MAX_LANES:
        raise LoweringError(too_many_lanes(lanes, _longest(stmt)))
    return _Loops(enabled, target).visit(stmt)


class VectorizeLoop(FunctionRewrite):
    """Lower vectorized loops; with ``enable_vectorize=False`` they become serial.

    Before::

        for j in T.vectorized(8):
            B[i * 8 + j] = A[i * 8 + j] + 1.0

    After::

        B[i * 8 : i * 8 + 8] = A[i * 8 : i * 8 + 8] + T.Broadcast(1.0, 8)

    Extents that are multiples of ``T.vscale()`` need a target with scalable vectors.
    """

    enable_vectorize: bool = True

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        target = func.get_attr("target") or Target.current(True)
        body = vectorize(func.body, self.enable_vectorize, target)
        return func if body is func.body else func.with_body(body)


__all__ = ["VectorizeLoop", "spread", "vectorize"]
