"""SimplifyShapeArithmetic: offsets in arrays of unknown shape without the divisions by their sizes.

A division of 64-bit numbers by a variable is some hundred instructions on a GPU. A kernel that takes the number of its
element apart into coordinates, only to make an offset of them again, would spend nearly all of its time on that.
"""

from __future__ import annotations

from collections.abc import Iterable


from ....arith import build as B
from ....arith.mixed_radix import MixedRadix
from ....ir.expr import PrimExpr
from ....ir.functor import pre_order_visit
from ....ir.prim import Add, And, BinaryOp, FloorDiv, FloorMod, GE, GT, IntImm, LE, LT, Mul, Sub, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AttrStmt, Block, For, IfThenElse, Stmt
from ..base import SeqMutator, is_call, FunctionRewrite

__all__ = ["SimplifyShapeArithmetic", "simplify_shape_arithmetic"]

_INTEGERS = ("int32", "int64")
_DIVISIONS = (FloorDiv, FloorMod)


class _Mutator(SeqMutator):
    def __init__(self, radix: MixedRadix, truncate: bool) -> None:
        self.radix = radix
        self.truncate = truncate
        self.inside = False

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    # -- what is known -------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> Stmt:
        with self.radix.scope():
            if B.is_zero(loop.min):
                self.radix.bind(loop.loop_var, loop.extent)
            return self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        with self.radix.scope():
            if attr.attr_key in ("thread_extent", "virtual_thread"):
                self.radix.bind(attr.node.var, attr.value)
            return self.default_visit(attr)

    def visit_Block(self, block: Block) -> Block:
        with self.radix.scope():
            for axis in block.iter_vars:
                if axis.dom is not None and B.is_zero(axis.dom.min):
                    self.radix.bind(axis.var, axis.dom.extent)
            return self.default_visit(block)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        with self.radix.scope():
            self._learn(node.condition)
            then = self.visit(node.then_case)
        other = None if node.else_case is None else self.visit(node.else_case)
        if condition is node.condition and then is node.then_case and other is node.else_case:
            return node
        return node.with_fields(condition=condition, then_case=then, else_case=other)

    def _learn(self, condition: PrimExpr) -> None:
        if is_call(condition, "likely"):
            condition = condition.args[0]
        match condition:
            case And():
                self._learn(condition.a)
                self._learn(condition.b)
            case LT() | LE() | GT() | GE() if condition.a.dtype in _INTEGERS:
                low, high = condition.a, condition.b
                if isinstance(condition, (GT, GE)):
                    low, high = high, low
                self.radix.below(low, B.add(high, B.const(high.dtype, 1)) if isinstance(condition, (LE, GE)) else high)

    # -- expressions ---------------------------------------------------------------------------------------

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        was, self.inside = self.inside, False
        made = self.default_visit(load)
        self.inside = was
        return made

    def visit_And(self, e: And) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        return e if a is e.a and b is e.b else B.and_(a, b)

    def visit_LT(self, e: LT) -> PrimExpr:
        if e.a.dtype in _INTEGERS and _symbolic_divisions(e) and self.radix.is_below(e.a, e.b):
            return B.true()
        return self.default_visit(e)

    def _whole(self, e: PrimExpr) -> PrimExpr:
        """The largest expression of sums, products and quotients, seen at once."""
        if self.inside or e.dtype not in _INTEGERS:
            return self.default_visit(e)
        self.inside = True
        made = self.default_visit(e)
        self.inside = False
        count = _symbolic_divisions(made)
        if count:
            simpler = self.radix.simplify(made)
            made = simpler if _symbolic_divisions(simpler) < count else made
            made = _Truncate(self.radix).visit(made) if self.truncate else made
        return made

    def visit_Add(self, e: Add) -> PrimExpr:
        return self._whole(e)

    def visit_Sub(self, e: Sub) -> PrimExpr:
        return self._whole(e)

    def visit_Mul(self, e: Mul) -> PrimExpr:
        return self._whole(e)

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        return self._whole(e)

    def visit_FloorMod(self, e: FloorMod) -> PrimExpr:
        return self._whole(e)


class _Truncate(SeqMutator):
    """Divisions of what is not negative by sizes round towards zero, which takes one instruction where floor takes five."""

    def __init__(self, radix: MixedRadix) -> None:
        self.radix = radix

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        made = self.default_visit(e)
        return B.truncdiv(made.a, made.b) if self._plain(e) else made

    def visit_FloorMod(self, e: FloorMod) -> PrimExpr:
        made = self.default_visit(e)
        return B.truncmod(made.a, made.b) if self._plain(e) else made

    def _plain(self, e: BinaryOp) -> bool:
        known = self.radix.is_at_least_zero
        return e.dtype in _INTEGERS and not isinstance(e.b, IntImm) and known(e.a) and known(e.b)


def _symbolic_divisions(e: PrimExpr) -> int:
    count = 0

    def look(node: PrimExpr) -> bool:
        nonlocal count
        count += isinstance(node, _DIVISIONS) and not isinstance(node.b, IntImm)
        return not isinstance(node, BufferLoad)

    pre_order_visit(e, look)
    return count


def _sizes(func: PrimFunc) -> list[Var]:
    """The variables that are sizes of parameters, or factors of sizes."""
    found: dict[Var, None] = {}

    def look(extent: PrimExpr) -> None:
        match extent:
            case Var():
                found[extent] = None
            case Mul():
                look(extent.a)
                look(extent.b)

    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            look(extent)
    return list(found)


def simplify_shape_arithmetic(func: PrimFunc, truncate: bool = False, named: Iterable[Var] = ()) -> PrimFunc:
    """See :func:`SimplifyShapeArithmetic`; ``truncate`` makes divisions round towards zero where that is the same.

    ``named`` are variables that are sizes, too, besides those in the shapes of parameters.
    """
    sizes = [*_sizes(func), *named]
    if not sizes:
        return func
    radix = MixedRadix()
    for var in sizes:
        radix.mark_size(var)
    body = _Mutator(radix, truncate).visit(func.body)
    return func if body is func.body else func.with_body(body)


class SimplifyShapeArithmetic(FunctionRewrite):
    """Simplify quotients and remainders by symbolic sizes in functions of dynamic shape.

    Before (a reshape of ``(n, t, 64)`` into ``(n, t, 4, 16)``)::

        B[v_n, v_t, v_h, v_d] = A[(((v_n * t + v_t) * 4 + v_h) * 16 + v_d) // 64 // t % n,
                                  (((v_n * t + v_t) * 4 + v_h) * 16 + v_d) // 64 % t, ...]

    After::

        B[v_n, v_t, v_h, v_d] = A[v_n, v_t, v_h * 16 + v_d]

    Functions whose parameters have constant shapes stay as they are.
    """

    truncate: bool = False

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return simplify_shape_arithmetic(func, self.truncate)
