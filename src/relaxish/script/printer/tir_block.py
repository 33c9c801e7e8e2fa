"""Printing of blocks."""

from __future__ import annotations

from typing import Any

from ... import tir
from ...ir.expr import PrimExpr
from ...ir.structural import structural_equal
from ...support.object_path import ObjectPath
from ...tir.stmt import Block, BlockRealize
from .doc import AssignDoc, Doc, ExprDoc, ExprStmtDoc, ListDoc, LiteralDoc, ScopeDoc, TupleDoc
from .docsifier import Docsifier, Frame, assign, printer_of
from .tir_buffer import buffer_decl, define_buffer
from .tir_expr import define_var
from ...ir.prim import is_one, is_zero
from .tir_stmt import body_into

__all__: list[str] = []

_AXIS = {0: "spatial", 2: "reduce", 3: "scan", 4: "opaque"}


def _loops_around(d: Docsifier) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for frame in d.frames:
        loop = frame.node if frame.kind == "tir" else None
        while isinstance(loop, tir.For):
            found.setdefault(id(loop.loop_var), loop)
            loop = loop.body
    return found


class _Bindings:
    """Prints the iteration variables of a block, runs of plain ones as one ``T.axis.remap``."""

    def __init__(
        self, block: Block, path: ObjectPath, realize: BlockRealize | None, frame: Frame, d: Docsifier
    ) -> None:
        self.block, self.path, self.realize, self.frame, self.d = block, path, realize, frame, d
        self.pending: list[int] = []
        self.loops = _loops_around(d) if realize is not None and d.cfg.syntax_sugar else {}

    def remappable(self, index: int) -> bool:
        if self.realize is None or not self.d.cfg.syntax_sugar:
            return False
        iter_var = self.block.iter_vars[index]
        if iter_var.iter_type not in (0, 2):
            return False
        loop = self.loops.get(id(self.realize.iter_values[index]))
        if loop is None:
            return False
        return _same(loop.min, iter_var.dom.min) and _same(loop.extent, iter_var.dom.extent)

    def single(self, index: int) -> None:
        d = self.d
        iter_var = self.block.iter_vars[index]
        path = self.path.attr("iter_vars").array_index(index)
        prefix = d.prefix("tir", "axis").attr(_AXIS[iter_var.iter_type])
        dom: ExprDoc
        if is_zero(iter_var.dom.min):
            dom = d.doc(iter_var.dom.extent, path.attr("dom").attr("extent"))
        else:
            low = d.doc(iter_var.dom.min, path.attr("dom").attr("min"))
            high = d.doc(iter_var.dom.min + iter_var.dom.extent, path.attr("dom").attr("extent"))
            dom = TupleDoc([low, high])
        args = [dom]
        if self.realize is not None:
            args.append(d.doc(self.realize.iter_values[index], ObjectPath.root().attr("iter_values")))
        rhs = prefix.call(*args)
        self.frame.stmts.append(assign(define_var(iter_var.var, self.frame, d), rhs))

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        if len(pending) == 1:
            self.single(pending[0])
        elif pending and self.realize is not None:  # what has no realisation is never pending
            d = self.d
            lhs, rhs, kinds = [], [], ""
            for index in pending:
                iter_var = self.block.iter_vars[index]
                name = define_var(iter_var.var, self.frame, d)
                name.paths.append(self.path.attr("iter_vars").array_index(index).attr("var"))
                lhs.append(name)
                rhs.append(d.doc(self.realize.iter_values[index], self.path.attr("iter_values").array_index(index)))
                kinds += "S" if iter_var.iter_type == 0 else "R"
            call = d.prefix("tir", "axis").attr("remap").call(LiteralDoc(kinds), ListDoc(rhs))
            self.frame.stmts.append(AssignDoc(TupleDoc(lhs), call))

    def run(self) -> None:
        for index in range(len(self.block.iter_vars)):
            if self.remappable(index):
                self.pending.append(index)
            else:
                self.flush()
                self.single(index)
        self.flush()


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (a.dtype == b.dtype and structural_equal(a, b))


def _print_block(
    block: Block, path: ObjectPath, realize: BlockRealize | None, realize_path: ObjectPath, d: Docsifier
) -> Doc:
    with Frame(d, "tir", block) as frame:
        out = frame.stmts
        _Bindings(block, path, realize, frame, d).run()
        if realize is not None and not is_one(realize.predicate):
            predicate = d.doc(realize.predicate, realize_path.attr("predicate"))
            out.append(ExprStmtDoc(d.prefix("tir", "where").call(predicate)))
        for name in ("reads", "writes"):
            regions = [d.doc(r, path.attr(name).array_index(i)) for i, r in enumerate(getattr(block, name))]
            out.append(ExprStmtDoc(d.prefix("tir", name).call(*regions)))
        if block.annotations:
            shown = d.doc(block.annotations, path.attr("annotations"))
            out.append(ExprStmtDoc(d.prefix("tir", "block_attr").call(shown)))
        for i, buffer in enumerate(block.alloc_buffers):
            where = path.attr("alloc_buffers").array_index(i)
            lhs = define_buffer(buffer, frame, d)
            out.append(assign(lhs, buffer_decl(buffer, "alloc_buffer", [], where, frame, d)))
        for i, match in enumerate(block.match_buffers):
            out.append(d.doc(match, path.attr("match_buffers").array_index(i)))
        if block.init is not None:
            with Frame(d, "tir", block.init) as init:
                body_into(block.init, path.attr("init"), init, d)
            out.append(ScopeDoc(None, d.prefix("tir", "init").call(), init.stmts))
        body_into(block.body, path.attr("body"), frame, d)
        options: dict[str, ExprDoc] = {} if realize is not None else {"no_realize": LiteralDoc(True)}
        name_doc = LiteralDoc(block.name_hint, path.attr("name_hint"))
        return ScopeDoc(None, d.prefix("tir", "block").call(name_doc, **options), out)


@printer_of(tir.BlockRealize)
def _block_realize(node: BlockRealize, path: ObjectPath, d: Docsifier) -> Doc:
    made = _print_block(node.block, path.attr("block"), node, path, d)
    # What is asked of the block itself shows on the same statement.
    made.paths.append(path.attr("block"))
    d._decorate(made, node.block, path.attr("block"))
    return made


@printer_of(tir.Block)
def _block(node: Block, path: ObjectPath, d: Docsifier) -> Doc:
    return _print_block(node, path, None, path, d)
