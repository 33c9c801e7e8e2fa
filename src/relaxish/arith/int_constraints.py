"""Systems of integer (in)equalities, and the bounds of one variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..ir.expr import ExprLike, as_expr
from ..ir.node import Converted, Node, field
from . import build as B
from ._ir import EQ, GE, LE, PrimExpr, Range, Var
from .analyzer import Analyzer
from .functor import substitute
from .int_set import IntSetEvaluator, from_range


def _exprs(values: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    return tuple(as_expr(v) for v in values)


class IntGroupBounds(Node):
    """Bounds of ``coef * var``: from below, equal, from above."""

    coef: Converted[PrimExpr, ExprLike] = field(conv=as_expr)
    lower: Converted[tuple[PrimExpr, ...], Iterable[ExprLike]] = field(conv=_exprs)
    equal: Converted[tuple[PrimExpr, ...], Iterable[ExprLike]] = field(conv=_exprs)
    upper: Converted[tuple[PrimExpr, ...], Iterable[ExprLike]] = field(conv=_exprs)

    @staticmethod
    def from_range(rng: Range) -> IntGroupBounds:
        """The bounds a range puts on a variable."""
        one = B.const(rng.min.dtype, 1)
        if B.is_one(rng.extent):
            return IntGroupBounds(one, (), (rng.min,), ())
        top = Analyzer().simplify(B.sub(B.add(rng.min, rng.extent), one))
        return IntGroupBounds(one, (rng.min,), (), (top,))

    def with_range(self, rng: Range) -> IntGroupBounds:
        """These bounds and those of a range."""
        analyzer = Analyzer()
        other = IntGroupBounds.from_range(rng)

        def scaled(values: Sequence[PrimExpr]) -> list[PrimExpr]:
            return [analyzer.simplify(B.mul(v, self.coef)) for v in values]

        parts = ((self.lower, other.lower), (self.equal, other.equal), (self.upper, other.upper))
        return IntGroupBounds(self.coef, *([*mine, *scaled(more)] for mine, more in parts))

    def substitute(self, values: Mapping[Var, PrimExpr]) -> IntGroupBounds:
        """The bounds in terms of other variables."""
        groups = ([substitute(e, values) for e in group] for group in (self.lower, self.equal, self.upper))
        return IntGroupBounds(substitute(self.coef, values), *groups)

    def find_best_range(self, vranges: Mapping[Var, Range] | None = None) -> Range | None:
        """The smallest range known to hold the variable while others run over ``vranges``; None if there is none."""
        analyzer = Analyzer()
        known = dict(vranges or {})
        analyzer.bind_map(known, True)
        relax = IntSetEvaluator(analyzer, {v: from_range(r) for v, r in known.items()}, True)
        coef, one = self.coef, B.const(self.coef.dtype, 1)
        lowers, uppers = (*self.equal, *self.lower), (*self.equal, *self.upper)
        if len(lowers) == 1 and len(uppers) == 1 and B.is_one(coef):
            low = analyzer.simplify(lowers[0])
            span = analyzer.simplify(B.add(B.sub(uppers[0], lowers[0]), one))
            top = relax.eval(span)
            extent = analyzer.simplify(top.max_value) if top.has_upper() else span
            return Range.from_min_extent(low, extent)
        best: tuple[PrimExpr, PrimExpr] | None = None
        for lower in lowers:
            start = analyzer.simplify(B.floordiv(B.add(lower, B.sub(coef, one)), coef), 3)
            for upper in uppers:
                widths = (B.floordiv(B.sub(upper, lower), coef), B.sub(B.floordiv(upper, coef), start))
                width = _least(analyzer, [_relaxed(analyzer, relax, w) for w in widths])
                if width is not None and (best is None or _below(analyzer, width, best[1])):
                    best = start, width
        if best is None:
            return None
        return Range.from_min_extent(best[0], analyzer.simplify(B.add(best[1], one)))


def _relaxed(analyzer: Analyzer, relax: IntSetEvaluator, width: PrimExpr) -> PrimExpr | None:
    found = relax.eval(analyzer.simplify(width, 3))
    return analyzer.simplify(found.max_value, 3) if found.has_upper() else None


def _below(analyzer: Analyzer, a: PrimExpr, b: PrimExpr) -> bool:
    return analyzer.can_prove(B.lt(B.sub(a, b), B.const(a.dtype, 0)))


def _least(analyzer: Analyzer, widths: list[PrimExpr | None]) -> PrimExpr | None:
    """The first of the widths unless the second is certainly less."""
    first, second = widths
    if first is None or second is None:
        return first if second is None else second
    return second if _below(analyzer, second, first) else first


class IntConstraints(Node):
    """Variables, their ranges, and relations between them."""

    variables: Converted[tuple[Var, ...], Iterable[Var]] = field(conv=tuple)
    ranges: Converted[dict[Var, Range], Mapping[Var, Range]] = field(conv=dict)
    relations: Converted[tuple[PrimExpr, ...], Iterable[PrimExpr]] = field(conv=tuple)


class IntConstraintsTransform(Node):
    """Two equivalent systems and the maps between their variables."""

    src: IntConstraints = field()
    dst: IntConstraints = field()
    src_to_dst: dict[Var, PrimExpr] = field(conv=dict)
    dst_to_src: dict[Var, PrimExpr] = field(conv=dict)


def as_system(
    equations: IntConstraints | PrimExpr | Sequence[PrimExpr],
    variables: Sequence[Var] | None,
    ranges: Mapping[Var, Range] | None,
) -> IntConstraints:
    """The arguments of a solver as one system."""
    if isinstance(equations, IntConstraints):
        return equations
    relations = [equations] if isinstance(equations, PrimExpr) else list(equations)
    return IntConstraints(tuple(variables or ()), dict(ranges or {}), tuple(relations))


def unsolvable() -> IntConstraints:
    """A system that nothing satisfies."""
    return IntConstraints((), {}, (B.false(),))


def as_conditions(
    variables: Sequence[Var], bounds: Mapping[Var, IntGroupBounds], relations: Sequence[PrimExpr]
) -> list[PrimExpr]:
    """The bounds of each variable, then the relations, as conditions."""
    out: list[PrimExpr] = []
    for var in variables:
        group = bounds[var]
        side = B.mul(var, group.coef) if not B.is_one(group.coef) else var
        for kind, values in ((EQ, group.equal), (GE, group.lower), (LE, group.upper)):
            out += [kind(side, value) for value in values]
    return [*out, *relations]
