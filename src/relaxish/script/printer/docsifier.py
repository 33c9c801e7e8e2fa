"""IR to docs: frames, names, and the table of node printers.

A frame stands for a scope of the text being made. It collects statements that must come before the one being
printed (declarations of free variables) and, when left, forgets the names defined in it so that siblings may
use them again.
"""

from __future__ import annotations

import keyword
import logging
from collections.abc import Callable
from typing import Any

from ...ir.expr import GlobalVar, PrimExpr
from ...ir.node import Node
from ...ir.prim import SizeVar, Var as TirVar
from ...support.object_path import ObjectPath
from ...tir.buffer import Buffer
from .config import PrinterConfig
from .doc import AssignDoc, CommentDoc, Doc, ExprDoc, IdDoc, LiteralDoc, StmtBlockDoc, StmtDoc

__all__ = ["Docsifier", "Frame", "header", "mentions", "printer_of"]

_LOG = logging.getLogger(__name__)
# Type keys of the public API where they differ from ours.
_METADATA_KEYS = {"relax.Constant": "relax.expr.Constant", "ir.StringImm": "tir.StringImm"}
Printer = Callable[[Any, ObjectPath, "Docsifier"], Doc]
_TABLES: dict[str, dict[type, Printer]] = {"": {}, "ir": {}, "tir": {}, "relax": {}}


def printer_of(*classes: type, token: str = "") -> Callable[[Printer], Printer]:
    """Register a printer of node classes, under a dialect token or for all dialects."""

    def register(function: Printer) -> Printer:
        for cls in classes:
            _TABLES[token][cls] = function
        _CACHE.clear()
        return function

    return register


_CACHE: dict[tuple[str, type], Printer] = {}


def _unknown(obj: object, path: ObjectPath, d: Docsifier) -> Doc:
    raise TypeError(f"no printer for {type(obj).__module__}.{type(obj).__name__}")


# What prints nodes that no table knows; ``plain`` puts a general form here.
FALLBACK: list[Printer] = [_unknown]


def _lookup(token: str, cls: type) -> Printer:
    key = (token, cls)
    found = _CACHE.get(key)
    if found is None:
        for table in (_TABLES[token], _TABLES[""]):
            for base in cls.__mro__:
                if base in table:
                    found = table[base]
                    break
            if found is not None:
                break
        found = found or FALLBACK[0]
        _CACHE[key] = found
    return found


class Frame:
    """A scope of the text: ``kind`` is ``ir``, ``tir`` or ``relax``; ``node`` is the statement it stands for."""

    def __init__(self, docsifier: Docsifier, kind: str, node: Node | None = None, is_func: bool = False) -> None:
        self.docsifier = docsifier
        self.kind = kind
        self.node = node
        self.stmts: list[StmtDoc] = []
        self.concise = False
        self.is_func = is_func
        self.func_vars: set[int] | None = None
        self.alias_printed = False
        self.tokens = 0
        self.defined: list[Any] = []

    def token(self, name: str) -> None:
        """Use another dialect's printers until the frame is left."""
        self.docsifier.tokens.append(name)
        self.tokens += 1

    def __enter__(self) -> Frame:
        self.docsifier.frames.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        docsifier = self.docsifier
        for obj in reversed(self.defined):
            docsifier.remove(obj)
        for _i in range(self.tokens):
            docsifier.tokens.pop()
        docsifier.frames.pop()


class Docsifier:
    """State of one printing: frames, variable names, metadata, usage of dialects."""

    def __init__(self, config: PrinterConfig) -> None:
        self.cfg = config
        self.frames: list[Frame] = []
        self.tokens: list[str] = [""]
        self.vars: dict[int, tuple[Any, Callable[[], ExprDoc], str | None]] = {}
        self.names: set[str] = set(config.builtin_keywords())
        self.usage: set[str] = set()
        self.metadata: dict[str, list[Any]] = {}
        self.common_prefix: dict[int, list[Any]] = {}
        self.module_doc: Any = None
        self.module_infos: dict[str, Any] = {}

    # Names.

    def define(self, obj: Node, frame: Frame, hint: str) -> IdDoc:
        """Give an object a fresh name in a frame."""
        known = self.vars.get(id(obj))
        if known is not None:
            found = known[1]()
            assert isinstance(found, IdDoc)
            return found
        name = self.fresh(f"{hint}_{id(obj):#x}" if self.cfg.show_object_address else hint)
        self.names.add(name)
        self.vars[id(obj)] = (obj, lambda: IdDoc(name), name)
        frame.defined.append(obj)
        return IdDoc(name)

    def define_as(self, obj: GlobalVar | TirVar, frame: Frame, creator: Callable[[], ExprDoc]) -> None:
        """Let an object be shown by an expression, such as ``cls.main``."""
        self.vars[id(obj)] = (obj, creator, None)
        frame.defined.append(obj)

    def fresh(self, hint: str) -> str:
        """A name not in use that starts with ``hint``; what the text could not be parsed with is avoided."""
        base = "".join(c if c == "_" or (c.isalnum() and c.isascii()) else "_" for c in hint)
        if base[:1].isdigit():
            base = f"_{base}"
        name, i = base, 1
        while name in self.names or keyword.iskeyword(name):
            name = f"{base}_{i}"
            i += 1
        return name

    def remove(self, obj: Node) -> None:
        """Forget an object's name."""
        entry = self.vars.pop(id(obj), None)
        if entry is not None and entry[2] is not None:
            self.names.discard(entry[2])

    def is_defined(self, obj: Node) -> bool:
        """Whether the object has a name."""
        return id(obj) in self.vars

    def var_doc(self, obj: Node) -> ExprDoc | None:
        """The object's name, or None."""
        entry = self.vars.get(id(obj))
        return entry[1]() if entry is not None else None

    # Printing.

    def doc(self, obj: object, path: ObjectPath) -> Any:
        """The doc of any IR value."""
        if obj is None:
            return LiteralDoc(None, path)
        made = _lookup(self.tokens[-1], type(obj))(obj, path, self)
        made.paths.append(path)
        cfg = self.cfg
        if cfg.obj_to_annotate or cfg.obj_to_underline or cfg.path_to_annotate:
            self._decorate(made, obj, path)
        return made

    def _decorate(self, made: Doc, obj: object, path: ObjectPath) -> None:
        cfg = self.cfg
        notes = []
        note = cfg.obj_to_annotate.get(id(obj))
        if note is not None:
            notes.append(note)
        notes += [text for where, text in cfg.path_to_annotate if where == path]
        for text in notes:
            if isinstance(made, StmtDoc):
                made.comment = text if made.comment is None else f"{made.comment}\n{text}"
            else:
                _LOG.warning("only statements can be annotated; %s is printed as a %s", path, type(made).__name__)
        for wanted in cfg.obj_to_underline:
            if wanted is obj:
                cfg.path_to_underline.append(path)

    def add_metadata(self, obj: Node | str) -> ExprDoc:
        """Put a value into the metadata section and refer to it."""
        if isinstance(obj, str):
            key = "runtime.String"
        else:
            key = _METADATA_KEYS.get(type(obj)._type_key, type(obj)._type_key)
        entries = self.metadata.setdefault(key, [])
        index = next(
            (i for i, known in enumerate(entries) if known is obj or (isinstance(obj, str) and known == obj)),
            len(entries),
        )
        if index == len(entries):
            entries.append(obj)
        return IdDoc("metadata")[LiteralDoc(key)][LiteralDoc(index)]

    def prefix(self, dialect: str, name: str) -> ExprDoc:
        """``T.name``, ``R.name`` or ``I.name``, noting that the dialect is used."""
        self.usage.add(dialect)
        cfg = self.cfg
        short = {"ir": cfg.ir_prefix, "tir": cfg.tir_prefix, "relax": cfg.relax_prefix}[dialect]
        made: ExprDoc = IdDoc(short)
        for part in name.split("."):
            made = made.attr(part)
        return made

    # Where variables are used: the statements that enclose all uses of each.

    def set_common_prefix(self, root: Node, is_var: Callable[[Any], bool]) -> None:
        """Find, for each variable under ``root``, the innermost chain of nodes around all its uses."""
        common: dict[int, list[Any]] = self.common_prefix
        fresh: dict[int, list[Any]] = {}
        chain: list[Any] = []
        # (node, leaving) on an explicit stack, since programs can be deep.
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                chain.pop()
                continue
            match node:
                case tuple() | list():
                    stack.extend((x, False) for x in reversed(node))
                    continue
                case dict():
                    stack.extend((x, False) for pair in reversed(list(node.items())) for x in reversed(pair))
                    continue
            if not isinstance(node, Node):
                continue
            if is_var(node):
                known = fresh.get(id(node))
                if known is None:
                    fresh[id(node)] = list(chain)
                else:
                    n = 0
                    for a, b in zip(known, chain):
                        if a is not b:
                            break
                        n += 1
                    del known[n:]
            chain.append(node)
            stack.append((node, True))
            stack.extend((getattr(node, f), False) for f in reversed(type(node)._child_fields))
        common.update(fresh)

    def lowest_frame(self, var: Buffer | SizeVar | TirVar) -> Frame | None:
        """The innermost frame that encloses all uses of a variable."""
        chain = self.common_prefix.get(id(var))
        if chain is None:
            return None
        by_node: dict[int, Frame] = {}
        fallback: Frame | None = None
        for frame in reversed(self.frames):
            if frame.kind == "tir":
                if frame.node is not None:
                    by_node.setdefault(id(frame.node), frame)
                elif fallback is None:
                    fallback = frame
        for node in reversed(chain):
            if id(node) in by_node:
                return by_node[id(node)]
        return fallback


def header(docsifier: Docsifier, doc: StmtDoc) -> Doc:
    """A definition under the import comments it needs; in a module only the module's own are shown."""
    if not docsifier.usage:
        return doc
    cfg = docsifier.cfg
    lines: list[StmtDoc] = []
    for dialect, short in (("ir", cfg.ir_prefix), ("tir", cfg.tir_prefix), ("relax", cfg.relax_prefix)):
        if dialect in docsifier.usage:
            lines.append(CommentDoc(f"from relaxish.script import {dialect} as {short}"))
    lines.append(CommentDoc(""))
    lines.append(doc)
    return StmtBlockDoc(lines)


def assign(lhs: ExprDoc, rhs: ExprDoc) -> AssignDoc:
    """``lhs = rhs``"""
    return AssignDoc(lhs, rhs, None)


def mentions(expr: PrimExpr, wanted: set[int]) -> bool:
    r"""Whether any of the nodes with these ``id``\ s occurs in an expression."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) in wanted:
            return True
        if isinstance(node, (tuple, list)):
            stack.extend(node)
        elif hasattr(node, "iter_children"):
            stack.extend(node.iter_children())
    return False
