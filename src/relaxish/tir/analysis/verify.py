"""Checks that a program is what later stages take for granted."""

from __future__ import annotations

from typing import Any

from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from ...ir.functor import Visitor, post_order_visit
from ...ir.module import IRModule, functions_of
from ...ir.prim import Let, Var
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import Allocate, AttrStmt, BufferStore, For, LetStmt
from .structure import expr_deep_equal

__all__ = ["verify_memory", "verify_ssa"]


class _Definitions(Visitor):
    """Finds variables defined more than once by parameters, statements, or lets of different values."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.twice = False

    def define(self, var: PrimExpr, value: PrimExpr) -> None:
        """Note a definition."""
        self.twice = self.twice or var in self.values
        self.values.setdefault(var, value)

    def signature(self, func: PrimFunc) -> None:
        """Parameters, and the variables that their buffers bring: each may stand in several buffers."""
        for param in func.params:
            self.define(param, param)
        for buffer in func.buffer_map.values():
            for part in (buffer.data, *buffer.shape, *buffer.strides, buffer.elem_offset):
                post_order_visit(
                    part, lambda item: self.values.setdefault(item, item) if isinstance(item, Var) else None
                )

    def visit_For(self, node: For) -> None:
        self.define(node.loop_var, node.loop_var)
        self.default_visit(node)

    def visit_LetStmt(self, node: LetStmt) -> None:
        self.define(node.var, node.value)
        self.visit(node.value)
        self.visit(node.body)

    def visit_Let(self, node: Let) -> None:
        known = self.values.setdefault(node.var, node.value)
        self.twice = self.twice or not expr_deep_equal(known, node.value)
        self.visit(node.value)
        self.visit(node.body)

    def visit_Allocate(self, node: Allocate) -> None:
        self.define(node.buffer_var, node.buffer_var)
        self.default_visit(node)


def _functions(obj: IRModule | PrimFunc) -> list[tuple[str, PrimFunc]]:
    match obj:
        case PrimFunc():
            return [("main", obj)]
        case IRModule():
            return [(gv.name_hint, f) for gv, f in functions_of(obj, PrimFunc)]
    raise TypeError(f"expected an IRModule or a PrimFunc, got {type(obj).__name__}")


def verify_ssa(func: PrimFunc) -> bool:
    """Whether every variable is defined once; a let may be repeated with the same value.

    >>> from relaxish import tir
    >>> x = tir.Var("x", "int32")
    >>> verify_ssa(tir.PrimFunc([x], tir.LetStmt(x, 1, tir.Evaluate(x))))
    False
    """
    visitor = _Definitions()
    visitor.signature(func)
    visitor.visit(func.body)
    return not visitor.twice


class _HostAccess(Visitor):
    """Finds accesses of device memory outside of any thread binding."""

    def __init__(self, buffers: set[Any]) -> None:
        self.buffers = buffers
        self.inside = 0
        self.bad = False

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        deeper = node.attr_key in ("thread_extent", "pipeline_exec_scope", "device_scope")
        self.inside += deeper
        self.visit(node.body)
        self.inside -= deeper

    def visit_For(self, node: For) -> None:
        bound = node.thread_binding is not None
        self.inside += bound
        self.visit(node.body)
        self.inside -= bound

    def visit_BufferLoad(self, node: BufferLoad | BufferStore) -> None:
        self._check(node)
        self.default_visit(node)

    visit_BufferStore = visit_BufferLoad

    def _check(self, node: BufferLoad | BufferStore) -> None:
        if not self.inside and node.buffer.data in self.buffers:
            self.bad = True

    def visit_Buffer(self, node: Buffer) -> None:
        pass


_GPU_DEVICE_TYPES = (2, 4, 7, 8, 10)  # CUDA, OpenCL, Vulkan, Metal, ROCm


def verify_memory(func: PrimFunc | IRModule) -> bool:
    """Whether host code leaves a GPU's memory alone: arguments are accessed inside thread scopes only.

    A function whose calling convention is decided already is host or device code and passes.  Raises ValueError
    for a function without the attribute ``target``.
    """
    for _, one in _functions(func):
        target = one.get_attr("target")
        if target is None:
            raise CheckValueError("VerifyMemory: Require the target attribute")
        if int(one.get_attr("calling_conv", 0)) != 0 or target.get_target_device_type() not in _GPU_DEVICE_TYPES:
            continue
        visitor = _HostAccess({b.data for b in one.buffer_map.values()})
        visitor.visit(one.body)
        if visitor.bad:
            return False
    return True
