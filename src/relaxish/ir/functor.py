"""Walking and rebuilding IR: one visitor and one mutator for every node of every level.

Subclass and define ``visit_<ClassName>``; the nearest class along the node's MRO wins, so ``visit_PrimExpr``
catches every scalar expression.  What has no handler goes to ``default_visit``, driven by field roles.

A visitor is generic in what its handlers return (``Visitor[int]``; nothing unless said), and a mutator knows what a
rewritten node is: an expression for an expression, a statement for a statement, a tuple for a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, overload

from typing_extensions import TypeVar

from .node import Node

__all__ = [
    "Mutator", "Rewritable", "Visitor", "all_nodes", "mentions", "post_order_visit", "pre_order_visit",
]  # fmt: skip

R = TypeVar("R", default=None)
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_K = TypeVar("_K")
_N = TypeVar("_N", bound=Node)
_NOTHING: dict[type, Callable[[Any, Any], Any]] = {}


class Rewritable(Protocol[_R_co]):
    """A node whose rewrite is an ``_R_co``."""

    def _rewritten(self) -> _R_co: ...


class _Dispatch:
    """Per-class table from node type to handler, filled on first use."""

    _table: ClassVar[dict[type, Callable[[Any, Any], Any]]]
    # Whether ``visit`` only dispatches, so that whoever has the table may do so by itself.
    _dispatches: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._table = {}
        cls._dispatches = cls.visit is _Dispatch.visit

    @classmethod
    def _resolve(cls, kind: type) -> Callable[[Any, Any], Any]:
        handler: Callable[[Any, Any], Any] | None = None
        for base in kind.__mro__:
            if base is Node:
                break
            handler = getattr(cls, f"visit_{base.__name__}", None)
            if handler is not None and base is not object:
                break
        if handler is None:
            handler = cls._fallback(kind)
        cls._table[kind] = handler
        return handler

    @classmethod
    def _fallback(cls, kind: type) -> Callable[[Any, Any], Any]:
        if issubclass(kind, Node):
            return cls.default_visit
        if issubclass(kind, (tuple, list)):
            return cls.visit_sequence
        if issubclass(kind, dict):
            return cls.visit_mapping
        return cls.visit_leaf

    def visit(self, x: Any, /) -> Any:
        """Dispatch on the type of ``x``: a node, a sequence, a mapping or a plain value."""
        handler = self._table.get(type(x))
        if handler is None:
            handler = self._resolve(type(x))
        return handler(self, x)

    def default_visit(self, node: Any) -> Any:
        raise NotImplementedError

    def visit_sequence(self, items: Any) -> Any:
        raise NotImplementedError

    def visit_mapping(self, items: Any) -> Any:
        raise NotImplementedError

    def visit_leaf(self, value: object) -> object:
        """Plain Python values stand for themselves."""
        return value


class Visitor(_Dispatch, Generic[R]):
    """Walks children in field order; handlers call ``default_visit`` to go on below."""

    _table = {}

    if TYPE_CHECKING:

        def visit(self, x: object, /) -> R: ...

    def default_visit(self, node: Node) -> R:  # type: ignore[return]  # visitors with results override it
        known = self._table if self._dispatches else _NOTHING
        for name in node._child_fields:
            child = getattr(node, name)
            if child is not None:
                handler = known.get(type(child))
                if handler is not None:
                    handler(self, child)
                else:
                    self.visit(child)

    def visit_sequence(self, items: Sequence[object]) -> None:
        for item in items:
            self.visit(item)

    def visit_mapping(self, items: Mapping[object, object]) -> None:
        for key, value in items.items():
            if isinstance(key, Node):
                self.visit(key)
            self.visit(value)


class Mutator(_Dispatch):
    """Rebuilds bottom-up; returns the very same object wherever nothing below changed."""

    _table = {}

    if TYPE_CHECKING:

        @overload
        def visit(self, x: Rewritable[_R], /) -> _R: ...
        @overload
        def visit(self, x: None, /) -> None: ...
        @overload
        def visit(self, x: Sequence[Rewritable[_R]], /) -> tuple[_R, ...]: ...
        @overload
        def visit(self, x: Mapping[_K, Rewritable[_R]], /) -> dict[_K, _R]: ...
        def visit(self, x: Any, /) -> Any: ...

    def default_visit(self, node: _N) -> _N:
        changes: dict[str, Any] | None = None
        known = self._table if self._dispatches else _NOTHING
        for name in node._child_fields:
            old = getattr(node, name)
            if old is None:
                continue
            handler = known.get(type(old))
            new = self.visit(old) if handler is None else handler(self, old)
            if new is not old:
                if changes is None:
                    changes = {}
                changes[name] = new
        return node if changes is None else node.with_fields(**changes)

    def visit_sequence(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        out: list[Any] | None = None
        for index, item in enumerate(items):
            new = self.visit(item)
            if out is not None:
                out.append(new)
            elif new is not item:
                out = list(items[:index])
                out.append(new)
        return items if out is None else tuple(out)

    def visit_mapping(self, items: Mapping[Any, Any]) -> Mapping[Any, Any]:
        out: dict[Any, Any] = {}
        changed = False
        for key, value in items.items():
            new_key = self.visit(key) if isinstance(key, Node) else key
            new_value = self.visit(value)
            changed = changed or new_key is not key or new_value is not value
            out[new_key] = new_value
        return out if changed else items


class _PostOrder(Visitor):
    def __init__(self, callback: Callable[[Any], Any]) -> None:
        self.callback = callback
        self.seen: set[int] = set()
        self.keep: list[Node] = []

    def default_visit(self, node: Node) -> None:
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        self.keep.append(node)
        super().default_visit(node)
        self.callback(node)


def all_nodes(root: object) -> Iterator[Any]:
    """Every distinct node below and including ``root``, parents first.

    >>> from relaxish import tir
    >>> x = tir.Var("x", "int32")
    >>> [type(node).__name__ for node in all_nodes(x * 2 + x)]
    ['Add', 'Mul', 'Var', 'IntImm']
    """
    seen: set[int] = set()
    stack = [root]
    while stack:
        x = stack.pop()
        if isinstance(x, Node):
            if id(x) not in seen:
                seen.add(id(x))
                yield x
                stack += [getattr(x, name) for name in reversed(x._child_fields)]
        elif isinstance(x, dict):
            stack += [item for pair in reversed(x.items()) for item in reversed(pair)]
        elif isinstance(x, (tuple, list)):
            stack += reversed(x)


def mentions(root: object, node: Node) -> bool:
    """Whether ``node`` itself (a variable, a buffer) is somewhere below ``root``."""
    return any(found is node for found in all_nodes(root))


def post_order_visit(node: object, callback: Callable[[Any], Any]) -> None:
    """Call ``callback`` on every distinct node below and including ``node``, children first."""
    _PostOrder(callback).visit(node)


class _PreOrder(Visitor):
    def __init__(self, callback: Callable[[Any], bool]) -> None:
        self.callback = callback

    def default_visit(self, node: Node) -> None:
        if self.callback(node):
            super().default_visit(node)


def pre_order_visit(node: object, callback: Callable[[Any], bool]) -> None:
    """Call ``callback`` parents first; a false answer keeps the walk from going below that node."""
    _PreOrder(callback).visit(node)
