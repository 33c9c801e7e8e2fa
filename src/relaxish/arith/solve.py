"""Systems of linear equations and inequalities over the integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from ..ir.node import Node, field
from . import build as B
from ._ir import EQ, GE, GT, LE, LT, IntImm, PrimExpr, Range, Var
from .analyzer import Analyzer
from .functor import substitute
from .linear import detect_linear_equation


class IntGroupBounds(Node):
    """Bounds of ``coef * var``: from below, equal, from above."""

    coef: PrimExpr = field()
    lower: tuple[PrimExpr, ...] = field()
    equal: tuple[PrimExpr, ...] = field()
    upper: tuple[PrimExpr, ...] = field()

    @staticmethod
    def from_range(rng: Range) -> IntGroupBounds:
        """The bounds a range puts on a variable."""
        one = B.const(rng.min.dtype, 1)
        if B.is_one(rng.extent):
            return IntGroupBounds(one, (), (rng.min,), ())
        top = Analyzer().simplify(B.sub(B.add(rng.min, rng.extent), one))
        return IntGroupBounds(one, (rng.min,), (), (top,))

    def find_best_range(self) -> Range | None:
        """The smallest range known to hold the variable, or None."""
        analyzer = Analyzer()
        if self.equal and B.is_one(self.coef):
            return Range.from_min_extent(self.equal[0], B.const(self.equal[0].dtype, 1))
        if not self.lower or not self.upper:
            return None
        low, high = self.lower[0], self.upper[0]
        for other in self.lower[1:]:
            low = B.maximum(low, other)
        for other in self.upper[1:]:
            high = B.minimum(high, other)
        coef = self.coef
        one = B.const(coef.dtype, 1)
        if not B.is_one(coef):
            low = B.floordiv(B.add(low, B.sub(coef, one)), coef)
            high = B.floordiv(high, coef)
        return Range.from_min_extent(analyzer.simplify(low), analyzer.simplify(B.add(B.sub(high, low), one)))


class IntConstraints(Node):
    """Variables, their ranges, and relations between them."""

    variables: tuple[Var, ...] = field(conv=tuple)
    ranges: dict[Var, Range] = field(conv=dict)
    relations: tuple[PrimExpr, ...] = field(conv=tuple)


class IntConstraintsTransform(Node):
    """Two equivalent systems and the maps between their variables."""

    src: IntConstraints = field()
    dst: IntConstraints = field()
    src_to_dst: dict[Var, PrimExpr] = field(conv=dict)
    dst_to_src: dict[Var, PrimExpr] = field(conv=dict)


Matrix = list[list[int]]


def smith_normal_form(matrix: Matrix, columns: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """``S = U A V`` diagonal for unimodular ``U``, ``V``; returns ``S, U, V, V**-1``."""
    rows = len(matrix)
    s = [list(r) for r in matrix]
    u = [[int(i == j) for j in range(rows)] for i in range(rows)]
    v = [[int(i == j) for j in range(columns)] for i in range(columns)]
    inv = [[int(i == j) for j in range(columns)] for i in range(columns)]

    def row_combine(i: int, j: int, factor: int) -> None:
        for m in (s, u):
            m[i] = [x - factor * y for x, y in zip(m[i], m[j])]

    def col_combine(i: int, j: int, factor: int) -> None:
        for m in (s, v):
            for row in m:
                row[i] -= factor * row[j]
        inv[j] = [x + factor * y for x, y in zip(inv[j], inv[i])]

    def swap_cols(i: int, j: int) -> None:
        for m in (s, v):
            for row in m:
                row[i], row[j] = row[j], row[i]
        inv[i], inv[j] = inv[j], inv[i]

    rank = 0
    while rank < min(rows, columns):
        pivot = next(((i, j) for j in range(rank, columns) for i in range(rank, rows) if s[i][j]), None)
        if pivot is None:
            break
        for m in (s, u):
            m[rank], m[pivot[0]] = m[pivot[0]], m[rank]
        if pivot[1] != rank:
            swap_cols(rank, pivot[1])
        while True:
            i = next((i for i in range(rank + 1, rows) if s[i][rank]), None)
            if i is not None:
                row_combine(i, rank, s[i][rank] // s[rank][rank])
                if s[i][rank]:
                    for m in (s, u):
                        m[rank], m[i] = m[i], m[rank]
                continue
            j = next((j for j in range(rank + 1, columns) if s[rank][j]), None)
            if j is None:
                break
            col_combine(j, rank, s[rank][j] // s[rank][rank])
            if s[rank][j]:
                swap_cols(rank, j)
        if s[rank][rank] < 0:
            for m in (s, u):
                m[rank] = [-x for x in m[rank]]
        rank += 1
    return s, u, v, inv


def _system(equations: Any, variables: Any, ranges: Any) -> IntConstraints:
    if isinstance(equations, IntConstraints):
        return equations
    relations = [equations] if isinstance(equations, PrimExpr) else list(equations)
    return IntConstraints(tuple(variables or ()), dict(ranges or {}), tuple(relations))


def _combine(coeffs: Sequence[int], terms: Sequence[PrimExpr], dtype: str) -> PrimExpr:
    total: PrimExpr = B.const(dtype, 0)
    for c, t in zip(coeffs, terms):
        if c:
            total = B.add(total, B.mul(t, B.const(dtype, c)))
    return total


def solve_linear_equations(
    equations: Any, variables: Sequence[Var] | None = None, ranges: Mapping[Var, Range] | None = None
) -> IntConstraintsTransform:
    """Solve ``A x = b``: fewer free variables that parametrise all solutions, relations that remain.

    The free variables are named ``n0, n1, ...``; ranges of the old variables become relations on them.
    """
    system = _system(equations, variables, ranges)
    analyzer = Analyzer()
    for var, dom in system.ranges.items():
        analyzer.bind(var, dom, True)
    rows: list[list[int]] = []
    rhs: list[PrimExpr] = []
    rest: list[PrimExpr] = []
    for relation in system.relations:
        e: Any = relation
        coeffs = detect_linear_equation(B.sub(e.a, e.b), system.variables) if type(e) is EQ else []
        if coeffs and all(type(c) is IntImm for c in coeffs[:-1]):
            rows.append([c.value for c in coeffs[:-1]])  # type: ignore[attr-defined]
            rhs.append(analyzer.simplify(B.sub(B.const(coeffs[-1].dtype, 0), coeffs[-1])))
        else:
            rest.append(relation)
    count = len(system.variables)
    if not rows:
        identity: dict[Var, PrimExpr] = {v: v for v in system.variables}
        return IntConstraintsTransform(system, system, identity, identity)
    dtype = system.variables[0].dtype
    s, u, v, inv = smith_normal_form(rows, count)
    transformed = [analyzer.simplify(_combine(row, rhs, dtype)) for row in u]
    values: list[PrimExpr] = []
    new_vars: list[Var] = []
    relations: list[PrimExpr] = []
    dst_to_src: dict[Var, PrimExpr] = {}
    for j in range(count):
        pivot = s[j][j] if j < len(s) else 0
        if pivot:
            divisor = B.const(dtype, pivot)
            exact = analyzer.simplify(EQ(B.floormod(transformed[j], divisor), B.const(dtype, 0)))
            if not B.is_one(exact):
                relations.append(exact)
            values.append(analyzer.simplify(B.floordiv(transformed[j], divisor)))
        else:
            fresh = Var(f"n{len(new_vars)}", dtype)
            new_vars.append(fresh)
            values.append(fresh)
            dst_to_src[fresh] = analyzer.simplify(_combine(inv[j], system.variables, dtype))
    for i in range(len(rows)):
        if i >= count or not s[i][i]:
            left = analyzer.simplify(EQ(transformed[i], B.const(dtype, 0)))
            if not B.is_one(left):
                relations.append(left)
    if any(type(r) is IntImm and r.value == 0 for r in relations):
        src_to_dst = {var: B.const(dtype, 0) for var in system.variables}
        dst = IntConstraints((), {}, (B.false(),))
        return IntConstraintsTransform(system, dst, src_to_dst, {})
    plain = Analyzer()
    src_to_dst = {var: plain.simplify(_combine(v[i], values, dtype)) for i, var in enumerate(system.variables)}
    new_ranges: dict[Var, Range] = {}
    for fresh in new_vars:
        found = analyzer.int_set(dst_to_src[fresh])
        if found.has_lower() and found.has_upper():
            new_ranges[fresh] = found.cover_range()
    _range_relations(system, src_to_dst, new_ranges, relations)
    relations.extend(plain.simplify(substitute(r, src_to_dst)) for r in rest)
    relations = [r for r in relations if not B.is_one(r)]
    return IntConstraintsTransform(system, IntConstraints(new_vars, new_ranges, relations), src_to_dst, dst_to_src)


def _range_relations(
    system: IntConstraints, src_to_dst: Mapping[Var, PrimExpr], new_ranges: Mapping[Var, Range], out: list[PrimExpr]
) -> None:
    """What the old ranges say about the new variables and is not already known."""
    analyzer = Analyzer()
    for var, dom in new_ranges.items():
        analyzer.bind(var, dom, True)
    for var, value in src_to_dst.items():
        if var not in system.ranges:
            continue
        dom = system.ranges[var]
        for cond in (LE(dom.min, value), LT(value, B.add(dom.min, dom.extent))):
            left = analyzer.simplify(cond)
            if not B.is_one(left):
                out.append(left)


def _as_upper(e: Any) -> PrimExpr | None:
    """A comparison as ``t`` with ``t <= 0``."""
    one = B.const(e.a.dtype, 1)
    kind = type(e)
    if kind is LE:
        return B.sub(e.a, e.b)
    if kind is LT:
        return B.add(B.sub(e.a, e.b), one)
    if kind is GE:
        return B.sub(e.b, e.a)
    if kind is GT:
        return B.add(B.sub(e.b, e.a), one)
    return None


def _eliminate(
    system: IntConstraints,
) -> tuple[dict[Var, IntGroupBounds], list[PrimExpr]]:
    """Fourier-Motzkin elimination, first variable first."""
    analyzer = Analyzer()
    forms: list[PrimExpr] = []
    rest: list[PrimExpr] = []
    for relation in system.relations:
        e: Any = relation
        if type(e) is EQ:
            forms += [B.sub(e.a, e.b), B.sub(e.b, e.a)]
            continue
        made = _as_upper(e) if type(e) in (LE, LT, GE, GT) else None
        (rest if made is None else forms).append(relation if made is None else made)
    for var in system.variables:
        dom = system.ranges.get(var)
        if dom is not None:
            forms += [B.sub(dom.min, var), B.add(B.sub(var, B.add(dom.min, dom.extent)), B.const(var.dtype, 1))]
    bounds: dict[Var, IntGroupBounds] = {}
    for var in system.variables:
        lower: list[tuple[int, PrimExpr]] = []
        upper: list[tuple[int, PrimExpr]] = []
        others: list[PrimExpr] = []
        for form in forms:
            coeffs = detect_linear_equation(form, [var])
            if not coeffs or type(coeffs[0]) is not IntImm:
                rest.append(LE(form, B.const(form.dtype, 0)))
            elif coeffs[0].value == 0:
                others.append(coeffs[1])
            elif coeffs[0].value > 0:
                upper.append((coeffs[0].value, analyzer.simplify(B.sub(B.const(var.dtype, 0), coeffs[1]))))
            else:
                lower.append((-coeffs[0].value, coeffs[1]))
        scale = 1
        for c, _ in lower + upper:
            scale = scale * c // gcd(scale, c)

        def scaled(items: list[tuple[int, PrimExpr]], factor: int = scale) -> list[PrimExpr]:
            made: list[PrimExpr] = []
            for c, value in items:
                new = analyzer.simplify(B.mul(value, B.const(value.dtype, factor // c)))
                if not any(analyzer.can_prove_equal(new, old) for old in made):
                    made.append(new)
            return made

        lows, highs = scaled(lower), scaled(upper)
        equal = [x for x in lows if any(analyzer.can_prove_equal(x, y) for y in highs)]
        keep_low = [x for x in lows if not any(x is y for y in equal)]
        keep_high = [y for y in highs if not any(analyzer.can_prove_equal(x, y) for x in equal)]
        bounds[var] = IntGroupBounds(B.const(var.dtype, scale), tuple(keep_low), tuple(equal), tuple(keep_high))
        forms = others
        for low in lows:
            for high in highs:
                made = analyzer.simplify(B.sub(low, high))
                if type(made) is IntImm and made.value <= 0:
                    continue
                if not any(analyzer.can_prove_equal(made, old) for old in forms):
                    forms.append(made)
    for form in forms:
        left = analyzer.simplify(LE(form, B.const(form.dtype, 0)))
        if not B.is_one(left):
            rest.append(left)
    return bounds, rest


def solve_linear_inequalities(
    equations: Any, variables: Sequence[Var] | None = None, ranges: Mapping[Var, Range] | None = None,
    deskew_range: bool = False,
) -> Any:
    """Bounds of each variable in terms of the later ones.

    Without ``deskew_range`` an :class:`IntConstraints`; with it an :class:`IntConstraintsTransform` whose
    new variables all start at zero.
    """
    system = _system(equations, variables, ranges)
    bounds, rest = _eliminate(system)
    solved: dict[Var, Range] = {}
    for var in system.variables:
        found = bounds[var].find_best_range()
        if found is not None:
            solved[var] = found
    if not deskew_range:
        return IntConstraints(system.variables, solved, tuple(rest))
    src_to_dst: dict[Var, PrimExpr] = {}
    dst_to_src: dict[Var, PrimExpr] = {}
    new_vars: list[Var] = []
    new_ranges: dict[Var, Range] = {}
    analyzer = Analyzer()
    for var in reversed(system.variables):
        known: Range | None = solved.get(var)
        low = substitute(known.min, src_to_dst) if known is not None else B.const(var.dtype, 0)
        if known is not None and B.is_one(known.extent):
            src_to_dst[var] = analyzer.simplify(low)
            continue
        fresh = Var(var.name, var.dtype)
        src_to_dst[var] = analyzer.simplify(B.add(fresh, low))
        dst_to_src[fresh] = analyzer.simplify(B.sub(var, known.min)) if known is not None else var
        new_vars.append(fresh)
        if known is not None:
            extent = analyzer.simplify(substitute(known.extent, src_to_dst))
            new_ranges[fresh] = Range.from_min_extent(B.const(var.dtype, 0), extent)
    relations = [analyzer.simplify(substitute(r, src_to_dst)) for r in rest]
    dst = IntConstraints(tuple(reversed(new_vars)), new_ranges, tuple(r for r in relations if not B.is_one(r)))
    return IntConstraintsTransform(system, dst, src_to_dst, dst_to_src)
