"""Docs to Python text, with underlining of asked-for places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...support.object_path import ObjectPath
from . import doc as d
from .config import PrinterConfig
from .doc import OperationKind as Kind
from .underline import decorate

__all__ = ["doc_to_python", "to_python_script"]

_LAMBDA, _IF_ELSE, _OR, _AND, _NOT, _COMPARE, _BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT, _ADD, _MUL, _UNARY, _POW, _ATOM = (
    range(1, 16)
)

_OPERATORS: dict[Kind, tuple[str, int]] = {
    Kind.USub: ("-", _UNARY),
    Kind.Invert: ("~", _UNARY),
    Kind.Not: ("not ", _NOT),
    Kind.Add: ("+", _ADD),
    Kind.Sub: ("-", _ADD),
    Kind.Mult: ("*", _MUL),
    Kind.Div: ("/", _MUL),
    Kind.FloorDiv: ("//", _MUL),
    Kind.Mod: ("%", _MUL),
    Kind.Pow: ("**", _POW),
    Kind.LShift: ("<<", _SHIFT),
    Kind.RShift: (">>", _SHIFT),
    Kind.BitAnd: ("&", _BIT_AND),
    Kind.BitOr: ("|", _BIT_OR),
    Kind.BitXor: ("^", _BIT_XOR),
    Kind.Lt: ("<", _COMPARE),
    Kind.LtE: ("<=", _COMPARE),
    Kind.Eq: ("==", _COMPARE),
    Kind.NotEq: ("!=", _COMPARE),
    Kind.Gt: (">", _COMPARE),
    Kind.GtE: (">=", _COMPARE),
    Kind.And: ("and", _AND),
    Kind.Or: ("or", _OR),
    Kind.IfThenElse: ("if", _IF_ELSE),
}


def _precedence(doc: d.Doc) -> int:
    if isinstance(doc, d.OperationDoc):
        return _OPERATORS[doc.kind][1]
    return _LAMBDA if isinstance(doc, d.LambdaDoc) else _ATOM


def format_float(value: float) -> str:
    """A float with 17 significant digits, whole numbers with one decimal; infinities and NaN quoted."""
    if math.isnan(value):
        return '"nan"' if math.copysign(1.0, value) > 0 else '"-nan"'
    if math.isinf(value):
        return '"inf"' if value > 0 else '"-inf"'
    return f"{value:.1f}" if value == math.floor(value) else f"{value:.17g}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def format_string(text: str) -> str:
    """A double-quoted literal; control characters are octal escapes."""
    shown = (_ESCAPES.get(c) or (f"\\{ord(c):03o}" if ord(c) < 32 or ord(c) == 127 else c) for c in text)
    return '"' + "".join(shown) + '"'


def _lines(text: str) -> list[str]:
    """The lines of a comment; a final line break ends the last line and starts none."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


class DocPrinter:
    """Writes docs, remembering which characters stand for the paths to underline."""

    def __init__(self, config: PrinterConfig) -> None:
        self.config = config
        self.parts: list[str] = []
        self.length = 0
        self.indent = 0
        self.line_starts = [0]
        self.exempt: list[tuple[int, int]] = []
        self.targets = list(config.path_to_underline)
        self.best = [0] * len(self.targets)
        self.spans: list[list[tuple[int, int]]] = [[] for _ in self.targets]

    def write(self, text: str) -> None:
        """Append text that holds no line break of its own accounting."""
        self.parts.append(text)
        self.length += len(text)

    def newline(self) -> None:
        """Start a line."""
        start = self.length
        self.write("\n")
        self.line_starts.append(self.length)
        self.write(" " * self.indent)
        self.exempt.append((start, self.length))

    def blank(self) -> None:
        """A line break that starts no line of its own: the blank line stays with the line before."""
        self.exempt.append((self.length, self.length + 1))
        self.write("\n")

    def visit(self, doc: d.Doc) -> None:
        """Write one doc and note where it went."""
        start = self.length
        _PRINTERS[type(doc)](self, doc)
        if self.targets:
            for path in doc.paths:
                self._mark(start, self.length, path)

    def _mark(self, start: int, end: int, path: ObjectPath) -> None:
        for i, target in enumerate(self.targets):
            if len(path) >= self.best[i] and path.is_prefix_of(target):
                if len(path) > self.best[i]:
                    self.best[i] = len(path)
                    self.spans[i] = []
                self.spans[i].append((start, end))

    def joined(self, docs: Sequence[d.Doc], separator: str = ", ") -> None:
        """Docs with a separator between them."""
        for i, item in enumerate(docs):
            if i:
                self.write(separator)
            self.visit(item)

    def child(self, child: d.ExprDoc, parent: d.ExprDoc, strict: bool = False, outer: int | None = None) -> None:
        """An operand, in parentheses if it binds weaker than its parent (or, strictly, equally)."""
        inner, outer = _precedence(child), _precedence(parent) if outer is None else outer
        if inner < outer or (strict and inner == outer):
            self.write("(")
            self.visit(child)
            self.write(")")
        else:
            self.visit(child)

    def block(self, stmts: Sequence[d.Doc]) -> None:
        """An indented body."""
        self.indent += self.config.indent_spaces
        for stmt in stmts:
            self.newline()
            self.visit(stmt)
        if not stmts:
            self.newline()
            self.write("pass")
        self.indent -= self.config.indent_spaces

    def comment_lines(self, comment: str) -> None:
        """Comment lines of their own."""
        start = self.length
        for i, line in enumerate(_lines(comment)):
            if i:
                self.newline()
            self.write(f"# {line}")
        self.exempt.append((start, self.length))

    def comment_above(self, stmt: d.StmtDoc) -> None:
        """The comment lines of a compound statement, before it."""
        if stmt.comment is not None:
            self.comment_lines(stmt.comment)
            self.newline()

    def comment_inline(self, stmt: d.StmtDoc) -> None:
        """The comment of a one-line statement, behind it. Raises ValueError if it has several lines."""
        if stmt.comment is not None:
            if "\n" in stmt.comment:
                raise ValueError(f"the comment string of {type(stmt).__name__} cannot have newline.")
            start = self.length
            self.write("  # " + stmt.comment)
            self.exempt.append((start, self.length))

    def text(self) -> str:
        """Printed text, decorated."""
        raw = "".join(self.parts)
        spans = sorted(span for group in self.spans for span in group)
        return decorate(raw, self.line_starts, self.config, spans, self.exempt)


def _literal(p: DocPrinter, doc: d.LiteralDoc) -> None:
    value = doc.value
    match value:
        case None:
            p.write("None")
        case bool():
            p.write("True" if value else "False")
        case int():
            p.write(str(value))
        case float():
            p.write(format_float(value))
        case _:
            p.write(format_string(str(value)))


def _attr(p: DocPrinter, doc: d.AttrAccessDoc) -> None:
    p.child(doc.value, doc)
    p.write(f".{doc.name}")


def _index(p: DocPrinter, doc: d.IndexDoc) -> None:
    p.child(doc.value, doc)
    if not doc.indices:
        p.write("[()]")
    else:
        p.write("[")
        p.joined(doc.indices)
        p.write("]")


def _call(p: DocPrinter, doc: d.CallDoc) -> None:
    p.child(doc.callee, doc)
    p.write("(")
    first = True
    for arg in doc.args:
        p.write("" if first else ", ")
        first = False
        p.visit(arg)
    for key, value in zip(doc.kwargs_keys, doc.kwargs_values):
        p.write(("" if first else ", ") + key + "=")
        first = False
        p.visit(value)
    p.write(")")


def _operation(p: DocPrinter, doc: d.OperationDoc) -> None:
    symbol = _OPERATORS[doc.kind][0]
    operands = doc.operands
    if doc.kind < Kind._UnaryEnd:
        p.write(symbol)
        p.child(operands[0], doc)
    elif doc.kind < Kind._BinaryEnd:
        power = doc.kind == Kind.Pow
        p.child(operands[0], doc, strict=power)
        p.write(f" {symbol} ")
        # A power groups to the right, and a sign may follow it: ``x ** -y ** z``.
        p.child(operands[1], doc, strict=not power, outer=_UNARY if power else None)
    else:
        p.child(operands[1], doc)
        p.write(" if ")
        p.child(operands[0], doc, strict=True)
        p.write(" else ")
        p.child(operands[2], doc, strict=True)


def _lambda(p: DocPrinter, doc: d.LambdaDoc) -> None:
    p.write("lambda ")
    p.joined(doc.args)
    p.write(": ")
    p.child(doc.body, doc)


def _tuple(p: DocPrinter, doc: d.TupleDoc) -> None:
    p.write("(")
    p.joined(doc.elements)
    p.write(",)" if len(doc.elements) == 1 else ")")


def _list(p: DocPrinter, doc: d.ListDoc) -> None:
    p.write("[")
    p.joined(doc.elements)
    p.write("]")


def _dict(p: DocPrinter, doc: d.DictDoc) -> None:
    p.write("{")
    for i, (key, value) in enumerate(zip(doc.keys, doc.values)):
        p.write(", " if i else "")
        p.visit(key)
        p.write(": ")
        p.visit(value)
    p.write("}")


def _slice(p: DocPrinter, doc: d.SliceDoc) -> None:
    if doc.start is not None:
        p.visit(doc.start)
    p.write(":")
    if doc.stop is not None:
        p.visit(doc.stop)
    if doc.step is not None:
        p.write(":")
        p.visit(doc.step)


def _stmt_block(p: DocPrinter, doc: d.StmtBlockDoc) -> None:
    for i, stmt in enumerate(doc.stmts):
        if i:
            p.newline()
        p.visit(stmt)


def _assign(p: DocPrinter, doc: d.AssignDoc) -> None:
    if isinstance(doc.lhs, d.TupleDoc):
        p.joined(doc.lhs.elements)
    else:
        p.visit(doc.lhs)
    if doc.annotation is not None:
        p.write(": ")
        p.visit(doc.annotation)
    if doc.rhs is not None:
        p.write(" = ")
        if isinstance(doc.rhs, d.TupleDoc) and len(doc.rhs.elements) > 1:
            p.joined(doc.rhs.elements)
        else:
            p.visit(doc.rhs)
    p.comment_inline(doc)


def _if(p: DocPrinter, doc: d.IfDoc) -> None:
    p.comment_above(doc)
    p.write("if ")
    p.visit(doc.predicate)
    p.write(":")
    p.block(doc.then_branch)
    if doc.else_branch:
        p.newline()
        p.write("else:")
        p.block(doc.else_branch)


def _while(p: DocPrinter, doc: d.WhileDoc) -> None:
    p.comment_above(doc)
    p.write("while ")
    p.visit(doc.predicate)
    p.write(":")
    p.block(doc.body)


def _for(p: DocPrinter, doc: d.ForDoc) -> None:
    p.comment_above(doc)
    p.write("for ")
    if isinstance(doc.lhs, d.TupleDoc):
        p.joined(doc.lhs.elements)
        if len(doc.lhs.elements) == 1:
            p.write(",")
    else:
        p.visit(doc.lhs)
    p.write(" in ")
    p.visit(doc.rhs)
    p.write(":")
    p.block(doc.body)


def _scope(p: DocPrinter, doc: d.ScopeDoc) -> None:
    p.comment_above(doc)
    p.write("with ")
    p.visit(doc.rhs)
    if doc.lhs is not None:
        p.write(" as ")
        p.visit(doc.lhs)
    p.write(":")
    p.block(doc.body)


def _expr_stmt(p: DocPrinter, doc: d.ExprStmtDoc) -> None:
    p.visit(doc.expr)
    p.comment_inline(doc)


def _assert(p: DocPrinter, doc: d.AssertDoc) -> None:
    p.write("assert ")
    p.visit(doc.test)
    if doc.msg is not None:
        p.write(", ")
        p.visit(doc.msg)
    p.comment_inline(doc)


def _return(p: DocPrinter, doc: d.ReturnDoc) -> None:
    p.write("return ")
    p.visit(doc.value)
    p.comment_inline(doc)


def _decorators(p: DocPrinter, decorators: Sequence[d.ExprDoc]) -> None:
    for decorator in decorators:
        p.write("@")
        p.visit(decorator)
        p.newline()


def _docstring(p: DocPrinter, comment: str) -> None:
    start = p.length
    p.write('"""')
    for line in _lines(comment):
        if line:
            p.newline()
            p.write(line)
        else:
            p.blank()
    p.newline()
    p.write('"""')
    p.exempt.append((start, p.length))


def _body_docstring(p: DocPrinter, doc: d.StmtDoc) -> None:
    if doc.comment is not None:
        p.indent += p.config.indent_spaces
        p.newline()
        _docstring(p, doc.comment)
        p.indent -= p.config.indent_spaces


def _function(p: DocPrinter, doc: d.FunctionDoc) -> None:
    if any(arg.comment is not None for arg in doc.args):
        raise ValueError("Function arg cannot have comment attached to them.")
    _decorators(p, doc.decorators)
    p.write("def ")
    p.visit(doc.name)
    p.write("(")
    p.joined(doc.args)
    p.write(")")
    if doc.return_type is not None:
        p.write(" -> ")
        p.visit(doc.return_type)
    p.write(":")
    _body_docstring(p, doc)
    p.block(doc.body)
    p.blank()


def _class(p: DocPrinter, doc: d.ClassDoc) -> None:
    _decorators(p, doc.decorators)
    p.write("class ")
    p.visit(doc.name)
    p.write(":")
    _body_docstring(p, doc)
    p.block(doc.body)


def _comment(p: DocPrinter, doc: d.CommentDoc) -> None:
    if doc.comment is not None:
        p.comment_lines(doc.comment)


def _docstring_stmt(p: DocPrinter, doc: d.DocStringDoc) -> None:
    if doc.comment:
        _docstring(p, doc.comment)


_PRINTERS: dict[type, Callable[[DocPrinter, Any], None]] = {
    d.LiteralDoc: _literal,
    d.IdDoc: lambda p, doc: p.write(doc.name),
    d.AttrAccessDoc: _attr,
    d.IndexDoc: _index,
    d.CallDoc: _call,
    d.OperationDoc: _operation,
    d.LambdaDoc: _lambda,
    d.TupleDoc: _tuple,
    d.ListDoc: _list,
    d.DictDoc: _dict,
    d.SliceDoc: _slice,
    d.StmtBlockDoc: _stmt_block,
    d.AssignDoc: _assign,
    d.IfDoc: _if,
    d.WhileDoc: _while,
    d.ForDoc: _for,
    d.ScopeDoc: _scope,
    d.ExprStmtDoc: _expr_stmt,
    d.AssertDoc: _assert,
    d.ReturnDoc: _return,
    d.FunctionDoc: _function,
    d.ClassDoc: _class,
    d.CommentDoc: _comment,
    d.DocStringDoc: _docstring_stmt,
}


def doc_to_python(doc: d.Doc, config: PrinterConfig | None = None) -> str:
    """The Python text of a doc, without trailing blanks."""
    printer = DocPrinter(config or PrinterConfig())
    printer.visit(doc)
    return printer.text().rstrip()


def to_python_script(
    doc: d.Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[Any] | None = None,
) -> str:
    """The Python text of a doc under the given options."""
    config = PrinterConfig(
        indent_spaces=indent_spaces,
        print_line_numbers=print_line_numbers,
        num_context_lines=num_context_lines,
        path_to_underline=path_to_underline,
    )
    return doc_to_python(doc, config)
