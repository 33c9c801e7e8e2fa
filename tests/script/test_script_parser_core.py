"""The parser's parts that users' own dialects and tools build on: sources, syntax trees, evaluator, names, dispatch."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import IRModule
from relaxish.ir.diagnostics import override_renderer
from relaxish.script import from_source
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.script.ir_builder import tir as builder
from relaxish.script.parser import parse
from relaxish.script.parser._core import doc
from relaxish.script.parser.core import dispatch, doc_core
from relaxish.script.parser.core.diagnostics import Source
from relaxish.script.parser.core.evaluator import ExprEvaluator, eval_assign, eval_expr
from relaxish.script.parser.core.parser import Parser, VarTable
from relaxish.support.errors import DiagnosticError


def scale(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (8,))
    B = T.match_buffer(b, (8,))
    for i in T.serial(8):
        B[i] = A[i] * 2.0


def test_source_of_a_function() -> None:
    source = Source(scale)
    assert source.source_name == inspect.getsourcefile(scale)
    assert source.source == inspect.getsource(scale)
    assert source.full_source == inspect.getsource(inspect.getmodule(scale))  # type: ignore[arg-type]
    assert source.start_line == scale.__code__.co_firstlineno
    assert source.start_column == 0


def test_syntax_tree_of_a_function() -> None:
    tree = Source(scale).as_ast()
    assert isinstance(tree, doc.Module)
    (function,) = tree.body
    assert isinstance(function, doc_core.FunctionDef)
    assert [a.arg for a in function.args.args] == ["a", "b"]
    assert [type(s) for s in function.body] == [doc.Assign, doc.Assign, doc.For]


def test_nested_source_is_moved_left() -> None:
    @T.prim_func
    def inner(A: T.Buffer((4,), "int32")) -> None:
        # A comment may stand further left.
        A[0] = 1

    assert inner.body.value.value == 1


def test_tree_copies_and_visitors() -> None:
    tree = doc.parse("x = y + 1")
    copied = doc.from_doc(doc.to_doc(tree))
    copied.body[0].value.right.value = 2
    assert tree.body[0].value.right.value == 1
    seen: list[str] = []

    class Names(doc.NodeVisitor):
        def visit_Name(self, node: Any) -> None:
            seen.append(node.id)

    Names().visit(tree)
    assert seen == ["x", "y"]

    class Rename(doc.NodeTransformer):
        def visit_Name(self, node: Any) -> Any:
            return doc.Name("z", node.ctx)

    assert Rename().visit(tree).body[0].targets[0].id == "z"


def evaluate(text: str, names: dict[str, Any] | None = None) -> Any:
    """The value of one expression."""
    return ExprEvaluator.eval(None, names or {}, Source(text).as_ast().body[0].value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "1, 2.5, True, None, 's', b'b', ..., 1j", "(7 // 2, 7 / 2, 7 % 4, 2 ** 5, 1 << 3, 9 >> 1, 6 & 3, 6 | 1, 6 ^ 2)",
        "(~5, -5, +5, not 5)", "1 < 2 < 3, 1 < 3 < 2, 1 in (1, 2), 3 not in [3], None is None, None is not ...",
        "[i * j for i in (1, 2) for j in (3, 4) if i != j - 2]", "{i: -i for i in (1, 2)}", "{i % 2 for i in (1, 2, 3)}",
        "tuple(x for x in 'abc')", "[1, *(2, 3)], {'a': 1, **{'b': 2}}, {1, 2}", "'abcdef'[1:5:2], 'abc'[::-1], [1, 2][-1]",
        "(lambda x, /, y=2, *z, k=3, **w: (x, y, z, k, w))(1, 4, 5, k=6, v=7)", "f'{1 + 1}:{\"a\"!r:>5}'",
        "max([3, 1], key=lambda v: -v)", "'x' if [] else 'y'", "0 or 5 and 7", "(5, 6)[1]", "dict(a=1)['a']",
    ],
)  # fmt: skip
def test_evaluator_agrees_with_python(text: str) -> None:
    assert evaluate(text) == eval(text)


def test_evaluator_names_and_errors() -> None:
    assert evaluate("f(*xs, k=y.real)", {"f": lambda a, b, k: (a, b, k), "xs": (1, 2), "y": 3}) == (1, 2, 3)
    with pytest.raises(DiagnosticError, match="Undefined variable: nothing"):
        evaluate("nothing")
    assert eval_expr(None, doc.parse("x + 1", mode="eval"), {"x": 4}) == 5


def test_assignment_targets() -> None:
    parser = Parser(Source("pass"), {})
    target = doc.parse("a, (b, *c) = 0").body[0].targets[0]
    assert eval_assign(parser, target, (1, (2, 3, 4))) == {"a": 1, "b": 2, "c": [3, 4]}
    with pytest.raises(DiagnosticError, match="not enough values"):
        eval_assign(parser, target, (1,))


def test_names_shadow_and_return() -> None:
    table = VarTable()
    with table.with_frame():
        table.add("x", 1)
        with table.with_frame():
            table.add("x", 2)
            table.add("x", 2)
            assert table.get() == {"x": 2}
            with pytest.raises(ValueError, match="Variable x already defined in current scope"):
                table.add("x", 3)
            table.add("x", 3, allow_shadowing=True)
            assert table.get()["x"] == 3
        assert table.get() == {"x": 1}
    assert table.get() == {}


def test_names_know_objects_by_identity() -> None:
    table = VarTable()
    with table.with_frame():
        var = tir.Var("v", "int32")
        table.add("v", var)
        assert table.exist(var)
        assert not table.exist(tir.Var("v", "int32"))


def test_own_dialect() -> None:
    @dispatch.register(token="counting", type_name="FunctionDef")
    def _function(self: Parser, node: Any) -> None:
        builder.evaluate(self.eval_expr(node.body[0].value) + len(node.args.args))

    def counting(func: Any) -> Any:
        return func

    counting.dispatch_token = "counting"  # type: ignore[attr-defined]
    made = parse("@counting\ndef f(a, b):\n    40\n", {"counting": counting}, check_well_formed=False)
    assert made.value.value == 42
    assert dispatch.get("counting", "While") is None


def test_own_operator() -> None:
    class Path(str):
        pass

    @dispatch.register_op(Path, doc.Div, 0)
    def _join(a: str, b: str) -> str:
        return f"{a}/{b}"

    assert evaluate("p / 'q'", {"p": Path("p")}) == "p/q"


def test_renderer_sees_diagnostics() -> None:
    seen: list[Any] = []
    override_renderer(lambda context: seen.extend(context.diagnostics))
    try:
        with pytest.raises(DiagnosticError):
            from_source("@T.prim_func\ndef f(a: T.int32):\n    T.evaluate(b)\n")
    finally:
        override_renderer(None)
    assert seen[-1].message == "Undefined variable: b"
    assert (seen[-1].span.line, seen[-1].span.column) == (3, 16)


def test_results_carry_the_python_name() -> None:
    @T.prim_func
    def plain() -> None:
        T.evaluate(0)

    @I.ir_module
    class Holder:
        @T.prim_func
        def inner() -> None:
            T.evaluate(0)

    assert plain.__name__ == "plain"
    assert Holder.__name__ == "Holder"
    assert isinstance(Holder, IRModule)


class Loose:
    """A class that is no module: its functions are parsed one by one."""

    @T.prim_func
    def before(A: T.Buffer((4,), "int32")) -> None:  # type: ignore[misc]
        A[0] = 3


def test_functions_in_ordinary_classes() -> None:
    assert isinstance(Loose.before, tir.PrimFunc)
    assert Loose.before.attrs["global_symbol"] == "before"
