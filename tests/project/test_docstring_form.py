"""Docstrings of public things begin with a noun or a verb: "Number of lanes", "Split a loop".

A relative clause in its place ("What a reader is given where ...") hides the subject.
"""

from __future__ import annotations

import ast
import re

import pytest
from project.sources import docstrings, package

LIMIT = 10
"""Of more than ten thousand."""
_CLAUSE = re.compile(r"(Whether )?(What|Which|How|Where|Who|Whose|Whoever|Whatever)\b", re.IGNORECASE)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = [
        f"{module}:{line}: {name}: {text.splitlines()[0]}"
        for module, documented in package().docstrings.items()
        for name, line, text in documented
        if _CLAUSE.match(text)
    ]
    assert len(found) <= LIMIT, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_clause"),
    [
        ("What is known of a tensor.", True),
        ("Whether what it reads is written.", True),
        ("Number of lanes.", False),
        ("Whether a node is a tensor.", False),
        ("Wherever it stands.", False),
    ],
)
def test_clauses_are_recognised(text: str, is_clause: bool) -> None:
    ((name, line, found),) = docstrings(ast.walk(ast.parse(f'def f():\n    """{text}"""')))
    assert (name, line, bool(_CLAUSE.match(found))) == ("f", 1, is_clause)


def test_private_things_may_say_it_as_they_like() -> None:
    assert not list(docstrings(ast.walk(ast.parse('def _f():\n    """What a helper does."""'))))
