"""LiftThreadBinding, UnifyThreadBinding and InjectVirtualThread-free helpers for thread loops.

UnifyThreadBinding, before: two loops over different variables, both bound to ``threadIdx.x``.
After: one variable for ``threadIdx.x`` in the whole function.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...ir.expr import Range
from ...ir.prim import IterVar, Var
from ..function import PrimFunc
from ..functor import Substitute
from ..stmt import AttrStmt, For, ForKind
from .base import PrimFuncPass, func_pass


class _Unify(Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.threads: dict[str, IterVar] = {}
        self.launched: list[tuple[IterVar, Any]] = []
        self.depth = 0
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Any:
        binding = loop.thread_binding
        if loop.kind != ForKind.THREAD_BINDING or binding is None or binding.thread_tag.startswith("vthread"):
            return super().default_visit(loop)
        if binding.thread_tag == "vthread":
            return super().default_visit(loop)
        return self._thread(binding.thread_tag, loop.loop_var, self.visit(loop.min), self.visit(loop.extent), loop.body)

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key != "thread_extent" or attr.node.thread_tag.startswith("vthread"):
            return super().default_visit(attr)
        return self._thread(attr.node.thread_tag, attr.node.var, None, self.visit(attr.value), attr.body)

    def _thread(self, tag: str, var: Var, low: Any, extent: Any, body: Any) -> Any:
        known = self.threads.get(tag)
        if known is None:
            fresh = Var(tag, var.dtype)
            known = IterVar(Range.from_min_extent(B.const(extent.dtype, 0), extent), fresh, IterVar.ThreadIndex, tag)
            self.threads[tag] = known
            self.launched.append((known, extent))
        else:
            assert known.dom is not None
            if not self.analyzer.can_prove_equal(known.dom.extent, extent):
                raise ValueError(
                    f"ValueError: All loops that are bound to `{tag}` should have the same extent. However, there are "
                    f"two loops with extent {known.dom.extent} and {extent}, which are not equal"
                )
        value: Any = B.cast(var.dtype, known.var)
        if low is not None and not B.is_zero(low):
            value = B.add(value, low)
        self.values[var] = value
        outermost = self.depth == 0
        self.depth += 1
        made = self.visit(body)
        self.depth -= 1
        if not outermost:
            return made
        for iv, size in reversed(self.launched):
            made = AttrStmt(iv, "thread_extent", size, made)
        self.launched = []
        return made


def unify(func: PrimFunc) -> PrimFunc:
    """One variable per thread axis."""
    body = _Unify().visit(func.body)
    return func if body is func.body else func.with_body(body)


def UnifyThreadBinding() -> PrimFuncPass:  # noqa: N802
    """Unify all loops bound to the same thread axis."""
    return func_pass(unify, "tir.UnifyThreadBinding")
