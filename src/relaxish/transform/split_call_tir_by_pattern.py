"""SplitCallTIRByPattern: the part of a fused kernel that a library can compute becomes a call of that library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.attrs import DictAttrs
from ..ir.expr import GlobalVar, PrimExpr
from ..ir.functor import pre_order_visit
from ..ir.module import IRModule
from ..ir.op import Op
from ..relax.expr import Call, Expr, ExternFunc, Tuple, is_call_of
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.struct_info import TensorStructInfo, fields_of
from ..support.errors import RelaxishError
from ..tir import Block, BlockRealize, Buffer, PrimFunc, SeqStmt, Var
from ..tir.functor import renew_defs
from ..tir.stmt import Stmt, stmt_list
from .tir_pattern_match import MatchResult, match_leading_loops
from ..ir.plain import plain_int
from ..ir.declared_pass import ModuleRewrite

__all__ = ["FCodegen", "SplitCallTIRByPattern"]

#: From the matches to source text, how many of them it computes, and the buffers it reads.
FCodegen = Callable[[list[MatchResult]], Sequence[Any]]


@dataclass
class _Split:
    """A library's source, the kernel of the rest, and the arguments of each; no kernel if nothing is left."""

    source: str
    library_args: list[int]
    middle: Buffer | None = None
    rest: PrimFunc | None = None
    rest_args: list[int] | None = None


def _blocks(stmt: Stmt) -> list[Block]:
    found: list[Block] = []

    def visit(node: Stmt | PrimExpr) -> bool:
        if isinstance(node, Block):
            found.append(node)
            return False
        return True

    pre_order_visit(stmt, visit)
    return found


class _Parts:
    """What the nests that the library computes and the other ones read and write."""

    def __init__(self, nests: Sequence[Any], matched: int) -> None:
        self.library: list[Any] = []
        self.rest: list[Any] = []
        self.reads: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.rest_writes: set[Buffer] = set()
        self.rest_uses: set[Buffer] = set()
        self.middle: Buffer | None = None
        count = 0
        for nest in nests:
            blocks = _blocks(nest)
            count += len(blocks)
            (self.library if count <= matched else self.rest).append(nest)
            for block in blocks:
                reads, writes = {r.buffer for r in block.reads}, [w.buffer for w in block.writes]
                if count <= matched:
                    self.reads |= reads
                    self.written.update(writes)
                    self.middle = writes[-1] if writes else self.middle
                else:
                    self.rest_uses |= reads | set(writes)
                    self.rest_writes.update(writes)


def _split(func: PrimFunc, patterns: Sequence[PrimFunc], codegen: FCodegen) -> _Split | None:
    """How a kernel splits, or None if it stays."""
    if not isinstance(func.body, BlockRealize):
        return None
    root = func.body.block
    matches = match_leading_loops(patterns, root.body)
    if not matches:
        return None
    result = codegen(matches)
    if len(result) != 3:
        raise RelaxishError("the code generator gives the source, the number of operators and the buffers it reads")
    source, buffers = str(result[0]), list(result[2])
    matched = plain_int(result[1])
    if matched == 0:
        return None
    parts = _Parts(stmt_list(root.body), matched)
    if parts.written & parts.rest_writes:
        return None
    if not parts.rest:
        return _Split(source, [])
    if any(buffer not in parts.reads for buffer in buffers):
        raise RelaxishError("the code generator names a buffer that the matched operators do not read")
    params = [func.buffer_map.get(p) for p in func.params]
    own = [params.index(buffer) for buffer in buffers if buffer in params]
    assert parts.middle is not None
    taken = Var("input", "handle")
    used = [i for i, buffer in enumerate(params) if buffer in parts.rest_uses]
    body = parts.rest[0] if len(parts.rest) == 1 else SeqStmt(parts.rest)
    kept = [b for b in root.alloc_buffers if b in parts.rest_writes]
    realize = func.body.with_fields(block=root.with_fields(body=body, alloc_buffers=kept))
    buffer_map = {taken: parts.middle, **{func.params[i]: func.buffer_map[func.params[i]] for i in used}}
    rest = PrimFunc([taken, *(func.params[i] for i in used)], realize, func.ret_type, buffer_map, func.attrs)
    return _Split(source, own, parts.middle, renew_defs(rest), [i for i in used if i != len(params) - 1])


class _Splitter(PyExprMutator):
    def __init__(self, mod: IRModule, patterns: Sequence[PrimFunc], codegen: FCodegen) -> None:
        super().__init__(mod)
        self.mod = mod
        self.patterns = patterns
        self.codegen = codegen

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir") or not isinstance(call.args[0], GlobalVar):
            return call
        name = call.args[0]
        func = self.mod[name]
        split = _split(func, self.patterns, self.codegen)
        if split is None:
            return op
        library = ExternFunc(name.name_hint)
        source = split.source.replace("{global_symbol}", name.name_hint)
        library.attrs = DictAttrs({"c_source": source, "c_source_fmt": "cu"})
        packed = Op.get("relax.call_dps_packed")
        if split.rest is None or split.middle is None:
            self.builder_.update_func(name, library)
            return Call(packed, (library, call.args[1]), call.attrs, call.sinfo_args, call.span)
        args = fields_of(call.args[1])
        info = TensorStructInfo(list(split.middle.shape), split.middle.dtype)
        first = Call(packed, (library, Tuple([args[i] for i in split.library_args])), call.attrs, [info])
        made = self.builder_.emit(first)
        rest = self.builder_.add_func(split.rest, "unfused_epilogue")
        self.builder_.update_func(name, func.without_attr("global_symbol"))
        others = Tuple([made, *(args[i] for i in split.rest_args or ())])
        return Call(call.op, (rest, others), call.attrs, call.sinfo_args, call.span)


class SplitCallTIRByPattern(ModuleRewrite):
    """Carve what matches ``patterns`` at the start of a fused kernel out to a library.

    ``fcodegen(matches)`` gets the matches of the first loop nests and returns ``[source, count, buffers]``: the source
    text of a library function (``{global_symbol}`` in it stands for the kernel's name), how many of the operators it
    computes (0: leave the kernel alone), and the buffers it reads.

    ::

        y = R.call_tir(cls.matmul_relu, (x, w), ...)

        lv = R.call_dps_packed("matmul_relu", (x, w), ...)
        y = R.call_tir(cls.unfused_epilogue, (lv,), ...)

    A kernel that the library computes whole becomes the external function itself.
    """

    patterns: Sequence[PrimFunc]
    fcodegen: FCodegen

    def rewrite(self, mod: IRModule) -> IRModule:
        splitter = _Splitter(mod, list(self.patterns), self.fcodegen)
        return rewrite_functions(splitter, mod)
