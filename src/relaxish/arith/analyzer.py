"""The arithmetic analyzer: one object that bounds, simplifies and proves under what is known of variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum, IntFlag
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import ExprLike, as_expr
from ..ir.prim import CmpOp
from . import build as B
from ._ir import EQ, GE, GT, LE, LT, Add, IntImm, IterVar, Mul, PrimExpr, Range, Sub, Var
from .canonical_simplify import CanonicalSimplifier
from .const_int_bound import ConstIntBound, ConstIntBoundAnalyzer
from .constraints import lasting
from .int_set import IntervalSet, IntSet, IntSetEvaluator, constraint_sets, from_min_extent, simplify_set, to_int_set
from .memo import Remembers
from .modular_set import ModularSet, ModularSetAnalyzer
from .rewrite_simplify import RewriteSimplifier
from .statistics import RewriteSimplifyStats
from .scalable import holds_for_known_values
from .transitive import TransitiveComparisons


class ProofStrength(IntEnum):
    """Effort of ``can_prove``."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(IntFlag):
    """Optional simplifications, off by default."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


class ConstraintScope:
    """A ``with`` block in which a condition holds."""

    def __init__(self, enter: Callable[[], Callable[[], None]]) -> None:
        self._enter = enter
        self._exit: Callable[[], None] | None = None

    def __enter__(self) -> ConstraintScope:
        self._exit = self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._exit is not None
        self._exit()
        self._exit = None


class Analyzer:
    """Bounds, modular sets, simplification and proofs of integer expressions.

    >>> from relaxish import arith, tir
    >>> from relaxish.ir import Range
    >>> x, i = tir.Var("x", "int32"), tir.Var("i", "int32")
    >>> analyzer = arith.Analyzer()
    >>> analyzer.bind(i, Range(0, 8))
    >>> analyzer.simplify((x * 8 + i) // 8)
    x
    """

    def __init__(self) -> None:
        # Counts what was said of variables: results from before hold no longer then.
        self.version = 0
        self.const_int_bound = ConstIntBoundAnalyzer(self)
        self.modular_set = ModularSetAnalyzer(self)
        self.rewrite = RewriteSimplifier(self)
        self.canonical = CanonicalSimplifier(self)
        self.transitive = TransitiveComparisons(self)
        self._parts: tuple[Remembers, ...] = (self.const_int_bound, self.modular_set, self.rewrite, self.canonical)
        self._domains: dict[Any, IntervalSet] = {}
        self._set_facts: list[tuple[PrimExpr, IntervalSet]] = []
        self._extensions = Extension.NoExtensions

    # -- knowledge -----------------------------------------------------------------------------------------

    def bind(self, var: Var | IterVar, expr: PrimExpr | Range | int, allow_override: bool = False) -> None:
        """Say what a variable is: a value, or a range it runs over."""
        var = var.var if isinstance(var, IterVar) else var
        if isinstance(expr, Range):
            if B.is_one(expr.extent):
                self.bind(var, expr.min, allow_override)
                return
            low, extent = B.constant_as(expr.min, var.dtype), B.constant_as(expr.extent, var.dtype)
            self.const_int_bound.bind(var, low, extent, allow_override)
            self.modular_set.bind(var, low, extent, allow_override)
            self._domains[var] = from_min_extent(low, extent)
            self.transitive.bind(var, Range.from_min_extent(low, extent))
            self.rewrite.bindings.pop(var, None)
            self.canonical.bindings.pop(var, None)
        else:
            value = self.canonical_simplify(self.rewrite_simplify(as_expr(expr)))
            if value.dtype != var.dtype and dt.is_integral(var.dtype):
                value = B.cast(var.dtype, value)
            if dt.is_integral(value.dtype):
                self.const_int_bound.update(var, self.const_int_bound.bound(value), allow_override)
                self.modular_set.update(var, self.modular_set.entry(value), allow_override)
                self._domains[var] = IntervalSet(value, value)
            self.rewrite.bindings[var] = value
            self.canonical.bindings[var] = value
        self._forget()

    def bind_map(self, variables: Mapping[Any, Range], allow_override: bool = False) -> None:
        """Bind several ranges."""
        for var, value in variables.items():
            self.bind(var, value, allow_override)

    def unbind(self, var: Var) -> None:
        """Forget everything about a variable."""
        self.const_int_bound.vars.pop(var, None)
        self.modular_set.vars.pop(var, None)
        self._domains.pop(var, None)
        self.transitive.unbind(var)
        self.rewrite.bindings.pop(var, None)
        self.canonical.bindings.pop(var, None)
        self._forget()

    def update(self, var: Var, info: ConstIntBound | ModularSet | IntSet, override: bool = False) -> None:
        """Set one kind of knowledge: a :class:`ConstIntBound`, :class:`ModularSet` or integer set."""
        match info:
            case ConstIntBound():
                self.const_int_bound.update(var, (info.min_value, info.max_value), override)
            case ModularSet():
                self.modular_set.update(var, (info.coeff, info.base), override)
            case IntSet():
                self._domains[var] = to_int_set(info)
            case _:
                raise TypeError(f"cannot update a variable with {type(info).__name__}")
        self._forget()

    def mark_global_non_neg_value(self, expr: PrimExpr) -> None:
        """Note that a size-like expression (``n``, ``n * 4 - 1``) is never negative."""
        scale, offset = 1, 0
        symbol: Any = expr
        while type(symbol) in (Add, Sub) and isinstance(symbol.b, IntImm):
            node: Any = symbol
            step: Any = node.b
            offset += step.value if type(node) is Add else -step.value
            symbol = node.a
        while type(symbol) is Mul:
            node = symbol
            constant, other = (node.b, node.a) if type(node.b) is IntImm else (node.a, node.b)
            if type(constant) is not IntImm:
                break
            scale *= constant.value
            symbol = other
        if isinstance(symbol, Var) and scale > 0 and dt.is_integral(symbol.dtype):
            low, high = self.const_int_bound.bound(symbol)
            self.const_int_bound.update(symbol, (max(low, -(offset // scale)), high), True)
            self._forget()

    def _forget(self) -> None:
        self.version += 1
        for part in self._parts:
            part.clear_memo()

    def set_memos_aside(self) -> list[tuple[Any, ...]]:
        """Begin without remembered results; gives those that there were."""
        return [part.swap_memos(None) for part in self._parts]

    def bring_memos_back(self, kept: list[tuple[Any, ...]]) -> None:
        """Remember again what :meth:`set_memos_aside` gave."""
        for part, memo in zip(self._parts, kept, strict=True):
            part.swap_memos(memo)

    def constraint_scope(self, constraint: PrimExpr, *, in_value: bool = False) -> ConstraintScope:
        """``with analyzer.constraint_scope(cond):`` makes ``cond`` true inside the block.

        What the condition says of memory is left out, since a store inside the block may change it; not so for scopes
        inside one value (``in_value``), during which nothing is stored.
        """
        if not in_value:
            constraint = lasting(constraint)

        def enter() -> Callable[[], None]:
            simplified = self.rewrite.as_fact(constraint) if in_value else self.rewrite.simplify(constraint)
            version, memos = self.version, [part.swap_memos(None) for part in self._parts]
            undos: list[Callable[[], None] | None] = []
            for cond in (constraint, simplified) if simplified is not constraint else (constraint,):
                undos.append(self.const_int_bound.enter_constraint(cond))
                undos.append(self.modular_set.enter_constraint(cond))
                undos.append(self.transitive.enter_constraint(cond))
            undos.append(self.rewrite.enter_constraint(constraint, simplified))
            size = len(self.canonical.literals)
            for fact in self.rewrite.literals.since(size):
                self.canonical.literals.learn(fact)
            facts = len(self._set_facts)
            self._set_facts.extend(constraint_sets(simplified))
            for part in self._parts:
                part.clear_memo()

            def leave() -> None:
                for undo in reversed(undos):
                    if undo is not None:
                        undo()
                self.canonical.literals.forget(size)
                del self._set_facts[facts:]
                if self.version == version:
                    # Nothing else was learnt: what held before holds again.
                    for part, memo in zip(self._parts, memos):
                        part.swap_memos(memo)
                else:
                    self._forget()

            return leave

        return ConstraintScope(enter)

    # -- simplification ------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike, steps: int = 2) -> PrimExpr:
        """The simplest form found by alternating canonical and rewrite simplification."""
        if type(expr) is IntImm:
            return expr
        if not isinstance(expr, PrimExpr):
            return as_expr(expr)
        if isinstance(expr, Var) and expr not in self.rewrite.bindings:
            return self.rewrite.simplify(expr) if expr.dtype == "bool" and self.rewrite.literals else expr
        result = self.canonical.simplify(expr)
        for step in range(steps):
            if type(result) is IntImm:
                return result
            result = self.rewrite.simplify(result) if step % 2 == 0 else self.canonical.simplify(result)
        return result

    def rewrite_simplify(self, expr: PrimExpr) -> PrimExpr:
        """Rule-based simplification only."""
        return self.rewrite.simplify(expr)

    @property
    def rewrite_simplify_stats(self) -> RewriteSimplifyStats:
        """Counters of the rewrite simplifier, as they are now."""
        return replace(self.rewrite.stats)

    def reset_rewrite_simplify_stats(self) -> None:
        """Set the counters to zero."""
        self.rewrite.stats = RewriteSimplifyStats()

    def canonical_simplify(self, expr: PrimExpr) -> PrimExpr:
        """Canonical-form simplification only."""
        return self.canonical.simplify(expr)

    def int_set(self, expr: PrimExpr, dom_map: Mapping[Any, Any] | None = None) -> IntervalSet:
        """Interval of ``expr`` over ``dom_map``, or over the bound variables where no map is given."""
        if dom_map is None:
            domains: Mapping[Any, IntervalSet] = self._domains
            facts = self._set_facts
        else:
            from .int_set import normalize_dom_map

            domains, facts = normalize_dom_map(dom_map), []
        return simplify_set(self, IntSetEvaluator(self, domains, True, facts).eval(expr))

    # -- proofs --------------------------------------------------------------------------------------------

    def can_prove(self, expr: ExprLike, strength: ProofStrength = ProofStrength.DEFAULT) -> bool:
        """Whether the condition certainly holds."""
        expr = as_expr(expr)
        if type(expr) is IntImm:
            return bool(expr.value)
        result = self.simplify(expr)
        if type(result) is IntImm:
            return result.value != 0
        if strength >= ProofStrength.SYMBOLIC_BOUND and self._prove_by_sets(expr):
            return True
        return holds_for_known_values(result, lambda known: self.can_prove(known, strength))

    def _prove_by_sets(self, e: PrimExpr) -> bool:
        plans: dict[type, tuple[Callable[[CmpOp], PrimExpr], int]] = {
            LT: (e_b_minus_a, 1),
            LE: (e_b_minus_a, 0),
            GT: (e_a_minus_b, 1),
            GE: (e_a_minus_b, 0),
        }
        plan = plans.get(type(e))
        if plan is None or not B.is_comparison(e) or not dt.is_integral(e.a.dtype):
            return False
        diff = self.simplify(plan[0](e))
        found = self.int_set(diff)
        if not found.has_lower():
            return False
        return self.const_int_bound.bound(self.simplify(found.min_value))[0] >= plan[1]

    def can_prove_equal(self, lhs: ExprLike, rhs: ExprLike) -> bool:
        """Whether both are always the same."""
        lhs, rhs = as_expr(lhs), as_expr(rhs)
        if lhs is rhs:
            return True
        if type(lhs) is IntImm and type(rhs) is IntImm:
            return lhs.value == rhs.value
        if B.deep_equal(lhs, rhs):
            return True
        if lhs.dtype != rhs.dtype:
            if dt.is_integral(lhs.dtype) and dt.is_integral(rhs.dtype):
                wide = lhs.dtype if dt.bits(lhs.dtype) >= dt.bits(rhs.dtype) else rhs.dtype
                lhs, rhs = B.cast(wide, lhs), B.cast(wide, rhs)
            else:
                return False
        if not dt.is_integral(lhs.dtype) or lhs.dtype == "bool":
            return self.can_prove(EQ(lhs, rhs))
        diff = self.simplify(B.sub(lhs, rhs))
        if type(diff) is IntImm:
            return diff.value == 0
        return self.can_prove(EQ(diff, B.const(diff.dtype, 0)))

    def can_prove_greater_equal(self, expr: PrimExpr, lower_bound: int) -> bool:
        """Whether ``expr >= lower_bound`` certainly holds."""
        if type(expr) is IntImm:
            return expr.value >= lower_bound
        if self.const_int_bound.bound(expr)[0] >= lower_bound:
            return True
        return self.const_int_bound.bound(self.rewrite.simplify(expr))[0] >= lower_bound

    def can_prove_less(self, expr: PrimExpr, upper_bound: int) -> bool:
        """Whether ``expr < upper_bound`` certainly holds."""
        if type(expr) is IntImm:
            return expr.value < upper_bound
        if self.const_int_bound.bound(expr)[1] < upper_bound:
            return True
        return self.const_int_bound.bound(self.rewrite.simplify(expr))[1] < upper_bound

    def can_prove_less_equal_than_symbolic_shape_value(self, lhs: PrimExpr, shape: PrimExpr) -> bool:
        """Whether a size fits a symbolic one: equal, or a constant that divides it evenly."""
        if self.can_prove(LE(*B.widened(lhs, shape)), ProofStrength.SYMBOLIC_BOUND):
            return True
        coeff, base = self.modular_set.entry(shape)
        return type(lhs) is IntImm and base == 0 and coeff >= lhs.value

    @property
    def enabled_extensions(self) -> Extension:
        """Optional simplifications in force."""
        return self._extensions

    @enabled_extensions.setter
    def enabled_extensions(self, flags: int | Extension) -> None:
        self._extensions = Extension(int(flags))
        self._forget()

    @contextmanager
    def bound_scope(self, bindings: Mapping[Any, Any]) -> Iterator[None]:
        """Bind variables for the length of a ``with`` block."""
        for var, value in bindings.items():
            self.bind(var, value, True)
        try:
            yield
        finally:
            for var in bindings:
                self.unbind(var)


def e_b_minus_a(e: CmpOp) -> PrimExpr:
    """``b - a`` of a comparison."""
    return B.sub(e.b, e.a)


def e_a_minus_b(e: CmpOp) -> PrimExpr:
    """``a - b`` of a comparison."""
    return B.sub(e.a, e.b)
