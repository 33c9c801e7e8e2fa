"""LiftThreadBinding: thread loops move out to the innermost loop that holds all loops of their axis."""

from __future__ import annotations

from typing import Any

from ....arith import build as B
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor
from ....ir.prim import Cast, IntImm, IterVar, Var
from ...buffer import Buffer
from ...function import PrimFunc
from ...functor import Substitute
from ...stmt import For, ForKind, Stmt
from ..base import LoweringError, FunctionRewrite


def _same_number(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two bounds are equal, of whatever integer types."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return B.deep_equal(a, b)


class _Find(Visitor):
    """For every thread axis below a kernel's root: its variable, and the path of loops common to its loops."""

    def __init__(self) -> None:
        self.stack: list[For] = []
        self.paths: dict[str, list[For]] = {}
        self.axes: dict[str, IterVar] = {}
        self.annotations: dict[str, dict[str, Any]] = {}
        self.values: dict[Var, PrimExpr] = {}

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def visit_Buffer(self, buffer: Buffer) -> None:
        return

    def visit_For(self, loop: For) -> None:
        self.stack.append(loop)
        self.visit(loop.body)
        if loop.kind == ForKind.THREAD_BINDING:
            self._note(loop)
        self.stack.pop()

    def _note(self, loop: For) -> None:
        assert loop.thread_binding is not None
        tag = loop.thread_binding.thread_tag
        self.annotations.setdefault(tag, {}).update(loop.annotations)
        axis = self.axes.get(tag)
        if axis is None:
            dom = Range.from_min_extent(loop.min, loop.extent)
            axis = IterVar(dom, Var(tag, loop.loop_var.dtype), loop.thread_binding.iter_type, tag)
            self.axes[tag] = axis
            self.paths[tag] = list(self.stack)
        else:
            assert axis.dom is not None
            if not (_same_number(axis.dom.min, loop.min) and _same_number(axis.dom.extent, loop.extent)):
                raise LoweringError(f"loops bound to {tag} have different extents: {axis.dom.extent} and {loop.extent}")
            path = self.paths[tag]
            same = 0
            while same < min(len(path), len(self.stack)) and path[same] is self.stack[same]:
                same += 1
            del path[same:]
        # Loops over scalar blocks are of int32 where the others of a kernel may be of int64: one axis serves both.
        dtype = loop.loop_var.dtype
        self.values[loop.loop_var] = axis.var if axis.var.dtype == dtype else Cast(dtype, axis.var)

    def places(self) -> dict[For, list[tuple[IterVar, dict[str, Any]]]]:
        """Axes by the loop they go into, innermost axis first."""
        out: dict[For, list[tuple[IterVar, dict[str, Any]]]] = {}
        for tag in sorted(self.paths, reverse=True):
            out.setdefault(self.paths[tag][-1], []).append((self.axes[tag], self.annotations[tag]))
        return out


class _Lift(Substitute):
    def __init__(self) -> None:
        super().__init__({})
        self.places: dict[For, list[tuple[IterVar, dict[str, Any]]]] = {}

    def visit_For(self, loop: For) -> Stmt:
        threaded = loop.kind == ForKind.THREAD_BINDING
        root = threaded and not self.places
        if root:
            find = _Find()
            find.visit(loop)
            self.places, self.values = find.places(), dict(find.values)
        low, extent, body = self.visit(loop.min), self.visit(loop.extent), self.visit(loop.body)
        for axis, marks in self.places.get(loop, ()):
            assert axis.dom is not None
            binding = IterVar(None, Var(axis.thread_tag, axis.var.dtype), IterVar.ThreadIndex, axis.thread_tag)
            body = For(axis.var, axis.dom.min, axis.dom.extent, ForKind.THREAD_BINDING, body, binding, marks)
        if root:
            self.places, self.values = {}, {}
        if threaded:
            return body
        if low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return loop.with_fields(min=low, extent=extent, body=body)


def lift(func: PrimFunc) -> PrimFunc:
    """Lift the thread loops of a function."""
    body = _Lift().visit(func.body)
    return func if body is func.body else func.with_body(body)


class LiftThreadBinding(FunctionRewrite):
    """Lift thread loops to their lowest common ancestor.

    Before::

        for i in T.thread_binding(16, thread="blockIdx.x"):
            for k in range(4):
                for j in T.thread_binding(32, thread="threadIdx.x"): A
            for j in T.thread_binding(32, thread="threadIdx.x"): B

    After::

        for blockIdx_x in T.thread_binding(16, thread="blockIdx.x"):
            for threadIdx_x in T.thread_binding(32, thread="threadIdx.x"):
                for k in range(4): A
                B
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return lift(func)
