"""Checks that a program is what later stages take for granted."""

from __future__ import annotations

from typing import Any

from ...ir.functor import Visitor
from ...ir.module import IRModule
from ..function import PrimFunc
from .structure import undefined_vars

__all__ = ["verify_memory", "verify_ssa", "verify_well_formed"]


class _Definitions(Visitor):
    """Collects variables defined more than once and block variables or loops used out of place."""

    def __init__(self) -> None:
        self.live: set[Any] = set()
        self.ever: set[Any] = set()
        self.errors: list[str] = []
        self.block_depth = 0

    def _define(self, var: Any, what: str) -> None:
        if var in self.live:
            self.errors.append(f"{what} {var.name} is defined again inside its own scope")
        elif var in self.ever:
            self.errors.append(f"{what} {var.name} is defined in more than one place")
        self.live.add(var)
        self.ever.add(var)

    def visit_For(self, node: Any) -> None:
        self._define(node.loop_var, "the loop variable")
        self.visit(node.body)
        self.live.discard(node.loop_var)

    def visit_LetStmt(self, node: Any) -> None:
        self.visit(node.value)
        self._define(node.var, "the variable")
        self.visit(node.body)
        self.live.discard(node.var)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, node: Any) -> None:
        self._define(node.buffer_var, "the allocation")
        self.visit(node.body)
        self.live.discard(node.buffer_var)

    def visit_Block(self, node: Any) -> None:
        own = [iv.var for iv in node.iter_vars]
        for var in own:
            self._define(var, "the block variable")
        for part in (node.init, node.body):
            if part is not None:
                self.visit(part)
        self.live.difference_update(own)


class _LoopsInBlocks(Visitor):
    """A block with variables must not mention the loops around it."""

    def __init__(self) -> None:
        self.outer: set[Any] = set()
        self.hidden: set[Any] = set()
        self.errors: list[str] = []

    def visit_For(self, node: Any) -> None:
        self.visit(node.min)
        self.visit(node.extent)
        self.outer.add(node.loop_var)
        self.visit(node.body)
        self.outer.discard(node.loop_var)

    def visit_BlockRealize(self, node: Any) -> None:
        self.visit(node.iter_values)
        self.visit(node.predicate)
        if not node.iter_values:
            self.visit(node.block)
            return
        before, self.hidden, self.outer = (self.hidden, self.outer), self.hidden | self.outer, set()
        self.visit(node.block)
        self.hidden, self.outer = before

    def visit_Var(self, node: Any) -> None:
        if node in self.hidden:
            self.errors.append(f"the loop variable {node.name} is used inside a block that has variables of its own")

    def visit_Buffer(self, node: Any) -> None:
        pass


def _functions(obj: Any) -> list[tuple[str, PrimFunc]]:
    if isinstance(obj, PrimFunc):
        return [("main", obj)]
    if isinstance(obj, IRModule):
        return [(gv.name_hint, f) for gv, f in obj.functions.items() if isinstance(f, PrimFunc)]
    raise TypeError(f"expected an IRModule or a PrimFunc, got {type(obj).__name__}")


def verify_ssa(func: PrimFunc) -> bool:
    """Whether every variable is defined once."""
    visitor = _Definitions()
    visitor.visit(func.body)
    return not visitor.errors


def verify_well_formed(obj: Any, assert_mode: bool = True) -> bool:
    """Whether variables are defined before use, once at a time, and blocks do not look through to outer loops.

    With ``assert_mode`` a breach raises ValueError.
    """
    for name, func in _functions(obj):
        errors: list[str] = []
        definitions = _Definitions()
        definitions.visit(func.body)
        errors += definitions.errors
        errors += [f"the variable {v.name} is used but not defined" for v in undefined_vars(func)]
        loops = _LoopsInBlocks()
        loops.visit(func.body)
        errors += loops.errors
        if errors:
            if assert_mode:
                raise ValueError(f"The function {name} is not well formed: {errors[0]}.")
            return False
    return True


class _HostAccess(Visitor):
    """Finds accesses of device memory outside of any thread binding."""

    def __init__(self, buffers: set[Any]) -> None:
        self.buffers = buffers
        self.inside = 0
        self.bad = False

    def visit_AttrStmt(self, node: Any) -> None:
        deeper = node.attr_key in ("thread_extent", "pipeline_exec_scope", "device_scope")
        self.inside += deeper
        self.visit(node.body)
        self.inside -= deeper

    def visit_For(self, node: Any) -> None:
        bound = node.thread_binding is not None
        self.inside += bound
        self.visit(node.body)
        self.inside -= bound

    def visit_BufferLoad(self, node: Any) -> None:
        self._check(node)
        self.default_visit(node)

    visit_BufferStore = visit_BufferLoad

    def _check(self, node: Any) -> None:
        if not self.inside and node.buffer.data in self.buffers:
            self.bad = True

    def visit_Buffer(self, node: Any) -> None:
        pass


def verify_memory(func: Any) -> bool:
    """Whether host code leaves device memory alone; functions for a CPU may touch everything."""
    for _, one in _functions(func):
        target = one.attrs.get("target") if one.attrs is not None else None
        kind = str(getattr(getattr(target, "kind", None), "name", "llvm" if target is None else target))
        if kind in ("llvm", "c") or target is None:
            continue
        visitor = _HostAccess({b.data for b in one.buffer_map.values()})
        visitor.visit(one.body)
        if visitor.bad:
            return False
    return True
