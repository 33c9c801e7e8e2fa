"""The entry points: a node to text, and text to a highlighted terminal."""

from __future__ import annotations

from typing import Any

from ...arith.functor import free_vars
from ...ir.attrs import DictAttrs
from ...ir.expr import GlobalVar, Range
from ...ir.global_info import GlobalInfo
from ...ir.module import IRModule
from ...ir.node import Node
from ...ir.op import Op
from ...ir.types import FuncType, TensorType
from ...support.entry_points import module_name
from ...support.object_path import ObjectPath
from .config import PrinterConfig
from .doc import CommentDoc, ExprDoc, ExprStmtDoc, StmtBlockDoc, StmtDoc
from .doc_printer import doc_to_python
from .docsifier import Docsifier, Frame
from .tir_func import is_var_or_buffer

__all__ = ["render", "show"]

# What belongs to neither level prints under the ``I`` prefix.
_IR_LEVEL = (IRModule, GlobalVar, GlobalInfo, DictAttrs, FuncType, TensorType, Range)
_GRAPH_LEVEL = (f"{__name__.partition('.')[0]}.relax", module_name("operators"))
# Graph-level nodes are printed by ``relax_*``, which loads when the first of them is met.
_RELAX_LOADED = [False]


def _is_relax(node: Node) -> bool:
    return type(node).__module__.startswith(_GRAPH_LEVEL)


def _load_relax() -> None:
    if not _RELAX_LOADED[0]:
        _RELAX_LOADED[0] = True
        from . import relax_printer  # noqa: F401


def _needs_relax(node: Node) -> bool:
    if _is_relax(node):
        return True
    return isinstance(node, IRModule) and any(_is_relax(f) for f in node.functions.values())


def render(node: Node, config: dict[str, Any]) -> str:
    """TVMScript text of a node under the given printer options; ``dialect="relax"`` has graph forms of what both have."""
    if isinstance(node, Op):
        return f"Op({node.name})"
    dialect = config.pop("dialect", None)
    given = config.pop("config", None)
    cfg = given if isinstance(given, PrinterConfig) else PrinterConfig(**config)
    relax = dialect == "relax" or _needs_relax(node)
    if relax:
        _load_relax()
    d = Docsifier(cfg)
    kind = "relax" if relax else "tir"
    # Variables of a range are defined in the frame around it, which only TensorIR's can do.
    if (
        dialect is None
        and isinstance(node, _IR_LEVEL)
        and not (isinstance(node, Range) and free_vars((node.min, node.extent)))
    ):
        kind = "ir"
    d.set_common_prefix(node, is_var_or_buffer)
    with Frame(d, kind) as frame:
        frame.token(kind)
        made = d.doc(node, ObjectPath.root())
        match made:
            case ExprDoc():
                if not cfg.verbose_expr:
                    frame.stmts.clear()
                frame.stmts.append(ExprStmtDoc(made))
            case StmtBlockDoc():
                frame.stmts.extend(made.stmts)
            case _:
                assert isinstance(made, StmtDoc)
                frame.stmts.append(made)
        text = ""
        if d.metadata:
            if cfg.show_meta:
                text = _metadata_text(d)
            else:
                note = "Metadata omitted. Use show_meta=True in script() method to show it."
                frame.stmts.append(CommentDoc(note))
        whole = StmtBlockDoc(frame.stmts)
        if isinstance(made, StmtBlockDoc):
            whole.paths = made.paths
        return text + doc_to_python(whole, cfg)


def _metadata_text(d: Docsifier) -> str:
    from ...ir.serial import save_json

    saved = save_json({key: tuple(values) for key, values in d.metadata.items()})
    escaped = saved.replace("\\", "\\\\")
    return f'metadata = relaxish.ir.load_json("""{escaped}""")\n'


def show(node: Node, style: str | None, black_format: bool | None, config: dict[str, Any]) -> None:
    """Print a node highlighted."""
    from ..highlight import cprint

    cprint(node.script(**config), style=style, black_format=black_format)
