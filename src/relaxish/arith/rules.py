"""The matching engine of the simplifier: rules as lines of text, compiled to Python once per root kind.

A table is a block of lines ``pattern => result if condition``::

    (x - y) + y                 =>  x
    x * c1 < y * c1             =>  x < y           if c1 > 0
    x + c1 + y                  =>> (x + y) + c1

In a pattern ``x y z w s1 s2 b1 b2 t`` stand for any expression (the same name twice: structurally equal),
``c1``..``c9`` for integer literals, ``f1`` for a float literal, a number for that literal.  ``//`` and ``%`` are
floordiv and floormod; ``truncdiv truncmod min max select ramp broadcast not_`` and ``and or == != < <= > >=`` are
what they say.  ``A || B`` gives alternatives with one result.  ``=>>`` simplifies the result again.  In a condition
(set off by two blanks) ``c1`` is a plain int, as in ``lit(...)``, which makes a literal; ``ge(e, k) lt(e, k) eq(e, f)
holds(e)`` ask the analyzer for a proof; other helpers are in ``HELPERS``.

Rules are tried in table order among those whose two topmost operand kinds fit; each knows its source line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any, Protocol

from ..ir.dtype import element_of
from . import build as B
from . import _ir as ir
from .effects import CallEffectKind, side_effect
from .scalable import contains_vscale
from .statistics import RewriteSimplifyStats

__all__ = ["Rule", "RuleTable"]


class Simplifier(Protocol):
    """Interface of the simplifier for its rules."""

    analyzer: Any
    stats: RewriteSimplifyStats


RuleFn = Callable[[Any, Simplifier], Any]

_BINOPS: dict[type, tuple[str, str]] = {
    ast.Add: ("Add", "add"),
    ast.Sub: ("Sub", "sub"),
    ast.Mult: ("Mul", "mul"),
    ast.FloorDiv: ("FloorDiv", "floordiv"),
    ast.Mod: ("FloorMod", "floormod"),
}
_CMPOPS: dict[type, tuple[str, str]] = {
    ast.Eq: ("EQ", "eq"),
    ast.NotEq: ("NE", "ne"),
    ast.Lt: ("LT", "lt"),
    ast.LtE: ("LE", "le"),
    ast.Gt: ("GT", "gt"),
    ast.GtE: ("GE", "ge"),
}
_CALLS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "truncdiv": ("Div", "truncdiv", ("a", "b")),
    "truncmod": ("Mod", "truncmod", ("a", "b")),
    "min": ("Min", "minimum", ("a", "b")),
    "max": ("Max", "maximum", ("a", "b")),
    "not_": ("Not", "not_", ("a",)),
    "select": ("Select", "select", ("condition", "true_value", "false_value")),
    "ramp": ("Ramp", "ramp", ("base", "stride", "lanes")),
    "broadcast": ("Broadcast", "broadcast", ("value", "lanes")),
}
_PROOFS = {"ge": "can_prove_greater_equal", "lt": "can_prove_less", "eq": "can_prove_equal", "holds": "can_prove"}


def _lanes_equal(a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
    first, second = B.as_int(a), B.as_int(b)
    if first is None and second is None:
        return B.deep_equal(a, b)
    return first == second


def is_const_power_of_two(value: int) -> bool:
    """Whether ``value`` is 1, 2, 4, ..."""
    return value > 0 and value & (value - 1) == 0


def is_droppable(expr: ir.PrimExpr) -> bool:
    """Whether leaving ``expr`` out changes nothing: it reads memory at most."""
    return side_effect(expr) <= CallEffectKind.ReadState


def _ends(s: Simplifier, base: ir.PrimExpr, step: int, lanes: ir.PrimExpr) -> tuple[int, int, int] | None:
    """Modulus of the base of a ramp, and the ramp's first and last value modulo that; None for scalable lanes."""
    count = B.as_int(lanes)
    if count is None:
        return None
    coeff, offset = s.analyzer.modular_set.entry(base)
    return coeff, offset, offset + (count - 1) * step


def _in_one_block(s: Simplifier, base: ir.PrimExpr, step: int, unit: int, lanes: ir.PrimExpr) -> bool:
    """Whether all lanes have one quotient by ``unit``, as far as the base's remainder tells."""
    ends = _ends(s, base, step, lanes)
    return ends is not None and ends[1] // unit == ends[2] // unit


def _in_gap(s: Simplifier, base: ir.PrimExpr, step: int, unit: int, lanes: ir.PrimExpr) -> bool:
    """Whether all lanes lie between two neighbouring multiples of the base's modulus, which divides ``unit``."""
    ends = _ends(s, base, step, lanes)
    return ends is not None and ends[0] != 0 and unit % ends[0] == 0 and 0 <= ends[2] < ends[0]


HELPERS: dict[str, Any] = {
    "droppable": is_droppable,
    "gcd": gcd,
    "tdiv": B.trunc_div,
    "tmod": lambda a, b: a - b * B.trunc_div(a, b),
    "abs": abs,
    "is_const_power_of_two": is_const_power_of_two,
    "fits": lambda e, value: B.wrap(e.dtype, value) == value,
    "scalable": contains_vscale,
    "base": lambda s, e: s.analyzer.modular_set.entry(e)[1],
    "aligned": lambda s, e, unit: s.analyzer.modular_set.entry(e)[0] % unit == 0,
    "one_block": _in_one_block,
    "in_gap": _in_gap,
}
# Helpers that ask the analyzer: the simplifier is their first argument.
_ANALYSES = frozenset(("base", "aligned", "one_block", "in_gap"))


@dataclass(slots=True)
class Rule:
    """One rewrite rule: its text, where it was written, what it fits, and the matcher once it is compiled."""

    text: str
    file: str
    line: int
    pattern: ast.expr
    kinds: tuple[str | None, ...]
    result: str
    condition: str | None
    recursive: bool
    fn: RuleFn | None = None

    def fits(self, names: tuple[str, ...]) -> bool:
        """Whether the topmost operands of an expression have the kinds that the rule asks for."""
        return all(kind is None or kind == name for kind, name in zip(self.kinds, names))


class _Compiler:
    """Turns one rule line into the source of a function ``f(n, s) -> expr or None``."""

    def __init__(self, bool_root: bool) -> None:
        self.lines: list[str] = []
        self.bound: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.counter = 0
        self.bool_root = bool_root

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def fail_if(self, cond: str) -> None:
        self.lines.append(f"    if {cond}: return None")

    def match(self, pat: ast.expr, place: str, checked: bool = False) -> None:
        """Emit checks that the expression at ``place`` fits ``pat``."""
        if isinstance(pat, ast.Name):
            self._match_name(pat.id, place)
            return
        value = _literal(pat)
        if value is not None:
            self.fail_if(f"type({place}) is not IntImm or {place}.value != {value}")
            return
        cls, _, fields, children = _shape(pat)
        if not checked:
            self.fail_if(f"type({place}) is not {cls}")
        pending = []
        for name, child in zip(fields, children):
            spot = self.fresh()
            self.lines.append(f"    {spot} = {place}.{name}")
            pending.append((child, spot, name))
        # Kind tests first: they are the cheapest way to fail.
        for child, spot, _name in pending:
            if not isinstance(child, ast.Name) and _literal(child) is None:
                self.fail_if(f"type({spot}) is not {_shape(child)[0]}")
        for child, spot, name in pending:
            if name == "lanes" and isinstance(child, ast.Name):
                if child.id in self.bound:
                    self.fail_if(f"not lanes_equal({self.bound[child.id]}, {spot})")
                else:
                    self.bound[child.id] = spot
                continue
            is_op = not isinstance(child, ast.Name) and _literal(child) is None
            self.match(child, spot, checked=is_op)

    def _match_name(self, name: str, place: str) -> None:
        if name[0] == "c" and name[1:].isdigit():
            self.fail_if(f"type({place}) is not IntImm")
        elif name[0] == "f" and name[1:].isdigit():
            self.fail_if(f"type({place}) is not FloatImm")
        if name in self.bound:
            self.fail_if(f"not deep_equal({self.bound[name]}, {place})")
        else:
            self.bound[name] = place

    def result(self, e: ast.expr, dtype: str) -> str:
        """Source that builds the expression ``e``."""
        match e:
            case ast.Name():
                return self.bound[e.id]
            case ast.Constant(value=bool() as known):
                return f"const(n.dtype, {int(known)})"
        value = _literal(e)
        if value is not None:
            return f"const({dtype}, {value})"
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "lit":
            return f"const({dtype}, {self.condition(e.args[0], dtype)})"
        kind, builder, _, children = _shape(e)
        if kind in ("Ramp", "Broadcast"):
            dtype = f"element_of({dtype})"  # what a vector is made of is scalar
        return f"{builder}({', '.join(self.result(c, dtype) for c in children)})"

    def condition(self, e: ast.expr, dtype: str) -> str:
        """Source of a rule condition: literals are ints, proofs go to the analyzer."""

        compiler = self

        class Rewriter(ast.NodeTransformer):
            def visit_Call(self, node: ast.Call) -> ast.AST:
                assert isinstance(node.func, ast.Name)
                name = node.func.id
                if name in _PROOFS:
                    args = [compiler.result(node.args[0], dtype)]
                    if name in ("ge", "lt"):
                        args.append(compiler.condition(node.args[1], dtype))
                    elif name == "eq":
                        args.append(compiler.result(node.args[1], dtype))
                    return ast.parse(f"s.analyzer.{_PROOFS[name]}({', '.join(args)})", mode="eval").body
                self.generic_visit(node)
                if name in _ANALYSES:
                    node.args.insert(0, ast.Name("s", ast.Load()))
                return node

            def visit_Name(self, node: ast.Name) -> ast.AST:
                spot = compiler.bound.get(node.id)
                if spot is None:
                    return node
                if node.id[0] in "cf" and node.id[1:].isdigit():
                    return ast.parse(f"{spot}.value", mode="eval").body
                return ast.Name(spot, ast.Load())

        return ast.unparse(Rewriter().visit(e))


def _literal(e: ast.expr) -> int | None:
    match e:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub()):
            inner = _literal(e.operand)
            return None if inner is None else -inner
    return None


def _shape(e: ast.expr) -> tuple[str, str, tuple[str, ...], list[ast.expr]]:
    """Class name, builder name, field names and children of an operator in a rule."""
    match e:
        case ast.BinOp():
            cls, builder = _BINOPS[type(e.op)]
            return cls, builder, ("a", "b"), [e.left, e.right]
        case ast.Compare():
            cls, builder = _CMPOPS[type(e.ops[0])]
            return cls, builder, ("a", "b"), [e.left, e.comparators[0]]
        case ast.BoolOp():
            is_and = isinstance(e.op, ast.And)
            left = e.values[0] if len(e.values) == 2 else ast.BoolOp(e.op, e.values[:-1])
            return (
                ("And", "and_", ("a", "b"), [left, e.values[-1]])
                if is_and
                else ("Or", "or_", ("a", "b"), [left, e.values[-1]])
            )
        case ast.UnaryOp(op=ast.Not()):
            return "Not", "not_", ("a",), [e.operand]
    assert isinstance(e, ast.Call) and isinstance(e.func, ast.Name), ast.dump(e)
    cls, builder, fields = _CALLS[e.func.id]
    return cls, builder, fields, list(e.args)


def _split_line(line: str) -> tuple[list[str], str, str | None, bool]:
    left, arrow, right = line.partition("=>")
    if not arrow:
        raise ValueError(f"rule without '=>': {line!r}")
    recursive = right.startswith(">")
    right = right.removeprefix(">")
    # Two blanks set a rule's condition off from a Python conditional inside its result.
    result, *cond = re.split(r"\s{2,}if ", right, maxsplit=1)
    return [p.strip() for p in left.split("||")], result.strip(), cond[0].strip() if cond else None, recursive


def _top_kinds(pattern: ast.expr) -> tuple[str | None, ...]:
    kinds: list[str | None] = []
    for child in _shape(pattern)[3][:2]:
        if isinstance(child, ast.Name):
            name = child.id
            numeric = name[1:].isdigit()
            kinds.append("IntImm" if name[0] == "c" and numeric else "FloatImm" if name[0] == "f" and numeric else None)
        elif _literal(child) is not None:
            kinds.append("IntImm")
        else:
            kinds.append(_shape(child)[0])
    return tuple(kinds)


@lru_cache(maxsize=1)
def _namespace() -> dict[str, Any]:
    """What compiled rules refer to by name."""
    scope: dict[str, Any] = dict(HELPERS)
    for name in ("const", "deep_equal", *(b for _, b in _BINOPS.values()), *(b for _, b in _CMPOPS.values())):
        scope[name] = getattr(B, name)
    for _, builder, _ in _CALLS.values():
        scope[builder] = getattr(B, builder)
    scope.update(and_=B.and_, or_=B.or_, lanes_equal=_lanes_equal, element_of=element_of)
    for cls in ir.rule_classes:
        scope[cls.__name__] = cls
    return scope


@dataclass(slots=True)
class RuleTable:
    """All rules of one root kind, each compiled on first use, and indexed by operand kinds.

    In a ``vector`` table literals have the type of one lane.
    """

    root: str
    vector: bool = False
    rules: list[Rule] = field(default_factory=list)
    _source: list[tuple[str, str, int]] = field(default_factory=list)
    _index: dict[Any, tuple[RuleFn, ...]] = field(default_factory=dict)

    def with_rules(self, text: str) -> RuleTable:
        """The table itself with the rules in a block of lines; see the module docstring for the notation."""
        frame = sys._getframe(1)
        for offset, line in enumerate(text.split("\n")):
            line = line.split("#")[0].strip()
            if line:
                self._source.append((line, frame.f_code.co_filename, frame.f_lineno + offset))
        return self

    def compile(self) -> None:
        """Compile every line of the table; idempotent."""
        self._read()
        for rule in self.rules:
            self._function(rule)

    def _read(self) -> None:
        source, self._source = self._source, []
        for text, file, line in source:
            patterns, result, cond, recursive = _split_line(text)
            for written in patterns:
                pattern = ast.parse(written, mode="eval").body
                self.rules.append(Rule(text, file, line, pattern, _top_kinds(pattern), result, cond, recursive))

    def _function(self, rule: Rule) -> RuleFn:
        """The compiled rule."""
        if rule.fn is None:
            rule.fn = self._compiled(rule)
        return rule.fn

    def _compiled(self, rule: Rule) -> RuleFn:
        compiler = _Compiler(self.root in ("And", "Or", "Not"))
        compiler.match(rule.pattern, "n", checked=True)
        if self.root in ("And", "Or", "Not"):
            # The operands are conditions: numbers have the type of a number the pattern holds.
            number = next((spot for name, spot in compiler.bound.items() if name[0] == "c"), None)
            dtype = "'int32'" if number is None else f"{number}.dtype"
        else:
            dtype = "n.dtype" if self.root == "Select" else "n.a.dtype"
        if self.vector:
            # Literals stand for the parts of ramps and broadcasts, which are scalars.
            dtype = f"element_of({dtype})"
        if rule.condition is not None:
            compiler.fail_if(f"not ({compiler.condition(ast.parse(rule.condition, mode='eval').body, dtype)})")
        made = compiler.result(ast.parse(rule.result, mode="eval").body, dtype)
        compiler.lines.append(f"    return {'s.again(' + made + ')' if rule.recursive else made}")
        source = "def rule(n, s):\n" + "\n".join(compiler.lines)
        code = compile(source, f"<rule {rule.file}:{rule.line}>", "exec")
        local: dict[str, Any] = {}
        exec(code, _namespace(), local)
        function: RuleFn = local["rule"]
        return function

    def candidates(self, node: Any) -> tuple[RuleFn, ...]:
        """The rules whose topmost operand kinds fit ``node``, in table order."""
        if self.root == "Not":
            kinds: tuple[type, ...] = (type(node.a),)
        elif self.root == "Select":
            kinds = (type(node.condition),)
        else:
            kinds = (type(node.a), type(node.b))
        found = self._index.get(kinds)
        return self._fitting(kinds) if found is None else found

    def _fitting(self, kinds: tuple[type, ...]) -> tuple[RuleFn, ...]:
        if self._source:
            self._read()
        names = tuple(kind.__name__ for kind in kinds)
        found = self._index[kinds] = tuple(self._function(rule) for rule in self.rules if rule.fits(names))
        return found

    def apply(self, node: ir.PrimExpr, simplifier: Simplifier) -> ir.PrimExpr | None:
        """The first rewrite that matches, or None."""
        attempted = 0
        for fn in self.candidates(node):
            attempted += 1
            result = fn(node, simplifier)
            if result is not None:
                simplifier.stats.rewrites_attempted += attempted
                simplifier.stats.rewrites_performed += 1
                return result
        simplifier.stats.rewrites_attempted += attempted
        return None

    def run(self, node: ir.PrimExpr, simplifier: Simplifier) -> ir.PrimExpr:
        """The first rewrite that matches, or ``node`` itself."""
        result = self.apply(node, simplifier)
        return node if result is None else result
