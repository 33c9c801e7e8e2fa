"""UnifyThreadBinding: one loop for each thread axis of a kernel."""

from __future__ import annotations


from ....arith import Analyzer
from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IterVar, Var
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import AttrStmt, For, ForKind, Stmt
from ..base import LoweringError, SeqMutator, FunctionRewrite


class _Unify(SeqMutator, Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.threads: dict[str, IterVar] = {}
        self.launched: list[IterVar] = []
        self.depth = 0
        self.blocks = 0
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Stmt:
        binding = loop.thread_binding
        if loop.kind != ForKind.THREAD_BINDING or binding is None:
            return self.default_visit(loop)
        made = self._thread(binding, loop.loop_var, loop.extent, loop.body)
        if not loop.annotations:
            return made
        if isinstance(made, For):
            return made.with_fields(annotations={**made.annotations, **loop.annotations})
        # The loop is gone into another one; a loop of one iteration carries what was said of it.
        dtype = loop.loop_var.dtype
        one = B.const(dtype, 1)
        return For(Var("var", dtype), B.const(dtype, 0), one, ForKind.SERIAL, made, None, loop.annotations)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key not in ("thread_extent", "virtual_thread"):
            return self.default_visit(attr)
        return self._thread(attr.node, attr.node.var, attr.value, attr.body)

    def _thread(self, binding: IterVar, var: Var, extent: PrimExpr, body: Stmt) -> Stmt:
        tag = binding.thread_tag
        outermost = self.depth == 0
        is_block = tag.startswith("blockIdx.")
        # Another kernel may have threads of other extents.
        if outermost or (is_block and not self.blocks):
            self.threads = {} if outermost else {t: iv for t, iv in self.threads.items() if iv in self.launched}
        self.values[var] = B.cast(var.dtype, self._axis(binding, self.visit(extent)).var)
        self.depth += 1
        self.blocks += is_block
        made = self.visit(body)
        self.blocks -= is_block
        self.depth -= 1
        return self._launch(made) if outermost else made

    def _axis(self, binding: IterVar, extent: PrimExpr) -> IterVar:
        tag = binding.thread_tag
        known = self.threads.get(tag)
        if known is None:
            dom = Range.from_min_extent(B.const(extent.dtype, 0), extent)
            known = self.threads[tag] = IterVar(dom, Var(tag, extent.dtype), binding.iter_type, tag)
            self.launched.append(known)
        elif not self.analyzer.can_prove_equal(known.dom.extent, extent):
            raise LoweringError(
                f"ValueError: All loops that are bound to `{tag}` should have the same extent. However, there are two "
                f"loops with extent {known.dom.extent} and {extent}, which are not equal"
            )
        return known

    def _launch(self, body: Stmt) -> Stmt:
        for iv in reversed(self.launched):
            assert iv.dom is not None
            binding = IterVar(None, Var("", iv.var.dtype), IterVar.ThreadIndex, iv.thread_tag)
            body = For(iv.var, iv.dom.min, iv.dom.extent, ForKind.THREAD_BINDING, body, binding)
        self.launched = []
        return body


def unify(func: PrimFunc) -> PrimFunc:
    """One loop per thread axis."""
    body = _Unify().visit(func.body)
    return func if body is func.body else func.with_body(body)


class UnifyThreadBinding(FunctionRewrite):
    """Unify all loops bound to the same thread axis.

    Before::

        for i in T.thread_binding(128, thread="blockIdx.x"):
            for j in T.thread_binding(4, thread="threadIdx.x"):
                B[i, j] = A[i, j]
            for k in T.thread_binding(4, thread="threadIdx.x"):
                C[i, k] = A[i, k]

    After::

        for blockIdx_x in T.thread_binding(128, thread="blockIdx.x"):
            for threadIdx_x in T.thread_binding(4, thread="threadIdx.x"):
                B[blockIdx_x, threadIdx_x] = A[blockIdx_x, threadIdx_x]
                C[blockIdx_x, threadIdx_x] = A[blockIdx_x, threadIdx_x]

    Raises ValueError where two loops of one axis differ in extent.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return unify(func)
