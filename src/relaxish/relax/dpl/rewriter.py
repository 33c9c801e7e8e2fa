"""Rewriters: a pattern with what replaces it, alone or several together.

Each round asks the rewriter for new values of bound variables, then simplifies (copies, common subexpressions, dead
bindings); rounds repeat until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import BaseFunc, GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...ir.transform import ModulePass, PassContext, PassInfo
from ..analysis.cleanup import remove_all_unused_in
from ..canonicalize import canonicalize_bindings
from ..common_subexpr import eliminate_common_subexpr
from ..copying import copy_with_new_vars
from ..expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..struct_info import PrimStructInfo
from .matcher import Matcher, extract_matched_expr
from .pattern import (
    CallPattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    OrPattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    WildcardPattern,
)

__all__ = ["ExprPatternRewriter", "OrRewriter", "PatternMatchingRewriter", "TupleRewriter"]

RewriterFunc = Callable[[Expr, dict[DFPattern, Expr]], Expr | None]


class PatternMatchingRewriter(ModulePass):
    """Rewrites what matches, in a function or in a whole module; ``a | b`` tries ``a`` first."""

    def __init__(self) -> None:
        super().__init__(PassInfo(0, type(self).__name__, ()))
        self.new_subroutines: dict[GlobalVar, BaseFunc] = {}

    @staticmethod
    def from_pattern(
        pattern: DFPattern,
        func: RewriterFunc,
        additional_bindings: Sequence[DFPattern] | None = None,
        new_subroutines: Mapping[GlobalVar, BaseFunc] | None = None,
    ) -> PatternMatchingRewriter:
        """A rewriter that calls ``func(expr, matchings)`` on what matches; None or ``expr`` leaves it."""
        extra = list(additional_bindings or ())
        made: PatternMatchingRewriter
        if isinstance(pattern, OrPattern):
            sides = (pattern.left, pattern.right)
            left, right = (
                PatternMatchingRewriter.from_pattern(side, func, [*extra, pattern], new_subroutines) for side in sides
            )
            return OrRewriter(left, right)
        if isinstance(pattern, TuplePattern):
            made = OrRewriter(
                ExprPatternRewriter(pattern, func, extra), TupleRewriter(pattern.fields, func, [*extra, pattern])
            )
        else:
            made = ExprPatternRewriter(pattern, func, extra)
        made.new_subroutines = dict(new_subroutines or {})
        return made

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """A rewriter from a module with the functions ``pattern`` and ``replacement`` of one signature.

        Raises KeyError if one of them is missing, ValueError if their signatures differ or another function is public.
        """
        from .module_rewriter import rewriter_of_module

        return rewriter_of_module(mod)

    def rewrite_bindings(self, bindings: Sequence[Any]) -> dict[Var, Any]:
        """New values of some of the bound variables."""
        raise NotImplementedError

    def __or__(self, other: PatternMatchingRewriter) -> OrRewriter:
        return OrRewriter(self, other)

    def __call__(self, obj: Any) -> Any:
        """The rewritten function, expression or module."""
        if isinstance(obj, IRModule):
            return super().__call__(obj)
        return _Mutator(self).rewrite(obj)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with every graph function rewritten."""
        mutator = _Mutator(self, mod)
        changed = False
        for var, func in list(mod.functions.items()):
            if isinstance(func, Function):
                new = mutator.rewrite(func)
                if new is not func:
                    mutator.builder_.update_func(var, new)
                    changed = True
        if not changed:
            return mod
        out = mutator.builder_.get()
        for var, func in self.new_subroutines.items():
            out.update_func(var, func)
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

    def rewrite_bindings(self, bindings: Sequence[Any]) -> dict[Var, Any]:
        rewrites: dict[Var, Any] = {}
        known: dict[Var, Any] = {}
        for binding in bindings:
            new = self.rewrite_expr(binding.value, known)
            if new is not None:
                rewrites[binding.var] = new
            else:
                known[binding.var] = binding.value
        return rewrites

    def rewrite_expr(self, expr: Any, bindings: Mapping[Var, Any]) -> Any:
        """The replacement of one expression, or None."""
        matches = extract_matched_expr(self.pattern, expr, bindings)
        if matches is None:
            return None
        for pattern in self.additional_bindings:
            matches[pattern] = expr
        new = self.func(expr, matches)
        return None if new is expr else new


class OrRewriter(PatternMatchingRewriter):
    """The left rewriter; where it finds nothing, the right one."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        super().__init__()
        self.lhs = lhs
        self.rhs = rhs
        self.new_subroutines = {**lhs.new_subroutines, **rhs.new_subroutines}

    def rewrite_bindings(self, bindings: Sequence[Any]) -> dict[Var, Any]:
        return self.lhs.rewrite_bindings(bindings) or self.rhs.rewrite_bindings(bindings)


class TupleRewriter(PatternMatchingRewriter):
    """Rewrites several values together, though no tuple holds them: the replacement is a tuple of their new values."""

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

    def rewrite_bindings(self, bindings: Sequence[Any]) -> dict[Var, Any]:
        known = {b.var: b.value for b in bindings}
        place = {b.var: i for i, b in enumerate(bindings)}
        rewrites: dict[Var, Any] = {}
        for chosen, memo in self._choices(list(bindings), Matcher(known), []):
            if any(b.var in rewrites for b in chosen):
                continue
            last = max(place[b.var] for b in chosen)
            if self._used_before(bindings, chosen, last):
                continue
            expr = Tuple([b.var for b in chosen])
            matches = {**memo, **dict.fromkeys(self.additional_bindings, expr)}
            new = self.func(expr, matches)
            if new is None or new is expr:
                continue
            for index, binding in enumerate(chosen):
                rewrites[binding.var] = new.fields[index] if isinstance(new, Tuple) else TupleGetItem(new, index)
            return rewrites
        return rewrites

    def _choices(self, bindings: list[Any], matcher: Matcher, chosen: list[Any]) -> Any:
        if len(chosen) == len(self.patterns):
            yield list(chosen), dict(matcher.memo)
            return
        for binding in bindings:
            if binding in chosen:
                continue
            before = len(matcher.memo)
            if matcher.match(self.patterns[len(chosen)], binding.value):
                yield from self._choices(bindings, matcher, [*chosen, binding])
            matcher.forget(before)

    @staticmethod
    def _used_before(bindings: Sequence[Any], chosen: Sequence[Any], last: int) -> bool:
        """Whether a chosen value is needed before all of them can be computed."""
        from ..analysis.variables import direct_uses

        names = {b.var for b in chosen}
        return any(names.intersection(direct_uses(b.value)) for b in bindings[: last + 1])


class _Mutator(PyExprMutator):
    """Applies a rewriter to every sequence of bindings until nothing changes."""

    def __init__(self, rewriter: PatternMatchingRewriter, mod: IRModule | None = None) -> None:
        super().__init__(mod)
        self.rewriter = rewriter

    def rewrite(self, expr: Any) -> Any:
        """The rewritten function or sequence."""
        return self.visit_expr(expr)

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        current: SeqExpr = super().visit_seq_expr_(op)
        while True:
            rewritten = self._round(current)
            if rewritten is None:
                return current
            following = _simplified(self.builder_.normalize(rewritten))
            if structural_equal(current, following, map_free_vars=True):
                return current
            current = following

    def _round(self, seq: SeqExpr) -> SeqExpr | None:
        """One round over all blocks, or None if nothing is rewritten."""
        blocks = list(seq.blocks)
        result = seq.body
        if not isinstance(result, Var):
            result = Var("dummy_output_var", seq.body.struct_info_)
            binding = VarBinding(result, seq.body)
            if blocks and not isinstance(blocks[-1], DataflowBlock):
                blocks[-1] = BindingBlock((*blocks[-1].bindings, binding), blocks[-1].span)
            else:
                blocks.append(BindingBlock([binding]))
        changed = False
        made: list[BindingBlock] = []
        for block in blocks:
            rewrites = self.rewriter.rewrite_bindings(block.bindings)
            if rewrites:
                changed = True
                block = _replaced(block, rewrites)
            made.append(block)
        return SeqExpr(made, result, seq.span) if changed else None


def _replaced(block: BindingBlock, rewrites: Mapping[Var, Any]) -> BindingBlock:
    """The block with new values, each after all bindings that it uses."""
    from .rewrite import direct_uses_deep

    out: list[Any] = []
    waiting: list[Any] = []
    own = {b.var for b in block.bindings}
    done: set[Var] = set()

    def ready(value: Any) -> bool:
        return all(v in done or v not in own for v in direct_uses_deep(value))

    for binding in block.bindings:
        if binding.var in rewrites:
            binding = VarBinding(binding.var, rewrites[binding.var])
        waiting.append(binding)
        progress = True
        while progress:
            progress = False
            for item in list(waiting):
                if ready(item.value):
                    waiting.remove(item)
                    out.append(item)
                    done.add(item.var)
                    progress = True
    out.extend(waiting)
    return type(block)(out, block.span)


def _simplified(seq: SeqExpr) -> SeqExpr:
    while True:
        before = seq
        seq = canonicalize_bindings(seq)
        seq = eliminate_common_subexpr(seq)
        seq = remove_all_unused_in(seq)
        if seq is before or structural_equal(before, seq, map_free_vars=True):
            return seq


def pattern_of_function(func: Function) -> tuple[DFPattern, list[WildcardPattern]]:
    """The pattern of a function's result, and the wildcards that stand for its parameters."""
    wildcards = [WildcardPattern() for _ in func.params]
    known: dict[Var, DFPattern] = {
        param: StructInfoPattern(hole, param.struct_info) for param, hole in zip(func.params, wildcards)
    }

    def make(expr: Any) -> DFPattern:
        if isinstance(expr, Var):
            return known[expr]
        if isinstance(expr, Call):
            made: DFPattern = CallPattern(make(expr.op), [make(a) for a in expr.args])
            fields = dict(expr.attrs.items()) if expr.attrs is not None and hasattr(expr.attrs, "items") else {}
            return made.has_attr(fields) if fields else made
        if isinstance(expr, Tuple):
            return TuplePattern([make(f) for f in expr.fields])
        if isinstance(expr, TupleGetItem):
            return TupleGetItemPattern(make(expr.tuple_value), expr.index)
        if isinstance(expr, ExternFunc):
            return ExternFuncPattern(expr.global_symbol)
        if isinstance(expr, PrimValue):
            return StructInfoPattern(WildcardPattern(), PrimStructInfo(value=expr.value))
        if isinstance(expr, (Op, Expr)):
            return ExprPattern(expr)
        raise TypeError(f"Cannot convert a {type(expr).__name__} to a pattern")

    for block in func.body.blocks:
        for binding in block.bindings:
            value = make(binding.value)
            if isinstance(binding, MatchCast):
                value = StructInfoPattern(value, binding.struct_info)
            known[binding.var] = value
    return make(func.body.body), wildcards


def replacement_of_function(func: Function, wildcards: Sequence[WildcardPattern]) -> RewriterFunc:
    """What the function computes from the matches of the wildcards."""

    def rewrite(expr: Expr, matches: dict[DFPattern, Expr]) -> Expr | None:
        fresh = copy_with_new_vars(func)
        bindings: list[Any] = []
        for hole, param in zip(wildcards, fresh.params):
            matched = matches[hole]
            between = Var("intermediate_var", matched.struct_info)
            bindings.append(VarBinding(between, matched))
            bindings.append(MatchCast(param, between, param.struct_info))
        block = DataflowBlock(bindings) if all(isinstance(b, DataflowBlock) for b in fresh.body.blocks) else None
        blocks = [block or BindingBlock(bindings), *fresh.body.blocks]
        body = SeqExpr([b for b in blocks if b.bindings], fresh.body.body)
        return body

    return rewrite


