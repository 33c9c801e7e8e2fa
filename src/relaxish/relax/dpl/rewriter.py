"""Rewriters: a pattern with what replaces it, alone or several together.

Each round asks the rewriter for new values of bound variables, then simplifies (copies, common subexpressions, dead
bindings); rounds repeat until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule, functions_of
from ...ir.structural import structural_equal
from ...ir.transform import ModulePass, PassContext, PassInfo
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ..expr import Expr, Function, Tuple, TupleGetItem, Var
from ..expr_functor import PyExprMutator
from .matcher import extract_matched_expr
from .pattern import DFPattern, OrPattern, TuplePattern

__all__ = ["ExprPatternRewriter", "OrRewriter", "PatternMatchingRewriter", "RewriteSpec", "TupleRewriter"]

RewriterFunc = Callable[[Expr, dict[DFPattern, Expr]], Expr | None]


@dataclass
class RewriteSpec:
    """Result of one round of a rewriter: new values of variables, and new functions that those call."""

    values: dict[Var, Any] = field(default_factory=dict)
    subroutines: dict[GlobalVar, BaseFunc] = field(default_factory=dict)

    def append(self, other: RewriteSpec) -> None:
        """Add what another rewriter wants; its functions get other names where two would have the same."""
        if not self.values:
            self.values, self.subroutines = dict(other.values), dict(other.subroutines)
            return
        if not other.values:
            return
        taken = {var.name_hint for var in self.subroutines}
        renamed: dict[GlobalVar, GlobalVar] = {}
        for var, func in other.subroutines.items():
            if var in self.subroutines:
                continue
            new = var
            count = 0
            while new.name_hint in taken:
                count += 1
                new = GlobalVar(f"{var.name_hint}_{count}", var.struct_info_)
            if new is not var:
                renamed[var] = new
            taken.add(new.name_hint)
            self.subroutines[new] = func
        rename = _RenameGlobals(renamed)
        self.values.update((var, rename.visit_expr(value) if renamed else value) for var, value in other.values.items())


class _RenameGlobals(PyExprMutator):
    def __init__(self, renamed: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self.renamed = renamed

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        return self.renamed.get(op, op)


class PatternMatchingRewriter(ModulePass):
    """Rewrites what matches, in a function or in a whole module; ``a | b`` tries ``a`` first."""

    def __init__(self) -> None:
        super().__init__(PassInfo(0, "PatternMatchingRewriter", ()))

    @staticmethod
    def from_pattern(
        pattern: DFPattern,
        func: RewriterFunc,
        additional_bindings: Sequence[DFPattern] | None = None,
        new_subroutines: Mapping[GlobalVar, BaseFunc] | None = None,
    ) -> PatternMatchingRewriter:
        """A rewriter that calls ``func(expr, matchings)`` on what matches; None or ``expr`` leaves it."""
        extra = list(additional_bindings or ())
        match pattern:
            case OrPattern():
                sides = (pattern.left, pattern.right)
                left, right = (
                    PatternMatchingRewriter.from_pattern(side, func, [*extra, pattern], new_subroutines)
                    for side in sides
                )
                return OrRewriter(left, right)
            case TuplePattern():
                return OrRewriter(
                    ExprPatternRewriter(pattern, func, extra, new_subroutines),
                    TupleRewriter(pattern.fields, func, [*extra, pattern], new_subroutines),
                )
        return ExprPatternRewriter(pattern, func, extra, new_subroutines)

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """A rewriter from a module with the functions ``pattern`` and ``replacement`` of one signature.

        Raises KeyError if one of them is missing, ValueError if their signatures differ or another function is public.
        """
        from .module_rewriter import rewriter_of_module

        return rewriter_of_module(mod)

    def rewrite_bindings(self, bindings: Sequence[Any]) -> RewriteSpec:
        """New values of some of the bound variables."""
        raise NotImplementedError

    def __or__(self, other: PatternMatchingRewriter) -> OrRewriter:
        return OrRewriter(self, other)

    def __call__(self, obj: IRModule | Expr) -> Any:
        """The rewritten function, expression or module.

        Raises RelaxishError if new functions are needed but there is no module to put them into.
        """
        from .rewrite_mutator import RewriteMutator

        if isinstance(obj, IRModule):
            return super().__call__(obj)
        mutator = RewriteMutator(self)
        made = mutator.visit_expr(obj)
        if mutator.subroutines:
            names = sorted(var.name_hint for var in mutator.subroutines)
            raise RelaxishError(
                "If PatternMatchingRewriter provides subroutines, then it must be applied to an entire IRModule.  "
                f"However, PatternMatchingRewriter produced subroutines {names} when applied to a {type(obj).__name__}"
            )
        return made

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with every graph function rewritten."""
        from .rewrite_mutator import RewriteMutator

        mutator = RewriteMutator(self, mod)
        updates: dict[GlobalVar, BaseFunc] = {}
        for var, func in functions_of(mod, Function):
            new = mutator.visit_expr(func)
            if new is not func:
                updates[var] = new
        if not updates:
            return mod
        out = mod.clone()
        for var, made in [*updates.items(), *mutator.subroutines.items()]:
            out.update_func(var, made)
        return out


class ExprPatternRewriter(PatternMatchingRewriter):
    """Rewrites single bound values."""

    def __init__(
        self,
        pattern: DFPattern,
        func: RewriterFunc,
        additional_bindings: Sequence[DFPattern] | None = None,
        new_subroutines: Mapping[GlobalVar, BaseFunc] | None = None,
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.func = func
        self.additional_bindings = list(additional_bindings or ())
        self.new_subroutines = dict(new_subroutines or {})

    def rewrite_bindings(self, bindings: Sequence[Any]) -> RewriteSpec:
        rewrites: dict[Var, Any] = {}
        known: dict[Var, Any] = {}
        for binding in bindings:
            new = self.rewrite_expr(binding.value, known)
            if new is not None:
                rewrites[binding.var] = new
            else:
                known[binding.var] = binding.value
        return RewriteSpec(rewrites, self.new_subroutines) if rewrites else RewriteSpec()

    def rewrite_expr(self, expr: Expr, bindings: Mapping[Var, Any]) -> Expr | None:
        """The replacement of one expression, or None."""
        matches = extract_matched_expr(self.pattern, expr, bindings)
        if matches is None:
            return None
        for pattern in self.additional_bindings:
            matches[pattern] = expr
        new = self.func(expr, matches)
        return None if new is expr else new


class OrRewriter(PatternMatchingRewriter):
    """The left rewriter; the right one gets the variables that the left one leaves alone."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        super().__init__()
        self.lhs = lhs
        self.rhs = rhs

    def rewrite_bindings(self, bindings: Sequence[Any]) -> RewriteSpec:
        spec = self.lhs.rewrite_bindings(bindings)
        if not spec.values:
            return self.rhs.rewrite_bindings(bindings)
        # New values are not in normal form yet, so patterns cannot look into them before the next round.
        left = [b for b in bindings if b.var not in spec.values]
        if left:
            spec = RewriteSpec(dict(spec.values), dict(spec.subroutines))
            spec.append(self.rhs.rewrite_bindings(left))
        return spec


@dataclass
class _Seen:
    """A binding, what each part of the tuple pattern matched in it, and who uses it so far."""

    var: Var
    value: Any
    matches: list[dict[DFPattern, Any] | None]
    users: set[Var] = field(default_factory=set)
    rewritten: bool = False


class TupleRewriter(PatternMatchingRewriter):
    """Rewrites several values together, though no tuple holds them: the replacement is a tuple of their new values."""

    MAX_FIELDS = 3

    def __init__(
        self,
        patterns: Sequence[DFPattern],
        func: RewriterFunc,
        additional_bindings: Sequence[DFPattern] | None = None,
        new_subroutines: Mapping[GlobalVar, BaseFunc] | None = None,
    ) -> None:
        super().__init__()
        self.patterns = tuple(patterns)
        self.func = func
        self.additional_bindings = list(additional_bindings or ())
        self.new_subroutines = dict(new_subroutines or {})

    def rewrite_bindings(self, bindings: Sequence[Any]) -> RewriteSpec:
        if len(self.patterns) > self.MAX_FIELDS:
            raise RelaxishError(
                "For performance reasons, matching of implicit tuple patterns is currently limited to tuples with "
                f"{self.MAX_FIELDS} elements or fewer."
            )
        from ..analysis.variables import free_vars

        rewrites: dict[Var, Any] = {}
        known: dict[Var, Any] = {}
        seen: list[_Seen] = []
        by_var: dict[Var, _Seen] = {}
        for binding in bindings:
            matches = [extract_matched_expr(pattern, binding.value, known) for pattern in self.patterns]
            latest = _Seen(binding.var, binding.value, matches)
            seen.append(latest)
            by_var[binding.var] = latest
            new = self._new_values(seen)
            if new is None:
                known[binding.var] = binding.value
            else:
                for part, value in new:
                    rewrites[part.var] = value
                    known.pop(part.var, None)
                    part.rewritten = True
            for var in free_vars(binding.value):
                if var in by_var:
                    by_var[var].users.add(binding.var)
        return RewriteSpec(rewrites, self.new_subroutines) if rewrites else RewriteSpec()

    def _new_values(self, seen: list[_Seen]) -> list[tuple[_Seen, Any]] | None:
        """New values of bindings that together match, the latest among them; or None."""
        for position in reversed(range(len(self.patterns))):
            for parts in self._choices(seen, position, len(self.patterns) - 1):
                found = self._rewritten(parts)
                if found is not None:
                    return list(zip(parts, found))
        return None

    def _choices(self, seen: list[_Seen], position: int, last: int) -> Iterator[list[_Seen]]:
        """Bindings for the fields up to ``last``, late ones first; the latest one stands at ``position``."""
        if last < 0:
            yield []
            return
        candidates = [seen[-1]] if last == position else seen[-2::-1]
        for candidate in candidates:
            if candidate.matches[last] is None or candidate.rewritten:
                continue
            for others in self._choices(
                [s for s in seen if s is not candidate or last == position], position, last - 1
            ):
                yield [*others, candidate]

    def _rewritten(self, parts: Sequence[_Seen]) -> list[Any] | None:
        merged: dict[DFPattern, Any] = {}
        for position, part in enumerate(parts):
            for pattern, expr in (part.matches[position] or {}).items():
                if not structural_equal(merged.setdefault(pattern, expr), expr):
                    return None
        inner = set(of_kind(merged.values(), Var))
        if any(not part.users <= inner for part in parts):
            # Something computed before all of them can be needs one of them.
            return None
        whole = Tuple([part.value for part in parts])
        new = self.func(whole, merged)
        if new is None or new is whole:
            return None
        if not isinstance(new, Tuple):
            return [TupleGetItem(new, index) for index in range(len(parts))]
        if len(new.fields) != len(parts):
            raise RelaxishError(
                f"Expected to receive {len(parts)} values to replace TuplePattern with {len(parts)} fields, but received "
                f"{len(new.fields)} values"
            )
        return list(new.fields)
