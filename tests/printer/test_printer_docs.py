"""The doc tree as Python text: every doc class, precedence, comments, line numbers and underlines."""

from __future__ import annotations

import pytest

from relaxish.runtime import ObjectPath
from relaxish.script.printer.doc import (
    AssertDoc, AssignDoc, AttrAccessDoc, CallDoc, ClassDoc, CommentDoc, DictDoc, Doc, DocStringDoc, ExprStmtDoc, ForDoc,
    FunctionDoc, IdDoc, IfDoc, IndexDoc, LambdaDoc, ListDoc, LiteralDoc, OperationDoc, OperationKind, ReturnDoc,
    ScopeDoc, SliceDoc, StmtBlockDoc, TupleDoc, WhileDoc,
)  # fmt: skip
from relaxish.script.printer.doc_printer import to_python_script

a, b, c = IdDoc("a"), IdDoc("b"), IdDoc("c")
Op = OperationKind


def op(kind: OperationKind, *operands: object) -> OperationDoc:
    return OperationDoc(kind, operands)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"), (True, "True"), (0, "0"), (-7, "-7"), ("", '""'), ('say "hi"\\\n\t', '"say \\"hi\\"\\\\\\n\\t"'),
        ("\x01", '"\\001"'), (2.0, "2.0"), (-0.25, "-0.25"), (0.1, "0.10000000000000001"), (1e-7, "9.9999999999999995e-08"),
        (1e22, "10000000000000000000000.0"), (float("inf"), '"inf"'), (float("-inf"), '"-inf"'), (float("nan"), '"nan"'),
    ],
)  # fmt: skip
def test_literals(value: object, text: str) -> None:
    assert to_python_script(LiteralDoc(value)) == text


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        (AttrAccessDoc(op(Op.Add, a, b), "dtype"), "(a + b).dtype"),
        (IndexDoc(a, []), "a[()]"),
        (IndexDoc(a, [SliceDoc(b, None, None), SliceDoc(None, b, c), SliceDoc()]), "a[b:, :b:c, :]"),
        (CallDoc(a, b, key=c), "a(b, key=c)"),
        (a.attr("f").call(b, c, axis=LiteralDoc(1))[b], "a.f(b, c, axis=1)[b]"),
        (LambdaDoc([], a), "lambda : a"),
        (LambdaDoc([a, b], TupleDoc([b, a])), "lambda a, b: (b, a)"),
        (TupleDoc([]), "()"), (TupleDoc([a]), "(a,)"), (ListDoc([a, b]), "[a, b]"),
        (DictDoc({LiteralDoc("k"): a, b: c}), '{"k": a, b: c}'),
    ],
)  # fmt: skip
def test_expressions(doc: Doc, text: str) -> None:
    assert to_python_script(doc) == text


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        (op(Op.Sub, a, op(Op.Sub, b, c)), "a - (b - c)"),
        (op(Op.Sub, op(Op.Sub, a, b), c), "a - b - c"),
        (op(Op.Mult, op(Op.Add, a, b), op(Op.USub, c)), "(a + b) * -c"),
        (op(Op.Pow, a, op(Op.Pow, b, c)), "a ** b ** c"),
        (op(Op.Pow, op(Op.Pow, a, b), c), "(a ** b) ** c"),
        (op(Op.Pow, a, op(Op.USub, b)), "a ** -b"),
        (op(Op.Not, op(Op.Lt, a, b)), "not a < b"),
        (op(Op.Invert, op(Op.Or, a, b)), "~(a or b)"),
        (op(Op.And, op(Op.Or, a, b), op(Op.And, b, c)), "(a or b) and (b and c)"),
        (op(Op.BitOr, op(Op.BitXor, a, b), op(Op.LShift, b, c)), "a ^ b | b << c"),
        (op(Op.IfThenElse, a, b, c), "b if a else c"),
        (op(Op.IfThenElse, op(Op.IfThenElse, a, b, c), b, op(Op.IfThenElse, a, b, c)),
         "b if (b if a else c) else (b if a else c)"),
        (op(Op.Add, LambdaDoc([a], b), c), "(lambda a: b) + c"),
        (op(Op.Eq, op(Op.NotEq, a, b), op(Op.GtE, b, c)), "a != b == (b >= c)"),
    ],
)  # fmt: skip
def test_parentheses_stand_where_the_tree_needs_them(doc: Doc, text: str) -> None:
    assert to_python_script(doc) == text


def _with_comment(doc: Doc, comment: str) -> Doc:
    doc.comment = comment  # type: ignore[attr-defined]
    return doc


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        (AssignDoc(a, b, c), "a: c = b"), (AssignDoc(a, None, c), "a: c"),
        (AssignDoc(TupleDoc([a, b]), TupleDoc([b, a])), "a, b = b, a"),
        (AssignDoc(TupleDoc([a]), TupleDoc([b])), "a = (b,)"),
        (AssignDoc(a, LambdaDoc([b], b)), "a = lambda b: b"),
        (IfDoc(a, [ExprStmtDoc(b)], [ExprStmtDoc(c)]), "if a:\n    b\nelse:\n    c"),
        (IfDoc(a, [], [ExprStmtDoc(c)]), "if a:\n    pass\nelse:\n    c"),
        (WhileDoc(a, []), "while a:\n    pass"),
        (ForDoc(TupleDoc([a, b]), c, [ExprStmtDoc(b)]), "for a, b in c:\n    b"),
        (ForDoc(TupleDoc([a]), c, []), "for a, in c:\n    pass"),
        (ScopeDoc(a, b, [ExprStmtDoc(c)]), "with b as a:\n    c"),
        (ScopeDoc(None, b, []), "with b:\n    pass"), (ScopeDoc(b, [ReturnDoc(c)]), "with b:\n    return c"),
        (AssertDoc(a), "assert a"), (AssertDoc(a, LiteralDoc("no")), 'assert a, "no"'), (ReturnDoc(a), "return a"),
        (StmtBlockDoc([]), ""), (StmtBlockDoc([ExprStmtDoc(a), ExprStmtDoc(b)]), "a\nb"),
        (CommentDoc("one\ntwo"), "# one\n# two"), (CommentDoc(""), ""),
        (DocStringDoc("one\n\ntwo"), '"""\none\n\ntwo\n"""'), (DocStringDoc(""), ""),
        (FunctionDoc(a, [AssignDoc(b, c, c)], [c], b, []), "@c\ndef a(b: c = c) -> b:\n    pass"),
        (ClassDoc(a, [], [ExprStmtDoc(b)]), "class a:\n    b"),
        (_with_comment(ExprStmtDoc(a), "why"), "a  # why"),
        (_with_comment(AssignDoc(a, LambdaDoc([b], b)), "why"), "a = lambda b: b  # why"),
        (_with_comment(ForDoc(a, b, []), "one\ntwo"), "# one\n# two\nfor a in b:\n    pass"),
        (_with_comment(FunctionDoc(a, [], [], None, [ReturnDoc(b)]), "one\n\ntwo"),
         'def a():\n    """\n    one\n\n    two\n    """\n    return b'),
        (_with_comment(ClassDoc(a, [], []), "text"), 'class a:\n    """\n    text\n    """\n    pass'),
    ],
)  # fmt: skip
def test_statements(doc: Doc, text: str) -> None:
    assert to_python_script(doc) == text


def test_functions_of_a_class_are_set_apart() -> None:
    inner = [FunctionDoc(IdDoc(n), [], [], None, [ReturnDoc(a)]) for n in ("f", "g")]
    assert to_python_script(ClassDoc(c, [], inner), indent_spaces=2) == (
        "class c:\n  def f():\n    return a\n\n  def g():\n    return a"
    )


@pytest.mark.parametrize("doc", [ExprStmtDoc(a), AssignDoc(a, b), AssertDoc(a), ReturnDoc(a)])
def test_a_one_line_statement_takes_one_line_of_comment(doc: Doc) -> None:
    with pytest.raises(ValueError, match="cannot have newline"):
        to_python_script(_with_comment(doc, "one\ntwo"))


def test_parameters_take_no_comment() -> None:
    with pytest.raises(ValueError, match="comment"):
        to_python_script(FunctionDoc(a, [_with_comment(AssignDoc(b, c), "no")], [], None, []))  # type: ignore[list-item]


def test_docs_refuse_what_python_cannot_say() -> None:
    with pytest.raises(
        ValueError, match="At least one of the then branch or else branch needs to be non-empty for IfDoc"
    ):
        IfDoc(a, [], [])
    with pytest.raises(ValueError, match="At least one of rhs and annotation needs to be non-null"):
        AssignDoc(a)
    with pytest.raises(ValueError, match="annotation can only be nonnull if lhs is an identifier for AssignDoc"):
        AssignDoc(a[b], c, c)
    with pytest.raises(TypeError, match="Unsupported type"):
        LiteralDoc([])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="iterable"):
        list(a)


def test_docs_hold_their_parts() -> None:
    call = CallDoc(a, b, c, callee=b)
    assert (call.callee, call.args, call.kwargs_keys, call.kwargs_values) == (a, [b, c], ["callee"], [b])
    scope = ScopeDoc(rhs=b, lhs=a, body=[])
    assert (scope.lhs, scope.rhs, scope.body) == (a, b, [])
    doc = IdDoc("n")
    doc.source_paths = [ObjectPath.root()]
    assert doc.source_paths == (ObjectPath.root(),) and ExprStmtDoc(a).comment is None


def _lines(count: int, marked: dict[int, ObjectPath]) -> StmtBlockDoc:
    stmts = []
    for i in range(count):
        stmt = ExprStmtDoc(IdDoc(f"line{i}"))
        if i in marked:
            stmt.paths.append(marked[i])
        stmts.append(stmt)
    return StmtBlockDoc(stmts)


P = [ObjectPath.root().attr(name) for name in "xyz"]


def test_line_numbers() -> None:
    text = to_python_script(_lines(10, {}), print_line_numbers=True)
    assert text.splitlines()[:2] == [" 1 line0", " 2 line1"] and text.splitlines()[9] == "10 line9"


def test_underlines_and_the_lines_around_them() -> None:
    doc = _lines(12, {4: P[0], 8: P[1]})
    assert to_python_script(doc, path_to_underline=[P[0]], num_context_lines=1) == (
        "(... 3 lines skipped ...)\nline3\nline4\n^^^^^\nline5\n(... 6 lines skipped ...)"
    )
    both = to_python_script(doc, path_to_underline=[P[0], P[1]], num_context_lines=0, print_line_numbers=True)
    assert both == (
        "(... 4 lines skipped ...)\n 5 line4\n   ^^^^^\n(... 3 lines skipped ...)\n 9 line8\n   ^^^^^\n"
        "(... 3 lines skipped ...)"
    )


def test_a_single_line_is_never_skipped() -> None:
    doc = _lines(6, {1: P[0], 3: P[1]})
    text = to_python_script(doc, path_to_underline=P[:2], num_context_lines=0)
    assert text == "line0\nline1\n^^^^^\nline2\nline3\n^^^^^\n(... 2 lines skipped ...)"


def test_the_deepest_doc_of_a_path_is_underlined() -> None:
    left, right = IdDoc("left"), IdDoc("right")
    whole = op(Op.Add, left, right)
    whole.paths.append(P[0])
    left.paths.append(P[0].attr("a"))
    assert to_python_script(whole, path_to_underline=[P[0].attr("a").attr("dtype")]) == "left + right\n^^^^"
    assert to_python_script(whole, path_to_underline=[P[0].attr("b")]) == "left + right\n^^^^^^^^^^^^"


def test_indentation_comments_and_docstrings_stay_free_of_underlines() -> None:
    func = FunctionDoc(IdDoc("f"), [], [], None, [ForDoc(a, b, [_with_comment(ExprStmtDoc(c), "note")])])  # type: ignore[list-item]
    func.comment = "text"
    func.paths.append(P[0])
    assert to_python_script(func, path_to_underline=[P[0]]) == "\n".join([
        "def f():", "^^^^^^^^", '    """', "    text", '    """', "    for a in b:", "    ^^^^^^^^^^^",
        "        c  # note", "        ^",
    ])  # fmt: skip
