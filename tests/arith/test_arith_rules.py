"""Every rule of the tables, each on expressions made from its own pattern, against evaluation."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

from relaxish import arith, tir
from relaxish.arith import rules_arith, rules_div, rules_logic, rules_minmax
from relaxish.arith.rules import Rule, RuleTable
from relaxish.ir import Range, evaluate

TABLES = [
    (f"{module.__name__.rsplit('.', 1)[-1]}.{name}", table)
    for module in (rules_arith, rules_div, rules_logic, rules_minmax)
    for name, table in vars(module).items()
    if isinstance(table, RuleTable) and not table.vector
]
BINARY = {ast.Add: tir.Add, ast.Sub: tir.Sub, ast.Mult: tir.Mul, ast.FloorDiv: tir.FloorDiv, ast.Mod: tir.FloorMod}
COMPARE = {ast.Eq: tir.EQ, ast.NotEq: tir.NE, ast.Lt: tir.LT, ast.LtE: tir.LE, ast.Gt: tir.GT, ast.GtE: tir.GE}
CALLS = {"truncdiv": tir.Div, "truncmod": tir.Mod, "min": tir.Min, "max": tir.Max, "select": tir.Select}
VARIABLES = {name: tir.Var(name, "int32") for name in ("i", "j", "k")}
TRUTHS = {name: tir.Var(name, "bool") for name in ("p", "q", "r")}
ROUNDS = 25
DIVISIONS = (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)


class Maker:
    """An expression from a pattern, its names filled at random; conditions where a condition is expected."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.chosen: dict[str, Any] = {}

    def name(self, name: str, truth: bool) -> Any:
        if name not in self.chosen:
            rng = self.rng
            if name[0] == "c" and name[1:].isdigit():
                value = rng.choice([-8, -6, -4, -3, -2, -1, 1, 2, 2, 3, 4, 4, 6, 7, 8, 0])
                self.chosen[name] = tir.IntImm("int32", value)
            elif truth:
                self.chosen[name] = rng.choice(list(TRUTHS.values()))
            else:
                var = rng.choice(list(VARIABLES.values()))
                self.chosen[name] = rng.choice(
                    [var, var, tir.Add(var, tir.IntImm("int32", 3)), tir.Mul(var, VARIABLES["j"])]
                )
        return self.chosen[name]

    def make(self, e: ast.expr, truth: bool) -> Any:
        if isinstance(e, ast.Name):
            return self.name(e.id, truth)
        if isinstance(e, ast.Constant):
            return tir.IntImm("int32", e.value)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return tir.IntImm("int32", -ast.literal_eval(e.operand))
        if isinstance(e, ast.UnaryOp):
            return tir.Not(self.make(e.operand, True))
        if isinstance(e, ast.BinOp):
            return BINARY[type(e.op)](self.make(e.left, False), self.make(e.right, False))
        if isinstance(e, ast.Compare):
            return COMPARE[type(e.ops[0])](self.make(e.left, False), self.make(e.comparators[0], False))
        if isinstance(e, ast.BoolOp):
            both = tir.And if isinstance(e.op, ast.And) else tir.Or
            made = self.make(e.values[0], True)
            for other in e.values[1:]:
                made = both(made, self.make(other, True))
            return made
        assert isinstance(e, ast.Call) and isinstance(e.func, ast.Name)
        if e.func.id == "not_":
            return tir.Not(self.make(e.args[0], True))
        args = [self.make(a, e.func.id == "select" and n == 0) for n, a in enumerate(e.args)]
        return CALLS[e.func.id](*args)


def _patterns(rule: Rule) -> list[ast.expr]:
    left = rule.text.partition("=>")[0]
    return [ast.parse(part.strip(), mode="eval").body for part in left.split("||")]


def _defined(e: Any, env: dict[Any, int]) -> bool:
    """Whether nothing is divided by zero."""
    if isinstance(e, DIVISIONS) and _defined(e.b, env) and int(evaluate(e.b, env)) == 0:
        return False
    return all(_defined(child, env) for child in e.iter_children() if isinstance(child, tir.PrimExpr))


def _apply(rule: Rule, table: RuleTable, before: Any, analyzer: arith.Analyzer) -> Any:
    """What the rule makes of an expression; None where it does not fit or divides by a literal zero."""
    if type(before).__name__ != table.root or rule.fn is None:
        return None
    try:
        return rule.fn(before, analyzer.rewrite)
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[n for n, _ in TABLES])
def test_rules_keep_values(name: str, table: RuleTable) -> None:
    table.compile()
    rng = random.Random(name)
    for rule in table.rules:
        if "broadcast" in rule.text or "f1" in rule.text:
            continue
        for _ in range(ROUNDS):
            analyzer = arith.Analyzer()
            low = rng.choice([-9, 0, 0])
            for var in VARIABLES.values():
                analyzer.bind(var, Range(low, 13))
            pattern = rng.choice(_patterns(rule))
            before = Maker(rng).make(pattern, table.root in ("And", "Or", "Not"))
            after = _apply(rule, table, before, analyzer)
            if after is None:
                continue
            for _ in range(6):
                env: dict[Any, int] = {v: rng.randrange(low, 13) for v in VARIABLES.values()}
                env |= {v: rng.randrange(2) for v in TRUTHS.values()}
                if _defined(before, env):
                    same = int(evaluate(after, env)) == int(evaluate(before, env))
                    assert same, f"{rule.text}: {before} -> {after} at {env}"


def test_most_rules_are_reached() -> None:
    rng = random.Random(3)
    reached = total = 0
    for _, table in TABLES:
        table.compile()
        for rule in table.rules:
            if "broadcast" in rule.text or "f1" in rule.text:
                continue
            total += 1
            analyzer = arith.Analyzer()
            for var in VARIABLES.values():
                analyzer.bind(var, Range(0, 13))
            for _ in range(60):
                before = Maker(rng).make(rng.choice(_patterns(rule)), table.root in ("And", "Or", "Not"))
                if _apply(rule, table, before, analyzer) is not None:
                    reached += 1
                    break
    assert reached > 0.75 * total, (reached, total)
