"""Removing bindings whose values nobody uses.

Some operators count as pure although what they call may write its arguments (``call_pure_packed`` and the in-place
calls): the author vouches for them. Passes by themselves take the author's word and remove such a call when its value is
unused; pipelines that build a program run under :func:`keep_vouched_calls`, so that a call written outside of dataflow
blocks, where statements happen in their order, is not lost with what it writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from ...ir.op import op_name_of
from ..expr import Binding, BindingBlock, Call, DataflowBlock, Expr, Function, If, MatchCast, SeqExpr, Var, VarBinding
from ..expr_functor import PyExprVisitor
from .variables import contains_impure_call, direct_uses, is_impure_call

__all__ = ["keep_vouched_calls", "keeps_vouched_calls", "may_write", "remove_all_unused", "remove_all_unused_in"]

_KEEP: ContextVar[bool] = ContextVar("keep_vouched_calls", default=False)

# Operators that run what is not known here, pure by the author's word.
_VOUCHED = frozenset(
    "relax." + name
    for name in (
        "call_pure_packed", "call_inplace_packed", "call_tir_inplace", "call_dps_packed", "invoke_pure_closure",
    )
)  # fmt: skip


@contextlib.contextmanager
def keep_vouched_calls() -> Iterator[None]:
    """Passes run in this scope keep calls outside of dataflow blocks whose purity is only the author's word."""
    token = _KEEP.set(True)
    try:
        yield
    finally:
        _KEEP.reset(token)


def keeps_vouched_calls() -> bool:
    """Whether the scope of :func:`keep_vouched_calls` is open."""
    return _KEEP.get()


class _Writes(PyExprVisitor):
    """Looks for calls that are impure or pure only by the author's word."""

    def __init__(self) -> None:
        self.found = False

    def visit_function_(self, op: Function) -> None:
        """The body of a local function runs only where it is called."""

    def visit_call_(self, op: Call) -> None:
        if is_impure_call(op) or not op_name_of(op) or op.op.name in _VOUCHED:
            self.found = True


def may_write(value: Expr) -> bool:
    """Whether computing a value may change what other variables hold, whatever its purity says."""
    finder = _Writes()
    finder.visit_expr(value)
    return finder.found


def _has_effect(binding: Binding, dataflow: bool) -> bool:
    """Whether the binding must stay though its variable is unused."""
    if isinstance(binding, MatchCast):
        return True
    value = binding.value
    match value:
        case Call() | If() if not dataflow and _KEEP.get():
            return may_write(value)
        case Call():
            return is_impure_call(value)
    return isinstance(value, If) and contains_impure_call(value)


class _Remover:
    """Walks a sequence backwards, keeping what is live."""

    def __init__(self) -> None:
        self.live: set[Var] = set()

    def use(self, value: Expr) -> None:
        self.live.update(direct_uses(value))
        info = getattr(value, "struct_info_", None)
        shape = getattr(info, "shape", None)
        if isinstance(shape, Var):
            self.live.add(shape)

    def sequence(self, seq: SeqExpr) -> SeqExpr:
        self.use(seq.body)
        blocks: list[BindingBlock] = []
        for block in reversed(seq.blocks):
            new = self.block(block)
            if new.bindings:
                blocks.append(new)
        blocks.reverse()
        if len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks)):
            return seq
        from ..normalizer import merge_blocks

        made = SeqExpr(merge_blocks(blocks), seq.body, seq.span)
        made.struct_info_ = seq.struct_info_
        return made

    def block(self, block: BindingBlock) -> BindingBlock:
        kept: list[Any] = []
        dataflow = block.is_dataflow
        for binding in reversed(block.bindings):
            if binding.var not in self.live and not _has_effect(binding, dataflow):
                continue
            new = self.binding(binding)
            self.use(new.value)
            kept.append(new)
        kept.reverse()
        if len(kept) == len(block.bindings) and all(a is b for a, b in zip(kept, block.bindings)):
            return block
        return DataflowBlock(kept, block.span) if dataflow else BindingBlock(kept, block.span)

    def binding(self, binding: Any) -> Binding:
        value = binding.value
        match value:
            case If():
                true_branch = self.nested(value.true_branch)
                false_branch = self.nested(value.false_branch)
                if true_branch is value.true_branch and false_branch is value.false_branch:
                    return binding
                made = If(value.cond, true_branch, false_branch, value.span)
                made.struct_info_ = value.struct_info_
                return VarBinding(binding.var, made, binding.span)
            case Function():
                new = remove_all_unused(value)
                return binding if new is value else VarBinding(binding.var, new, binding.span)
        return binding

    def nested(self, seq: SeqExpr) -> SeqExpr:
        """A branch: its own liveness plus what it uses from outside."""
        inner = _Remover()
        new = inner.sequence(seq)
        self.live |= inner.live
        return new


def remove_all_unused(func: Function | BindingBlock) -> Any:
    """The function (or block, whose ordinary variables others may use) without pure bindings that nobody uses."""
    if isinstance(func, BindingBlock):
        remover = _Remover()
        remover.live = {b.var for b in func.bindings if type(b.var) is Var}
        return remover.block(func)
    if not isinstance(func.body, SeqExpr):  # not normalised: nothing is bound
        return func
    body = _Remover().sequence(func.body)
    if body is func.body:
        return func
    return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


def remove_all_unused_in(expr: Function | DataflowBlock | SeqExpr) -> Any:
    """The function, dataflow block or sequence without pure bindings that nobody uses."""
    return _Remover().sequence(expr) if isinstance(expr, SeqExpr) else remove_all_unused(expr)
