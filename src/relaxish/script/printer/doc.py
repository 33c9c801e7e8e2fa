"""The doc tree: Python syntax as data, between the IR and its text.

The printer first turns IR nodes into docs, which know the object paths they stand for, and ``doc_printer`` then
lays the docs out as text and underlines what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NoReturn, overload

from ...support.object_path import ObjectPath

__all__ = [
    "AssertDoc", "AssignDoc", "AttrAccessDoc", "CallDoc", "ClassDoc", "CommentDoc", "DictDoc", "Doc", "DocStringDoc",
    "ExprDoc", "ExprStmtDoc", "ForDoc", "FunctionDoc", "IdDoc", "IfDoc", "IndexDoc", "LambdaDoc", "ListDoc",
    "LiteralDoc", "OperationDoc", "OperationKind", "ReturnDoc", "ScopeDoc", "SliceDoc", "StmtBlockDoc", "StmtDoc",
    "TupleDoc", "WhileDoc",
]  # fmt: skip


class Doc:
    """Base of all docs."""

    __slots__ = ("__dict__", "paths")

    def __init__(self) -> None:
        self.paths: list[ObjectPath] = []

    @property
    def source_paths(self) -> tuple[ObjectPath, ...]:
        """The places of the IR that the doc shows; printers add to ``paths``."""
        return tuple(self.paths)

    @source_paths.setter
    def source_paths(self, paths: Sequence[ObjectPath]) -> None:
        self.paths = list(paths)


class ExprDoc(Doc):
    """Base of expression docs, with builders for what follows an expression."""

    __slots__ = ()

    def attr(self, name: str) -> AttrAccessDoc:
        """``self.name``"""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """``self(args, key=value)``"""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: Doc | Sequence[Doc]) -> IndexDoc:
        return IndexDoc(self, [indices] if isinstance(indices, Doc) else list(indices))

    def __iter__(self) -> NoReturn:
        raise RuntimeError(f"{type(self)} cannot be used as iterable.")


class StmtDoc(Doc):
    """Base of statement docs; ``comment`` is printed beside or above."""

    __slots__ = ("comment",)

    def __init__(self, comment: str | None = None) -> None:
        super().__init__()
        self.comment = comment


class StmtBlockDoc(Doc):
    """A run of statements."""

    __slots__ = ("stmts",)

    def __init__(self, stmts: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.stmts = list(stmts)


class LiteralDoc(ExprDoc):
    """A Python constant: None, bool, int, float or str."""

    __slots__ = ("value",)

    def __init__(self, value: str | float | bool | int | None, path: ObjectPath | None = None) -> None:
        super().__init__()
        if value is not None and not isinstance(value, str | float | int):
            raise TypeError(f"Unsupported type {type(value)} for LiteralDoc")
        self.value = value
        if path is not None:
            self.paths.append(path)


class IdDoc(ExprDoc):
    """A name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class AttrAccessDoc(ExprDoc):
    """``value.name``"""

    __slots__ = ("name", "value")

    def __init__(self, value: ExprDoc, name: str) -> None:
        super().__init__()
        self.value = value
        self.name = name


class IndexDoc(ExprDoc):
    """``value[indices]``"""

    __slots__ = ("indices", "value")

    def __init__(self, value: ExprDoc, indices: Sequence[Doc]) -> None:
        super().__init__()
        self.value = value
        self.indices = list(indices)


class CallDoc(ExprDoc):
    """``callee(args, key=value)``"""

    __slots__ = ("args", "callee", "kwargs_keys", "kwargs_values")

    def __init__(self, callee: ExprDoc, /, *args: ExprDoc, **kwargs: ExprDoc) -> None:
        super().__init__()
        self.callee = callee
        self.args = list(args)
        self.kwargs_keys = list(kwargs)
        self.kwargs_values = list(kwargs.values())


class OperationKind(IntEnum):
    """Python's operators; the gaps separate unary, binary and special ones."""

    _UnaryStart = 0
    USub = 1
    Invert = 2
    Not = 3
    _UnaryEnd = 4
    _BinaryStart = 5
    Add = 6
    Sub = 7
    Mult = 8
    Div = 9
    FloorDiv = 10
    Mod = 11
    Pow = 12
    LShift = 13
    RShift = 14
    BitAnd = 15
    BitOr = 16
    BitXor = 17
    Lt = 18
    LtE = 19
    Eq = 20
    NotEq = 21
    Gt = 22
    GtE = 23
    And = 24
    Or = 25
    _BinaryEnd = 26
    _SpecialStart = 27
    IfThenElse = 28
    _SpecialEnd = 29


class OperationDoc(ExprDoc):
    """An operator applied to operands; ``IfThenElse`` takes condition, then, else."""

    __slots__ = ("kind", "operands")

    def __init__(self, kind: OperationKind, operands: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.kind = OperationKind(kind)
        self.operands = list(operands)


class LambdaDoc(ExprDoc):
    """``lambda args: body``"""

    __slots__ = ("args", "body")

    def __init__(self, args: Sequence[IdDoc], body: ExprDoc) -> None:
        super().__init__()
        self.args = list(args)
        self.body = body


class TupleDoc(ExprDoc):
    """``(a, b)``"""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.elements = list(elements)


class ListDoc(ExprDoc):
    """``[a, b]``"""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.elements = list(elements)


class DictDoc(ExprDoc):
    """``{key: value}``"""

    __slots__ = ("keys", "values")

    def __init__(self, content: Mapping[Any, ExprDoc] | Sequence[tuple[ExprDoc, ExprDoc]]) -> None:
        super().__init__()
        pairs = list(content.items()) if isinstance(content, Mapping) else list(content)
        self.keys = [k for k, _ in pairs]
        self.values = [v for _, v in pairs]


class SliceDoc(Doc):
    """``start:stop:step`` inside an index."""

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: ExprDoc | None = None, stop: ExprDoc | None = None, step: ExprDoc | None = None) -> None:
        super().__init__()
        self.start = start
        self.stop = stop
        self.step = step


class AssignDoc(StmtDoc):
    """``lhs: annotation = rhs``, one of the latter two optional."""

    __slots__ = ("annotation", "lhs", "rhs")

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc | None = None, annotation: ExprDoc | None = None) -> None:
        super().__init__()
        if rhs is None and annotation is None:
            raise ValueError("At least one of rhs and annotation needs to be non-null for AssignDoc.")
        if annotation is not None and not isinstance(lhs, IdDoc):
            raise ValueError("annotation can only be nonnull if lhs is an identifier for AssignDoc.")
        self.lhs = lhs
        self.rhs = rhs
        self.annotation = annotation


class IfDoc(StmtDoc):
    """``if predicate: ... else: ...``"""

    __slots__ = ("else_branch", "predicate", "then_branch")

    def __init__(
        self, predicate: ExprDoc, then_branch: Sequence[StmtDoc] = (), else_branch: Sequence[StmtDoc] = ()
    ) -> None:
        super().__init__()
        if not then_branch and not else_branch:
            raise ValueError("At least one of the then branch or else branch needs to be non-empty for IfDoc.")
        self.predicate = predicate
        self.then_branch = list(then_branch)
        self.else_branch = list(else_branch)


class WhileDoc(StmtDoc):
    """``while predicate: ...``"""

    __slots__ = ("body", "predicate")

    def __init__(self, predicate: ExprDoc, body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.predicate = predicate
        self.body = list(body)


class ForDoc(StmtDoc):
    """``for lhs in rhs: ...``"""

    __slots__ = ("body", "lhs", "rhs")

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.lhs = lhs
        self.rhs = rhs
        self.body = list(body)


class ScopeDoc(StmtDoc):
    """``with rhs as lhs: ...``, or ``with expr: ...`` when made of two parts."""

    __slots__ = ("body", "lhs", "rhs")

    @overload
    def __init__(self, lhs: ExprDoc | None, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None: ...

    @overload
    def __init__(self, expr: ExprDoc, body: Sequence[StmtDoc]) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        with_target = len(args) == 3 or "rhs" in kwargs
        parts = dict(zip(("lhs", "rhs", "body") if with_target else ("expr", "body"), args)) | kwargs
        self.lhs: ExprDoc | None = parts.get("lhs")
        self.rhs: ExprDoc = parts["rhs"] if with_target else parts["expr"]
        self.body: list[StmtDoc] = list(parts["body"])


class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    __slots__ = ("expr",)

    def __init__(self, expr: ExprDoc) -> None:
        super().__init__()
        self.expr = expr


class AssertDoc(StmtDoc):
    """``assert test, msg``"""

    __slots__ = ("msg", "test")

    def __init__(self, test: ExprDoc, msg: ExprDoc | None = None) -> None:
        super().__init__()
        self.test = test
        self.msg = msg


class ReturnDoc(StmtDoc):
    """``return value``"""

    __slots__ = ("value",)

    def __init__(self, value: ExprDoc) -> None:
        super().__init__()
        self.value = value


class FunctionDoc(StmtDoc):
    """A function definition."""

    __slots__ = ("args", "body", "decorators", "name", "return_type")

    def __init__(
        self,
        name: IdDoc,
        args: Sequence[AssignDoc],
        decorators: Sequence[ExprDoc],
        return_type: ExprDoc | None,
        body: Sequence[StmtDoc],
    ) -> None:
        super().__init__()
        self.name = name
        self.args = list(args)
        self.decorators = list(decorators)
        self.return_type = return_type
        self.body = list(body)


class ClassDoc(StmtDoc):
    """A class definition."""

    __slots__ = ("body", "decorators", "name")

    def __init__(self, name: IdDoc, decorators: Sequence[ExprDoc], body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.name = name
        self.decorators = list(decorators)
        self.body = list(body)


class CommentDoc(StmtDoc):
    """A comment line."""

    __slots__ = ()

    def __init__(self, comment: str) -> None:
        super().__init__(comment)


class DocStringDoc(StmtDoc):
    """A docstring."""

    __slots__ = ()

    def __init__(self, docs: str) -> None:
        super().__init__(docs)
