"""SplitLayoutRewritePreproc: repacking of weights that tuning put into a kernel becomes a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.functor import Mutator
from ..ir.module import IRModule
from ..relax.call_forms import call_tir
from ..relax.expr import Call, Expr, Tuple, TupleGetItem, is_call_of
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.struct_info import TensorStructInfo
from ..tir import Block, BlockRealize, Buffer, IntImm, PrimFunc, stmt_seq, Stmt, Var
from ..tir.functor import renew_defs
from ..tir.stmt import stmt_list
from .dead_code_elimination import eliminate
from ..ir.plain import plain_bool, plain_int
from ..ir.declared_pass import ModuleRewrite

__all__ = ["SplitLayoutRewritePreproc"]

_MARK = "meta_schedule.layout_rewrite_preproc"


def _is_marked(block: Block) -> bool:
    mark = (block.annotations or {}).get(_MARK)
    return plain_bool(mark)


@dataclass
class _RepackedArgument:
    """One repacked argument: its place among the parameters, the buffer as given, the buffer as repacked."""

    index: int
    before: Buffer
    after: Buffer


class _Separator(Mutator):
    """Walks a scheduled body; statements that repack are taken out and remembered."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.rewrites: list[_RepackedArgument] = []
        self.preproc: list[Stmt] = []
        self._inside = 0

    def visit_Block(self, block: Block) -> Block:
        made: Block = self.default_visit(block)
        if not _is_marked(block):
            return made
        before, after = block.reads[0].buffer, block.writes[0].buffer
        buffers = [self.func.buffer_map.get(p) for p in self.func.params]
        self.rewrites.append(_RepackedArgument(buffers.index(before), before, after))
        self._inside += 1
        return made.with_fields(annotations={k: v for k, v in made.annotations.items() if k != _MARK})

    def split_root(self, root: Block) -> Block:
        """The root block without the repacking statements."""
        kept: list[Stmt] = []
        for stmt in stmt_list(root.body):
            self._inside = 0
            new = self.visit(stmt)
            (self.preproc if self._inside else kept).append(new)
        gone = {r.after for r in self.rewrites}
        body = stmt_seq(*kept)
        return root.with_fields(body=body, alloc_buffers=[b for b in root.alloc_buffers if b not in gone])


def _attrs(func: PrimFunc, suffix: str, keep_free: Sequence[int] | None) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in func.attrs.items():
        if key == "global_symbol":
            out[key] = f"{value}{suffix}"
        elif key == "layout_free_buffers":
            if keep_free:
                out[key] = [IntImm("int32", i) for i in keep_free]
        else:
            out[key] = value
    return out


def _function(buffers: Sequence[tuple[Var, Buffer | None]], body: Stmt, attrs: dict[str, Any]) -> PrimFunc:
    params = [p for p, _ in buffers]
    made = PrimFunc(params, body, None, {p: b for p, b in buffers if b is not None}, attrs)
    renewed: PrimFunc = renew_defs(made)
    return renewed


def _split(func: PrimFunc) -> tuple[PrimFunc, PrimFunc, list[_RepackedArgument]] | None:
    """The repacking function, the computing function and what is repacked; None if nothing is."""
    if not isinstance(func.body, BlockRealize):
        return None
    separator = _Separator(func)
    root = separator.split_root(func.body.block)
    if not separator.preproc:
        return None
    rewrites = separator.rewrites
    stmts = separator.preproc
    plain = Block([], [], [], "root", stmt_seq(*stmts))
    sources = [(Var(r.before.name, "handle"), r.before) for r in rewrites]
    targets = [(Var(r.after.name, "handle"), r.after) for r in rewrites]
    preproc = _function(
        [*sources, *targets], BlockRealize([], IntImm("bool", 1), plain), _attrs(func, "_weight_prepack", None)
    )
    replaced = {r.index: target for r, target in zip(rewrites, targets)}
    params = [replaced.get(i, (p, func.buffer_map.get(p))) for i, p in enumerate(func.params)]
    free = [plain_int(v) for v in func.attrs.get("layout_free_buffers") or ()]
    left = [i for i in free if i not in replaced]
    compute = _function(params, func.body.with_fields(block=root), _attrs(func, "_prepacked", left))
    return preproc, compute, rewrites


class _Splitter(PyExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.parts: dict[Any, tuple[Any, Any, list[_RepackedArgument]]] = {}
        for var, func in list(mod.functions.items()):
            parts = _split(func) if isinstance(func, PrimFunc) else None
            if parts is not None:
                preproc = self.builder_.add_func(parts[0], f"{var.name_hint}_weight_prepack")
                compute = self.builder_.add_func(parts[1], f"{var.name_hint}_prepacked")
                self.parts[var.name_hint] = (preproc, compute, parts[2])

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir") or not isinstance(call.args[1], Tuple):
            return call
        parts = self.parts.get(call.args[0].name_hint)
        if parts is None:
            return call
        preproc, compute, rewrites = parts
        args = list(call.args[1].fields)
        infos = [TensorStructInfo(list(r.after.shape), r.after.dtype) for r in rewrites]
        packed = self.builder_.emit(call_tir(preproc, Tuple([args[r.index] for r in rewrites]), infos))
        for position, rewrite in enumerate(rewrites):
            item: Any = packed if len(rewrites) == 1 else TupleGetItem(packed, position)
            args[rewrite.index] = item
        made = Call(call.op, (compute, Tuple(args), *call.args[2:]), call.attrs, call.sinfo_args, call.span)
        return self.builder_.emit(made)


class SplitLayoutRewritePreproc(ModuleRewrite):
    """Separate the repacking of weights from the kernels that use them.

    ::

        y = R.call_tir(cls.matmul, (x, w), ...)   # repacks w into w_t, then multiplies

        w1 = R.call_tir(cls.matmul_weight_prepack, (w,), ...)
        y1 = R.call_tir(cls.matmul_prepacked, (x, w1), ...)
        y = y1

    The repacking then depends on the weight alone, so LiftTransformParams or FoldConstant can do it once.
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        splitter = _Splitter(mod)
        if not splitter.parts:
            return mod
        return eliminate(rewrite_functions(splitter, mod))
