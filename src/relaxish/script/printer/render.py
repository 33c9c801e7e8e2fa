"""The entry points: a node to text, and text to a highlighted terminal."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from .config import PrinterConfig
from .doc import CommentDoc, ExprDoc, ExprStmtDoc, StmtBlockDoc, StmtDoc
from .doc_printer import doc_to_python
from .docsifier import Docsifier, Frame
from .path import ObjectPath
from .tir_func import is_var_or_buffer

__all__ = ["render", "show"]

# Graph-level nodes are printed by ``relax_*``, which loads when the first of them is met.
_RELAX_LOADED = [False]


def _is_relax(node: Any) -> bool:
    module = type(node).__module__
    return module.startswith("relaxish.relax") or module.startswith("relaxish.op")


def _load_relax() -> None:
    if not _RELAX_LOADED[0]:
        _RELAX_LOADED[0] = True
        from . import relax_printer  # noqa: F401


def _needs_relax(node: Any) -> bool:
    if _is_relax(node):
        return True
    return isinstance(node, IRModule) and any(_is_relax(f) for f in node.functions.values())


def render(node: Any, config: dict[str, Any]) -> str:
    """TVMScript text of a node under the given printer options."""
    given = config.pop("config", None)
    cfg = given if isinstance(given, PrinterConfig) else PrinterConfig(**config)
    relax = _needs_relax(node)
    if relax:
        _load_relax()
    d = Docsifier(cfg)
    kind = "ir" if isinstance(node, IRModule) else "relax" if relax else "tir"
    d.set_common_prefix(node, is_var_or_buffer)
    with Frame(d, kind) as frame:
        frame.token(kind)
        made = d.doc(node, ObjectPath.root())
        if isinstance(made, ExprDoc):
            if not cfg.verbose_expr:
                frame.stmts.clear()
            stmt = ExprStmtDoc(made)
            stmt.source_paths, made.source_paths = made.source_paths, []
            frame.stmts.append(stmt)
        elif isinstance(made, StmtBlockDoc):
            for item in made.stmts:
                frame.stmts.append(item)
            if made.stmts:
                made.stmts[-1].source_paths.extend(made.source_paths)
        else:
            assert isinstance(made, StmtDoc)
            frame.stmts.append(made)
        text = ""
        if d.metadata:
            if cfg.show_meta:
                text = _metadata_text(d)
            else:
                note = "Metadata omitted. Use show_meta=True in script() method to show it."
                frame.stmts.append(CommentDoc(note))
        return text + doc_to_python(StmtBlockDoc(frame.stmts), cfg)


def _metadata_text(d: Docsifier) -> str:
    from ...ir.serial import save_json

    saved = save_json({key: tuple(values) for key, values in d.metadata.items()})
    escaped = saved.replace("\\", "\\\\")
    return f'metadata = relaxish.ir.load_json("""{escaped}""")\n'


def show(node: Any, style: str | None, black_format: bool | None, config: dict[str, Any]) -> None:
    """Print a node highlighted."""
    from ..highlight import cprint

    cprint(node.script(**config), style=style, black_format=black_format)
