"""Errors of the parser itself."""

from __future__ import annotations

import ast

__all__ = ["ParserError"]


class ParserError(Exception):
    """A problem at a syntax node, before it is known to which source the node belongs."""

    def __init__(self, node: ast.AST, msg: str) -> None:
        super().__init__(msg)
        self.node = node
