"""Annotations and underlines in printed programs, by object and by path."""

from __future__ import annotations

import logging

import pytest

from relaxish import ir, tir
from relaxish.runtime import ObjectPath
from relaxish.script import tir as T

ROOT = ObjectPath.root()


@T.prim_func
def steps(A: T.Buffer((8,), "float32")):
    for i in range(8):
        x = A[i] + T.float32(1)
        y = x * x
        A[i] = y
    T.evaluate(7)


LOOP = steps.body.seq[0]
HEAD = '# from relaxish.script import tir as T\n\n@T.prim_func\ndef steps(A: T.Buffer((8,), "float32")):\n'


def test_annotated_scopes_are_written_as_scopes() -> None:
    notes = {LOOP: "the loop", LOOP.body: "first", LOOP.body.body: "second\nline", LOOP.body.body.body: "store"}
    assert (
        steps.script(obj_to_annotate=notes)
        == HEAD
        + """\
    # the loop
    for i in range(8):
        # first
        with T.LetStmt(A[i] + T.float32(1.0)) as x:
            # second
            # line
            with T.LetStmt(x * x) as y:
                A[i] = y  # store
    T.evaluate(7)"""
    )


def test_annotations_by_path() -> None:
    seq = ROOT.attr("body").attr("seq")
    text = steps.script(path_to_annotate={seq.array_index(1): "by path", seq.array_index(0): "loop"})
    assert "    # loop\n    for i" in text and text.endswith("T.evaluate(7)  # by path")


def test_notes_of_one_statement_add_up() -> None:
    path = ROOT.attr("body").attr("seq").array_index(0)
    text = steps.script(obj_to_annotate={LOOP: "object"}, path_to_annotate={path: "path"})
    assert "    # object\n    # path\n    for i in range(8):" in text
    both = {
        "obj_to_annotate": {steps.body.seq[1]: "a"},
        "path_to_annotate": {ROOT.attr("body").attr("seq").array_index(1): "b"},
    }
    with pytest.raises(ValueError, match="cannot have newline"):
        steps.script(**both)


def test_only_statements_can_be_annotated(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert steps.script(obj_to_annotate={steps.body.seq[1].value: "no"}) == steps.script()
    assert "only statements can be annotated" in caplog.text


def test_underlined_objects() -> None:
    product = LOOP.body.body.value
    assert (
        steps.script(obj_to_underline=[product, steps.body.seq[1]])
        == HEAD
        + """\
    for i in range(8):
        x: T.float32 = A[i] + T.float32(1.0)
        y: T.float32 = x * x
                       ^^^^^
        A[i] = y
    T.evaluate(7)
    ^^^^^^^^^^^^^"""
    )


def test_underlines_leave_indentation_and_comments_alone() -> None:
    text = steps.script(
        obj_to_underline=[LOOP], obj_to_annotate={LOOP: "note"}, num_context_lines=0, print_line_numbers=True
    )
    assert text == "\n".join([
        "(... 5 lines skipped ...)",
        " 6     for i in range(8):",
        "       ^^^^^^^^^^^^^^^^^^",
        " 7         x: T.float32 = A[i] + T.float32(1.0)",
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        " 8         y: T.float32 = x * x",
        "           ^^^^^^^^^^^^^^^^^^^^",
        " 9         A[i] = y",
        "           ^^^^^^^^",
        "10     T.evaluate(7)",
    ])  # fmt: skip


def test_a_function_of_a_module_by_path() -> None:
    mod = ir.IRModule({"f": tir.PrimFunc([], tir.Evaluate(1)), "g": tir.PrimFunc([], tir.Evaluate(2))})
    value = ROOT.attr("functions").map_value(mod.get_global_var("g")).attr("body").attr("value").attr("value")
    lines = mod.script(path_to_underline=[value]).splitlines()
    assert lines[-2:] == ["        T.evaluate(2)", "                   ^"] and sum("^" in line for line in lines) == 1
