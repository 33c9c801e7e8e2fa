"""Syntax trees for the parser, and visitors over them.

The parser reads Python's own tree: all versions it runs on agree on constants and subscripts. :func:`to_doc` and
:func:`from_doc` therefore only copy, so that either side may be changed.
"""

from __future__ import annotations

import ast
import copy

from .doc_core import *  # noqa: F403
from .doc_core import __all__ as _classes

__all__ = [*_classes, "NodeTransformer", "NodeVisitor", "from_doc", "parse", "to_doc"]


def to_doc(node: ast.Module) -> ast.Module:
    """A tree for the parser from one of Python's."""
    return copy.deepcopy(node)


def from_doc(node: ast.Module) -> ast.Module:
    """One of Python's trees from the parser's."""
    return copy.deepcopy(node)


def parse(source: str, filename: str = "<unknown>", mode: str = "exec") -> ast.AST:
    """Parse text.

    >>> parse("x = 1").body[0].targets[0].id
    'x'
    """
    return ast.parse(source, filename=filename, mode=mode)


def _children(value: object) -> bool:
    return isinstance(value, (ast.AST, list, tuple))


class NodeVisitor:
    """Calls ``visit_<Class>`` for each node; nodes without one are descended into."""

    def visit(self, node: object) -> None:
        """Visit a node, or each of several."""
        match node:
            case list() | tuple():
                for item in node:
                    self.visit(item)
            case ast.AST():
                getattr(self, f"visit_{type(node).__name__}", self.generic_visit)(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is below a node."""
        for name in node._fields:
            value = getattr(node, name, None)
            if _children(value):
                self.visit(value)


class NodeTransformer:
    """Rebuilds trees; ``visit_<Class>`` returns the replacement."""

    def visit(self, node: object) -> object:
        """The replacement of a node, or of each of several."""
        if isinstance(node, (list, tuple)):
            return type(node)(self.visit(item) for item in node)
        if not isinstance(node, ast.AST):
            return node
        return getattr(self, f"visit_{type(node).__name__}", self.generic_visit)(node)

    def generic_visit(self, node: ast.AST) -> object:
        """The node with what is below it replaced."""
        fields = {name: getattr(node, name, None) for name in node._fields}
        made = type(node)(**{k: self.visit(v) if _children(v) else v for k, v in fields.items()})
        return ast.copy_location(made, node)
