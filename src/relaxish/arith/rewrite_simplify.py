"""The rewrite simplifier: bottom-up application of the rule tables, with proofs from the analyzer.

``x * 4 + x -> x * 5``, ``(i * 8 + j) // 8 -> i`` where ``0 <= j < 8``, ``i < 16 -> True`` where bounds say so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir import dtype as dt
from ..ir.functor import Mutator
from ..ir.node import Node
from ..ir.prim import BinaryOp, CmpOp, LogicalOp
from . import build as B
from . import rules_arith as RA
from . import rules_div, rules_logic, rules_minmax
from ._ir import (
    EQ, GE, GT, LE, LT, NE, Add, And, Broadcast, Call, Cast, Div, FloatImm, FloorDiv, FloorMod, IntImm, Let, Max, Min,
    Mod, Mul, Not, Or, PrimExpr, Ramp, Reduce, Select, SizeVar, Sub, Var,
)  # fmt: skip
from .calls import simplify_call
from .const_int_bound import inf_add
from .constraints import split_conjunction
from .facts import Facts, look, operand_look
from .memo import Remembers
from .products import product_terms
from .rules import RuleTable, is_droppable
from .scalable import contains_vscale
from .statistics import RewriteSimplifyStats

if TYPE_CHECKING:
    from .analyzer import Analyzer

MAX_RECURSION = 5
# Results of TryCompare as sets of possible relations: bit 1 "less", 2 "equal", 4 "greater".
LESS, EQUAL, GREATER, UNKNOWN = 1, 2, 4, 7
_MIRRORED = [(p & EQUAL) | (p & LESS) << 2 | (p & GREATER) >> 2 for p in range(8)]
# Optional simplifications, as the analyzer numbers them.
_TRANSITIVE, _AND_OF_ORS, _BRANCH_CONSTRAINTS, _PRODUCT_AND_SUM = 1, 2, 4, 8


class _ByType(NamedTuple):
    """The tables of one operator, in order: for index types, for vectors, for other scalars."""

    indices: tuple[RuleTable, ...]
    vectors: tuple[RuleTable, ...]
    others: tuple[RuleTable, ...] = ()


_ADD = _ByType((RA.ADD, RA.ADD_SELECT), (RA.ADD_VECTOR, RA.ADD_SELECT), (RA.ADD_SELECT,))
_SUB = _ByType((RA.SUB, RA.SUB_SELECT), (RA.SUB_VECTOR, RA.SUB_OTHER, RA.SUB_SELECT), (RA.SUB_OTHER, RA.SUB_SELECT))
_MUL = _ByType((RA.MUL,), (RA.MUL_VECTOR,))


class RewriteSimplifier(Remembers, Mutator):
    """See the module docstring; :meth:`simplify` is the entry."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.bindings: dict[Any, PrimExpr] = {}
        self.literals = Facts()
        self.depth = 0
        self.in_boolean = False
        # Whether a condition is made a fact: its parts are simplified each on its own.
        self.learning = False
        self.stats = RewriteSimplifyStats()
        # Results by the identity of what was simplified, each with how deep in rewrites of rewrites it holds.
        self._memo: dict[int, tuple[Any, PrimExpr, int]] = {}
        # How deep the rewrites went since this was last set back.
        self._deepest = 0

    def simplify(self, expr: PrimExpr) -> PrimExpr:
        """Rewrite ``expr`` to a fixpoint of at most two rounds."""
        result: PrimExpr = expr
        for _ in range(2):
            new = self.visit(result)
            if new is result or type(new) is IntImm:
                return new
            result = new
        return result

    def as_fact(self, condition: PrimExpr) -> PrimExpr:
        """A condition simplified without what its parts say of each other.

        Asked with it, every part of a condition would have all others entered as facts, and so on within these: the
        time grew exponentially with the number of parts.
        """
        if self.learning or type(condition) not in (And, Or, Not):
            return self.simplify(condition)
        self.learning = True
        kept = self.analyzer.set_memos_aside()
        try:
            return self.simplify(condition)
        finally:
            self.learning = False
            self.analyzer.bring_memos_back(kept)

    def again(self, expr: PrimExpr) -> PrimExpr:
        """Simplify the result of a rule, unless that went on for too long."""
        if self.depth >= MAX_RECURSION:
            self._deepest = MAX_RECURSION + 1
            return expr
        self.depth += 1
        self._deepest = max(self._deepest, self.depth)
        self.stats.num_recursive_rewrites += 1
        self.stats.max_recursive_depth = max(self.stats.max_recursive_depth, self.depth)
        try:
            return self.visit(expr)
        finally:
            self.depth -= 1

    def visit(self, x: Any) -> Any:
        kind = type(x)
        if kind is IntImm or kind is FloatImm:
            return x
        depth = self.depth
        hit = self._memo.get(id(x))
        if hit is not None and depth <= hit[2]:
            return hit[1]
        handler = self._table.get(kind)
        if handler is None:
            handler = self._resolve(kind)
        self.stats.nodes_visited += 1
        if not isinstance(x, PrimExpr):
            return handler(self, x)
        if depth == 0:
            result = handler(self, x)
            self._memo[id(x)] = (x, result, MAX_RECURSION)
            return result
        before, self._deepest = self._deepest, depth
        result = handler(self, x)
        deepest = self._deepest
        if deepest <= MAX_RECURSION:
            # One more rewrite around it, and some of those within would be left out.
            self._memo[id(x)] = (x, result, MAX_RECURSION - (deepest - depth))
        if before > deepest:
            self._deepest = before
        return result

    # -- facts ---------------------------------------------------------------------------------------------

    def enter_constraint(self, cond: PrimExpr, simplified: PrimExpr) -> Callable[[], None]:
        """Hold ``cond``, and what it simplifies to, true; returns the undo."""
        size = len(self.literals)
        self.stats.constraints_entered += 1
        # Bounds may turn ``i != 1`` into ``i < 1``; what is asked later may still be ``i == 1``.
        for condition in (simplified, cond) if simplified is not cond else (cond,):
            for part in split_conjunction(condition):
                if type(part) is IntImm or not _is_pure(part):
                    continue
                for fact in (part, _negated(_negated(part))):
                    if not any(B.deep_equal(fact, known) for known in self.literals.since(size)):
                        self.literals.learn(fact)
        self._memo.clear()

        def undo() -> None:
            self.literals.forget(size)
            self._memo.clear()

        return undo

    def match_literal(self, e: PrimExpr) -> PrimExpr | None:
        """True or False if a condition in force says so."""
        if not self.literals:
            return None
        holds = self.literals.place(e)
        denied = self.literals.place(_negated(e)) if self.literals.may_hold(_look_of_negation(e)) else None
        if holds is not None and (denied is None or holds <= denied):
            return B.true(e.dtype)
        return None if denied is None else B.false(e.dtype)

    def compare(self, a: PrimExpr, b: PrimExpr) -> int:
        """Possible relations of ``a`` to ``b``, as a set of bits."""
        if type(a) is IntImm and type(b) is IntImm:
            return LESS if a.value < b.value else EQUAL if a.value == b.value else GREATER
        analyzer = self.analyzer
        (low, high), base = self._difference(a, b)
        possible = UNKNOWN
        if low > 0:
            return GREATER
        if high < 0:
            return LESS
        if low == 0 == high:
            return EQUAL
        if low >= 0:
            possible &= ~LESS
        if high <= 0:
            possible &= ~GREATER
        if base != 0:
            possible &= ~EQUAL
        flags = int(analyzer.enabled_extensions)
        if analyzer.transitive.active:
            possible &= analyzer.transitive.compare(a, b, bool(flags & _TRANSITIVE)) or possible
        if flags & _PRODUCT_AND_SUM and possible == UNKNOWN:
            possible &= self._product_and_sum(a, b)
        return possible

    def _difference(self, a: PrimExpr, b: PrimExpr) -> tuple[tuple[int, int], int]:
        """Bounds of ``a - b`` and its remainder by what is known to divide its changes."""
        bound, entry = self.analyzer.const_int_bound.bound, self.analyzer.modular_set.entry
        if type(b) is IntImm:  # nothing to cancel: what holds of the other side is enough
            (low, high), (coeff, base) = bound(a), entry(a)
            low, high, base = inf_add(low, -b.value), inf_add(high, -b.value), base - b.value
        elif type(a) is IntImm:
            (low, high), (coeff, base) = bound(b), entry(b)
            low, high, base = inf_add(-high, a.value), inf_add(-low, a.value), a.value - base
        else:
            diff = self.again(B.sub(a, b))
            return bound(diff), entry(diff)[1]
        return (low, high), base % coeff if coeff else base

    def _product_and_sum(self, a: PrimExpr, b: PrimExpr) -> int:
        """Compare ``(A + B) * C`` to ``A * B * D`` by ``C / A + C / B`` against ``D``, all of them positive."""
        for total, product, less, greater in ((a, b, LESS, GREATER), (b, a, GREATER, LESS)):
            sums, factors = product_terms(total), product_terms(product)
            found = next((s for s in sums[0] if type(s) is Add), None)
            if found is None or len(sums[0]) != 1:
                continue
            rest = list(factors[0])
            for part in (found.a, found.b):
                for i, factor in enumerate(rest):
                    if B.deep_equal(part, factor):
                        del rest[i]
                        break
                else:
                    break
            else:
                if rest or sums[1] <= 0 or factors[1] <= 0:
                    continue
                (low_a, high_a), (low_b, high_b) = map(self.analyzer.const_int_bound.bound, (found.a, found.b))
                if low_a <= 0 or low_b <= 0:
                    continue
                if sums[1] * (low_a + low_b) < factors[1] * low_a * low_b:
                    return less
                if min(high_a, high_b) * factors[1] <= sums[1]:
                    return greater
                if high_a * high_b * factors[1] < sums[1] * (high_a + high_b):
                    return greater
        return UNKNOWN

    def visit_Buffer(self, buffer: Node) -> Node:
        return buffer  # simpler extents would make it another buffer than the one allocated

    # -- leaves and binders --------------------------------------------------------------------------------

    def visit_Var(self, e: Var) -> PrimExpr:
        bound = self.bindings.get(e)
        if bound is not None:
            return bound
        if e.dtype == "bool":
            known = self.match_literal(e)
            return e if known is None else known
        return e

    visit_SizeVar = visit_Var

    def visit_Let(self, e: Let) -> PrimExpr:
        value = self.visit(e.value)
        # Only what stays as small as the variable is put in its place.
        if not isinstance(e.value, (IntImm, FloatImm, Var)):
            body = self.visit(e.body)
            return e if value is e.value and body is e.body else Let(e.var, value, body)
        self.analyzer.bind(e.var, value, True)
        body = self.visit(e.body)
        self.analyzer.unbind(e.var)
        return body

    def visit_Select(self, e: Select) -> PrimExpr:
        cond = self.visit(e.condition)
        if type(cond) is IntImm:
            return self.visit(e.true_value if cond.value else e.false_value)
        a, b = self._branches(cond, e.true_value, e.false_value)
        if B.deep_equal(a, b):
            return a
        if cond is e.condition and a is e.true_value and b is e.false_value:
            return e
        return B.select(cond, a, b)

    def _branches(self, cond: PrimExpr, a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        if not dt.is_scalar(cond.dtype) or (_trivial(a) and _trivial(b)):
            return self.visit(a), self.visit(b)
        with self.analyzer.constraint_scope(cond, in_value=True):
            a = self.visit(a)
        with self.analyzer.constraint_scope(B.not_(cond), in_value=True):
            b = self.visit(b)
        return a, b

    def visit_Call(self, e: Call) -> PrimExpr:
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            return self._if_then_else(e)
        args = self.visit_sequence(e.args)
        if name == "tir.likely" and len(args) == 1:
            known = args[0] if type(args[0]) is IntImm else self.match_literal(args[0])
            if known is not None:
                return known
        folded = simplify_call(name, args, e.dtype)
        if folded is not None:
            return folded
        return e if args is e.args else e.with_fields(args=args)

    def _if_then_else(self, e: Call) -> PrimExpr:
        cond = self.visit(e.args[0])
        if type(cond) is IntImm:
            return self.visit(e.args[1] if cond.value else e.args[2])
        a, b = self._branches(cond, e.args[1], e.args[2])
        inner: Any = a
        if type(a) is Call and getattr(a.op, "name", "") == "tir.if_then_else":
            # Nested conditions with one constant otherwise-value become one condition.
            if type(b) in (IntImm, FloatImm) and B.deep_equal(inner.args[2], b):
                return e.with_fields(args=(B.and_(cond, inner.args[0]), inner.args[1], b))
        unchanged = cond is e.args[0] and a is e.args[1] and b is e.args[2]
        return e if unchanged else e.with_fields(args=(cond, a, b))

    def visit_Cast(self, e: Cast) -> PrimExpr:
        value = self.visit(e.value)
        if value is e.value and type(value) not in (IntImm, FloatImm, Broadcast) and value.dtype != e.dtype:
            return e
        return B.cast(e.dtype, value)

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        base, stride = self.visit(e.base), self.visit(e.stride)
        if B.is_zero(stride):
            return Broadcast(base, e.lanes)
        return e if base is e.base and stride is e.stride else Ramp(base, stride, e.lanes)

    def visit_Reduce(self, e: Reduce) -> PrimExpr:
        # An axis has one range for good, so it stays bound.
        for axis in e.axis:
            self.analyzer.bind(axis.var, axis.dom, True)
        source, init = self.visit_sequence(e.source), self.visit_sequence(e.init)
        condition = self.visit(e.condition)
        if source is e.source and init is e.init and condition is e.condition:
            return e
        return Reduce(e.combiner, source, e.axis, condition, e.value_index, init, e.span)

    # -- arithmetic ----------------------------------------------------------------------------------------

    def _operands(self, e: BinaryOp) -> PrimExpr:
        """``e`` with simplified operands, or the folded constant."""
        a, b = self.visit(e.a), self.visit(e.b)
        kind = type(e)
        folded = B.try_fold(kind, a, b)
        if folded is not None:
            return folded
        return e if a is e.a and b is e.b else kind(a, b)

    def visit_Add(self, e: Add) -> PrimExpr:
        return self._run(e, _ADD)

    def visit_Sub(self, e: Sub) -> PrimExpr:
        return self._run(e, _SUB)

    def visit_Mul(self, e: Mul) -> PrimExpr:
        return self._run(e, _MUL)

    def _run(self, e: BinaryOp, tables: _ByType) -> PrimExpr:
        """Simplify the operands, then try the tables for the type of ``e``."""
        node = self._operands(e)
        if type(node) is not type(e):
            return node
        if node.dtype in ("int32", "int64"):
            chosen = tables.indices
        else:
            chosen = tables.others if dt.is_scalar(node.dtype) else tables.vectors
        for table in chosen:
            if table in (RA.SUB_OTHER, RA.SUB_SELECT) and (B.may_be_nan(node.a) or B.may_be_nan(node.b)):
                continue
            result = table.apply(node, self)
            if result is not None:
                return result
        return node

    def visit_Div(self, e: Div) -> PrimExpr:
        node = self._operands(e)
        if type(node) is Div and type(node.b) is FloatImm and node.b.value != 0:
            return B.mul(node.a, FloatImm(node.b.dtype, 1.0 / node.b.value))
        if type(node) is Div and node.dtype in ("int32", "int64"):
            return rules_div.DIV.run(node, self)
        if type(node) is Div and not dt.is_scalar(node.dtype):
            result = rules_div.DIV_VECTOR.apply(node, self)
            return node if result is None else result
        return node

    def visit_Mod(self, e: Mod) -> PrimExpr:
        node = self._operands(e)
        if type(node) is Mod and node.dtype in ("int32", "int64"):
            if type(node.b) is IntImm and node.b.value > 0:
                coeff, base = self.analyzer.modular_set.entry(node.a)
                if coeff % node.b.value == 0 and self.analyzer.can_prove_greater_equal(node.a, 0):
                    return B.const(node.dtype, base % node.b.value)
            return rules_div.MOD.run(node, self)
        if type(node) is Mod and not dt.is_scalar(node.dtype):
            return rules_div.MOD_VECTOR.run(node, self)
        return node

    def visit_FloorDiv(self, e: FloorDiv) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not FloorDiv:
            return node
        if node.dtype in ("int32", "int64"):
            result = rules_div.FLOORDIV.apply(node, self)
            if result is None:
                result = self._divide_scaled(node)
            if result is None:
                result = rules_div.FLOORDIV_LATE.apply(node, self)
        else:
            result = rules_div.FLOORDIV_VECTOR.apply(node, self)
        return node if result is None else result

    def _divide_scaled(self, node: FloorDiv) -> PrimExpr | None:
        """``(x * c1 + y) // c2``: drop the residue, or divide through by ``c1``, where bounds allow it."""
        if type(node.b) is not IntImm or node.b.value <= 0:
            return None
        c2 = node.b.value
        found = _scaled_sum(node.a)
        if found is None:
            return None
        x, c1, y = found
        dtype = node.dtype
        y_value: PrimExpr = y if y is not None else B.const(dtype, 0)
        residue = B.floordiv(B.add(B.mul(x, B.const(dtype, c1 % c2)), B.floormod(y_value, node.b)), node.b)
        low, high = self.analyzer.const_int_bound.bound(residue)
        if low == high:
            quotient = B.floordiv(y_value, node.b)
            if type(quotient) is not IntImm and self.analyzer.const_int_bound.bound(quotient) == (0, 0):
                quotient = B.const(dtype, 0)
            return B.add(B.mul(x, B.const(dtype, c1 // c2)), B.add(quotient, B.const(dtype, low)))
        if c1 > 0 and c2 % c1 == 0 and self.analyzer.can_prove_less(B.floormod(y_value, node.b), c1):
            quotient = B.floordiv(y_value, node.b)
            if type(quotient) is not IntImm and self.analyzer.const_int_bound.bound(quotient) == (0, 0):
                quotient = B.const(dtype, 0)
            return B.add(B.floordiv(x, B.const(dtype, c2 // c1)), quotient)
        return None

    def visit_FloorMod(self, e: FloorMod) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not FloorMod:
            return node
        if node.dtype in ("int32", "int64"):
            if type(node.b) is IntImm and node.b.value > 0:
                coeff, base = self.analyzer.modular_set.entry(node.a)
                if coeff % node.b.value == 0:
                    return B.const(node.dtype, base % node.b.value)
                found = _scaled_sum(node.a)
                if found is not None and found[1] % node.b.value == 0:
                    rest = found[2] if found[2] is not None else B.const(node.dtype, 0)
                    return self.again(B.floormod(rest, node.b))
            result = rules_div.FLOORMOD.apply(node, self)
        else:
            result = rules_div.FLOORMOD_VECTOR.apply(node, self)
        return node if result is None else result

    def visit_Min(self, e: Min) -> PrimExpr:
        return self._extremum(e, rules_minmax.MIN, rules_minmax.MIN_VECTOR, rules_minmax.MIN_SELECT, 1)

    def visit_Max(self, e: Max) -> PrimExpr:
        return self._extremum(e, rules_minmax.MAX, rules_minmax.MAX_VECTOR, rules_minmax.MAX_SELECT, -1)

    def _extremum(self, e: BinaryOp, table: RuleTable, vector: RuleTable, of_select: RuleTable, sign: int) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not type(e):
            return node
        if B.deep_equal(node.a, node.b):
            return node.a
        if node.dtype in ("int32", "int64"):
            (low_a, high_a), (low_b, high_b) = map(self.analyzer.const_int_bound.bound, (node.a, node.b))
            if high_a <= low_b:
                return node.a if sign > 0 else node.b
            if high_b <= low_a:
                return node.b if sign > 0 else node.a
            result = table.apply(node, self)
            if result is None and (contains_vscale(node.a) or contains_vscale(node.b)):
                result = self._scalable_extremum(node, sign)
        elif not dt.is_scalar(node.dtype):
            result = vector.apply(node, self)
        else:
            result = None
        if result is None:
            result = of_select.apply(node, self)
        return node if result is None else result

    def _scalable_extremum(self, node: BinaryOp, sign: int) -> PrimExpr | None:
        """The operand that is least (``sign`` 1) or greatest (-1) for every vector length."""
        for mine, other in ((node.a, node.b), (node.b, node.a)):
            if self.analyzer.can_prove(B.le(mine, other) if sign > 0 else B.ge(mine, other)):
                return mine
        return None

    # -- comparison and logic ------------------------------------------------------------------------------

    def visit_EQ(self, e: EQ) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not EQ:
            return node
        known = self.match_literal(node)
        if known is not None:
            return known
        return self._same(node)

    def _same(self, node: EQ) -> PrimExpr:
        if B.deep_equal(node.a, node.b) and is_droppable(node.a) and not B.may_be_nan(node.a):
            return B.true(node.dtype)
        if node.a.dtype in ("int32", "int64"):
            possible = self.compare(node.a, node.b)
            if possible == EQUAL:
                return B.true()
            if not possible & EQUAL:
                return B.false()
            return rules_logic.EQ.run(node, self)
        return rules_logic.EQ_VECTOR.run(node, self)

    def visit_NE(self, e: NE) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not NE:
            return node
        known = self.match_literal(node)
        if known is not None:
            return known
        if node.a.dtype in ("int32", "int64"):
            possible = self.compare(node.a, node.b)
            if possible == EQUAL:
                return B.false()
            if not possible & EQUAL:
                return B.true()
            if possible == GREATER | EQUAL:
                return self._less(LT(node.b, node.a))
            if possible == LESS | EQUAL:
                return self._less(LT(node.a, node.b))
            return rules_logic.NE.run(node, self)
        if B.deep_equal(node.a, node.b) and is_droppable(node.a) and not B.may_be_nan(node.a):
            return B.false(node.dtype)
        return rules_logic.NE_VECTOR.run(node, self)

    def visit_LT(self, e: LT) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not LT:
            return node
        known = self.match_literal(node)
        return known if known is not None else self._less(node)

    def _less(self, node: LT, possible: int | None = None) -> PrimExpr:
        """Rewrite ``a < b``; ``possible`` relations of the sides where they were compared before."""
        if node.a.dtype not in ("int32", "int64"):
            return rules_logic.LT_VECTOR.run(node, self)
        if possible is None:
            possible = self.compare(node.a, node.b)
        if possible == LESS:
            return B.true()
        if not possible & LESS:
            return B.false()
        result = rules_logic.LT.apply(node, self)
        if result is not None:
            return result
        moved = self._merge_offsets(node)
        if moved is None:
            moved = self._divide_common_factor(node)
        return node if moved is None else self.again(moved)

    def _divide_common_factor(self, node: LT) -> PrimExpr | None:
        """``x * 4 < y * 8`` as ``x < y * 2``: both sides are multiples of one number."""
        (coeff_a, base_a), (coeff_b, base_b) = map(self.analyzer.modular_set.entry, (node.a, node.b))
        common = gcd(coeff_a, base_a, coeff_b, base_b)
        if common <= 1:
            return None
        factor = B.const(node.a.dtype, common)
        return B.lt(B.floordiv(node.a, factor), B.floordiv(node.b, factor))

    @staticmethod
    def _merge_offsets(node: BinaryOp) -> PrimExpr | None:
        """Bring the constants of both sides to one side."""
        a, a_off = _constant_offset(node.a)
        b, b_off = _constant_offset(node.b)
        if a_off == 0 and b_off == 0:
            return None
        diff = b_off - a_off
        if diff == 0:
            return B.lt(a, b)
        if diff == 1:
            return B.le(a, b)
        if diff < 0 and b_off != 0:
            return B.lt(B.add(a, B.const(a.dtype, -diff)), b)
        if diff > 0 and a_off != 0:
            return B.lt(a, B.add(b, B.const(b.dtype, diff)))
        return None

    def visit_GT(self, e: GT) -> PrimExpr:
        return self.visit(B.lt(e.b, e.a))

    def visit_LE(self, e: LE) -> PrimExpr:
        node = self._operands(e)
        if type(node) is not LE:
            return node
        known = self.match_literal(node)
        if known is not None:
            return known
        if dt.is_float(node.a.dtype):
            return node
        # Rewriting comes before proving, which would give other forms: ``3 <= x * 2`` is ``2 <= x``.
        is_index = node.a.dtype in ("int32", "int64")
        possible = self.compare(node.b, node.a) if is_index else UNKNOWN
        result: Any = self._negate(self._less(LT(node.b, node.a), possible))
        if type(result) is not LE:
            return result
        if result.a is node.a and result.b is node.b:
            return self._at_most(node, _MIRRORED[possible])
        return self._at_most(result, self.compare(result.a, result.b)) if is_index else result

    def _at_most(self, node: LE, possible: int) -> PrimExpr:
        """``a <= b`` where ``a`` has the ``possible`` relations to ``b``."""
        if not possible & GREATER:
            return B.true(node.dtype)
        if possible == GREATER:
            return B.false(node.dtype)
        if possible == LESS | GREATER:
            return self._less(LT(node.a, node.b))
        if possible == GREATER | EQUAL:
            return self._same(EQ(node.a, node.b))
        return node

    def visit_GE(self, e: GE) -> PrimExpr:
        return self.visit(B.le(e.b, e.a))

    def visit_Not(self, e: Not) -> PrimExpr:
        a = self.visit(e.a)
        result = self._negate(a)
        return e if type(result) is Not and a is e.a else result

    def _negate(self, a: PrimExpr) -> PrimExpr:
        if type(a) is IntImm:
            return B.not_(a)
        node = Not(a)
        known = self.match_literal(node)
        if known is not None:
            return known
        if _is_float_order(a):
            return node
        return rules_logic.NOT.run(node, self)

    def visit_And(self, e: And) -> PrimExpr:
        return self._logic(e, rules_logic.AND, rules_logic.AND_VECTOR)

    def visit_Or(self, e: Or) -> PrimExpr:
        return self._logic(e, rules_logic.OR, rules_logic.OR_VECTOR)

    def _branch_operands(self, e: LogicalOp) -> PrimExpr:
        """``e`` with each operand simplified under what the other says: true beside ``and``, false beside ``or``."""
        parts = [e.a, e.b]
        unchanged = 0
        for i in range(4):
            mine, other = i % 2, 1 - i % 2
            constraint = parts[other] if type(e) is And else _negated(parts[other])
            with self.analyzer.constraint_scope(constraint, in_value=True):
                updated = self.visit(parts[mine])
            if updated is parts[mine]:
                unchanged += 1
                if unchanged >= 2:
                    break
            else:
                parts[mine], unchanged = updated, 0
        folded = B.try_fold(type(e), parts[0], parts[1])
        if folded is not None:
            return folded
        return e if parts[0] is e.a and parts[1] is e.b else type(e)(parts[0], parts[1])

    def _logic(self, e: LogicalOp, table: RuleTable, vector: RuleTable) -> PrimExpr:
        flags = int(self.analyzer.enabled_extensions)
        if self.learning or not flags & (_AND_OF_ORS | _BRANCH_CONSTRAINTS) or not dt.is_scalar(e.dtype):
            return self._logic_rules(e, table, vector)
        outermost, self.in_boolean = not self.in_boolean, True
        try:
            result = self._logic_rules(e, table, vector)
        finally:
            self.in_boolean = not outermost
        if outermost and flags & _AND_OF_ORS and type(result) in (And, Or):
            from .and_of_ors import simplify_as_and_of_ors

            # The normal form is built from terms; the terms themselves need none.
            self.analyzer.enabled_extensions = flags & ~_AND_OF_ORS
            try:
                result = simplify_as_and_of_ors(result, self.analyzer)
            finally:
                self.analyzer.enabled_extensions = flags
        return result

    def _logic_rules(self, e: LogicalOp, table: RuleTable, vector: RuleTable) -> PrimExpr:
        branches = int(self.analyzer.enabled_extensions) & _BRANCH_CONSTRAINTS and dt.is_scalar(e.dtype)
        node = self._branch_operands(e) if branches and not self.learning else self._operands(e)
        if type(node) is not type(e):
            return node
        known = self.match_literal(node)
        if known is not None:
            return known
        if not dt.is_scalar(node.dtype):
            result = vector.apply(node, self)
            if result is not None:
                return result
        if _is_float_order(node.a) and _is_float_order(node.b):
            return node
        return table.run(node, self)


# What a comparison becomes, and whether its operands change places.
_OPPOSITE: dict[type, tuple[type[CmpOp], bool]] = {
    LT: (LE, True), LE: (LT, True), GT: (LE, False), GE: (LT, False), EQ: (NE, False), NE: (EQ, False),
}  # fmt: skip


def _look_of_negation(e: Any) -> Hashable:
    """``look(_negated(e))``, most often without making the negation."""
    kind = type(e)
    if kind in _OPPOSITE and not _is_float_order(e):
        cls, swap = _OPPOSITE[kind]
        first, second = (e.b, e.a) if swap else (e.a, e.b)
        return cls, operand_look(first), operand_look(second)
    return look(_negated(e))


def _negated(e: Any) -> PrimExpr:
    """The negation, pushed through comparisons, without further simplification."""
    kind = type(e)
    if kind in _OPPOSITE and not _is_float_order(e):
        cls, swap = _OPPOSITE[kind]
        return cls(e.b, e.a) if swap else cls(e.a, e.b)
    if kind is Not:
        return e.a
    if kind is And:
        return Or(_negated(e.a), _negated(e.b))
    if kind is Or:
        return And(_negated(e.a), _negated(e.b))
    return B.not_(e)


def _is_float_order(e: PrimExpr) -> bool:
    """Whether ``e`` is an ordering of floats: where one is NaN, neither it nor its opposite holds."""
    return B.is_comparison(e) and type(e) not in (EQ, NE) and dt.is_float(e.a.dtype)


def _trivial(e: PrimExpr) -> bool:
    return type(e) in (IntImm, FloatImm, Var, SizeVar)


def _is_pure(e: PrimExpr) -> bool:
    from .effects import is_pure

    return is_pure(e)


def _scaled_sum(e: PrimExpr) -> tuple[Any, int, Any] | None:
    """``x * c + y`` in any of its forms as ``(x, c, y or None)``."""
    if type(e) is Mul and type(e.b) is IntImm:
        return e.a, e.b.value, None
    if type(e) is Add:
        for scaled, rest in ((e.a, e.b), (e.b, e.a)):
            if type(scaled) is Mul and type(scaled.b) is IntImm:
                return scaled.a, scaled.b.value, rest
    return None


def _constant_offset(e: PrimExpr) -> tuple[PrimExpr, int]:
    if type(e) is Add and type(e.b) is IntImm:
        return e.a, e.b.value
    if type(e) is Add and type(e.a) is IntImm:
        return e.b, e.a.value
    if type(e) is Sub and type(e.b) is IntImm:
        return e.a, -e.b.value
    if type(e) is Sub and type(e.a) is IntImm:
        return B.sub(B.const(e.dtype, 0), e.b), e.a.value
    return e, 0
