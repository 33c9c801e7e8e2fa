"""Systems of linear equations over the integers.

Method: the Smith normal form of the coefficients (Schrijver, "Theory of Linear and Integer Programming", chapter 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import build as B
from ._ir import EQ, LE, LT, IntImm, PrimExpr, Range, Var
from .analyzer import Analyzer
from .functor import free_vars, substitute
from .int_constraints import IntConstraints, IntConstraintsTransform, as_system, unsolvable
from .int_set import IntSetEvaluator, from_range
from .linear import detect_linear_equation

Matrix = list[list[int]]


def _extended_gcd(a: int, b: int) -> tuple[int, int, int]:
    """``(g, s, t)`` with ``g == s * a + t * b``."""
    s, t, next_s, next_t = 1, 0, 0, 1
    while b:
        quotient = B.trunc_div(a, b)
        a, b = b, a - quotient * b
        s, next_s = next_s, s - quotient * next_s
        t, next_t = next_t, t - quotient * next_t
    return (a, s, t) if a >= 0 else (-a, -s, -t)


class _SmithForm:
    """Diagonalises ``matrix`` by row steps, also taken on the right-hand sides, and column steps.

    ``columns`` gathers the column steps (V in ``S = U A V``); ``unknowns`` is V inverse times the variables.
    """

    def __init__(self, matrix: Matrix, rhs: list[PrimExpr], variables: Sequence[Var], analyzer: Analyzer) -> None:
        self.s = matrix
        self.rhs = rhs
        self.unknowns: list[PrimExpr] = list(variables)
        count = len(variables)
        self.columns = [[int(i == j) for j in range(count)] for i in range(count)]
        self.analyzer = analyzer
        index = 0
        while index < min(len(matrix), count):
            # A column step that is no plain subtraction may fill the pivot's column again.
            if not self._pivot(index) or not self._clear(index):
                index += 1

    def _combine(self, values: list[PrimExpr], i: int, j: int, factors: tuple[int, int, int, int]) -> None:
        p, q, r, t = (B.const(values[i].dtype, f) for f in factors)
        x, y = values[i], values[j]
        values[i] = self.analyzer.simplify(B.add(B.mul(x, p), B.mul(y, q)))
        values[j] = self.analyzer.simplify(B.add(B.mul(x, r), B.mul(y, t)))

    def _pivot(self, index: int) -> bool:
        """Bring the least non-zero element of the column to the diagonal, or a column that has one."""
        s = self.s
        best = index
        for i in range(index, len(s)):
            if s[i][index] and (not s[best][index] or abs(s[i][index]) < abs(s[best][index])):
                best = i
        s[index], s[best] = s[best], s[index]
        self.rhs[index], self.rhs[best] = self.rhs[best], self.rhs[index]
        if not s[index][index]:
            other = next((j for j in range(index + 1, len(s[index])) if s[index][j]), None)
            if other is None:
                return False
            for row in (*s, *self.columns):
                row[index], row[other] = row[other], row[index]
            self.unknowns[index], self.unknowns[other] = self.unknowns[other], self.unknowns[index]
        return True

    def _step(self, index: int, value: int) -> tuple[int, int, int, int]:
        """Factors that turn the pivot and ``value`` into their divisor and zero."""
        pivot = self.s[index][index]
        g, a, b = _extended_gcd(pivot, value) if value % pivot else (pivot, 1, 0)
        return a, b, value // g, -(pivot // g)

    def _clear(self, index: int) -> bool:
        """Clear the column, then the row of the pivot; whether the column must be cleared again."""
        s = self.s
        for i in range(index + 1, len(s)):
            if s[i][index]:
                a, b, c, d = self._step(index, s[i][index])
                s[index], s[i] = (
                    [a * x + b * y for x, y in zip(s[index], s[i])], [c * x + d * y for x, y in zip(s[index], s[i])]
                )  # fmt: skip
                self._combine(self.rhs, index, i, (a, b, c, d))
        again = False
        for j in range(index + 1, len(s[index])):
            if s[index][j]:
                again = again or s[index][j] % s[index][index] != 0
                a, b, c, d = self._step(index, s[index][j])
                for row in (*s, *self.columns):
                    row[index], row[j] = a * row[index] + b * row[j], c * row[index] + d * row[j]
                self._combine(self.unknowns, index, j, (-d, c, b, -a))
        return again


def _linear_rows(system: IntConstraints, analyzer: Analyzer) -> tuple[Matrix, list[PrimExpr], list[PrimExpr]]:
    """Coefficients and right-hand sides of the linear equations, and the relations that are none."""
    rows: Matrix = []
    rhs: list[PrimExpr] = []
    rest: list[PrimExpr] = []
    for relation in system.relations:
        e: Any = relation
        coeffs: list[Any] = []
        if type(e) is EQ:
            coeffs = detect_linear_equation(analyzer.simplify(B.sub(e.a, e.b)), system.variables)
        if coeffs and all(type(c) is IntImm for c in coeffs[:-1]):
            rows.append([c.value for c in coeffs[:-1]])
            rhs.append(analyzer.simplify(B.sub(B.const(coeffs[-1].dtype, 0), coeffs[-1])))
        else:
            rest.append(relation)
    return rows, rhs, rest


def solve_linear_equations(
    equations: Sequence[EQ], variables: Sequence[Var] | None = None, ranges: Mapping[Var, Range] | None = None
) -> IntConstraintsTransform:
    """Solve ``A x = b``: fewer free variables that parametrise all solutions, and relations that remain.

    Free variables are called ``n0, n1, ...``, with the name of the old variable appended where one takes its place.
    Ranges of old variables become ranges of and relations on the new ones.  Without a solution the one relation is
    false and the maps are empty.

    >>> from relaxish import arith, tir
    >>> x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    >>> arith.solve_linear_equations([tir.EQ(x + y, 20), tir.EQ(x - y, 10)], [x, y]).src_to_dst[x]
    15
    """
    system = as_system(equations, variables, ranges)
    analyzer = Analyzer()
    analyzer.bind_map(system.ranges, True)
    rows, rhs, rest = _linear_rows(system, analyzer)
    form = _SmithForm(rows, rhs, system.variables, analyzer)
    relations = _solvability(form, analyzer)
    if relations is None:
        return IntConstraintsTransform(system, unsolvable(), {}, {})
    new_to_old: dict[Var, PrimExpr] = {}
    values = [_value(form, j, new_to_old, analyzer) for j in range(len(system.variables))]
    old_to_new: dict[Var, PrimExpr] = {}
    for row, var in zip(form.columns, system.variables):
        total: PrimExpr = B.const(var.dtype, 0)
        for factor, value in zip(row, values):
            total = B.add(total, B.mul(value, B.const(var.dtype, factor)))
        old_to_new[var] = analyzer.simplify(total)
    new_ranges = _infer_ranges(new_to_old, system)
    relations += _range_relations(system, old_to_new, new_ranges)
    relations += [substitute(e, old_to_new) for e in rest]
    solution = IntConstraints(tuple(new_to_old), new_ranges, relations)
    return IntConstraintsTransform(system, solution, old_to_new, new_to_old)


def _solvability(form: _SmithForm, analyzer: Analyzer) -> list[PrimExpr] | None:
    """What must hold of the right-hand sides; None where it does not."""
    out: list[PrimExpr] = []
    for j, row in enumerate(form.s):
        value = form.rhs[j]
        pivot = row[j] if j < len(row) else 0
        rest = B.floormod(value, B.const(value.dtype, abs(pivot))) if pivot else value
        found = analyzer.simplify(EQ(rest, B.const(value.dtype, 0)))
        if B.is_zero(found):
            return None
        if not B.is_one(found):
            out.append(found)
    return out


def _value(form: _SmithForm, j: int, new_to_old: dict[Var, PrimExpr], analyzer: Analyzer) -> PrimExpr:
    """The ``j``-th unknown: a quotient where it is determined, else a fresh variable."""
    pivot = form.s[j][j] if j < len(form.s) else 0
    if pivot:
        rhs = form.rhs[j]
        numerator = rhs if pivot > 0 else B.sub(B.const(rhs.dtype, 0), rhs)
        return analyzer.simplify(B.floordiv(numerator, B.const(rhs.dtype, abs(pivot))))
    old = analyzer.simplify(form.unknowns[j])
    suffix = f"_{old.name}" if isinstance(old, Var) else ""
    fresh = Var(f"n{len(new_to_old)}{suffix}", form.unknowns[j].dtype)
    new_to_old[fresh] = old
    return fresh


def _infer_ranges(new_to_old: Mapping[Var, PrimExpr], system: IntConstraints) -> dict[Var, Range]:
    """Ranges of parameters, then those of new variables that the ranges of old ones determine."""
    own = set(system.variables)
    out = {v: r for v, r in system.ranges.items() if v not in own}
    domains = {v: from_range(r) for v, r in system.ranges.items()}
    evaluator = IntSetEvaluator(Analyzer(), domains, True)
    for var, value in new_to_old.items():
        found = evaluator.eval(value)
        if not found.has_lower() or not found.has_upper():
            continue
        if not any(v in own for end in (found.min_value, found.max_value) for v in free_vars(end)):
            out[var] = found.cover_range()
    return out


def _range_relations(
    system: IntConstraints, old_to_new: Mapping[Var, PrimExpr], new_ranges: Mapping[Var, Range]
) -> list[PrimExpr]:
    """What the old ranges say about the new variables and is not already known."""
    analyzer = Analyzer()
    analyzer.bind_map(new_ranges, True)
    out: list[PrimExpr] = []
    for var in system.variables:
        dom = system.ranges.get(var)
        if dom is not None:
            value = old_to_new[var]
            conditions = (LE(dom.min, value), LT(value, B.add(dom.min, dom.extent)))
            out += [found for c in conditions if not B.is_one(found := analyzer.simplify(c))]
    return out
