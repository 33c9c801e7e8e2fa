"""Damage to bytes, JSON and Python text: what the campaigns on hostile input have in common."""

from __future__ import annotations

import ast
import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Choose = Callable[[Sequence[Any]], Any]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value of a JSON document, the document's own first."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, item in items for place in places(item, (*path, key))]


def mutated_json(value: Any, choose: Choose, values: Callable[[], Any]) -> Any:
    """The document with one to three values replaced, dropped, doubled or moved; ``values`` draws new ones."""
    value = json.loads(json.dumps(value))
    for _ in range(choose((1, 2, 3))):
        targets = places(value)[1:]
        if not targets:
            return value
        *path, last = choose(targets)
        owner = value
        for step in path:
            owner = owner[step]
        action = choose(["replace", "replace", "drop", "double", "move"])
        if action == "drop":
            del owner[last]
        elif action == "double" and isinstance(owner, list):
            owner.insert(last, owner[last])
        elif action == "move":
            source = value
            for step in choose(targets):
                if not isinstance(source, (dict, list)) or (isinstance(source, list) and step >= len(source)):
                    break
                source = source[step] if isinstance(source, list) or step in source else None
            owner[last] = json.loads(json.dumps(source))
        else:
            owner[last] = copy.deepcopy(values())
    return value


_ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**9, 2**70, 1.5, -0.0, float("nan"), float("inf"), "", "x",
    "float32", "int64", "handle", "ir.IntImm", "tir.For", "relax.Function", "ir.Op", "=v1", "{", "None", "../x", "/etc/passwd",
    "\0", "\ud800", "a" * 5000, "__import__('os').mkdir('hacked')", [], [[]], [0], [-1, 2], [None] * 30, {}, {"n": -1},
    {"n": 10**9}, {"x": "target", "v": {"kind": 3}}, {"a": "AAAA", "t": "object", "s": [3]},
    {"a": "AAAA", "t": "float32", "s": [-1, 2**40]}, {"d": [[[1], 2]]}, {"f": "no"}, {"": {"": {"": []}}},
]  # fmt: skip


def odd_value(rng: random.Random) -> Any:
    """A JSON value of a kind that readers trip over."""
    return rng.randrange(-3, 40) if rng.random() < 0.3 else rng.choice(_ODD_VALUES)


def mutated_text(text: str, rng: random.Random) -> str:
    """The text cut, turned round, with characters exchanged, or with a piece repeated."""
    if not text:
        return rng.choice(["", "\0", "("])
    at, to = sorted((rng.randrange(len(text)), rng.randrange(len(text))))
    kind = rng.randrange(6)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x110000)])) + text[at + 1 :]
    if kind == 2:
        return text[at:] + text[:at]
    if kind == 3:
        return text[:at] + text[to:]
    if kind == 4:
        return text[:to] + text[at:to] * rng.choice([1, 2, 50]) + text[to:]
    return (
        text[:at] + rng.choice(["(", ")", "[", "{", "'", '"', "\\", "\n", ":", "#", "-" * 2000, "9" * 5000]) + text[at:]
    )


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with bits flipped, a piece cut out, zeroed, repeated or put elsewhere, or cut short. Always different."""
    while True:
        out = bytearray(data)
        at = rng.randrange(len(data)) if rng.random() < 0.6 else min(len(data) - 1, rng.randrange(200))
        size = rng.choice([1, 1, 4, 64, 4096])
        kind = rng.randrange(7)
        if kind <= 2:
            for _ in range(rng.choice([1, 1, 1, 4])):
                out[at] ^= 1 << rng.randrange(8)
                at = rng.randrange(len(data))
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            out[at : at + size] = bytes(len(out[at : at + size]))
        elif kind == 5:
            del out[at : at + size]
        else:
            out[at:at] = out[rng.randrange(len(data)) :][:size]
        if bytes(out) != data:
            return bytes(out)


# ---- text of programs

MARK = "open('hacked', 'w')"
IMPORT = "__import__('os').mkdir('hacked')"
_PAYLOADS = (
    MARK,
    IMPORT,
    "os.mkdir('hacked')",
    "exec(\"open('hacked','w')\")",
    "eval(\"__import__('os').mkdir('hacked')\")",
)
_ROOTS = ("T", "R", "I", "relaxish", "tvm", "A", "()", "''", "(1)", "[]", "T.prim_func", "T.Buffer", "R.Tensor", "T.serial",
          "relaxish.script", "T.int32", "f", "cls", "Module", "A.data", "R.const", "T.target('llvm')")  # fmt: skip
_LINKS = (
    "__class__", "__base__", "__mro__[1]", "__subclasses__()", "__init__", "__globals__", "__builtins__", "__dict__",
    "__getattribute__", "__import__('os')", "__loader__", "load_module('os')", "__code__", "__closure__", "__reduce__()",
    "__self__", "__func__", "__wrapped__", "__module__", "format", "sys", "os", "np", "inspect", "modules['os']", "mkdir",
    "gi_frame", "f_globals", "f_builtins", "func_globals", "system", "from_source", "__spec__.loader", "__name__", "mro()",
)  # fmt: skip


def hostile_expression(rng: random.Random) -> str:
    """An expression that, were it evaluated as Python, would make ``hacked`` or lead to what can."""
    while True:
        made = _hostile(rng)
        try:
            ast.parse(made, mode="eval")
        except SyntaxError:
            continue  # quotes in quotes
        return made


def _hostile(rng: random.Random) -> str:
    payload = rng.choice(_PAYLOADS)
    kind = rng.randrange(14)
    if kind <= 3:
        chain = rng.choice(_ROOTS) + "".join(f".{rng.choice(_LINKS)}" for _ in range(rng.randint(1, 5)))
        last = rng.choice(
            ["", "()", f"({payload})", "('os').mkdir('hacked')", "['__builtins__']['open']('hacked', 'w')"]
        )
        return chain + last
    forms = (
        payload, f"[{payload} for x in (1, 2)]", f"{{x: {payload} for x in (1,)}}", f"max({payload} for x in (1, 2))",
        f"(lambda: {payload})()", f"(lambda x={payload}: x)", f"f'{{{payload}}}'", f"f'{{T:{{{payload}}}}}'",
        f"'{{0.__class__}}'.format({payload})", f"(x := {payload})", f"(1 if {payload} else 2)", f"[*{payload}]",
        f"T.index_map(lambda i, j={payload}: i)", f"T.comm_reducer(lambda x, y: {payload}, [T.float32(0)])",
        f"{payload}[0]", f"A[{payload}]", f"-{payload}", f"{payload} and 1", f"1 < {payload} < 3", f"T.max(1, {payload})",
        f"getattr(T, {payload})", f"str({payload})", f"R.emit_te({payload}, A)", f"T.meta_var({payload})", f"{{**{payload}}}",
        f"T.Buffer(({payload},), 'float32')", f"R.Tensor(('n', {payload!r}), 'float32')", f"R.Prim(value={payload!r})",
        f"T.call_extern('int32', {payload})", f"metadata['ir.IntImm'][{payload}]", f"T.target({{'kind': {payload}}})",
        "2 ** 10 ** 10", "'x' * 10**12", "[0] * 10**12", "list(range(10**12))", "1 << 10**9", "T.grid(*range(10**12))",
    )  # fmt: skip
    return rng.choice(forms)


def mutated_program(text: str, rng: random.Random) -> str:
    """Script with expressions, statements, decorators, annotations and defaults exchanged, many for hostile ones."""
    tree = ast.parse(text)
    for _ in range(rng.randint(1, 3)):
        rng.choice(_EDITS)(tree, rng)
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    except (RecursionError, ValueError, AttributeError, TypeError):
        return text + hostile_expression(rng)


def _new_expression(tree: ast.AST, rng: random.Random) -> ast.expr:
    if rng.random() < 0.6:
        return ast.parse(hostile_expression(rng), mode="eval").body
    found = [
        n for n in ast.walk(tree) if isinstance(n, ast.expr) and not isinstance(getattr(n, "ctx", None), ast.Store)
    ]
    return copy.deepcopy(rng.choice(found))


def _edit_expression(tree: ast.AST, rng: random.Random) -> None:
    slots: list[tuple[ast.AST, str, int | None]] = []
    for node in ast.walk(tree):
        if isinstance(getattr(node, "ctx", None), ast.Store):
            continue
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and name not in ("target", "targets", "optional_vars"):
                slots.append((node, name, None))
            elif isinstance(value, list) and name not in ("targets", "decorator_list"):
                slots += [(node, name, k) for k, item in enumerate(value) if isinstance(item, ast.expr)]
    if not slots:
        return
    node, name, at = rng.choice(slots)
    if at is None:
        setattr(node, name, _new_expression(tree, rng))
    else:
        getattr(node, name)[at] = _new_expression(tree, rng)


def _edit_statement(tree: ast.AST, rng: random.Random) -> None:
    bodies = [n.body for n in ast.walk(tree) if isinstance(getattr(n, "body", None), list) and n.body]
    if not bodies:
        return
    body = rng.choice(bodies)
    at = rng.randrange(len(body))
    kind = rng.randrange(5)
    if kind == 0 and len(body) > 1:
        del body[at]
    elif kind == 1:
        body.insert(at, copy.deepcopy(rng.choice(rng.choice(bodies))))
    else:
        hostile = hostile_expression(rng)
        forms = (
            hostile, f"x = {hostile}", f"x: {hostile} = 1", f"x: T.int32 = {hostile}", f"with {hostile} as x:\n    pass",
            f"for x in {hostile}:\n    pass", f"while {hostile}:\n    pass", f"if {hostile}:\n    pass", f"return {hostile}",
            f"assert {hostile}, {hostile}", f"A[0] += {hostile}", "import os\nos.mkdir('hacked')", f"raise {hostile}",
            f"try:\n    {hostile}\nexcept {hostile}:\n    pass", f"global A\nA = {hostile}", "del A", f"yield {hostile}",
            f"def g(x={hostile}) -> {hostile}:\n    {hostile}\ng()", f"class B({hostile}):\n    x = {hostile}",
            f"@{hostile}\ndef g():\n    pass", f"T.evaluate({hostile})", "from os import mkdir\nmkdir('hacked')",
            f"async def g():\n    await {hostile}", f"match {hostile}:\n    case _:\n        pass", f"x, *y = {hostile}",
        )  # fmt: skip
        try:
            body[at:at] = ast.parse(rng.choice(forms)).body
        except SyntaxError:
            body[at:at] = ast.parse(hostile).body


def _edit_function(tree: ast.AST, rng: random.Random) -> None:
    made = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    if not made:
        return
    node = rng.choice(made)
    hostile = _new_expression(tree, rng)
    if isinstance(node, ast.ClassDef):
        rng.choice([node.bases, node.decorator_list]).append(hostile)
        return
    kind = rng.randrange(5)
    arguments = node.args.args
    if kind == 0:
        node.decorator_list.insert(rng.randrange(len(node.decorator_list) + 1), hostile)
    elif kind == 1:
        node.returns = hostile
    elif kind == 2 and arguments:
        rng.choice(arguments).annotation = hostile
    elif kind == 3 and len(node.args.defaults) < len(arguments):
        node.args.defaults.append(hostile)
    elif node.decorator_list:
        at = rng.randrange(len(node.decorator_list))
        call = ast.Call(node.decorator_list[at], [], [ast.keyword(rng.choice(["private", "pure", "x", None]), hostile)])
        node.decorator_list[at] = call


_EDITS = (_edit_expression, _edit_expression, _edit_expression, _edit_statement, _edit_statement, _edit_function)
