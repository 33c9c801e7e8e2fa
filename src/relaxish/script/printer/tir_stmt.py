"""Printing of statements."""

from __future__ import annotations

from ...ir.prim import IterVar, Var as TirVar, is_one, is_zero
from ... import tir
from ...ir.op import Op
from ...ir.types import PrimType, TupleType
from ...support.object_path import ObjectPath
from ...tir.stmt import (
    Allocate,
    BufferRealize,
    DeclBuffer,
    SeqStmt,
    Stmt,
    AttrStmt,
    For,
)
from .doc import (
    AssertDoc, AssignDoc, Doc, ExprDoc, ExprStmtDoc, ForDoc, IdDoc, IfDoc, ListDoc, LiteralDoc, ReturnDoc,
    ScopeDoc, SliceDoc, StmtBlockDoc, StmtDoc, TupleDoc, WhileDoc,
)  # fmt: skip
from .docsifier import Docsifier, Frame, assign, mentions, printer_of
from .tir_buffer import buffer_decl, define_buffer
from .tir_expr import buffer_indices, buffer_slices, define_var

__all__ = ["body_into"]


def body_into(stmt: Stmt, path: ObjectPath, frame: Frame, d: Docsifier) -> None:
    """Print a body into a frame; only its last statement may open a scope without indentation."""
    if isinstance(stmt, tir.SeqStmt):
        n = len(stmt.seq)
        for i, item in enumerate(stmt.seq):
            frame.concise = i == n - 1
            _into(d.doc(item, path.attr("seq").array_index(i)), frame)
    else:
        frame.concise = True
        _into(d.doc(stmt, path), frame)


def _into(doc: Doc, frame: Frame) -> None:
    match doc:
        case StmtBlockDoc():
            frame.stmts.extend(doc.stmts)
        case StmtDoc():
            frame.stmts.append(doc)
        case _:
            assert isinstance(doc, ExprDoc)
            frame.stmts.append(ExprStmtDoc(doc))


def _concise(d: Docsifier, node: Stmt) -> bool:
    if id(node) in d.cfg.obj_to_annotate:
        return False
    frame = d.frames[-1]
    return frame.kind == "tir" and frame.concise


def _scoped(lhs: ExprDoc | None, rhs: ExprDoc, stmts: list[StmtDoc], concise: bool) -> Doc:
    if not concise:
        return ScopeDoc(lhs, rhs, stmts)
    first: StmtDoc = ExprStmtDoc(rhs) if lhs is None else assign(lhs, rhs)
    return StmtBlockDoc([first, *stmts])


@printer_of(tir.Evaluate)
def _evaluate(node: tir.Evaluate, path: ObjectPath, d: Docsifier) -> Doc:
    value = node.value
    if d.cfg.syntax_sugar and isinstance(value, tir.Call) and isinstance(value.op, Op):
        if value.op.name == "tir.ret" and len(value.args) == 1:
            return ReturnDoc(d.doc(value.args[0], path.attr("value").attr("args").array_index(0)))
    shown = d.doc(value, path.attr("value"))
    if isinstance(value, tir.Call):
        return ExprStmtDoc(shown)
    return ExprStmtDoc(d.prefix("tir", "evaluate").call(shown))


@printer_of(tir.LetStmt)
def _let_stmt(node: tir.LetStmt, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    kind = node.var.type_annotation
    annotation = None
    if kind is not None and not (isinstance(kind, TupleType) and not kind.fields):
        annotation = d.doc(kind, path.attr("var").attr("type_annotation"))
    rhs = d.doc(node.value, path.attr("value"))
    known = d.is_defined(node.var)
    with Frame(d, "tir", node) as frame:
        if not known:
            define_var(node.var, frame, d)
        lhs = d.doc(node.var, path.attr("var"))
        body_into(node.body, path.attr("body"), frame, d)
        if known:
            return ScopeDoc(None, d.prefix("tir", "LetStmt").call(rhs, var=lhs), frame.stmts)
        if concise:
            return StmtBlockDoc([AssignDoc(lhs, rhs, annotation), *frame.stmts])
        args = [rhs] if annotation is None or isinstance(kind, PrimType) else [rhs, annotation]
        return ScopeDoc(lhs, d.prefix("tir", "LetStmt").call(*args), frame.stmts)


def _launch_thread(node: AttrStmt, iter_var: IterVar, path: ObjectPath, d: Docsifier) -> tuple[ExprDoc, TirVar | None]:
    """The ``T.launch_thread`` call and, if it defines its variable, that variable."""
    where = path.attr("node")
    defined = None
    shown: ExprDoc
    if d.is_defined(iter_var.var):
        shown = d.doc(iter_var.var, where.attr("var"))
    elif any(x is node for x in d.common_prefix.get(id(iter_var.var), ())):
        shown = LiteralDoc(iter_var.thread_tag, where.attr("thread_tag"))
        defined = iter_var.var
    else:
        frame = d.lowest_frame(iter_var.var) or d.frames[-1]
        define_var(iter_var.var, frame, d)
        shown = d.doc(iter_var.var, where.attr("var"))
        rhs = d.prefix("tir", "env_thread").call(LiteralDoc(iter_var.thread_tag, where.attr("thread_tag")))
        frame.stmts.append(assign(shown, rhs))
    call = d.prefix("tir", "launch_thread").call(shown, d.doc(node.value, path.attr("value")))
    return call, defined


@printer_of(tir.AttrStmt)
def _attr_stmt(node: tir.AttrStmt, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    defined = None
    body, body_path = node.body, path.attr("body")
    if node.attr_key == "realize_scope" and isinstance(body, tir.BufferRealize) and body.buffer is node.node:
        rhs = _realize_call(body, d.doc(node.value, path.attr("value")), body_path, d)
        body, body_path = body.body, body_path.attr("body")
    elif node.attr_key in ("thread_extent", "virtual_thread") and isinstance(node.node, tir.IterVar):
        rhs, defined = _launch_thread(node, node.node, path, d)
    else:
        rhs = d.prefix("tir", "attr").call(
            d.doc(node.node, path.attr("node")),
            LiteralDoc(node.attr_key, path.attr("attr_key")),
            d.doc(node.value, path.attr("value")),
        )
    with Frame(d, "tir", node) as frame:
        lhs = define_var(defined, frame, d) if defined is not None else None
        body_into(body, body_path, frame, d)
        return _scoped(lhs, rhs, frame.stmts, concise)


@printer_of(tir.AssertStmt)
def _assert_stmt(node: tir.AssertStmt, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    cond = d.doc(node.condition, path.attr("condition"))
    msg = d.doc(node.message, path.attr("message"))
    with Frame(d, "tir", node) as frame:
        body_into(node.body, path.attr("body"), frame, d)
        if concise:
            return StmtBlockDoc([AssertDoc(cond, msg), *frame.stmts])
        return ScopeDoc(None, d.prefix("tir", "Assert").call(cond, msg), frame.stmts)


@printer_of(tir.While)
def _while(node: tir.While, path: ObjectPath, d: Docsifier) -> Doc:
    cond = d.doc(node.condition, path.attr("condition"))
    with Frame(d, "tir", node) as frame:
        body_into(node.body, path.attr("body"), frame, d)
        return WhileDoc(cond, frame.stmts)


@printer_of(tir.IfThenElse)
def _if(node: tir.IfThenElse, path: ObjectPath, d: Docsifier) -> Doc:
    cond = d.doc(node.condition, path.attr("condition"))
    with Frame(d, "tir", node.then_case) as then:
        body_into(node.then_case, path.attr("then_case"), then, d)
    otherwise: list[StmtDoc] = []
    if node.else_case is not None:
        with Frame(d, "tir", node.else_case) as frame:
            body_into(node.else_case, path.attr("else_case"), frame, d)
        otherwise = frame.stmts
    return IfDoc(cond, then.stmts, otherwise)


@printer_of(tir.SeqStmt)
def _seq(node: SeqStmt, path: ObjectPath, d: Docsifier) -> Doc:
    with Frame(d, "tir", node) as frame:
        body_into(node, path, frame, d)
        return StmtBlockDoc(frame.stmts)


@printer_of(tir.BufferStore)
def _buffer_store(node: tir.BufferStore, path: ObjectPath, d: Docsifier) -> Doc:
    buffer = d.doc(node.buffer, path.attr("buffer"))
    value = d.doc(node.value, path.attr("value"))
    if node.predicate is not None:
        indices = d.doc(node.indices, path.attr("indices"))
        predicate = d.doc(node.predicate, path.attr("predicate"))
        return ExprStmtDoc(buffer.attr("vstore").call(indices, value, predicate=predicate))
    return assign(buffer[buffer_indices(node.indices, path.attr("indices"), d)], value)


def _realize_call(node: BufferRealize, scope: LiteralDoc | None, path: ObjectPath, d: Docsifier) -> ExprDoc:
    buffer = d.doc(node.buffer, path.attr("buffer"))
    bounds: list[Doc] = []
    for i, bound in enumerate(node.bounds):
        where = path.attr("bounds").array_index(i)
        low = d.doc(bound.min, where.attr("min"))
        bounds.append(SliceDoc(low, d.doc(bound.min + bound.extent, where.attr("extent"))))
    args = [buffer[bounds]]
    if scope is not None:
        args.append(scope)
    if is_one(node.condition):
        return d.prefix("tir", "realize").call(*args)
    return d.prefix("tir", "realize").call(*args, condition=d.doc(node.condition, path.attr("condition")))


@printer_of(tir.BufferRealize)
def _buffer_realize(node: BufferRealize, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    rhs = _realize_call(node, None, path, d)
    with Frame(d, "tir", node) as frame:
        body_into(node.body, path.attr("body"), frame, d)
        return _scoped(None, rhs, frame.stmts, concise)


@printer_of(tir.ProducerStore)
def _producer_store(node: tir.ProducerStore, path: ObjectPath, d: Docsifier) -> Doc:
    name = IdDoc(getattr(node.producer, "name", None) or "producer")
    value = d.doc(node.value, path.attr("value"))
    return assign(name[buffer_indices(node.indices, path.attr("indices"), d)], value)


@printer_of(tir.ProducerRealize)
def _producer_realize(node: tir.ProducerRealize, path: ObjectPath, d: Docsifier) -> Doc:
    name = IdDoc(getattr(node.producer, "name", None) or "producer")
    region = name[buffer_slices(node.bounds, path.attr("bounds"), d)]
    cond = d.doc(node.condition, path.attr("condition"))
    with Frame(d, "tir", node) as frame:
        body_into(node.body, path.attr("body"), frame, d)
        rhs = d.prefix("tir", "ProducerRealize").call(region, cond)
        return ScopeDoc(None, rhs, frame.stmts)


@printer_of(tir.Prefetch)
def _prefetch(node: tir.Prefetch, path: ObjectPath, d: Docsifier) -> Doc:
    return ExprStmtDoc(
        d.prefix("tir", "prefetch").call(
            d.doc(node.buffer, path.attr("buffer")), d.doc(node.bounds, path.attr("bounds"))
        )
    )


def _declared_allocation(node: Allocate) -> DeclBuffer | None:
    """The buffer declared right inside an allocation, where the two may be printed as one."""
    decl = node.body
    if not isinstance(decl, tir.DeclBuffer) or decl.buffer.data is not node.buffer_var:
        return None
    buffer = decl.buffer
    if node.dtype != buffer.dtype or not is_one(node.condition) or node.annotations:
        return None
    if len(node.extents) != len(buffer.shape):
        return None
    from ...ir.structural import structural_equal

    return decl if all(structural_equal(a, b) for a, b in zip(node.extents, buffer.shape)) else None


def _decl(node: DeclBuffer, path: ObjectPath, d: Docsifier, concise: bool, defines_data: bool) -> Doc:
    rhs = buffer_decl(node.buffer, "decl_buffer", [], path.attr("buffer"), d.frames[-1], d, defines_data)
    with Frame(d, "tir", node) as frame:
        lhs = define_buffer(node.buffer, frame, d)
        body_into(node.body, path.attr("body"), frame, d)
        return _scoped(lhs, rhs, frame.stmts, concise)


@printer_of(tir.DeclBuffer)
def _decl_buffer(node: DeclBuffer, path: ObjectPath, d: Docsifier) -> Doc:
    return _decl(node, path, d, _concise(d, node), False)


@printer_of(tir.Allocate)
def _allocate(node: tir.Allocate, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    declared = _declared_allocation(node) if d.cfg.syntax_sugar else None
    if declared is not None:
        return _decl(declared, path.attr("body"), d, concise, True)
    scope = getattr(node.buffer_var.type_annotation, "storage_scope", "") or "global"
    args = [
        d.doc(node.extents, path.attr("extents")),
        LiteralDoc(node.dtype, path.attr("dtype")),
        LiteralDoc(scope, path.attr("buffer_var").attr("type_annotation").attr("storage_scope")),
    ]
    if not is_one(node.condition):
        args.append(d.doc(node.condition, path.attr("condition")))
    notes = {"annotations": d.doc(node.annotations, path.attr("annotations"))} if node.annotations else {}
    lhs = define_var(node.buffer_var, d.frames[-1], d)
    with Frame(d, "tir", node) as frame:
        rhs = d.prefix("tir", "allocate").call(*args, **notes)
        body_into(node.body, path.attr("body"), frame, d)
        return _scoped(lhs, rhs, frame.stmts, concise)


# Longer constants are cut.
_MOST_CONSTANTS = 201


@printer_of(tir.AllocateConst)
def _allocate_const(node: tir.AllocateConst, path: ObjectPath, d: Docsifier) -> Doc:
    concise = _concise(d, node)
    data = node.data_or_idx
    if hasattr(data, "numpy"):
        data = data.numpy()
    shown: ExprDoc
    if hasattr(data, "ravel"):
        flat = data.ravel()[:_MOST_CONSTANTS].tolist()
        shown = ListDoc([LiteralDoc(v) for v in flat])
    else:
        shown = d.doc(data, path.attr("irmod_storage_idx"))
    args = [
        shown,
        LiteralDoc(node.dtype, path.attr("dtype")),
        d.doc(node.extents, path.attr("extents")),
    ]
    notes = {"annotations": d.doc(node.annotations, path.attr("annotations"))} if node.annotations else {}
    rhs = d.prefix("tir", "allocate_const").call(*args, **notes)
    with Frame(d, "tir", node) as frame:
        lhs = define_var(node.buffer_var, frame, d)
        body_into(node.body, path.attr("body"), frame, d)
        return _scoped(lhs, rhs, frame.stmts, concise)


def _grid(loop: Stmt) -> list[For]:
    """The perfectly nested plain loops from ``loop`` down, none bounded by another's variable."""
    found: list[For] = []
    variables: set[int] = set()
    while isinstance(loop, tir.For):
        if loop.kind != tir.ForKind.SERIAL or not is_zero(loop.min) or loop.annotations:
            break
        if mentions(loop.extent, variables):
            break
        found.append(loop)
        variables.add(id(loop.loop_var))
        loop = loop.body
    return found


_KINDS = {1: "parallel", 2: "vectorized", 3: "unroll", 4: "thread_binding"}


@printer_of(tir.For)
def _for(node: tir.For, path: ObjectPath, d: Docsifier) -> Doc:
    grid = _grid(node) if d.cfg.syntax_sugar else []
    with Frame(d, "tir", node) as frame:
        if len(grid) > 1:
            names, extents = [], []
            for loop in grid:
                names.append(define_var(loop.loop_var, frame, d))
                extents.append(d.doc(loop.extent, path.attr("extent")))
                path = path.attr("body")
            body_into(grid[-1].body, path, frame, d)
            return ForDoc(TupleDoc(names), d.prefix("tir", "grid").call(*extents), frame.stmts)
        lhs = define_var(node.loop_var, frame, d)
        args: list[ExprDoc] = []
        if is_zero(node.min):
            args.append(d.doc(node.extent, path.attr("extent")))
        else:
            args.append(d.doc(node.min, path.attr("min")))
            args.append(d.doc(node.min + node.extent, path.attr("extent")))
        prefix: ExprDoc
        if int(node.kind) == 0:
            prefix = d.prefix("tir", "serial") if node.annotations else IdDoc("range")
        else:
            prefix = d.prefix("tir", _KINDS[int(node.kind)])
        kwargs: dict[str, ExprDoc] = {}
        if node.kind == tir.ForKind.THREAD_BINDING and node.thread_binding is not None:
            kwargs["thread"] = LiteralDoc(node.thread_binding.thread_tag, path.attr("thread_binding"))
        if node.annotations:
            kwargs["annotations"] = d.doc(node.annotations, path.attr("annotations"))
        rhs = prefix.call(*args, **kwargs)
        body_into(node.body, path.attr("body"), frame, d)
        return ForDoc(lhs, rhs, frame.stmts)
