"""Removing bindings whose values nobody uses."""

from __future__ import annotations

from typing import Any

from ..expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
)
from .variables import contains_impure_call, direct_uses, is_impure_call

__all__ = ["remove_all_unused", "remove_all_unused_in"]


def _has_effect(binding: Any) -> bool:
    """Whether the binding must stay though its variable is unused."""
    if isinstance(binding, MatchCast):
        return True
    value = binding.value
    if isinstance(value, Call):
        return is_impure_call(value)
    return isinstance(value, If) and contains_impure_call(value)


class _Remover:
    """Walks a sequence backwards, keeping what is live."""

    def __init__(self) -> None:
        self.live: set[Var] = set()

    def use(self, value: Any) -> None:
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
        dataflow = isinstance(block, DataflowBlock)
        for binding in reversed(block.bindings):
            if binding.var not in self.live and not _has_effect(binding):
                continue
            new = self.binding(binding)
            self.use(new.value)
            kept.append(new)
        kept.reverse()
        if len(kept) == len(block.bindings) and all(a is b for a, b in zip(kept, block.bindings)):
            return block
        return DataflowBlock(kept, block.span) if dataflow else BindingBlock(kept, block.span)

    def binding(self, binding: Any) -> Any:
        value = binding.value
        if isinstance(value, If):
            true_branch = self.nested(value.true_branch)
            false_branch = self.nested(value.false_branch)
            if true_branch is value.true_branch and false_branch is value.false_branch:
                return binding
            made = If(value.cond, true_branch, false_branch, value.span)
            made.struct_info_ = value.struct_info_
            return VarBinding(binding.var, made, binding.span)
        if isinstance(value, Function):
            new = remove_all_unused(value)
            return binding if new is value else VarBinding(binding.var, new, binding.span)
        return binding

    def nested(self, seq: SeqExpr) -> SeqExpr:
        """A branch: its own liveness plus what it uses from outside."""
        inner = _Remover()
        new = inner.sequence(seq)
        self.live |= inner.live
        return new


def remove_all_unused(func: Any) -> Any:
    """The function (or dataflow block) without pure bindings that nobody uses."""
    if isinstance(func, DataflowBlock):
        remover = _Remover()
        remover.live = {b.var for b in func.bindings if type(b.var) is Var}
        return remover.block(func)
    body = _Remover().sequence(func.body)
    if body is func.body:
        return func
    return Function(func.params, body, func.ret_struct_info, func.is_pure, func.attrs, func.span)


def remove_all_unused_in(expr: Any) -> Any:
    """The function, dataflow block or sequence without pure bindings that nobody uses."""
    return _Remover().sequence(expr) if isinstance(expr, SeqExpr) else remove_all_unused(expr)
